//! What is done to the processes of sessions: they are put into cgroups, go first when memory runs out, and are ended. A client is
//! told of its grant here where its session is confined.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self as deeds, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Report;
use crate::api::{Grant, LaunchUpdate, SessionLimits};
use crate::daemon::clients::Answer;
use crate::daemon::grumble::Grumble;
use crate::daemon::heartbeat::Ping;
use crate::engine::act::Authority;
use crate::engine::gate::{Confinement, Granted, Lease};
use crate::engine::id::{Bytes, Pid, ProcessId, SessionId, Uid};
use crate::engine::input::Input;
use crate::host::cgroup::{Confined, Removal, SessionCgroups};
use crate::host::limits::Cgroups;
use crate::host::pinned::Pinned;
use crate::host::{HostError, oom_score};

/// The time between two tries to take away cgroups that were busy.
const RETRY: Duration = Duration::from_millis(200);
/// Tries; whoever is in there then stays, and the next start of the daemon tries again.
const TRIES: u32 = 50;
/// As many are tried in one go: somebody may wait for a grant meanwhile.
const AT_ONCE: usize = 8;

/// A grant that is to be carried out.
#[derive(Debug)]
pub(in crate::daemon) struct Admission {
    /// It.
    pub(in crate::daemon) granted: Granted,
    /// Who is to be told; `None` when nobody waits for it.
    pub(in crate::daemon) client: Option<Answer>,
}

/// Something to be done.
#[derive(Debug)]
pub(in crate::daemon) enum Deed {
    /// Confine the session, and then tell the client.
    Admit(Box<Admission>),
    /// The session of this root is known: tell what confines it, if an earlier run of the daemon saw to that.
    Resume(ProcessId, SessionId),
    /// The session of this root is over: take away what confined it.
    Release(ProcessId),
    /// Raise the process's oom_score_adj to this, unless it is higher.
    RaiseOomScore(ProcessId, i32),
    /// End a process that was started past the gate, with this power.
    End(ProcessId, Authority),
    /// Answer this: the thread carries out orders.
    Ping(Ping),
}

/// The other side has ended, and so must this one.
struct Ended;

struct Warden {
    reports: mpsc::Sender<Report>,
    cgroups: SessionCgroups,
    /// The cgroups of sessions, by root.
    confined: BTreeMap<ProcessId, String>,
    /// Those that are to go and were busy, and how often that was tried; in the order of the next tries.
    leftover: VecDeque<(String, u32)>,
    failed: Grumble,
}

/// Carries out orders until there is nobody to give or to hear.
pub(super) fn run(orders: &deeds::Receiver<Deed>, reports: mpsc::Sender<Report>) {
    let cgroups = SessionCgroups::new(Cgroups::of_host());
    let (confined, leftover, failed) = (BTreeMap::new(), VecDeque::new(), Grumble::default());
    let mut warden = Warden { reports, cgroups, confined, leftover, failed };
    warden.take_over();
    let mut next = Instant::now();
    loop {
        let deed = if warden.leftover.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(next.saturating_duration_since(Instant::now()))
        };
        let done = match deed {
            Ok(deed) => warden.carry_out(deed),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        };
        if done.is_err() {
            return;
        }
        let now = Instant::now();
        if now >= next {
            next = now + RETRY;
            warden.clear_away();
        }
    }
}

impl Warden {
    fn carry_out(&mut self, deed: Deed) -> Result<(), Ended> {
        match deed {
            Deed::Admit(admission) => self.admit(*admission)?,
            Deed::Resume(root, session) => {
                if let Some(path) = self.confined.get(&root) {
                    let confinement = Confinement { cgroup: Some(path.clone()), problem: None };
                    self.report(Input::Confined(session, confinement))?;
                }
            }
            Deed::Release(root) => {
                if let Some(path) = self.confined.remove(&root) {
                    self.remove(path, 0);
                }
            }
            Deed::RaiseOomScore(process, least) => {
                if let Err(error) = oom_score::raise(process, least) {
                    self.failed.say(error);
                }
            }
            // It may have been given up meanwhile.
            Deed::Ping(ping) => drop(ping.send(())),
            Deed::End(process, authority) => match end(process, authority) {
                Ok(true) => tracing::warn!("killed process {process}: an agent that was started past the gate"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!("process {process} was started past the gate and was not killed: {error}");
                }
            },
        }
        Ok(())
    }

