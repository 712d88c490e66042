//! Memory that processes share is counted once, at every moment.

use std::time::Duration;

use super::world::{MINUTE, World};
use crate::effect::{Effect, ScanRequest};
use crate::input::Input;
use watchdog_types::{BootTime, Bytes, ExitStatus, Memory, ProcessId, Share, SharesSeen};

fn mib(bytes: Bytes) -> u64 {
    (bytes.0 + (1 << 19)) >> 20
}

/// What a session shows, in MiB.
fn shown(world: &World, agent: ProcessId) -> u64 {
    mib(Bytes(world.session(agent).memory_bytes))
}

/// A parent of 300 MiB below an agent.
fn parent(world: &mut World) -> (ProcessId, ProcessId) {
    let agent = world.claude();
    let parent = world.spawn(agent, &["/usr/bin/python3", "/x/share.py"]);
    world.memory(parent, Bytes::from_mib(300));
    (agent, parent)
}

fn anon(mib: u64) -> Memory {
    Memory { anon: Bytes::from_mib(mib), ..Memory::default() }
}

fn measure(world: &mut World, began: BootTime, shares: &[(ProcessId, u64, u64)]) {
    let shares = shares.iter().map(|&(process, charged, part)| Share {
        process,
        memory: anon(charged),
        proportional: Bytes::from_mib(part),
        private: Bytes(0),
    });
    world.feed(Input::Shares(SharesSeen { began, shares: shares.collect() }));
}

fn requests(world: &World) -> Vec<&Vec<ProcessId>> {
    let requested = world.effects.iter().map(|effect| match effect {
        Effect::Scan(ScanRequest::SharedMemory(group)) => Some(group),
        _ => None,
    });
    requested.flatten().collect()
}

#[test]
fn fork_takes_no_memory() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    for _ in 0..3 {
        let child = world.fork(parent);
        assert_eq!(shown(&world, agent), 300, "before any sample");
        world.memory(child, Bytes::from_mib(300));
        assert_eq!(shown(&world, agent), 300);
    }
    let child = world.fork(parent);
    world.memory(child, Bytes::from_mib(340));
    assert_eq!(shown(&world, agent), 340, "what it has taken since is its own");
}

#[test]
fn resident_follows_measurement() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    let resident = |world: &World| mib(Bytes(world.session(agent).resident_bytes));
    let now = world.now;
    measure(&mut world, now, &[(parent, 300, 150), (child, 300, 150)]);
    assert_eq!((shown(&world, agent), resident(&world)), (300, 600));
    // They share 20 MiB less and hold as much by themselves.
    let now = world.now;
    measure(&mut world, now, &[(parent, 280, 150), (child, 280, 150)]);
    assert_eq!((shown(&world, agent), resident(&world)), (300, 560));
}

#[test]
fn exec_leaves_pages_to_parent() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let children = [(); 2].map(|()| world.fork(parent));
    for child in children {
        world.exec(child, "/usr/bin/sleep", &["sleep", "1"]);
        assert_eq!(shown(&world, agent), 300);
    }
}

#[test]
fn exit_leaves_pages_to_survivors() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let [one, other] = [(); 2].map(|()| world.fork(parent));
    world.end(parent, ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 300);
    world.end(one, ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 300);
    world.end(other, ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 0);
}

#[test]
fn private_memory_released_at_exit() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    let now = world.now;
    world.feed(Input::Shares(SharesSeen {
        began: now,
        shares: vec![
            Share {
                process: parent,
                memory: anon(300),
                proportional: Bytes::from_mib(160),
                private: Bytes::from_mib(20),
            },
            Share {
                process: child,
                memory: anon(300),
                proportional: Bytes::from_mib(240),
                private: Bytes::from_mib(100),
            },
        ],
    }));
    assert_eq!(shown(&world, agent), 400);
    world.end(child, ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 300);
}

#[test]
fn sharers_are_measured_together() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let children = [(); 3].map(|()| world.fork(parent));
    world.wait(Duration::from_secs(1));
    let all: Vec<ProcessId> = [parent].into_iter().chain(children).collect();
    assert_eq!(requests(&world), [&all]);

    let now = world.now;
    measure(&mut world, now, &all.iter().map(|process| (*process, 300, 90)).collect::<Vec<_>>());
    assert_eq!(shown(&world, agent), 360);
    let before = requests(&world).len();
    world.wait(Duration::from_secs(20));
    assert_eq!(requests(&world).len(), before, "nothing has changed");
    world.wait(MINUTE);
    assert!(requests(&world).len() > before, "pages may have been written to");
}

#[test]
fn measurement_of_changed_group_is_void() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    let began = world.now;
    world.wait(Duration::from_millis(50));
    let late = world.fork(parent);
    measure(&mut world, began, &[(parent, 300, 150), (child, 300, 150)]);
    assert_eq!(shown(&world, agent), 300, "three share by now");
    world.wait(Duration::from_secs(3));
    let last = requests(&world).last().map(|group| group.len());
    assert_eq!(last, Some(3), "and are measured anew");
    world.end(late, ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 300);
}

#[test]
fn measurement_during_exec_is_void() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    let began = world.now;
    measure(&mut world, began, &[(parent, 300, 150), (child, 0, 0)]);
    assert_eq!(shown(&world, agent), 300);
    world.exec(child, "/bin/sleep", &["/bin/sleep", "1"]);
    assert_eq!(shown(&world, agent), 300);
}

#[test]
fn unmapped_memory_stays_with_parent() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    world.memory(child, Bytes::from_mib(20));
    world.exec(child, "/bin/sleep", &["/bin/sleep", "1"]);
    assert_eq!(shown(&world, agent), 300);
}

#[test]
fn lone_survivor_is_measured() {
    let mut world = World::new();
    let (agent, parent) = parent(&mut world);
    let child = world.fork(parent);
    world.pass(MINUTE);
    let began = world.now;
    measure(&mut world, began, &[(parent, 300, 150)]);
    world.end(child, ExitStatus::Code(0));
    let before = requests(&world).len();
    world.pass(Duration::from_secs(3));
    assert!(requests(&world)[before..].iter().any(|group| group.as_slice() == [parent]));
    let began = world.now;
    measure(&mut world, began, &[(parent, 300, 300)]);
    assert_eq!(shown(&world, agent), 300);
}

#[test]
fn mapped_memory_stays_with_others() {
    let (mut world, agent) = World::with_claude();
    let servers = [(); 2].map(|()| world.spawn(agent, &["/usr/bin/node", "/x/server.js"]));
    let memory = Memory { shmem: Bytes::from_mib(200), ..Memory::default() };
    servers.iter().for_each(|server| world.sample(*server, memory));
    let share = |process| Share { process, memory, proportional: Bytes::from_mib(100), private: Bytes(0) };
    let seen = SharesSeen { began: world.now, shares: servers.map(share).to_vec() };
    world.feed(Input::Shares(seen));
    assert_eq!(shown(&world, agent), 200);
    world.end(servers[0], ExitStatus::Code(0));
    assert_eq!(shown(&world, agent), 200);
}
