//! The rules and the board of packaging/ against the registered metrics.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{MetricFamily, MetricType};
use promql_parser::parser::{Expr, LabelModifier, VectorSelector, parse};
use serde_json::Value;

use super::reference::{families, labels};

const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yaml");
const RULES: &str = include_str!("../../../../packaging/prometheus/rules.yaml");
const RULE_TESTS: &str = include_str!("../../../../packaging/prometheus/tests.yaml");
const BOARD: &str = include_str!("../../../../packaging/grafana/agent-watchdog.json");
const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// The selectors and groupings of a query.
#[derive(Default)]
struct QueryParts {
    /// Each selector with the innermost function around it.
    selectors: Vec<(VectorSelector, Option<&'static str>)>,
    grouping: BTreeSet<String>,
}

impl QueryParts {
    fn of(query: &str) -> Self {
        let mut parts = Self::default();
        let parsed = parse(query).unwrap_or_else(|error| panic!("{error}: {query}"));
        parts.visit(&parsed, None);
        assert!(!parts.selectors.is_empty(), "{query}");
        parts
    }

    fn group(&mut self, modifier: Option<&LabelModifier>) {
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.grouping.extend(labels.labels.iter().cloned());
        }
    }

    fn visit(&mut self, expr: &Expr, function: Option<&'static str>) {
        match expr {
            Expr::Aggregate(aggregate) => {
                self.group(aggregate.modifier.as_ref());
                self.visit(&aggregate.expr, function);
            }
            Expr::Binary(binary) => {
                self.group(binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()));
                self.visit(&binary.lhs, function);
                self.visit(&binary.rhs, function);
            }
            Expr::Paren(paren) => self.visit(&paren.expr, function),
            Expr::Unary(unary) => self.visit(&unary.expr, function),
            Expr::Call(call) => call.args.args.iter().for_each(|argument| self.visit(argument, Some(call.func.name))),
            Expr::VectorSelector(selector) => self.selectors.push((selector.clone(), function)),
            Expr::MatrixSelector(matrix) => self.selectors.push((matrix.vs.clone(), function)),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => {}
            Expr::Subquery(_) | Expr::Extension(_) => panic!("not used: {expr}"),
        }
    }

    /// Asserts that all names and labels exist, and that counters are only read by their growth.
    fn check(&self, query: &str, legend: &str) {
        let families = families();
        let mut known: BTreeSet<&str> = BTreeSet::from(["job", "instance", "le"]);
        for (selector, function) in &self.selectors {
            let name = selector.name.as_deref().unwrap();
            let matched = selector.matchers.matchers.iter().map(|matcher| matcher.name.as_str());
            if name == "up" {
                assert!(matched.into_iter().all(|label| known.contains(label)), "{query}");
                continue;
            }
            let (family, cumulative) = registered(&families, name).unwrap_or_else(|| panic!("no {name}: {query}"));
            known.extend(labels(family));
            assert!(matched.into_iter().all(|label| known.contains(label)), "a label of {name} is unknown: {query}");
            let grows = matches!(function, Some("rate" | "increase"));
            assert_eq!(cumulative, grows, "{name} is read in the wrong way: {query}");
        }
        let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        for label in self.grouping.iter().map(String::as_str).chain(shown) {
            assert!(known.contains(label), "no label {label}: {query}");
        }
    }
}

/// The family of a series, and whether that series only grows.
fn registered<'f>(families: &'f [MetricFamily], name: &str) -> Option<(&'f MetricFamily, bool)> {
    families.iter().find_map(|family| match family.get_field_type() {
        MetricType::HISTOGRAM => (name == format!("{}_bucket", family.name())).then_some((family, true)),
        kind => (name == family.name()).then_some((family, kind == MetricType::COUNTER)),
    })
}

/// The rules of a file: the name, the query, and the text of each.
fn rules(file: &str, keyword: &str) -> Vec<(String, String, String)> {
    let start = format!("      - {keyword}: ");
    let blocks = file.split(&start).skip(1);
    let rule = |block: &str| {
        let (name, rest) = block.split_once('\n').unwrap();
        let (first, more) = rest.strip_prefix("        expr: ").unwrap().split_once('\n').unwrap();
        let continued = more.lines().take_while(|line| line.starts_with("          ")).map(str::trim);
        let query = if first == "|" { continued.collect::<Vec<_>>().join(" ") } else { first.to_owned() };
        (name.to_owned(), query, rest.to_owned())
    };
    blocks.map(rule).collect()
}

#[test]
fn rules_query_registered_metrics() {
    for (_, query, _) in rules(ALERTS, "alert").iter().chain(&rules(RULES, "record")) {
        QueryParts::of(query).check(query, "");
    }
}

