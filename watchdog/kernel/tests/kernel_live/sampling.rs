//! The sampler: the memory of all tracked processes in one read.

use watchdog_host::sampler::MemorySample;
use watchdog_types::Bytes;

use super::scene::{KernelScene, TestAgent, eventually};

#[test]
fn sample_agrees_with_proc() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::python("memory = bytearray(200 << 20)\nsys.stdin.readline()\n");
    scene.track(agent.process);
    agent.go();
    let anon = || proc_kib(agent.process.pid.0, "RssAnon:");
    eventually("it holds 200 MiB", || anon() > Bytes::from_mib(200));

    let record =
        *scene.tracer.sample().expect("sample").iter().find(|s| s.tgid == agent.process.pid.0).expect("its sample");
    let sample = MemorySample::from(&record);
    assert_eq!(sample.process, agent.process);
    assert_eq!(sample.ppid.map(|pid| pid.0), Some(std::process::id()));
    let bytes = |pages: u32| Bytes(u64::from(pages) * rustix::param::page_size() as u64);
    assert_close(bytes(sample.anon), anon());
    assert_close(bytes(sample.anon + sample.file + sample.shmem), proc_kib(agent.process.pid.0, "VmRSS:"));
    let comm = std::fs::read(format!("/proc/{}/comm", agent.process.pid)).expect("it lives");
    assert!(sample.comm.expect("a comm").starts_with(comm.trim_ascii_end()));
}

#[test]
fn one_sample_has_thousand_processes() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::python(
        "import os\n\
         children = []\n\
         for _ in range(1000):\n\
         \x20   pid = os.fork()\n\
         \x20   if pid == 0:\n\
         \x20       sys.stdin.readline(); os._exit(0)\n\
         sys.stdin.readline()\n",
    );
    scene.track(agent.process);
    agent.go();
    eventually("a thousand children are sampled", || scene.tracer.sample().expect("sample").len() == 1_001);
    let samples = scene.tracer.sample().expect("sample");
    assert!(samples.iter().all(|sample| sample.pages[1] > 0), "each has memory of its own");
}

fn assert_close(sampled: Bytes, shown: Bytes) {
    assert!(sampled.0.abs_diff(shown.0) < shown.0 / 20, "sampled {sampled:?}, /proc shows {shown:?}");
}

fn proc_kib(pid: u32, key: &str) -> Bytes {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the line is there");
    Bytes::from_kib(line.split_whitespace().nth(1).expect("a value").parse().expect("a number"))
}
