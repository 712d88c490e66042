//! Decides what goes into the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::history_writer::HistoryWriter;
use super::largest_holders::LargestHolders;
use super::workers::fleet::FleetFacts;
use watchdog_api::{
    ActionRecord, ConfigStatus, DeathFacts, FindingRecord, HistoryState, OomRecord, Past, ProcessKind, Receipt,
    Relation, Repeats, SetAside, Severity, Subject,
};
use watchdog_config::Config;
use watchdog_engine::Engine;
use watchdog_engine::effect::{JournalEntry, JournalEvent};
use watchdog_engine::exits::ExplainedDeath;
use watchdog_engine::view::DisplayContext;
use watchdog_history::{Occurrence, RepeatCount, RepeatCounter, StoreLimits, Urgency};
use watchdog_host::clock;
use watchdog_types::{BootTime, HostMemory, ProcessId, SessionId, Uid, Viewer};

/// The time between two records of the host's memory.
const HOST_INTERVAL: Duration = Duration::from_secs(10);
/// Sessions and processes that such a record names at most.
const LARGEST_SESSIONS: usize = 8;
const LARGEST_PROCESSES: usize = 6;
/// Peak memory, in bytes, from which a process's death has its own record.
const LARGE_PEAK: u64 = 512 << 20;

#[derive(Debug)]
pub(super) struct HistoryFilter {
    history: HistoryWriter,
    next_host: Cell<BootTime>,
    largest: RefCell<LargestHolders>,
    counter: RefCell<RepeatCounter>,
    /// Open findings that are counted, without a record of their own.
    counted_findings: RefCell<BTreeSet<u64>>,
}

impl HistoryFilter {
    pub(super) fn new(history: HistoryWriter, config: &Config) -> Self {
        Self {
            history,
            next_host: Cell::default(),
            largest: RefCell::default(),
            counter: RefCell::new(RepeatCounter::new(limits(config).max_bytes)),
            counted_findings: RefCell::default(),
        }
    }

    pub(super) fn state(&self) -> HistoryState {
        self.history.state()
    }

    pub(super) fn set_aside(&self) -> Vec<SetAside> {
        self.history.origin().notes.all()
    }

    pub(super) fn config(&self) -> ConfigStatus {
        self.history.origin().config.status()
    }

    pub(super) fn fleet(&self) -> Option<&FleetFacts> {
        self.history.origin().fleet.as_ref().map(|fleet| &*fleet.facts)
    }

    pub(super) fn reconfigure(&self, config: &Config) {
        let limits = limits(config);
        self.counter.borrow_mut().resize(limits.max_bytes);
        self.history.limit(limits);
    }

    /// Writes an event or counts it; returns whether it was written.
    fn write_or_count(
        &self,
        occurrence: &Occurrence<'_>,
        naming: &DisplayContext<'_>,
        record: impl FnOnce() -> Past,
    ) -> bool {
        let what = self.counter.borrow_mut().take(clock::now(), occurrence, record);
        let written = what.is_some();
        if let Some(what) = what {
            self.history.write(naming.moment(occurrence.at), occurrence.owner, what);
        }
        written
    }

    fn write_counted(&self, counted: Vec<RepeatCount>, naming: &DisplayContext<'_>) {
        for RepeatCount { owner, count, first, last, what } in counted {
            let repeats = Repeats { count, first_at: naming.moment(first), last_at: naming.moment(last) };
            self.history.write_counted(owner, repeats, what);
        }
    }

