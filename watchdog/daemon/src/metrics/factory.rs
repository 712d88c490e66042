//! Creates and registers metrics.

use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// Creates metrics in this program's namespace, and registers them.
pub(super) struct MetricFactory<'a> {
    pub(super) registry: &'a Registry,
}

impl MetricFactory<'_> {
    fn options(name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace("agent_watchdog")
    }

    /// A metric of the daemon itself, under the name that all Prometheus clients use.
    pub(super) fn process_gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.keep(Gauge::with_opts(Opts::new(name, help).namespace("process"))?)
    }

    pub(super) fn process_counter(&self, name: &str, help: &str) -> Result<Counter, prometheus::Error> {
        self.keep(Counter::with_opts(Opts::new(name, help).namespace("process"))?)
    }

    fn keep<M: prometheus::core::Collector + Clone + 'static>(&self, metric: M) -> Result<M, prometheus::Error> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.keep(IntCounter::with_opts(Self::options(name, help))?)
    }

    pub(super) fn float_counter(&self, name: &str, help: &str) -> Result<Counter, prometheus::Error> {
        self.keep(Counter::with_opts(Self::options(name, help))?)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.keep(IntCounterVec::new(Self::options(name, help), labels)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::with_opts(Self::options(name, help))?)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.keep(IntGaugeVec::new(Self::options(name, help), labels)?)
    }

    pub(super) fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.keep(Gauge::with_opts(Self::options(name, help))?)
    }

    pub(super) fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, prometheus::Error> {
        self.keep(GaugeVec::new(Self::options(name, help), labels)?)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts { common_opts: Self::options(name, help), buckets };
        self.keep(Histogram::with_opts(options)?)
    }
}
