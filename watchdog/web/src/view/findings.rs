//! What the detectors concluded, with the evidence in sentences.

use super::block::{FactCard, PageView, ViewBlock};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::age;
use crate::act_call::{ActButton, ActCall, ActName};
use crate::context::WebContext;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{Finding, FindingKind, Findings};

pub(super) fn page(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let all = request.parameter("all").is_some();
    let path = if all { "/v1/findings?all=true" } else { "/v1/findings" };
    let findings = context.client.get::<Findings>(path)?.document.findings;
    let links = [("Open", "#findings", !all), ("Open and closed", "#findings?all=1", all)];
    let links = links.map(|(text, href, current)| ViewCell { current, ..ViewCell::link(text, href) });
    let (title, empty) = match all {
        true => ("Open and closed", "No findings, open or closed."),
        false => ("Open", "No open findings."),
    };
    let blocks = vec![
        ViewBlock::Links { label: "State", links: links.into() },
        ViewBlock::Cards { title: title.into(), cards: cards(findings, context), empty },
    ];
    Ok(PageView { title: "Findings".into(), act: context.guard.may_act(), blocks })
}

/// The most severe first, closed ones last.
pub(super) fn cards(mut findings: Vec<Finding>, context: &WebContext) -> Vec<FactCard> {
    findings.sort_by_key(|finding| (finding.closed_at.is_some(), std::cmp::Reverse(finding.severity), finding.id));
    findings.iter().map(|finding| card(finding, context)).collect()
}

fn card(finding: &Finding, context: &WebContext) -> FactCard {
    let state = match (&finding.closed_at, &finding.closed_because) {
        (None, _) => format!("open for {}", age(&finding.opened_at)),
        (Some(closed), None) => format!("closed {} ago", age(closed)),
        (Some(closed), Some(why)) => format!("closed {} ago: {why}", age(closed)),
    };
    let mut lines = (context.prose.facts)(&finding.evidence);
    lines.push(format!("proposed action: {}", finding.proposed_action));
    lines.extend(finding.action_taken.iter().map(|action| format!("action taken: {action}")));
    let session = finding.session.map(|id| ViewCell::link(format!("session {id}"), format!("#session?id={id}")));
    let is_orphan = finding.kind == FindingKind::Orphan && finding.closed_at.is_none();
    let reap = finding.session.filter(|_| is_orphan && context.guard.may_act()).map(|session| ActButton {
        label: "Reap orphans".into(),
        danger: true,
        call: ActCall::on_session(ActName::Reap, session),
    });
    FactCard {
        key: finding.id.to_string(),
        title: format!("#{} {}", finding.id, finding.kind.name()),
        label: format!("{}, {state}", finding.severity.name()),
        tone: if finding.closed_at.is_some() { Some(ViewTone::Faint) } else { ViewTone::of(finding.severity) },
        summary: finding.summary.clone(),
        lines,
        links: session.into_iter().collect(),
        buttons: reap.into_iter().collect(),
    }
}

pub(super) fn table(findings: &[Finding]) -> ViewTable {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.id));
    let rows = sorted.into_iter().map(|finding| ViewRow {
        key: finding.id.to_string(),
        cells: vec![
            ViewCell::link(format!("#{} {}", finding.id, finding.kind.name()), "#findings"),
            ViewCell::new(finding.severity.name()).tone(ViewTone::of(finding.severity)),
            ViewCell::new(&finding.summary),
            ViewCell::session(finding.session),
            ViewCell::new(age(&finding.opened_at)),
        ],
    });
    let columns = vec![
        ViewColumn::text("Finding"),
        ViewColumn::text("Severity"),
        ViewColumn::text("Summary"),
        ViewColumn::text("Session").low(),
        ViewColumn::text("Open for").low(),
    ];
    ViewTable { title: "Findings".into(), columns, rows: rows.collect(), empty: "No open findings." }
}
