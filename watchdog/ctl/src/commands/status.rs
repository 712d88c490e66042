use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, count, escape, size};
use watchdog_api::client::ControlClient;
use watchdog_api::{FleetStatus, HistoryState, Queue, ReclaimStatus, SetAside, Status, StoreState, UserAgents};

pub(crate) fn run(client: &ControlClient, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    let reply = client.get::<Status>("/v1/status")?;
    // The gate's lines are optional.
    let queue = match output.json {
        true => None,
        false => client.get::<Queue>("/v1/queue").ok().map(|reply| reply.document),
    };
    output.show(&reply.text, |terminal| render(&reply.document, queue.as_ref(), terminal))
}

/// Width of the column of labels.
const LABEL: usize = 11;

fn render(status: &Status, queue: Option<&Queue>, terminal: &Terminal) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: &str| {
        let label = terminal.paint(Style::Faint, format!("{label:LABEL$}"));
        out.push_str(&format!("{label}  {text}\n"));
    };
    let up = terminal.age(&status.started_at);
    let title = format!("agent-watchdog {}, pid {}, up {up}", escape(&status.version), status.pid);
    line("daemon", &terminal.paint(Style::Strong, title));
    line("tracking", &tracking(status, terminal));
    if let Some(namespace) = &status.pid_namespace {
        line("namespace", &format!("{}: processes outside this pid namespace are not seen", escape(namespace)));
    }

    let counts = &status.counts;
    let orphaned = match counts.sessions_orphaned {
        0 => String::new(),
        orphaned => format!(", {}", count(orphaned, "orphaned session", "orphaned sessions")),
    };
    line("agents", &format!("{} running{}", counts.sessions_running, terminal.paint(Style::Warn, orphaned)));
    status.users.iter().for_each(|user| line("", &of_user(user)));
    let zombies = count(counts.zombies, "zombie", "zombies");
    line("processes", &format!("{}, {zombies}", counts.processes));
    line("memory", &format!("{} in all sessions", size(counts.memory_bytes)));
    let open = format!("{} open", counts.findings_open);
    line("findings", &alarm(counts.findings_open, open, terminal));

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
        (None, _) => "unavailable (kernel built without PSI)".into(),
    };
    line("pressure", &pressure);
    if let Some(queue) = queue {
        let (run, wait) = (queue.leases.len(), queue.waiting.len() as u64);
        let waiting = alarm(wait, format!("{wait} waiting"), terminal);
        line("gate", &format!("{run} launched, {waiting}, {} free", size(queue.room.free_bytes)));
    }
    if let Some(reclaim) = &status.reclaim {
        line("reclaim", &self::reclaim(reclaim, terminal));
    }
    if status.breaker_open {
        let why = queue.map(|queue| &queue.breaker.detail).filter(|detail| !detail.is_empty());
        let why = why.map_or("launches are refused while memory is short".into(), |why| escape(why));
        line("breaker", &terminal.paint(Style::Bad, format!("open: {why}")));
    }
    if let Some(fleet) = &status.fleet {
        line("fleet", &self::fleet(fleet, terminal));
    }
    let missed = match status.tracking.missed_runs {
        0 => String::new(),
        missed => format!(" ({missed} skipped by the kernel)"),
    };
    let lost = format!("{} lost{missed}, {}", status.lost_events, count(status.reconciles, "reconcile", "reconciles"));
    if let Some(history) = &status.history {
        line("history", &self::history(history, terminal));
    }
    for file in &status.set_aside {
        line("quarantined", &terminal.paint(Style::Warn, quarantined_file(file)));
    }
    line("events", &alarm(status.lost_events, lost, terminal));
    for (label, text) in reasons(status) {
        line(label, &text);
    }
    terminal.fit(&out)
}

fn reclaim(reclaim: &ReclaimStatus, terminal: &Terminal) -> String {
    let ReclaimStatus { mode, idle_sessions, idle_resident_bytes, swap_room_bytes, problem } = reclaim;
    let mode = escape(mode);
    match problem {
        Some(problem) => terminal.paint(Style::Warn, format!("{mode}: {}", escape(problem))).into_owned(),
        None if mode == "off" => mode.into_owned(),
        None => format!(
            "{mode}: {} with {} resident, {} of swap left",
            count(*idle_sessions, "idle session", "idle sessions"),
            size(*idle_resident_bytes),
            size(*swap_room_bytes)
        ),
    }
}

