use clap::Args;

use crate::args::id;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::receipt;
use watchdog_api::Actions;
use watchdog_api::client::ControlClient;

pub(crate) const HELP: &str = "\
The daemon keeps a limited number of actions; `watchdogctl history` also shows older ones.

Examples:
  watchdogctl actions
  watchdogctl actions 7
  watchdogctl actions --json | jq '.actions[] | select(.state == \"incomplete\")'";

#[derive(Debug, Args)]
pub(crate) struct ActionsOptions {
    /// Show all details of this action
    #[arg(value_name = "ID", value_parser = id)]
    id: Option<u64>,
}

pub(crate) fn run(
    client: &ControlClient,
    options: &ActionsOptions,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let path = options.id.map_or_else(|| "/v1/actions".into(), |id| format!("/v1/actions?id={id}"));
    let reply = client.get::<Actions>(&path)?;
    let actions = &reply.document.actions;
    output.show(&reply.text, |terminal| match options.id {
        None => receipt::list(actions, terminal),
        Some(_) => actions.iter().map(|receipt| receipt::details(receipt, terminal)).collect(),
    })
}
