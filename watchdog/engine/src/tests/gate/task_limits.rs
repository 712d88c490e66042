use rstest::rstest;

use super::{ask, granted, launch, queue_position, refusals, refused, roomy, start};
use crate::effect::{Effect, ScanRequest};
use crate::gate::Launch;
use crate::input::Input;
use crate::tests::world::{SECOND, World};
use watchdog_api::RefusalReason;
use watchdog_types::{ProcessId, TaskLimit, TaskLimitScope, TaskReading, Uid};

fn limit(of: TaskLimitScope, used: u64, max: u64) -> TaskLimit {
    TaskLimit { of, used, max, agents: Vec::new() }
}

fn cgroup(path: &str) -> TaskLimitScope {
    TaskLimitScope::Cgroup(path.into())
}

fn ask_below(world: &mut World, tasks: Vec<TaskLimit>, waits: bool) -> ProcessId {
    let asked = launch(world);
    ask(world, Launch { tasks, waits, ..asked })
}

#[rstest]
#[case::scope(cgroup("/user.slice/run-1.scope"), 470, 512, "sudo systemctl set-property run-1.scope TasksMax=1024")]
#[case::unit_of_user(
    cgroup("/user.slice/user-1000.slice/user@1000.service/app.slice/agents.service"),
    60,
    64,
    "`systemctl --user set-property agents.service TasksMax=572`"
)]
#[case::container(cgroup("/docker/1f"), 50, 60, "echo 562 | sudo tee /sys/fs/cgroup/docker/1f/pids.max")]
#[case::user(TaskLimitScope::User(Uid(1_000)), 4_000, 4_096, "ulimit -u 8192")]
#[case::host(TaskLimitScope::Host, 30_000, 32_768, "sudo sysctl kernel.threads-max=65536 kernel.pid_max=65536")]
fn near_task_limit_is_refused(#[case] of: TaskLimitScope, #[case] used: u64, #[case] max: u64, #[case] command: &str) {
    let mut world = roomy("");
    let process = ask_below(&mut world, vec![limit(TaskLimitScope::Host, 200, 90_000), limit(of, used, max)], false);
    assert_eq!(refused(&world, process), Some(RefusalReason::Tasks));
    let detail = &refusals(&world)[0].blocker.detail;
    assert!(detail.starts_with(&format!("{used} of {max} tasks")) && detail.contains(command), "{detail}");
}

#[test]
fn far_task_limit_is_no_matter() {
    let mut world = roomy("");
    let process = ask_below(&mut world, vec![limit(cgroup("/a.slice"), 300, 512)], false);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn small_cgroup_refuses_agent() {
    let mut world = roomy("");
    let process = ask_below(&mut world, vec![limit(cgroup("/a.slice"), 18, 32)], false);
    assert_eq!(refused(&world, process), Some(RefusalReason::Tasks));
}

#[test]
fn waiting_launch_starts_once_tasks_end() {
    let mut world = roomy("");
    let waits = ask_below(&mut world, vec![limit(cgroup("/a.slice"), 500, 512)], true);
    assert_eq!(queue_position(&world, waits).unwrap().blocker.reason, RefusalReason::Tasks);
    let other = start(&mut world);
    assert_eq!(granted(&world), [other], "other launches pass");
    world.effects.clear();
    world.pass(SECOND);
    assert!(world.effects.contains(&Effect::Scan(ScanRequest::LaunchTasks(waits))), "{:?}", world.effects);
    world.feed(Input::LaunchTasks(waits, vec![limit(cgroup("/a.slice"), 40, 512)]));
    assert_eq!(granted(&world), [waits]);
}

#[test]
fn holders_of_tasks_are_named() {
    let mut world = roomy("");
    let agent = world.claude();
    let near = TaskLimit { agents: vec![agent], ..limit(cgroup("/a.slice"), 500, 512) };
    world.tasks = TaskReading { limits: vec![near.clone()], threads: vec![(agent, 480)] };
    world.wait(11 * SECOND);
    ask_below(&mut world, vec![near], false);
    assert_eq!(refusals(&world)[0].blocker.holders.iter().map(|holder| holder.0).collect::<Vec<_>>(), [1]);
}
