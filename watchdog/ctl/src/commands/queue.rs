use clap::Args;

use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Cell, Column, Style, Terminal, TextTable, escape, size};
use watchdog_api::client::ControlClient;
use watchdog_api::{Breaker, Cancel, Cancelled, Headroom, Lease, Queue, RefusedLaunch, Waiter};

pub(crate) const HELP: &str = "\
Waiting launches are listed in the order in which they will be served. EXPECTED is the memory that is reserved for a
launch. Non-root users see only totals of other users' launches.

Examples:
  watchdogctl queue
  watchdogctl queue --cancel 41231
  watchdogctl queue --json | jq '.room.free_bytes'";

#[derive(Debug, Args)]
pub(crate) struct QueueOptions {
    /// Cancel the waiting launch of this process; it exits with 75
    #[arg(long, value_name = "PID")]
    cancel: Option<u32>,
}

/// Refused launches in text. JSON has all.
const MAX_REFUSED: usize = 10;

pub(crate) fn run(
    client: &ControlClient,
    options: &QueueOptions,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    if let Some(pid) = options.cancel {
        let reply = client.post::<Cancelled>("/v1/queue/cancel", &Cancel { pid })?;
        return output.show(&reply.text, |_| format!("cancelled the launch of process {}\n", reply.document.pid));
    }
    let reply = client.get::<Queue>("/v1/queue")?;
    output.show(&reply.text, |terminal| render(&reply.document, terminal))
}

fn render(queue: &Queue, terminal: &Terminal) -> String {
    let mut parts = vec![head(queue, terminal)];
    if !queue.waiting.is_empty() {
        parts.push(waiting(&queue.waiting, terminal));
    }
    if !queue.leases.is_empty() {
        parts.push(leases(&queue.leases, terminal));
    }
    if !queue.refused.is_empty() {
        parts.push(refused(&queue.refused, terminal));
    }
    parts.join("\n")
}

fn head(queue: &Queue, terminal: &Terminal) -> String {
    let (waiting, leases) = (queue.waiting.len(), queue.leases.len());
    let room = room(&queue.room);
    let head = format!(
        "{waiting} waiting, {leases} launched and running\nfree: {room}\n{}\n",
        breaker(&queue.breaker, terminal)
    );
    terminal.fit(&head)
}

fn room(room: &Headroom) -> String {
    let Headroom { available_bytes, swap_bytes, reserve_bytes, promised_bytes, free_bytes, reclaimable_bytes } = room;
    let (available, reserve) = (size(*available_bytes), size(*reserve_bytes));
    let swap = if *swap_bytes > 0 { format!(", including {} swap", size(*swap_bytes)) } else { String::new() };
    let idle = match reclaimable_bytes {
        0 => String::new(),
        idle => format!("; idle sessions can give back {}", size(*idle)),
    };
    format!(
        "{} ({available} available{swap} - {reserve} reserve - {} committed){idle}",
        size(*free_bytes),
        size(*promised_bytes)
    )
}

fn breaker(breaker: &Breaker, terminal: &Terminal) -> String {
    if !breaker.open {
        return "breaker: closed".into();
    }
    let since = breaker.since.as_deref().map_or_else(String::new, |since| format!(" for {}", terminal.age(since)));
    terminal.paint(Style::Bad, format!("breaker: open{since}: {}", escape(&breaker.detail))).into_owned()
}

fn waiting(waiters: &[Waiter], terminal: &Terminal) -> String {
    let mut table = TextTable::new(
        0,
        vec![
            Column::right("POSITION"),
            Column::right("PID"),
            Column::left("USER"),
            Column::left("PROFILE"),
            Column::right("PRIORITY"),
            Column::right("WAITED"),
            Column::right("EXPECTED"),
            Column::left("WAITS FOR"),
        ],
    );
    for waiter in waiters {
        let away = if waiter.away { " (its client is disconnected)" } else { "" };
        table.row(vec![
            Cell::new(waiter.position.to_string()),
            Cell::new(waiter.pid.to_string()),
            Cell::new(&waiter.user),
            Cell::new(&waiter.profile),
            Cell::new(waiter.priority.to_string()),
            Cell::new(terminal.age(&waiter.queued_at)),
            Cell::new(size(waiter.memory_bytes)),
            Cell::new(format!("{}{away}", waiter.detail)),
        ]);
    }
    table.render(terminal)
}

fn leases(leases: &[Lease], terminal: &Terminal) -> String {
    let mut table = TextTable::new(
        0,
        vec![
            Column::right("SESSION"),
            Column::right("PID"),
            Column::left("USER"),
            Column::left("PROFILE"),
            Column::right("LAUNCHED"),
            Column::right("MEMORY"),
            Column::right("EXPECTED"),
            Column::right("COMMITTED"),
        ],
    );
    for lease in leases {
        table.row(vec![
            Cell::new(lease.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(lease.pid.to_string()),
            Cell::new(&lease.user),
            Cell::new(&lease.profile),
            Cell::new(terminal.age(&lease.granted_at)),
            Cell::new(size(lease.memory_bytes)),
            Cell::new(size(lease.expected_bytes)),
            Cell::new(size(lease.promised_bytes)),
        ]);
    }
    table.render(terminal)
}

fn refused(launches: &[RefusedLaunch], terminal: &Terminal) -> String {
    let mut table = TextTable::new(
        0,
        vec![
            Column::right("REFUSED"),
            Column::right("PID"),
            Column::left("USER"),
            Column::left("PROFILE"),
            Column::left("REASON"),
            Column::left("DETAIL"),
        ],
    );
    for launch in launches.iter().take(MAX_REFUSED) {
        table.row(vec![
            Cell::new(terminal.age(&launch.at)),
            Cell::new(launch.pid.to_string()),
            Cell::new(&launch.user),
            Cell::new(&launch.profile),
            Cell::new(launch.reason.name()).style(Style::Warn),
            Cell::new(&launch.detail),
        ]);
    }
    if launches.len() > MAX_REFUSED {
        table.note(format!("and {} more\n", launches.len() - MAX_REFUSED));
    }
    table.render(terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::busy_queue;
    use crate::render::testing::plain;

    #[test]
    fn busy_gate_has_three_tables() {
        insta::assert_snapshot!(render(&busy_queue(), &plain()), @r"
        1 waiting, 1 launched and running
        free: 1.8 GiB (3.0 GiB available - 1.0 GiB reserve - 188 MiB committed)
        breaker: open for 1m: 83 % of the memory is in use

        POSITION   PID  USER  PROFILE      PRIORITY  WAITED  EXPECTED  WAITS FOR
               1  5001  ada   claude-code         5     42s   700 MiB  1 of 1 sessions run (its client is disconnected)

        SESSION    PID  USER  PROFILE      LAUNCHED   MEMORY  EXPECTED  COMMITTED
              3  41230  ada   claude-code        1h  512 MiB   700 MiB    188 MiB

        REFUSED   PID  USER          PROFILE  REASON  DETAIL
             2m  4999  eve\u{1b}[2J  codex    rate    2 of 2 within 5m
        ");
    }

    #[test]
    fn idle_gate_has_only_totals() {
        insta::assert_snapshot!(render(&Queue::default(), &plain()), @r"
        0 waiting, 0 launched and running
        free: 0 (0 available - 0 reserve - 0 committed)
        breaker: closed
        ");
    }
}
