//! `watchdogctl fleet`: the hosts that share limits, and launches on other hosts.

mod fleet_place;
mod fleet_run;
mod remote_command;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::fleet_place::PlaceOptions;
use self::fleet_run::RemoteRunOptions;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{
    Cell, Column, Style, Terminal, TextTable, escape, fleet_size, fleet_store, host_state, last_seen, pool_holders,
    size,
};
use watchdog_api::client::ControlClient;
use watchdog_api::{Fleet, FleetHost, FleetPool, HostState};

pub(crate) const HELP: &str = "\
Hosts with the same [fleet] store share limits. An unreachable host stays in the list for an hour with its last state; its
sessions count until [fleet] ttl has passed.

Examples:
  watchdogctl fleet
  watchdogctl fleet --json | jq '.hosts[] | {host, state, agents}'
  watchdogctl fleet place --memory 1GiB --label gpu
  watchdogctl fleet run auto -- claude -p 'fix it'";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FleetOptions {
    #[command(subcommand)]
    command: Option<FleetCommand>,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Choose a host for a launch, reserve a slot on it for 20 seconds, and print its name
    #[command(after_help = fleet_place::HELP)]
    Place(PlaceOptions),
    /// Launch a command through the gate of another host, over ssh
    #[command(after_help = fleet_run::HELP)]
    Run(RemoteRunOptions),
}

pub(crate) fn run(
    client: &ControlClient,
    options: &FleetOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    match &options.command {
        None => {
            let reply = client.get::<Fleet>("/v1/fleet")?;
            output.show(&reply.text, |terminal| render(&reply.document, terminal))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(FleetCommand::Place(options)) => fleet_place::run(client, options, output),
        Some(FleetCommand::Run(options)) => fleet_run::run(client, options, output),
    }
}

fn render(fleet: &Fleet, terminal: &Terminal) -> String {
    let mut text = head(fleet, terminal);
    if !fleet.hosts.is_empty() {
        text += &format!("\n{}", hosts(&fleet.hosts, terminal));
    }
    if !fleet.pools.is_empty() {
        text += &format!("\n{}", pools(&fleet.pools, terminal));
    }
    text
}

fn head(fleet: &Fleet, terminal: &Terminal) -> String {
    let (style, store) = fleet_store(fleet, terminal.now);
    let store = if style == Style::Good { store } else { terminal.paint(style, store).into_owned() };
    format!("{store}\n{}; this host is {}\n", fleet_size(fleet), escape(&fleet.this_host))
}

fn hosts(hosts: &[FleetHost], terminal: &Terminal) -> String {
    let labelled = hosts.iter().any(|host| !host.labels.is_empty());
    let mut table = TextTable::new(
        0,
        vec![
            Column::left("HOST"),
            Column::left("STATE"),
            Column::right("AGENTS"),
            Column::right("WAITING"),
            Column::right("FINDINGS"),
            Column::right("FREE"),
            Column::right("PSI"),
            Column::left(if labelled { "LABELS" } else { "" }),
        ],
    );
    for host in hosts {
        let state = match (host_state(host), host.state) {
            ((style, _), HostState::Unreachable) => Cell::new(format!("last seen {}", last_seen(host))).style(style),
            ((style, state), HostState::Up) => Cell::new(state).style(style),
        };
        table.row(vec![
            Cell::new(&host.host),
            state,
            Cell::new(host.agents.to_string()),
            Cell::new(host.waiting.to_string()),
            Cell::new(host.findings.to_string()),
            Cell::new(size(host.memory_free_bytes)),
            Cell::new(host.pressure_some_avg10.map_or_else(|| "-".into(), |pressure| format!("{pressure:.1}%"))),
            Cell::new(host.labels.join(" ")),
        ]);
    }
    table.render(terminal)
}

fn pools(pools: &[FleetPool], terminal: &Terminal) -> String {
    let columns = vec![Column::left("POOL"), Column::right("HELD"), Column::right("LIMIT"), Column::left("BY HOST")];
    let mut table = TextTable::new(0, columns);
    for pool in pools {
        let full = pool.limit.is_some_and(|limit| pool.held >= limit);
        let held = Cell::new(pool.held.to_string());
        table.row(vec![
            Cell::new(&pool.name),
            if full { held.style(Style::Warn) } else { held },
            Cell::new(pool.limit.map_or_else(|| "-".into(), |limit| limit.to_string())),
            Cell::new(pool_holders(&pool.by_host)),
        ]);
    }
    table.render(terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::{fleet, narrow, plain};
    use watchdog_api::StoreState;

    #[test]
    fn unreachable_host_is_a_row() {
        insta::assert_snapshot!(render(&fleet(), &plain()), @r"
        store: up at redis://10.0.0.5
        3 hosts, 1 unreachable; this host is host-a

        HOST             STATE          AGENTS  WAITING  FINDINGS     FREE   PSI  LABELS
        host-a           up                 40        3         1  3.0 GiB  0.2%  eu gpu
        host-b\u{1b}[2J  last seen 40s      40        3         1  3.0 GiB  0.2%  eu gpu
        host-c           breaker open       40        3         1  3.0 GiB     -  eu gpu

        POOL       HELD  LIMIT  BY HOST
        all         100    100  host-c 60, host-a 40
        user:1000     1      -  host-a 1
        ");
    }

    #[test]
    fn lost_store_names_the_policy() {
        let lost = Fleet {
            store: StoreState::Lost,
            problem: Some("connection refused".into()),
            lost_at: Some("2026-01-02T11:59:00Z".into()),
            hosts: Vec::new(),
            pools: Vec::new(),
            ..fleet()
        };
        insta::assert_snapshot!(render(&lost, &plain()), @r"
        store: lost for 1m at redis://10.0.0.5: connection refused; launches: up to this host's share
        0 hosts; this host is host-a
        ");
    }

    #[test]
    fn twelve_hosts_fit_eighty_columns() {
        let states = [HostState::Up, HostState::Unreachable];
        let hosts = (0..12).map(|number| FleetHost {
            breaker_open: number == 3,
            pressure_some_avg10: Some(99.9),
            memory_free_bytes: 900 << 30,
            labels: Vec::new(),
            host: format!("ip-10-0-0-{number:02}-a1b2c3"),
            state: states[number % 2],
            last_seen_seconds: 3_599.0,
            ..fleet().hosts[0].clone()
        });
        let by_host = (0..4).map(|number| (format!("ip-10-0-0-{number:02}-a1b2c3"), 25)).collect();
        let pool = FleetPool { name: "profile:claude-code".into(), limit: Some(100), held: 100, by_host };
        let fleet = Fleet { hosts: hosts.collect(), pools: vec![pool], ..fleet() };
        let text = render(&fleet, &narrow(80));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 80), "{widest:?}\n{text}");
    }
}
