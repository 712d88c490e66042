//! `watchdogctl status`: how the daemon and its host are, in a dozen lines.

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Ink, Screen, age, count, size, span, visible};
use crate::api::{HistoryState, Queue, SetAside, Status};

pub(super) async fn run(client: &Client, output: &mut Output<'_>) -> Result<(), Failure> {
    let answer = client.get::<Status>("/v1/status").await?;
    // A daemon that has no gate yet is as good as one that has.
    let queue = match output.json {
        true => None,
        false => client.get::<Queue>("/v1/queue").await.ok().map(|answer| answer.document),
    };
    output.show(&answer.text, |screen| render(&answer.document, queue.as_ref(), screen))
}

/// What each line is about stands in a column of this width.
const LABEL: usize = 11;

fn render(status: &Status, queue: Option<&Queue>, screen: &Screen) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: &str| {
        let label = screen.paint(Ink::Faint, format!("{label:LABEL$}"));
        out.push_str(&format!("{label}  {text}\n"));
    };
    let up = age(&status.started_at, screen.now).map_or_else(String::new, |age| format!(", up {}", span(age)));
    let title = format!("agent-watchdog {}, pid {}{up}", visible(&status.version), status.pid);
    line("daemon", &screen.paint(Ink::Strong, title));
    line("tracking", &tracking(status, screen));

    let counts = &status.counts;
    let orphaned = format!("{} orphaned", counts.sessions_orphaned);
    line(
        "sessions",
        &format!("{} running, {}", counts.sessions_running, alarm(counts.sessions_orphaned, orphaned, screen)),
    );
    let zombies = count(counts.zombies, "zombie", "zombies");
    line("processes", &format!("{}, {zombies}", counts.processes));
    line("memory", &format!("{} in all sessions", size(counts.memory_bytes)));
    let open = format!("{} open", counts.findings_open);
    line("findings", &alarm(counts.findings_open, open, screen));

    let host = &status.host;
    let (available, total) = (size(host.memory_available_bytes), size(host.memory_total_bytes));
    line("host", &format!("{available} of {total} available, {} shared", size(host.shmem_bytes)));
    let swap = match host.swap_total_bytes {
        0 => "none".into(),
        total => format!("{} of {} used", size(total.saturating_sub(host.swap_free_bytes)), size(total)),
    };
    line("swap", &swap);
    let pressure = match (host.pressure_some_avg10, host.pressure_full_avg10) {
        (Some(some), Some(full)) => format!("some {some:.2} %, full {full:.2} % of the last 10 s"),
        (Some(some), None) => format!("some {some:.2} % of the last 10 s"),
        (None, _) => "not known: the kernel gives no pressure (PSI)".into(),
    };
    line("pressure", &pressure);
    if let Some(queue) = queue {
        let (run, wait) = (queue.leases.len(), queue.waiting.len() as u64);
        let waiting = alarm(wait, format!("{wait} waiting"), screen);
        line("gate", &format!("{run} launched, {waiting}, room for {}", size(queue.room.free_bytes)));
    }
    if status.breaker_open {
        let why = queue.map(|queue| &queue.breaker.detail).filter(|detail| !detail.is_empty());
        let why = why.map_or("launches are refused while the host is short of memory".into(), |why| visible(why));
        line("breaker", &screen.paint(Ink::Bad, format!("open: {why}")));
    }
    let missed = match status.tracking.missed_runs {
        0 => String::new(),
        missed => format!(" ({missed} skipped by the kernel)"),
    };
    let lost = format!("{} lost{missed}, {}", status.lost_events, count(status.reconciles, "reconcile", "reconciles"));
    if let Some(history) = &status.history {
        line("history", &self::history(history, screen));
    }
    for file in &status.set_aside {
        line("set aside", &screen.paint(Ink::Warn, set_aside(file)));
    }
    line("events", &alarm(status.lost_events, lost, screen));
    for (label, text) in reasons(status) {
        line(label, &text);
    }
    out
}

