use std::time::Duration;

use rstest::rstest;

use super::shown_world::{ShownFinding, number};
use super::world::{MINUTE, SECOND, World};
use crate::effect::Effect;
use crate::input::Input;
use watchdog_api::{FindingKind, Severity};
use watchdog_config::{ActionsConfig, Config, Response, Responses};
use watchdog_types::{Bytes, Confinement, ExitStatus, HostMemory, ProcessId, SessionId};

const TOTAL: u64 = 16 * 1024;
const FREE: u64 = 12 * 1024;
const TICK: Duration = Duration::from_millis(250);

/// A host with 12 of 16 GiB free, and a command that an agent's shell runs.
struct CommandRun {
    world: World,
    agent: ProcessId,
    command: ProcessId,
    workers: Vec<ProcessId>,
}

fn job(argv: &[&str]) -> CommandRun {
    job_on(World::new(), FREE, argv)
}

fn job_on(mut world: World, free: u64, argv: &[&str]) -> CommandRun {
    let total = Bytes::from_mib(TOTAL.max(free));
    world.host_is(HostMemory { total, available: Bytes::from_mib(free), ..Default::default() });
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "run"]);
    let command = world.spawn(shell, argv);
    CommandRun { world, agent, command, workers: Vec::new() }
}

fn pytest() -> CommandRun {
    job(&["/usr/bin/python3", "/usr/bin/pytest", "-n", "16"])
}

impl CommandRun {
    fn start(&mut self, count: usize, argv: &[&str]) {
        for _ in 0..count {
            self.workers.push(self.world.spawn(self.command, argv));
        }
    }

    fn hold(&mut self, mib: u64, free: u64) {
        for worker in &self.workers {
            self.world.memory(*worker, Bytes::from_mib(mib));
        }
        let used = mib * self.workers.len() as u64;
        let available = Bytes::from_mib(free.saturating_sub(used).max(64));
        let total = Bytes::from_mib(TOTAL.max(free));
        self.world.host_is(HostMemory { total, available, ..Default::default() });
    }

    /// All workers grow evenly to this much.
    fn grow(&mut self, mib: u64, within: Duration) {
        let steps = (within.as_millis() / TICK.as_millis()) as u64;
        for step in 1..=steps {
            self.world.wait(TICK);
            self.hold(mib * step / steps, FREE);
        }
    }

    fn findings(&self) -> Vec<ShownFinding> {
        let all = [FindingKind::Fanout, FindingKind::Leak, FindingKind::Overlimit];
        all.into_iter().flat_map(|kind| self.world.all(kind)).collect()
    }

    fn only_burst(&self) -> ShownFinding {
        let findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((findings[0].kind, findings[0].pid), (FindingKind::Fanout, self.command.pid.0));
        findings[0].clone()
    }

    fn assert_quiet(&self) {
        assert!(self.findings().is_empty(), "{:#?}", self.findings());
    }
}

#[rstest]
#[case::fast(4)]
#[case::slow(30)]
#[case::slower(240)]
fn growing_workers_are_one_burst(#[case] seconds: u32) {
    let mut job = pytest();
    job.start(16, &["/usr/bin/python3", "-c", "worker"]);
    job.grow(600, seconds * SECOND);
    job.world.wait(MINUTE);

    let burst = job.only_burst();
    assert_eq!(burst.closed_at, None);
    assert_eq!((burst.severity, burst.proposed_action.as_str()), (Severity::Critical, "report"));
    assert_eq!((burst.evidence["workers"].as_u64(), burst.evidence["helpers"].as_u64()), (Some(16), Some(1)));
    assert_eq!(burst.evidence["command"]["name"], "pytest");
    assert_eq!((number(&burst, "memory_bytes") as u64) >> 20, 9_600);
    assert_eq!((number(&burst, "available_bytes") as u64) >> 20, FREE - 9_600);
    assert_eq!(
        burst.summary,
        format!(
            "16 python3 workers of pytest (pid {}): 9.4 GiB now; about 9.4 GiB once they are like their elders; \
             2.6 GiB available",
            job.command.pid
        )
    );
}

#[test]
fn workers_in_turn_form_burst() {
    let mut job = pytest();
    for step in 0..120_u64 {
        if step % 7 == 0 && job.workers.len() < 16 {
            job.start(1, &["/usr/bin/python3", "-c", "worker"]);
        }
        job.world.wait(TICK);
        let mut used = 0;
        for (index, worker) in job.workers.clone().into_iter().enumerate() {
            let mib = ((step - index as u64 * 7) * 40).min(600);
            used += mib;
            job.world.memory(worker, Bytes::from_mib(mib));
        }
        job.world.host(Bytes::from_mib(FREE - used), Bytes(0));
    }
    job.world.wait(MINUTE);
    assert_eq!(job.only_burst().evidence["workers"], 16);
}

#[test]
fn elders_tell_what_workers_will_take() {
    let mut job = pytest();
    job.start(16, &["/usr/bin/python3", "-c", "worker"]);
    job.world.wait(2 * SECOND);
    job.hold(600, FREE);
    job.world.wait(4 * SECOND);
    for process in job.workers.drain(..) {
        job.world.end(process, ExitStatus::Code(0));
    }
    job.world.wait(8 * SECOND);
    let closed = job.only_burst();
    assert_eq!(closed.closed_because.as_deref(), Some("its workers are gone"));

    job.start(16, &["/usr/bin/python3", "-c", "worker"]);
    job.hold(50, FREE);
    job.world.wait(4 * SECOND);
    let open = job.world.open(FindingKind::Fanout);
    assert_eq!(open.len(), 1, "{open:#?}");
    assert_eq!((number(&open[0], "memory_bytes") as u64) >> 20, 800);
    assert_eq!((number(&open[0], "expected_bytes") as u64) >> 20, 9_600);
    assert_eq!(open[0].severity, Severity::Warning);
}

