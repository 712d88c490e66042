use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::plan;
use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::{Terminal, evidence_facts, fleet_store, page_out_receipt, process_command, receipt, record_parts};
use watchdog_api::client::ControlClient;
use watchdog_api::{Evidence, Record};
use watchdog_web::{PlanQuestion, Prose, WebOptions, WebServer};

pub(crate) const HELP: &str = "\
The first line is the address with a token that is new at each start: every local user can connect to the port, so keep
it secret. The page shows what this user may see, as the control socket decides. Without --act it changes nothing;
with --act it can reap, end, keep and page out, each after a preview. It keeps working while the daemon restarts.

For a remote host, forward the same port:
  ssh -L 9720:127.0.0.1:9720 HOST watchdogctl web --port 9720

Examples:
  watchdogctl web
  watchdogctl web --port 9720 --act";

const ROOT: &str = "watchdogctl: the page shows the processes of all users, because it runs as root\n";

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WebArgs {
    /// Port on 127.0.0.1; default: a free one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Allow actions: reap, end, adopt, reclaim
    #[arg(long)]
    act: bool,
}

#[derive(Debug, Serialize)]
struct WebAddress {
    url: String,
    act: bool,
}

/// Returns only if it cannot serve.
pub(crate) fn run(client: &ControlClient, options: WebArgs, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    let WebArgs { port, act } = options;
    let server = WebServer::bind(client, PROSE, WebOptions { port, act })
        .map_err(|error| CtlError::Failed(error.to_string()))?;
    if rustix::process::geteuid().is_root() {
        print_error(ROOT);
    }
    let address = WebAddress { url: server.url(), act };
    output.show_value(&address, |_| format!("{}\n", address.url))?;
    server.serve()
}

const PROSE: Prose = Prose {
    command: process_command,
    facts,
    receipt: receipt::line,
    sent: receipt::sent,
    outcome: |receipt, target| receipt::target_result(receipt, target).0,
    page_out: |run| page_out_receipt(run).lines().map(|line| line.trim_start().to_owned()).collect(),
    fleet_store: |fleet| fleet_store(fleet, Timestamp::now()).1,
    record,
    plan: plan_document,
};

fn facts(evidence: &Evidence) -> Vec<String> {
    evidence_facts(evidence, 0, &Terminal::none()).lines().map(str::to_owned).collect()
}

fn record(record: &Record) -> (String, Option<u64>, String) {
    let (kind, session, text) = record_parts(&record.what);
    let times = record.repeats.as_ref().map_or_else(String::new, |repeats| format!(" ({} times)", repeats.count));
    (kind.to_owned(), session, text + &times)
}

fn plan_document(client: &ControlClient, question: &PlanQuestion) -> Result<String, String> {
    let PlanQuestion { agents, profile, memory, leak } = question;
    let words = [("agents", agents), ("profile", profile), ("memory", memory), ("leak", leak)];
    // One word for each, so that no value is taken for an option.
    let given = words.iter().filter(|(_, value)| !value.is_empty());
    let words: Vec<String> = given.map(|(name, value)| format!("--{name}={value}")).collect();
    plan::document(client, &words).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn plan_form_is_parsed_as_arguments() {
        let nowhere = ControlClient::new("/nonexistent/control.sock".into());
        let question = PlanQuestion { agents: "2".into(), memory: "64MiB".into(), ..PlanQuestion::default() };
        let document: Value = serde_json::from_str(&plan_document(&nowhere, &question).unwrap()).unwrap();
        assert_eq!((&document["wanted"], &document["each_bytes"]), (&2.into(), &(64 << 20).into()));
        for wrong in ["--hosts=1GiB", "-1", "many"] {
            let question = PlanQuestion { agents: wrong.into(), ..PlanQuestion::default() };
            let why = plan_document(&nowhere, &question).unwrap_err();
            assert!(why.contains("invalid value") && why.contains("--agents"), "{why}");
        }
    }
}
