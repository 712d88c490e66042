//! Looks that take long: at all processes of the host, at its containers, and at the pages that processes share.

use std::collections::HashMap;
use std::sync::mpsc::{self as orders, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc;
use watchdog_common::NANOS_PER_TICK;

use super::Report;
use crate::daemon::grumble::Grumble;
use crate::engine::id::{BootTime, Pid, ProcessId, SessionId, Ticks};
use crate::engine::input::{self, Input, Limits, Lineage, Memory, Sample};
use crate::host::cgroup::SessionCgroups;
use crate::host::containers::{Container, Runtime};
use crate::host::limits::{Cgroups, Seen};
use crate::host::oom::OomCounts;
use crate::host::shared::SharedSchedule;
use crate::host::{HostError, activity, clock, containers, memory, scan, tmpfs};

/// Something to look at.
#[derive(Debug)]
pub(in crate::daemon) enum Probe {
    /// All processes; with what the kernel's map held a moment before.
    Scan(HashMap<Pid, (ProcessId, Lineage)>),
    /// The proportional memory of a process, when its turn comes.
    Shared(ProcessId),
    /// The ceilings of these processes' memory.
    Limits(Vec<ProcessId>),
    /// What a choice of the OOM killer leaves.
    Oom {
        /// Its number.
        number: u64,
        /// The victim.
        victim: Pid,
        /// The victim's cgroup, when it was last looked at.
        cgroup: Option<String>,
        /// Whose oom_score_adj is wanted besides.
        others: Vec<Pid>,
    },
    /// What processes have done so far.
    Activity(Vec<ProcessId>),
    /// The files on each tmpfs.
    Tmpfs,
    /// The cgroup of a waiting launch that has the least room.
    Room(ProcessId),
    /// Who is in the cgroup of a session.
    Members(SessionId, String),
    /// The containers that began in this span.
    Containers {
        /// Who asked for a container.
        client: ProcessId,
        /// No container of the client is older.
        from: BootTime,
        /// No container of the client is younger.
        to: BootTime,
    },
}

/// The other side has ended, and so must this one.
struct Ended;

struct Prober {
    reports: mpsc::Sender<Report>,
    shared: SharedSchedule,
    cgroups: Cgroups,
    ooms: OomCounts,
    failed: Grumble,
}

/// Carries out orders until there is nobody to give or to hear.
pub(super) fn run(orders: &orders::Receiver<Probe>, reports: mpsc::Sender<Report>) {
    let mut prober = Prober {
        reports,
        shared: SharedSchedule::default(),
        cgroups: Cgroups::of_host(),
        ooms: OomCounts::default(),
        failed: Grumble::default(),
    };
    loop {
        let order = match prober.shared.due() {
            Some(due) => orders.recv_timeout(due.since(clock::now())),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match order {
            Ok(Probe::Scan(entries)) => prober.scan(&entries),
            Ok(Probe::Shared(process)) => {
                // Refused when it was measured a short while ago; the engine asks again when it still wants to know.
                let _ = prober.shared.request(clock::now(), process);
                Ok(())
            }
            Ok(Probe::Limits(processes)) => prober.limits(&processes),
            Ok(Probe::Oom { number, victim, cgroup, others }) => {
                let seen = prober.ooms.look(&prober.cgroups, number, victim, cgroup.as_deref(), &others);
                prober.report_if(seen.map(|seen| Some(Input::OomSeen(seen))))
            }
            Ok(Probe::Activity(processes)) => prober.activity(&processes),
            Ok(Probe::Room(process)) => {
                let room = prober.cgroups.above(process);
                prober.report_if(room.map(|room| Some(Input::Room(process, room))))
            }
            Ok(Probe::Members(session, cgroup)) => {
                let members = SessionCgroups::new(prober.cgroups.clone()).members(&cgroup);
                // That it is gone is no answer: so is its session, or the daemon sees another hierarchy.
                prober.report_if(members.map(|found| found.map(|members| Input::CgroupMembers(session, members))))
            }
            Ok(Probe::Tmpfs) => prober.report_if(tmpfs::look().map(|seen| Some(Input::Tmpfs(seen)))),
            Ok(Probe::Containers { client, from, to }) => {
                let found = containers::started_between(tick_of(from), tick_of(to));
                let found = found.map(|found| found.into_iter().map(for_engine).collect());
                prober.report_if(found.map(|found| Some(Input::Containers(client, found))))
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        };
        if done.and_then(|()| prober.what_is_due()).is_err() {
            return;
        }
    }
}

impl Prober {
    fn what_is_due(&mut self) -> Result<(), Ended> {
        if let Some(process) = self.shared.next(clock::now()) {
            let measured = self.measure(process);
            self.report_if(measured)?;
        }
        Ok(())
    }

    fn scan(&mut self, entries: &HashMap<Pid, (ProcessId, Lineage)>) -> Result<(), Ended> {
        let report = match scan::scan(entries) {
            Ok(scan) => Report::Input(Input::Scan(scan)),
            Err(error) => {
                self.failed.say(error);
                Report::NoScan
            }
        };
        self.reports.blocking_send(report).map_err(|_| Ended)
    }

    fn limits(&mut self, processes: &[ProcessId]) -> Result<(), Ended> {
        let mut seen = Seen::new();
        processes.iter().try_for_each(|process| {
            let found = self.cgroups.limits(*process, &mut seen);
            if let Ok(Some(Limits { cgroup: Some(cgroup), .. })) = &found
                && let Err(error) = self.ooms.count(&self.cgroups, &cgroup.path)
            {
                self.failed.say(error);
            }
            self.report_if(found.map(|found| found.map(|limits| Input::Limits(*process, limits))))
        })
    }

    fn measure(&mut self, process: ProcessId) -> Result<Option<Input>, HostError> {
        let measured = memory::proportional(process);
        let now = clock::now();
        let cost = measured.as_ref().map_or(Duration::ZERO, |found| found.map_or(Duration::ZERO, |(_, cost)| cost));
        self.shared.measured(now, process, cost);
        let Some((proportional, _)) = measured? else { return Ok(None) };
        let Some(memory) = memory::memory(process)? else { return Ok(None) };
        let memory = Memory { proportional: Some(proportional), ..memory };
        Ok(Some(Input::Samples(vec![Sample {
            at: now,
            process,
            memory,
            ppid: None,
            zombie: false,
            tty: None,
            comm: None,
        }])))
    }

    fn activity(&mut self, processes: &[ProcessId]) -> Result<(), Ended> {
        let mut looks = Vec::with_capacity(processes.len());
        for process in processes {
            match activity::activity(*process) {
                Ok(seen) => looks.extend(seen),
                Err(error) => self.failed.say(error),
            }
        }
        self.report_if(Ok(Some(Input::Activity(looks))))
    }

    fn report_if(&mut self, learned: Result<Option<Input>, HostError>) -> Result<(), Ended> {
        match learned {
            Ok(Some(input)) => self.reports.blocking_send(Report::Input(input)).map_err(|_| Ended),
            Ok(None) => Ok(()),
            Err(error) => {
                self.failed.say(error);
                Ok(())
            }
        }
    }
}

/// The tick that a moment is in.
fn tick_of(moment: BootTime) -> Ticks {
    Ticks(moment.0 / NANOS_PER_TICK)
}

fn for_engine(container: Container) -> input::Container {
    let Container { process, container_id, runtime, comm } = container;
    let runtime = match runtime {
        Runtime::Docker => "docker",
        Runtime::Podman => "libpod",
        Runtime::Containerd => "containerd",
        Runtime::Crio => "cri-o",
        Runtime::Unknown => "unknown",
    };
    input::Container { process, id: container_id, runtime: runtime.to_owned(), comm }
}
