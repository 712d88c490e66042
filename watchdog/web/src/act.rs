//! Actions: first a preview, then consent to exactly what was shown, then the receipt.

use serde::Serialize;
use watchdog_api::client::ClientError;
use watchdog_api::{
    Actions, AdoptRequest, Adopted, EndRequest, Planned, ReapRequest, Receipt, ReclaimRequest, ReclaimRun,
    ReclaimRunState, Subject, ThawRequest,
};
use watchdog_types::units::count;

use crate::act_call::{ActCall, ActName};
use crate::context::WebContext;
use crate::response::WebResponse;
use crate::view::{ViewBlock, planned, receipts};

#[derive(Debug, Serialize)]
struct ActStep {
    title: String,
    blocks: Vec<ViewBlock>,
    /// The call that carries out what is shown; null if there is nothing to do.
    confirm: Option<ActCall>,
    /// The call that reports the result; null if it is final.
    follow: Option<ActCall>,
}

pub(crate) fn answer(body: &[u8], context: &WebContext) -> WebResponse {
    let call = match serde_json::from_slice::<ActCall>(body) {
        Ok(call) => call,
        Err(error) => return WebResponse::problem(400, &format!("malformed action: {error}")),
    };
    match step(&call, context) {
        Ok(step) => WebResponse::json(&step),
        Err(error) => WebResponse::of(&error),
    }
}

fn step(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    match call.action {
        ActName::Reap | ActName::End => terminate(call, context),
        ActName::Thaw => thaw(call, context),
        ActName::Adopt | ActName::Unadopt => adopt(call, context),
        ActName::Reclaim => reclaim(call, context),
        ActName::ReclaimReceipt => page_out(call, context),
        ActName::Receipts => result(&call.ids, context),
    }
}

fn terminate(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    let (dry_run, expect) = (call.expect.is_none(), call.expect.clone());
    let plan: Planned = match (call.action, call.subject()?) {
        (ActName::End, Subject::Session(session)) => {
            let request = EndRequest { session: Some(session), pid: None, kept: false, dry_run, expect };
            context.client.post("/v1/end", &request)?.document
        }
        (ActName::End, Subject::Pid(_)) => return Err(ClientError::BadRequest("only sessions can be ended".into())),
        (_, subject) => {
            let request = ReapRequest { subjects: vec![subject], dry_run, expect };
            context.client.post("/v1/reap", &request)?.document
        }
    };
    if !dry_run {
        return after(&plan, context);
    }
    let title = match call.action {
        ActName::End => format!("End {}, with its agent?", call.name()),
        _ => format!("Reap orphans of {}?", call.name()),
    };
    Ok(ActStep { title, blocks: planned(&plan), confirm: call.confirmed(&plan), follow: None })
}

fn thaw(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    let subject = call.subject()?;
    if call.expect.is_none() {
        let line = "Its frozen or throttled processes continue.";
        return Ok(question(call, format!("Resume {}?", call.name()), line));
    }
    let plan: Planned = context.client.post("/v1/thaw", &ThawRequest { subjects: vec![subject] })?.document;
    after(&plan, context)
}

fn adopt(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    let (subject, undo) = (call.subject()?, call.action == ActName::Unadopt);
    let name = call.name();
    if call.expect.is_none() {
        return Ok(match undo {
            false => question(call, format!("Keep {name}?"), "It is never reported as an orphan again."),
            true => question(call, format!("Stop keeping {name}?"), "It can be reported as an orphan again."),
        });
    }
    let adopted: Adopted = context.client.post("/v1/adopt", &AdoptRequest::new(subject, undo))?.document;
    let changed = count(adopted.pids.len() as u64, "process", "processes");
    let line = format!("The mark of {changed} was {}.", if undo { "removed" } else { "set" });
    Ok(ActStep { title: "Done".into(), blocks: vec![text(&line)], confirm: None, follow: None })
}

fn reclaim(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    let Subject::Session(session) = call.subject()? else {
        return Err(ClientError::BadRequest("only sessions can be paged out".into()));
    };
    let dry_run = call.expect.is_none();
    let request = ReclaimRequest { session: Some(session), dry_run };
    let run: ReclaimRun = context.client.post("/v1/reclaim", &request)?.document;
    if !dry_run {
        return Ok(reclaim_step(&run, context));
    }
    let mut lines = (context.prose.page_out)(&run);
    lines.push("Its processes keep running. What they use comes back from swap.".into());
    let confirm = (run.processes > 0).then(|| ActCall { expect: Some(Vec::new()), ..call.clone() });
    Ok(ActStep { title: format!("Page out {}?", call.name()), blocks: vec![texts(lines)], confirm, follow: None })
}

/// How far a page-out is.
fn page_out(call: &ActCall, context: &WebContext) -> Result<ActStep, ClientError> {
    let (&[id], Some(began_at)) = (call.ids.as_slice(), &call.began_at) else {
        return Err(ClientError::BadRequest("expected one page-out and its start".into()));
    };
    let run = context.client.find_reclaim(id, began_at)?;
    let lost = || ClientError::NotFound("the daemon was restarted: what was paged out until then stays in swap".into());
    Ok(reclaim_step(&run.ok_or_else(lost)?, context))
}

fn reclaim_step(run: &ReclaimRun, context: &WebContext) -> ActStep {
    let running = run.state == ReclaimRunState::Running;
    let began_at = Some(run.began_at.clone());
    let follow =
        ActCall { ids: vec![run.id], session: None, began_at, ..ActCall::on_session(ActName::ReclaimReceipt, 0) };
    ActStep {
        title: if running { "In progress" } else { "Receipt" }.into(),
        blocks: vec![texts((context.prose.page_out)(run))],
        confirm: None,
        follow: running.then_some(follow),
    }
}

fn question(call: &ActCall, title: String, line: &str) -> ActStep {
    let confirm = ActCall { expect: Some(Vec::new()), ..call.clone() };
    ActStep { title, blocks: vec![text(line)], confirm: Some(confirm), follow: None }
}

fn text(line: &str) -> ViewBlock {
    texts(vec![line.into()])
}

const fn texts(lines: Vec<String>) -> ViewBlock {
    ViewBlock::Text { title: String::new(), lines }
}

/// The actions that have begun.
fn after(plan: &Planned, context: &WebContext) -> Result<ActStep, ClientError> {
    let ids: Vec<u64> = plan.actions.iter().map(|action| action.id).collect();
    if ids.is_empty() {
        return Ok(ActStep { title: "Nothing was done".into(), blocks: planned(plan), confirm: None, follow: None });
    }
    result(&ids, context)
}

fn result(ids: &[u64], context: &WebContext) -> Result<ActStep, ClientError> {
    let mut actions = context.client.get::<Actions>("/v1/actions")?.document.actions;
    actions.retain(|receipt| ids.contains(&receipt.id));
    let over = actions.iter().all(|receipt: &Receipt| receipt.state.is_over());
    let follow = ActCall { ids: ids.to_vec(), session: None, ..ActCall::on_session(ActName::Receipts, 0) };
    Ok(ActStep {
        title: if over { "Receipt" } else { "In progress" }.into(),
        blocks: receipts(&actions, context),
        confirm: None,
        follow: (!over).then_some(follow),
    })
}
