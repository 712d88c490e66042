//! Takes the tracer's place where the kernel's programs cannot run: what happened is inferred from scan to scan.

use std::sync::mpsc::{self as orders, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{Deed, Order, Report};
use crate::config::Config;
use crate::daemon::grumble::Grumble;
use crate::engine::id::ProcessId;
use crate::engine::input::{Input, Sample, Scan};
use crate::host::meminfo;
use crate::host::poll::Poller;
use crate::host::scan::scan;

/// The time between two scans: at 40 µs a process, a host of 500 processes then costs 2 % of a CPU.
const INTERVAL: Duration = Duration::from_secs(1);

/// The other side has ended, and so must this one.
struct Ended;

struct Hand {
    poller: Poller,
    warden: orders::Sender<Deed>,
    reports: mpsc::Sender<Report>,
    zombies: Vec<ProcessId>,
    failed: Grumble,
}

/// Scans, and carries out orders, until there is nobody to give or to hear.
pub(super) fn run(
    config: &Config,
    orders: &orders::Receiver<Order>,
    warden: orders::Sender<Deed>,
    reports: mpsc::Sender<Report>,
) {
    let poller = Poller::new(config.profiles.clone());
    let mut hand = Hand { poller, warden, reports, zombies: Vec::new(), failed: Grumble::default() };
    let mut next = Instant::now() + INTERVAL;
    loop {
        let done = match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(order) => hand.carry_out(order),
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + INTERVAL;
                hand.round().map(drop)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        };
        if done.is_err() {
            return;
        }
    }
}

impl Hand {
    fn carry_out(&mut self, order: Order) -> Result<(), Ended> {
        match order {
            Order::Track(process, lineage) => self.poller.track(process, lineage),
            Order::Untrack(process) => self.poller.untrack(process),
            // Nobody counts here, and nobody refuses: what a cgroup holds is all.
            Order::Bound(..) | Order::Unbound(_) => {}
            Order::CloseWatch(_) => self.send(Report::CloseWatch(false))?,
            Order::Configure(config) => self.poller.set_profiles(config.profiles.clone()),
            Order::Scan => {
                let report = self.round()?.map_or(Report::NoScan, |scan| Report::Input(Input::Scan(scan)));
                self.send(report)?;
            }
            Order::LookAtHost => self.look_at_host()?,
            Order::Admit(admission) => self.warden.send(Deed::Admit(admission)).map_err(|_| Ended)?,
        }
        Ok(())
    }

    /// Scans once, and tells what must have happened since the last time.
    fn round(&mut self) -> Result<Option<Scan>, Ended> {
        self.look_at_host()?;
        let scan = match scan(self.poller.entries()) {
            Ok(scan) => scan,
            Err(error) => {
                self.failed.say(error);
                return Ok(None);
            }
        };
        for event in self.poller.events(&scan) {
            self.send(Report::Input(Input::Kernel(event)))?;
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
        self.send(Report::Input(Input::Samples(samples)))?;
        let mut zombies: Vec<ProcessId> =
            tracked().filter(|process| process.zombie).map(|process| process.process).collect();
        zombies.sort_unstable();
        if zombies != self.zombies {
            self.zombies.clone_from(&zombies);
            self.send(Report::Input(Input::Zombies(zombies)))?;
        }
        Ok(Some(scan))
    }

    fn look_at_host(&mut self) -> Result<(), Ended> {
        match meminfo::host_memory() {
            Ok(host) => self.send(Report::Input(Input::Host(host))),
            Err(error) => {
                self.failed.say(error);
                Ok(())
            }
        }
    }

    fn send(&self, report: Report) -> Result<(), Ended> {
        self.reports.blocking_send(report).map_err(|_| Ended)
    }
}
