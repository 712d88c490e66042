//! What is done in actions: processes are told to end, killed, frozen and let go, sessions are throttled. Whoever decides on that
//! has judged them; here it is seen to that the very processes are hit which were meant, that it is written down first, and that
//! nobody is who must never be.

use std::collections::BTreeSet;
use std::sync::mpsc as orders;

use rustix::process::Signal;
use tokio::sync::mpsc;

use super::Report;
use super::ledger::{Frozen, Ledger};
use crate::daemon::grumble::Grumble;
use crate::daemon::heartbeat::Ping;
use crate::engine::act::{Action, Answer, Authority, Blow, Struck, Wave};
use crate::engine::id::{ActionId, BootTime, Pid, ProcessId};
use crate::engine::input::Input;
use crate::host::cgroup::SessionCgroups;
use crate::host::limits::Cgroups;
use crate::host::pinned::Pinned;
use crate::host::{HostError, clock, this_lineage};

/// A step of an action.
#[derive(Debug)]
pub(in crate::daemon) enum Act {
    /// It is decided: write it down.
    Begin(Box<Action>),
    /// Do this, and tell what came of it.
    Strike(Box<Wave>),
    /// Nothing more is done.
    End(ActionId),
    /// Answer this: the thread carries out orders.
    Ping(Ping),
}

/// What came of a wave, target by target.
type Answers = Vec<(ProcessId, Answer)>;

struct Reaper {
    ledger: Ledger,
    cgroups: SessionCgroups,
    /// We, and all that stood above us when we began.
    guarded: BTreeSet<ProcessId>,
    failed: Grumble,
}

/// Carries out orders until there is nobody to give or to hear.
pub(super) fn run(orders: &orders::Receiver<Act>, reports: mpsc::Sender<Report>, ledger: Ledger) {
    let mut reaper = Reaper::new(ledger);
    while let Ok(act) = orders.recv() {
        match act {
            Act::Begin(action) => reaper.ledger.begin(action),
            Act::Strike(wave) => {
                let (struck, dying) = reaper.strike(&wave);
                // Nobody to hear it: the daemon is stopping.
                if reports.blocking_send(Report::Input(Input::Struck(struck))).is_err() {
                    return;
                }
                reaper.release(&dying);
            }
            Act::End(action) => reaper.ledger.over(action),
            // It may have been given up meanwhile.
            Act::Ping(ping) => drop(ping.send(())),
        }
    }
}

impl Reaper {
    fn new(ledger: Ledger) -> Self {
        let (cgroups, failed) = (SessionCgroups::new(Cgroups::of_host()), Grumble::default());
        // Where this cannot be told, nobody is signalled: it is asked again each time.
        let guarded = this_lineage().unwrap_or_default();
        Self { ledger, cgroups, guarded, failed }
    }

    /// Carries out a wave: what came of it, and who was killed.
    fn strike(&mut self, wave: &Wave) -> (Struck, Vec<Pinned>) {
        let (at, mut dying) = (clock::now(), Vec::new());
        let answers = match self.ledger.refusal(wave.action) {
            Some(why) => refused(wave, &why),
            None => self.deal(wave, at, &mut dying),
        };
        (Struck { action: wave.action, blow: wave.blow, at, answers }, dying)
    }

    fn deal(&mut self, wave: &Wave, at: BootTime, dying: &mut Vec<Pinned>) -> Answers {
        if matches!(wave.blow, Blow::Throttle | Blow::Loosen) {
            return self.bound(wave, at);
        }
        // Who stands above us may be another by now.
        let guarded = match this_lineage() {
            Ok(lineage) => lineage.union(&self.guarded).copied().collect(),
            Err(error) => return refused(wave, &format!("who stands above the watchdog is not to be told: {error}")),
        };
        match wave.blow {
            Blow::Thaw => self.thaw(wave, at, &guarded),
            Blow::Kill | Blow::Freeze => match self.together(wave, at, &guarded, dying) {
                Some(answers) => answers,
                None => self.one_by_one(wave, at, &guarded, dying),
            },
            Blow::Term | Blow::Throttle | Blow::Loosen => self.one_by_one(wave, at, &guarded, dying),
        }
    }

