//! The launch request: repeated through the queue and over restarts of the daemon.
//!
//! The position in the queue belongs to this process, not to the connection, so a new connection finds it again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::progress::QueueProgress;
use crate::error::CtlError;
use crate::render::span;
use watchdog_api::client::{ClientError, ControlClient, LineStream, RequestProgress};
use watchdog_api::{Grant, LaunchRequest, LaunchUpdate, RefusalReason, Refused};

const PATH: &str = "/v1/launch";
/// Pause before the daemon is asked again. Doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// With `--fail-open`: time limit of a daemon that was reachable before.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(5);
/// Time limit of an unreachable daemon without `--timeout`.
const MAX_OUTAGE: Duration = Duration::from_secs(30 * 60);
/// Time limit of a daemon that accepted the first connection and does not respond. The unit's `WatchdogSec=` restarts a
/// hung daemon in half of it.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// The daemon rejects a timeout of zero.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// Extra time for the daemon's own timeout, whose refusal has more detail.
const EXTRA_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum LaunchDecision {
    Granted(Grant),
    Refused(Refused),
    /// The daemon is unreachable, and `--fail-open` is set.
    Ungated(ClientError),
}

pub(super) struct AdmissionRequest<'a> {
    client: &'a ControlClient,
    request: LaunchRequest,
    progress: QueueProgress,
    fail_open: bool,
    began: Instant,
    /// `--timeout`, and when it expires.
    timeout: Option<(Duration, Instant)>,
    /// The daemon was reachable: from then on an outage is tolerated.
    known: bool,
    /// The launch is queued: a full connection limit no longer refuses it.
    queued: bool,
    outage_since: Option<Instant>,
    pause: Duration,
}

impl<'a> AdmissionRequest<'a> {
    pub(super) fn new(
        client: &'a ControlClient,
        request: LaunchRequest,
        timeout: Option<Duration>,
        fail_open: bool,
        progress: QueueProgress,
        began: Instant,
    ) -> Self {
        let timeout = timeout.and_then(|timeout| Some((timeout, began.checked_add(timeout)?)));
        let (known, queued, outage_since, pause) = (false, false, None, FIRST_PAUSE);
        Self { client, request, progress, fail_open, began, timeout, known, queued, outage_since, pause }
    }

    /// Repeats the request until it is decided. Fails if the daemon was never reachable, or if the request can never be
    /// granted.
    pub(super) fn send(mut self) -> Result<LaunchDecision, CtlError> {
        let outcome = self.repeat();
        self.progress.clear();
        outcome
    }

    fn repeat(&mut self) -> Result<LaunchDecision, CtlError> {
        loop {
            let error = match self.attempt() {
                Ok(admission) => return Ok(admission),
                Err(error) => error,
            };
            if let Some(admission) = self.tolerate(error)? {
                return Ok(admission);
            }
        }
    }

    /// One connection, until it ends.
    fn attempt(&mut self) -> Result<LaunchDecision, ClientError> {
        let left = self.timeout.map(|(_, end)| end.saturating_duration_since(Instant::now()).max(MIN_TIMEOUT));
        self.request.timeout_seconds = left.map(|left| left.as_secs_f64());
        let client = self.client.limited_to(left.map_or(Duration::MAX, |left| left + EXTRA_TIME));
        let mut lines = match client.post_lines(PATH, &self.request) {
            // The daemon is silent. With --fail-open that counts as unreachable.
            Err(ClientError::Unreachable { .. }) if self.is_expired(EXTRA_TIME) && !self.fail_open => {
                return Ok(self.timed_out("no response from the daemon"));
            }
            lines => lines?,
        };
        while let Some(line) = self.next(&mut lines)? {
            let update = serde_json::from_str(&line).map_err(|error| ClientError::InvalidResponse {
                request: format!("POST {PATH}"),
                why: error.to_string(),
            })?;
            self.known = true;
            self.outage_since = None;
            self.pause = FIRST_PAUSE;
            match update {
                LaunchUpdate::Waiting(waiting) => {
                    self.queued = true;
                    self.progress.update(waiting);
                }
                LaunchUpdate::Granted(grant) => return Ok(LaunchDecision::Granted(grant)),
                LaunchUpdate::Refused(refused) => return Ok(LaunchDecision::Refused(refused)),
            }
        }
        Ok(self.timed_out("no decision from the daemon"))
    }

