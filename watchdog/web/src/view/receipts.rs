//! Actions: what is planned, and what was done.

use super::block::{PageView, ViewBlock};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::age;
use crate::context::WebContext;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{ActionState, ActionTarget, Actions, Planned, ProcessKind, Receipt, Spared};
use watchdog_types::units::{count, seconds, size};

/// All recorded actions, latest first.
pub(super) fn page(_: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let mut actions = context.client.get::<Actions>("/v1/actions")?.document.actions;
    actions.sort_by_key(|receipt| std::cmp::Reverse(receipt.id));
    let table = table("Receipts", &actions, context, "No action was recorded.");
    Ok(PageView { title: "Actions".into(), act: context.guard.may_act(), blocks: vec![ViewBlock::Table(table)] })
}

pub(super) fn table(title: &str, receipts: &[Receipt], context: &WebContext, empty: &'static str) -> ViewTable {
    let rows = receipts.iter().map(|receipt| ViewRow {
        key: receipt.id.to_string(),
        cells: vec![
            ViewCell::new(format!("{} ago", age(&receipt.began_at))),
            ViewCell::new((context.prose.receipt)(receipt)),
            ViewCell::new(receipt.state.name().replace('_', " ")).tone(tone(receipt.state)),
            ViewCell::new(size(receipt.freed_bytes)),
            ViewCell::session(receipt.session),
        ],
    });
    let columns = vec![
        ViewColumn::text("Started"),
        ViewColumn::text("Action"),
        ViewColumn::text("State"),
        ViewColumn::number("Freed"),
        ViewColumn::text("Session").low(),
    ];
    ViewTable { title: title.into(), columns, rows: rows.collect(), empty }
}

const fn tone(state: ActionState) -> Option<ViewTone> {
    match state {
        ActionState::Done => Some(ViewTone::Good),
        ActionState::Incomplete | ActionState::CalledOff => Some(ViewTone::Bad),
        ActionState::Holding | ActionState::Running | ActionState::Planned => Some(ViewTone::Warn),
    }
}

/// The preview of actions that ask for consent.
pub(crate) fn planned(planned: &Planned) -> Vec<ViewBlock> {
    let mut blocks: Vec<ViewBlock> = planned
        .actions
        .iter()
        .map(|action| {
            let rows = action.targets.iter().map(|target| {
                let agent = target.kind == ProcessKind::Agent;
                let kind = if agent { "agent, alive" } else { target.kind.name() };
                let cells = vec![
                    ViewCell::new(&target.name),
                    ViewCell::new(target.pid.to_string()),
                    ViewCell::new(kind).tone(agent.then_some(ViewTone::Bad)),
                    ViewCell::new(size(target.memory_bytes)),
                ];
                ViewRow { key: format!("{}/{}", target.pid, target.start_time), cells }
            });
            let columns = vec![
                ViewColumn::text("Process"),
                ViewColumn::number("PID"),
                ViewColumn::text("Kind"),
                ViewColumn::number("Memory"),
            ];
            let title = action.reason.clone();
            ViewBlock::Table(ViewTable { title, columns, rows: rows.collect(), empty: "No process." })
        })
        .collect();
    let targets: usize = planned.actions.iter().map(|action| action.targets.len()).sum();
    let line = match targets {
        0 => "There is nothing to terminate.".into(),
        _ => format!(
            "{} of {} will be terminated: SIGTERM, then SIGKILL after {}.",
            count(targets as u64, "process", "processes"),
            size(planned.memory_bytes),
            seconds(planned.kill_after_seconds)
        ),
    };
    blocks.push(ViewBlock::Text { title: String::new(), lines: vec![line] });
    blocks.extend(spared(&planned.spared));
    blocks
}

/// What actions have done so far.
pub(crate) fn receipts(receipts: &[Receipt], context: &WebContext) -> Vec<ViewBlock> {
    let mut blocks = Vec::new();
    for receipt in receipts {
        let rows = receipt.targets.iter().map(|target| ViewRow {
            key: format!("{}/{}", target.pid, target.start_time),
            cells: vec![
                ViewCell::new(&target.name),
                ViewCell::new(target.pid.to_string()),
                ViewCell::new((context.prose.sent)(target)),
                outcome(receipt, target, context),
            ],
        });
        let columns = vec![
            ViewColumn::text("Process"),
            ViewColumn::number("PID"),
            ViewColumn::text("Sent"),
            ViewColumn::text("Result"),
        ];
        let title = (context.prose.receipt)(receipt);
        blocks.push(ViewBlock::Table(ViewTable { title, columns, rows: rows.collect(), empty: "No process." }));
        blocks.extend(spared(&receipt.spared));
    }
    blocks
}

fn outcome(receipt: &Receipt, target: &ActionTarget, context: &WebContext) -> ViewCell {
    let tone = match (&target.died_at, receipt.state.is_over()) {
        (Some(_), _) => ViewTone::Good,
        (None, true) => ViewTone::Bad,
        (None, false) => ViewTone::Warn,
    };
    ViewCell::new((context.prose.outcome)(receipt, target)).tone(Some(tone))
}

fn spared(spared: &[Spared]) -> Option<ViewBlock> {
    let line = |spared: &Spared| format!("{} (pid {}): {}", spared.name, spared.pid, spared.because);
    let lines = spared.iter().map(line).collect();
    (!spared.is_empty()).then(|| ViewBlock::Text { title: "Spared".into(), lines })
}
