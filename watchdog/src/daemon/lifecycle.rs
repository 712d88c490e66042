//! The daemon's life: it starts in order, says when it is ready, re-reads its configuration, and ends cleanly.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::control::ControlSocket;
use super::door::{Door, Sizes};
use super::exposition::Exposition;
use super::historian::{self, Origin};
use super::lock::RuntimeDir;
use super::metrics::Metrics;
use super::options::{DEFAULT_CONFIG, Listen, Options};
use super::recorder::{self, Recorder, Scribe, Wish};
use super::request::{self, Asker, Request};
use super::set_aside::StateNotes;
use super::{chronicle, log, nature, owner, readers};
use crate::config::{self, Config};
use crate::host::pins;
use crate::trusted_file;

/// A stop waits this long for the owner of the engine; then it ends with the process.
const STOP_PATIENCE: Duration = Duration::from_millis(600);
/// And then this long for the history.
const HISTORY_PATIENCE: Duration = Duration::from_millis(250);

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// When it cannot start, or something that it cannot do without has failed; the reason is meant for a person.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if options.unpin {
        return unpin(&options.runtime_dir);
    }
    log::init(options.foreground_log);
    let (config, text) = load(options.config.as_deref())?;
    let config = Arc::new(config);
    let notes = StateNotes::default();
    let dir = RuntimeDir::take(&options.runtime_dir, &notes)?;
    // Where it cannot be created, the history says why and tries again.
    let _ = trusted_file::make_directory(&options.state_dir, 0o700);
    trusted_file::check_directory(&options.state_dir).context("the state directory cannot be used")?;
    nature::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(readers::THREADS)
        .build()
        .context("cannot start the runtime")?;
    let wish = options.record.as_deref().map(|file| Wish { file, whole_argv: options.record_argv });
    let recording = wish.map(|wish| recorder::start(wish, &config, &text)).transpose()?;
    let ended = runtime.block_on(live(options, config, recording, &dir, notes));
    // Somebody's reading of the history ends with the process if not before: a slow disk holds up no stop.
    runtime.shutdown_background();
    ended
}

/// Removes what stays in the kernel when a daemon ends, and says what that was.
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

async fn live(
    options: &Options,
    config: Arc<Config>,
    recording: Option<(Recorder, Scribe)>,
    dir: &RuntimeDir,
    notes: StateNotes,
) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let metrics = Arc::new(Metrics::new().context("the metrics contradict each other")?);
    let listen = match options.listen {
        Some(Listen::Off) => None,
        Some(Listen::At(address)) => Some(address),
        None => config.daemon.listen,
    };
    let exposition = match listen {
        Some(address) => Some(Exposition::bind(address).await?),
        None => None,
    };
    let socket = ControlSocket::bind(&dir.socket())?;
    let (asker, requests) = request::channel();
    let (history, history_ended) =
        historian::start(Origin::now(&options.state_dir, notes), chronicle::limits(&config))?;
    let mut owner = {
        let (config, metrics) = (Arc::clone(&config), Arc::clone(&metrics));
        owner::start(dir.path(), config, metrics, history.clone(), requests, recording)?
    };

    let address = exposition.as_ref().map(|exposition| exposition.address);
    if let Some(exposition) = exposition {
        tokio::spawn(exposition.serve(asker.clone(), Arc::clone(&metrics)));
    }
    let door = Door::new(Sizes::house(config.gate.max_queue, nature::open_files()), Sizes::DESK);
    let serving = socket.serve(door.clone(), asker.clone(), metrics, Arc::clone(history.origin()));
    tokio::pin!(serving);
    let mut reload = Reload { options, running: config, asker, door };
    let mut ready = Some(owner.ready);
    loop {
        tokio::select! {
            () = &mut serving => anyhow::bail!("the control socket has closed"),
            result = &mut owner.ended => {
                // It has not been stopped: what waits is written, and no end.
                drop(history);
                written(history_ended).await;
                return Err(result.map_or_else(|_| anyhow::anyhow!("it died"), |error| anyhow::anyhow!(error)))
                    .context("the task that follows processes has ended");
            }
            () = told(&mut ready) => {
                ready = None;
                reload.asker.set_ready();
                say_ready(&dir.socket(), address);
            }
            signal = signals.next() => match signal {
                Told::Reload => reload.now().await,
                Told::Stop(name) => {
                    tracing::info!("stopping on {name}");
                    notify(&[NotifyState::Stopping]);
                    // It may have ended by itself this very moment.
                    let _ = owner.stop.send(());
                    let _ = tokio::time::timeout(STOP_PATIENCE, owner.ended).await;
                    history.stop();
                    written(history_ended).await;
                    return Ok(());
                }
            }
        }
    }
}

/// Waits until the history is written; a disk that takes too long for that keeps nobody.
async fn written(ended: oneshot::Receiver<()>) {
    let _ = tokio::time::timeout(HISTORY_PATIENCE, ended).await;
}

/// Waits for the word once; a word that will never come is none.
async fn told(ready: &mut Option<oneshot::Receiver<()>>) {
    match ready {
        Some(word) => {
            if word.await.is_err() {
                *ready = None;
                pending::<()>().await;
            }
        }
        None => pending().await,
    }
}

fn say_ready(socket: &Path, address: Option<std::net::SocketAddr>) {
    let metrics = match address {
        Some(address) => format!("metrics on http://{address}/metrics"),
        None => "metrics off".to_owned(),
    };
    tracing::info!(target: log::READY, "ready: control socket {}, {metrics}", socket.display());
    notify(&[NotifyState::Ready]);
}

/// Tells systemd, if it is there.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}

/// Reads a configuration file, and gives its text too: the one that is named must be there, the usual one may be missing.
fn load(named: Option<&Path>) -> anyhow::Result<(Config, String)> {
    let file = named.unwrap_or(Path::new(DEFAULT_CONFIG));
    if named.is_none() && !std::fs::exists(file).unwrap_or(true) {
        return Ok(Default::default());
    }
    trusted_file::check_config(file).context("the configuration cannot be used")?;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read the configuration {}", file.display()));
        }
    };
    let config = config::parse(file, &text)?;
    Ok((config, text))
}

/// What a reload needs.
struct Reload<'a> {
    options: &'a Options,
    running: Arc<Config>,
    asker: Asker,
    door: Door,
}

impl Reload<'_> {
    /// Reads the configuration again; a bad one changes nothing.
    async fn now(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("cannot tell the service manager: {error}"),
        }
        match load(self.options.config.as_deref()) {
            Ok((config, text)) => self.take(config, text).await,
            Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        }
        notify(&[NotifyState::Ready]);
    }

    async fn take(&mut self, config: Config, text: String) {
        if config.tracking.max_processes != self.running.tracking.max_processes {
            tracing::warn!("[tracking] max_processes takes effect at the next start");
        }
        if config.daemon.listen != self.running.daemon.listen && self.options.listen.is_none() {
            tracing::warn!("[daemon] listen takes effect at the next start");
        }
        let config = Arc::new(config);
        let request = |reply| Request::Reconfigure { config: Arc::clone(&config), text, reply };
        match self.asker.ask(request).await {
            Ok(()) => {
                tracing::info!("the configuration was read again");
                self.door.resize(Sizes::house(config.gate.max_queue, nature::open_files()));
                self.running = config;
            }
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        }
    }
}

/// What a signal asks for.
enum Told {
    Reload,
    Stop(&'static str),
}

/// The signals that the daemon listens to, from its first moment on.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.hangup.recv() => Told::Reload,
        }
    }
}
