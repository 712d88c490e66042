//! Samples the memory of the host and of all tracked processes, as often as changes call for.

use std::time::{Duration, Instant};

use super::event_sender::EventSender;
use crate::log_throttle::ThrottledWarning;
use crate::worker::ChannelClosed;
use watchdog_config::Config;
use watchdog_engine::input::Input;
use watchdog_host::sampler::{HOST_INTERVAL, MemoryChange, MemorySample, Sampler, next_host_sample, refine};
use watchdog_host::statm::StatmReader;
use watchdog_host::{HostError, clock, meminfo};
use watchdog_kernel::{KernelError, Tracer};
use watchdog_types::ProcessId;

/// The pause after a failed sample of the processes.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum MemoryReadError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Host(#[from] HostError),
}

pub(super) struct MemorySampler {
    events: EventSender,
    sampler: Sampler,
    statm: StatmReader,
    /// As last reported.
    zombies: Vec<ProcessId>,
    next_host: Instant,
    next_processes: Instant,
    warning: ThrottledWarning,
}

impl MemorySampler {
    pub(super) fn new(config: &Config, events: EventSender) -> Self {
        let now = Instant::now();
        Self {
            events,
            sampler: Sampler::new(config.tracking.sample_interval),
            statm: StatmReader::default(),
            zombies: Vec::new(),
            next_host: now,
            next_processes: now,
            warning: ThrottledWarning::default(),
        }
    }

    pub(super) fn configure(&mut self, config: &Config) {
        self.sampler.set_idle(config.tracking.sample_interval);
        self.next_processes = Instant::now();
    }

    /// Samples all processes now, and reports these, changed or not.
    pub(super) fn report_next(&mut self, processes: &[ProcessId]) {
        self.sampler.report_next(processes);
        self.next_processes = Instant::now();
    }

    pub(super) fn next_due(&self) -> Instant {
        self.next_host.min(self.next_processes)
    }

    pub(super) fn run_due_timers(&mut self, now: Instant, tracer: &mut Tracer) -> Result<(), ChannelClosed> {
        if now >= self.next_host {
            self.next_host = now + HOST_INTERVAL;
            if self.sample_host()? {
                self.next_processes = now;
            }
        }
        if now >= self.next_processes {
            self.next_processes = now + self.sample_processes(tracer)?;
        }
        Ok(())
    }

    /// Returns whether the host's memory changed enough to sample processes at once.
    pub(super) fn sample_host(&mut self) -> Result<bool, ChannelClosed> {
        match meminfo::host_memory() {
            Ok(host) => {
                self.next_host = Instant::now() + next_host_sample(&host);
                self.events.send_input(Input::Host(host))?;
                Ok(self.sampler.changed(host.held()))
            }
            Err(error) => {
                self.warning.warn(format_args!("cannot read the host's memory: {error}"));
                Ok(true)
            }
        }
    }

    /// Returns the time until the next sample.
    fn sample_processes(&mut self, tracer: &mut Tracer) -> Result<Duration, ChannelClosed> {
        let at = clock::now();
        let samples = match self.read(tracer) {
            Ok(samples) => samples,
            Err(error) => {
                self.warning.warn(format_args!("cannot sample the memory of processes: {error}"));
                return Ok(RETRY);
            }
        };
        self.report_zombies(&samples)?;
        let mut changes: Vec<MemoryChange> = Vec::new();
        let pause = self.sampler.round(at, samples, &mut changes);
        match refine(at, &changes) {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => self.events.send_input(Input::Samples(samples))?,
            Err(error) => self.warning.warn(format_args!("cannot sample the memory of processes: {error}")),
        }
        Ok(pause)
    }

    fn read(&mut self, tracer: &mut Tracer) -> Result<Vec<MemorySample>, MemoryReadError> {
        match tracer.sample() {
            Ok(records) => Ok(records.iter().map(MemorySample::from).collect()),
            Err(KernelError::Off(_)) => {
                let mut samples = Vec::new();
                let tracked = tracer.entries()?.into_iter().map(|entry| entry.process);
                self.statm.sample(tracked.chain(tracer.zombies()?), &mut samples)?;
                Ok(samples)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn report_zombies(&mut self, samples: &[MemorySample]) -> Result<(), ChannelClosed> {
        let mut zombies: Vec<ProcessId> =
            samples.iter().filter(|sample| sample.zombie).map(|sample| sample.process).collect();
        zombies.sort_unstable();
        if zombies != self.zombies {
            self.zombies.clone_from(&zombies);
            self.events.send_input(Input::Zombies(zombies))?;
        }
        Ok(())
    }
}