    fn admit(&mut self, Admission { granted, client }: Admission) -> Result<(), Ended> {
        let root = granted.lease.process;
        let Confined { confinement, leftover } = match (granted.limits.cgroup, reach(root, granted.lease.uid)) {
            (false, _) => Confined::default(),
            (true, Ok(())) => self.cgroups.confine(root, &granted.limits),
            (true, Err(why)) => {
                let confinement = Confinement { cgroup: None, problem: Some(why) };
                Confined { confinement, leftover: None }
            }
        };
        self.leftover.extend(leftover.map(|path| (path, 0)));
        if let Some(path) = &confinement.cgroup {
            self.confined.insert(root, path.clone());
        }
        if let Some(client) = client {
            client.give(LaunchUpdate::Granted(grant(&granted, &confinement)));
        }
        if granted.limits.cgroup {
            self.report(Input::Confined(granted.session, confinement))?;
        }
        Ok(())
    }

    fn report(&self, input: Input) -> Result<(), Ended> {
        self.reports.blocking_send(Report::Input(input)).map_err(|_| Ended)
    }

    /// Looks for cgroups that an earlier run made: those of sessions that are over go. An empty one whose root lives may be
    /// another daemon's, which is about to move the root into it.
    fn take_over(&mut self) {
        match self.cgroups.find() {
            Ok(found) => {
                for (root, path) in found {
                    let is_over = |members: &[Pid]| Ok(members.is_empty() && Pinned::of(root)?.is_none());
                    let looked = self.cgroups.members(&path);
                    match looked.and_then(|members| members.map(|members| is_over(&members)).transpose()) {
                        Ok(Some(true)) => self.remove(path, 0),
                        Ok(Some(false)) => {
                            self.confined.insert(root, path);
                        }
                        Ok(None) => {}
                        Err(error) => self.failed.say(error),
                    }
                }
            }
            Err(error) => self.failed.say(error),
        }
    }

    fn clear_away(&mut self) {
        for _ in 0..AT_ONCE.min(self.leftover.len()) {
            if let Some((path, tries)) = self.leftover.pop_front() {
                self.remove(path, tries);
            }
        }
    }

    fn remove(&mut self, path: String, tries: u32) {
        match self.cgroups.remove(&path) {
            Ok(Removal::Gone) => {}
            Ok(Removal::Busy) if tries < TRIES => self.leftover.push_back((path, tries + 1)),
            Ok(Removal::Busy) => self.failed.say(format_args!("the cgroup {path} stays: somebody is still in it")),
            Err(error) => self.failed.say(error),
        }
    }
}

/// Kills a process; `false` when it is dead already.
///
/// # Errors
/// When the process is out of this power's reach, or the kernel refuses.
fn end(process: ProcessId, authority: Authority) -> Result<bool, String> {
    let failed = |error: HostError| error.to_string();
    let Some((pinned, who)) = Pinned::with_identity(process).map_err(failed)? else { return Ok(false) };
    authority.refusal(process.pid, who.users).map_or_else(|| pinned.kill().map_err(failed), Err)
}

/// Whether the user who asked for a launch may decide about this process now.
///
/// # Errors
/// Why not.
fn reach(process: ProcessId, user: Uid) -> Result<(), String> {
    let found = Pinned::with_identity(process).map_err(|error| error.to_string())?;
    let refusal = found.and_then(|(_, who)| Authority::Person(user).refusal(process.pid, who.users));
    refusal.map_or(Ok(()), Err)
}