/// One user's agents together.
pub(super) fn of_user(user: &UserAgents) -> String {
    escape(&format!("{}: {user}", user.user)).into_owned()
}

fn fleet(fleet: &FleetStatus, terminal: &Terminal) -> String {
    let state = match fleet.store {
        StoreState::Up => "up",
        StoreState::Lost => "lost",
    };
    let hosts = count(fleet.hosts, "host", "hosts");
    let text = format!("{}, {hosts}, store {state}", escape(&fleet.host));
    match &fleet.problem {
        None => text,
        Some(problem) => terminal.paint(Style::Bad, format!("{text}: {}", escape(problem))).into_owned(),
    }
}

fn history(history: &HistoryState, terminal: &Terminal) -> String {
    let lost = match history.lost_records {
        0 => String::new(),
        lost => format!(", {} lost", count(lost, "record", "records")),
    };
    match &history.problem {
        None => format!("{}{}", size(history.bytes), terminal.paint(Style::Warn, lost)),
        Some(problem) => terminal.paint(Style::Warn, format!("not written: {}{lost}", escape(problem))).into_owned(),
    }
}

/// A file that the daemon did not trust: why, and where it is now.
pub(super) fn quarantined_file(file: &SetAside) -> String {
    let kept = file.kept_as.as_ref().map_or_else(String::new, |aside| format!("; kept as {}", escape(aside)));
    format!("{}: {}{kept}", escape(&file.path), escape(&file.because))
}

fn alarm(n: u64, text: String, terminal: &Terminal) -> String {
    if n == 0 { text } else { terminal.paint(Style::Warn, text).into_owned() }
}

fn tracking(status: &Status, terminal: &Terminal) -> String {
    let how = if status.tracking.kernel_events {
        terminal.paint(Style::Good, "by kernel events")
    } else {
        terminal.paint(Style::Warn, "polling /proc (short-lived processes are missed)")
    };
    let close = if status.tracking.close_watch { "on" } else { "off" };
    let degraded = if status.degraded { terminal.paint(Style::Warn, "degraded, ") } else { "".into() };
    let untracked = match status.tracking.untracked {
        0 => String::new(),
        n => format!("; {} not tracked (kernel map full)", count(n, "process", "processes")),
    };
    format!("{degraded}{how}{}; close watch {close}", terminal.paint(Style::Warn, untracked))
}