fn history(history: &HistoryState, screen: &Screen) -> String {
    let lost = match history.lost_records {
        0 => String::new(),
        lost => format!(", {} lost", count(lost, "record", "records")),
    };
    match &history.problem {
        None => format!("{}{}", size(history.bytes), screen.paint(Ink::Warn, lost)),
        Some(problem) => screen.paint(Ink::Warn, format!("not written: {}{lost}", visible(problem))).into_owned(),
    }
}

/// What was wrong with a file of the daemon, and where it is.
pub(super) fn set_aside(file: &SetAside) -> String {
    let kept = file.kept_as.as_ref().map_or_else(String::new, |aside| format!("; kept as {}", visible(aside)));
    format!("{}: {}{kept}", visible(&file.path), visible(&file.because))
}

fn alarm(n: u64, text: String, screen: &Screen) -> String {
    if n == 0 { text } else { screen.paint(Ink::Warn, text).into_owned() }
}

fn tracking(status: &Status, screen: &Screen) -> String {
    let how = if status.tracking.kernel_events {
        screen.paint(Ink::Good, "by kernel events")
    } else {
        screen.paint(Ink::Warn, "by looking at /proc: short-lived processes are missed")
    };
    let close = if status.tracking.close_watch { "on" } else { "off" };
    let degraded = if status.degraded { screen.paint(Ink::Warn, "degraded, ") } else { "".into() };
    let untracked = match status.tracking.untracked {
        0 => String::new(),
        n => format!("; {} not tracked, the kernel's map is full", count(n, "process", "processes")),
    };
    format!("{degraded}{how}{}; close watch {close}", screen.paint(Ink::Warn, untracked))
}

/// Of a daemon without kernel events one line for each capability that is off, with its reason; otherwise they are only named.
fn reasons(status: &Status) -> Vec<(&'static str, String)> {
    let off: Vec<_> = status.capabilities.iter().filter(|capability| !capability.on).collect();
    if off.is_empty() {
        return Vec::new();
    }
    let hint = "`watchdogctl doctor` says what that costs and what to do";
    if status.tracking.kernel_events {
        let names: Vec<_> = off.iter().map(|capability| visible(&capability.name)).collect();
        return vec![("off", format!("{}: {hint}", names.join(", ")))];
    }
    let labels = std::iter::once("off").chain(std::iter::repeat(""));
    let told = off.iter().map(|capability| format!("{}: {}", visible(&capability.name), visible(&capability.why)));
    labels.zip(told.chain(std::iter::once(hint.to_owned()))).collect()
}

#[cfg(test)]
pub(super) mod testing {
    //! Two daemons.

    use crate::api::{Capability, Counts, HistoryState, Host, SetAside, Status, Tracking};

    pub(in crate::ctl) fn healthy() -> Status {
        Status {
            version: "0.1.0".into(),
            pid: 812,
            started_at: "2026-01-02T09:55:00.000Z".into(),
            degraded: false,
            tracking: Tracking { kernel_events: true, ..Tracking::default() },
            capabilities: vec![Capability {
                name: "btf".into(),
                on: true,
                why: "/sys/kernel/btf/vmlinux can be read".into(),
                cost: "none".into(),
                remedy: None,
            }],
            counts: Counts {
                sessions_running: 3,
                sessions_orphaned: 0,
                processes: 42,
                zombies: 1,
                findings_open: 0,
                memory_bytes: 3 << 30,
            },
            host: Host {
                memory_total_bytes: 16 << 30,
                memory_available_bytes: 5_583_457_485,
                swap_total_bytes: 4 << 30,
                swap_free_bytes: 3 << 30,
                shmem_bytes: 300 << 20,
                pressure_some_avg10: Some(0.12),
                pressure_full_avg10: Some(0.0),
            },
            breaker_open: false,
            lost_events: 0,
            reconciles: 1,
            history: Some(HistoryState { path: "/x/history.log".into(), bytes: 1 << 20, ..HistoryState::default() }),
            set_aside: Vec::new(),
        }
    }

