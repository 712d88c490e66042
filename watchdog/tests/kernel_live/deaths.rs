//! How processes end, and what they needed at most.

use watchdog::engine::id::Bytes;
use watchdog::engine::input::{ExitStatus, KernelEvent};

use super::scene::{Agent, Scene, identity};

#[test]
fn the_peak_of_a_burst_is_told_though_nobody_looked() {
    let mut scene = Scene::new();
    let agent = scene.agent("exec dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null");
    let peak = scene.wait_for_exit(agent.process).peak.expect("a peak");
    assert!((Bytes::from_mib(100)..Bytes::from_mib(140)).contains(&peak), "{peak:?}");
}

#[test]
fn the_peak_is_that_of_the_last_program() {
    let mut scene = Scene::new();
    let agent = Agent::python("memory = bytearray(100 << 20)\nimport os; os.execv('/bin/true', ['true'])\n");
    scene.track(agent.process);
    agent.go();
    // Kernels that let go of the memory before they tell of the exit give none.
    let peak = scene.wait_for_exit(agent.process).peak.unwrap_or_default();
    assert!(peak < Bytes::from_mib(50), "{peak:?}");
}

#[test]
fn a_signal_is_told_with_its_sender_and_the_exit_with_the_signal() {
    let mut scene = Scene::new();
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
fn a_fault_is_told_as_the_kernels_own_signal() {
    let mut scene = Scene::new();
    let agent = Agent::python("import ctypes; ctypes.string_at(0)\n");
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
