//! A run: sessions are paged out one after another, each order within the budget and the swap reserve.

use std::collections::BTreeSet;
use std::time::Duration;

use super::candidates::{MIN_GAIN, ReclaimableSession, SessionChoice};
use super::obstacle::PageOutObstacle;
use super::page_out_order::ProcessRest;
use super::page_out_record::{PageOutExtent, PageOutRecord};
use super::run_tally::RunTally;
use crate::effect::{BpfCommand, Effect, JournalEntry, JournalEvent, PersistCommand, ScanRequest};
use crate::{Engine, Step};
use watchdog_api::ReclaimTrigger;
use watchdog_types::{
    Activity, BootTime, Bytes, PageOutOutcome, PagedOut, PagedOutProcess, ProcessId, Sample, SessionId, Uid,
};

/// Activity is read again before an order if the last reading is older than this.
const MAX_READING_AGE: Duration = Duration::from_secs(3);
/// A session without a reading after this time is skipped.
const READING_TIMEOUT: Duration = Duration::from_secs(5);
/// By how much `some avg10` of memory pressure, in per cent, may rise while memory that was paged out returns.
const PRESSURE: f64 = 5.0;
/// The same while none returns: a process stalls on page-out only when its memory returns, or when the swap device is busy.
/// Other processes that lack memory, or stall longer for lack of CPU time, are no reason to stop.
const PRESSURE_ELSEWHERE: f64 = 20.0;
/// Less returned memory causes no pressure.
const MIN_RETURN: Bytes = Bytes::from_mib(4);
/// How long the daemon starts no run after page-out has raised memory pressure.
const HALT: Duration = Duration::from_secs(60);
/// Processes in one request for activity, so that the scanner can do other work in between.
const READING_BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) trigger: ReclaimTrigger,
    /// The requesting user.
    pub(super) asked_by: Option<Uid>,
    pub(super) choice: SessionChoice,
    pub(super) began: BootTime,
    /// `None` while it is running.
    pub(super) ended: Option<BootTime>,
    /// Memory pressure when it began, in per cent.
    pressure: f64,
    /// All memory that had returned when it began.
    refaulted: Bytes,
    /// Processes that were ordered or skipped.
    done: BTreeSet<ProcessId>,
    rest: Option<ProcessRest>,
    /// The session whose activity is being read again, and since when.
    measuring: Option<(SessionId, BootTime)>,
    pub(super) tally: RunTally,
    /// Why it ended early.
    pub(super) note: Option<String>,
}

impl Run {
    /// Whether it waits for a reading of activity.
    pub(super) fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Takes the result of its last order. Returns the process whose rest may follow.
    fn ended_order(&mut self, answer: &PagedOut) -> Option<ProcessId> {
        self.rest = self.rest.filter(|rest| rest.follows(answer));
        let rest = self.rest?.process;
        self.done.remove(&rest);
        Some(rest)
    }
}

impl Engine {
    /// Why a run must stop.
    fn stop_reason(&self, run: &Run) -> Option<String> {
        if !run.tally.processes.is_empty()
            && let Some(pressure) = self.raised_pressure(run)
        {
            return Some(format!("memory pressure rose to {pressure:.0}%"));
        }
        let swaps = self.close_watch.host.swap_total > Bytes(0);
        if swaps && self.swap_room() == Bytes(0) {
            return Some("free swap is at [reclaim] reserve".to_owned());
        }
        let holds = self.trigger_holds(run.trigger);
        (!holds).then(|| "enough memory is available".to_owned())
    }

    /// Memory pressure, in per cent, if it rose by more than the allowed amount during the run.
    fn raised_pressure(&self, run: &Run) -> Option<f64> {
        let pressure = self.close_watch.host.pressure_some_avg10?;
        let returned = Bytes(self.reclaim.totals.refaulted.0.saturating_sub(run.refaulted.0));
        let allowed = if returned >= MIN_RETURN { PRESSURE } else { PRESSURE_ELSEWHERE };
        let limit = if run.pressure <= PRESSURE { allowed } else { run.pressure + allowed };
        (pressure > limit).then_some(pressure)
    }

