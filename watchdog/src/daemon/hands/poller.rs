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
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Ended),
        };
        // Whether or not there are orders: a stream of them does not end by itself.
        let now = Instant::now();
        let done = if now < next {
            done
        } else {
            next = now + INTERVAL;
            done.and_then(|()| hand.round().map(drop))
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
            Order::Bound(..) | Order::TableIsRight => {}
            Order::Unbound(root) => self.warden.send(Deed::Release(root)).map_err(|_| Ended)?,
            Order::CloseWatch(_) => self.send(Report::CloseWatch(false))?,
            Order::Configure(config) => self.poller.set_profiles(config.profiles.clone()),
            Order::Scan => {
                let report = self.round()?.map_or(Report::NoScan, |scan| Report::Input(Input::Scan(scan)));
                self.send(report)?;
            }
            Order::ReadLeft => self.send(Report::Left { events: Vec::new(), unread: 0 })?,
            Order::LookAtHost => self.look_at_host()?,
            Order::Ping(ping) => drop(ping.send(())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::hands::Admission;
    use crate::engine::gate::{Bounds, Granted, Lease};
    use crate::engine::id::{BootTime, Bytes, SessionId, Uid};
    use crate::host::this_process;

    struct AtWork {
        orders: orders::Sender<Order>,
        deeds: orders::Receiver<Deed>,
        reports: mpsc::Receiver<Report>,
    }

    fn at_work() -> AtWork {
        let (orders, inbox) = orders::channel();
        let (warden, deeds) = orders::channel();
        let (sender, reports) = mpsc::channel(1024);
        std::thread::spawn(move || run(&Config::default(), &inbox, warden, sender));
        AtWork { orders, deeds, reports }
    }

    #[test]
    fn a_stream_of_orders_does_not_keep_it_from_looking() {
        let AtWork { orders, deeds: _deeds, mut reports } = at_work();
        let until = Instant::now() + INTERVAL * 10;
        let mut looked = false;
        while !looked && Instant::now() < until {
            orders.send(Order::CloseWatch(true)).unwrap();
            std::thread::sleep(INTERVAL / 100);
            while let Ok(report) = reports.try_recv() {
                looked |= matches!(report, Report::Input(Input::Samples(_)));
            }
        }
        assert!(looked);
    }

    #[test]
    fn what_confines_a_session_is_taken_away_after_it_was_made() {
        let AtWork { orders, deeds, reports: _reports } = at_work();
        let process = this_process().unwrap();
        let lease = Lease {
            process,
            profile: "p".to_owned(),
            uid: Uid(1),
            granted: BootTime(1),
            expected: Bytes(1),
            cgroups: Vec::new(),
        };
        let granted = Granted {
            lease,
            session: SessionId(1),
            waited: Duration::ZERO,
            environment: std::collections::BTreeMap::new(),
            oom_score_adj: 0,
            limits: Bounds::default(),
        };
        orders.send(Order::Admit(Box::new(Admission { granted, client: None }))).unwrap();
        orders.send(Order::Unbound(process)).unwrap();
        let next = || deeds.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(matches!(next(), Deed::Admit(_)));
        assert!(matches!(next(), Deed::Release(root) if root == process));
    }
}
