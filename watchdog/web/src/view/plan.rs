//! How many agents fit: the answer of `watchdogctl plan` to a form.

use serde::Deserialize;

use super::block::{FormField, PageView, StatTile, ViewBlock};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use crate::context::WebContext;
use crate::prose::PlanQuestion;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_types::units::{seconds, size};

/// `watchdogctl plan --json`.
#[derive(Debug, Deserialize)]
struct PlanAnswer {
    each_bytes: u64,
    each_from: String,
    wanted: Option<u64>,
    fits: u64,
    hosts: Vec<PlannedHost>,
    node_options: Option<String>,
    advice: Vec<PlanAdvice>,
}

#[derive(Debug, Deserialize)]
struct PlannedHost {
    name: String,
    total_bytes: u64,
    room_bytes: u64,
    agents: u64,
    share_bytes: u64,
    heap_bytes: Option<u64>,
    leak: Option<PlannedLeak>,
}

#[derive(Debug, Deserialize)]
struct PlannedLeak {
    one_leaks_seconds: f64,
    all_leak_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct PlanAdvice {
    about: String,
    ok: bool,
    text: String,
}

pub(super) fn page(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let value = |name| request.parameter(name).unwrap_or_default().trim().to_owned();
    let question = PlanQuestion {
        agents: value("agents"),
        profile: value("profile"),
        memory: value("memory"),
        leak: value("leak"),
    };
    let field = |name, label, value: &str, example| FormField { name, label, value: value.into(), example };
    let fields = vec![
        field("agents", "Agents", &question.agents, "as many as fit"),
        field("profile", "Profile", &question.profile, "claude-code"),
        field("memory", "Memory of one", &question.memory, "700MiB"),
        field("leak", "Leak of one", &question.leak, "50MiB/h"),
    ];
    let mut blocks = vec![ViewBlock::Form { page: "plan", fields, submit: "Calculate" }];
    match (context.prose.plan)(&context.client, &question) {
        Ok(document) => {
            let answer: PlanAnswer = serde_json::from_str(&document)
                .map_err(|error| ClientError::InvalidResponse { request: "plan".into(), why: error.to_string() })?;
            blocks.extend(answer_blocks(&answer));
        }
        Err(why) => blocks.push(ViewBlock::Text { title: "This cannot be planned".into(), lines: vec![why] }),
    }
    Ok(PageView { title: "Plan".into(), act: context.guard.may_act(), blocks })
}

fn answer_blocks(answer: &PlanAnswer) -> Vec<ViewBlock> {
    let short = answer.wanted.is_some_and(|wanted| wanted > answer.fits);
    let wanted = answer.wanted.map_or_else(|| "as many as fit".into(), |wanted| format!("{wanted} requested"));
    let plain = |label, value: String, detail: String| StatTile { label, value, detail, share: None, tone: None };
    let mut tiles = vec![
        StatTile {
            tone: Some(if short { ViewTone::Bad } else { ViewTone::Good }),
            ..plain("Agents that fit", answer.fits.to_string(), wanted)
        },
        plain("Memory of one agent", size(answer.each_bytes), answer.each_from.clone()),
    ];
    if let Some(options) = &answer.node_options {
        tiles.push(plain("Set for each agent", options.clone(), "in NODE_OPTIONS".into()));
    }
    vec![
        ViewBlock::Tiles { tiles },
        ViewBlock::Table(host_table(&answer.hosts)),
        ViewBlock::Table(advice_table(&answer.advice)),
    ]
}

fn host_table(hosts: &[PlannedHost]) -> ViewTable {
    let leaks = hosts.iter().any(|host| host.leak.is_some());
    let mut columns = vec![
        ViewColumn::text("Host"),
        ViewColumn::number("Memory"),
        ViewColumn::number("Free"),
        ViewColumn::number("Agents"),
        ViewColumn::number("Share of one"),
        ViewColumn::number("Heap of one"),
    ];
    if leaks {
        columns.extend([ViewColumn::number("Full if one leaks"), ViewColumn::number("Full if all leak")]);
    }
    let rows = hosts.iter().map(|host| {
        let mut cells = vec![
            ViewCell::new(&host.name),
            ViewCell::new(size(host.total_bytes)),
            ViewCell::new(size(host.room_bytes)),
            ViewCell::new(host.agents.to_string()),
            ViewCell::new(size(host.share_bytes)),
            ViewCell::new(host.heap_bytes.map_or_else(|| "-".into(), size)),
        ];
        if let Some(leak) = &host.leak {
            let after = |time| ViewCell::new(format!("after {}", seconds(time)));
            cells.extend([after(leak.one_leaks_seconds), after(leak.all_leak_seconds)]);
        }
        ViewRow { key: host.name.clone(), cells }
    });
    ViewTable { title: "Hosts".into(), columns, rows: rows.collect(), empty: "No host." }
}

fn advice_table(advice: &[PlanAdvice]) -> ViewTable {
    let rows = advice.iter().map(|advice| {
        let (word, tone) = if advice.ok { ("fits", ViewTone::Good) } else { ("check", ViewTone::Warn) };
        let cells =
            vec![ViewCell::new(&advice.about), ViewCell::new(word).tone(Some(tone)), ViewCell::new(&advice.text)];
        ViewRow { key: advice.about.clone(), cells }
    });
    let columns = vec![ViewColumn::text("Setting"), ViewColumn::text("Verdict"), ViewColumn::text("Why")];
    ViewTable { title: "Settings of this host".into(), columns, rows: rows.collect(), empty: "No advice." }
}
