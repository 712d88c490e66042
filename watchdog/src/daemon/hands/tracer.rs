//! The thread that has the kernel's programs: it keeps their map, counts what they lose, and samples memory through them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self as orders, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::denied_files::Search;
use super::{Admission, Deed, Loaded, Probe, Report, poller, warden};
use crate::api::{self, LaunchUpdate, RefusalReason};
use crate::config::{Candidates, Config, DeniedFiles, denied_names};
use crate::daemon::grumble::Grumble;
use crate::daemon::heartbeat::Ping;
use crate::engine::gate::{Bounds, Confinement};
use crate::engine::id::ProcessId;
use crate::engine::input::{Input, Lineage};
use crate::host::pins::{PinError, Pins};
use crate::host::sampler::{Change, Glance, HOST_INTERVAL, Sampler, refine, until_next_look};
use crate::host::statm::StatmReader;
use crate::host::{HostError, clock, meminfo};
use crate::kernel::{KernelError, LoadOptions, Lost, Placed, Tracer};

/// Orders that are carried out one after the other before anything that is due gets its turn.
const STREAK: usize = 64;
/// Of those that could not be tracked so many are tried again at once.
const TRIES_AT_ONCE: usize = 256;
/// The time between two looks at the counters of losses: with the scan that follows, the table is right again within a second.
const LOST_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two attempts to track processes that could not be tracked.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Refusals by the kernel programs count as processes that are not tracked for this long. By then a scan has found those that
/// live.
const REFUSALS_COUNT_FOR: Duration = Duration::from_secs(3);

/// Something to be done to the kernel's programs.
#[derive(Debug)]
pub(in crate::daemon) enum Order {
    /// Put the process into the map, or change its entry.
    Track(ProcessId, Lineage),
    /// Take the process out of the map.
    Untrack(ProcessId),
    /// Attach or detach the memory programs.
    CloseWatch(bool),
    /// Hold the session of this root to these bounds, as far as the kernel programs do.
    Bound(ProcessId, Bounds),
    /// Hold it to nothing any more, and have taken away what confined it.
    Unbound(ProcessId),
    /// Look out for this configuration's agents, and look at memory as often as it says.
    Configure(Arc<Config>),
    /// Have all processes looked at, with what the map holds.
    Scan,
    /// Read the events that earlier daemons left.
    ReadLeft,
    /// What an earlier daemon left is in the table: the next one can begin after it.
    TableIsRight,
    /// Look at the host's memory now.
    LookAtHost,
    /// Answer this: the thread carries out orders.
    Ping(Ping),
    /// Have a grant carried out and answered, now that its root is in the map.
    Admit(Box<Admission>),
}

/// Where things go on.
pub(super) struct Ways {
    /// To the one that looks at all processes.
    pub(super) prober: orders::Sender<Probe>,
    /// To the one that puts sessions into cgroups, and answers their grants.
    pub(super) warden: orders::Sender<Deed>,
    /// To the engine.
    pub(super) reports: mpsc::Sender<Report>,
}

/// The other side has ended, and so must this one.
struct Ended;