/// Capabilities that are off: with reasons if kernel events are off, else only by name.
fn reasons(status: &Status) -> Vec<(&'static str, String)> {
    let off: Vec<_> = status.capabilities.iter().filter(|capability| !capability.on).collect();
    if off.is_empty() {
        return Vec::new();
    }
    let hint = "see `watchdogctl doctor` for impact and fix";
    if status.tracking.kernel_events {
        let names: Vec<_> = off.iter().map(|capability| escape(&capability.name)).collect();
        return vec![("off", format!("{}: {hint}", names.join(", ")))];
    }
    let labels = std::iter::once("off").chain(std::iter::repeat(""));
    let lines = off.iter().map(|capability| format!("{}: {}", escape(&capability.name), escape(&capability.why)));
    labels.zip(lines.chain(std::iter::once(hint.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{busy_queue, healthy_status, troubled_status};
    use crate::render::testing::{coloured, narrow, plain};
    use watchdog_api::{Capability, SharedAncestor};

    #[test]
    fn narrow_status_breaks_between_words() {
        let text = render(&troubled_status(), Some(&busy_queue()), &narrow(40));
        let fits = |line: &str| line.chars().count() <= 40 || !line.trim().contains(' ');
        assert!(text.lines().all(fits), "{text}");
    }

    #[test]
    fn healthy_status_is_brief() {
        insta::assert_snapshot!(render(&healthy_status(), None, &plain()), @r"
        daemon       agent-watchdog 0.1.0, pid 812, up 2h 5m
        tracking     by kernel events; close watch off
        agents       3 running
        processes    42, 1 zombie
        memory       3.0 GiB in all sessions
        findings     0 open
        host         5.2 GiB of 16 GiB available, 300 MiB shared
        swap         1.0 GiB of 4.0 GiB used
        pressure     some 0.12 %, full 0.00 % of the last 10 s
        reclaim      pressure: 2 idle sessions with 700 MiB resident, 2.0 GiB of swap left
        history      1.0 MiB
        events       0 lost, 1 reconcile
        ");
    }

    #[test]
    fn status_shows_problems() {
        insta::assert_snapshot!(render(&troubled_status(), None, &plain()), @r"
        daemon       agent-watchdog 0.1.0, pid 812, up 2h 5m
        tracking     degraded, polling /proc (short-lived processes are missed); close watch off
        agents       3 running, 1 orphaned session
        processes    42, 1 zombie
        memory       3.0 GiB in all sessions
        findings     2 open
        host         5.2 GiB of 16 GiB available, 300 MiB shared
        swap         none
        pressure     unavailable (kernel built without PSI)
        reclaim      pressure: no swap: idle sessions keep their memory
        breaker      open: launches are refused while memory is short
        history      1.0 MiB
        quarantined  /run/x/gate.jsonl: it is a FIFO, not a regular file; kept as /run/x/gate.jsonl.set-aside-1
        events       17 lost, 1 reconcile
        off          bpf: not permitted:\nnot root
                     see `watchdogctl doctor` for impact and fix
        ");
    }

    #[test]
    fn users_agents_take_one_line() {
        let mut status = healthy_status();
        let fleet = UserAgents {
            user: "ada".into(),
            uid: 1000,
            agents: 20,
            detached: 19,
            attached: 1,
            idle: Some(18),
            started_last_day: 3,
            oldest_age_seconds: 6 * 86_400,
            memory_bytes: 9 << 30,
            swap_bytes: 2 << 30,
            trend_bytes_per_day: Some(1_400 << 20),
            seconds_to_host_limit: Some(5 * 86_400),
            depends_on: Some(SharedAncestor {
                agents: 20,
                name: "tmux: server\u{1b}".into(),
                oom_score_adj: Some(0),
                pid: 812,
                start_time: 7,
            }),
            ..UserAgents::default()
        };
        let other = UserAgents { user: "bob".into(), agents: 1, protected: 1, ..UserAgents::default() };
        status.users = vec![fleet, other];
        status.counts.sessions_running = 21;
        let text = render(&status, None, &plain());
        let lines: Vec<&str> = text.lines().skip(2).take(3).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        agents       21 running
                     ada: 20 agents: 18 idle, 1 attached, 19 detached; oldest 6d; 3 started within a day; 9.0 GiB, 2.0 GiB of it swapped; +1.4 GiB a day, the host is full in 5d; 20 depend on tmux: server\u{1b} (pid 812, oom_score_adj 0)
                     bob: 1 agent: 1 protected from the OOM killer; oldest 0s; 0
        ");
    }

    #[test]
    fn gate_and_breaker_are_shown() {
        let text = render(&troubled_status(), Some(&busy_queue()), &plain());
        for line in
            ["gate         1 launched, 1 waiting, 1.8 GiB free\n", "breaker      open: 83 % of the memory is in use\n"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn missing_optional_capabilities_are_named() {
        let mut status = healthy_status();
        for name in ["lsm", "swap"] {
            status.capabilities.push(Capability { name: name.into(), on: false, ..status.capabilities[0].clone() });
        }
        let text = render(&status, None, &plain());
        let last = text.lines().last().unwrap();
        assert_eq!(last, "off          lsm, swap: see `watchdogctl doctor` for impact and fix");
    }

    #[test]
    fn colours_do_not_change_text() {
        let text = render(&troubled_status(), None, &coloured());
        assert!(text.contains("\x1b[33m, 1 orphaned session\x1b[0m"), "{text:?}");
        let mut bare = text;
        for code in ["0", "1", "2", "31", "32", "33"] {
            bare = bare.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(bare, render(&troubled_status(), None, &plain()));
    }
}
