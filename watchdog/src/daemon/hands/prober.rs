//! Looks at the whole host: its memory, all its processes, and measurements that are dear.

use std::collections::HashMap;
use std::sync::mpsc::{self as orders, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use watchdog_common::NANOS_PER_TICK;

use super::Report;
use crate::daemon::grumble::Grumble;
use crate::engine::id::{BootTime, Pid, ProcessId, Ticks};
use crate::engine::input::{self, Input, Lineage, Memory, Sample};
use crate::host::containers::{Container, Runtime};
use crate::host::shared::SharedSchedule;
use crate::host::{HostError, activity, clock, containers, meminfo, memory, scan, tmpfs};

/// The time between two looks at the host's memory.
const HOST_INTERVAL: Duration = Duration::from_secs(1);

/// Something to look at.
#[derive(Debug)]
pub(in crate::daemon) enum Probe {
    /// All processes; with what the kernel's map held a moment before.
    Scan(HashMap<Pid, (ProcessId, Lineage)>),
    /// The proportional memory of a process, when its turn comes.
    Shared(ProcessId),
    /// What processes have done so far.
    Activity(Vec<ProcessId>),
    /// The files on each tmpfs.
    Tmpfs,
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
    next_host: Instant,
    failed: Grumble,
}

/// Carries out orders, and looks at the host's memory, until there is nobody to give or to hear.
pub(super) fn run(orders: &orders::Receiver<Probe>, reports: mpsc::Sender<Report>) {
    let shared = SharedSchedule::default();
    let mut prober = Prober { reports, shared, next_host: Instant::now(), failed: Grumble::default() };
    loop {
        let done = match orders.recv_timeout(prober.until_due()) {
            Ok(Probe::Scan(entries)) => prober.scan(&entries),
            Ok(Probe::Shared(process)) => {
                // Refused when it was measured a short while ago; the engine asks again when it still wants to know.
                let _ = prober.shared.request(clock::now(), process);
                Ok(())
            }
            Ok(Probe::Activity(processes)) => prober.activity(&processes),
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
    fn until_due(&self) -> Duration {
        let host = self.next_host.saturating_duration_since(Instant::now());
        self.shared.due().map_or(host, |due| host.min(due.since(clock::now())))
    }

    fn what_is_due(&mut self) -> Result<(), Ended> {
        if Instant::now() >= self.next_host {
            self.next_host = Instant::now() + HOST_INTERVAL;
            let host = meminfo::host_memory();
            self.report_if(host.map(|host| Some(Input::Host(host))))?;
        }
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