/// Memory could not be looked at.
#[derive(Debug, thiserror::Error)]
enum NoGlance {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Host(#[from] HostError),
}

struct Hand {
    tracer: Tracer,
    prober: orders::Sender<Probe>,
    warden: orders::Sender<Deed>,
    reports: mpsc::Sender<Report>,
    sampler: Sampler,
    statm: StatmReader,
    zombies: Vec<ProcessId>,
    /// Names of agents that are not let start past the gate; none where they are.
    denied: Vec<Vec<u8>>,
    /// Looks for the files of denied agents.
    search: Search,
    /// They are not let start now.
    denies: bool,
    /// Roots whose session the kernel does not follow or hold as a grant needs, and why.
    unheld: HashMap<ProcessId, String>,
    /// Who could not be put into the map.
    unplaced: VecDeque<(ProcessId, Lineage)>,
    /// Scans that were ordered.
    scans: u32,
    /// [`Order::TableIsRight`] has come.
    table_is_right: bool,
    lost: Lost,
    /// What the kernel programs could not track lately, and when that was last so.
    refused: (u64, Instant),
    /// As reported.
    untracked: u64,
    next_lost: Instant,
    next_retry: Instant,
    next_host: Instant,
    next_sample: Instant,
    failed: Grumble,
}

/// Loads the programs, says what became of it (without them the poller goes on), and carries out orders until there is nobody to give or to hear.
pub(super) fn run(
    config: &Config,
    pins: Result<Pins, PinError>,
    orders: &orders::Receiver<Order>,
    ways: Ways,
    loaded: oneshot::Sender<Loaded>,
) {
    let candidates = Candidates::of(&config.profiles);
    let options = LoadOptions::new(config.tracking.max_processes, &candidates);
    let (tracer, reported, unreported) = match Tracer::load_pinned(&options, pins) {
        Ok((tracer, streams, inherited)) => {
            let (reported, unreported) = (inherited.reported, inherited.lost);
            if loaded.send(Ok((streams, tracer.features().clone(), inherited))).is_err() {
                return;
            }
            (tracer, reported, unreported)
        }
        Err(error) => {
            if loaded.send(Err(error)).is_ok() {
                poller::run(config, orders, ways.warden, ways.reports);
            }
            return;
        }
    };
    let now = Instant::now();
    let Ways { prober, warden, reports } = ways;
    let mut hand = Hand {
        tracer,
        prober,
        warden,
        reports,
        sampler: Sampler::new(config.tracking.sample_interval),
        statm: StatmReader::default(),
        zombies: Vec::new(),
        denied: denied_names(config),
        search: Search::begin(DeniedFiles::of(config)),
        denies: false,
        unheld: HashMap::new(),
        unplaced: VecDeque::new(),
        scans: 0,
        table_is_right: false,
        lost: reported,
        refused: (0, now),
        untracked: 0,
        next_lost: now,
        next_retry: now,
        next_host: now,
        next_sample: now,
        failed: Grumble::default(),
    };
    if hand.report_losses(unreported, Lost::default()).is_err() {
        return;
    }
    loop {
        let due = hand.next_lost.min(hand.next_retry).min(hand.next_host).min(hand.next_sample);
        let done = match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            // Those that wait go before what is due: somebody may wait for a launch behind them.
            Ok(order) => {
                std::iter::once(order).chain(orders.try_iter().take(STREAK)).try_for_each(|order| hand.carry_out(order))
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        };
        if done.and_then(|()| hand.what_is_due()).is_err() {
            return;
        }
    }
}

impl Hand {
    fn carry_out(&mut self, order: Order) -> Result<(), Ended> {
        match order {
            Order::Track(process, lineage) => self.track(process, lineage)?,
            Order::Untrack(process) => {
                self.unheld.remove(&process);
                self.unplaced.retain(|(unplaced, _)| *unplaced != process);
                if let Err(error) = self.tracer.untrack(process) {
                    self.failed.say(format_args!("cannot let go of {process}: {error}"));
                }
            }
            Order::CloseWatch(on) => {
                if let Err(error) = self.tracer.set_close_watch(on) {
                    let verb = if on { "attach" } else { "detach" };
                    self.failed.say(format_args!("cannot {verb} the memory programs: {error}"));
                }
                self.send(Report::CloseWatch(self.tracer.close_watch()))?;
            }
            Order::Bound(root, bounds) => {
                // The agent itself is no helper.
                let max_processes = bounds.max_helpers.map(|helpers| helpers.saturating_add(1));
                if let Err(error) = self.tracer.bound(root, max_processes) {
                    self.failed
                        .say(format_args!("the kernel does not hold the session of {root} to its bounds: {error}"));
                    // Who is not counted counts as somebody who came past the gate.
                    if self.denies && !matches!(self.tracer.counted(root), Ok(Some(_))) {
                        self.unheld.entry(root).or_insert_with(|| {
                            format!("agents are denied that the kernel does not count, and it cannot count this one: {error}")
                        });
                    }
                }
            }
            Order::Unbound(root) => {
                if let Err(error) = self.tracer.unbound(root) {
                    self.failed.say(format_args!("cannot let go of the session of {root}: {error}"));
                }
                self.warden.send(Deed::Release(root)).map_err(|_| Ended)?;
            }
            Order::Configure(config) => {
                self.sampler.set_idle(config.tracking.sample_interval);
                self.next_sample = Instant::now();
                if let Err(error) = self.tracer.set_candidates(&Candidates::of(&config.profiles)) {
                    self.failed.say(format_args!("cannot look out for the new profiles: {error}"));
                }
                self.denied = denied_names(&config);
                self.search.look_for(DeniedFiles::of(&config));
                self.deny();
            }
            Order::Scan => {
                self.scans = self.scans.saturating_add(1);
                self.deny();
                self.scan()?;
            }
            Order::ReadLeft => {
                let (events, unread) = self.tracer.read_left();
                self.send(Report::Left { events, unread })?;
            }
            Order::TableIsRight => {
                self.table_is_right = true;
                self.tracer.remove_imported();
                // So that a daemon which does not run for long is known to have read, too.
                self.next_lost = Instant::now();
            }
            Order::LookAtHost => self.look_at_host().map(drop)?,
            // It may have been given up meanwhile.
            Order::Ping(ping) => drop(ping.send(())),
            Order::Admit(admission) => match self.unheld.remove(&admission.granted.lease.process) {
                Some(why) => self.turn_away(*admission, why)?,
                None if admission.granted.limits.cgroup => {
                    self.warden.send(Deed::Admit(admission)).map_err(|_| Ended)?;
                }
                // There is nothing left to be done, and whoever waits is spared another thread's turn.
                None => {
                    let Admission { granted, client } = *admission;
                    if let Some(client) = client {
                        client.give(LaunchUpdate::Granted(warden::grant(&granted, &Confinement::default())));
                    }
                }
            },
        }
        Ok(())
    }