    /// Records an event of the journal, unless it is of a kind that the history leaves out.
    pub(super) fn journal(
        &self,
        entry: &JournalEntry,
        owner: Option<Uid>,
        engine: &Engine,
        naming: &DisplayContext<'_>,
    ) {
        let lasting = |kind, owner: Option<Uid>, session: Option<SessionId>, signature, at| Occurrence {
            at,
            owner: owner.map(|uid| uid.0),
            session: session.map(|session| session.0),
            kind,
            signature,
            urgency: Urgency::Lasting,
            peak_bytes: 0,
        };
        match &entry.what {
            JournalEvent::SessionStarted { .. } => {
                let started = entry.session.and_then(|session| engine.session_start(session, naming));
                if let Some((uid, start)) = started {
                    let signature = start.profile.clone();
                    // The time of the record: an agent may be found long after it started, and the record contains its
                    // start.
                    let occurrence = lasting("session_started", Some(uid), None, &signature, clock::now());
                    self.write_or_count(&occurrence, naming, || Past::SessionStarted(start));
                }
            }
            JournalEvent::SessionEnded => {
                let ended = entry.session.and_then(|session| engine.session_summary(session, naming));
                if let Some((uid, summary)) = ended {
                    let (signature, session) = (summary.start.profile.clone(), summary.start.session);
                    let occurrence = lasting("session_ended", Some(uid), None, &signature, entry.at);
                    self.write_or_count(&occurrence, naming, || Past::SessionEnded(summary));
                    self.counter.borrow_mut().session_ended(clock::now(), session);
                }
            }
            JournalEvent::Finding { finding, change, .. } => {
                if let Some((uid, finding)) = engine.finding(*finding, naming) {
                    let record = FindingRecord { change: change.clone(), finding };
                    self.finding(record, Some(uid.0), entry.at, naming);
                }
            }
            JournalEvent::Oom { comm } => {
                let oom = OomRecord {
                    pid: entry.process.map(|process| process.pid.0),
                    start_time: entry.process.map(|process| process.start_time.0),
                    session: entry.session.map(|session| session.0),
                    comm: comm.clone(),
                };
                self.write_or_count(&lasting("oom", owner, entry.session, comm, entry.at), naming, || Past::Oom(oom));
            }
            JournalEvent::PagedOut { run, .. } => {
                if let Some((uid, run)) = engine.reclaim_run(*run, entry.at, naming) {
                    let signature = run.trigger.reason();
                    let occurrence = lasting("reclaim", uid, run.session.map(SessionId), signature, entry.at);
                    self.write_or_count(&occurrence, naming, || Past::Reclaim(Box::new(run)));
                }
            }
            JournalEvent::Fork { .. }
            | JournalEvent::Exec { .. }
            | JournalEvent::Exit { .. }
            | JournalEvent::Signal { .. }
            // A death has a record with more detail.
            | JournalEvent::Died { .. }
            // An action is recorded by its receipt.
            | JournalEvent::Action { .. }
            | JournalEvent::ActionsHeldBack { .. }
            | JournalEvent::LaunchGranted { .. }
            | JournalEvent::Breaker { .. }
            | JournalEvent::Reconciled { .. }
            | JournalEvent::Reclaim { .. }
            | JournalEvent::Denied { .. }
            | JournalEvent::MemoryStep { .. } => {}
        }
    }

    /// Records or counts a finding. A finding whose opening was counted is counted once; one whose opening was written is
    /// written again when it closes.
    fn finding(&self, record: FindingRecord, owner: Option<u32>, at: BootTime, naming: &DisplayContext<'_>) {
        let FindingRecord { change, finding } = &record;
        let (id, session, opened) = (finding.id, finding.session, change == "opened");
        let is_counted = self.counted_findings.borrow().contains(&id);
        if finding.closed_at.is_some() {
            if !self.counted_findings.borrow_mut().remove(&id) {
                let what = Past::Finding(record);
                self.counter.borrow_mut().overdraw(clock::now(), owner, session, &what);
                self.history.write(naming.moment(at), owner, what);
            }
            return;
        }
        let everyday = finding.severity == Severity::Info;
        if is_counted && everyday {
            return;
        }
        let urgency = if everyday && opened { Urgency::Everyday } else { Urgency::Notable };
        let signature = format!("{} {change}: {}", finding.kind.name(), without_numbers(&finding.summary));
        let occurrence =
            Occurrence { at, owner, session, kind: "finding", signature: &signature, urgency, peak_bytes: 0 };
        let written = self.write_or_count(&occurrence, naming, || Past::Finding(record));
        if written {
            self.counted_findings.borrow_mut().remove(&id);
        } else if opened {
            self.counted_findings.borrow_mut().insert(id);
        }
    }

