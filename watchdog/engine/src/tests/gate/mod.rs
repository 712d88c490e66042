//! The gate: given a host and its bounds, when launches are asked for, then no bound is ever passed and no place is lost.

mod admission_rules;
mod breaker_rules;
mod fleet_places;
mod gate_properties;
mod gate_restart;
mod head_blocking;
mod memory_rules;
mod profile_limits;
mod queue_rules;
mod service_order;
mod session_limits;
mod starvation;
mod subagent_limits;
mod task_limits;

use std::time::Duration;

use super::shown_world::naming;
use super::world::{SHELL, USER, World, image};
use crate::effect::{BpfCommand, ClientReply, ConfineCommand, Effect, PersistCommand, ScanRequest};
use crate::gate::{Cancellation, Launch, LaunchGrant, LaunchRefusal, QueuePosition};
use crate::input::Input;
use watchdog_api::{self as api, RefusalReason};
use watchdog_config::{self as config, Config};
use watchdog_types::{Bytes, HostMemory, Pid, ProcessId, Uid, Viewer};

pub(super) const GIB: u64 = 1_024;

/// A host with this much memory, in MiB, of which so much is available, under this configuration.
pub(super) fn host(config: &str, total: u64, available: u64) -> World {
    let config = config::parse(std::path::Path::new("test.toml"), config).unwrap();
    let mut world = World::with(config);
    memory(&mut world, total, available);
    world
}

/// A host on which memory is no matter.
pub(super) fn roomy(config: &str) -> World {
    host(config, 1_024 * GIB, 1_000 * GIB)
}

pub(super) fn memory(world: &mut World, total: u64, available: u64) {
    let (total, available) = (Bytes::from_mib(total), Bytes::from_mib(available));
    world.feed(Input::Host(HostMemory { total, available, ..HostMemory::default() }));
}

/// A launch of claude by a process at a terminal.
pub(super) fn launch(world: &mut World) -> Launch {
    let process = world.launcher();
    launch_of(process)
}

pub(super) fn launch_of(process: ProcessId) -> Launch {
    Launch {
        process,
        ppid: SHELL.pid,
        uid: USER,
        comm: "watchdogctl".into(),
        image: image("/usr/bin/claude", &["claude"]),
        profile: None,
        priority: 0,
        timeout: None,
        waits: true,
        memory: None,
        cgroups: Vec::new(),
        tasks: Vec::new(),
        ticket: None,
    }
}

/// Asks; the process that asked.
pub(super) fn ask(world: &mut World, launch: Launch) -> ProcessId {
    let process = launch.process;
    world.feed(Input::Launch(Box::new(launch)));
    process
}

/// Asks for claude as it comes.
pub(super) fn start(world: &mut World) -> ProcessId {
    let launch = launch(world);
    ask(world, launch)
}

/// So many that ask at once.
pub(super) fn crowd(world: &mut World, count: usize) -> Vec<ProcessId> {
    (0..count).map(|_| start(world)).collect()
}

pub(super) fn grants(world: &World) -> Vec<LaunchGrant> {
    let granted = |effect: &Effect| match effect {
        Effect::Reply(ClientReply::Granted(granted)) => Some((**granted).clone()),
        _ => None,
    };
    world.effects.iter().filter_map(granted).collect()
}

/// The processes that were granted, in order.
pub(super) fn granted(world: &World) -> Vec<ProcessId> {
    grants(world).into_iter().map(|granted| granted.lease.process).collect()
}

pub(super) fn refusals(world: &World) -> Vec<LaunchRefusal> {
    let refused = |effect: &Effect| match effect {
        Effect::Reply(ClientReply::Refused(refused)) => Some((**refused).clone()),
        _ => None,
    };
    world.effects.iter().filter_map(refused).collect()
}

/// Why this one was refused.
pub(super) fn refused(world: &World, process: ProcessId) -> Option<RefusalReason> {
    refusals(world).into_iter().find(|refused| refused.process == process).map(|refused| refused.blocker.reason)
}

/// The last position that the client of this queued launch received.
pub(super) fn queue_position(world: &World, process: ProcessId) -> Option<QueuePosition> {
    let waits = |effect: &Effect| match effect {
        Effect::Reply(ClientReply::Queued(waits)) if waits.process == process => Some((**waits).clone()),
        _ => None,
    };
    world.effects.iter().rev().find_map(waits)
}

pub(super) fn queue(world: &World) -> api::Queue {
    world.engine.queue(world.now, Viewer::Root, &naming())
}

/// The pids that wait, the next one first.
pub(super) fn waiting(world: &World) -> Vec<u32> {
    queue(world).waiting.into_iter().map(|waiter| waiter.pid).collect()
}

pub(super) fn pids(processes: &[ProcessId]) -> Vec<u32> {
    processes.iter().map(|process| process.pid.0).collect()
}

/// The agent executes its program, as a launcher does as soon as it is granted.
pub(super) fn run(world: &mut World, process: ProcessId) {
    world.exec(process, "/usr/bin/claude", &["claude"]);
}

pub(super) fn config_with(gate: &str) -> String {
    format!("[gate]\n{gate}\n")
}

pub(super) fn default_config() -> Config {
    Config::default()
}
