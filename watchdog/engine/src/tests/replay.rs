//! Trees that were captured from real agents (see `fixtures/agent-trees/README.md`), grown, cut down as the scenario cut
//! them down, and compared with what was left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::shown_world::{listed, naming};
use super::world::{World, aggressive};
use crate::Engine;
use crate::input::Input;
use watchdog_api::{Finding, FindingKind, ProcessState};
use watchdog_classify::ArgumentRedactor;
use watchdog_config::{Config, OrphansConfig, Size};
use watchdog_fixtures::captures::{Capture, Captured, captures, profiles};
use watchdog_types::{Bytes, ExitStatus, Image, KernelEvent, ProcessId, Viewer};

/// What was counted over all captures: a replay that looks at nothing must not pass.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReplayCounts {
    captures: usize,
    killed: usize,
    orphans: usize,
    kept: usize,
    below_kept: usize,
    detached: usize,
    agents_without_launcher: usize,
    ended: usize,
}

/// Short commands are all execs and renamings; none of them leaves a tree.
fn trees() -> Vec<Capture> {
    let mut captures = captures();
    captures.retain(|capture| !capture.name.starts_with("short--") && !capture.name.starts_with("daemon--"));
    captures
}

fn world() -> World {
    World::with(config())
}

/// Detached processes of any age and size are a finding.
fn config() -> Config {
    let orphans = OrphansConfig {
        detached_after: Duration::ZERO,
        detached_memory: Size::Bytes(Bytes(0)),
        ..OrphansConfig::default()
    };
    Config { profiles: profiles(), orphans, ..Config::default() }
}

/// Forks and executes everything in the order in which it began.
fn grow(world: &mut World, capture: &Capture) -> BTreeMap<u32, ProcessId> {
    let mut order: Vec<&Captured> = capture.procs.iter().collect();
    order.sort_by_key(|process| (process.starttime, process.pid));
    let mut grown = BTreeMap::new();
    for process in order {
        let argv: Vec<&str> = process.argv.iter().map(String::as_str).collect();
        let id = match grown.get(&process.ppid).copied() {
            None => world.agent_with(&process.exe_path, &argv),
            Some(parent) => {
                let id = world.fork(parent);
                world.exec(id, &process.exe_path, &argv);
                id
            }
        };
        if process.sid == process.pid {
            world.shows(id, |seen| seen.sid = id.pid.0);
        }
        grown.insert(process.pid, id);
    }
    grown
}

fn findings_of(engine: &Engine) -> Vec<Finding> {
    engine.findings(Viewer::Root, &naming(), true).findings
}

/// The findings of an engine that replays a recording of all inputs of this world.
fn recorded(world: &World) -> Vec<Finding> {
    let (redactor, profiles) = (ArgumentRedactor::default(), profiles());
    let redact = |image: &mut Image| {
        redactor.image(image, |first, mark| profiles.iter().any(|profile| profile.distinguishes(first, mark)));
    };
    let config = Config { actions: aggressive(), ..config() };
    let mut engine = Engine::new(Arc::new(config));
    for (at, input) in &world.inputs {
        let mut input = input.clone();
        match &mut input {
            Input::Kernel(KernelEvent::Exec(exec)) => redact(&mut exec.image),
            Input::Scan(scan) => scan.processes.iter_mut().for_each(|process| redact(&mut process.image)),
            _ => {}
        }
        let text = serde_json::to_string(&input).unwrap();
        engine.step(*at, serde_json::from_str(&text).unwrap(), &mut Vec::new());
    }
    findings_of(&engine)
}

fn has_above(capture: &Capture, pid: u32, wanted: &BTreeSet<u32>) -> bool {
    let parent = |pid: u32| capture.procs.iter().find(|process| process.pid == pid).map(|process| process.ppid);
    std::iter::successors(parent(pid), |above| parent(*above)).any(|above| wanted.contains(&above))
}

