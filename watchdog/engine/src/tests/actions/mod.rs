//! Acting: given findings, people and pressure, when it is acted, then it is on the right ones, once, and the receipt says so.

mod action_properties;
mod action_restart;
mod emergency_actions;
mod freeze_throttle;
mod policy_actions;
mod suspend_pause;
mod target_scope;
mod user_ids;
mod user_requests;

use super::shown_world::naming;
use super::world::{MINUTE, SECOND, USER, World};
use crate::actions::{ActionRequest, ActionRequestError, Operation, RequestedAction};
use crate::effect::JournalEvent;
use crate::input::Input;
use watchdog_api::{ActionState, FindingKind, Receipt, Subject};
use watchdog_config::{ActionsConfig, Config};
use watchdog_types::{Bytes, HostMemory, ProcessId, SessionId, Uid, Viewer};

const ROOT: Uid = Uid::ROOT;

/// A host on which signals end processes. Policy is on, unless the test changes that.
fn acting(change: impl FnOnce(&mut Config)) -> World {
    let mut config =
        Config { actions: ActionsConfig { enforce: true, ..ActionsConfig::default() }, ..Config::default() };
    change(&mut config);
    let mut world = World::mortal(config);
    world.host_is(memory(16_384, 12_000));
    world
}

/// One on which only people act.
fn reporting() -> World {
    acting(|config| config.actions.enforce = false)
}

fn reporting_with_server() -> (World, ProcessId, [ProcessId; 3]) {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    (world, agent, chain)
}

/// So many MiB, of which so much is available; the rest is processes'.
fn memory(total: u64, available: u64) -> HostMemory {
    let [total, available, anon] = [total, available, total - available].map(Bytes::from_mib);
    HostMemory { total, available, anon, ..HostMemory::default() }
}

/// `npm exec`, its shell and the server, 40 MiB each.
fn server(world: &mut World, agent: ProcessId) -> [ProcessId; 3] {
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npx", "-y", "@modelcontextprotocol/server-memory"]);
    let sh = world.spawn(npm, &["/bin/sh", "-c", "mcp-server-memory"]);
    let node = world.spawn(sh, &["/usr/bin/node", "/home/u/.npm/_npx/1/node_modules/.bin/mcp-server-memory"]);
    let chain = [npm, sh, node];
    chain.iter().for_each(|process| world.memory(*process, Bytes::from_mib(40)));
    chain
}

/// A server whose agent was killed just now.
fn orphaned(world: &mut World) -> [ProcessId; 3] {
    let agent = world.claude();
    let chain = server(world, agent);
    world.kill(agent);
    chain
}

/// A server whose agent was killed a second ago.
fn left_behind(world: &mut World) -> [ProcessId; 3] {
    let chain = orphaned(world);
    world.wait(SECOND);
    chain
}

/// Such a server that received SIGTERM, and ignores it.
fn reaped() -> (World, [ProcessId; 3]) {
    let mut world = reporting();
    let chain = left_behind(&mut world);
    world.stubborn.extend(chain);
    reap(&mut world, &[]).unwrap();
    (world, chain)
}

/// A tool below an agent that holds so many MiB.
fn tool(world: &mut World, agent: ProcessId, mib: u64) -> ProcessId {
    let tool = world.spawn(agent, &["/usr/bin/gcc", "-c", "x.c"]);
    world.memory(tool, Bytes::from_mib(mib));
    tool
}

fn receipts(world: &World) -> Vec<Receipt> {
    world.engine.actions(Viewer::Root, &naming()).actions
}

/// The only receipt there is.
fn receipt(world: &World) -> Receipt {
    let all = receipts(world);
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

/// What was sent to a process, in order.
fn sent(receipt: &Receipt, process: ProcessId) -> Vec<(&str, &str)> {
    let target = receipt.targets.iter().find(|target| target.pid == process.pid.0);
    let target = target.unwrap_or_else(|| panic!("{process} in {receipt:#?}"));
    target.sent.iter().map(|sent| (sent.what.as_str(), sent.answer.as_str())).collect()
}

fn ask(world: &mut World, uid: Uid, what: RequestedAction) -> Result<(), ActionRequestError> {
    let ask = ActionRequest { uid, what, expect: None };
    let planned = world.engine.plan(&ask).map(drop);
    if planned.is_ok() {
        world.feed(Input::RequestAction(ask));
    }
    planned
}

fn reap(world: &mut World, subjects: &[Subject]) -> Result<(), ActionRequestError> {
    ask(world, USER, RequestedAction::Reap(subjects.to_vec()))
}

/// Why policy did not do what it would, each time that it said so.
fn held_back(world: &World) -> Vec<&str> {
    let said = world.journal.iter().filter_map(|what| match what {
        JournalEvent::ActionsHeldBack { detail } => Some(detail.as_str()),
        _ => None,
    });
    said.collect()
}

fn all_dead(world: &World, processes: &[ProcessId]) -> bool {
    processes.iter().all(|process| world.living().all(|living| living != *process))
}
