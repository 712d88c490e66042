//! `watchdogctl actions`: what is done to processes, and what was.

use clap::Args;

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::receipt;
use crate::api::Actions;

pub(super) const HELP: &str = "\
The daemon remembers a bounded number of actions; `watchdogctl history` tells of those before, too.

Examples:
  watchdogctl actions
  watchdogctl actions 7
  watchdogctl actions --json | jq '.actions[] | select(.state == \"incomplete\")'";

/// Which.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this one, whole
    #[arg(value_name = "ID")]
    id: Option<u64>,
}

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<(), Failure> {
    let path = options.id.map_or_else(|| "/v1/actions".into(), |id| format!("/v1/actions?id={id}"));
    let answer = client.get::<Actions>(&path).await?;
    let actions = &answer.document.actions;
    output.show(&answer.text, |screen| match options.id {
        None => receipt::list(actions, screen),
        Some(_) => actions.iter().map(|receipt| receipt::whole(receipt, screen)).collect(),
    })
}
