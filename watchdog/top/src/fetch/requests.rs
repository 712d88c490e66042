//! Requests of the user. Each has a thread, because an action takes as long as its processes.

use std::thread;

use jiff::Timestamp;
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_api::{AdoptRequest, Adopted, Planned, ReclaimRequest, ReclaimRun, Record, Subject, ThawRequest};
use watchdog_render::{count, receipt};

use crate::events::Reports;
use crate::model::{PlainAction, TopMessage, TopRequest, subject_name};

/// Sends a request of the model to the daemon, and reports the answer.
pub(crate) fn perform(client: &ControlClient, request: TopRequest, reports: &Reports) {
    let (client, reports) = (client.clone(), reports.clone());
    // The report says everything there is to say.
    thread::spawn(move || answer(&client, request, &reports));
}

fn answer(client: &ControlClient, request: TopRequest, reports: &Reports) -> bool {
    let text = |error: ClientError| error.to_string();
    reports.send(match request {
        TopRequest::Plan(action) => {
            let planned = action.request(client, true, None);
            TopMessage::Planned(action, planned.map(|reply| Box::new(reply.document)).map_err(text))
        }
        TopRequest::Perform(action, shown) => {
            let acted = action.request(client, false, Some(shown)).and_then(|reply| {
                let mut planned = Box::new(reply.document);
                if planned.actions.iter().any(|action| !action.state.is_over()) {
                    reports.send(TopMessage::Started(planned.clone()));
                }
                client.wait_for_actions(&mut planned)?;
                Ok(planned)
            });
            TopMessage::Acted(acted.map_err(text))
        }
        TopRequest::PerformPlain(action) => TopMessage::Answered(plain(client, action).map_err(text)),
        TopRequest::PlanPageOut(session) => {
            TopMessage::PagedOut(page_out(client, session, true).map(Box::new).map_err(text))
        }
        TopRequest::PageOut(session) => {
            let done = page_out(client, session, false).and_then(|begun| {
                client.wait_for_reclaim(begun, |run| _ = reports.send(TopMessage::PagedOut(Ok(Box::new(run.clone())))))
            });
            TopMessage::PagedOut(done.map(Box::new).map_err(text))
        }
        TopRequest::Explain(subject) => {
            let (pid, path) = match subject {
                Subject::Pid(pid) => (Some(pid), format!("/v1/explain?pid={pid}")),
                Subject::Session(id) => (None, format!("/v1/explain?session={id}")),
            };
            let explained = client.get(&path).map(|reply| Box::new(reply.document));
            TopMessage::Explained(pid, explained.map_err(text))
        }
        TopRequest::ReadHistory { from, to } => TopMessage::History(from, read(client, from, to).map_err(text)),
        TopRequest::Quit
        | TopRequest::Suspend
        | TopRequest::CaptureMouse(_)
        | TopRequest::Poll(_)
        | TopRequest::ReplayTo(_) => return true,
    })
}

fn page_out(client: &ControlClient, session: Option<u64>, dry_run: bool) -> Result<ReclaimRun, ClientError> {
    Ok(client.post("/v1/reclaim", &ReclaimRequest { session, dry_run })?.document)
}

fn plain(client: &ControlClient, action: PlainAction) -> Result<String, ClientError> {
    let (subject, undo) = match action {
        PlainAction::Thaw(subject) => {
            let request = ThawRequest { subjects: subject.into_iter().collect() };
            let planned = client.post::<Planned>("/v1/thaw", &request)?.document;
            let lines: Vec<String> =
                planned.actions.iter().map(|action| format!("resumed {}", receipt::line(action))).collect();
            let none = "no process is frozen or throttled".to_owned();
            return Ok(if lines.is_empty() { none } else { lines.join("\n") });
        }
        PlainAction::Adopt(subject) => (subject, false),
        PlainAction::Unadopt(subject) => (subject, true),
    };
    let adopted = client.post::<Adopted>("/v1/adopt", &AdoptRequest::new(subject, undo))?.document;
    let pids: Vec<String> = adopted.pids.iter().map(u32::to_string).collect();
    let (verb, then) = if undo { ("released", "re-evaluated") } else { ("adopted", "kept") };
    let number = count(adopted.pids.len() as u64, "process", "processes");
    Ok(format!("{verb} {}: {number} will be {then} ({})", subject_name(subject), pids.join(", ")))
}

/// Reads the last minutes for the trends. Without a history there are none.
pub(crate) fn read_recent(client: &ControlClient, reports: &Reports) {
    let (client, reports) = (client.clone(), reports.clone());
    thread::spawn(move || {
        let now = Timestamp::now();
        let from = now.checked_sub(jiff::SignedDuration::from_mins(10)).unwrap_or(now);
        read(&client, from, now).is_ok_and(|records| reports.send(TopMessage::Recent(records)))
    });
}

/// Records of a span. The rest of the response is not read. A record of another version is skipped.
fn read(client: &ControlClient, from: Timestamp, to: Timestamp) -> Result<Vec<Record>, ClientError> {
    let mut lines = client.get_lines(&format!("/v1/history?since={from}"))?;
    let mut records = Vec::new();
    while let Some(line) = lines.next_or_end()? {
        let Ok(record) = serde_json::from_str::<Record>(&line) else { continue };
        if record.at.parse::<Timestamp>().is_ok_and(|at| at > to) {
            break;
        }
        records.push(record);
    }
    Ok(records)
}