    /// Records or counts a death.
    pub(super) fn death(&self, death: &ExplainedDeath, naming: &DisplayContext<'_>) {
        let DeathFacts { name, cause, signal, exit_code, uid, session, .. } = &death.facts;
        let signature = format!("{name} {} {signal:?} {exit_code:?}", cause.name());
        let occurrence = Occurrence {
            at: death.at,
            owner: *uid,
            session: *session,
            kind: "death",
            signature: &signature,
            urgency: urgency(&death.facts),
            peak_bytes: death.facts.memory.peak_bytes,
        };
        self.write_or_count(&occurrence, naming, || match serde_json::to_value(naming.death(death)) {
            Ok(Value::Object(members)) => Past::Death(members),
            // Strings, numbers and maps with string keys always serialise.
            _ => Past::Death(Map::new()),
        });
    }

    /// Records the host's memory, when that is due.
    pub(super) fn host(&self, now: BootTime, host: &HostMemory, engine: &Engine, naming: &DisplayContext<'_>) {
        let counted = self.counter.borrow_mut().due(now);
        self.write_counted(counted, naming);
        if now < self.next_host.get() {
            return;
        }
        self.next_host.set(now.plus(HOST_INTERVAL));
        let (sessions, processes) = engine.largest(LARGEST_SESSIONS, LARGEST_PROCESSES);
        let record = self.largest.borrow_mut().record(now, host.into(), sessions, processes);
        self.history.write(naming.moment(now), None, Past::Host(record));
    }

    /// Records that processes were adopted or released.
    pub(super) fn adopted(
        &self,
        what: &str,
        viewer: Viewer,
        subject: Subject,
        pids: &[u32],
        owner: Option<Uid>,
        moment: String,
    ) {
        let asked_by_uid = match viewer {
            Viewer::Root => Uid::ROOT.0,
            Viewer::User(uid) => uid.0,
        };
        let session = match subject {
            Subject::Session(session) => Some(session),
            Subject::Pid(_) => None,
        };
        let (action, pids) = (what.to_owned(), pids.to_vec());
        let action = ActionRecord { action, pids, session, asked_by_uid: Some(asked_by_uid), receipt: None };
        self.write_action(action, owner, moment);
    }

    /// Records the state of an action.
    pub(super) fn action(&self, receipt: Receipt, owner: Uid, moment: String) {
        let action = ActionRecord {
            action: receipt.action.name().to_owned(),
            pids: receipt.targets.iter().map(|target| target.pid).collect(),
            session: receipt.session,
            asked_by_uid: receipt.asked_by_uid,
            receipt: Some(Box::new(receipt)),
        };
        self.write_action(action, Some(owner), moment);
    }

    /// Records that an ungated agent is killed.
    pub(super) fn ended_ungated(
        &self,
        process: ProcessId,
        session: Option<SessionId>,
        owner: Option<Uid>,
        moment: String,
    ) {
        let (action, pids) = ("end_ungated".to_owned(), vec![process.pid.0]);
        let action =
            ActionRecord { action, pids, session: session.map(|session| session.0), asked_by_uid: None, receipt: None };
        self.write_action(action, owner, moment);
    }

    /// UserNames may request any number of actions, so these count against their budget. What root, policy or an emergency does
    /// to their processes is always written: no user can suppress that record by exhausting the budget.
    fn write_action(&self, action: ActionRecord, owner: Option<Uid>, moment: String) {
        let owner_uid = owner.map(|uid| uid.0);
        if action.asked_by_uid.is_none() || action.asked_by_uid != owner_uid {
            let session = action.session;
            let action = Past::Action(action);
            self.counter.borrow_mut().overdraw(clock::now(), owner_uid, session, &action);
            self.history.write(moment, owner_uid, action);
            return;
        }
        let signature = action.action.clone();
        let occurrence = Occurrence {
            at: clock::now(),
            owner: owner_uid,
            session: action.session,
            kind: "action",
            signature: &signature,
            urgency: Urgency::Lasting,
            peak_bytes: 0,
        };
        if let Some(action) = self.counter.borrow_mut().take(occurrence.at, &occurrence, || Past::Action(action)) {
            self.history.write(moment, occurrence.owner, action);
        }
    }
}

