//! Starts the thread that owns the engine. It has a runtime of its own, so that no client's request, however large its
//! answer, keeps an event waiting.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::core::{Core, Facts};
use super::hands::{self, Ledger, Loaded};
use super::historian::Historian;
use super::keeper::{self, Lasting};
use super::members::MemberFile;
use super::metrics::Metrics;
use super::notify;
use super::pump::{Kept, Pump, Rings};
use super::recorder::{Recorder, Scribe};
use super::request::Request;
use super::run_file::StoredFile;
use super::{ids, peaks};
use crate::api::Tracking;
use crate::config::Config;
use crate::engine::ID_BLOCK;
use crate::engine::act::{ActionRecord, Rights};
use crate::engine::gate::{GateRecord, Restored};
use crate::engine::id::{LastIds, ProcessId};
use crate::engine::input::{Absence, Input, Lineage, MissedExit};
use crate::host::{self, capability, clock};
use crate::kernel::{Features, Inherited, Streams};
use crate::units;

/// Stack of the thread. Only what is touched counts.
const STACK: usize = 1 << 20;

/// The handles on the thread.
pub(super) struct Owner {
    /// Told when the table has been built and checked.
    pub(super) ready: oneshot::Receiver<()>,
    /// To be told when it shall end.
    pub(super) stop: oneshot::Sender<()>,
    /// Told why it ended; closed without a word when it was asked to, or panicked.
    pub(super) ended: oneshot::Receiver<io::Error>,
}

/// What the engine begins with.
struct Beginning {
    stored: StoredFile<GateRecord>,
    lasting: Sender<Lasting>,
    restored: Restored,
    resumed: Vec<ActionRecord>,
    /// Where processes belonged, as far as an earlier daemon wrote it down.
    places: Vec<(ProcessId, Lineage)>,
    members: MemberFile,
    runtime_dir: PathBuf,
    ledger: Ledger,
    recorder: Option<Recorder>,
}

/// Starts the thread.
///
/// # Errors
/// When it or one of its helpers cannot be started.
pub(super) fn start(
    runtime_dir: &Path,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    history: Historian,
    requests: mpsc::Receiver<Request>,
    recording: Option<(Recorder, Scribe)>,
) -> io::Result<Owner> {
    let (say_ready, ready) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let (say_ended, ended) = oneshot::channel();
    let origin = Arc::clone(history.origin());
    let stored = StoredFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let actions = StoredFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let seen = seen_ids(stored.records(), actions.records()).max(ids::of_this_boot(runtime_dir));
    let ids = ids::last(&origin.state_dir, seen, &origin.notes);
    let resumed = actions.records().to_vec();
    let ledger = Ledger::new(actions);
    let restored = Restored { peaks: peaks::read(&origin.state_dir, &origin.notes), ids, ..Restored::default() };
    let (lasting, lasting_thread) = keeper::start(&origin.state_dir)?;
    let reserved = ids.plus(ID_BLOCK);
    if ids::write(&origin.state_dir, reserved).is_err() {
        // The thread tries again, and says what is wrong.
        let _ = lasting.send(Lasting::Ids(reserved));
    }
    if let Err(error) = ids::write(runtime_dir, reserved) {
        tracing::warn!("cannot keep the reserved ids in {}: {error}", runtime_dir.display());
    }
    let (members, places) = MemberFile::open(runtime_dir, &origin.boot_id, &origin.notes);
    let runtime_dir = runtime_dir.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("engine".to_owned()).stack_size(STACK).spawn(move || {
        let (recorder, scribe) = recording.unzip();
        let beginning =
            Beginning { stored, lasting, restored, resumed, places, members, runtime_dir, ledger, recorder };
        let result = runtime.block_on(follow(config, metrics, history, requests, beginning, say_ready, stopped));
        // The programs are detached by their own thread, which ends with the process if not before.
        runtime.shutdown_background();
        if let Some(scribe) = scribe {
            scribe.finish();
        }
        if let Err(error) = result {
            // Nobody to hear it: the daemon is stopping.
            let _ = say_ended.send(error);
        }
        // It has said itself what it could not write; a stop that waits for us does so for a moment only.
        let _ = lasting_thread.join();
    })?;
    Ok(Owner { ready, stop, ended })
}