    /// Through the cgroup, if it holds exactly the targets; `None` when it does not, and nothing was done.
    fn together(
        &mut self,
        wave: &Wave,
        at: BootTime,
        guarded: &BTreeSet<ProcessId>,
        dying: &mut Vec<Pinned>,
    ) -> Option<Answers> {
        let cgroup = wave.cgroup.as_deref()?;
        let hold_all = || -> Option<Vec<Pinned>> {
            wave.targets.iter().map(|target| hold(*target, wave.authority, guarded).ok()).collect()
        };
        let held = hold_all()?;
        let looked = self.cgroups.holds_exactly(cgroup, &held);
        if !looked.unwrap_or_else(|error| self.grumble(error)) {
            return None;
        }
        if let Err(why) = self.all_striking(wave, at) {
            return Some(refused(wave, &why));
        }
        // Writing took a while: who may be signalled is read again.
        let Some(held) = hold_all() else { return Some(self.each(wave, guarded, dying)) };
        let done = match wave.blow {
            Blow::Kill => self.cgroups.kill_exactly(cgroup, &held),
            _ => self.cgroups.freeze_exactly(cgroup, &held),
        };
        if !done.unwrap_or_else(|error| self.grumble(error)) {
            // It is written down already that they are about to be struck.
            return Some(self.each(wave, guarded, dying));
        }
        if wave.blow == Blow::Kill {
            dying.extend(held);
        }
        Some(self.all_struck(wave, &Answer::SentToCgroup))
    }

    fn one_by_one(
        &mut self,
        wave: &Wave,
        at: BootTime,
        guarded: &BTreeSet<ProcessId>,
        dying: &mut Vec<Pinned>,
    ) -> Answers {
        let (mut answers, mut unwritten) = (Vec::new(), None);
        for target in &wave.targets {
            if unwritten.is_none() {
                unwritten = self.ledger.striking(wave.action, wave.blow, *target, at).err();
            }
            // Nobody after one who could not be written down: whoever starts that one again may be among them.
            let answer = match &unwritten {
                None => self.one(wave, *target, guarded, dying),
                Some(why) => Answer::Refused(why.clone()),
            };
            answers.push((*target, answer));
        }
        answers
    }

    /// Each of those of whom it is written down that they are about to be struck.
    fn each(&mut self, wave: &Wave, guarded: &BTreeSet<ProcessId>, dying: &mut Vec<Pinned>) -> Answers {
        wave.targets.iter().map(|target| (*target, self.one(wave, *target, guarded, dying))).collect()
    }

    fn one(
        &mut self,
        wave: &Wave,
        target: ProcessId,
        guarded: &BTreeSet<ProcessId>,
        dying: &mut Vec<Pinned>,
    ) -> Answer {
        let answer = match hold(target, wave.authority, guarded) {
            Ok(pinned) => {
                let answer = signal(&pinned, wave.blow);
                if wave.blow == Blow::Kill && answer == Answer::Sent {
                    dying.push(pinned);
                }
                answer
            }
            Err(answer) => answer,
        };
        self.ledger.struck(wave.action, wave.blow, target, answer.clone());
        answer
    }

    /// Lets go of whoever was frozen, in the way in which it was. That is done whether it can be written down or not: done twice
    /// it harms nobody, and not done it leaves them frozen.
    fn thaw(&mut self, wave: &Wave, at: BootTime, guarded: &BTreeSet<ProcessId>) -> Answers {
        let mut answers = Vec::new();
        for target in &wave.targets {
            let _ = self.ledger.striking(wave.action, wave.blow, *target, at);
            let alone = || {
                hold(*target, wave.authority, guarded).map_or_else(|answer| answer, |pinned| signal(&pinned, wave.blow))
            };
            let with_cgroup = |reaper: &Self| match wave.cgroup.as_deref().map(|cgroup| reaper.cgroups.thaw(cgroup)) {
                Some(Ok(true)) => Answer::SentToCgroup,
                Some(Ok(false)) | None => Answer::Gone,
                Some(Err(error)) => Answer::Refused(error.to_string()),
            };
            let answer = match self.ledger.frozen(wave.action, *target) {
                Frozen::Alone => alone(),
                Frozen::WithCgroup => with_cgroup(self),
                Frozen::Unknown => match with_cgroup(self) {
                    refused @ (Answer::Refused(_) | Answer::NotPermitted(_)) => refused,
                    Answer::Sent | Answer::SentToCgroup | Answer::Gone => alone(),
                },
                Frozen::Not => Answer::Refused("it was not frozen".to_owned()),
            };
            self.ledger.struck(wave.action, wave.blow, *target, answer.clone());
            answers.push((*target, answer));
        }
        answers
    }

