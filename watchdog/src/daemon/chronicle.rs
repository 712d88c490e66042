//! What of all that happens goes into the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::historian::Historian;
use super::largest::LargestHolders;
use crate::api::{
    ActionRecord, DeathFacts, FindingRecord, HistoryState, Host, OomRecord, Past, ProcessKind, Receipt, Relation,
    Repeats, SetAside, Severity, Subject,
};
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::deaths::Death;
use crate::engine::effect::{Happening, JournalEntry};
use crate::engine::id::{BootTime, ProcessId, SessionId, Uid};
use crate::engine::input::HostMemory;
use crate::engine::view::{Naming, Viewer};
use crate::history::{Counted, Limits, Occurrence, RepeatCounter, Urgency};
use crate::host::clock;

/// The time between two records of the host's memory.
const HOST_INTERVAL: Duration = Duration::from_secs(10);
/// Sessions and processes that such a record names at most.
const LARGEST_SESSIONS: usize = 8;
const LARGEST_PROCESSES: usize = 6;
/// A death of a process that held this much has a record of its own, in bytes.
const LARGE_PEAK: u64 = 512 << 20;

/// Chooses what is written into the history, and puts it into its form.
#[derive(Debug)]
pub(super) struct Chronicle {
    history: Historian,
    next_host: Cell<BootTime>,
    largest: RefCell<LargestHolders>,
    counter: RefCell<RepeatCounter>,
    /// Open findings that have no record of their own.
    counted_findings: RefCell<BTreeSet<u64>>,
}

impl Chronicle {
    /// One that writes there, as much as the configuration allows.
    pub(super) fn new(history: Historian, config: &Config) -> Self {
        Self {
            history,
            next_host: Cell::default(),
            largest: RefCell::default(),
            counter: RefCell::new(RepeatCounter::new(limits(config).max_bytes)),
            counted_findings: RefCell::default(),
        }
    }

    /// How the writing goes.
    pub(super) fn state(&self) -> HistoryState {
        self.history.state()
    }

    /// Files of the daemon that could not be believed.
    pub(super) fn set_aside(&self) -> Vec<SetAside> {
        self.history.origin().notes.all()
    }

    /// Takes a new configuration.
    pub(super) fn reconfigure(&self, config: &Config) {
        let limits = limits(config);
        self.counter.borrow_mut().resize(limits.max_bytes);
        self.history.limit(limits);
    }

    /// Writes an event, or counts it.
    fn note(&self, occurrence: &Occurrence<'_>, naming: &Naming<'_>, record: impl FnOnce() -> Past) -> bool {
        let what = self.counter.borrow_mut().take(clock::now(), occurrence, record);
        let written = what.is_some();
        if let Some(what) = what {
            self.history.write(naming.moment(occurrence.at), occurrence.owner, what);
        }
        written
    }

    /// Writes what was counted.
    fn write_counted(&self, counted: Vec<Counted>, naming: &Naming<'_>) {
        for Counted { owner, count, first, last, what } in counted {
            let repeats = Repeats { count, first_at: naming.moment(first), last_at: naming.moment(last) };
            self.history.write_counted(owner, repeats, what);
        }
    }