#[test]
fn three_hundred_workers_are_one_burst() {
    let mut job = job(&["/usr/bin/python3", "-c", "import subprocess"]);
    for _ in 0..300 {
        job.start(1, &["/usr/bin/sleep", "61"]);
        job.world.wait(Duration::from_millis(40));
    }
    job.hold(1, FREE);
    job.world.wait(3 * SECOND);
    let burst = job.only_burst();
    assert_eq!((burst.severity, &burst.evidence["workers"]), (Severity::Info, &300.into()));
    assert_eq!((&burst.evidence["workers_at_most"], &burst.evidence["started"]), (&300.into(), &300.into()));
    assert_eq!(burst.evidence["what"][0]["name"], "sleep");

    job.world.end(job.command, ExitStatus::Code(0));
    assert_eq!(job.only_burst().closed_because.as_deref(), Some("its command exited"));
}

#[rstest]
#[case::many(32, true)]
#[case::in_order(16, false)]
fn small_workers_are_counted(#[case] count: usize, #[case] found: bool) {
    let mut job = job(&["/usr/bin/node", "/p/node_modules/.bin/vitest", "run"]);
    job.start(count, &["/usr/bin/node", "/p/node_modules/vitest/dist/workers/forks.js"]);
    job.hold(14, FREE);
    job.world.wait(30 * SECOND);
    assert_eq!(job.findings().len(), usize::from(found), "{:#?}", job.findings());
    if found {
        assert_eq!(job.only_burst().evidence["workers"], 32);
    }
}

#[test]
fn forked_workers_are_one_burst() {
    let mut job = job(&["/usr/bin/python3", "/home/u/train.py"]);
    for _ in 0..16 {
        let worker = job.world.fork(job.command);
        job.workers.push(worker);
    }
    job.grow(600, 10 * SECOND);
    job.world.wait(5 * SECOND);
    assert_eq!(job.only_burst().evidence["workers"], 16);
}

#[rstest]
#[case::make(&["/usr/bin/make", "-j64"], &["/usr/lib/gcc/x86_64-linux-gnu/13/cc1plus", "x.cc"], 64)]
#[case::cargo(&["/usr/bin/cargo", "build"], &["/usr/bin/rustc", "--crate-name", "x"], 16)]
fn build_with_headroom_is_no_burst(#[case] tool: &[&str], #[case] compiler: &[&str], #[case] count: usize) {
    let mut job = job_on(World::new(), 64 * 1024, tool);
    for round in 0..8 {
        job.start(count, compiler);
        for step in 1..=20 {
            job.hold(step * 400 / 20, 64 * 1024);
            job.world.wait(if round % 2 == 0 { TICK } else { SECOND });
        }
        for process in job.workers.drain(..) {
            job.world.end(process, ExitStatus::Code(0));
        }
    }
    job.assert_quiet();
}

#[test]
fn browser_renderers_are_no_burst() {
    let mut job = job(&["/opt/chrome/chrome", "--headless"]);
    job.start(40, &["/opt/chrome/chrome", "--type=renderer"]);
    job.hold(60, FREE);
    job.world.wait(MINUTE);
    job.assert_quiet();
}

#[test]
fn lone_growing_worker_is_a_leak() {
    let mut job = job(&["/usr/bin/python3", "/usr/bin/gunicorn", "-w", "16"]);
    job.start(16, &["/usr/bin/python3", "-c", "worker"]);
    job.hold(100, FREE);
    job.world.wait(2 * MINUTE);
    job.assert_quiet();
    let leaky = job.workers[3];
    for step in 1..=150 {
        job.world.memory(leaky, Bytes::from_mib(100 + step));
        job.world.pass(SECOND);
    }
    let findings = job.findings();
    assert_eq!((findings.len(), findings[0].kind, findings[0].pid), (1, FindingKind::Leak, leaky.pid.0));
}

#[test]
fn burst_of_a_command_throttles_nothing() {
    let responses = Responses([(FindingKind::Fanout, Response::Throttle)].into());
    let actions = ActionsConfig { enforce: true, responses, grace: Duration::ZERO, ..ActionsConfig::default() };
    let world = World::mortal(Config { actions, ..Config::default() });
    let mut job = job_on(world, FREE, &["/usr/bin/python3", "/usr/bin/pytest", "-n", "40"]);
    let session = SessionId(job.world.session(job.agent).id);
    job.world.feed(Input::Confined(session, Confinement { cgroup: Some("/agent".into()), problem: None }));
    job.start(40, &["/usr/bin/python3", "-c", "worker"]);
    job.world.wait(MINUTE);
    let burst = job.only_burst();
    let acts = job.world.effects.iter().filter(|effect| matches!(effect, Effect::Act(_)));
    assert_eq!((burst.action_taken.as_deref(), acts.count()), (None, 0));
}

/// Each worker of 400 grows: one look at them a second, and not one for each.
#[test]
fn many_growing_workers_cost_little() {
    let mut job = job_on(World::new(), 256 * 1024, &["/usr/bin/python3", "/usr/bin/pytest", "-n", "400"]);
    job.start(400, &["/usr/bin/python3", "-c", "worker"]);
    let began = std::time::Instant::now();
    for step in 1..=60 {
        job.hold(50 + step * 5, 256 * 1024);
        job.world.pass(SECOND);
    }
    let spent = began.elapsed();
    assert_eq!(job.only_burst().evidence["workers"], 400);
    assert!(spent < MINUTE, "{spent:?} for a minute of 400 workers, without optimisation");
}