    fn track(&mut self, process: ProcessId, lineage: Lineage) -> Result<(), Ended> {
        self.unplaced.retain(|(unplaced, _)| *unplaced != process);
        match self.tracer.track(process, &lineage) {
            Ok(placed) => {
                self.unheld.remove(&process);
                match placed {
                    Placed::Alive => Ok(()),
                    // The kernel may tell of no exit, so this is told in its place.
                    Placed::Ending | Placed::Gone => self.report(Input::Inspected(process, None)),
                }
            }
            Err(error) => {
                self.failed.say(format_args!("cannot track {process}: {error}"));
                if lineage.root == process {
                    self.unheld.insert(process, not_tracked(&error));
                }
                self.unplaced.push_back((process, lineage));
                Ok(())
            }
        }
    }

    /// Tries again to track those that could not be: nobody would tell of their exit.
    fn track_again(&mut self) -> Result<(), Ended> {
        let some = self.unplaced.len().min(TRIES_AT_ONCE);
        let again: Vec<_> = self.unplaced.drain(..some).collect();
        again.into_iter().try_for_each(|(process, lineage)| self.track(process, lineage))
    }

    /// Takes a grant back that the kernel programs could not carry out: nobody would tell of its process's exit, or it would
    /// be denied the agent. Its lease ends as if the process had gone, and a scan finds out what else is there.
    fn turn_away(&mut self, Admission { granted, client }: Admission, detail: String) -> Result<(), Ended> {
        if let Some(client) = client {
            client.give(LaunchUpdate::Refused(api::Refused {
                granted: false,
                reason: RefusalReason::Quota,
                detail,
                retry_after_seconds: None,
                bound: "[tracking] max_processes".to_owned(),
                holders: Vec::new(),
            }));
        }
        self.report(Input::Inspected(granted.lease.process, None))?;
        self.send(Report::Lost { lifecycle: 1, memory: 0, missed: 0 })
    }

    /// Denies what the configuration denies, but not before the second scan is ordered: until then the sessions that an
    /// earlier daemon granted are not bound yet, and their processes would be taken for strangers.
    fn deny(&mut self) {
        if self.scans < 2 {
            return;
        }
        let on = !self.denied.is_empty() || self.search.looks_for_something();
        let denied = self.tracer.set_denied(&self.denied, on);
        self.denies = denied.is_ok() && on;
        if let Err(error) = denied {
            self.failed.say(format_args!("cannot keep agents from starting past the gate: {error}"));
        }
    }

    fn what_is_due(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        if now >= self.next_lost {
            self.next_lost = now + LOST_INTERVAL;
            self.tell_losses(now)?;
            self.tell_untracked(now)?;
        }
        if now >= self.next_retry {
            self.next_retry = now + RETRY_INTERVAL;
            self.track_again()?;
            if let Some(programs) = self.search.found()
                && let Err(error) = self.tracer.set_denied_files(&programs.files)
            {
                self.failed.say(format_args!("denied agents can start under another name: {error}"));
            }
            self.tracer.flush_log();
        }
        if now >= self.next_host {
            self.next_host = now + HOST_INTERVAL;
            if self.look_at_host()? {
                self.next_sample = now;
            }
        }
        if now >= self.next_sample {
            self.next_sample = now + self.sample()?;
        }
        Ok(())
    }

