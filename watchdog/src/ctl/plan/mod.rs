//! `watchdogctl plan`: how many agents fit, what each gets, and when a leak ends it.

mod advice;
mod host;
mod sums;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::advice::{Advice, advise, node_options, of_gate};
use self::sums::{Place, Plan, Share, Wish, plan};
use super::cli::memory;
use super::client::Client;
use super::failure::Failure;
use super::output::{Output, complain};
use super::show::{Cell, Column, Ink, Screen, Table, count, size, span, visible};
use crate::api::{ProfileBounds, Queue, Status};

/// What a session is expected to take where nothing says more, as by default.
const EXPECTED: u64 = 512 << 20;
/// Less is no agent.
const LEAST: u64 = 1 << 20;

pub(super) const HELP: &str = "\
What one agent takes is --memory, or what the profile's past sessions peaked at, or 512MiB. The room is what the gate
would grant from; without a daemon it is what is available less 10 %; of --hosts, which are taken to be empty, it is all
but 10 %. A heap gets its share less what is not heap: a quarter, 160 MiB at least. A leak is counted from the moment at
which every agent has what it is expected to take. The exit code is 1 when not all fit.

Examples:
  watchdogctl plan
  watchdogctl plan --agents 20 --profile claude-code --leak 50MiB/h
  watchdogctl plan --agents 40 --memory 700MiB --hosts 15GiB,15GiB,5GiB";

/// What is planned.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// So many agents; otherwise as many as fit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    agents: Option<u64>,
    /// Agents of this profile: what its past sessions peaked at is used
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// What one agent takes with its helpers, such as 700MiB
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    /// How fast one agent leaks, such as 50MiB/m or 1GiB/h
    #[arg(long, value_name = "RATE", value_parser = rate)]
    leak: Option<u64>,
    /// Hosts with so much memory, instead of this one
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = memory)]
    hosts: Vec<u64>,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Report {
    /// Where the room comes from: `daemon`, `proc` or `hosts`.
    source: &'static str,
    profile: Option<String>,
    /// What one agent takes.
    each_bytes: u64,
    /// Where that comes from: `given`, `learned`, `configured` or `default`.
    each_from: &'static str,
    #[serde(flatten)]
    plan: Plan,
    /// NODE_OPTIONS for the smallest heap.
    node_options: Option<String>,
    /// What this host is set to; empty with --hosts.
    advice: Vec<Advice>,
}

pub(super) fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    let asked = super::wait(async {
        let queue = client.get::<Queue>("/v1/queue").await?.document;
        let status = client.get::<Status>("/v1/status").await?.document;
        Ok((queue, status))
    });
    let gate = match asked {
        Ok(gate) => Some(gate),
        Err(failure) => {
            let why = failure.to_string();
            let why = why.lines().next().unwrap_or_default();
            complain(&format!("watchdogctl: planned without a daemon: {}\n", visible(why)));
            None
        }
    };
    let profile = profile(options.profile.as_deref(), gate.as_ref().map(|(queue, _)| queue))?;
    let (source, places) = places(options, gate.as_ref())?;
    let mut report = report(options, profile, source, &places);
    if let Some((queue, _)) = gate.as_ref().filter(|_| source == "daemon") {
        report.advice.extend(of_gate(report.plan.agents, &queue.breaker, profile));
    }
    let document = serde_json::to_string(&report).map_err(|error| Failure::No(error.to_string()))?;
    output.show(&document, |screen| render(&report, screen))?;
    Ok(ExitCode::from(u8::from(!report.plan.is_possible())))
}

/// What is known of a profile that was named.
fn profile<'q>(name: Option<&str>, queue: Option<&'q Queue>) -> Result<Option<&'q ProfileBounds>, Failure> {
    let (Some(name), Some(queue)) = (name, queue) else { return Ok(None) };
    let found = queue.profiles.iter().find(|profile| profile.name == name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = queue.profiles.iter().map(|profile| profile.name.as_str()).collect();
        Failure::Usage(format!("no profile {name} is configured: there are {}", names.join(", ")))
    })
}

