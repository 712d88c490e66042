//! What the kernel programs have to say in words: rare, and never about memory.

use aya::Ebpf;
use aya_log::EbpfLogger;

/// The programs' log.
pub(super) struct KernelLog {
    logger: EbpfLogger<ToTracing>,
}

impl KernelLog {
    /// A page: a program logs a few times in a daemon's life, and what finds no room is dropped.
    pub(super) const RING_BYTES: u32 = 4_096;

    /// The log of these programs; `None` when none of them logs.
    pub(super) fn open(ebpf: &mut Ebpf) -> Option<Self> {
        EbpfLogger::init_with_logger(ebpf, ToTracing).ok().map(|logger| Self { logger })
    }

    /// Hands over what has come.
    pub(super) fn flush(&mut self) {
        self.logger.flush();
    }
}

/// aya-log speaks to the `log` crate, everything else here to `tracing`.
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
