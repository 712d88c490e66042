//! Log lines of the kernel programs: rare.

use aya::Ebpf;
use aya_log::EbpfLogger;

pub(super) struct KernelLog {
    logger: EbpfLogger<ToTracing>,
}

impl KernelLog {
    /// One page: programs log a few lines in a daemon's life. Lines beyond it are dropped.
    pub(super) const RING_BYTES: u32 = 4_096;

    /// `None` when no program logs.
    pub(super) fn open(ebpf: &mut Ebpf) -> Option<Self> {
        EbpfLogger::init_with_logger(ebpf, ToTracing).ok().map(|logger| Self { logger })
    }

    pub(super) fn flush(&mut self) {
        self.logger.flush();
    }
}

/// aya-log uses the `log` crate, this program `tracing`.
struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        match record.level() {
            log::Level::Error => tracing::error!(target: "kernel", "{}", record.args()),
            log::Level::Warn => tracing::warn!(target: "kernel", "{}", record.args()),
            log::Level::Info => tracing::info!(target: "kernel", "{}", record.args()),
            log::Level::Debug | log::Level::Trace => tracing::debug!(target: "kernel", "{}", record.args()),
        }
    }

    fn flush(&self) {}
}
