//! Subagents inside an agent's own process. Only the agent's hooks report them; the kernel has no event for them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::launch::{Blocker, DEFAULT_RETRY, MEMORY_RETRY, SubagentDecision, SubagentHook};
use super::recent::push_bounded;
use crate::Step;
use crate::effect::{ClientReply, Effect};
use watchdog_api::{RefusalReason, SubagentEvent};
use watchdog_types::{BootTime, SessionId, units};

/// A subagent without a report for this long counts as finished.
const SUBAGENT_TIMEOUT: Duration = Duration::from_secs(6 * 3_600);
/// A shorter run is a change of id, not a run.
const MIN_RUN: Duration = Duration::from_secs(1);
/// Runs that the estimate of the next end is based on.
const PACE_SAMPLES: usize = 8;
/// Per session. A runaway hook displaces its own oldest entries.
const MAX_SUBAGENTS: usize = 256;
/// Bytes.
const MAX_CALL_ID: usize = 128;
/// Finished runs whose time is kept.
const MAX_WINDOWS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SubagentTracker {
    sessions: BTreeMap<SessionId, SessionSubagents>,
}

#[derive(Debug, Default)]
struct SessionSubagents {
    /// Oldest first.
    running: VecDeque<RunningSubagent>,
    /// Periods with a single running subagent. Helpers started then belong to it.
    alone: VecDeque<(BootTime, BootTime)>,
    /// Durations of recent runs.
    took: VecDeque<Duration>,
}

#[derive(Debug)]
struct RunningSubagent {
    since: BootTime,
    call: Option<String>,
    /// No other subagent has run at the same time.
    alone: bool,
    background: bool,
}

impl SubagentTracker {
    pub(super) fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// When the only subagent that ran at this time finished.
    pub(super) fn finished(&self, session: SessionId, started: BootTime) -> Option<BootTime> {
        let windows = &self.sessions.get(&session)?.alone;
        windows.iter().find(|(from, to)| (*from..=*to).contains(&started)).map(|(_, to)| *to)
    }

    fn of(&mut self, session: SessionId, now: BootTime) -> &mut SessionSubagents {
        let running = self.sessions.entry(session).or_default();
        running.running.retain(|one| now.since(one.since) < SUBAGENT_TIMEOUT);
        running
    }
}

impl SessionSubagents {
    fn start(&mut self, call: Option<&str>, background: bool, now: BootTime) {
        self.running.iter_mut().for_each(|one| one.alone = false);
        let alone = self.running.is_empty();
        push_bounded(
            &mut self.running,
            RunningSubagent { since: now, call: call.map(shortened), alone, background },
            MAX_SUBAGENTS,
        );
    }

    /// Ends all subagents, or those in the foreground.
    fn stop_all(&mut self, background_too: bool, now: BootTime) {
        while let Some(index) = self.running.iter().position(|one| background_too || !one.background) {
            self.end(index, now);
        }
    }

    /// Ends the subagent with this call id, or else the oldest.
    fn stop(&mut self, call: Option<&str>, now: BootTime) {
        let call = call.map(shortened);
        let by_call =
            call.as_deref().and_then(|call| self.running.iter().position(|one| one.call.as_deref() == Some(call)));
        // An unknown id was denied, or is reported twice.
        let unknown = call.is_some() && self.running.iter().any(|one| one.call.is_some());
        let index = by_call.or(if unknown { None } else { Some(0) });
        if let Some(index) = index.filter(|index| *index < self.running.len()) {
            self.end(index, now);
        }
    }

    fn end(&mut self, index: usize, now: BootTime) {
        let Some(RunningSubagent { since, alone, .. }) = self.running.remove(index) else { return };
        // A move to the background is reported as an end and a start under another id.
        if now.since(since) >= MIN_RUN {
            push_bounded(&mut self.took, now.since(since), PACE_SAMPLES);
        }
        if alone {
            push_bounded(&mut self.alone, (since, now), MAX_WINDOWS);
        }
    }

