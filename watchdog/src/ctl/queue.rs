//! `watchdogctl queue`: who waits, who runs, who was refused, and what there is.

use clap::Args;

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Cell, Column, Ink, Screen, Table, age, size, span, visible};
use crate::api::{Breaker, Cancel, Cancelled, Lease, Queue, RefusedLaunch, Room, Waiter};

pub(super) const HELP: &str = "\
Those who wait stand in the order in which they will be served. EXPECTED is what is set aside for a launch. Of other
users' launches only root sees more than the numbers.

Examples:
  watchdogctl queue
  watchdogctl queue --cancel 41231
  watchdogctl queue --json | jq '.room.free_bytes'";

/// What to do with the queue.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Takes the launch of this process out of the queue; it ends with exit code 75
    #[arg(long, value_name = "PID")]
    cancel: Option<u32>,
}

/// Refused launches that are shown.
const SHOWN: usize = 10;

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<(), Failure> {
    if let Some(pid) = options.cancel {
        let answer = client.post::<Cancelled>("/v1/queue/cancel", &Cancel { pid }).await?;
        return output.show(&answer.text, |_| format!("process {} waits no longer\n", answer.document.pid));
    }
    let answer = client.get::<Queue>("/v1/queue").await?;
    output.show(&answer.text, |screen| render(&answer.document, screen))
}

fn render(queue: &Queue, screen: &Screen) -> String {
    let mut parts = vec![head(queue, screen)];
    if !queue.waiting.is_empty() {
        parts.push(waiting(&queue.waiting, screen));
    }
    if !queue.leases.is_empty() {
        parts.push(leases(&queue.leases, screen));
    }
    if !queue.refused.is_empty() {
        parts.push(refused(&queue.refused, screen));
    }
    parts.join("\n")
}

fn head(queue: &Queue, screen: &Screen) -> String {
    let (waiting, leases) = (queue.waiting.len(), queue.leases.len());
    let room = room(&queue.room);
    format!("{waiting} waiting, {leases} launched and running\nroom: {room}\n{}\n", breaker(&queue.breaker, screen))
}

/// What is left, and of what.
pub(super) fn room(room: &Room) -> String {
    let Room { available_bytes, swap_bytes, reserve_bytes, promised_bytes, free_bytes } = room;
    let (available, reserve) = (size(*available_bytes), size(*reserve_bytes));
    let swap = if *swap_bytes > 0 { format!(", {} of it swap", size(*swap_bytes)) } else { String::new() };
    format!(
        "{} ({available} available{swap}, {reserve} kept free, {} promised)",
        size(*free_bytes),
        size(*promised_bytes)
    )
}

/// Whether it is open, since when, and why.
pub(super) fn breaker(breaker: &Breaker, screen: &Screen) -> String {
    if !breaker.open {
        return "breaker: closed".into();
    }
    let since = breaker.since.as_deref().map_or_else(String::new, |since| format!(" for {}", ago(since, screen)));
    screen.paint(Ink::Bad, format!("breaker: open{since}: {}", visible(&breaker.detail))).into_owned()
}

