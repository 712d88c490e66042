//! What the configuration does about findings, when `[actions] enforce` is on.

use std::time::Duration;

use super::choose::Chosen;
use super::running::{Plan, Running};
use super::{Decided, Grounds};
use crate::api::{ActionKind, FindingKind};
use crate::config::Reaction;
use crate::engine::effect::{Effect, Happening, JournalEntry};
use crate::engine::finding::{Finding, Proposal};
use crate::engine::id::{BootTime, FindingId, ProcessId};
use crate::engine::process::Process;
use crate::engine::{Engine, Step};

/// The span that `max_kills_per_minute` is about.
const RATE_WINDOW: Duration = Duration::from_secs(60);

impl Engine {
    /// Policy may act at all.
    pub(super) fn enforces(&self) -> bool {
        self.config.actions.enforce && self.acts.rights.missing.is_none()
    }

    /// Whether what was decided would still be: who turns policy off means what it has begun as well.
    pub(super) fn is_still_wanted(&self, running: &Running) -> bool {
        let reaction =
            running.about.and_then(|finding| self.findings.get(finding)).map(|finding| self.reaction(finding));
        match running.action.by {
            Decided::Person(_) => true,
            Decided::Emergency => self.enforces() && self.config.actions.emergency,
            Decided::Policy => self.enforces() && reaction != Some(Reaction::Report),
        }
    }

    /// What the configuration does about a finding: its session's profile has the first word.
    pub(super) fn reaction(&self, finding: &Finding) -> Reaction {
        let kind = finding.seen.key.kind;
        let session = finding.seen.session.and_then(|session| self.sessions.get(session));
        let profile = session.and_then(|session| self.config.profile(&session.profile));
        let own = profile.and_then(|profile| profile.actions.about(kind));
        own.or_else(|| self.config.actions.about.about(kind)).unwrap_or(Reaction::Report)
    }

    /// Whether an orphan has had its grace: since its agents died, the last of them, and since anything spoke for it.
    fn had_its_grace(&self, id: ProcessId, now: BootTime) -> bool {
        let agents = self.table.above(id).filter(|above| above.is_agent());
        let died = agents.filter_map(Process::died).map(|(at, _)| at);
        let last = died.chain(self.table.get(id).and_then(|process| process.cleared)).max();
        last.is_none_or(|at| now.since(at) >= self.config.orphans.grace)
    }

    /// The processes that a finding is about, and on what grounds they would be touched.
    pub(super) fn candidates(&self, finding: &Finding) -> (Vec<ProcessId>, Grounds) {
        let members = || finding.seen.members.iter().copied();
        match finding.seen.key.kind {
            FindingKind::Orphan => (members().collect(), Grounds::LeftBehind),
            FindingKind::Stale | FindingKind::Leak => (self.helpers(members()), Grounds::Helper),
            FindingKind::Overlimit => (self.helpers(self.limited(finding.seen.subject)), Grounds::Helper),
            // The agent of a detached helper lives, and may have meant it: no evidence decides that.
            FindingKind::Detached
            | FindingKind::Fanout
            | FindingKind::Duplicate
            | FindingKind::Abandoned
            | FindingKind::Ungated
            | FindingKind::External => (Vec::new(), Grounds::Helper),
        }
    }

    /// Whom it is about that somebody takes more than its limit: of an agent, which is left alone, all that it runs.
    fn limited(&self, subject: ProcessId) -> Vec<ProcessId> {
        match self.table.get(subject) {
            Some(agent) if agent.is_agent() => agent.children.clone(),
            _ => vec![subject],
        }
    }

    /// Whether an action about this finding is under way, or held.
    fn is_acted_on(&self, finding: FindingId) -> bool {
        self.acts.running.values().any(|running| running.about == Some(finding))
    }
}

