//! Reclaim: given sessions that are idle or not and a host that is short of memory or not, which processes are paged out, when, and how much.

mod exclusions;
mod idle_readings;
mod pacing;
mod reclaim_properties;
mod requests;
mod when_paged_out;

use std::time::Duration;

use super::shown_world::naming;
use super::world::{MINUTE, SECOND, SHELL, USER, World};
use crate::effect::{BpfCommand, Effect, JournalEvent, ScanRequest};
use crate::input::Input;
use watchdog_config::{self as config, Config};
use watchdog_types::{BootTime, Bytes, HostMemory, Memory, PageOutExclusion, PageOutOutcome, ProcessId, Uid};

pub(super) const SERVER: [&str; 2] = ["/usr/bin/node", "/x/.bin/mcp-server-memory"];

/// A host with 16 GiB, of which 12 are available, and 8 GiB of free swap.
pub(super) fn host(config: &str) -> World {
    let mut world = World::mortal(parse(config));
    available(&mut world, 12 * 1_024);
    world
}

pub(super) fn parse(text: &str) -> Config {
    config::parse(std::path::Path::new("test.toml"), text).unwrap()
}

pub(super) fn available(world: &mut World, mib: u64) {
    let gib = |gib: u64| Bytes::from_mib(gib * 1_024);
    let swap_free = if world.last_host.swap_total == Bytes(0) { gib(8) } else { world.last_host.swap_free };
    world.host_is(HostMemory {
        total: gib(16),
        available: Bytes::from_mib(mib),
        swap_total: gib(8),
        swap_free,
        ..world.last_host
    });
}

/// An agent with one server, which hold so many MiB.
pub(super) fn session(world: &mut World, agent_mib: u64, server_mib: u64) -> [ProcessId; 2] {
    let agent = world.claude();
    let server = world.spawn(agent, &SERVER);
    world.memory(agent, Bytes::from_mib(agent_mib));
    world.memory(server, Bytes::from_mib(server_mib));
    [agent, server]
}

/// The processes of each order.
pub(super) fn ordered(world: &World) -> Vec<Vec<ProcessId>> {
    world.page_outs.iter().map(|(_, order, _)| order.processes.iter().map(|process| process.id).collect()).collect()
}

/// The memory of a process is resident again.
pub(super) fn touched(world: &mut World, process: ProcessId) {
    let memory = world.engine.table.get(process).unwrap().memory;
    world.now = world.now.plus(Duration::from_millis(1));
    world.sample(process, Memory { anon: memory.anon + memory.swap, swap: Bytes(0), ..memory });
}

pub(super) const SHORT: u64 = 3_600;
pub(super) const PLENTY: u64 = 12 * 1_024;
