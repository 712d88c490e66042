//! The tables of docs/metrics.md, and what the shipped rules and board may refer to.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{MetricFamily, MetricType};

use super::{Metrics, Scrape};
use crate::workers::fleet::FleetScrape;
use watchdog_config::Config;
use watchdog_engine::Engine;

const BEGIN: &str = "<!-- Generated: UPDATE_METRICS=1 cargo test -p watchdogd document_lists_registered_metrics -->\n";
const END: &str = "<!-- End of the generated part. -->\n";

/// Every family, with a sample each.
pub(super) fn families() -> Vec<MetricFamily> {
    let metrics = Metrics::new().unwrap();
    let gauges = Engine::new(Config::default().into()).gauges(watchdog_types::BootTime(0));
    let (users, fleet) = (BTreeMap::from([("ann".to_owned(), 1)]), Some(FleetScrape::example()));
    metrics.states.fill(&Scrape { gauges, users, fleet, ..Scrape::default() });
    metrics.registry.gather()
}

pub(super) fn labels(family: &MetricFamily) -> BTreeSet<&str> {
    let pairs = family.get_metric().iter().flat_map(|metric| metric.get_label());
    pairs.map(|pair| pair.name()).collect()
}

fn values(family: &MetricFamily, label: &str) -> BTreeSet<String> {
    let pairs = family.get_metric().iter().flat_map(|metric| metric.get_label());
    pairs.filter(|pair| pair.name() == label).map(|pair| format!("`{}`", pair.value())).collect()
}

fn joined(words: impl IntoIterator<Item = String>) -> String {
    words.into_iter().collect::<Vec<_>>().join(", ")
}

fn tables() -> String {
    let mut of_metrics = "| name | type | labels | |\n| --- | --- | --- | --- |\n".to_owned();
    let mut metrics_by_values = BTreeMap::<(&str, String), Vec<String>>::new();
    let families = families();
    for family in &families {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            other => panic!("a metric of type {other:?}"),
        };
        let (name, labels) = (family.name(), labels(family));
        let listed = joined(labels.iter().map(|label| format!("`{label}`")));
        of_metrics += &format!("| `{name}` | {kind} | {listed} | {} |\n", family.help());
        for label in labels {
            let values = match label {
                "profile" => {
                    "The configured and built-in profiles, and `other` for what no profile recognises".to_owned()
                }
                "user" => "Login names; a number for a user without one".to_owned(),
                "version" => "The version of the daemon".to_owned(),
                bounded => joined(values(family, bounded)),
            };
            metrics_by_values.entry((label, values)).or_default().push(format!("`{name}`"));
        }
    }
    let mut of_labels = "| label | values | of |\n| --- | --- | --- |\n".to_owned();
    for ((label, values), names) in metrics_by_values {
        of_labels += &format!("| `{label}` | {values} | {} |\n", joined(names));
    }
    format!("\n{of_metrics}\n{of_labels}\n")
}

#[test]
fn document_lists_registered_metrics() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(file).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (generated, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_METRICS").is_some() {
        return std::fs::write(file, format!("{before}{BEGIN}{}{END}{after}", tables())).unwrap();
    }
    assert_eq!(generated, tables(), "run with UPDATE_METRICS=1");
}
