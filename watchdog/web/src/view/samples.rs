//! Charts from samples of the history.

use std::collections::{BTreeMap, BTreeSet};

use super::block::{ChartSeries, StackedChart};
use crate::context::WebContext;
use crate::holders::HostSample;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_types::units::{count, size};

use super::table::ViewCell;

/// Sessions with a series of their own; more colours would be hard to distinguish.
const NAMED: usize = 6;

/// Periods that a page offers, in hours.
const PERIODS: [(&str, u64); 4] = [("1h", 1), ("6h", 6), ("24h", 24), ("7d", 168)];

/// The chosen period in seconds: the first unless the address names another.
pub(super) fn period(request: &WebRequest) -> u64 {
    let chosen = request.parameter("period");
    let found = PERIODS.iter().find(|(name, _)| Some(*name) == chosen.as_deref());
    found.map_or(PERIODS[0].1, |(_, hours)| *hours) * 3600
}

pub(super) fn period_links(page: &str, seconds: u64) -> Vec<ViewCell> {
    let link = |(name, hours): &(&str, u64)| ViewCell {
        current: hours * 3600 == seconds,
        ..ViewCell::link(*name, format!("#{page}?period={name}"))
    };
    PERIODS.iter().map(link).collect()
}

/// The period; empty if the daemon keeps no history.
pub(super) fn samples(context: &WebContext, seconds: u64) -> Result<Vec<HostSample>, ClientError> {
    match context.history.period(&context.client, seconds) {
        Ok(samples) => Ok(samples.to_vec()),
        Err(ClientError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The memory of the host, by session.
pub(super) fn host_chart(title: &str, samples: &[HostSample]) -> StackedChart {
    let named = largest(samples);
    let held = |sample: &HostSample, id: u64| {
        sample.host.sessions.iter().find(|session| session.session == id).map(|session| session.memory_bytes)
    };
    let mut series: Vec<ChartSeries> = named
        .iter()
        .map(|(id, profile)| ChartSeries {
            label: format!("{profile} · session {id}"),
            values: samples.iter().map(|sample| Some(held(sample, *id).unwrap_or(0))).collect(),
            rest: false,
        })
        .collect();
    let ids: BTreeSet<u64> = named.iter().map(|(id, _)| *id).collect();
    let others: Vec<Option<u64>> = samples
        .iter()
        .map(|sample| {
            let others = sample.host.sessions.iter().filter(|session| !ids.contains(&session.session));
            Some(others.map(|session| session.memory_bytes).sum())
        })
        .collect();
    if others.iter().any(|value| *value != Some(0)) {
        series.push(ChartSeries { label: "other sessions".into(), values: others, rest: false });
    }
    let rest = samples.iter().map(|sample| {
        let agents: u64 = sample.host.sessions.iter().map(|session| session.memory_bytes).sum();
        Some(used(sample).saturating_sub(agents))
    });
    series.push(ChartSeries { label: "everything else".into(), values: rest.collect(), rest: true });
    let top = samples.last().map(|sample| sample.host.memory.memory_total_bytes);
    let summary = match (samples.iter().map(used).max(), samples.last(), top) {
        (Some(peak), Some(last), Some(top)) => format!(
            "Memory of the host by session: {} of {} used now, {} at most; {} held memory.",
            size(used(last)),
            size(top),
            size(peak),
            count(named.len() as u64, "session", "sessions")
        ),
        _ => "The history has no samples of this period yet: one is written every 10 s.".into(),
    };
    StackedChart { title: title.into(), summary, times: samples.iter().map(|sample| sample.at).collect(), series, top }
}

pub(super) fn session_chart(id: u64, samples: &[HostSample]) -> StackedChart {
    let held = |sample: &HostSample| {
        sample.host.sessions.iter().find(|session| session.session == id).map(|session| session.memory_bytes)
    };
    let known: Vec<&HostSample> = samples.iter().skip_while(|sample| held(sample).is_none()).collect();
    let values: Vec<Option<u64>> = known.iter().map(|sample| held(sample)).collect();
    let summary = match values.iter().flatten().max() {
        Some(peak) => format!("Memory of the session over time: {} at most.", size(*peak)),
        None => "The history has no samples of this session yet: one is written every 10 s.".into(),
    };
    let series = vec![ChartSeries { label: format!("session {id}"), values, rest: false }];
    let times = known.iter().map(|sample| sample.at).collect();
    StackedChart { title: "Memory over time".into(), summary, times, series, top: None }
}

pub(super) fn used(sample: &HostSample) -> u64 {
    let memory = &sample.host.memory;
    memory.memory_total_bytes.saturating_sub(memory.memory_available_bytes)
}

/// The sessions that held most at any time, by id.
fn largest(samples: &[HostSample]) -> Vec<(u64, String)> {
    let mut peaks: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for session in samples.iter().flat_map(|sample| &sample.host.sessions) {
        let peak = peaks.entry(session.session).or_insert((0, &session.profile));
        peak.0 = peak.0.max(session.memory_bytes);
    }
    let mut largest: Vec<_> = peaks.into_iter().collect();
    largest.sort_by_key(|(_, (peak, _))| std::cmp::Reverse(*peak));
    largest.truncate(NAMED);
    largest.sort_by_key(|(id, _)| *id);
    largest.into_iter().map(|(id, (_, profile))| (id, profile.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use watchdog_api::{Host, HostRecord, SessionMemory};

    use super::*;

    fn sample(at: i64, available: u64, sessions: &[(u64, u64)]) -> HostSample {
        let memory = Host { memory_total_bytes: 100, memory_available_bytes: available, ..Host::default() };
        let session = |(session, memory_bytes): &(u64, u64)| SessionMemory {
            session: *session,
            profile: "p".into(),
            uid: 0,
            memory_bytes: *memory_bytes,
            processes: 1,
        };
        let sessions = sessions.iter().map(session).collect();
        HostSample { at, host: HostRecord { memory, sessions, processes: Vec::new() } }
    }

    #[test]
    fn series_add_up_to_used_memory() {
        let many: Vec<(u64, u64)> = (1..=8).map(|id| (id, id)).collect();
        let samples = [sample(1, 90, &[(1, 4)]), sample(2, 40, &many), sample(3, 50, &[])];
        let chart = host_chart("", &samples);
        let labels: Vec<&str> = chart.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels.len(), NAMED + 2, "{labels:?}");
        assert_eq!(labels[0], "p · session 1");
        for (at, expected) in [10, 60, 50].into_iter().enumerate() {
            let sum: u64 = chart.series.iter().filter_map(|series| series.values[at]).sum();
            assert_eq!(sum, expected);
        }
    }

    #[test]
    fn session_chart_begins_with_the_session() {
        let samples = [sample(1, 90, &[]), sample(2, 90, &[(3, 5)]), sample(3, 90, &[])];
        let chart = session_chart(3, &samples);
        assert_eq!((chart.times, chart.series[0].values.clone()), (vec![2, 3], vec![Some(5), None]));
    }
}
