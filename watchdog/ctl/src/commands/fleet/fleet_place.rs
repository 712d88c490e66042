use std::process::ExitCode;

use clap::Args;

use crate::args::memory;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::escape;
use watchdog_api::client::ControlClient;
use watchdog_api::{HostChoice, PlaceRequest};

pub(crate) const HELP: &str = "\
Picks two hosts with enough memory at random, and prints the one with more free memory. The second line is a ticket:
`watchdogctl launch --ticket T` on that host uses the reserved slot. The exit code is 75 if no host has enough memory or a
free slot.

Examples:
  watchdogctl fleet place --memory 1GiB
  watchdogctl fleet place --memory 1GiB --label gpu --json | jq -r .host";

/// What the launch needs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlacementNeeds {
    /// Expected memory of the session, such as 800MiB; default: [gate] expected_memory
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(super) memory: Option<u64>,
    /// Choose only hosts with this label ([fleet] labels); can be repeated
    #[arg(long, value_name = "L")]
    pub(super) label: Vec<String>,
    /// Also count against this profile's fleet_max_sessions
    #[arg(long, value_name = "P")]
    pub(super) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PlaceOptions {
    #[command(flatten)]
    needs: PlacementNeeds,
}

pub(super) fn run(
    client: &ControlClient,
    options: &PlaceOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let (placement, text) = request(client, &options.needs, None)?;
    if !placement.placed && !output.json {
        return Err(CtlError::RefusedForNow(placement.detail));
    }
    output.show(&text, |_| {
        let (host, ticket) = (placement.host.as_deref(), placement.ticket.as_deref());
        format!("{}\n{}\n", escape(host.unwrap_or_default()), escape(ticket.unwrap_or_default()))
    })?;
    Ok(ExitCode::from(if placement.placed { 0 } else { 75 }))
}

/// The daemon's response, and its JSON text.
pub(super) fn request(
    client: &ControlClient,
    needs: &PlacementNeeds,
    host: Option<&str>,
) -> Result<(HostChoice, String), CtlError> {
    let PlacementNeeds { memory, label, profile } = needs.clone();
    let request = PlaceRequest { memory_bytes: memory, labels: label, profile, host: host.map(str::to_owned) };
    let reply = client.post::<HostChoice>("/v1/fleet/place", &request)?;
    Ok((reply.document, reply.text))
}
