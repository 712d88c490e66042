//! The life of the daemon: start in order, report ready, reload the configuration, stop cleanly.

use std::future::pending;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::config_state::{ConfigState, LoadedText};
use super::connection_limit::{ConnectionLimiter, ConnectionLimits};
use super::control::ControlSocket;
use super::history_writer::{self, RunContext};
use super::metrics::Metrics;
use super::metrics_server::MetricsServer;
use super::options::{DEFAULT_CONFIG, Listen, WatchdogdOptions};
use super::recorder::{self, RecordOptions, Recorder, RecordingThread};
use super::request::{self, EngineClient, EngineRequest};
use super::runtime_dir::RuntimeDir;
use super::set_aside::StateNotes;
use super::workers::fleet::{self, FleetClient};
use super::{engine_thread, history_filter, log, process_setup, read_limit};
use watchdog_config::{self as config, Config, FleetConfig};
use watchdog_files::trusted_file;
use watchdog_history::{StateDirLock, StoreError};
use watchdog_host::pins;

/// How long a stop waits for the engine's thread, which ends with the process at the latest.
const STOP_TIMEOUT: Duration = Duration::from_millis(600);
/// How long a stop then waits for the history.
const HISTORY_TIMEOUT: Duration = Duration::from_millis(250);

/// Runs the daemon until it is stopped by a signal.
///
/// # Errors
///
/// When it cannot start, or something essential has failed; the message is for the user.
pub fn run(options: &WatchdogdOptions) -> anyhow::Result<()> {
    if options.unpin {
        return unpin(&options.runtime_dir);
    }
    log::init(options.foreground_log);
    process_setup::apply_process_limits();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(read_limit::THREADS)
        .build()
        .context("cannot start the runtime")?;
    // First: without a handler SIGHUP would end the daemon, and SIGTERM would leave its files behind.
    let signals = {
        let _runtime = runtime.enter();
        DaemonSignals::new().context("cannot listen to signals")?
    };
    let (config, text) = load(options.config.as_deref())?;
    let config = Arc::new(config);
    let notes = StateNotes::default();
    let dir = RuntimeDir::take(&options.runtime_dir, &notes)?;
    // If it cannot be created, the history logs why and tries again.
    let _ = trusted_file::make_directory(&options.state_dir, 0o700);
    trusted_file::check_directory(&options.state_dir).context("the state directory cannot be used")?;
    let state_lock = match StateDirLock::take(&options.state_dir) {
        Err(taken @ StoreError::Taken(_)) => return Err(taken.into()),
        locked => locked.ok(),
    };
    let context = RunContext { state_lock, ..RunContext::now(&options.state_dir, notes) };
    let options_for_recording =
        options.record.as_deref().map(|file| RecordOptions { file, whole_argv: options.record_argv });
    let recording = options_for_recording
        .map(|options_for_recording| recorder::start(options_for_recording, &config, &text.in_force.text))
        .transpose()?;
    let ended = runtime.block_on(run_until_stopped(options, config, text, recording, &dir, context, signals));
    // A read of the history ends with the process at the latest: a slow disk delays no stop.
    runtime.shutdown_background();
    ended
}

/// Removes the pins of an earlier daemon, and prints them.
fn unpin(runtime_dir: &Path) -> anyhow::Result<()> {
    let removed = pins::unpin(runtime_dir)?;
    if removed.is_empty() {
        println!("nothing is pinned for {}", runtime_dir.display());
    }
    for layout in removed {
        println!("removed {}", layout.display());
    }
    Ok(())
}

async fn run_until_stopped(
    options: &WatchdogdOptions,
    config: Arc<Config>,
    text: LoadedText,
    recording: Option<(Recorder, RecordingThread)>,
    dir: &RuntimeDir,
    context: RunContext,
    mut signals: DaemonSignals,
) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new().context("cannot register the metrics")?);
    let listen = match options.listen {
        Some(Listen::Off) => None,
        Some(Listen::At(address)) => Some(address),
        None => config.daemon.listen,
    };
    let metrics_server = match listen {
        Some(address) => match MetricsServer::bind(address).await {
            Ok(bound) => Some(bound),
            Err(error) if options.listen.is_some() => return Err(error.into()),
            // Every user can bind the address first, and must not stop the daemon by that.
            Err(error) => {
                tracing::warn!("no metrics until the address is free: {error}");
                None
            }
        },
        None => None,
    };
    let socket = ControlSocket::bind(&dir.socket())?;
    let (client, requests) = request::channel();
    let config_state = ConfigState::new(options.config.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG)), &config, text);
    let context = RunContext { config: config_state.clone(), ..context };
    let prepared = fleet::prepare(&config, &options.state_dir, &context.boot_id, &context.notes)?;
    let (fleet, fleet_setup) = prepared.unzip();
    let context = RunContext { fleet: fleet.clone(), ..context };
    let (history, history_ended) = history_writer::start(context, history_filter::limits(&config))?;
    let mut engine = {
        let (config, metrics) = (Arc::clone(&config), Arc::clone(&metrics));
        engine_thread::start(dir.path(), config, metrics, history.clone(), requests, recording, fleet_setup)?
    };

    let scraped = (client.clone(), Arc::clone(&metrics));
    let metrics_state = match (metrics_server, listen) {
        (Some(bound), _) => {
            let state = format!("metrics on http://{}/metrics", bound.address);
            tokio::spawn(bound.serve(scraped.0, scraped.1));
            state
        }
        (None, Some(address)) => {
            tokio::spawn(MetricsServer::serve_when_free(address, scraped.0, scraped.1));
            format!("no metrics until {address} is free")
        }
        (None, None) => "metrics off".to_owned(),
    };
    let limiter = ConnectionLimiter::new(
        ConnectionLimits::for_queue(config.gate.max_queue, process_setup::open_files()),
        ConnectionLimits::CONTROL,
    );
    let serving = socket.serve(limiter.clone(), client.clone(), Arc::clone(&metrics), Arc::clone(history.origin()));
    tokio::pin!(serving);
    let mut reload = Reload { options, running: config, client, limiter, metrics, state: config_state, fleet };
    let mut ready = Some(engine.ready);
    loop {
        tokio::select! {
            () = &mut serving => anyhow::bail!("the control socket has closed"),
            result = &mut engine.ended => {
                // It was not stopped: pending records are written, but no end of the run.
                drop(history);
                wait_for_history(history_ended).await;
                return Err(result.map_or_else(|_| anyhow::anyhow!("panicked"), |error| anyhow::anyhow!(error)))
                    .context("the engine's thread has ended");
            }
            () = wait_ready(&mut ready) => {
                ready = None;
                reload.client.set_ready();
                report_ready(&dir.socket(), &metrics_state);
            }
            signal = signals.next() => match signal {
                SignalAction::Reload => reload.now().await,
                SignalAction::Stop(name) => {
                    tracing::info!("stopping on {name}");
                    notify(&[NotifyState::Stopping]);
                    // It may have ended by itself at this moment.
                    let _ = engine.stop.send(());
                    let _ = tokio::time::timeout(STOP_TIMEOUT, engine.ended).await;
                    history.stop();
                    wait_for_history(history_ended).await;
                    return Ok(());
                }
            }
        }
    }
}