impl Drop for HistoryFilter {
    /// Writes what is still counted: the daemon stops.
    fn drop(&mut self) {
        let naming = DisplayContext { boot: clock::boot_wall_time(), user: &|uid| uid.0.to_string() };
        let counted = self.counter.borrow_mut().finish();
        self.write_counted(counted, &naming);
    }
}

/// Whether a death has its own record.
fn urgency(facts: &DeathFacts) -> Urgency {
    let by_others = facts
        .sender
        .as_ref()
        .is_some_and(|sender| matches!(sender.relation, Relation::Stranger | Relation::OtherTree | Relation::Watchdog));
    let for_memory = facts.oom.is_some() || facts.heap.is_some() || facts.memory.peak_bytes >= LARGE_PEAK;
    let of_agent = matches!(facts.kind, Some(ProcessKind::Agent | ProcessKind::Subagent));
    if by_others || for_memory || of_agent { Urgency::Notable } else { Urgency::Everyday }
}

/// Replaces each number, so that sentences about like processes are equal.
fn without_numbers(text: &str) -> String {
    let digit = |at: char| at.is_ascii_digit();
    let mut shorter = String::with_capacity(text.len());
    for next in text.chars() {
        match (digit(next), shorter.ends_with('#')) {
            (true, true) => {}
            (true, false) => shorter.push('#'),
            (false, _) => shorter.push(next),
        }
    }
    shorter
}

pub(super) fn limits(config: &Config) -> StoreLimits {
    StoreLimits { retention: config.history.retention, max_bytes: config.history.max_size.0 }
}

#[cfg(test)]
mod tests {
    use super::super::history_writer::{self, RunContext};
    use super::super::set_aside::StateNotes;
    use super::*;
    use watchdog_history::{self as history, StoredLine};
    use watchdog_types::{Bytes, Pid, Ticks};

    const OWNER: Uid = Uid(1_000);

    fn actions(state_dir: &std::path::Path) -> Vec<ActionRecord> {
        let mut lines = history::open(state_dir).unwrap();
        let mut actions = Vec::new();
        while let Some(found) = lines.next().unwrap() {
            let StoredLine::Record(json) = found else { panic!("{found:?}") };
            if let Past::Action(action) = serde_json::from_str::<watchdog_api::Record>(json).unwrap().what {
                actions.push(action);
            }
        }
        actions
    }

    #[test]
    fn exhausted_budget_hides_no_foreign_action() {
        const ASKED: usize = 3_000;
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.history.max_size = Bytes(1 << 20);
        let (history, ended) =
            history_writer::start(RunContext::now(dir.path(), StateNotes::default()), limits(&config)).unwrap();
        let chronicle = HistoryFilter::new(history.clone(), &config);
        let adopt = |viewer, pid| {
            let at = "2026-01-02T00:00:00Z".to_owned();
            chronicle.adopted("adopt", viewer, Subject::Session(7), &[pid], Some(OWNER), at);
        };
        for _ in 0..ASKED {
            adopt(Viewer::User(OWNER), 1);
        }
        adopt(Viewer::Root, 2);
        let agent = ProcessId { pid: Pid(3), start_time: Ticks(3) };
        chronicle.ended_ungated(agent, Some(SessionId(7)), Some(OWNER), "2026-01-02T00:00:00Z".to_owned());
        drop(chronicle);
        history.stop();
        ended.blocking_recv().unwrap();
        let written = actions(dir.path());
        let by = |pid| written.iter().filter(|action| action.pids == [pid]).count();
        assert!((10..ASKED).contains(&by(1)), "{} of the owner's own", by(1));
        assert_eq!((by(2), by(3)), (1, 1), "by root, and by policy");
    }
}
