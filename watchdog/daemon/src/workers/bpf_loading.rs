//! Loads the kernel programs, on the thread that then owns them.

use tokio::sync::oneshot;

use super::LoadResult;
use super::bpf::{BpfChannels, BpfWorker};
use crate::worker::ChannelClosed;
use watchdog_config::{Candidates, Config};
use watchdog_host::pins::{PinError, Pins};
use watchdog_kernel::{LoadOptions, Lost, Tracer};

/// The result of loading the kernel programs.
pub(super) enum Loading {
    Loaded(Box<BpfWorker>),
    /// They cannot be loaded on this host.
    Unavailable(BpfChannels),
    /// The daemon is stopping.
    Stopped,
}

/// Loads the kernel programs, and reports the result to `loaded`.
pub(super) fn load(
    config: &Config,
    pins: Result<Pins, PinError>,
    channels: BpfChannels,
    loaded: oneshot::Sender<LoadResult>,
) -> Loading {
    let candidates = Candidates::of(&config.profiles);
    let options = LoadOptions::new(config.tracking.max_processes, &candidates);
    match Tracer::load_pinned(&options, pins) {
        Ok((tracer, streams, inherited)) => {
            let (reported, unreported) = (inherited.reported, inherited.lost);
            if loaded.send(Ok((streams, tracer.features().clone(), inherited))).is_err() {
                return Loading::Stopped;
            }
            let worker = BpfWorker::new(config, tracer, channels, reported);
            match worker.send_losses(unreported, Lost::default()) {
                Ok(()) => Loading::Loaded(Box::new(worker)),
                Err(ChannelClosed) => Loading::Stopped,
            }
        }
        Err(error) => match loaded.send(Err(error)) {
            Ok(()) => Loading::Unavailable(channels),
            Err(_) => Loading::Stopped,
        },
    }
}
