//! Exits: status, signals and peak memory.

use watchdog_types::{Bytes, ExitStatus, KernelEvent};

use super::scene::{KernelScene, TestAgent, identity};

#[test]
fn exit_reports_peak_of_burst() {
    let mut scene = KernelScene::new();
    let agent = scene.agent("exec dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null");
    let peak = scene.wait_for_exit(agent.process).peak.expect("a peak");
    assert!((Bytes::from_mib(100)..Bytes::from_mib(140)).contains(&peak), "{peak:?}");
}

#[test]
fn peak_is_last_programs() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::python("memory = bytearray(100 << 20)\nimport os; os.execv('/bin/true', ['true'])\n");
    scene.track(agent.process);
    agent.go();
    // Kernels that release the memory before the exit is reported give none.
    let peak = scene.wait_for_exit(agent.process).peak.unwrap_or_default();
    assert!(peak < Bytes::from_mib(50), "{peak:?}");
}

#[test]
fn signal_and_exit_name_sender() {
    let mut scene = KernelScene::new();
    let mut agent = scene.agent("/bin/sleep 30");
    let target = scene.wait_for_exec("exec of sleep", |exec| exec.image.path == "/bin/sleep").process;
    let me = identity(std::process::id());

    let pid = rustix::process::Pid::from_raw(target.pid.0.cast_signed()).expect("not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
    let signal = scene.wait_for("signal", |event| match event {
        KernelEvent::Signal(signal) if signal.process == target => Some(signal.clone()),
        _ => None,
    });
    assert_eq!(signal.signal, 15);
    assert_eq!(signal.sender, me);
    assert_eq!(signal.code, 0, "kill(2) says SI_USER");
    assert!(signal.delivered);
    assert_eq!(signal.sender_uid.0, rustix::process::getuid().as_raw());
    assert_eq!(scene.wait_for_exit(target).status, Some(ExitStatus::Signal(15)));
    agent.child.wait().expect("wait");
}

#[test]
fn fault_is_kernels_signal() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::python("import ctypes; ctypes.string_at(0)\n");
    scene.track(agent.process);
    agent.go();
    let code = scene.wait_for("SIGSEGV", |event| match event {
        KernelEvent::Signal(signal) if signal.process == agent.process && signal.signal == 11 => Some(signal.code),
        _ => None,
    });
    assert!(code > 0, "si_code {code}");
    let status = scene.wait_for_exit(agent.process).status;
    assert_eq!(status, Some(ExitStatus::Signal(11)));
}
