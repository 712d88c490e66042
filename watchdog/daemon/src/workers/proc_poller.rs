//! Takes the place of the bpf worker where the kernel programs cannot be loaded: events are inferred from scans of /proc.

use std::time::{Duration, Instant};

use super::bpf::BpfTask;
use super::event_sender::EventSender;
use super::{ConfineTask, WorkerEvent};
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, CommandSender, Worker};
use watchdog_config::Config;
use watchdog_engine::effect::BpfCommand;
use watchdog_engine::input::Input;
use watchdog_host::meminfo;
use watchdog_host::proc_events::Poller;
use watchdog_host::scan::scan;
use watchdog_types::{ProcessId, Sample, Scan};

/// The time between two scans. At 40 µs a process, 500 processes cost 2 % of a CPU.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct ProcPoller {
    poller: Poller,
    confinement: CommandSender<ConfineTask>,
    events: EventSender,
    zombies: Vec<ProcessId>,
    next_poll: Instant,
    warning: ThrottledWarning,
}

impl Worker for ProcPoller {
    type Command = BpfTask;

    fn handle(&mut self, task: BpfTask) -> Result<(), ChannelClosed> {
        match task {
            BpfTask::Engine(command) => self.execute(command)?,
            BpfTask::TableComplete => {}
            BpfTask::Configure(config) => self.poller.set_profiles(config.profiles.clone()),
            BpfTask::Scan => {
                let event =
                    self.poll_once()?.map_or(WorkerEvent::ScanFailed, |scan| WorkerEvent::Input(Input::Scan(scan)));
                self.events.send(event)?;
            }
            BpfTask::ReadInherited => {
                self.events.send(WorkerEvent::InheritedEvents { events: Vec::new(), unread: 0 })?;
            }
            BpfTask::Grant(pending) => self.confinement.send(ConfineTask::Grant(pending))?,
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        Some(self.next_poll)
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        let now = Instant::now();
        if now < self.next_poll {
            return Ok(());
        }
        self.next_poll = now + INTERVAL;
        self.poll_once().map(drop)
    }
}

impl ProcPoller {
    pub(super) fn new(config: &Config, confinement: CommandSender<ConfineTask>, events: EventSender) -> Self {
        let poller = Poller::new(config.profiles.clone());
        let (next_poll, warning) = (Instant::now() + INTERVAL, ThrottledWarning::default());
        Self { poller, confinement, events, zombies: Vec::new(), next_poll, warning }
    }

    fn execute(&mut self, command: BpfCommand) -> Result<(), ChannelClosed> {
        match command {
            BpfCommand::Track(process, lineage) => self.poller.track(process, lineage),
            BpfCommand::Untrack(process) => self.poller.untrack(process),
            // Nothing here counts or refuses processes: the cgroup is the only limit.
            BpfCommand::ApplyLimits(..) => {}
            BpfCommand::ClearLimits(root) => self.confinement.send(ConfineTask::Release(root))?,
            BpfCommand::CloseWatch(_) => self.events.send(WorkerEvent::CloseWatch(false))?,
            BpfCommand::ReadHost => self.sample_host()?,
            // Each scan reports all.
            BpfCommand::ReadMemory(_) => {}
        }
        Ok(())
    }

    /// Scans once, and reports what must have happened since the last scan.
    fn poll_once(&mut self) -> Result<Option<Scan>, ChannelClosed> {
        self.sample_host()?;
        let scan = match scan(self.poller.entries()) {
            Ok(scan) => scan,
            Err(error) => {
                self.warning.warn(error);
                return Ok(None);
            }
        };
        for event in self.poller.events(&scan) {
            self.events.send_input(Input::Kernel(event))?;
        }
        let tracked = || scan.processes.iter().filter(|process| process.lineage.is_some());
        let samples: Vec<Sample> = tracked()
            .map(|seen| Sample {
                at: scan.began,
                process: seen.process,
                memory: seen.memory,
                ppid: Some(seen.ppid),
                zombie: seen.zombie,
                tty: None,
                comm: Some(seen.comm.clone()),
            })
            .collect();
        self.events.send_input(Input::Samples(samples))?;
        let mut zombies: Vec<ProcessId> =
            tracked().filter(|process| process.zombie).map(|process| process.process).collect();
        zombies.sort_unstable();
        if zombies != self.zombies {
            self.zombies.clone_from(&zombies);
            self.events.send_input(Input::Zombies(zombies))?;
        }
        Ok(Some(scan))
    }

    fn sample_host(&mut self) -> Result<(), ChannelClosed> {
        match meminfo::host_memory() {
            Ok(host) => self.events.send_input(Input::Host(host)),
            Err(error) => {
                self.warning.warn(error);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::worker::{CommandReceiver, command_channel, run};
    use crate::workers::PendingGrant;
    use watchdog_engine::gate::{LaunchGrant, LaunchLease};
    use watchdog_host::this_process;
    use watchdog_types::{BootTime, Bounds, Bytes, SessionId, Uid};

    struct PollerFixture {
        commands: CommandSender<BpfTask>,
        confine_commands: CommandReceiver<ConfineTask>,
        events: mpsc::Receiver<WorkerEvent>,
    }

    fn start_poller() -> PollerFixture {
        let (commands, inbox) = command_channel();
        let (confinement, confine_commands) = command_channel();
        let (sender, events) = mpsc::channel(1024);
        std::thread::spawn(move || run(ProcPoller::new(&Config::default(), confinement, EventSender(sender)), &inbox));
        PollerFixture { commands, confine_commands, events }
    }

    #[test]
    fn command_stream_delays_no_scan() {
        let PollerFixture { commands, confine_commands: _confine_commands, mut events } = start_poller();
        let until = Instant::now() + INTERVAL * 10;
        let mut sampled = false;
        while !sampled && Instant::now() < until {
            commands.send(BpfTask::Engine(BpfCommand::CloseWatch(true))).unwrap();
            std::thread::sleep(INTERVAL / 100);
            while let Ok(event) = events.try_recv() {
                sampled |= matches!(event, WorkerEvent::Input(Input::Samples(_)));
            }
        }
        assert!(sampled);
    }

    #[test]
    fn release_follows_grant() {
        let PollerFixture { commands, confine_commands, events: _events } = start_poller();
        let process = this_process().unwrap();
        let lease = LaunchLease {
            process,
            profile: "p".to_owned(),
            uid: Uid(1),
            granted: BootTime(1),
            expected: Bytes(1),
            cgroups: Vec::new(),
        };
        let granted = LaunchGrant {
            lease,
            session: SessionId(1),
            waited: Duration::ZERO,
            environment: std::collections::BTreeMap::new(),
            oom_score_adj: 0,
            limits: Bounds::default(),
        };
        commands.send(BpfTask::Grant(Box::new(PendingGrant { granted, client: None }))).unwrap();
        commands.send(BpfTask::Engine(BpfCommand::ClearLimits(process))).unwrap();
        let next = || confine_commands.next_command();
        assert!(matches!(next(), ConfineTask::Grant(_)));
        assert!(matches!(next(), ConfineTask::Release(root) if root == process));
    }
}
