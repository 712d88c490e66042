//! Slow reads: all processes of the host, its containers, cgroups, tmpfs, and the pages that processes share.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use watchdog_common::NANOS_PER_TICK;

use super::WorkerEvent;
use super::event_sender::EventSender;
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, Worker};
use watchdog_engine::effect::ScanRequest;
use watchdog_engine::input::Input;
use watchdog_host::cgroup::SessionCgroups;
use watchdog_host::containers::{ContainerInit, ContainerRuntime};
use watchdog_host::limits::{CgroupTree, SeenCgroups};
use watchdog_host::oom::OomCounts;
use watchdog_host::shared::SharedSchedule;
use watchdog_host::tasks::TaskLimits;
use watchdog_host::{HostError, activity, clock, containers, kill, memory, scan, surroundings, tmpfs};
use watchdog_types::{BootTime, Limits, Lineage, Pid, ProcessId, SharesSeen, Ticks};

#[derive(Debug)]
pub(crate) enum ScanTask {
    Engine(ScanRequest),
    /// Scan all processes; with those of the kernel's map and their lineage.
    Scan(HashMap<Pid, (ProcessId, Lineage)>),
    /// Read the memory limits of these processes.
    ProcessLimits(Vec<ProcessId>),
}

pub(super) struct Scanner {
    events: EventSender,
    shared: SharedSchedule,
    cgroups: &'static CgroupTree,
    ooms: OomCounts,
    tasks: TaskLimits,
    warning: ThrottledWarning,
}

impl Worker for Scanner {
    type Command = ScanTask;

    fn handle(&mut self, task: ScanTask) -> Result<(), ChannelClosed> {
        match task {
            ScanTask::Engine(request) => self.answer(request),
            ScanTask::Scan(entries) => self.scan(&entries),
            ScanTask::ProcessLimits(processes) => self.limits(&processes),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.shared.due().map(|due| Instant::now() + due.since(clock::now()))
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        let Some(group) = self.shared.next(clock::now()) else { return Ok(()) };
        let measured = self.measure(&group);
        self.send_result(measured)
    }
}

impl Scanner {
    pub(super) fn new(events: EventSender) -> Self {
        Self {
            events,
            shared: SharedSchedule::default(),
            cgroups: CgroupTree::host(),
            ooms: OomCounts::default(),
            tasks: TaskLimits::default(),
            warning: ThrottledWarning::default(),
        }
    }

    fn answer(&mut self, request: ScanRequest) -> Result<(), ChannelClosed> {
        match request {
            ScanRequest::SharedMemory(group) => {
                // Refused soon after a measurement; the engine repeats the request if it still needs the values.
                let _ = self.shared.request(clock::now(), group);
                Ok(())
            }
            ScanRequest::Kill { kill, cgroup } => {
                let seen = kill::look(self.cgroups, kill, cgroup.as_deref());
                self.send_result(seen.map(|seen| Some(Input::KillSeen(kill, seen))))
            }
            ScanRequest::Oom { number, victim, cgroup, others } => {
                let seen = self.ooms.inspect(self.cgroups, number, victim, cgroup.as_deref(), &others);
                self.send_result(seen.map(|seen| Some(Input::OomSeen(seen))))
            }
            ScanRequest::Activity(processes) => self.activity(&processes),
            ScanRequest::CgroupLimits(process) => {
                let room = self.cgroups.above(process);
                self.send_result(room.map(|room| Some(Input::CgroupLimits(process, room))))
            }
            ScanRequest::CgroupMembers(session, cgroup) => {
                let members = SessionCgroups::new(self.cgroups.clone()).members(&cgroup);
                // A missing cgroup is no answer: its session has ended, or the daemon sees another hierarchy.
                self.send_result(members.map(|found| found.map(|members| Input::CgroupMembers(session, members))))
            }
            ScanRequest::Tmpfs => self.send_result(tmpfs::read().map(|seen| Some(Input::Tmpfs(seen)))),
            ScanRequest::Surroundings(agents) => {
                let seen = surroundings::read(&agents);
                self.send_result(seen.map(|seen| Some(Input::Surroundings(seen))))
            }
            ScanRequest::Tasks { agents, members } => {
                let reading = self.tasks.read(&agents, &members);
                self.send_result(reading.map(|reading| Some(Input::Tasks(reading))))
            }
            ScanRequest::LaunchTasks(process) => {
                let read = self.tasks.read(&[process], &[]);
                self.send_result(read.map(|read| Some(Input::LaunchTasks(process, read.limits))))
            }
            ScanRequest::Containers { client, from, to } => {
                let found = containers::started_between(tick_of(from), tick_of(to));
                let found = found.map(|found| found.into_iter().map(to_engine).collect());
                self.send_result(found.map(|found| Some(Input::Containers(client, found))))
            }
        }
    }

