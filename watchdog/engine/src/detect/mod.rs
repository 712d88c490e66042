//! The detectors, one a file. `docs/architecture.md` lists the files that a new one takes.
//!
//! Only this module names a detector: the engine reaches them through [`Step::detect`] and the methods of [`Detectors`].

mod abandoned;
mod build_server;
mod detached;
mod detector;
mod duplicate;
mod external;
mod fanout;
pub(crate) mod idle;
pub mod leak;
mod memory_by_day;
mod orphan;
mod overlimit;
mod protected;
mod stale;
mod superseded;
mod survey;
mod tasks;
mod tmpfs;
mod user_agents;
mod worker_burst;
mod workers;

use std::time::Duration;

use self::detector::Conclusion;
pub(crate) use self::detector::{Conclusions, Detector, Facts, TableEvent};
pub(crate) use self::survey::Survey;
use crate::{Engine, Step};
use watchdog_api::UserAgents;
use watchdog_config::Config;
use watchdog_types::{BootTime, Pid, ProcessId, SessionId, Uid, Viewer};

/// How long a loss is left alone before it is reported: shells exit around their children all the time, and an agent that
/// hangs up takes a moment to do so.
const HOLD_OFF: Duration = Duration::from_millis(500);
/// A detector that is about to conclude something wants the next tick this soon.
const SOON: Duration = Duration::from_millis(250);

/// Declares [`Detectors`]. Events reach them in this order.
macro_rules! detectors {
    ($($name:ident: $detector:ty,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Detectors {
            $($name: $detector,)*
        }

        impl Detectors {
            /// The earliest tick that a detector wants.
            pub(crate) fn due(&self, now: BootTime, config: &Config) -> Option<Duration> {
                [$(self.$name.due(now, config),)*].into_iter().flatten().min()
            }

            pub(crate) fn changed(&mut self) {
                $(self.$name.changed();)*
            }
        }

        impl Step<'_> {
            /// Sends an event to each detector, and applies its conclusions before the next one receives it.
            pub(crate) fn detect(&mut self, event: TableEvent<'_>) {
                $({
                    let mut out = std::mem::take(&mut self.engine.conclusions);
                    let (detectors, facts) = self.engine.split(self.now);
                    detectors.$name.on(event, &facts, &mut out);
                    self.conclude(out);
                })*
            }
        }
    };
}

detectors! {
    orphans: orphan::Orphans,
    detached: detached::Detached,
    abandoned: abandoned::Abandoned,
    external: external::External,
    stale: stale::Stale,
    duplicates: duplicate::Duplicates,
    build_servers: build_server::BuildServers,
    fanout: fanout::Fanout,
    overlimit: overlimit::Overlimit,
    worker_bursts: worker_burst::WorkerBursts,
    leaks: leak::Leaks,
    tmpfs: tmpfs::TmpfsWatch,
    tasks: tasks::Tasks,
    protected: protected::Protected,
    agents_by_user: user_agents::AgentsByUser,
}

impl Detectors {
    pub(crate) fn memory_trend(&self, process: ProcessId, now: BootTime) -> Option<String> {
        self.leaks.trend(process, now)
    }

    /// Growth of open leaks in bytes per second, by session.
    pub(crate) fn leak_rates(&self) -> impl Iterator<Item = (SessionId, f64)> {
        self.leaks.rates()
    }

    /// The processes above an agent without a terminal, the nearest first.
    pub(crate) fn above_unattended(&self, agent: ProcessId) -> Vec<Pid> {
        self.agents_by_user.above_unattended(agent)
    }

    /// The process is part of a stale helper.
    pub(crate) fn is_stale(&self, process: ProcessId) -> bool {
        self.stale.contains(process)
    }

    /// The process lost its parent while its agent lives.
    pub(crate) fn is_detached(&self, process: ProcessId) -> bool {
        self.detached.contains(process)
    }

    /// Processes over a memory limit, and which limit.
    pub(crate) fn processes_over_limit(&self, now: BootTime) -> impl Iterator<Item = (ProcessId, &'static str)> {
        self.overlimit.processes_over(now)
    }
}

impl Engine {
    /// Each user's agents together, as far as `viewer` sees them.
    #[must_use]
    pub fn user_agents(&self, viewer: Viewer, now: BootTime, name: impl Fn(Uid) -> String) -> Vec<UserAgents> {
        self.detectors.agents_by_user.summaries(&self.detector_facts(now), |uid| viewer.sees(uid), name)
    }

    fn detector_facts(&self, now: BootTime) -> Facts<'_> {
        let Self { config, table, sessions, findings, close_watch, excesses, .. } = self;
        let Self { uncharged, growing_workers, gate, .. } = self;
        let host = &close_watch.host;
        Facts { now, config, table, sessions, findings, host, excesses, uncharged, growing_workers, gate }
    }

    /// The detectors beside what they may read.
    fn split(&mut self, now: BootTime) -> (&mut Detectors, Facts<'_>) {
        let Self { config, table, sessions, findings, close_watch, excesses, .. } = self;
        let Self { uncharged, growing_workers, gate, detectors, .. } = self;
        let host = &close_watch.host;
        let facts = Facts { now, config, table, sessions, findings, host, excesses, uncharged, growing_workers, gate };
        (detectors, facts)
    }
}

impl Step<'_> {
    fn conclude(&mut self, mut out: Conclusions) {
        out.list.drain(..).for_each(|conclusion| self.apply(conclusion));
        // Its allocation serves the next event.
        self.engine.conclusions = out;
    }

    fn apply(&mut self, conclusion: Conclusion) {
        match conclusion {
            Conclusion::Report(seen) => self.observe(*seen),
            Conclusion::Close(key, because) => self.close(key, because),
            Conclusion::Ask(effect) => self.effect(effect),
            Conclusion::SurveySoon => self.engine.survey.soon(),
            Conclusion::ReviewPolicy => self.tick_policy(),
            Conclusion::Uncharge(processes) => {
                if self.engine.uncharged != processes {
                    self.engine.uncharged = processes;
                    self.engine.table.bump_generation();
                }
            }
            Conclusion::WorkerGrows(process) => {
                self.engine.growing_workers.entry(process).or_insert(self.now);
            }
            Conclusion::WorkerSettled(process) => {
                self.engine.growing_workers.remove(&process);
            }
        }
    }

    /// A process was forked or found, or was judged anew.
    pub(crate) fn place(&mut self, process: ProcessId) {
        self.detect(TableEvent::Placed(process));
    }

    /// Surveys all helpers when that is due.
    pub(crate) fn tick_survey(&mut self) {
        let Engine { survey, config, .. } = &mut *self.engine;
        let Some(pace) = survey.begin(self.now, config) else { return };
        let helpers = self.engine.split(self.now).1.all_helpers();
        self.detect(TableEvent::Surveyed(&helpers, pace));
    }
}
