//! The interface of a detector: what it may read, its events, and its conclusions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::survey::Helper;
use crate::effect::Effect;
use crate::excess::Excesses;
use crate::finding::{Detection, FindingStore, Key};
use crate::gate::GateState;
use crate::ownership::{self, Ownership};
use crate::process::TrackedProcess;
use crate::session::Sessions;
use crate::table::Table;
use watchdog_config::Config;
use watchdog_types::{
    Activity, BootTime, Container, HostMemory, ProcessId, SessionId, Surroundings, TaskReading, Tmpfs,
};

/// The read-only view from which detectors conclude.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) now: BootTime,
    pub(crate) config: &'a Config,
    pub(crate) table: &'a Table,
    pub(crate) sessions: &'a Sessions,
    pub(crate) findings: &'a FindingStore,
    pub(crate) host: &'a HostMemory,
    pub(crate) excesses: &'a Excesses,
    /// Processes whose memory is charged to no session.
    pub(crate) uncharged: &'a BTreeSet<ProcessId>,
    /// Workers whose growth their command's burst may explain, and since when.
    pub(crate) growing_workers: &'a BTreeMap<ProcessId, BootTime>,
    /// Asked for finished subagents only.
    pub(crate) gate: &'a GateState,
}

/// The conclusions of a detector. The engine applies them in this order when the detector returns.
#[derive(Debug, Default)]
pub(crate) struct Conclusions {
    pub(crate) list: Vec<Conclusion>,
}

