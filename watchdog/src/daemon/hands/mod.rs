//! What may take long or block is done by five threads, so that the task that owns the engine never waits: `tracer` for
//! all that concerns the kernel's programs and memory (`poller` where they cannot run), `prober` for looks that take
//! long, `inspector` for close looks at one process, which a verdict waits for, `warden` for what sessions are held to, and
//! `reaper` for actions, which are written down (`ledger`) before they are carried out.
//!
//! They get orders through queues, and report what they learn through another.

mod denied_files;
mod inspector;
mod ledger;
mod poller;
mod prober;
mod reaper;
mod tracer;
mod warden;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc as orders;
use std::thread;

use tokio::sync::{mpsc, oneshot};

pub(super) use inspector::Look;
pub(super) use ledger::Ledger;
pub(super) use prober::Probe;
pub(super) use reaper::Act;
pub(super) use tracer::Order;
#[cfg(test)]
pub(super) use warden::grant;
pub(super) use warden::{Admission, Deed};

use crate::config::Config;
use crate::engine::input::{Input, KernelEvent};
use crate::host::pins::Pins;
use crate::kernel::{Features, Inherited, KernelError, Streams};

/// Reports that wait at most; whoever has one more then waits.
const WAITING: usize = 256;
/// Stack of a thread. Only what is touched counts.
const STACK: usize = 512 * 1024;

/// What a hand learned.
#[derive(Debug)]
pub(super) enum Report {
    /// Something for the engine.
    Input(Input),
    /// The kernel dropped records since the last report.
    Lost {
        /// Of the lives and deaths of processes: the table may be wrong.
        lifecycle: u64,
        /// Of close watch.
        memory: u64,
        /// Of `lifecycle`, runs of kernel programs that the kernel skipped.
        missed: u64,
    },
    /// What earlier daemons left in their rings, in answer to [`Order::ReadLeft`].
    Left {
        /// Oldest first in each ring.
        events: Vec<KernelEvent>,
        /// So many records of it are still in the ring that the engine's loop reads.
        unread: usize,
    },
    /// So many processes could not be tracked at present.
    Untracked(u64),
    /// The memory programs are attached, or not.
    CloseWatch(bool),
    /// A scan that was ordered did not come about.
    NoScan,
}

/// Where orders go.
#[derive(Debug)]
pub(super) struct Hands {
    /// To the kernel's programs.
    pub(super) tracer: orders::Sender<Order>,
    /// For looks that take long.
    pub(super) prober: orders::Sender<Probe>,
    /// For close looks.
    pub(super) inspector: orders::Sender<Look>,
    /// For what sessions are held to.
    pub(super) warden: orders::Sender<Deed>,
    /// For actions.
    pub(super) reaper: orders::Sender<Act>,
}

/// What became of loading the kernel's programs.
pub(super) type Loaded = Result<(Streams, Features, Inherited), KernelError>;

/// Starts the threads. They end when their orders or the reports end. What the kernel programs keep for the next daemon is
/// named after the runtime directory.
///
/// # Errors
/// When a thread cannot be started.
pub(super) fn start(
    config: Arc<Config>,
    runtime_dir: PathBuf,
    ledger: Ledger,
) -> io::Result<(Hands, mpsc::Receiver<Report>, oneshot::Receiver<Loaded>)> {
    let (reports, inbox) = mpsc::channel(WAITING);
    let (tracer, tracer_orders) = orders::channel();
    let (prober, prober_orders) = orders::channel();
    let (inspector, inspector_orders) = orders::channel();
    let (warden, warden_orders) = orders::channel();
    let (reaper, reaper_orders) = orders::channel();
    let (loaded, when_loaded) = oneshot::channel();
    let to_prober = prober.clone();
    let to_warden = warden.clone();
    let to_core = reports.clone();
    let ways = tracer::Ways { prober: to_prober, warden: to_warden, reports: to_core };
    spawn("tracer", move || tracer::run(&config, Pins::take(&runtime_dir), &tracer_orders, ways, loaded))?;
    let to_core = reports.clone();
    spawn("prober", move || prober::run(&prober_orders, to_core))?;
    let to_core = reports.clone();
    spawn("warden", move || warden::run(&warden_orders, to_core))?;
    let to_core = reports.clone();
    spawn("reaper", move || reaper::run(&reaper_orders, to_core, ledger))?;
    spawn("inspector", move || inspector::run(&inspector_orders, &reports))?;
    Ok((Hands { tracer, prober, inspector, warden, reaper }, inbox, when_loaded))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work).map(drop)
}
