mod advice;
mod capacity;
mod host;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use clap_complete::ArgValueCandidates;
use serde::Serialize;

use self::advice::{Advice, host_advice, node_options, of_gate, of_protected};
use self::capacity::{CapacityPlan, HostCapacity, HostPlan, PlanRequest, plan};
use crate::args::memory;
use crate::completion;
use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::{Cell, Column, Style, Terminal, TextTable, count, escape, size, span};
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_api::{ProfileBounds, Queue, Status};

/// Memory of a session without --memory and --profile: the default of the daemon.
const DEFAULT_EXPECTED: u64 = 512 << 20;
const MIN_EXPECTED: u64 = 1 << 20;

pub(crate) const HELP: &str = "\
The memory of one agent is --memory, or the peak of the profile's past sessions, or 512 MiB. The free memory is what the
gate can grant; without a daemon it is the available memory less 10 %. Hosts of --hosts count as empty, less 10 %. The
heap of an agent is its share less 25 %, at least 160 MiB less. A leak starts when every agent uses its expected memory.
The exit code is 1 if not all agents fit.

Examples:
  watchdogctl plan
  watchdogctl plan --agents 20 --profile claude-code --leak 50MiB/h
  watchdogctl plan --agents 40 --memory 700MiB --hosts 15GiB,15GiB,5GiB";

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    /// Number of agents; default: as many as fit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    agents: Option<u64>,
    /// Use the peak memory of this profile's past sessions
    #[arg(long, value_name = "P", add = ArgValueCandidates::new(completion::profiles))]
    profile: Option<String>,
    /// Memory of one agent with its helpers, such as 700MiB
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    /// Growth of a leaking agent, such as 50MiB/m or 1GiB/h
    #[arg(long, value_name = "RATE", value_parser = rate)]
    leak: Option<u64>,
    /// Plan for empty hosts with this memory instead of this host
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = memory)]
    hosts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct PlanReport {
    /// Source of the free memory: `daemon`, `proc` or `hosts`.
    source: &'static str,
    profile: Option<String>,
    /// Memory of one agent.
    each_bytes: u64,
    /// Source of `each_bytes`: `given`, `learned`, `configured` or `default`.
    each_from: &'static str,
    #[serde(flatten)]
    plan: CapacityPlan,
    /// Part of the free memory that idle sessions can give back, on this host with its daemon.
    reclaimable_bytes: u64,
    /// NODE_OPTIONS for the smallest heap.
    node_options: Option<String>,
    /// Settings of this host; empty with --hosts.
    advice: Vec<Advice>,
}

/// Options from the words of a command line.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct PlanLine {
    #[command(flatten)]
    options: PlanOptions,
}

/// The document of `--json` for the words of a command line.
pub(crate) fn document(client: &ControlClient, words: &[String]) -> Result<String, CtlError> {
    let line = PlanLine::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        CtlError::Usage(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    Ok(serde_json::to_string(&answer(client, &line.options)?)?)
}

pub(crate) fn run(
    client: &ControlClient,
    options: &PlanOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let report = answer(client, options)?;
    output.show_value(&report, |terminal| render(&report, terminal))?;
    Ok(ExitCode::from(u8::from(!report.plan.is_possible())))
}

fn answer(client: &ControlClient, options: &PlanOptions) -> Result<PlanReport, CtlError> {
    let gate = match query_gate(client) {
        Ok(gate) => Some(gate),
        Err(error) => {
            let why = CtlError::from(error).summary();
            print_error(&format!("watchdogctl: planning without a daemon: {}\n", escape(&why)));
            None
        }
    };
    let profile = profile(options.profile.as_deref(), gate.as_ref().map(|(queue, _)| queue))?;
    let (source, hosts) = capacities(options, gate.as_ref())?;
    let mut report = report(options, profile, source, &hosts);
    if let Some((queue, status)) = gate.as_ref().filter(|_| source == "daemon") {
        report.advice.extend(of_protected(&status.users));
        report.advice.extend(of_gate(report.plan.agents, &queue.breaker, profile));
        report.reclaimable_bytes = queue.room.reclaimable_bytes;
    }
    Ok(report)
}

fn query_gate(client: &ControlClient) -> Result<(Queue, Status), ClientError> {
    let queue = client.get("/v1/queue")?.document;
    Ok((queue, client.get("/v1/status")?.document))
}

fn profile<'q>(name: Option<&str>, queue: Option<&'q Queue>) -> Result<Option<&'q ProfileBounds>, CtlError> {
    let (Some(name), Some(queue)) = (name, queue) else { return Ok(None) };
    let found = queue.profiles.iter().find(|profile| profile.name == name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = queue.profiles.iter().map(|profile| profile.name.as_str()).collect();
        CtlError::Usage(format!("no profile {name}; configured profiles: {}", names.join(", ")))
    })
}

fn capacities(
    options: &PlanOptions,
    gate: Option<&(Queue, Status)>,
) -> Result<(&'static str, Vec<HostCapacity>), CtlError> {
    if !options.hosts.is_empty() {
        let name = |i: usize| format!("host {}", i + 1);
        let hosts = options.hosts.iter().enumerate().map(|(i, &total)| host::empty(name(i), total));
        return Ok(("hosts", hosts.collect()));
    }
    if let Some((queue, status)) = gate {
        let total = status.host.memory_total_bytes;
        return Ok(("daemon", vec![HostCapacity { name: "this host".into(), total, free: room(queue).min(total) }]));
    }
    let this = host::this_host().map_err(|error| CtlError::Failed(error.to_string()))?;
    Ok(("proc", vec![this]))
}