fn places(options: &Options, gate: Option<&(Queue, Status)>) -> Result<(&'static str, Vec<Place>), Failure> {
    if !options.hosts.is_empty() {
        let name = |i: usize| format!("host {}", i + 1);
        let hosts = options.hosts.iter().enumerate().map(|(i, &total)| host::empty(name(i), total));
        return Ok(("hosts", hosts.collect()));
    }
    if let Some((queue, status)) = gate {
        let total = status.host.memory_total_bytes;
        return Ok(("daemon", vec![Place { name: "this host".into(), total, room: queue.room.free_bytes.min(total) }]));
    }
    let this = host::this_host().map_err(|error| Failure::No(error.to_string()))?;
    Ok(("proc", vec![this]))
}

fn report(options: &Options, profile: Option<&ProfileBounds>, source: &'static str, places: &[Place]) -> Report {
    let (each, each_from) = match (options.memory, profile) {
        (Some(given), _) => (given, "given"),
        (None, Some(profile)) if profile.learned_from > 0 => (profile.expected_bytes, "learned"),
        (None, Some(profile)) => (profile.expected_bytes, "configured"),
        (None, None) => (EXPECTED, "default"),
    };
    let each = each.max(LEAST);
    let bound = profile.and_then(|profile| profile.max_memory_bytes);
    let plan = plan(places, &Wish { agents: options.agents, each, leak: options.leak, bound });
    let advice = match plan.hosts.as_slice() {
        [this] if source != "hosts" => advise(this, each, &host::settings()),
        _ => Vec::new(),
    };
    let heaps: Option<Vec<u64>> =
        plan.hosts.iter().filter(|host| host.agents > 0).map(|host| host.heap_bytes).collect();
    let node_options = heaps.and_then(|heaps| heaps.into_iter().min()).map(node_options);
    Report { source, profile: options.profile.clone(), each_bytes: each, each_from, plan, node_options, advice }
}

fn render(report: &Report, screen: &Screen) -> String {
    let plan = &report.plan;
    let fit = count(plan.fits, "agent fits", "agents fit");
    let each = format!("{} each ({})", size(report.each_bytes), report.each_from);
    let verdict = match plan.wanted {
        Some(wanted) if !plan.is_possible() => {
            screen.paint(Ink::Bad, format!("no: {fit}, and {wanted} are wanted; {each}")).into_owned()
        }
        Some(wanted) => screen.paint(Ink::Good, format!("yes: {fit}, and {wanted} are wanted; {each}")).into_owned(),
        None => format!("{fit}, {each}"),
    };
    let mut out = format!("{verdict}\n\n{}", hosts(report, screen));
    if let Some(options) = &report.node_options {
        out += &format!("\nset for each: NODE_OPTIONS={options}\n");
    }
    if !report.advice.is_empty() {
        out.push('\n');
        out += &settings(&report.advice, screen);
    }
    out
}

fn hosts(report: &Report, screen: &Screen) -> String {
    let mut columns = vec![
        Column::left("HOST"),
        Column::right("MEMORY"),
        Column::right("ROOM"),
        Column::right("FIT"),
        Column::right("AGENTS"),
        Column::right("SHARE"),
        Column::right("HEAP"),
    ];
    let leaks = report.plan.hosts.iter().any(|host| host.leak.is_some());
    if leaks {
        columns.extend([Column::right("ONE LEAKS"), Column::right("ALL LEAK"), Column::right("BOUND")]);
    }
    let mut table = Table::new(0, columns);
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
            row.extend(ends(host));
        }
        table.row(row);
    }
    table.render(screen)
}

/// After what time it is over.
fn ends(host: &Share) -> [Cell; 3] {
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

fn settings(advice: &[Advice], screen: &Screen) -> String {
    // Nothing is cut off: the end of a line says what to do.
    let screen = &Screen { width: None, ..screen.clone() };
    let mut table = Table::new(0, vec![Column::left(""), Column::left(""), Column::left("")]);
    for Advice { about, ok, text } in advice {
        let mark = if *ok { Cell::new("ok").ink(Ink::Good) } else { Cell::new("off").ink(Ink::Warn) };
        table.row(vec![mark, Cell::new(about), Cell::new(text)]);
    }
    table.render(screen)
}

/// `50MiB/m`, in bytes per hour.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "a rate is a size and a time, as in 50MiB/m or 1GiB/h; s, m, h and d are allowed".to_owned();
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