    /// Throttles the session, or takes that back; the latter whether it can be written down or not.
    fn bound(&mut self, wave: &Wave, at: BootTime) -> Answers {
        let Some(cgroup) = wave.cgroup.as_deref() else { return refused(wave, "the session has no cgroup of its own") };
        if wave.blow == Blow::Throttle
            && let Err(answer) = self.all_within_reach(cgroup, wave.authority)
        {
            return each_with(wave, &answer);
        }
        let written = self.all_striking(wave, at);
        let done = match (wave.blow, written) {
            (Blow::Loosen, _) => self.cgroups.loosen(cgroup),
            // Writing took a while: whose the members are is read again.
            (_, Ok(())) => match self.all_within_reach(cgroup, wave.authority) {
                Ok(()) => self.cgroups.throttle(cgroup).map(|bound| bound.is_some()),
                Err(answer) => return self.all_struck(wave, &answer),
            },
            (_, Err(why)) => return refused(wave, &why),
        };
        let answer = match done {
            Ok(true) => Answer::SentToCgroup,
            Ok(false) => Answer::Refused(format!("the cgroup {cgroup} has no memory.high, or is not a session's")),
            Err(error) => Answer::Refused(error.to_string()),
        };
        self.all_struck(wave, &answer)
    }

    /// Whether this authority reaches every process that is in a cgroup or below it.
    fn all_within_reach(&self, cgroup: &str, authority: Authority) -> Result<(), Answer> {
        let failed = |error: HostError| Answer::Refused(error.to_string());
        let members = self.cgroups.members(cgroup).map_err(failed)?.unwrap_or_default();
        for pid in members {
            let identity = Pinned::open(pid).and_then(|pinned| pinned.map_or(Ok(None), |pinned| pinned.identity()));
            if let Some(identity) = identity.map_err(failed)?
                && let Some(why) = authority.refusal(pid, identity.users)
            {
                return Err(Answer::NotPermitted(why));
            }
        }
        Ok(())
    }

    /// Writes down of all targets that they are about to be struck.
    fn all_striking(&mut self, wave: &Wave, at: BootTime) -> Result<(), String> {
        for (written, target) in wave.targets.iter().enumerate() {
            if let Err(why) = self.ledger.striking(wave.action, wave.blow, *target, at) {
                for target in &wave.targets[..written] {
                    self.ledger.struck(wave.action, wave.blow, *target, Answer::Refused(why.clone()));
                }
                return Err(why);
            }
        }
        Ok(())
    }

    fn all_struck(&mut self, wave: &Wave, answer: &Answer) -> Answers {
        for target in &wave.targets {
            self.ledger.struck(wave.action, wave.blow, *target, answer.clone());
        }
        each_with(wave, answer)
    }

    /// Takes their memory from those who were killed. All of them were first: whoever starts its child again when that dies has no
    /// time for it.
    fn release(&mut self, dying: &[Pinned]) {
        for pinned in dying {
            if let Err(error) = pinned.release() {
                self.failed.say(error);
            }
        }
    }

    /// What is not to be told of a cgroup is not so: its processes are struck one by one then.
    fn grumble(&mut self, error: HostError) -> bool {
        self.failed.say(error);
        false
    }
}

/// Holds on to a target, if it is there and may be touched: the pidfd is opened first, then start time and user ids are read.
fn hold(target: ProcessId, authority: Authority, guarded: &BTreeSet<ProcessId>) -> Result<Pinned, Answer> {
    if target.pid <= Pid(1) || target.pid == Pid(std::process::id()) || guarded.contains(&target) {
        return Err(Answer::Refused("it is the watchdog, or stands above it".to_owned()));
    }
    match Pinned::with_identity(target) {
        Ok(Some((_, who))) if who.kernel => Err(Answer::Refused("it is a thread of the kernel".to_owned())),
        Ok(Some((pinned, who))) => match authority.refusal(target.pid, who.users) {
            Some(why) => Err(Answer::NotPermitted(why)),
            None => Ok(pinned),
        },
        Ok(None) => Err(Answer::Gone),
        Err(error) => Err(Answer::Refused(error.to_string())),
    }
}

fn signal(pinned: &Pinned, blow: Blow) -> Answer {
    let signal = match blow {
        Blow::Term => Signal::TERM,
        Blow::Kill => Signal::KILL,
        Blow::Freeze => Signal::STOP,
        Blow::Thaw => Signal::CONT,
        Blow::Throttle | Blow::Loosen => return Answer::Refused("that is done to a cgroup".to_owned()),
    };
    match pinned.signal(signal) {
        Ok(true) => Answer::Sent,
        Ok(false) => Answer::Gone,
        Err(error) => Answer::Refused(error.to_string()),
    }
}

fn refused(wave: &Wave, why: &str) -> Answers {
    each_with(wave, &Answer::Refused(why.to_owned()))
}

fn each_with(wave: &Wave, answer: &Answer) -> Answers {
    wave.targets.iter().map(|target| (*target, answer.clone())).collect()
}

#[cfg(test)]
#[path = "reaper_tests.rs"]
mod tests;
