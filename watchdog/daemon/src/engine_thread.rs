//! Starts the thread that owns the engine. It has its own runtime, so that no request, however large its answer,
//! delays an event.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::event_loop::{EventLoop, EventRings, PersistedState};
use super::history_writer::HistoryWriter;
use super::member_file::MemberFile;
use super::metrics::Metrics;
use super::notify;
use super::recorder::{Recorder, RecordingThread};
use super::request::EngineRequest;
use super::state::{DaemonFacts, DaemonState};
use super::state_file::StoredFile;
use super::state_writer::{self, DurableUpdate};
use super::worker::CommandSender;
use super::workers::fleet::FleetSetup;
use super::workers::{self, ActionLog, LoadResult};
use super::{id_store, learned_store};
use watchdog_api::Tracking;
use watchdog_config::Config;
use watchdog_engine::ID_BLOCK;
use watchdog_engine::actions::{ActionLogRecord, Permissions};
use watchdog_engine::gate::{GateRecord, RestoredGate};
use watchdog_engine::input::Input;
use watchdog_host::{self as host, capability, clock};
use watchdog_kernel::{Features, Inherited, Streams};
use watchdog_types::{Absence, LastIds, Lineage, MissedExit, ProcessId, units};

/// Stack size, in bytes. Only touched pages count.
const STACK: usize = 1 << 20;

pub(super) struct EngineHandle {
    /// Sent when the process table is complete.
    pub(super) ready: oneshot::Receiver<()>,
    pub(super) stop: oneshot::Sender<()>,
    /// Why the thread ended; closed without a value when it was stopped, or panicked.
    pub(super) ended: oneshot::Receiver<io::Error>,
}

/// The initial state of the engine.
struct StartupState {
    stored: StoredFile<GateRecord>,
    durable: CommandSender<DurableUpdate>,
    restored: RestoredGate,
    resumed: Vec<ActionLogRecord>,
    /// The lineage of processes, as an earlier daemon recorded it.
    places: Vec<(ProcessId, Lineage)>,
    members: MemberFile,
    runtime_dir: PathBuf,
    log: ActionLog,
    recorder: Option<Recorder>,
    fleet: Option<FleetSetup>,
}

pub(super) fn start(
    runtime_dir: &Path,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    history: HistoryWriter,
    requests: mpsc::Receiver<EngineRequest>,
    recording: Option<(Recorder, RecordingThread)>,
    fleet: Option<FleetSetup>,
) -> io::Result<EngineHandle> {
    let (ready_tx, ready) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let (ended_tx, ended) = oneshot::channel();
    let origin = Arc::clone(history.origin());
    let stored = StoredFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let actions = StoredFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let copied = id_store::of_this_boot(runtime_dir, &origin.notes);
    let seen = seen_ids(stored.records(), actions.records()).max(copied);
    let ids = id_store::last(&origin.state_dir, seen, &origin.notes);
    let resumed = actions.records().to_vec();
    let log = ActionLog::new(actions);
    let restored = RestoredGate {
        peaks: learned_store::PEAKS.read(&origin.state_dir, &origin.notes),
        yields: learned_store::YIELDS.read(&origin.state_dir, &origin.notes),
        ids,
        ..RestoredGate::default()
    };
    let (durable, state_writer_thread) = state_writer::start(&origin.state_dir)?;
    let reserved = ids.plus(ID_BLOCK);
    if id_store::write(&origin.state_dir, reserved).is_err() {
        // The thread tries again, and logs failures.
        let _ = durable.send(DurableUpdate::Ids(reserved));
    }
    if let Err(error) = id_store::write(runtime_dir, reserved) {
        tracing::warn!("cannot store the reserved ids in {}: {error}", runtime_dir.display());
    }
    let (members, places) = MemberFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let runtime_dir = runtime_dir.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("engine".to_owned()).stack_size(STACK).spawn(move || {
        let (recorder, recording_thread) = recording.unzip();
        let startup =
            StartupState { stored, durable, restored, resumed, places, members, runtime_dir, log, recorder, fleet };
        let result = runtime.block_on(run(config, metrics, history, requests, startup, ready_tx, stopped));
        // The bpf worker detaches the programs, at the latest when the process exits.
        runtime.shutdown_background();
        if let Some(recording_thread) = recording_thread {
            recording_thread.finish();
        }
        if let Err(error) = result {
            // The daemon may be stopping already.
            let _ = ended_tx.send(error);
        }
        // It has logged what it could not write. A stop waits for this thread for a limited time only.
        let _ = state_writer_thread.join();
    })?;
    Ok(EngineHandle { ready, stop, ended })
}