/// What a client is told of its grant.
pub(in crate::daemon) fn grant(granted: &Granted, confinement: &Confinement) -> Grant {
    let Granted { lease, session, waited, environment, oom_score_adj, limits } = granted;
    let Lease { process: _, profile, uid: _, granted: _, expected, cgroups: _ } = lease;
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

    use super::*;
    use crate::daemon::clients::Clients;
    use crate::engine::gate::Bounds;
    use crate::engine::id::{BootTime, SessionId, Ticks};
    use crate::host::testing::{Subject, eventually};

    /// A warden at work, until its orders end.
    fn at_work() -> (deeds::Sender<Deed>, mpsc::Receiver<Report>) {
        let (deeds, orders) = deeds::channel();
        let (reports, inbox) = mpsc::channel(16);
        std::thread::spawn(move || run(&orders, reports));
        (deeds, inbox)
    }

    fn sleeper() -> Subject {
        Subject::spawn(Command::new("sleep").arg("1000"))
    }

    fn granted(process: ProcessId, cgroup: bool) -> Granted {
        let (profile, uid) = ("claude-code".to_owned(), Uid(1000));
        Granted {
            lease: Lease { process, profile, uid, granted: BootTime(1), expected: Bytes(2), cgroups: Vec::new() },
            session: SessionId(3),
            waited: Duration::from_millis(1_500),
            environment: BTreeMap::new(),
            oom_score_adj: 300,
            limits: Bounds { max_memory: Some(Bytes(4)), max_helpers: None, max_depth: Some(5), cgroup },
        }
    }

    #[tokio::test]
    async fn a_client_is_told_of_its_grant_and_the_engine_of_what_became_of_the_cgroup() {
        let (deeds, mut reports) = at_work();
        // Nobody has this pid, so that no cgroup is made on any host.
        let process = ProcessId { pid: crate::engine::id::Pid(u32::MAX), start_time: Ticks(1) };
        let mut clients = Clients::default();
        for cgroup in [false, true] {
            let mut updates = clients.enter(process).updates;
            let client = clients.leave(process);
            let admission = Admission { granted: granted(process, cgroup), client };
            deeds.send(Deed::Admit(Box::new(admission))).unwrap();
            updates.changed().await.unwrap();
            let Some(LaunchUpdate::Granted(grant)) = updates.borrow().clone() else { panic!("no grant") };
            assert_eq!((grant.session, grant.memory_bytes, grant.waited_seconds), (3, 2, 1.5));
            assert_eq!((grant.limits.max_memory_bytes, grant.limits.max_depth), (Some(4), Some(5)));
            assert_eq!(grant.limits.cgroup, None);
            assert_eq!(grant.limits.cgroup_problem.is_some(), cgroup, "why there is none, where one was wanted");
        }
        let Some(Report::Input(Input::Confined(session, confinement))) = reports.recv().await else {
            panic!("nothing was told")
        };
        assert_eq!((session, confinement.cgroup), (SessionId(3), None));
        drop(deeds);
        assert!(reports.recv().await.is_none(), "of a session without a cgroup there is nothing to tell");
    }

    #[test]
    fn exactly_the_process_that_was_meant_is_ended() {
        let (deeds, _reports) = at_work();
        let (mut meant, mut spared) = (sleeper(), sleeper());
        let successor = ProcessId { start_time: Ticks(spared.process.start_time.0 + 1), ..spared.process };
        deeds.send(Deed::End(successor, Authority::ROOT)).unwrap();
        deeds.send(Deed::End(meant.process, Authority::ROOT)).unwrap();
        eventually("it is dead", || meant.child().try_wait().unwrap().is_some());
        assert!(spared.child().try_wait().unwrap().is_none());
    }

    #[test]
    fn process_of_another_user_is_not_ended() {
        let mut other = sleeper();
        let refused = end(other.process, Authority::Session(Uid(4_000)));
        assert!(refused.is_err_and(|why| why.starts_with("not permitted: ")));
        assert!(other.child().try_wait().unwrap().is_none());
    }
}
