//! The state of the daemon as a whole: for `GET /v1/status` and `GET /v1/overview`, and for the metrics.

use std::collections::BTreeSet;

use super::{DaemonFacts, DaemonState};
use crate::metrics::Scrape;
use crate::request::OverviewParts;
use watchdog_api::{Overview, Status, Tree};
use watchdog_types::{BootTime, SessionId, Viewer};

impl DaemonState {
    pub(super) fn status(&self, now: BootTime, viewer: Viewer) -> Status {
        Status {
            users: self.with_naming(|engine, naming| engine.user_agents(viewer, now, |uid| (naming.user)(uid))),
            reclaim: Some(self.engine.reclaim_status(now, viewer)),
            ..self.brief_status(viewer)
        }
    }

    pub(super) fn overview(&self, now: BootTime, viewer: Viewer, parts: &OverviewParts) -> Overview {
        let OverviewParts { processes_of, findings, queue } = parts;
        Overview {
            status: self.brief_status(viewer),
            tree: self.tree(viewer, processes_of.as_ref()),
            findings: findings.then(|| self.with_naming(|engine, naming| engine.findings(viewer, naming, false))),
            queue: queue.then(|| self.with_naming(|engine, naming| engine.queue(now, viewer, naming))),
        }
    }

    /// `processes_of`: the sessions whose processes are listed; `None` for all.
    pub(super) fn tree(&self, viewer: Viewer, processes_of: Option<&BTreeSet<SessionId>>) -> Tree {
        let lists = |session| processes_of.is_none_or(|sessions| sessions.contains(&session));
        self.with_naming(|engine, naming| engine.tree_listing(viewer, naming, lists))
    }

    /// Without what takes a walk over all processes of its own.
    fn brief_status(&self, viewer: Viewer) -> Status {
        let DaemonFacts { tracking, degraded, capabilities, pid_namespace, host, ready: _ } = &self.facts;
        let fleet = self.history.fleet().map(|fleet| fleet.capabilities()).unwrap_or_default();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at: self.with_naming(|_, naming| naming.moment(self.started)),
            pid_namespace: pid_namespace.map(|namespace| namespace.to_string()),
            degraded: *degraded || tracking.untracked > 0,
            tracking: *tracking,
            capabilities: capabilities.iter().cloned().chain(fleet).collect(),
            counts: self.engine.counts(viewer),
            host: host.into(),
            breaker_open: self.engine.breaker_open(),
            lost_events: self.metrics.lost_so_far(),
            reconciles: self.engine.reconciles(),
            history: Some(self.history.state()),
            set_aside: self.history.set_aside(),
            users: Vec::new(),
            reclaim: None,
            config: Some(self.history.config()),
            fleet: self.history.fleet().map(|fleet| fleet.status()),
        }
    }

    pub(super) fn scrape(&self, now: BootTime) -> Scrape {
        let gauges = self.engine.gauges(now);
        let mut users = self.users.borrow_mut();
        Scrape {
            users: gauges.gate.users.iter().map(|(uid, count)| (users.name(*uid), *count)).collect(),
            gauges,
            host: self.facts.host,
            tracking: self.facts.tracking,
            degraded: self.facts.degraded,
            follower_drops: self.journal.dropped(),
            history: self.history.state(),
            queue_depth: self.engine.queue_depth() as u64,
            breaker_open: self.engine.breaker_open(),
            fleet: self.history.fleet().map(|fleet| fleet.scrape()),
        }
    }
}
