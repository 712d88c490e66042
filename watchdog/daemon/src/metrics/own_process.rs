//! CPU, memory and descriptors of the daemon itself.

use procfs::process::Process;
use prometheus::{Counter, Gauge};

use super::factory::MetricFactory;
use crate::process_setup;

#[derive(Debug)]
pub(super) struct OwnProcess {
    cpu: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    started: Gauge,
    threads: Gauge,
    open_files: Gauge,
    max_files: Gauge,
}

impl OwnProcess {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            cpu: make.process_counter("cpu_seconds_total", "CPU time of the daemon.")?,
            resident: make.process_gauge("resident_memory_bytes", "Resident memory of the daemon.")?,
            virtual_memory: make.process_gauge("virtual_memory_bytes", "Virtual memory of the daemon.")?,
            started: make
                .process_gauge("start_time_seconds", "When the daemon started, in seconds since the epoch.")?,
            threads: make.process_gauge("threads", "Threads of the daemon.")?,
            open_files: make.process_gauge("open_fds", "Open file descriptors of the daemon.")?,
            max_files: make.process_gauge("max_fds", "Most file descriptors that it may open.")?,
        };
        // Once: all else in that file may change, the boot does not.
        if let (Ok(boot), Ok(stat)) = (procfs::boot_time_secs(), Process::myself().and_then(|process| process.stat())) {
            metrics.started.set(boot as f64 + stat.starttime as f64 / procfs::ticks_per_second() as f64);
        }
        Ok(metrics)
    }

    /// A value that cannot be read stays as it was.
    pub(super) fn fill(&self) {
        let Ok(process) = Process::myself() else { return };
        if let Ok(stat) = process.stat() {
            let cpu = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.resident.set((stat.rss * procfs::page_size()) as f64);
            self.virtual_memory.set(stat.vsize as f64);
            self.threads.set(stat.num_threads as f64);
        }
        if let Ok(count) = process.fd_count() {
            self.open_files.set(count as f64);
        }
        self.max_files.set(process_setup::open_files() as f64);
    }
}