async fn run(
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    history: HistoryWriter,
    requests: mpsc::Receiver<EngineRequest>,
    startup: StartupState,
    ready: oneshot::Sender<()>,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let StartupState { stored, durable, restored, resumed, places, members, runtime_dir, log, recorder, fleet } =
        startup;
    let (workers, events, loaded) = workers::start(Arc::clone(&config), runtime_dir.clone(), log, fleet)?;
    let loaded = tokio::select! {
        _ = &mut stop => {
            // None of the reserved ids was used. The writing thread ends after this one.
            let _ = id_store::write(&runtime_dir, restored.ids);
            let _ = durable.send(DurableUpdate::Ids(restored.ids));
            return Ok(());
        }
        loaded = loaded => loaded.map_err(|_| io::Error::other("the worker thread `bpf` has ended"))?,
    };
    let (rings, kernel) = rings(loaded)?.unzip();
    let (features, inherited) = kernel.unzip();
    let pins = inherited.as_ref().map(|inherited| inherited.pins.clone().map(drop));
    let found = capability::HostProbe {
        lsm_trial: features.map(|features| features.lsm),
        pins,
        ..capability::HostProbe::read()
    };
    // Where the kernel keeps the members the file is outdated, unless an earlier daemon could not pin its maps.
    let (members, places) = match inherited.as_ref().filter(|inherited| inherited.pins.is_ok()) {
        None => (Some(members), places),
        Some(inherited) => {
            members.remove();
            (None, if inherited.tracked == 0 { places } else { Vec::new() })
        }
    };
    let exits = inherited.map(log_inherited).unwrap_or_default();
    let rights = rights(&found, &config);
    let facts = DaemonFacts {
        tracking: Tracking { kernel_events: rings.is_some(), ..Tracking::default() },
        degraded: rings.is_none(),
        capabilities: capability::of(&found),
        pid_namespace: found.pid_namespace.filter(|namespace| !namespace.is_initial()),
        ..DaemonFacts::default()
    };
    let notifier = notify::start(config.actions.notify.clone())?;
    let mut state = DaemonState::new(config, metrics, history, facts);
    state.notify_through(notifier);
    state.record_to(recorder);
    match host::this_process() {
        Ok(own) => state.feed(clock::now(), Input::OwnProcess(own), &mut Vec::new()),
        Err(error) => tracing::warn!("own signals will be attributed to an unknown sender: {error}"),
    }
    let mut first = Vec::new();
    state.feed(clock::now(), Input::Permissions(rights), &mut first);
    let file = stored.restore(|records| {
        let restored = Input::Restore(Box::new(RestoredGate { records, ..restored }));
        state.feed(clock::now(), restored, &mut first);
    });
    state.feed(clock::now(), Input::Absence(Box::new(Absence { exits, places })), &mut first);
    state.feed(clock::now(), Input::ResumeActions(resumed), &mut first);
    let persisted = PersistedState { file, runtime_dir, durable, members };
    EventLoop::new(state, workers, rings, events, requests, ready, persisted).run(first, stop).await
}

/// The last ids that the files of this boot contain.
fn seen_ids(gate: &[GateRecord], actions: &[ActionLogRecord]) -> LastIds {
    let of_actions = actions.iter().map(|record| LastIds { action: record.action(), ..LastIds::default() });
    gate.iter().map(GateRecord::ids).chain(of_actions).fold(LastIds::default(), LastIds::max)
}

/// Logs what an earlier daemon left in the kernel, and returns its exits.
fn log_inherited(inherited: Inherited) -> Vec<MissedExit> {
    let Inherited { pins, since, tracked, exits, reported: _, lost: _, exits_dropped } = inherited;
    if let Err(reason) = pins {
        tracing::warn!(
            "{reason}. While no daemon runs, processes are not tracked: processes that fork away from their agent in \
             that time are lost. `watchdogctl doctor` says what to do."
        );
    }
    if tracked > 0 {
        let down = since.map_or("an unknown time".to_owned(), |since| units::span(clock::now().since(since)));
        let exits = exits.len();
        tracing::info!("took over {tracked} tracked processes and {exits} exits; no daemon ran for {down}");
    }
    if exits_dropped > 0 {
        tracing::warn!("{exits_dropped} exits of helpers were lost while no daemon ran: the kernel's map was full");
    }
    exits
}

/// The daemon's permissions over other processes, and the processes that it must never signal. Warns when policy requires more.
fn rights(found: &capability::HostProbe, config: &Config) -> Permissions {
    let (missing, protected) = match host::this_lineage() {
        Ok(lineage) => (capability::cannot_act(found), lineage),
        // Without known ancestors nothing is signalled.
        Err(error) => (Some(format!("cannot read own ancestors: {error}")), BTreeSet::new()),
    };
    if let Some(missing) = missing.as_deref().filter(|_| config.actions.enforce) {
        tracing::warn!("[actions] enforce is true, but nothing will be enforced: {missing}");
    }
    Permissions { missing, protected }
}

/// The rings of the kernel programs; `None`, with a warning, where these could not be loaded.
fn rings(loaded: LoadResult) -> io::Result<Option<(EventRings, (Features, Inherited))>> {
    match loaded {
        Ok((Streams { lifecycle, memory }, features, inherited)) => {
            let rings = EventRings { lifecycle: lifecycle.into_stream()?, memory: memory.into_stream()? };
            Ok(Some((rings, (features, inherited))))
        }
        Err(error) => {
            tracing::warn!(
                "degraded: {error}. Processes are tracked by polling /proc every second instead: short-lived ones \
                 and those whose parents die first are missed, and orphans are reported late. \
                 `watchdogctl doctor` says what this host lacks."
            );
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_protected_and_cap_kill_required() {
        let able = capability::HostProbe { privileges: u64::MAX, pidfd: true, ..capability::HostProbe::read() };
        let found = rights(&able, &Config::default());
        assert_eq!(found.missing, None);
        let parent = std::os::unix::process::parent_id();
        assert!(found.protected.contains(&host::this_process().unwrap()));
        assert!(found.protected.iter().any(|above| above.pid.0 == parent), "{found:?}");
        let missing = rights(&capability::HostProbe { privileges: 0, ..able }, &Config::default()).missing;
        assert!(missing.as_deref().is_some_and(|missing| missing.contains("CAP_KILL")), "{missing:?}");
    }
}
