//! Abandoned: an agent whose terminal or session leader has exited, or the client that spoke to it. Background work may be
//! wanted: the agent is reported, and nothing is ever proposed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Conclusions, Detector, Facts, HOLD_OFF, SOON};
use crate::effect::{BpfCommand, Effect};
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use watchdog_api::evidence::{AbandonedEvidence, LostAnchor};
use watchdog_api::{Evidence, FindingKind, ProcessKind, Severity};
use watchdog_config::Config;
use watchdog_types::{BootTime, Inspection, Lineage, ProcessId, SessionId, Stdin, Surroundings};

/// An agent that was heard of this long after its start was not seen starting.
const FOUND_RUNNING: Duration = Duration::from_secs(2);

/// Adopters of processes whose parent has exited. An agent below one of these has no starter.
pub(super) const ADOPTERS: &[&str] =
    &["catatonit", "docker-init", "dumb-init", "init", "openrc-init", "runit", "s6-svscan", "systemd", "tini"];

/// The terminal and session leader of each agent at its first inspection.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    agents: BTreeMap<SessionId, AgentWatch>,
}

#[derive(Debug)]
struct AgentWatch {
    /// The agent had a terminal.
    tty: bool,
    /// The process that led the terminal's session, when it was another one.
    leader: Option<ProcessId>,
    /// A program spoke to it through a pipe or a socket.
    served: bool,
    /// The processes above it, as last read. A launcher between the client and the agent outlives the client.
    above: Vec<ProcessId>,
    starter_exited: bool,
    lost: Option<(BootTime, LostAnchor)>,
}

impl Detector for Abandoned {
    /// What an agent has is noted at the first inspection, and compared at later ones.
    fn inspected(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let Some(known) = facts.table.alive(process).filter(|known| known.kind == ProcessKind::Agent) else { return };
        let Some(session) = facts.sessions.get(known.session) else { return };
        let (id, nested, now, heard) = (session.id, session.parent.is_some(), facts.now, known.seen);
        let Some(seen) = known.inspection.as_deref() else { return };
        // What an agent inside another's tree was started from is a tool call, not a terminal.
        if nested {
            return;
        }
        // One that was found running may have lost its terminal before that; one that was seen starting without a leader,
        // or to which a program speaks through its stdin, never had one.
        let found = heard.since(BootTime::from(process.start_time)) >= FOUND_RUNNING;
        let served = matches!(seen.stdin, Stdin::Peer(_));
        // Session 0 has no leader: the first processes of a system or a container are in it.
        let led_by_another = seen.sid != process.pid.0 && seen.sid != 0;
        let leaderless = found && !served && !seen.tty && led_by_another && !seen.leader_alive;
        // A process with the agent's pipes in its hands may start it through another one.
        let is_root = process == session.root;
        let adopted = seen.ppid == 1 || ADOPTERS.contains(&seen.parent_comm.as_str());
        let hung_up = is_root && seen.stdin == Stdin::Closed;
        match self.agents.get_mut(&id) {
            None => {
                let lost = leaderless.then_some((now, LostAnchor::SessionLeader));
                let left = found && hung_up && adopted && !seen.tty;
                let lost = if left { Some((now, LostAnchor::Client)) } else { lost };
                let (tty, leader, above) = (seen.tty, seen.leader, Vec::new());
                self.agents.insert(id, AgentWatch { tty, leader, served, above, starter_exited: false, lost });
                watch_leader(seen, facts, out);
            }
            Some(watch) if watch.lost.is_none() => {
                if watch.tty && !seen.tty {
                    watch.lost = Some((now, LostAnchor::Terminal));
                } else if watch.leader.is_some() && !seen.leader_alive {
                    watch.lost = Some((now, LostAnchor::SessionLeader));
                } else if watch.served && hung_up && (known.ppid != known.first_ppid || watch.starter_exited) {
                    watch.lost = Some((now, LostAnchor::Client));
                }
            }
            // The client may have led the session.
            Some(watch) if watch.served && hung_up => {
                watch.lost = watch.lost.map(|(at, _)| (at, LostAnchor::Client));
            }
            Some(_) => {}
        }
    }

    /// If the process led an agent's terminal session, the agent is inspected.
    fn exited(&mut self, dead: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        for (session, watch) in &mut self.agents {
            if watch.leader == Some(dead) && watch.lost.is_none() {
                watch.lost = Some((at, LostAnchor::SessionLeader));
                if let Some(session) = facts.sessions.get(*session) {
                    out.inspect(session.root);
                }
            }
        }
    }

    fn witness_exited(&mut self, witness: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        self.exited(witness, at, facts, out);
    }

    fn hung_up(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        if let Some(known) = facts.table.alive(process).filter(|known| known.is_agent())
            && let Some(watch) = self.agents.get(&known.session)
            && watch.lost.is_none()
        {
            out.inspect(process);
        }
    }

    /// Its starter has exited, and may have been its client.
    fn reparented(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        self.hung_up(process, facts, out);
    }