    /// Whether the host's memory has moved enough for a look at the processes'.
    fn look_at_host(&mut self) -> Result<bool, Ended> {
        match meminfo::host_memory() {
            Ok(host) => {
                self.next_host = Instant::now() + until_next_look(&host);
                self.report(Input::Host(host))?;
                Ok(self.sampler.stirred(host.held()))
            }
            Err(error) => {
                self.failed.say(format_args!("cannot look at the host's memory: {error}"));
                Ok(true)
            }
        }
    }

    fn tell_losses(&mut self, now: Instant) -> Result<(), Ended> {
        if let Err(error) = self.tracer.note_alive() {
            self.failed.say(format_args!("agents past the gate are not killed: {error}"));
        }
        match self.tracer.lost() {
            Ok(lost) => {
                let before = std::mem::replace(&mut self.lost, lost);
                let refused = lost.untracked().saturating_sub(before.untracked());
                if refused > 0 {
                    self.refused = (self.refused.0 + refused, now);
                }
                self.report_losses(lost, before)?;
                if self.table_is_right
                    && let Err(error) = self.tracer.note_read(&lost)
                {
                    self.failed.say(format_args!("the next daemon will not know what this one has read: {error}"));
                }
            }
            Err(error) => self.failed.say(format_args!("cannot tell how much was lost: {error}")),
        }
        Ok(())
    }

    /// Reports how many processes are not tracked: those that were found, and those that the kernel programs had no room for
    /// and no scan has looked for yet.
    fn tell_untracked(&mut self, now: Instant) -> Result<(), Ended> {
        if now.duration_since(self.refused.1) >= REFUSALS_COUNT_FOR {
            self.refused.0 = 0;
        }
        let untracked = self.refused.0.max(self.unplaced.len() as u64);
        if std::mem::replace(&mut self.untracked, untracked) != untracked {
            self.send(Report::Untracked(untracked))?;
        }
        Ok(())
    }

    fn report_losses(&self, now: Lost, before: Lost) -> Result<(), Ended> {
        let lifecycle = now.lifecycle().saturating_sub(before.lifecycle());
        let all = now.total().saturating_sub(before.total());
        if all == 0 {
            return Ok(());
        }
        let missed = now.missed().saturating_sub(before.missed());
        self.send(Report::Lost { lifecycle, memory: all.saturating_sub(lifecycle), missed })
    }

    fn scan(&mut self) -> Result<(), Ended> {
        match self.tracer.repaired_entries() {
            Ok(entries) => {
                let entries: HashMap<_, _> =
                    entries.iter().map(|entry| (entry.process.pid, (entry.process, entry.lineage))).collect();
                self.prober.send(Probe::Scan(entries)).map_err(|_| Ended)
            }
            Err(error) => {
                self.failed.say(format_args!("cannot scan: {error}"));
                self.send(Report::NoScan)
            }
        }
    }

    /// Looks at the memory of all tracked processes; the time until the next look.
    fn sample(&mut self) -> Result<Duration, Ended> {
        let at = clock::now();
        let glances = match self.glances() {
            Ok(glances) => glances,
            Err(error) => {
                self.failed.say(format_args!("cannot look at memory: {error}"));
                return Ok(Duration::from_secs(1));
            }
        };
        self.tell_zombies(&glances)?;
        let mut changes: Vec<Change> = Vec::new();
        let pause = self.sampler.round(at, glances, &mut changes);
        match refine(at, &changes) {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => self.report(Input::Samples(samples))?,
            Err(error) => self.failed.say(format_args!("cannot look at memory: {error}")),
        }
        Ok(pause)
    }

