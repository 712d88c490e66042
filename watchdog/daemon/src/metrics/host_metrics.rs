//! Metrics of the host's memory.

use prometheus::{Gauge, IntCounter, IntGauge};

use super::factory::MetricFactory;
use super::numbers::{raise, signed};
use watchdog_types::{Bytes, HostMemory};

#[derive(Debug)]
pub(super) struct HostMetrics {
    total: IntGauge,
    available: IntGauge,
    swap_total: IntGauge,
    swap_free: IntGauge,
    shared: IntGauge,
    pressure_some: Gauge,
    pressure_full: Gauge,
    oom_kills: IntCounter,
}

impl HostMetrics {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            total: make.gauge("host_memory_total_bytes", "MemTotal of the host.")?,
            available: make.gauge("host_memory_available_bytes", "MemAvailable of the host.")?,
            swap_total: make.gauge("host_swap_total_bytes", "SwapTotal of the host.")?,
            swap_free: make.gauge("host_swap_free_bytes", "SwapFree of the host.")?,
            shared: make.gauge("host_memory_shared_bytes", "Shmem of the host: shared memory and files on tmpfs.")?,
            pressure_some: make.float_gauge(
                "host_memory_pressure_some_ratio",
                "Share of the last 10 s in which at least one task waited for memory (PSI). NaN without PSI.",
            )?,
            pressure_full: make.float_gauge(
                "host_memory_pressure_full_ratio",
                "Share of the last 10 s in which all tasks waited for memory (PSI). NaN without PSI.",
            )?,
            oom_kills: make.counter("oom_kills_total", "Processes that the OOM killer chose, on the whole host.")?,
        })
    }

    pub(super) fn fill(&self, host: &HostMemory, oom_kills: u64) {
        let HostMemory {
            total,
            available,
            swap_total,
            swap_free,
            anon: _,
            shmem,
            pressure_some_avg10,
            pressure_full_avg10,
        } = host;
        let amounts = [
            (&self.total, total),
            (&self.available, available),
            (&self.swap_total, swap_total),
            (&self.swap_free, swap_free),
            (&self.shared, shmem),
        ];
        for (gauge, Bytes(bytes)) in amounts {
            gauge.set(signed(*bytes));
        }
        self.pressure_some.set(pressure_some_avg10.map_or(f64::NAN, |per_cent| per_cent / 100.0));
        self.pressure_full.set(pressure_full_avg10.map_or(f64::NAN, |per_cent| per_cent / 100.0));
        raise(&self.oom_kills, oom_kills);
    }
}
