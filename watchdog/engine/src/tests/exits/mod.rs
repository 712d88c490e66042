//! Exits as they were reported, and their explanations.

mod exit_causes;
mod explanations;
mod oom_kills;
mod related_deaths;
mod signal_senders;

use std::time::Duration;

use super::shown_world::naming;
use super::world::{USER, World};
use crate::effect::{Effect, ScanRequest};
use crate::exits::ExplainTarget;
use crate::input::Input;
use watchdog_api::{Cause, Certainty, Death, Explanation, OomScope, ProcessKind, Relation};
use watchdog_types::{
    BootTime, Bytes, CgroupLimit, Exit, ExitStatus, HostMemory, KernelEvent, Kill, KillSeen, Limits, Oom, OomCgroup,
    OomSeen, Pid, ProcessId, Signal, Ticks, Uid, Viewer,
};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const SIGHUP: u8 = 1;
const SIGABRT: u8 = 6;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;
const SIGTERM: u8 = 15;
/// `si_code` of kill(2), of abort(3), and of the kernel's own signals.
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
const SI_KERNEL: i32 = 0x80;

const STRANGER: ProcessId = ProcessId { pid: Pid(77), start_time: Ticks(700) };

fn host(world: &mut World, total: u64, available: u64) {
    world.feed(Input::Host(HostMemory {
        total: Bytes(total),
        available: Bytes(available),
        pressure_some_avg10: Some(0.0),
        ..HostMemory::default()
    }));
}

fn signal(world: &mut World, from: (ProcessId, &str), to: ProcessId, signal: u8, code: i32) {
    let (sender, comm) = from;
    world.feed(Input::Kernel(KernelEvent::Signal(Signal {
        at: world.now,
        process: to,
        signal,
        code,
        delivered: true,
        sender,
        sender_comm: comm.into(),
        sender_uid: Uid(0),
        sender_thread_exits: false,
    })));
}

fn abort(world: &mut World, process: ProcessId, peak: u64) {
    signal(world, (process, "node"), process, SIGABRT, SI_TKILL);
    world.end_after(process, ExitStatus::Signal(SIGABRT), Some(Bytes(peak)));
}

fn oom(world: &mut World, victim: ProcessId, comm: &str) {
    world.feed(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: victim.pid,
        process: Some(victim),
        comm: comm.into(),
        trigger: Pid(1),
        uid: Some(USER),
    })));
}

/// The OOM killer takes a process of a session.
fn oom_kill(world: &mut World, victim: ProcessId, peak: u64) {
    signal(world, (STRANGER, "trigger"), victim, SIGKILL, SI_KERNEL);
    oom(world, victim, "comm");
    world.end_after(victim, ExitStatus::Signal(SIGKILL), Some(Bytes(peak)));
}

fn in_cgroup(world: &mut World, process: ProcessId, path: &str, max: u64) {
    let cgroup = Some(CgroupLimit { path: path.into(), max: Bytes(max), current: Bytes(0), ..CgroupLimit::default() });
    world.feed(Input::Limits(process, Limits { cgroup, v8_heap: None, ..Limits::default() }));
}

fn explain_to(world: &World, viewer: Viewer, target: ExplainTarget) -> Option<Explanation> {
    world.engine.explain(viewer, &naming(), world.now, target)
}

fn explain(world: &World, process: ProcessId) -> Explanation {
    explain_to(world, Viewer::Root, ExplainTarget::Pid(process.pid)).unwrap_or_else(|| panic!("nothing of {process}"))
}

fn death(world: &World, process: ProcessId) -> Death {
    explain(world, process).deaths.remove(0)
}

/// The pids of the deaths that were sent to the history.
fn recorded_deaths(world: &World) -> Vec<u32> {
    let died = |effect: &Effect| match effect {
        Effect::Died(death) => Some(death.facts.pid),
        _ => None,
    };
    world.effects.iter().filter_map(died).collect()
}

fn node(world: &mut World, agent: ProcessId, options: &[&str]) -> ProcessId {
    let argv: Vec<&str> = ["/usr/bin/node"].iter().chain(options).chain(&["/x/leak.js"]).copied().collect();
    world.spawn(agent, &argv)
}

/// An agent in a scope of 6 GiB, with a tool that is larger than itself, and another agent outside of it.
fn scope(world: &mut World) -> [ProcessId; 3] {
    host(world, 31 * GIB, 20 * GIB);
    let (agent, outside) = (world.claude(), world.claude());
    let tool = world.spawn(agent, &["/usr/bin/cc1plus", "a.cc"]);
    in_cgroup(world, agent, "/user.slice/run-1.scope", 6 * GIB);
    in_cgroup(world, tool, "/user.slice/run-1.scope", 6 * GIB);
    in_cgroup(world, outside, "/user.slice", 30 * GIB);
    world.memory(agent, Bytes(516 * MIB));
    world.memory(tool, Bytes(3_700 * MIB));
    world.memory(outside, Bytes(9 * GIB));
    [agent, tool, outside]
}
