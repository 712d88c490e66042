//! Puts sessions into cgroups, raises oom_score_adj, and kills ungated agents. Answers the grant of a confined session.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::event_sender::EventSender;
use crate::launch_waiters::ReplySender;
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, Worker};
use watchdog_api::{Grant, LaunchUpdate, SessionLimits};
use watchdog_engine::actions::Authority;
use watchdog_engine::effect::ConfineCommand;
use watchdog_engine::gate::{LaunchGrant, LaunchLease};
use watchdog_engine::input::Input;
use watchdog_host::cgroup::{ConfineResult, Removal, SessionCgroups};
use watchdog_host::limits::CgroupTree;
use watchdog_host::pidfd::PidFd;
use watchdog_host::{HostError, oom_score};
use watchdog_types::{Bytes, Confinement, Pid, ProcessId, SessionId, Uid};

/// The time between two attempts to remove busy cgroups.
const RETRY: Duration = Duration::from_millis(200);
/// Attempts for each cgroup. After the last it stays until the next start of the daemon.
const MAX_TRIES: u32 = 50;
/// Cgroups that are tried in a row: a grant may wait meanwhile.
const RETRY_BATCH: usize = 8;

/// A grant that must be executed.
#[derive(Debug)]
pub(crate) struct PendingGrant {
    pub(crate) granted: LaunchGrant,
    /// `None` when no client waits for it.
    pub(crate) client: Option<ReplySender>,
}

#[derive(Debug)]
pub(crate) enum ConfineTask {
    Engine(ConfineCommand),
    /// Confine the session, then answer the client.
    Grant(Box<PendingGrant>),
    /// Report the cgroup that an earlier run made for the session of this root, if any.
    Resume(ProcessId, SessionId),
    /// The session of this root has ended: remove its cgroup.
    Release(ProcessId),
}

pub(super) struct ConfinementWorker {
    events: EventSender,
    cgroups: SessionCgroups,
    /// The cgroups of sessions, by root.
    confined: BTreeMap<ProcessId, String>,
    /// Cgroups that were busy and must be removed, with the number of attempts, in the order of the next attempts.
    leftover: VecDeque<(String, u32)>,
    next_removal: Instant,
    warning: ThrottledWarning,
}

impl Worker for ConfinementWorker {
    type Command = ConfineTask;