fn waiting(waiters: &[Waiter], screen: &Screen) -> String {
    let mut table = Table::new(
        0,
        vec![
            Column::right("PLACE"),
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
        let away = if waiter.away { " (its client has not come back yet)" } else { "" };
        table.row(vec![
            Cell::new(waiter.position.to_string()),
            Cell::new(waiter.pid.to_string()),
            Cell::new(&waiter.user),
            Cell::new(&waiter.profile),
            Cell::new(waiter.priority.to_string()),
            Cell::new(ago(&waiter.queued_at, screen)),
            Cell::new(size(waiter.memory_bytes)),
            Cell::new(format!("{}{away}", waiter.detail)),
        ]);
    }
    table.render(screen)
}

fn leases(leases: &[Lease], screen: &Screen) -> String {
    let mut table = Table::new(
        0,
        vec![
            Column::right("SESSION"),
            Column::right("PID"),
            Column::left("USER"),
            Column::left("PROFILE"),
            Column::right("LAUNCHED"),
            Column::right("MEMORY"),
            Column::right("EXPECTED"),
            Column::right("PROMISED"),
        ],
    );
    for lease in leases {
        table.row(vec![
            Cell::new(lease.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(lease.pid.to_string()),
            Cell::new(&lease.user),
            Cell::new(&lease.profile),
            Cell::new(ago(&lease.granted_at, screen)),
            Cell::new(size(lease.memory_bytes)),
            Cell::new(size(lease.expected_bytes)),
            Cell::new(size(lease.promised_bytes)),
        ]);
    }
    table.render(screen)
}

fn refused(launches: &[RefusedLaunch], screen: &Screen) -> String {
    let mut table = Table::new(
        0,
        vec![
            Column::right("REFUSED"),
            Column::right("PID"),
            Column::left("USER"),
            Column::left("PROFILE"),
            Column::left("REASON"),
            Column::left("BECAUSE"),
        ],
    );
    for launch in launches.iter().take(SHOWN) {
        table.row(vec![
            Cell::new(ago(&launch.at, screen)),
            Cell::new(launch.pid.to_string()),
            Cell::new(&launch.user),
            Cell::new(&launch.profile),
            Cell::new(launch.reason.name()).ink(Ink::Warn),
            Cell::new(&launch.detail),
        ]);
    }
    if launches.len() > SHOWN {
        table.note(format!("and {} more\n", launches.len() - SHOWN));
    }
    table.render(screen)
}

/// How long ago; what is no moment is shown as it came.
fn ago(moment: &str, screen: &Screen) -> String {
    age(moment, screen.now).map_or_else(|| visible(moment).into_owned(), span)
}

#[cfg(test)]
pub(super) mod testing {
    //! A gate with one of everything.

    use crate::api::{Breaker, Lease, ProfileBounds, Queue, RefusalReason, RefusedLaunch, Room, Waiter};

    pub(in crate::ctl) fn busy() -> Queue {
        Queue {
            waiting: vec![Waiter {
                position: 1,
                pid: 5001,
                start_time: 9,
                user: "ada".into(),
                uid: 1000,
                profile: "claude-code".into(),
                priority: 5,
                queued_at: "2026-01-02T11:59:18Z".into(),
                waited_seconds: 42.0,
                reason: RefusalReason::Quota,
                detail: "1 of 1 sessions run".into(),
                memory_bytes: 700 << 20,
                away: true,
            }],
            leases: vec![Lease {
                session: Some(3),
                pid: 41230,
                start_time: 7,
                user: "ada".into(),
                uid: 1000,
                profile: "claude-code".into(),
                granted_at: "2026-01-02T11:00:00Z".into(),
                expected_bytes: 700 << 20,
                promised_bytes: 188 << 20,
                memory_bytes: 512 << 20,
            }],
            refused: vec![RefusedLaunch {
                at: "2026-01-02T11:58:00Z".into(),
                pid: 4999,
                user: "eve\x1b[2J".into(),
                uid: 1001,
                profile: "codex".into(),
                reason: RefusalReason::Rate,
                detail: "2 of 2 within 5m".into(),
            }],
            breaker: Breaker {
                open: true,
                since: Some("2026-01-02T11:59:00Z".into()),
                detail: "83 % of the memory is in use".into(),
            },
            room: Room {
                available_bytes: 3 << 30,
                swap_bytes: 0,
                reserve_bytes: 1 << 30,
                promised_bytes: 188 << 20,
                free_bytes: (2 << 30) - (188 << 20),
            },
            profiles: vec![ProfileBounds {
                name: "claude-code".into(),
                running: 1,
                max_sessions: Some(1),
                expected_bytes: 700 << 20,
                learned_from: 12,
                max_memory_bytes: Some(2 << 30),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::plain;
    use super::testing::busy;
    use super::*;

    #[test]
    fn a_busy_gate() {
        insta::assert_snapshot!(render(&busy(), &plain()), @r"
        1 waiting, 1 launched and running
        room: 1.8 GiB (3.0 GiB available, 1.0 GiB kept free, 188 MiB promised)
        breaker: open for 1m: 83 % of the memory is in use

        PLACE   PID  USER  PROFILE      PRIORITY  WAITED  EXPECTED  WAITS FOR
            1  5001  ada   claude-code         5     42s   700 MiB  1 of 1 sessions run (its client has not come back yet)

        SESSION    PID  USER  PROFILE      LAUNCHED   MEMORY  EXPECTED  PROMISED
              3  41230  ada   claude-code        1h  512 MiB   700 MiB   188 MiB

        REFUSED   PID  USER          PROFILE  REASON  BECAUSE
             2m  4999  eve\u{1b}[2J  codex    rate    2 of 2 within 5m
        ");
    }

    #[test]
    fn a_gate_at_rest() {
        insta::assert_snapshot!(render(&Queue::default(), &plain()), @r"
        0 waiting, 0 launched and running
        room: 0 (0 available, 0 kept free, 0 promised)
        breaker: closed
        ");
    }
}