    fn scan(&mut self, entries: &HashMap<Pid, (ProcessId, Lineage)>) -> Result<(), ChannelClosed> {
        let event = match scan::scan(entries) {
            Ok(scan) => WorkerEvent::Input(Input::Scan(scan)),
            Err(error) => {
                self.warning.warn(error);
                WorkerEvent::ScanFailed
            }
        };
        self.events.send(event)
    }

    fn limits(&mut self, processes: &[ProcessId]) -> Result<(), ChannelClosed> {
        let mut seen = SeenCgroups::new();
        processes.iter().try_for_each(|process| {
            let found = self.cgroups.limits(*process, &mut seen);
            if let Ok(Some(Limits { cgroup: Some(cgroup), .. })) = &found
                && let Err(error) = self.ooms.count(self.cgroups, &cgroup.path)
            {
                self.warning.warn(error);
            }
            self.send_result(found.map(|found| found.map(|limits| Input::Limits(*process, limits))))
        })
    }

    /// Measures processes that share pages, one right after the other.
    fn measure(&mut self, group: &[ProcessId]) -> Result<Option<Input>, HostError> {
        let began = clock::now();
        let (mut shares, mut spent) = (Vec::with_capacity(group.len()), Duration::ZERO);
        for process in group {
            match memory::share(*process) {
                Ok(found) => {
                    if let Some((share, cost)) = found {
                        shares.push(share);
                        spent += cost;
                    }
                }
                Err(error) => self.warning.warn(error),
            }
        }
        self.shared.measured(clock::now(), group, spent);
        Ok(Some(Input::Shares(SharesSeen { began, shares })))
    }

    fn activity(&mut self, processes: &[ProcessId]) -> Result<(), ChannelClosed> {
        let mut activities = Vec::with_capacity(processes.len());
        for process in processes {
            match activity::activity(*process) {
                Ok(seen) => activities.extend(seen),
                Err(error) => self.warning.warn(error),
            }
        }
        self.send_result(Ok(Some(Input::Activity(activities))))
    }

    fn send_result(&mut self, result: Result<Option<Input>, HostError>) -> Result<(), ChannelClosed> {
        match result {
            Ok(Some(input)) => self.events.send_input(input),
            Ok(None) => Ok(()),
            Err(error) => {
                self.warning.warn(error);
                Ok(())
            }
        }
    }
}

fn tick_of(moment: BootTime) -> Ticks {
    Ticks(moment.0 / NANOS_PER_TICK)
}

fn to_engine(container: ContainerInit) -> watchdog_types::Container {
    let ContainerInit { process, container_id, runtime, comm } = container;
    let runtime = match runtime {
        ContainerRuntime::Docker => "docker",
        ContainerRuntime::Podman => "libpod",
        ContainerRuntime::Containerd => "containerd",
        ContainerRuntime::Crio => "cri-o",
        ContainerRuntime::Unknown => "unknown",
    };
    watchdog_types::Container { process, id: container_id, runtime: runtime.to_owned(), comm }
}
