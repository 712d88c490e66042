//! The limits of a process besides those that a leak's evidence names: resource limits, and the heaps of Java and Go.

use std::fmt::Write;
use std::time::Duration;

use super::Engine;
use super::finding::Detection;
use super::process::TrackedProcess;
use watchdog_api::evidence::{LeakEvidence, LeakScope};
use watchdog_api::{Evidence, Severity};
use watchdog_types::units::{size, span};
use watchdog_types::{Bytes, HeapRuntime, Limits, ResourceLimit};

/// A runtime holds a little more than its heap.
const BESIDES_HEAP: Bytes = Bytes::from_mib(64);

/// A limit, and what is left below it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProgramLimit {
    pub(super) name: &'static str,
    pub(super) max: Bytes,
    pub(super) left: Bytes,
}

impl ProgramLimit {
    fn of_resource(name: &'static str, limit: &ResourceLimit, charged: Bytes) -> Self {
        Self { name, max: limit.max, left: Bytes(limit.reached_at().0.saturating_sub(charged.0)) }
    }

    /// The limits of a process, the nearest first.
    pub(super) fn of(limits: &Limits, charged: Bytes) -> Vec<Self> {
        let space = limits
            .address_space
            .as_deref()
            .map(|limit| Self::of_resource("address space limit (ulimit -v)", limit, charged));
        let data = limits.data.as_deref().map(|limit| Self::of_resource("data limit (ulimit -d)", limit, charged));
        let heap = limits.heap.map(|heap| Self {
            name: match (heap.runtime, heap.stated) {
                (HeapRuntime::Jvm, true) => "Java heap limit",
                (HeapRuntime::Jvm, false) => "default Java heap limit",
                (HeapRuntime::Go, _) => "GOMEMLIMIT, which nothing enforces,",
            },
            max: heap.max,
            left: Bytes((heap.max + BESIDES_HEAP).0.saturating_sub(charged.0)),
        });
        let mut found: Vec<Self> = [space, data, heap].into_iter().flatten().collect();
        found.sort_by_key(|limit| limit.left);
        found
    }
}

/// The known limits of a process, as sentences.
pub(super) fn described(process: &TrackedProcess) -> String {
    let mut text = String::new();
    let Some(limits) = process.limits.as_deref() else { return text };
    if let Some(heap) = limits.v8_heap {
        let default = if limits.v8_default { " (default)" } else { "" };
        text.push_str(&format!(" V8 heap limit: {}{default}.", size(heap.0)));
    }
    if let Some(cgroup) = &limits.cgroup {
        let (current, max) = (size(cgroup.current.0), size(cgroup.max.0));
        text.push_str(&format!(" Cgroup {}: {current} of {max} when last read.", cgroup.path));
    }
    for limit in ProgramLimit::of(limits, process.memory.charged()) {
        let _ = write!(text, " The {} of {} leaves {}.", limit.name, size(limit.max.0), size(limit.left.0));
    }
    text
}

impl Engine {
    /// Names a limit that a leaking process meets before the one in its evidence.
    pub(super) fn name_nearest_limit(&self, seen: &mut Detection) {
        let Evidence::Leak(leak) = &seen.evidence else { return };
        let LeakEvidence { scope: LeakScope::Process, growth_bytes_per_second: rate, flat: false, .. } = **leak else {
            return;
        };
        let Some(process) = self.table.alive(seen.subject) else { return };
        let Some(limits) = process.limits.as_deref() else { return };
        let nearest = ProgramLimit::of(limits, process.memory.charged()).into_iter().next();
        let Some(nearest) = nearest.filter(|nearest| leak.limit_left_bytes.is_none_or(|left| nearest.left < left))
        else {
            return;
        };
        let seconds = nearest.left.0 as f64 / rate.max(1.0);
        let soon = Duration::from_secs_f64(seconds.min(1e9));
        let config = &self.config.leaks;
        let reached = if soon <= config.critical_within {
            Severity::Critical
        } else if soon <= config.warn_within {
            Severity::Warning
        } else {
            Severity::Info
        };
        seen.severity = seen.severity.max(reached);
        let (name, max, left) = (nearest.name, size(nearest.max.0), size(nearest.left.0));
        let _ = write!(seen.summary, "; its {name} of {max} is nearer: {left} left, {}", span(soon));
    }
}