#[derive(Debug)]
pub(crate) enum Conclusion {
    /// Open the finding, or update the open one of this key.
    Report(Box<Detection>),
    Close(Key, &'static str),
    /// Inspect a process, read its activity, find containers.
    Ask(Effect),
    /// The next survey of helpers must not wait for its turn.
    SurveySoon,
    /// Policy may have waited for what was just reported.
    ReviewPolicy,
    /// From now on these processes are charged to no session.
    Uncharge(BTreeSet<ProcessId>),
    /// A worker grows. Its burst may explain that.
    WorkerGrows(ProcessId),
    /// A worker no longer grows, or is no worker.
    WorkerSettled(ProcessId),
}

/// Events of the table, and answers to what detectors asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableEvent<'a> {
    /// A process was forked or found, or was judged anew: it may belong to another group now.
    Placed(ProcessId),
    /// A process counts as started although no exec event shows it.
    Started(ProcessId, BootTime),
    Executed(ProcessId, BootTime),
    Exited(ProcessId, BootTime),
    /// A process exited that is watched, and in no session.
    WitnessExited(ProcessId, BootTime),
    /// A process received SIGHUP, or a sample shows it without the terminal that it had.
    HungUp(ProcessId),
    /// A sample shows it with another parent.
    Reparented(ProcessId),
    /// /proc was read for a process, or no longer lists it.
    Inspected(ProcessId),
    /// The ceilings of a process were read, with its oom_score_adj.
    LimitsRead(ProcessId),
    Sampled(ProcessId, BootTime),
    /// All helpers, oldest first. The next survey follows after the span.
    Surveyed(&'a [Helper], Duration),
    HostRead,
    /// The answer to [`ScanRequest::Activity`](crate::effect::ScanRequest::Activity).
    ActivityRead(&'a [Activity]),
    /// The answer to [`ScanRequest::Containers`](crate::effect::ScanRequest::Containers).
    ContainersFound(ProcessId, &'a [Container]),
    /// The answer to [`ScanRequest::Tmpfs`](crate::effect::ScanRequest::Tmpfs).
    TmpfsRead(&'a Tmpfs),
    /// The answer to [`ScanRequest::Surroundings`](crate::effect::ScanRequest::Surroundings).
    SurroundingsRead(&'a [Surroundings]),
    /// The answer to [`ScanRequest::Tasks`](crate::effect::ScanRequest::Tasks).
    TasksRead(&'a TaskReading),
    /// Time has passed: 20 ms at least, a second at most.
    Tick,
}

/// Draws conclusions from the table and its events, and owns its state. It overrides the methods of the events that it wants.
///
/// Calls are static: a method that is not overridden costs nothing. `executed`, `exited` and `sampled` are hot; they must be a
/// look-up for processes that do not concern the detector.
pub(crate) trait Detector {
    fn on(&mut self, event: TableEvent<'_>, facts: &Facts<'_>, out: &mut Conclusions) {
        match event {
            TableEvent::Placed(process) => self.placed(process, facts, out),
            TableEvent::Started(process, at) => self.started(process, at, facts),
            TableEvent::Executed(process, at) => self.executed(process, at, facts, out),
            TableEvent::Exited(process, at) => self.exited(process, at, facts, out),
            TableEvent::WitnessExited(process, at) => self.witness_exited(process, at, facts, out),
            TableEvent::HungUp(process) => self.hung_up(process, facts, out),
            TableEvent::Reparented(process) => self.reparented(process, facts, out),
            TableEvent::Inspected(process) => self.inspected(process, facts, out),
            TableEvent::LimitsRead(process) => self.limits_read(process, facts, out),
            TableEvent::Sampled(process, at) => self.sampled(process, at, facts, out),
            TableEvent::Surveyed(helpers, pace) => self.surveyed(helpers, pace, facts, out),
            TableEvent::HostRead => self.host_read(facts, out),
            TableEvent::ActivityRead(activities) => self.activity_read(activities, facts),
            TableEvent::ContainersFound(client, found) => self.containers_found(client, found, out),
            TableEvent::TmpfsRead(tmpfs) => self.tmpfs_read(tmpfs, facts, out),
            TableEvent::SurroundingsRead(seen) => self.surroundings_read(seen, facts, out),
            TableEvent::TasksRead(reading) => self.tasks_read(reading, facts, out),
            TableEvent::Tick => self.tick(facts, out),
        }
    }

    /// A lineage, a parent or a verdict changed somewhere in the table.
    fn changed(&mut self) {}

    /// When the next tick is wanted; `None` where a second is soon enough.
    fn due(&self, _now: BootTime, _config: &Config) -> Option<Duration> {
        None
    }

    fn placed(&mut self, _process: ProcessId, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn started(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>) {}

    fn executed(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    /// The table still has the process, dead.
    fn exited(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn witness_exited(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn hung_up(&mut self, _process: ProcessId, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn reparented(&mut self, _process: ProcessId, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn inspected(&mut self, _process: ProcessId, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn limits_read(&mut self, _process: ProcessId, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn sampled(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn surveyed(&mut self, _helpers: &[Helper], _pace: Duration, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn host_read(&mut self, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn activity_read(&mut self, _activities: &[Activity], _facts: &Facts<'_>) {}

    fn containers_found(&mut self, _client: ProcessId, _found: &[Container], _out: &mut Conclusions) {}

    fn tmpfs_read(&mut self, _tmpfs: &Tmpfs, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn surroundings_read(&mut self, _seen: &[Surroundings], _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn tasks_read(&mut self, _reading: &TaskReading, _facts: &Facts<'_>, _out: &mut Conclusions) {}

    fn tick(&mut self, _facts: &Facts<'_>, _out: &mut Conclusions) {}
}

impl<'a> Facts<'a> {
    pub(crate) fn ownership(&self, process: &TrackedProcess) -> Ownership {
        ownership::ownership(self.table, self.sessions, process)
    }

    /// The living agent of a session: the launcher, or the agent behind it once that has exited.
    pub(crate) fn agent_of(&self, session: SessionId) -> Option<&'a TrackedProcess> {
        ownership::agent_of(self.table, self.sessions, session)
    }
}

impl Conclusions {
    pub(crate) fn report(&mut self, seen: Detection) {
        self.list.push(Conclusion::Report(Box::new(seen)));
    }

    pub(crate) fn close(&mut self, key: Key, because: &'static str) {
        self.list.push(Conclusion::Close(key, because));
    }

    pub(crate) fn ask(&mut self, effect: Effect) {
        self.list.push(Conclusion::Ask(effect));
    }

    pub(crate) fn inspect(&mut self, process: ProcessId) {
        self.ask(Effect::Inspect(process));
    }

    pub(crate) fn survey_soon(&mut self) {
        self.list.push(Conclusion::SurveySoon);
    }

    pub(crate) fn review_policy(&mut self) {
        self.list.push(Conclusion::ReviewPolicy);
    }

    pub(crate) fn worker_grows(&mut self, process: ProcessId) {
        self.list.push(Conclusion::WorkerGrows(process));
    }

    pub(crate) fn worker_settled(&mut self, process: ProcessId) {
        self.list.push(Conclusion::WorkerSettled(process));
    }

    pub(crate) fn uncharge(&mut self, processes: BTreeSet<ProcessId>) {
        self.list.push(Conclusion::Uncharge(processes));
    }

    /// The kernel reports an exit before it gives the dead process's children another parent: inspect a child that was inspected
    /// in between once more.
    pub(crate) fn inspect_for_new_parent(&mut self, process: ProcessId, facts: &Facts<'_>) {
        let Some(known) = facts.table.alive(process) else { return };
        let Some(seen) = known.inspection.as_deref() else { return };
        let dead = |parent: &ProcessId| parent.pid.0 == seen.ppid && facts.table.alive(*parent).is_none();
        if known.forked_by.as_ref().is_some_and(dead) {
            self.inspect(process);
        }
    }
}
