//! Subagents that run inside an agent's own process: no kernel event tells of them, so the agent's hooks do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{MEMORY_MOVES, Obstacle, SOME_TIME, Subagent, SubagentDecision, push_bounded};
use crate::api::{RefusalReason, SubagentEvent};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, SessionId};
use crate::units;

/// A subagent of which nothing was heard for this long has ended without a word.
const FORGOTTEN: Duration = Duration::from_secs(6 * 3_600);
/// A subagent that takes less has only changed its number.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Ends of subagents that the pace is judged by.
const PACE_BY: usize = 8;
/// Subagents of one session that are remembered; a hook that goes wild pushes out its own oldest.
const REMEMBERED: usize = 256;
/// Bytes of a call's number that are remembered.
const CALL: usize = 128;
/// Subagents that have ended of which it is remembered when they ran.
const FINISHED: usize = 64;

/// The subagents of each session.
#[derive(Debug, Default)]
pub(super) struct Subagents {
    sessions: BTreeMap<SessionId, Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// The oldest first.
    running: VecDeque<One>,
    /// From when to when the last ones ran during which no other did: what was started then is theirs.
    alone: VecDeque<(BootTime, BootTime)>,
    /// How long the last ones took.
    took: VecDeque<Duration>,
}

#[derive(Debug)]
struct One {
    since: BootTime,
    /// The number of its call.
    call: Option<String>,
    /// No other has run beside it.
    alone: bool,
    /// The agent does not wait for it.
    background: bool,
}

impl Subagents {
    /// The session is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// When the subagent ended that ran, and no other, when this was started.
    pub(super) fn finished(&self, session: SessionId, started: BootTime) -> Option<BootTime> {
        let windows = &self.sessions.get(&session)?.alone;
        windows.iter().find(|(from, to)| (*from..=*to).contains(&started)).map(|(_, to)| *to)
    }

    fn of(&mut self, session: SessionId, now: BootTime) -> &mut Running {
        let running = self.sessions.entry(session).or_default();
        running.running.retain(|one| now.since(one.since) < FORGOTTEN);
        running
    }
}

impl Running {
    fn start(&mut self, call: Option<&str>, background: bool, now: BootTime) {
        self.running.iter_mut().for_each(|one| one.alone = false);
        let alone = self.running.is_empty();
        push_bounded(&mut self.running, One { since: now, call: call.map(shortened), alone, background }, REMEMBERED);
    }

    /// All are over, or all that the agent waits for.
    fn stop_all(&mut self, background_too: bool, now: BootTime) {
        while let Some(index) = self.running.iter().position(|one| background_too || !one.background) {
            self.end(index, now);
        }
    }

    /// Takes out the one with this call's number, else the oldest.
    fn stop(&mut self, call: Option<&str>, now: BootTime) {
        let call = call.map(shortened);
        let by_call =
            call.as_deref().and_then(|call| self.running.iter().position(|one| one.call.as_deref() == Some(call)));
        // A number that no start bore was denied, or is told twice.
        let unknown = call.is_some() && self.running.iter().any(|one| one.call.is_some());
        let index = by_call.or(if unknown { None } else { Some(0) });
        if let Some(index) = index.filter(|index| *index < self.running.len()) {
            self.end(index, now);
        }
    }

    fn end(&mut self, index: usize, now: BootTime) {
        let Some(One { since, alone, .. }) = self.running.remove(index) else { return };
        // One that goes on in the background is told as ended and started again under another number.
        if now.since(since) >= AT_ONCE {
            push_bounded(&mut self.took, now.since(since), PACE_BY);
        }
        if alone {
            push_bounded(&mut self.alone, (since, now), FINISHED);
        }
    }

    /// When the next is likely to end.
    fn next_end(&self, now: BootTime) -> Option<Duration> {
        let count = u32::try_from(self.took.len()).ok().filter(|count| *count > 0)?;
        let usual = self.took.iter().sum::<Duration>() / count;
        Some(self.running.front()?.since.plus(usual).since(now).max(Duration::from_secs(5)))
    }
}

fn shortened(call: &str) -> String {
    let end = (0..=call.len().min(CALL)).rev().find(|end| call.is_char_boundary(*end)).unwrap_or(0);
    call[..end].to_owned()
}

impl Step<'_> {
    /// An agent's hook asks whether it may start a subagent, or tells that one has ended.
    pub(in crate::engine) fn subagent(&mut self, call: &Subagent) {
        let now = self.now;
        let session = self.engine.table.alive(call.caller).map(|caller| caller.session);
        let Some(session) = session else {
            self.effect(Effect::Subagent(SubagentDecision {
                obstacle: None,
                session: None,
                running: 0,
                max_subagents: None,
            }));
            return;
        };
        let known = self.engine.sessions.get(session);
        let limiting = known.into_iter().flat_map(|known| known.limited_by(&self.engine.config));
        let max = limiting.filter_map(|profile| Some((profile.bounds.max_subagents?, profile.name.clone()))).min();
        let (max, profile) = max.unzip();
        let profile = profile.unwrap_or_default();
        let obstacle = match call.event {
            SubagentEvent::Start => {
                let obstacle = self.subagent_obstacle(session, &profile, max);
                if obstacle.is_none() {
                    let running = self.engine.gate.subagents.of(session, now);
                    running.start(call.call.as_deref(), false, now);
                }
                obstacle
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
            // Claude Code says so at /clear too, and goes on.
            SubagentEvent::SessionEnd => {
                self.engine.gate.subagents.of(session, now).stop_all(true, now);
                self.engine.survey.soon();
                None
            }
        };
        let running = self.engine.gate.subagents.of(session, now).running.len() as u64;
        self.effect(Effect::Subagent(SubagentDecision {
            obstacle,
            session: Some(session),
            running,
            max_subagents: max,
        }));
    }

    fn subagent_obstacle(&mut self, session: SessionId, profile: &str, max: Option<u32>) -> Option<Obstacle> {
        let now = self.now;
        let memory = self.engine.gate_memory(now);
        let free = memory.map(|memory| units::size(memory.free().0));
        let free = free.map(|free| format!(", {free} free")).unwrap_or_default();
        if let Some((_, why)) = self.engine.gate.breaker.open() {
            return Some(Obstacle {
                reason: RefusalReason::Breaker,
                detail: format!("the host is short of memory: {why}{free}"),
                bound: "[gate] breaker_open".to_owned(),
                holders: Vec::new(),
                retry_after: Some(MEMORY_MOVES),
            });
        }
        let running = self.engine.gate.subagents.of(session, now);
        let (count, next) = (running.running.len(), running.next_end(now));
        if let Some(max) = max.filter(|max| count >= *max as usize) {
            return Some(Obstacle {
                reason: RefusalReason::Quota,
                detail: format!("{count} of {max} subagents running{free}"),
                bound: format!("[[profile]] {profile} max_subagents"),
                holders: vec![session],
                retry_after: Some(next.unwrap_or(SOME_TIME)),
            });
        }
        memory.filter(|memory| memory.free().0 == 0).map(|memory| Obstacle {
            reason: RefusalReason::Memory,
            detail: format!(
                "{count} subagents running, and no memory is free: {} available, of which {} are kept in reserve",
                units::size(memory.available.0),
                units::size(memory.reserve.0)
            ),
            bound: "[gate] reserve".to_owned(),
            holders: Vec::new(),
            retry_after: Some(MEMORY_MOVES),
        })
    }
}