    fn next_session(&self, run: &Run, now: BootTime) -> Option<ReclaimableSession> {
        let mut sessions = self.reclaimable(now, run.choice);
        let rest = run.rest.map(|rest| rest.process);
        let has_rest = |session: &ReclaimableSession| session.processes.iter().any(|one| Some(one.id) == rest);
        sessions.sort_by_key(|session| !has_rest(session));
        sessions.into_iter().find_map(|mut session| {
            session.processes.retain(|process| !run.done.contains(&process.id));
            (!session.processes.is_empty()).then_some(session)
        })
    }

    /// Living members of the session without a recent reading.
    fn outdated_members(&self, session: SessionId, now: BootTime) -> Vec<ProcessId> {
        let members = self.table.living().filter(|process| process.session == session && !process.verdict.is_kept());
        let stale =
            |id: &ProcessId| self.reclaim.idle.last_reading(*id).is_none_or(|read| now.since(read) > MAX_READING_AGE);
        members.map(|process| process.id).filter(stale).collect()
    }
}

impl Step<'_> {
    pub(crate) fn tick_reclaim(&mut self) {
        self.watch_activity();
        self.persist_yields(false);
        let reclaim = &self.engine.reclaim;
        if let Some((order, _)) = reclaim.in_flight {
            self.watch_order(order);
            return;
        }
        if reclaim.awaits_host(self.now) {
            return;
        }
        if reclaim.run.is_none()
            && let Some((trigger, choice)) = self.engine.due_trigger(self.now)
        {
            self.begin_run(trigger, choice, None);
        }
        self.advance_run();
    }

    /// Cancels the order in progress once it raises memory pressure.
    fn watch_order(&mut self, order: u64) {
        let Engine { reclaim, .. } = &*self.engine;
        let raised = reclaim.run.as_ref().is_some_and(|run| self.engine.raised_pressure(run).is_some());
        if raised && reclaim.cancelled != order {
            self.engine.reclaim.cancelled = order;
            self.effect(Effect::CancelPageOut(order));
        }
    }

    pub(super) fn begin_run(&mut self, trigger: ReclaimTrigger, choice: SessionChoice, asked_by: Option<Uid>) {
        self.finish_run(Some("replaced by another page-out".to_owned()));
        let host = self.engine.close_watch.host;
        let reclaim = &mut self.engine.reclaim;
        reclaim.runs += 1;
        reclaim.run = Some(Run {
            number: reclaim.runs,
            trigger,
            asked_by,
            choice,
            began: self.now,
            ended: None,
            pressure: host.pressure_some_avg10.unwrap_or_default(),
            refaulted: reclaim.totals.refaulted,
            done: BTreeSet::new(),
            rest: None,
            measuring: None,
            tally: RunTally::default(),
            note: None,
        });
    }

    fn finish_run(&mut self, note: Option<String>) {
        let Some(run) = self.engine.reclaim.run.take() else { return };
        let number = run.number;
        let reported = !run.tally.processes.is_empty();
        let note = run.tally.failure.clone().or(note);
        let session = run.choice.session();
        self.engine.reclaim.finish(Run { ended: Some(self.now), note, ..run });
        self.persist_yields(true);
        if reported {
            let summary = self.engine.run_summary(number, self.now);
            let what = JournalEvent::PagedOut { run: number, summary };
            self.effect(Effect::Journal(JournalEntry { at: self.now, process: None, session, what }));
        }
    }

    fn persist_yields(&mut self, run_ended: bool) {
        if let Some(yields) = self.engine.reclaim.take_changed_yields(self.now, run_ended) {
            self.effect(Effect::Persist(PersistCommand::Yields(yields)));
        }
    }

    /// Orders the next session of the run, or ends the run.
    fn advance_run(&mut self) {
        let now = self.now;
        let Some(run) = self.engine.reclaim.run.as_ref().filter(|_| self.engine.reclaim.in_flight.is_none()) else {
            return;
        };
        if let Some(why) = self.engine.stop_reason(run) {
            if why.starts_with("memory pressure") {
                self.engine.reclaim.halted_until = Some(now.plus(HALT));
            }
            self.finish_run(Some(why));
            return;
        }
        if now < self.engine.reclaim.next_order {
            return;
        }
        let Some(session) = self.engine.next_session(run, now) else {
            self.finish_run(None);
            return;
        };
        let named = matches!(run.choice, SessionChoice::Named(_));
        let measuring = run.measuring.filter(|(measured, _)| *measured == session.session);
        let outdated = if named { Vec::new() } else { self.engine.outdated_members(session.session, now) };
        if !outdated.is_empty() {
            match measuring {
                None => self.measure_again(session.session, &outdated),
                Some((_, since)) if now.since(since) < READING_TIMEOUT => {}
                Some(_) => self.skip_session(&session),
            }
            return;
        }
        self.send_order(&session);
    }

    fn measure_again(&mut self, session: SessionId, processes: &[ProcessId]) {
        if let Some(run) = &mut self.engine.reclaim.run {
            run.measuring = Some((session, self.now));
        }
        self.ask_for_activity(processes);
    }

    pub(super) fn ask_for_activity(&mut self, processes: &[ProcessId]) {
        for some in processes.chunks(READING_BATCH) {
            self.effect(Effect::Scan(ScanRequest::Activity(some.to_vec())));
        }
    }

    fn skip_session(&mut self, session: &ReclaimableSession) {
        if let Some(run) = &mut self.engine.reclaim.run {
            run.done.extend(session.processes.iter().map(|process| process.id));
        }
    }

    fn send_order(&mut self, session: &ReclaimableSession) {
        let Some(run) = &self.engine.reclaim.run else { return };
        let (order, rest) = self.engine.page_out_order(session, run.rest);
        let Some(run) = &mut self.engine.reclaim.run else { return };
        run.measuring = None;
        run.rest = rest;
        run.done.extend(order.processes.iter().map(|process| process.id));
        self.engine.reclaim.orders = order.number;
        self.engine.reclaim.in_flight = Some((order.number, run.number));
        self.engine.reclaim.next_order = self.now;
        self.effect(Effect::PageOut(Box::new(order)));
    }

    pub(crate) fn reclaim_activity_read(&mut self, activities: &[Activity]) {
        let crate::Engine { table, reclaim, .. } = &mut *self.engine;
        for seen in activities.iter().copied() {
            let Some(process) = table.alive(seen.process) else { continue };
            reclaim.idle.record(seen, process);
        }
        if self.engine.reclaim.run.as_ref().is_some_and(Run::is_measuring) {
            self.advance_run();
        }
    }

    /// The result of [`Effect::PageOut`].
    pub(crate) fn paged_out(&mut self, answer: PagedOut, compressed: Option<Bytes>) {
        let Some((_, run)) = self.engine.reclaim.in_flight.filter(|(order, _)| *order == answer.number) else { return };
        let now = self.now;
        let out: Bytes = answer.processes.iter().map(PagedOutProcess::freed).sum();
        let swapped: Bytes = answer.processes.iter().map(PagedOutProcess::swapped).sum();
        let host = &mut self.engine.close_watch.host;
        // Until the host is read again, which may fail.
        host.swap_free = Bytes(host.swap_free.0.saturating_sub(swapped.0));
        let rate = self.engine.config.reclaim.budget.on_host(host.total).0.max(1);
        let reclaim = &mut self.engine.reclaim;
        reclaim.in_flight = None;
        reclaim.answered = Some(now);
        reclaim.totals.took += answer.took;
        reclaim.totals.reclaimed += out;
        // The time that the budget allows for this amount, minus the elapsed time.
        let allowed = Duration::from_secs_f64(out.0 as f64 / rate as f64).saturating_sub(answer.took);
        reclaim.next_order = now.plus(allowed);
        // A request may have replaced the run meanwhile.
        let mut tally =
            reclaim.run.as_mut().filter(|current| current.number == run).map(|run| std::mem::take(&mut run.tally));
        let mut unclaimed = RunTally::default();
        let counted = tally.as_mut().unwrap_or(&mut unclaimed);
        counted.took += answer.took;
        counted.cpu += answer.cpu;
        if let Some(more) = compressed {
            *counted.compressed.get_or_insert_default() += more;
        }
        let ordered = answer.processes.iter().map(|process| process.id).collect();
        let current = reclaim.run.as_mut().filter(|current| current.number == run);
        let continued = current.and_then(|run| run.ended_order(&answer));
        for process in answer.processes {
            let is_partial = continued == Some(process.id);
            self.process_paged_out(answer.session, process, is_partial, counted);
        }
        if let (Some(tally), Some(run)) = (tally, &mut self.engine.reclaim.run) {
            run.tally = tally;
        }
        self.effect(Effect::Bpf(BpfCommand::ReadHost));
        // Memory may return before the sampler has seen that it was gone.
        self.effect(Effect::Bpf(BpfCommand::ReadMemory(ordered)));
    }

    /// `is_partial`: its rest may follow.
    fn process_paged_out(
        &mut self,
        session: SessionId,
        answer: PagedOutProcess,
        is_partial: bool,
        tally: &mut RunTally,
    ) {
        let (now, out) = (self.now, answer.freed());
        let PagedOutProcess { id, before, after, ref outcome } = answer;
        let profile = self.engine.sessions.get(session).map(|session| session.profile.clone()).unwrap_or_default();
        let reclaim = &mut self.engine.reclaim;
        match outcome {
            PageOutOutcome::Gone => return,
            PageOutOutcome::Excluded(why) => {
                reclaim.records.insert(id, PageOutRecord::excluded(now, *why));
                return;
            }
            PageOutOutcome::NotPermitted => {
                reclaim.obstacle = Some(PageOutObstacle::NotPermitted);
                tally.failure.get_or_insert_with(|| PageOutObstacle::NotPermitted.to_string());
                return;
            }
            PageOutOutcome::Unsupported => {
                reclaim.obstacle = Some(PageOutObstacle::OldKernel);
                tally.failure.get_or_insert_with(|| PageOutObstacle::OldKernel.to_string());
                return;
            }
            PageOutOutcome::Failed(why) => {
                tally.failure.get_or_insert_with(|| why.clone());
                return;
            }
            PageOutOutcome::Done | PageOutOutcome::NoSwap | PageOutOutcome::Stopped(_) => {}
        }
        let extent = match outcome {
            PageOutOutcome::Stopped(_) if is_partial => PageOutExtent::Partial,
            PageOutOutcome::Done if out < MIN_GAIN.min(before.anon.percent(25)) => PageOutExtent::Nothing,
            _ => PageOutExtent::Whole,
        };
        if extent == PageOutExtent::Nothing {
            let why = "other processes share its memory, or memory.swap.max of its cgroup is 0";
            tally.failure.get_or_insert_with(|| format!("process {} stays resident: {why}", id.pid));
        }
        let record = PageOutRecord::new(now, out, after.rss(), extent, reclaim.records.get(&id));
        reclaim.records.insert(id, record);
        let given = Bytes(before.anon.0.saturating_sub(after.anon.0));
        let offered = if is_partial { given } else { before.anon };
        reclaim.learned.record(&profile, offered, given, out);
        tally.add(session, &answer);
        let sample = Sample { at: now, process: id, memory: after, ppid: None, zombie: false, tty: None, comm: None };
        self.sample(sample);
    }

    /// Records the resident memory of a sample. Samples from before the page-out may arrive late, and are ignored.
    pub(crate) fn reclaim_sampled(&mut self, process: ProcessId, at: BootTime, resident: Bytes) {
        let crate::Engine { reclaim, table, sessions, .. } = &mut *self.engine;
        let Some(record) = reclaim.records.get_mut(&process).filter(|record| at > record.at) else { return };
        let back = record.sampled(resident);
        if back == Bytes(0) {
            return;
        }
        reclaim.totals.refaulted += back;
        if let Some(session) = table.get(process).and_then(|known| sessions.get(known.session)) {
            reclaim.learned.refaulted(&session.profile, back);
        }
    }
}