/// Headroom, with what idle sessions can give back.
const fn room(queue: &Queue) -> u64 {
    queue.room.free_bytes.saturating_add(queue.room.reclaimable_bytes)
}

fn report(
    options: &PlanOptions,
    profile: Option<&ProfileBounds>,
    source: &'static str,
    hosts: &[HostCapacity],
) -> PlanReport {
    let (each, each_from) = match (options.memory, profile) {
        (Some(given), _) => (given, "given"),
        (None, Some(profile)) if profile.learned_from > 0 => (profile.expected_bytes, "learned"),
        (None, Some(profile)) => (profile.expected_bytes, "configured"),
        (None, None) => (DEFAULT_EXPECTED, "default"),
    };
    let each = each.max(MIN_EXPECTED);
    let limit = profile.and_then(|profile| profile.max_memory_bytes);
    let plan = plan(hosts, &PlanRequest { agents: options.agents, each, leak: options.leak, limit });
    let advice = match plan.hosts.as_slice() {
        [this] if source != "hosts" => host_advice(this, each, &host::settings()),
        _ => Vec::new(),
    };
    let heaps: Option<Vec<u64>> =
        plan.hosts.iter().filter(|host| host.agents > 0).map(|host| host.heap_bytes).collect();
    let node_options = heaps.and_then(|heaps| heaps.into_iter().min()).map(node_options);
    PlanReport {
        source,
        profile: options.profile.clone(),
        each_bytes: each,
        each_from,
        plan,
        reclaimable_bytes: 0,
        node_options,
        advice,
    }
}

fn render(report: &PlanReport, terminal: &Terminal) -> String {
    let plan = &report.plan;
    let fit = count(plan.fits, "agent fits", "agents fit");
    let each = format!("{} each ({})", size(report.each_bytes), report.each_from);
    let verdict = match plan.wanted {
        Some(wanted) if !plan.is_possible() => {
            terminal.paint(Style::Bad, format!("no: {fit} of {wanted}; {each}")).into_owned()
        }
        Some(wanted) => terminal.paint(Style::Good, format!("yes: {fit}, {wanted} requested; {each}")).into_owned(),
        None => format!("{fit}; {each}"),
    };
    let mut out = format!("{verdict}\n\n{}", hosts(report, terminal));
    if report.reclaimable_bytes > 0 {
        out += &format!("\nidle sessions can give back {} of FREE\n", size(report.reclaimable_bytes));
    }
    if let Some(options) = &report.node_options {
        out += &format!("\nset for each agent: NODE_OPTIONS={options}\n");
    }
    if !report.advice.is_empty() {
        out.push('\n');
        out += &settings(&report.advice, terminal);
    }
    out
}

fn hosts(report: &PlanReport, terminal: &Terminal) -> String {
    let mut columns = vec![
        Column::left("HOST"),
        Column::right("MEMORY"),
        Column::right("FREE"),
        Column::right("FIT"),
        Column::right("AGENTS"),
        Column::right("SHARE"),
        Column::right("HEAP"),
    ];
    let leaks = report.plan.hosts.iter().any(|host| host.leak.is_some());
    if leaks {
        columns.extend([Column::right("ONE LEAKS"), Column::right("ALL LEAK"), Column::right("LIMIT")]);
    }
    let mut table = TextTable::new(0, columns);
    for host in &report.plan.hosts {
        let mut row = vec![
            Cell::new(&host.name),
            Cell::new(size(host.total_bytes)),
            Cell::new(size(host.room_bytes)),
            Cell::new(host.fits.to_string()),
            Cell::new(host.agents.to_string()),
            Cell::new(size(host.share_bytes)),
            Cell::new(host.heap_bytes.map_or_else(|| "-".into(), size)),
        ];
        if leaks {
            row.extend(exhaustion(host));
        }
        table.row(row);
    }
    table.render(terminal)
}

/// Time until memory or the limit is exhausted.
fn exhaustion(host: &HostPlan) -> [Cell; 3] {
    let after = |seconds: Option<f64>| {
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Cell::new(time.map_or_else(|| "-".into(), span))
    };
    let leak = host.leak;
    [
        after(leak.map(|leak| leak.one_leaks_seconds)),
        after(leak.map(|leak| leak.all_leak_seconds)),
        after(leak.and_then(|leak| leak.bound_seconds)),
    ]
}

fn settings(advice: &[Advice], terminal: &Terminal) -> String {
    // The end of a line is the fix, which must not be cut.
    let terminal = &Terminal { width: None, ..terminal.clone() };
    let mut table = TextTable::new(0, vec![Column::left(""), Column::left(""), Column::left("")]);
    for Advice { about, ok, text } in advice {
        let mark = if *ok { Cell::new("ok").style(Style::Good) } else { Cell::new("warn").style(Style::Warn) };
        table.row(vec![mark, Cell::new(about), Cell::new(text)]);
    }
    table.render(terminal)
}

/// `50MiB/m`, in bytes per hour.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size per s, m, h or d, such as 50MiB/m or 1GiB/h".to_owned();
    let (amount, unit) = text.split_once('/').ok_or_else(wrong)?;
    let amount = memory(amount).map_err(|_| wrong())?;
    let rate = match unit {
        "s" => amount.checked_mul(3_600),
        "m" => amount.checked_mul(60),
        "h" => Some(amount),
        "d" => Some(amount / 24),
        _ => None,
    };
    rate.ok_or_else(wrong)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