    /// `--timeout` and this extra time have passed.
    fn is_expired(&self, extra: Duration) -> bool {
        self.timeout.is_some_and(|(_, end)| end + extra <= Instant::now())
    }

    /// The next line, while the progress is redrawn; `None` after the timeout.
    fn next(&mut self, lines: &mut LineStream) -> Result<Option<String>, ClientError> {
        let end = self.timeout.map(|(_, end)| end + EXTRA_TIME);
        loop {
            let redraw = self.progress.interval().map(|interval| Instant::now() + interval);
            if let Some(line) = lines.next_before(redraw.into_iter().chain(end).min())? {
                return Ok(Some(line));
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(None);
            }
            self.progress.draw();
        }
    }

    /// Decides after an error, or pauses before the next attempt.
    fn tolerate(&mut self, error: ClientError) -> Result<Option<LaunchDecision>, CtlError> {
        let mut silent = false;
        let unreachable = match &error {
            ClientError::Unreachable { progress, .. } => {
                self.known |= *progress == RequestProgress::Disconnected;
                silent = *progress == RequestProgress::NoResponse;
                true
            }
            ClientError::Busy { refused: Some(refused), .. } if !self.queued => {
                return Ok(Some(LaunchDecision::Refused((**refused).clone())));
            }
            ClientError::Busy { why, .. } if self.request.no_wait => {
                let detail = format!("the daemon is busy, and --no-wait is set: {why}");
                return Ok(Some(LaunchDecision::Refused(timeout("--no-wait", detail))));
            }
            ClientError::Busy { .. } => {
                self.known = true;
                false
            }
            // The daemon knows this path, so it is the profile that does not exist.
            ClientError::NotFound(reason) if self.request.profile.is_some() => {
                return Err(CtlError::Usage(reason.clone()));
            }
            _ => return Err(error.into()),
        };
        let now = Instant::now();
        let silence_ends = self.outage_since.unwrap_or(self.began) + MAX_SILENCE;
        let tolerated = self.known || (silent && !self.fail_open && now < silence_ends);
        if !tolerated || self.request.no_wait {
            return if unreachable && self.fail_open {
                Ok(Some(LaunchDecision::Ungated(error)))
            } else {
                Err(error.into())
            };
        }
        let since = match self.outage_since {
            Some(since) => since,
            None => {
                self.outage_since = Some(now);
                self.progress.note(match (unreachable, silent) {
                    (true, true) => "the daemon does not respond; retrying",
                    (true, false) => "lost the connection to the daemon; retrying, the position in the queue is kept",
                    (false, _) => "the daemon is busy; retrying, the position in the queue is kept",
                });
                now
            }
        };
        let fail_open_at = (self.fail_open && unreachable).then_some(since + FAIL_OPEN_AFTER);
        if fail_open_at.is_some_and(|at| at <= now) {
            return Ok(Some(LaunchDecision::Ungated(error)));
        }
        let end = self.timeout.map_or(since + MAX_OUTAGE, |(_, end)| end);
        if end <= now {
            return Ok(Some(self.timed_out("the daemon is unreachable")));
        }
        let next = [Some(now + self.pause), fail_open_at, Some(end)].into_iter().flatten().min();
        sleep(next.map_or(self.pause, |next| next.saturating_duration_since(now)));
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(None)
    }

    /// The refusal that the daemon would send.
    fn timed_out(&self, why: &str) -> LaunchDecision {
        let waited = span(self.began.elapsed());
        let limit = self.timeout.map_or_else(String::new, |(timeout, _)| format!(" of {}", span(timeout)));
        LaunchDecision::Refused(timeout("--timeout", format!("not granted after {waited}{limit}: {why}")))
    }
}

fn timeout(bound: &str, detail: String) -> Refused {
    Refused {
        granted: false,
        reason: RefusalReason::Timeout,
        detail,
        retry_after_seconds: Some(FAIL_OPEN_AFTER.as_secs_f64()),
        bound: bound.into(),
        holders: Vec::new(),
    }
}
