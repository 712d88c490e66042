//! Asking the gate, for as long as it takes: through the queue, and over restarts of the daemon.
//!
//! The place in the queue belongs to this process, not to the connection: whoever comes back finds it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::failure::Failure;
use super::super::show::span;
use super::progress::Progress;
use super::wire::Lines;
use crate::api::{Grant, LaunchRequest, LaunchUpdate, RefusalReason, Refused};

/// The first pause before the daemon is asked again; each later one is twice as long,
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// With `--fail-open`: how long a daemon that went away may stay away.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(5);
/// Without `--timeout`: how long a daemon that gives no answer is asked again. A launch that says nothing waits as long.
const LONGEST_AWAY: Duration = Duration::from_secs(30 * 60);
/// No request is made with less time than this: none at all is no time that the daemon understands.
const LEAST_TIME: Duration = Duration::from_millis(1);
/// The daemon counts the time as well, and says better why it refuses: so much longer it may take for that.
const COURTESY: Duration = Duration::from_secs(1);

/// What became of the request.
#[derive(Debug)]
pub(super) enum Decision {
    /// It may start.
    Granted(Grant),
    /// It may not.
    Refused(Refused),
    /// There is no daemon, and it starts all the same. Why there is none.
    Ungated(Failure),
}

/// A request for a launch, with what it is willing to put up with.
pub(super) struct Asking<'a> {
    client: &'a Client,
    request: LaunchRequest,
    progress: Progress,
    fail_open: bool,
    began: Instant,
    /// How long it waits in all, and when that is over.
    patience: Option<(Duration, Instant)>,
    /// The daemon was there once: from then on it is waited for.
    known: bool,
    /// It waits in the queue: a door that is full does not take that away.
    queued: bool,
    away_since: Option<Instant>,
    pause: Duration,
}