    pub(in crate::ctl) fn in_trouble() -> Status {
        let mut status = healthy();
        status.degraded = true;
        status.tracking.kernel_events = false;
        status.breaker_open = true;
        status.lost_events = 17;
        status.counts.sessions_orphaned = 1;
        status.counts.findings_open = 2;
        status.set_aside = vec![SetAside {
            path: "/run/x/gate.jsonl".into(),
            because: "it is a FIFO, not a regular file".into(),
            kept_as: Some("/run/x/gate.jsonl.set-aside-1".into()),
        }];
        status.host.swap_total_bytes = 0;
        status.host.pressure_some_avg10 = None;
        status.capabilities.push(Capability {
            name: "bpf".into(),
            on: false,
            why: "not permitted:\nnot root".into(),
            cost: "no kernel events".into(),
            remedy: Some("run as root".into()),
        });
        status
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::testing::busy;
    use super::super::show::testing::{coloured, plain};
    use super::testing::{healthy, in_trouble};
    use super::*;
    use crate::api::Capability;

    #[test]
    fn a_healthy_daemon_in_a_dozen_lines() {
        insta::assert_snapshot!(render(&healthy(), None, &plain()), @r"
        daemon       agent-watchdog 0.1.0, pid 812, up 2h 5m
        tracking     by kernel events; close watch off
        sessions     3 running, 0 orphaned
        processes    42, 1 zombie
        memory       3.0 GiB in all sessions
        findings     0 open
        host         5.2 GiB of 16 GiB available, 300 MiB shared
        swap         1.0 GiB of 4.0 GiB used
        pressure     some 0.12 %, full 0.00 % of the last 10 s
        history      1.0 MiB
        events       0 lost, 1 reconcile
        ");
    }

    #[test]
    fn trouble_is_said_aloud() {
        insta::assert_snapshot!(render(&in_trouble(), None, &plain()), @r"
        daemon       agent-watchdog 0.1.0, pid 812, up 2h 5m
        tracking     degraded, by looking at /proc: short-lived processes are missed; close watch off
        sessions     3 running, 1 orphaned
        processes    42, 1 zombie
        memory       3.0 GiB in all sessions
        findings     2 open
        host         5.2 GiB of 16 GiB available, 300 MiB shared
        swap         none
        pressure     not known: the kernel gives no pressure (PSI)
        breaker      open: launches are refused while the host is short of memory
        history      1.0 MiB
        set aside    /run/x/gate.jsonl: it is a FIFO, not a regular file; kept as /run/x/gate.jsonl.set-aside-1
        events       17 lost, 1 reconcile
        off          bpf: not permitted:\nnot root
                     `watchdogctl doctor` says what that costs and what to do
        ");
    }

    #[test]
    fn the_gate_has_a_line_and_the_breaker_its_reason() {
        let text = render(&in_trouble(), Some(&busy()), &plain());
        for line in [
            "gate         1 launched, 1 waiting, room for 1.8 GiB\n",
            "breaker      open: 83 % of the memory is in use\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn what_a_sound_daemon_does_without_is_only_named() {
        let mut status = healthy();
        for name in ["lsm", "swap"] {
            status.capabilities.push(Capability { name: name.into(), on: false, ..status.capabilities[0].clone() });
        }
        let text = render(&status, None, &plain());
        let last = text.lines().last().unwrap();
        assert_eq!(last, "off          lsm, swap: `watchdogctl doctor` says what that costs and what to do");
    }

    #[test]
    fn colours_only_add_to_the_text() {
        let text = render(&in_trouble(), None, &coloured());
        assert!(text.contains("\x1b[33m1 orphaned\x1b[0m"), "{text:?}");
        let mut bare = text;
        for code in ["0", "1", "2", "31", "32", "33"] {
            bare = bare.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(bare, render(&in_trouble(), None, &plain()));
    }
}
