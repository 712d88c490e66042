//! Parts of the watchdog that may be on during a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use watchdog_config::{self as config, Candidates};
use watchdog_kernel::{LoadOptions, Streams, Tracer};

use super::stage::BenchStage;

/// The kernel programs alone, loaded by this process; a thread empties their rings. Dropping it detaches them.
pub(super) struct AttachedPrograms {
    pub(super) tracer: Tracer,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl AttachedPrograms {
    /// Loads and attaches them, looking out for all agents that the daemon knows and the bench's own.
    pub(super) fn load(stage: &BenchStage) -> Result<Self> {
        let config = config::parse(&stage.path("config.toml"), &stage.config("auto"))?;
        let candidates = Candidates::of(&config.profiles);
        let (tracer, streams) = Tracer::load(&LoadOptions::new(config.tracking.max_processes, &candidates))
            .context("loading the kernel programs")?;
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || drain(streams, &stop)
        });
        Ok(Self { tracer, stop, reader: Some(reader) })
    }
}

impl Drop for AttachedPrograms {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // It panics only where the decoder does, which has said so.
            let _ = reader.join();
        }
    }
}

fn drain(mut streams: Streams, stop: &AtomicBool) {
    let mut events = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        streams.lifecycle.drain(&mut events);
        streams.memory.drain(&mut events);
        events.clear();
        std::thread::sleep(Duration::from_millis(20));
    }
}