    fn glances(&mut self) -> Result<Vec<Glance>, NoGlance> {
        match self.tracer.sample() {
            Ok(records) => Ok(records.iter().map(Glance::from).collect()),
            Err(KernelError::Off(_)) => {
                let mut glances = Vec::new();
                let tracked = self.tracer.entries()?.into_iter().map(|entry| entry.process);
                self.statm.glance(tracked.chain(self.tracer.dead()?), &mut glances)?;
                Ok(glances)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell_zombies(&mut self, glances: &[Glance]) -> Result<(), Ended> {
        let mut zombies: Vec<ProcessId> =
            glances.iter().filter(|glance| glance.zombie).map(|glance| glance.process).collect();
        zombies.sort_unstable();
        if zombies != self.zombies {
            self.zombies.clone_from(&zombies);
            self.report(Input::Zombies(zombies))?;
        }
        Ok(())
    }

    fn report(&self, input: Input) -> Result<(), Ended> {
        self.send(Report::Input(input))
    }

    fn send(&self, report: Report) -> Result<(), Ended> {
        self.reports.blocking_send(report).map_err(|_| Ended)
    }
}

/// Why a grant is taken back whose root could not be tracked.
fn not_tracked(error: &KernelError) -> String {
    match error {
        KernelError::Full(_) | KernelError::ShareFull(_) => error.to_string(),
        error => format!("the kernel does not follow the process: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;
    use crate::daemon::clients::Clients;
    use crate::engine::gate::{Granted, Lease};
    use crate::engine::id::{BootTime, Bytes, SessionId, Uid};
    use crate::host::testing::Subject;

    fn granted(process: ProcessId, cgroup: bool) -> Granted {
        let (profile, uid) = ("claude-code".to_owned(), Uid(1000));
        Granted {
            lease: Lease { process, profile, uid, granted: BootTime(1), expected: Bytes(2), cgroups: Vec::new() },
            session: SessionId(3),
            waited: Duration::ZERO,
            environment: BTreeMap::new(),
            oom_score_adj: 300,
            limits: Bounds { cgroup, ..Bounds::default() },
        }
    }

    #[test]
    fn a_launch_that_finds_no_room_in_the_kernels_table_is_turned_away_and_its_lease_ends() {
        let mut config = Config::default();
        config.tracking.max_processes = 1;
        let (orders, inbox) = orders::channel();
        let (prober, _probes) = orders::channel();
        let (warden, deeds) = orders::channel();
        let (reports, mut told) = mpsc::channel(64);
        let (loaded, when_loaded) = oneshot::channel();
        let ways = Ways { prober, warden, reports };
        std::thread::spawn(move || run(&config, Err(PinError::Absent), &inbox, ways, loaded));
        let Ok(Ok(_streams)) = when_loaded.blocking_recv() else {
            panic!("this test needs root and a kernel with BTF")
        };
        let mut clients = Clients::default();
        let [fits, does_not] = [(), ()].map(|()| Subject::spawn(Command::new("sleep").arg("1000")));
        let mut asked = [(&fits, false), (&fits, true), (&does_not, false)].map(|(subject, cgroup)| {
            let process = subject.process;
            let root =
                Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false };
            orders.send(Order::Track(process, root)).unwrap();
            let updates = clients.enter(process).updates;
            let admission = Admission { granted: granted(process, cgroup), client: clients.leave(process) };
            orders.send(Order::Admit(Box::new(admission))).unwrap();
            updates
        });

        let deed = deeds.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(matches!(deed, Deed::Admit(admission) if admission.granted.limits.cgroup));
        loop {
            match told.blocking_recv().unwrap() {
                Report::Input(Input::Inspected(process, None)) => break assert_eq!(process, does_not.process),
                Report::Input(_) | Report::CloseWatch(_) | Report::Untracked(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let rescan = std::iter::from_fn(|| told.blocking_recv());
        assert!(rescan.take(10).any(|report| matches!(report, Report::Lost { lifecycle: 1, memory: 0, .. })));
        let Some(LaunchUpdate::Granted(grant)) = asked[0].borrow_and_update().clone() else { panic!("not granted") };
        assert_eq!(grant.limits.cgroup_problem, None);
        assert!(asked[1].borrow_and_update().is_none(), "the warden answers where a cgroup is wanted");
        let Some(LaunchUpdate::Refused(refused)) = asked[2].borrow_and_update().clone() else { panic!("not refused") };
        assert_eq!(refused.reason, RefusalReason::Quota);
        assert!(refused.detail.contains("max_processes"), "{}", refused.detail);
        assert!(deeds.try_recv().is_err());

        // Who never fitted in is tried again, and found to be gone.
        let never = does_not.process;
        drop(does_not);
        let gone = |report| matches!(report, Report::Input(Input::Inspected(process, None)) if process == never);
        assert!(std::iter::from_fn(|| told.blocking_recv()).take(100).any(gone));
    }
}