    fn handle(&mut self, task: ConfineTask) -> Result<(), ChannelClosed> {
        match task {
            ConfineTask::Grant(pending) => self.confine(*pending)?,
            ConfineTask::Resume(root, session) => {
                if let Some(path) = self.confined.get(&root) {
                    let confinement = Confinement { cgroup: Some(path.clone()), problem: None };
                    self.events.send_input(Input::Confined(session, confinement))?;
                }
            }
            ConfineTask::Release(root) => {
                if let Some(path) = self.confined.remove(&root) {
                    self.remove(path, 0);
                }
            }
            ConfineTask::Engine(ConfineCommand::RaiseOomScore(process, least)) => {
                if let Err(error) = oom_score::raise(process, least) {
                    self.warning.warn(error);
                }
            }
            ConfineTask::Engine(ConfineCommand::KillUngated(process, authority)) => {
                match kill_ungated(process, authority) {
                    Ok(true) => tracing::warn!("killed ungated process {process}"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!("failed to kill ungated process {process}: {error}"),
                }
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        (!self.leftover.is_empty()).then_some(self.next_removal)
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        let now = Instant::now();
        if now >= self.next_removal {
            self.next_removal = now + RETRY;
            self.retry_removals();
        }
        Ok(())
    }
}

impl ConfinementWorker {
    /// Takes over the cgroups of earlier runs.
    pub(super) fn new(events: EventSender) -> Self {
        let mut worker = Self {
            events,
            cgroups: SessionCgroups::new(CgroupTree::host().clone()),
            confined: BTreeMap::new(),
            leftover: VecDeque::new(),
            next_removal: Instant::now(),
            warning: ThrottledWarning::default(),
        };
        worker.adopt_existing();
        worker
    }

    fn confine(&mut self, PendingGrant { granted, client }: PendingGrant) -> Result<(), ChannelClosed> {
        let root = granted.lease.process;
        let ConfineResult { confinement, leftover } =
            match (granted.limits.cgroup, check_permission(root, granted.lease.uid)) {
                (false, _) => ConfineResult::default(),
                (true, Ok(())) => self.cgroups.confine(root, &granted.limits),
                (true, Err(why)) => {
                    let confinement = Confinement { cgroup: None, problem: Some(why) };
                    ConfineResult { confinement, leftover: None }
                }
            };
        self.leftover.extend(leftover.map(|path| (path, 0)));
        if let Some(path) = &confinement.cgroup {
            self.confined.insert(root, path.clone());
        }
        if let Some(client) = client {
            client.send(LaunchUpdate::Granted(grant_answer(&granted, &confinement)));
        }
        if granted.limits.cgroup {
            self.events.send_input(Input::Confined(granted.session, confinement))?;
        }
        Ok(())
    }

    /// Takes over the cgroups of earlier runs, and removes those whose session has ended. An empty one with a living root is
    /// kept: another daemon may be about to move the root into it.
    fn adopt_existing(&mut self) {
        match self.cgroups.find() {
            Ok(found) => {
                for (root, path) in found {
                    let is_over = |members: &[Pid]| Ok(members.is_empty() && PidFd::of(root)?.is_none());
                    let looked = self.cgroups.members(&path);
                    match looked.and_then(|members| members.map(|members| is_over(&members)).transpose()) {
                        Ok(Some(true)) => self.remove(path, 0),
                        Ok(Some(false)) => {
                            self.confined.insert(root, path);
                        }
                        Ok(None) => {}
                        Err(error) => self.warning.warn(error),
                    }
                }
            }
            Err(error) => self.warning.warn(error),
        }
    }

    fn retry_removals(&mut self) {
        for _ in 0..RETRY_BATCH.min(self.leftover.len()) {
            if let Some((path, tries)) = self.leftover.pop_front() {
                self.remove(path, tries);
            }
        }
    }

    fn remove(&mut self, path: String, tries: u32) {
        match self.cgroups.remove(&path) {
            Ok(Removal::Gone) => {}
            Ok(Removal::Busy) if tries < MAX_TRIES => self.leftover.push_back((path, tries + 1)),
            Ok(Removal::Busy) => {
                self.warning.warn(format_args!("failed to remove the cgroup {path}: it still has members"))
            }
            Err(error) => self.warning.warn(error),
        }
    }
}

/// Returns `false` when the process has exited already.
fn kill_ungated(process: ProcessId, authority: Authority) -> Result<bool, String> {
    let failed = |error: HostError| error.to_string();
    let Some((pinned, identity)) = PidFd::with_identity(process).map_err(failed)? else { return Ok(false) };
    authority.refusal(process.pid, identity.users).map_or_else(|| pinned.kill().map_err(failed), Err)
}

/// Checks that the user who requested a launch may still control its process.
fn check_permission(process: ProcessId, user: Uid) -> Result<(), String> {
    let found = PidFd::with_identity(process).map_err(|error| error.to_string())?;
    let refusal = found.and_then(|(_, identity)| Authority::User(user).refusal(process.pid, identity.users));
    refusal.map_or(Ok(()), Err)
}

pub(crate) fn grant_answer(granted: &LaunchGrant, confinement: &Confinement) -> Grant {
    let LaunchGrant { lease, session, waited, environment, oom_score_adj, limits } = granted;
    let LaunchLease { process: _, profile, uid: _, granted: _, expected, cgroups: _ } = lease;
    Grant {
        granted: true,
        session: session.0,
        profile: profile.clone(),
        memory_bytes: expected.0,
        waited_seconds: waited.as_secs_f64(),
        environment: environment.clone(),
        oom_score_adj: *oom_score_adj,
        limits: SessionLimits {
            max_memory_bytes: limits.max_memory.map(|Bytes(bytes)| bytes),
            max_helpers: limits.max_helpers,
            max_depth: limits.max_depth,
            cgroup: confinement.cgroup.clone(),
            cgroup_problem: confinement.problem.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tokio::sync::mpsc;

    use super::super::WorkerEvent;
    use super::*;
    use crate::launch_waiters::LaunchWaiters;
    use crate::worker::{CommandSender, command_channel, run};
    use watchdog_host::testing::{TestProcess, eventually};
    use watchdog_types::{BootTime, Bounds, SessionId, Ticks};

    fn start_worker() -> (CommandSender<ConfineTask>, mpsc::Receiver<WorkerEvent>) {
        let (commands, inbox) = command_channel();
        let (events, events_rx) = mpsc::channel(16);
        std::thread::spawn(move || run(ConfinementWorker::new(EventSender(events)), &inbox));
        (commands, events_rx)
    }

    fn sleeper() -> TestProcess {
        TestProcess::spawn(Command::new("sleep").arg("1000"))
    }

    fn granted(process: ProcessId, cgroup: bool) -> LaunchGrant {
        let (profile, uid) = ("claude-code".to_owned(), Uid(1000));
        LaunchGrant {
            lease: LaunchLease { process, profile, uid, granted: BootTime(1), expected: Bytes(2), cgroups: Vec::new() },
            session: SessionId(3),
            waited: Duration::from_millis(1_500),
            environment: BTreeMap::new(),
            oom_score_adj: 300,
            limits: Bounds { max_memory: Some(Bytes(4)), max_helpers: None, max_depth: Some(5), cgroup },
        }
    }

    #[tokio::test]
    async fn grant_answers_client_and_engine() {
        let (commands, mut events) = start_worker();
        // No process has this pid, so no cgroup is made.
        let process = ProcessId { pid: watchdog_types::Pid(u32::MAX), start_time: Ticks(1) };
        let mut waiters = LaunchWaiters::default();
        for cgroup in [false, true] {
            let mut updates = waiters.join(process).updates;
            let client = waiters.take_sender(process);
            let pending = PendingGrant { granted: granted(process, cgroup), client };
            commands.send(ConfineTask::Grant(Box::new(pending))).unwrap();
            updates.changed().await.unwrap();
            let Some(LaunchUpdate::Granted(grant)) = updates.borrow().clone() else { panic!("no grant") };
            assert_eq!((grant.session, grant.memory_bytes, grant.waited_seconds), (3, 2, 1.5));
            assert_eq!((grant.limits.max_memory_bytes, grant.limits.max_depth), (Some(4), Some(5)));
            assert_eq!(grant.limits.cgroup, None);
            assert_eq!(grant.limits.cgroup_problem.is_some(), cgroup, "the reason why there is none");
        }
        let Some(WorkerEvent::Input(Input::Confined(session, confinement))) = events.recv().await else {
            panic!("no event")
        };
        assert_eq!((session, confinement.cgroup), (SessionId(3), None));
        drop(commands);
        assert!(events.recv().await.is_none(), "a session without a cgroup has no event");
    }

    #[test]
    fn only_named_process_is_killed() {
        let (commands, _reports) = start_worker();
        let (mut meant, mut spared) = (sleeper(), sleeper());
        let successor = ProcessId { start_time: Ticks(spared.process.start_time.0 + 1), ..spared.process };
        commands.send(ConfineTask::Engine(ConfineCommand::KillUngated(successor, Authority::ROOT))).unwrap();
        commands.send(ConfineTask::Engine(ConfineCommand::KillUngated(meant.process, Authority::ROOT))).unwrap();
        eventually("it is dead", || meant.child().try_wait().unwrap().is_some());
        assert!(spared.child().try_wait().unwrap().is_none());
    }

    #[test]
    fn other_users_process_is_spared() {
        let mut other = sleeper();
        let refused = kill_ungated(other.process, Authority::Session(Uid(4_000)));
        assert!(refused.is_err_and(|why| why.starts_with("not permitted: ")));
        assert!(other.child().try_wait().unwrap().is_none());
    }
}