    fn surroundings_read(&mut self, seen: &[Surroundings], facts: &Facts<'_>, out: &mut Conclusions) {
        for Surroundings { agent, ancestors, .. } in seen {
            let session = facts.table.alive(*agent).map(|known| known.session);
            let Some(watch) = session.and_then(|session| self.agents.get_mut(&session)) else { continue };
            let above: Vec<ProcessId> = ancestors.iter().map(|ancestor| ancestor.process).collect();
            watch.starter_exited |= watch.above.iter().any(|before| !above.contains(before));
            watch.above = above;
            if watch.served && watch.starter_exited && watch.lost.is_none() {
                out.inspect(*agent);
            }
        }
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let sessions = facts.sessions;
        self.agents.retain(|id, watch| watch.lost.is_some() || sessions.get(*id).is_some_and(|s| s.ended.is_none()));
        let lost: Vec<(SessionId, BootTime, LostAnchor)> = self
            .agents
            .iter()
            .filter_map(|(session, watch)| watch.lost.map(|(at, what)| (*session, at, what)))
            .collect();
        for (session, at, what) in lost {
            let Some(root) = facts.sessions.get(session).map(|session| session.root) else {
                self.agents.remove(&session);
                continue;
            };
            let key = Key { kind: FindingKind::Abandoned, about: root };
            let agent = facts.agent_of(session);
            let kept = |agent: &&TrackedProcess| {
                agent.verdict.is_kept() || agent.inspection.as_deref().is_some_and(|seen| seen.ignores_hup)
            };
            match agent {
                None => {
                    self.agents.remove(&session);
                    out.close(key, "gone");
                }
                Some(agent) if kept(&agent) => out.close(key, "kept"),
                Some(agent) => {
                    let Some(watch) = self.agents.get(&session) else { continue };
                    let lasted = now.since(at);
                    if lasted < hold_off(what, watch, facts.config) {
                        // The session leader may have been the client: its end of the stdin closes after its exit.
                        if watch.served && what == LostAnchor::SessionLeader && lasted < HOLD_OFF * 2 {
                            out.inspect(agent.id);
                        }
                        continue;
                    }
                    out.report(observation(key, agent, at, watch, what, facts));
                }
            }
        }
    }

    fn due(&self, now: BootTime, _config: &Config) -> Option<Duration> {
        let recent = |watch: &AgentWatch| watch.lost.is_some_and(|(at, _)| now.since(at) < HOLD_OFF * 2);
        self.agents.values().any(recent).then_some(SOON)
    }
}

/// An agent that reads the end of its stdin finishes its work, and exits.
fn hold_off(what: LostAnchor, watch: &AgentWatch, config: &Config) -> Duration {
    match what {
        LostAnchor::Client => config.orphans.grace.max(HOLD_OFF),
        LostAnchor::SessionLeader if watch.served => config.orphans.grace.max(HOLD_OFF),
        LostAnchor::Terminal | LostAnchor::SessionLeader => HOLD_OFF,
    }
}

/// A shell outside every session has to be seen exiting.
fn watch_leader(seen: &Inspection, facts: &Facts<'_>, out: &mut Conclusions) {
    if let Some(leader) = seen.leader
        && facts.table.alive(leader).is_none()
    {
        let witness =
            Lineage { root: leader, parent: None, depth: 0, provisional: false, forked: false, witness: true };
        out.ask(Effect::Bpf(BpfCommand::Track(leader, witness)));
    }
}

fn observation(
    key: Key,
    agent: &TrackedProcess,
    at: BootTime,
    watch: &AgentWatch,
    what: LostAnchor,
    facts: &Facts<'_>,
) -> Detection {
    let seen = agent.inspection.as_deref();
    let had_tty = watch.tty;
    let by_client = what == LostAnchor::Client;
    let helpers = || facts.table.living_below(agent.id).filter(|below| below.session == agent.session);
    let urgent = had_tty || by_client && watch.served;
    let evidence = Evidence::Abandoned(Box::new(AbandonedEvidence {
        had_terminal: had_tty,
        helpers: helpers().count() as u64,
        helpers_memory_bytes: helpers().map(TrackedProcess::cost).sum(),
        lost: what,
        memory_bytes: agent.cost(),
        name: agent.label(),
        parent_comm: seen.map(|seen| seen.parent_comm.clone()),
        ppid: agent.ppid,
        sid: seen.map(|seen| seen.sid),
        starter_pid: (by_client && watch.served).then_some(agent.first_ppid),
        stdin_closed: seen.filter(|_| by_client).map(|seen| seen.stdin == Stdin::Closed),
        stopped: seen.map(|seen| seen.stopped),
    }));
    Detection {
        key,
        severity: if urgent { Severity::Warning } else { Severity::Info },
        session: Some(agent.session),
        subject: agent.id,
        members: Vec::new(),
        uid: agent.uid,
        cause: at,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    }
}