    /// Writes down what happened, if it is worth remembering.
    pub(super) fn journal(&self, entry: &JournalEntry, owner: Option<Uid>, engine: &Engine, naming: &Naming<'_>) {
        let lasting = |kind, owner: Option<Uid>, session: Option<SessionId>, way, at| Occurrence {
            at,
            owner: owner.map(|uid| uid.0),
            session: session.map(|session| session.0),
            kind,
            way,
            urgency: Urgency::Lasting,
            peak_bytes: 0,
        };
        match &entry.what {
            Happening::SessionStarted { .. } => {
                let started = entry.session.and_then(|session| engine.session_start(session, naming));
                if let Some((uid, start)) = started {
                    let way = start.profile.clone();
                    // An agent may be found long after it began, which its record tells beside this.
                    let occurrence = lasting("session_started", Some(uid), None, &way, clock::now());
                    self.note(&occurrence, naming, || Past::SessionStarted(start));
                }
            }
            Happening::SessionEnded => {
                let ended = entry.session.and_then(|session| engine.session_summary(session, naming));
                if let Some((uid, summary)) = ended {
                    let (way, session) = (summary.start.profile.clone(), summary.start.session);
                    let occurrence = lasting("session_ended", Some(uid), None, &way, entry.at);
                    self.note(&occurrence, naming, || Past::SessionEnded(summary));
                    self.counter.borrow_mut().session_ended(clock::now(), session);
                }
            }
            Happening::Finding { finding, change, .. } => {
                if let Some((uid, finding)) = engine.finding(*finding, naming) {
                    let record = FindingRecord { change: change.clone(), finding };
                    self.finding(record, Some(uid.0), entry.at, naming);
                }
            }
            Happening::Oom { comm } => {
                let oom = OomRecord {
                    pid: entry.process.map(|process| process.pid.0),
                    start_time: entry.process.map(|process| process.start_time.0),
                    session: entry.session.map(|session| session.0),
                    comm: comm.clone(),
                };
                self.note(&lasting("oom", owner, entry.session, comm, entry.at), naming, || Past::Oom(oom));
            }
            Happening::Fork { .. }
            | Happening::Exec { .. }
            | Happening::Exit { .. }
            | Happening::Signal { .. }
            // Its death is told by itself, with all that is known of it.
            | Happening::Died { .. }
            // Its receipt is told by itself.
            | Happening::Action { .. }
            | Happening::ActionsHeldBack { .. }
            | Happening::LaunchGranted { .. }
            | Happening::Breaker { .. }
            | Happening::Reconciled { .. }
            | Happening::Reclaim { .. }
            | Happening::Denied { .. }
            | Happening::MemoryStep { .. } => {}
        }
    }

    /// Writes a finding down, or counts it. One whose opening was counted is counted once; one that was written is written
    /// again when it closes.
    fn finding(&self, record: FindingRecord, owner: Option<u32>, at: BootTime, naming: &Naming<'_>) {
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
        let way = format!("{} {change}: {}", finding.kind.name(), without_numbers(&finding.summary));
        let occurrence = Occurrence { at, owner, session, kind: "finding", way: &way, urgency, peak_bytes: 0 };
        let written = self.note(&occurrence, naming, || Past::Finding(record));
        if written {
            self.counted_findings.borrow_mut().remove(&id);
        } else if opened {
            self.counted_findings.borrow_mut().insert(id);
        }
    }

    /// Writes down why a process died, or counts it.
    pub(super) fn death(&self, death: &Death, naming: &Naming<'_>) {
        let DeathFacts { name, cause, signal, exit_code, uid, session, .. } = &death.facts;
        let way = format!("{name} {} {signal:?} {exit_code:?}", cause.name());
        let occurrence = Occurrence {
            at: death.at,
            owner: *uid,
            session: *session,
            kind: "death",
            way: &way,
            urgency: urgency(&death.facts),
            peak_bytes: death.facts.memory.peak_bytes,
        };
        self.note(&occurrence, naming, || match serde_json::to_value(naming.death(death)) {
            Ok(Value::Object(told)) => Past::Death(told),
            // Strings, numbers and maps with string keys: nothing here can fail to be JSON.
            _ => Past::Death(Map::new()),
        });
    }

    /// Writes down the host's memory, when it is time again.
    pub(super) fn host(&self, now: BootTime, host: &HostMemory, engine: &Engine, naming: &Naming<'_>) {
        let counted = self.counter.borrow_mut().due(now);
        self.write_counted(counted, naming);
        if now < self.next_host.get() {
            return;
        }
        self.next_host.set(now.plus(HOST_INTERVAL));
        let (sessions, processes) = engine.largest(LARGEST_SESSIONS, LARGEST_PROCESSES);
        let record = self.largest.borrow_mut().record(now, shown_host(host), sessions, processes);
        self.history.write(naming.moment(now), None, Past::Host(record));
    }