/// Replays one capture and complains about what is wrong.
fn replay(capture: &Capture, counts: &mut ReplayCounts) -> Vec<String> {
    let scenario = capture.name.rsplit("--").next().unwrap();
    let mut world = world();
    let ids = grow(&mut world, capture);
    let mut complaints = Vec::new();
    let mut expect = |what: &str, found: &BTreeSet<u32>, expected: &BTreeSet<u32>| {
        if found != expected {
            complaints.push(format!("{}: {what}: found {found:?}, expected {expected:?}", capture.name));
        }
    };
    let pid_of: BTreeMap<u32, u32> = ids.iter().map(|(captured, id)| (id.pid.0, *captured)).collect();
    counts.captures += 1;
    world.wait(Duration::from_secs(2));
    let nothing = BTreeSet::new();
    let all_findings = |world: &World, kind| -> BTreeSet<u32> {
        world.all(kind).iter().filter_map(|finding| pid_of.get(&finding.pid).copied()).collect()
    };
    for kind in [FindingKind::Orphan, FindingKind::Detached, FindingKind::Abandoned, FindingKind::External] {
        expect("a finding while all is well", &all_findings(&world, kind), &nothing);
    }

    let survivors: BTreeSet<u32> = capture.survivors.iter().map(|process| process.pid).collect();
    let root = &capture.procs[0];
    let dead: Vec<&Captured> = match scenario {
        "running" => return complaints,
        // Only the top of the helper's chain is signalled.
        _ if scenario.contains("top") => {
            capture.procs.iter().skip(1).filter(|process| !survivors.contains(&process.pid)).collect()
        }
        _ => capture.procs.iter().filter(|process| !survivors.contains(&process.pid)).collect(),
    };
    let mut dead: Vec<(u64, u32)> = dead.iter().map(|process| (process.starttime, process.pid)).collect();
    dead.sort_unstable();
    let died: BTreeSet<u32> = dead.iter().map(|(_, pid)| *pid).collect();
    counts.killed += usize::from(!dead.is_empty());
    counts.ended += dead.len();
    // The one that was signalled goes first, and everything else in its own time.
    for (position, (_, pid)) in dead.iter().enumerate() {
        world.end(ids[pid], if position == 0 { ExitStatus::Signal(9) } else { ExitStatus::Code(0) });
    }
    world.wait(Duration::from_secs(40));

    let role = |pid: u32| capture.procs.iter().find(|process| process.pid == pid).unwrap().expected_role.as_str();
    let kept: BTreeSet<u32> = survivors.iter().copied().filter(|pid| role(*pid) == "agent-daemon").collect();
    let below_kept: BTreeSet<u32> = survivors.iter().copied().filter(|pid| has_above(capture, *pid, &kept)).collect();
    let left: BTreeSet<u32> = survivors.difference(&kept).copied().collect();
    let left: BTreeSet<u32> = left.difference(&below_kept).copied().collect();
    let agent_lives = !died.contains(&root.pid);
    let lost_parent: BTreeSet<u32> = capture
        .procs
        .iter()
        .filter(|process| left.contains(&process.pid) && died.contains(&process.ppid))
        .map(|process| process.pid)
        .collect();
    let without_launcher: BTreeSet<u32> =
        lost_parent.iter().copied().filter(|pid| agent_lives && role(*pid) == "agent-as-server").collect();
    let detached: BTreeSet<u32> = lost_parent.difference(&without_launcher).copied().collect();
    let detached = if agent_lives { detached } else { nothing.clone() };
    let orphans = if agent_lives { nothing.clone() } else { left };

    let mut groups = world.open(FindingKind::Orphan);
    let lone: BTreeSet<u32> = groups
        .iter()
        .filter(|finding| finding.evidence.get("processes").is_none())
        .inspect(|finding| assert_eq!(finding.proposed_action, "report", "{finding:#?}"))
        .map(|finding| pid_of[&finding.pid])
        .collect();
    groups.retain(|finding| finding.evidence.contains_key("processes"));
    expect("an agent without its launcher", &lone, &without_launcher);
    let found: BTreeSet<u32> = groups.iter().flat_map(listed).map(|pid| pid_of[&pid]).collect();
    expect("orphans", &found, &orphans);
    assert!(groups.len() <= 1, "{}: {groups:#?}", capture.name);
    let found = world.open(FindingKind::Detached).iter().flat_map(listed).map(|pid| pid_of[&pid]).collect();
    expect("detached", &found, &detached);
    let in_state = |state| -> BTreeSet<u32> {
        survivors.iter().copied().filter(|pid| world.row(ids[pid]).state == state).collect()
    };
    expect("kept", &in_state(ProcessState::Kept), &kept);
    let running = in_state(ProcessState::Running);
    expect("in order below what is kept", &below_kept.difference(&running).copied().collect(), &nothing);

    counts.orphans += orphans.len();
    counts.kept += kept.len();
    counts.below_kept += below_kept.len();
    counts.detached += detached.len();
    counts.agents_without_launcher += without_launcher.len();

    // The rest ends, and with it everything that was said of it.
    for pid in survivors.iter().rev().filter(|pid| **pid != root.pid) {
        world.end(ids[pid], ExitStatus::Code(0));
    }
    world.wait(Duration::from_secs(10));
    for kind in [FindingKind::Orphan, FindingKind::Detached] {
        let open = world.open(kind).iter().map(|finding| pid_of[&finding.pid]).collect();
        expect("a finding about the dead", &open, &nothing);
    }
    assert_eq!(recorded(&world), findings_of(&world.engine), "{}", capture.name);
    if !agent_lives {
        let rows = world.tree().sessions.iter().flat_map(|session| &session.processes).map(|row| row.pid).collect();
        expect("in the tree after its end", &rows, &nothing);
    }
    complaints
}

#[test]
fn captured_orphans_are_exact() {
    let mut counts = ReplayCounts::default();
    let complaints: Vec<String> = trees().iter().flat_map(|capture| replay(capture, &mut counts)).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    insta::assert_debug_snapshot!(counts);
}