#[test]
fn recorded_names_say_level_and_operation() {
    for (name, query, _) in rules(RULES, "record") {
        let [level, metric, _operation] = name.split(':').collect::<Vec<_>>()[..] else { panic!("{name}") };
        assert!(level.starts_with("job") && metric.starts_with("agent_watchdog_"), "{name}");
        assert!(RULE_TESTS.contains(&format!("- expr: {name}\n")), "{name} has no test: {query}");
    }
}

#[test]
fn alerts_have_severity_runbook_and_tests() {
    let alerts = rules(ALERTS, "alert");
    assert!(alerts.len() >= 15, "{}", alerts.len());
    for (name, _, text) in alerts {
        assert!(name.starts_with("AgentWatchdog"), "{name}");
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{key}: ")));
            found.unwrap_or_else(|| panic!("{name} has no {key}"))
        };
        assert!(["critical", "warning", "info"].contains(&value("severity")), "{name}");
        assert!(!value("summary").contains("{{") && value("summary").ends_with('.'), "{name}");
        assert!(value("description").contains("{{ $labels.") || name == "AgentWatchdogDown", "{name}");
        let anchor = format!("metrics.md#{}", name.to_lowercase());
        assert!(value("runbook_url").ends_with(&anchor), "{name}");
        assert!(DOCUMENT.contains(&format!("\n### {name}\n")), "{name} has no runbook");
        for (expected, meaning) in [("exp_alerts: []\n", "quiet"), ("exp_alerts:\n", "firing")] {
            let test = format!("alertname: {name}\n        {expected}");
            assert!(RULE_TESTS.contains(&test), "{name} has no test in which it is {meaning}");
        }
    }
}

fn board() -> Value {
    serde_json::from_str(BOARD).unwrap()
}

fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    board["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

#[test]
fn board_queries_use_variables_and_metrics() {
    let board = board();
    for panel in panels(&board) {
        for target in panel["targets"].as_array().unwrap() {
            let (query, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            let parts = QueryParts::of(&query.replace("$__rate_interval", "5m"));
            parts.check(query, legend);
            assert_eq!(query.matches('[').count(), query.matches("[$__rate_interval]").count(), "{query}");
            for (selector, _) in &parts.selectors {
                let matchers: BTreeMap<&str, String> =
                    selector.matchers.matchers.iter().map(|found| (&*found.name, found.to_string())).collect();
                assert_eq!(matchers["job"], "job=~\"$job\"", "{query}");
                assert_eq!(matchers["instance"], "instance=~\"$instance\"", "{query}");
            }
        }
    }
}

#[test]
fn panels_have_title_description_unit() {
    let board = board();
    assert!(panels(&board).count() >= 30);
    let mut ids = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for panel in panels(&board) {
        let title = panel["title"].as_str().unwrap();
        assert!(!title.is_empty() && titles.insert(title), "{title}");
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title} has no description");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
        assert!(unit.is_some_and(|unit| !unit.is_empty()), "{title} has no unit");
    }
    for panel in board["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
    }
}

#[test]
fn panels_fill_grid_without_overlap() {
    let board = board();
    let mut taken = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for y in at("y")..at("y") + at("h") {
            for x in at("x")..at("x") + at("w") {
                assert!(taken.insert((x, y)), "{} overlaps another panel", panel["title"]);
            }
        }
    }
}

#[test]
fn board_has_one_data_source_variable() {
    let board = board();
    assert_eq!(board["schemaVersion"], 42);
    assert!(board["uid"].as_str().is_some_and(|uid| !uid.is_empty() && uid.len() <= 40));
    assert_eq!(board["id"], Value::Null, "an id belongs to one Grafana");
    let variables: BTreeMap<&str, &Value> = board["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| (variable["name"].as_str().unwrap(), variable))
        .collect();
    assert_eq!(variables.keys().copied().collect::<Vec<_>>(), ["datasource", "instance", "job"]);
    assert_eq!(
        (&variables["datasource"]["type"], &variables["datasource"]["query"]),
        (&"datasource".into(), &"prometheus".into())
    );
    for name in ["job", "instance"] {
        let variable = variables[name];
        assert_eq!(
            (&variable["multi"], &variable["includeAll"], &variable["allValue"]),
            (&true.into(), &true.into(), &".+".into())
        );
    }
    let source = &serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    assert_eq!([&variables["job"]["datasource"], &variables["instance"]["datasource"]], [source, source]);
    for panel in panels(&board) {
        let sources = panel["targets"].as_array().unwrap().iter().map(|target| &target["datasource"]);
        assert!(sources.chain([&panel["datasource"]]).all(|found| found == source), "{}", panel["title"]);
    }
}