    /// Writes down that processes were adopted, or are no more.
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

    /// Writes down how far an action is.
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

    /// Writes down that an agent is ended because it was started past the gate.
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

    /// An owner may ask for actions without limit, so those are within its budget. What root, policy or an emergency does
    /// to its processes is always written: no owner can suppress that record by exhausting its budget.
    fn write_action(&self, action: ActionRecord, owner: Option<Uid>, moment: String) {
        let owner_uid = owner.map(|uid| uid.0);
        if action.asked_by_uid.is_none() || action.asked_by_uid != owner_uid {
            let session = action.session;
            let action = Past::Action(action);
            self.counter.borrow_mut().overdraw(clock::now(), owner_uid, session, &action);
            self.history.write(moment, owner_uid, action);
            return;
        }
        let way = action.action.clone();
        let occurrence = Occurrence {
            at: clock::now(),
            owner: owner_uid,
            session: action.session,
            kind: "action",
            way: &way,
            urgency: Urgency::Lasting,
            peak_bytes: 0,
        };
        if let Some(action) = self.counter.borrow_mut().take(occurrence.at, &occurrence, || Past::Action(action)) {
            self.history.write(moment, occurrence.owner, action);
        }
    }
}

impl Drop for Chronicle {
    /// The daemon stops: what was counted so far is written.
    fn drop(&mut self) {
        let naming = Naming { boot: clock::boot_wall_time(), user: &|uid| uid.0.to_string() };
        let counted = self.counter.borrow_mut().finish();
        self.write_counted(counted, &naming);
    }
}

/// Whether a death has a record of its own.
fn urgency(facts: &DeathFacts) -> Urgency {
    let by_others = facts
        .sender
        .as_ref()
        .is_some_and(|sender| matches!(sender.relation, Relation::Stranger | Relation::OtherTree | Relation::Watchdog));
    let for_memory = facts.oom.is_some() || facts.heap.is_some() || facts.memory.peak_bytes >= LARGE_PEAK;
    let of_agent = matches!(facts.kind, Some(ProcessKind::Agent | ProcessKind::Subagent));
    if by_others || for_memory || of_agent { Urgency::Notable } else { Urgency::Everyday }
}

/// A sentence with each number replaced: sentences about two processes that are the same differ in numbers only.
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

/// What the configuration says about how long and how much is kept.
pub(super) fn limits(config: &Config) -> Limits {
    Limits { retention: config.history.retention, max_bytes: config.history.max_size.0 }
}

/// The host's memory as it is shown.
pub(super) fn shown_host(host: &HostMemory) -> Host {
    Host {
        memory_total_bytes: host.total.0,
        memory_available_bytes: host.available.0,
        swap_total_bytes: host.swap_total.0,
        swap_free_bytes: host.swap_free.0,
        shmem_bytes: host.shmem.0,
        pressure_some_avg10: host.pressure_some_avg10,
        pressure_full_avg10: host.pressure_full_avg10,
    }
}

#[cfg(test)]
mod tests {
    use super::super::historian::{self, Origin};
    use super::super::set_aside::StateNotes;
    use super::*;
    use crate::engine::id::{Bytes, Pid, Ticks};
    use crate::history::{self, Found};

    const OWNER: Uid = Uid(1_000);

    fn actions(state_dir: &std::path::Path) -> Vec<ActionRecord> {
        let mut lines = history::open(state_dir).unwrap();
        let mut actions = Vec::new();
        while let Some(found) = lines.next().unwrap() {
            let Found::Record(json) = found else { panic!("{found:?}") };
            if let Past::Action(action) = serde_json::from_str::<crate::api::Record>(json).unwrap().what {
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
            historian::start(Origin::now(dir.path(), StateNotes::default()), limits(&config)).unwrap();
        let chronicle = Chronicle::new(history.clone(), &config);
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