impl Step<'_> {
    /// Begins what is due.
    pub(in crate::engine) fn tick_policy(&mut self) {
        let now = self.now;
        let kills = &mut self.engine.acts.kills;
        while kills.front().is_some_and(|at| now.since(*at) >= RATE_WINDOW) {
            kills.pop_front();
        }
        self.engine.acts.rests.retain(|_, until| *until > now);
        let Engine { acts, findings, .. } = &mut *self.engine;
        acts.freed.retain(|finding| findings.is_still_open(*finding));
        if !self.engine.enforces() {
            return;
        }
        let due: Vec<FindingId> = self
            .engine
            .findings
            .open()
            .filter(|finding| self.engine.reaction(finding) != Reaction::Report)
            .filter(|finding| match finding.seen.key.kind {
                // Its own grace is over, and its members were looked at after that.
                FindingKind::Orphan => finding.seen.proposal == Proposal::Terminate,
                _ => now.since(finding.opened) >= self.engine.config.actions.grace,
            })
            .filter(|finding| !self.engine.is_acted_on(finding.id) && !self.engine.acts.freed.contains(&finding.id))
            .map(|finding| finding.id)
            .collect();
        if self.engine.acts.awake.is_waking(now) {
            if !due.is_empty()
                && let Some(detail) = self.engine.acts.awake.why_not_yet()
            {
                self.say_why_not(detail);
            }
            return;
        }
        due.into_iter().for_each(|finding| self.act_on(finding));
    }

    fn act_on(&mut self, id: FindingId) {
        let engine = &*self.engine;
        let Some(finding) = engine.findings.get(id) else { return };
        let reaction = engine.reaction(finding);
        let (mut candidates, grounds) = engine.candidates(finding);
        if finding.seen.key.kind == FindingKind::Orphan {
            // What is below one goes with it.
            let ripe = |id: ProcessId| engine.had_its_grace(id, self.now);
            candidates.retain(|top| ripe(*top) && engine.table.living_below(*top).all(|below| ripe(below.id)));
        }
        if reaction == Reaction::Terminate && self.room_for_kills() == 0 {
            self.pause(candidates.len());
            return;
        }
        let (kind, chosen) = match reaction {
            Reaction::Report => return,
            Reaction::Terminate => (ActionKind::Terminate, engine.choose_new(candidates, grounds)),
            Reaction::Freeze => {
                let mut chosen = engine.choose_new(candidates, grounds);
                chosen.targets.retain(|target| engine.stopped(target.process).is_none());
                (ActionKind::Freeze, chosen)
            }
            // It is the session's cgroup that is throttled: the receipt names whom the finding is about.
            Reaction::Throttle if engine.acts.is_done_with(finding.seen.subject) => return,
            Reaction::Throttle => {
                let targets = engine.describe([finding.seen.subject]);
                (ActionKind::Throttle, Chosen { targets, spared: Vec::new() })
            }
        };
        let mut plan = engine.plan_of(finding, kind, chosen, grounds);
        match kind {
            ActionKind::Throttle if plan.cgroup.is_none() => return,
            ActionKind::Throttle | ActionKind::Freeze => {}
            ActionKind::Terminate => self.hold_to_rate(&mut plan),
        }
        if !plan.chosen.targets.is_empty() {
            self.begin_action(plan, Decided::Policy, false);
        }
    }

    /// How many more processes policy may end now.
    pub(super) fn room_for_kills(&self) -> usize {
        let bound = usize::try_from(self.engine.config.actions.max_kills_per_minute).unwrap_or(usize::MAX);
        // What is being looked at before it is ended counts already.
        let of_policy = |running: &&Running| !running.by_person();
        let begun = self.engine.acts.running.values().filter(of_policy);
        let begun = begun.filter(|running| running.dealt.is_empty() && running.moves());
        let begun: usize =
            begun.filter(|running| running.action.kind == ActionKind::Terminate).map(|it| it.living().count()).sum();
        bound.saturating_sub(self.engine.acts.kills.len() + begun)
    }

    /// Leaves as many targets as policy may end now, and says when those are not all.
    pub(super) fn hold_to_rate(&mut self, plan: &mut Plan) {
        let (wanted, room) = (plan.chosen.targets.len(), self.room_for_kills());
        if wanted > room {
            self.pause(wanted);
            plan.chosen.targets.truncate(room);
        }
    }

    /// Says, once, that the rate bound holds policy back.
    fn pause(&mut self, wanted: usize) {
        let before = self.engine.acts.held_back.replace(self.now);
        if before.is_some_and(|at| self.now.since(at) < RATE_WINDOW) {
            return;
        }
        let bound = self.engine.config.actions.max_kills_per_minute;
        self.say_why_not(format!("{wanted} processes are to be ended, and policy ends {bound} a minute at most"));
    }

    /// Tells why nothing is done where something would be.
    pub(super) fn say_why_not(&mut self, detail: String) {
        let what = Happening::ActionsHeldBack { detail };
        self.effect(Effect::Journal(JournalEntry { at: self.now, process: None, session: None, what }));
    }
}