/// Waits until the history is written; not for long, since the disk may be slow.
async fn wait_for_history(ended: oneshot::Receiver<()>) {
    let _ = tokio::time::timeout(HISTORY_TIMEOUT, ended).await;
}

/// Waits for the first value; for ever if none can come.
async fn wait_ready(ready: &mut Option<oneshot::Receiver<()>>) {
    match ready {
        Some(receiver) => {
            if receiver.await.is_err() {
                *ready = None;
                pending::<()>().await;
            }
        }
        None => pending().await,
    }
}

fn report_ready(socket: &Path, metrics: &str) {
    tracing::info!(target: log::READY, "ready: control socket {}, {metrics}", socket.display());
    notify(&[NotifyState::Ready]);
}

/// Notifies systemd, if present.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

/// Reads a configuration file, and returns its text too. A file named on the command line must exist, the default one may
/// be missing.
fn load(named: Option<&Path>) -> anyhow::Result<(Config, LoadedText)> {
    let file = named.unwrap_or(Path::new(DEFAULT_CONFIG));
    if named.is_none() && !std::fs::exists(file).unwrap_or(true) {
        return Ok((Config::default(), LoadedText::read_now(None, String::new(), true)));
    }
    trusted_file::check_config(file).context("the configuration cannot be used")?;
    let (text, for_everyone) =
        read_config(file).with_context(|| format!("cannot read the configuration {}", file.display()))?;
    let (config, warnings) = config::parse_with_warnings(file, &text)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok((config, LoadedText::read_now(Some(file), text, for_everyone)))
}

/// The text, and whether every user may read it.
fn read_config(path: &Path) -> std::io::Result<(String, bool)> {
    let mut file = std::fs::File::open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, file.metadata()?.mode() & 0o004 != 0))
}

struct Reload<'a> {
    options: &'a WatchdogdOptions,
    running: Arc<Config>,
    client: EngineClient,
    limiter: ConnectionLimiter,
    metrics: Arc<Metrics>,
    state: ConfigState,
    fleet: Option<FleetClient>,
}

impl Reload<'_> {
    /// Reloads the configuration; an invalid one changes nothing.
    async fn now(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("cannot notify the service manager: {error}"),
        }
        let applied = match load(self.options.config.as_deref()).map_err(|error| format!("{error:#}")) {
            Ok((config, loaded)) => self.take(config, loaded.in_force.text.clone()).await.map(|()| loaded),
            Err(problem) => Err(problem),
        };
        match &applied {
            Ok(_) => tracing::info!("reloaded the configuration"),
            Err(problem) => tracing::error!("the configuration was not reloaded: {problem}"),
        }
        self.metrics.config_loaded(applied.is_ok());
        self.state.reloaded(applied.map(|loaded| (&*self.running, loaded)));
        notify(&[NotifyState::Ready]);
    }

    async fn take(&mut self, config: Config, text: String) -> Result<(), String> {
        if config.tracking.max_processes != self.running.tracking.max_processes {
            tracing::warn!("[tracking] max_processes takes effect at the next start");
        }
        if config.daemon.listen != self.running.daemon.listen && self.options.listen.is_none() {
            tracing::warn!("[daemon] listen takes effect at the next start");
        }
        if started_with(&config.fleet) != started_with(&self.running.fleet) {
            tracing::warn!("[fleet] store, host, password_file, prefix and ttl take effect at the next start");
        }
        let config = Arc::new(config);
        let request = |reply| EngineRequest::Reconfigure { config: Arc::clone(&config), text, reply };
        self.client.ask(request).await.map_err(|error| error.to_string())?;
        self.limiter.resize(ConnectionLimits::for_queue(config.gate.max_queue, process_setup::open_files()));
        if let Some(fleet) = &self.fleet {
            fleet.facts.reconfigure(Arc::clone(&config));
        }
        self.running = config;
        Ok(())
    }
}

/// The initial state of the fleet's threads.
fn started_with(fleet: &FleetConfig) -> impl PartialEq {
    let FleetConfig { store, host, password_file, prefix, ttl, .. } = fleet.clone();
    (store, host, password_file, prefix, ttl)
}

enum SignalAction {
    Reload,
    Stop(&'static str),
}

struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl DaemonSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalAction::Stop("SIGINT"),
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }
}