async fn follow(
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    history: Historian,
    requests: mpsc::Receiver<Request>,
    beginning: Beginning,
    ready: oneshot::Sender<()>,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let Beginning { stored, lasting, restored, resumed, places, members, runtime_dir, ledger, recorder } = beginning;
    let (hands, reports, loaded) = hands::start(Arc::clone(&config), runtime_dir.clone(), ledger)?;
    let loaded = tokio::select! {
        _ = &mut stop => {
            // None of the reserved ids was given. The thread ends after us.
            let _ = ids::write(&runtime_dir, restored.ids);
            let _ = lasting.send(Lasting::Ids(restored.ids));
            return Ok(());
        }
        loaded = loaded => loaded.map_err(|_| io::Error::other("the thread `tracer` has ended"))?,
    };
    let (rings, kernel) = rings(loaded)?.unzip();
    let (features, inherited) = kernel.unzip();
    let pins = inherited.as_ref().map(|inherited| inherited.pins.clone().map(drop));
    let found =
        capability::Facts { lsm_trial: features.map(|features| features.lsm), pins, ..capability::Facts::read() };
    // Where the kernel keeps the members the file is outdated, unless an earlier daemon had nowhere to pin them.
    let (members, places) = match inherited.as_ref().filter(|inherited| inherited.pins.is_ok()) {
        None => (Some(members), places),
        Some(inherited) => {
            members.remove();
            (None, if inherited.tracked == 0 { places } else { Vec::new() })
        }
    };
    let exits = inherited.map(announce).unwrap_or_default();
    let rights = rights(&found, &config);
    let facts = Facts {
        tracking: Tracking { kernel_events: rings.is_some(), ..Tracking::default() },
        degraded: rings.is_none(),
        capabilities: capability::of(&found),
        ..Facts::default()
    };
    let notifier = notify::start(config.actions.notify.clone())?;
    let mut core = Core::new(config, metrics, history, facts);
    core.notify_through(notifier);
    core.record_to(recorder);
    match host::this_process() {
        Ok(own) => core.tell(clock::now(), Input::Watchdog(own), &mut Vec::new()),
        Err(error) => tracing::warn!("signals of our own will be told as a stranger's: {error}"),
    }
    let mut first = Vec::new();
    core.tell(clock::now(), Input::Rights(rights), &mut first);
    let file = stored.restore(|records| {
        let restored = Input::Restore(Box::new(Restored { records, ..restored }));
        core.tell(clock::now(), restored, &mut first);
    });
    core.tell(clock::now(), Input::Absence(Box::new(Absence { exits, places })), &mut first);
    core.tell(clock::now(), Input::Resume(resumed), &mut first);
    let kept = Kept { file, runtime_dir, lasting, members };
    Pump::new(core, hands, rings, reports, requests, ready, kept).run(first, stop).await
}

/// The ids that this boot's files show were given.
fn seen_ids(gate: &[GateRecord], actions: &[ActionRecord]) -> LastIds {
    let of_actions = actions.iter().map(|record| LastIds { action: record.action(), ..LastIds::default() });
    gate.iter().map(GateRecord::ids).chain(of_actions).fold(LastIds::default(), LastIds::max)
}

/// Says what an earlier daemon left in the kernel, and gives the exits of it.
fn announce(inherited: Inherited) -> Vec<MissedExit> {
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
        tracing::warn!("{exits_dropped} exits of helpers while no daemon ran found no room to be kept");
    }
    exits
}

/// What we may do to others, and to whom never. That policy is to act and cannot is said.
fn rights(found: &capability::Facts, config: &Config) -> Rights {
    let (missing, guarded) = match host::this_lineage() {
        Ok(lineage) => (capability::cannot_act(found), lineage),
        // Whoever does not know who stands above it must not signal anybody.
        Err(error) => (Some(format!("who stands above this process is not to be told: {error}")), BTreeSet::new()),
    };
    if let Some(missing) = missing.as_deref().filter(|_| config.actions.enforce) {
        tracing::warn!("[actions] enforce is true, and nothing will be enforced: {missing}");
    }
    Rights { missing, guarded }
}

/// The rings, ready to be waited for; without them the daemon does with less, and says so.
fn rings(loaded: Loaded) -> io::Result<Option<(Rings, (Features, Inherited))>> {
    match loaded {
        Ok((Streams { lifecycle, memory }, features, inherited)) => {
            let rings = Rings { lifecycle: lifecycle.into_stream()?, memory: memory.into_stream()? };
            Ok(Some((rings, (features, inherited))))
        }
        Err(error) => {
            tracing::warn!(
                "degraded: {error}. Processes are followed by a look at /proc every second instead: short-lived ones \
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
    fn we_and_who_stands_above_us_are_guarded_and_without_cap_kill_nobody_is_signalled() {
        let able = capability::Facts { privileges: u64::MAX, pidfd: true, ..capability::Facts::read() };
        let told = rights(&able, &Config::default());
        assert_eq!(told.missing, None);
        let parent = std::os::unix::process::parent_id();
        assert!(told.guarded.contains(&host::this_process().unwrap()));
        assert!(told.guarded.iter().any(|above| above.pid.0 == parent), "{told:?}");
        let missing = rights(&capability::Facts { privileges: 0, ..able }, &Config::default()).missing;
        assert!(missing.as_deref().is_some_and(|missing| missing.contains("CAP_KILL")), "{missing:?}");
    }
}
