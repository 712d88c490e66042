//! Cases from the field that `tests/cases` cannot state: the gate, forged evidence, races.

mod admission;
mod forged;
mod rules;

use super::shown_world::listed;
use super::world::World;
use watchdog_api::FindingKind;
use watchdog_types::ProcessId;

const CLAUDE: &str = "/home/u/.local/share/claude/versions/2.1.224";

/// The native program as its installer leaves it.
fn claude(world: &mut World) -> ProcessId {
    world.agent_with(CLAUDE, &["claude"])
}

/// `npm exec`, its shell and the server, as each of them executes.
fn npx(world: &mut World, above: ProcessId, package: &str, server: &str) -> [ProcessId; 3] {
    let npm = world.spawn(above, &["/usr/bin/node", "/usr/bin/npx", "-y", package]);
    let sh = world.fork(npm);
    world.exec(sh, "/usr/bin/dash", &["sh", "-c", server]);
    let script = format!("/home/u/.npm/_npx/1/node_modules/.bin/{server}");
    let node = world.spawn(sh, &["/usr/bin/node", &script]);
    [npm, sh, node]
}

/// A shell that an agent's command runs in.
fn shell(world: &mut World, agent: ProcessId, command: &str) -> ProcessId {
    world.spawn(agent, &["/bin/bash", "-c", command])
}

fn pids(processes: &[ProcessId]) -> Vec<u32> {
    let mut pids: Vec<u32> = processes.iter().map(|process| process.pid.0).collect();
    pids.sort_unstable();
    pids
}

/// There is one group, with exactly these.
fn assert_one_group(world: &World, agent: ProcessId, members: &[ProcessId]) {
    let groups = world.open(FindingKind::Orphan);
    assert_eq!(groups.len(), 1, "{groups:#?}");
    assert_eq!(groups[0].evidence["agent_pid"], agent.pid.0);
    assert_eq!(listed(&groups[0]), pids(members));
}

fn proposal(world: &World) -> String {
    world.open(FindingKind::Orphan)[0].proposed_action.clone()
}

fn assert_no_orphan_ever(world: &World) {
    let all = world.all(FindingKind::Orphan);
    assert!(all.is_empty(), "{all:#?}");
}

/// The verdict of a process in the only group.
fn verdict(world: &World, process: ProcessId) -> String {
    let groups = world.open(FindingKind::Orphan);
    let listed = groups[0].evidence["processes"].as_array().cloned().unwrap_or_default();
    let found = listed.iter().find(|listed| listed["pid"] == process.pid.0);
    found.and_then(|found| found["verdict"].as_str()).map_or_else(|| panic!("{process} in {groups:#?}"), str::to_owned)
}