impl<'a> Asking<'a> {
    /// Counts the time from now on.
    pub(super) fn new(
        client: &'a Client,
        request: LaunchRequest,
        timeout: Option<Duration>,
        fail_open: bool,
        progress: Progress,
        began: Instant,
    ) -> Self {
        let patience = timeout.and_then(|timeout| Some((timeout, began.checked_add(timeout)?)));
        let (known, queued, away_since, pause) = (false, false, None, FIRST_PAUSE);
        Self { client, request, progress, fail_open, began, patience, known, queued, away_since, pause }
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// When the daemon was not there from the beginning, or says that the request can never be granted.
    pub(super) fn decide(mut self) -> Result<Decision, Failure> {
        let outcome = self.ask_until_answered();
        self.progress.clear();
        outcome
    }

    fn ask_until_answered(&mut self) -> Result<Decision, Failure> {
        loop {
            let failure = match self.ask() {
                Ok(decision) => return Ok(decision),
                Err(failure) => failure,
            };
            if let Some(decision) = self.bear(failure)? {
                return Ok(decision);
            }
        }
    }

    /// One connection, up to its end.
    fn ask(&mut self) -> Result<Decision, Failure> {
        let left = self.patience.map(|(_, end)| end.saturating_duration_since(Instant::now()).max(LEAST_TIME));
        self.request.timeout_seconds = left.map(|left| left.as_secs_f64());
        let client = self.client.within(left.map_or(Duration::MAX, |left| left + COURTESY));
        let body = serde_json::to_vec(&self.request).map_err(|error| Failure::Usage(error.to_string()))?;
        let mut lines = match Lines::ask(&client, &body) {
            // Only silence takes so long; to whoever fails open that is a daemon that is not there.
            Err(Failure::Unreachable { .. }) if self.is_over(COURTESY) && !self.fail_open => {
                return Ok(self.timed_out("the daemon gave no answer"));
            }
            beginning => beginning?,
        };
        while let Some(line) = self.next(&mut lines)? {
            let update = serde_json::from_str(&line)
                .map_err(|error| Failure::Answer { request: "POST /v1/launch".into(), why: error.to_string() })?;
            self.known = true;
            self.away_since = None;
            self.pause = FIRST_PAUSE;
            match update {
                LaunchUpdate::Waiting(waiting) => {
                    self.queued = true;
                    self.progress.waits(waiting);
                }
                LaunchUpdate::Granted(grant) => return Ok(Decision::Granted(grant)),
                LaunchUpdate::Refused(refused) => return Ok(Decision::Refused(refused)),
            }
        }
        Ok(self.timed_out("the daemon did not say what it waited for"))
    }

    /// Its time is over, and so much more.
    fn is_over(&self, more: Duration) -> bool {
        self.patience.is_some_and(|(_, end)| end + more <= Instant::now())
    }

    /// The next line, while the progress goes on; `None` when the time is over.
    fn next(&mut self, lines: &mut Lines<'_>) -> Result<Option<String>, Failure> {
        let end = self.patience.map(|(_, end)| end + COURTESY);
        loop {
            let draws = self.progress.pace().map(|pace| Instant::now() + pace);
            if let Some(line) = lines.next(draws.into_iter().chain(end).min())? {
                return Ok(Some(line));
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(None);
            }
            self.progress.draw();
        }
    }

    /// What is to be done about a daemon that gave no answer: a decision, or after a pause another try.
    fn bear(&mut self, failure: Failure) -> Result<Option<Decision>, Failure> {
        let unreachable = match &failure {
            Failure::Unreachable { was_there, .. } => {
                self.known |= was_there;
                true
            }
            Failure::Busy { refused: Some(refused), .. } if !self.queued => {
                return Ok(Some(Decision::Refused((**refused).clone())));
            }
            Failure::Busy { why, .. } if self.request.no_wait => {
                let detail = format!("it would have to wait for the daemon: {why}");
                return Ok(Some(Decision::Refused(late("--no-wait", detail))));
            }
            Failure::Busy { .. } => {
                self.known = true;
                false
            }
            // It knows each path that is asked for here, so what it does not know is the profile.
            Failure::Unknown(reason) if self.request.profile.is_some() => return Err(Failure::Usage(reason.clone())),
            _ => return Err(failure),
        };
        if !self.known || self.request.no_wait {
            return if unreachable && self.fail_open { Ok(Some(Decision::Ungated(failure))) } else { Err(failure) };
        }
        let now = Instant::now();
        let since = match self.away_since {
            Some(since) => since,
            None => {
                self.away_since = Some(now);
                let what = if unreachable { "the daemon went away" } else { "the daemon is busy" };
                self.progress.note(&format!("{what}; it is asked again until it answers, and the place is kept"));
                now
            }
        };
        let opens = (self.fail_open && unreachable).then_some(since + FAIL_OPEN_AFTER);
        if opens.is_some_and(|opens| opens <= now) {
            return Ok(Some(Decision::Ungated(failure)));
        }
        let end = self.patience.map_or(since + LONGEST_AWAY, |(_, end)| end);
        if end <= now {
            return Ok(Some(self.timed_out("the daemon has been away at the end")));
        }
        let next = [Some(now + self.pause), opens, Some(end)].into_iter().flatten().min();
        sleep(next.map_or(self.pause, |next| next.saturating_duration_since(now)));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(None)
    }

    /// What the daemon would say, if it could.
    fn timed_out(&self, why: &str) -> Decision {
        let waited = span(self.began.elapsed());
        let allowed = self.patience.map_or_else(String::new, |(timeout, _)| format!(" of {}", span(timeout)));
        let detail = format!("it has waited for {waited}{allowed} and was not granted: {why}");
        Decision::Refused(late("--timeout", detail))
    }
}

/// The refusal of a launch that is not willing to wait longer.
fn late(bound: &str, detail: String) -> Refused {
    Refused {
        granted: false,
        reason: RefusalReason::Timeout,
        detail,
        retry_after_seconds: Some(FAIL_OPEN_AFTER.as_secs_f64()),
        bound: bound.into(),
        holders: Vec::new(),
    }
}