    /// Estimated time until the next one ends.
    fn next_end(&self, now: BootTime) -> Option<Duration> {
        let count = u32::try_from(self.took.len()).ok().filter(|count| *count > 0)?;
        let usual = self.took.iter().sum::<Duration>() / count;
        Some(self.running.front()?.since.plus(usual).since(now).max(Duration::from_secs(5)))
    }
}

fn shortened(call: &str) -> String {
    let end = (0..=call.len().min(MAX_CALL_ID)).rev().find(|end| call.is_char_boundary(*end)).unwrap_or(0);
    call[..end].to_owned()
}

impl Step<'_> {
    pub(crate) fn subagent(&mut self, call: &SubagentHook) {
        let now = self.now;
        let session = self.engine.table.alive(call.caller).map(|caller| caller.session);
        let Some(session) = session else {
            self.effect(Effect::Reply(ClientReply::Subagent(SubagentDecision {
                blocker: None,
                session: None,
                running: 0,
                max_subagents: None,
            })));
            return;
        };
        let known = self.engine.sessions.get(session);
        let limiting = known.into_iter().flat_map(|known| known.limited_by(&self.engine.config));
        let max = limiting.filter_map(|profile| Some((profile.limits.max_subagents?, profile.name.clone()))).min();
        let (max, profile) = max.unzip();
        let profile = profile.unwrap_or_default();
        let blocker = match call.event {
            SubagentEvent::Start => {
                let blocker = self.subagent_obstacle(session, &profile, max);
                if blocker.is_none() {
                    let running = self.engine.gate.subagents.of(session, now);
                    running.start(call.call.as_deref(), false, now);
                }
                blocker
            }
            SubagentEvent::Stop => {
                self.engine.gate.subagents.of(session, now).stop(call.call.as_deref(), now);
                self.engine.survey.soon();
                None
            }
            SubagentEvent::Background => {
                self.engine.gate.subagents.of(session, now).start(call.call.as_deref(), true, now);
                None
            }
            SubagentEvent::TurnEnd => {
                self.engine.gate.subagents.of(session, now).stop_all(false, now);
                self.engine.survey.soon();
                None
            }
            // Claude Code reports this at /clear too, and continues.
            SubagentEvent::SessionEnd => {
                self.engine.gate.subagents.of(session, now).stop_all(true, now);
                self.engine.survey.soon();
                None
            }
        };
        let running = self.engine.gate.subagents.of(session, now).running.len() as u64;
        self.effect(Effect::Reply(ClientReply::Subagent(SubagentDecision {
            blocker,
            session: Some(session),
            running,
            max_subagents: max,
        })));
    }

    fn subagent_obstacle(&mut self, session: SessionId, profile: &str, max: Option<u32>) -> Option<Blocker> {
        let now = self.now;
        let memory = self.engine.gate_memory(now);
        let free = memory.map(|memory| units::size(memory.free().0));
        let free = free.map(|free| format!(", {free} free")).unwrap_or_default();
        if let Some((_, why)) = self.engine.gate.breaker.open() {
            return Some(Blocker::new(
                RefusalReason::Breaker,
                format!("host short of memory: {why}{free}"),
                "[gate] breaker_open",
                MEMORY_RETRY,
            ));
        }
        let running = self.engine.gate.subagents.of(session, now);
        let (count, next) = (running.running.len(), running.next_end(now));
        if let Some(max) = max.filter(|max| count >= *max as usize) {
            let detail = format!("{count} of {max} subagents running{free}");
            let bound = format!("[[profile]] {profile} max_subagents");
            let retry_after = next.unwrap_or(DEFAULT_RETRY);
            return Some(Blocker {
                holders: vec![session],
                ..Blocker::new(RefusalReason::Quota, detail, &bound, retry_after)
            });
        }
        memory.filter(|memory| memory.free().0 == 0).map(|memory| {
            let detail = format!(
                "{count} subagents running, no memory free ({} available, {} reserve)",
                units::size(memory.available.0),
                units::size(memory.reserve.0)
            );
            Blocker::new(RefusalReason::Memory, detail, "[gate] reserve", MEMORY_RETRY)
        })
    }
}
