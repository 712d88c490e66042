//! Threads that do whatever may block, so that the event loop never waits. Each executes commands from its queue, and all
//! report through one queue to the event loop.
//!
//! `bpf` owns the kernel programs and samples memory through them; where they cannot be loaded, `proc_poller` takes its
//! place. `scanner` makes the slow reads of /proc. `inspector` examines single processes, for which a verdict waits.
//! `confinement` puts sessions into cgroups. `signaller` executes actions, and records each in the `action_log` first.
//! `pager` pages out idle processes. `fleet` talks to the store of the fleet.

mod action_log;
mod bpf;
mod bpf_loading;
mod confinement;
mod denied_files;
mod event_sender;
pub(crate) mod fleet;
mod inspector;
mod memory_sampler;
mod pager;
mod proc_poller;
mod scanner;
mod signaller;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub(super) use action_log::ActionLog;
use bpf::BpfChannels;
pub(super) use bpf::BpfTask;
use bpf_loading::{Loading, load};
#[cfg(test)]
pub(super) use confinement::grant_answer;
pub(super) use confinement::{ConfineTask, PendingGrant};
use event_sender::EventSender;
use fleet::{FleetSetup, FleetThreads};
pub(super) use inspector::InspectRequest;
use pager::CancelledOrder;
use proc_poller::ProcPoller;
pub(super) use scanner::ScanTask;

#[cfg(test)]
use crate::worker::CommandReceiver;
use crate::worker::{self, CommandSender, command_channel};
use watchdog_config::Config;
use watchdog_engine::effect::ActionCommand;
use watchdog_engine::input::Input;
use watchdog_host::pins::Pins;
use watchdog_kernel::{Features, Inherited, KernelError, Streams};
use watchdog_types::{KernelEvent, PageOut};

/// Capacity of the queue to the event loop. A worker waits while it is full.
const EVENT_QUEUE: usize = 256;

#[derive(Debug)]
pub(super) enum WorkerEvent {
    Input(Input),
    /// The kernel dropped records since the last such event.
    Lost {
        /// Records of process lifecycles: the process table may be wrong.
        lifecycle: u64,
        /// Records of close watch.
        memory: u64,
        /// Runs of kernel programs that the kernel skipped; part of `lifecycle`.
        missed: u64,
    },
    /// The answer to [`BpfTask::ReadInherited`].
    InheritedEvents {
        /// Oldest first within each ring.
        events: Vec<KernelEvent>,
        /// How many of these records are still in the ring that the event loop reads.
        unread: usize,
    },
    /// The number of processes that cannot be tracked at present.
    Untracked(u64),
    /// Whether the memory programs are attached.
    CloseWatch(bool),
    ScanFailed,
}

pub(super) struct Workers {
    pub(super) bpf: CommandSender<BpfTask>,
    pub(super) scanner: CommandSender<ScanTask>,
    pub(super) inspector: CommandSender<InspectRequest>,
    pub(super) confinement: CommandSender<ConfineTask>,
    pub(super) signaller: CommandSender<ActionCommand>,
    pub(super) pager: CommandSender<Box<PageOut>>,
    pub(super) cancelled_page_out: CancelledOrder,
    /// `None` without `[fleet] store`.
    pub(super) fleet: Option<FleetThreads>,
}

pub(super) type LoadResult = Result<(Streams, Features, Inherited), KernelError>;

/// Starts the workers. They end when a channel to or from them is closed. Pins for the next daemon are named after the
/// runtime directory.
pub(super) fn start(
    config: Arc<Config>,
    runtime_dir: PathBuf,
    log: ActionLog,
    fleet: Option<FleetSetup>,
) -> io::Result<(Workers, mpsc::Receiver<WorkerEvent>, oneshot::Receiver<LoadResult>)> {
    let (events, events_rx) = mpsc::channel(EVENT_QUEUE);
    let events = EventSender(events);
    let (bpf, bpf_commands) = command_channel();
    let (scanner, scanner_commands) = command_channel();
    let (inspector, inspector_commands) = command_channel();
    let (confinement, confinement_commands) = command_channel();
    let (signaller, signaller_commands) = command_channel();
    let (pager, pager_commands) = command_channel();
    let cancelled_page_out = CancelledOrder::default();
    let (loaded, when_loaded) = oneshot::channel();

    let channels = BpfChannels { scanner: scanner.clone(), confinement: confinement.clone(), events: events.clone() };
    worker::spawn_thread("bpf", move || match load(&config, Pins::take(&runtime_dir), channels, loaded) {
        Loading::Loaded(worker) => worker::run(*worker, &bpf_commands),
        Loading::Unavailable(BpfChannels { confinement, events, .. }) => {
            worker::run(ProcPoller::new(&config, confinement, events), &bpf_commands);
        }
        Loading::Stopped => {}
    })?;
    let worker_events = events.clone();
    worker::spawn("scanner", scanner_commands, move || scanner::Scanner::new(worker_events))?;
    let worker_events = events.clone();
    worker::spawn("confinement", confinement_commands, move || confinement::ConfinementWorker::new(worker_events))?;
    let worker_events = events.clone();
    worker::spawn("signaller", signaller_commands, move || signaller::Signaller::new(worker_events, log))?;
    let (worker_events, cancelled) = (events.clone(), CancelledOrder::clone(&cancelled_page_out));
    worker::spawn("pager", pager_commands, move || pager::Pager::new(worker_events, cancelled))?;
    let fleet = fleet.map(|setup| fleet::start(setup, events.clone())).transpose()?;
    worker::spawn("inspector", inspector_commands, move || inspector::Inspector::new(events))?;
    let workers = Workers { bpf, scanner, inspector, confinement, signaller, pager, cancelled_page_out, fleet };
    Ok((workers, events_rx, when_loaded))
}

#[cfg(test)]
impl Workers {
    /// Queues whose other ends are the test's own: of the bpf worker, of confinement, and of the signaller.
    pub(super) fn for_test() -> (Self, TestQueues) {
        let (bpf, bpf_commands) = command_channel();
        let (confinement, confinement_commands) = command_channel();
        let (signaller, signaller_commands) = command_channel();
        let (scanner, inspector, pager) = (command_channel().0, command_channel().0, command_channel().0);
        let queues = TestQueues { bpf: bpf_commands, confinement: confinement_commands, signaller: signaller_commands };
        let cancelled_page_out = CancelledOrder::default();
        (Self { bpf, scanner, inspector, confinement, signaller, pager, cancelled_page_out, fleet: None }, queues)
    }
}

#[cfg(test)]
pub(super) struct TestQueues {
    pub(super) bpf: CommandReceiver<BpfTask>,
    pub(super) confinement: CommandReceiver<ConfineTask>,
    pub(super) signaller: CommandReceiver<ActionCommand>,
}
