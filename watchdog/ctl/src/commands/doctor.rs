use std::borrow::Cow;
use std::process::ExitCode;

use serde::Serialize;

use super::first_steps::{self, AgentOverview, NextStep};
use super::hook::{self, HookAgent};
use super::status::quarantined_file;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Cell, Column, Style, Terminal, TextTable, count, escape};
use watchdog_api::client::{ClientError, ControlClient, RequestProgress};
use watchdog_api::{Capability, Findings, SetAside, Status, Tree};

/// Columns before the impact and the fix.
const INDENT: usize = 7;

/// Kernel events need all but the last one; without them short-lived processes are missed. Actions need the last one.
const REQUIRED: [&str; 9] = [
    "privileges",
    "pid_namespace",
    "proc_visibility",
    "btf",
    "tp_btf",
    "ring_buffer",
    "bpf_atomics",
    "kernel_reads",
    "pidfd",
];

#[derive(Debug, Serialize)]
struct Diagnosis {
    /// All required capabilities are available.
    ok: bool,
    capabilities: Vec<Examined>,
    daemon: DaemonReport,
    /// Null if the daemon is unreachable.
    now: Option<AgentOverview>,
    /// The most urgent first.
    next: Vec<NextStep>,
}

#[derive(Debug, Serialize)]
struct Examined {
    #[serde(flatten)]
    capability: Capability,
    essential: bool,
}

#[derive(Debug, Default, Serialize)]
struct DaemonReport {
    reachable: bool,
    socket: String,
    version: Option<String>,
    degraded: Option<bool>,
    kernel_events: Option<bool>,
    /// Files that the daemon quarantined since it started.
    set_aside: Vec<SetAside>,
    /// Set if the daemon is unreachable.
    error: Option<String>,
}

pub(crate) fn run(
    client: &ControlClient,
    mut capabilities: Vec<Capability>,
    all: bool,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let socket = client.socket().display().to_string();
    let is_root = rustix::process::geteuid().is_root();
    let (daemon, now, next) = match client.get::<Status>("/v1/status") {
        Ok(reply) => {
            let status = reply.document;
            prefer_the_daemons(&mut capabilities, &status.capabilities, is_root);
            let (now, next) = first_steps(client, &status);
            (DaemonReport::reachable(socket, status), now, next)
        }
        Err(error) => {
            let daemon = DaemonReport { socket, error: Some(error.to_string()), ..DaemonReport::default() };
            (daemon, None, without_daemon(&error).into_iter().collect())
        }
    };
    let diagnosis = Diagnosis { now, next, ..Diagnosis::new(capabilities, daemon) };
    output.show_value(&diagnosis, |terminal| render(&diagnosis, all, is_root, terminal))?;
    Ok(ExitCode::from(u8::from(!diagnosis.ok)))
}

/// A daemon that refuses or is late has been started.
fn without_daemon(error: &ClientError) -> Option<NextStep> {
    let (reason, command) = match error {
        ClientError::Unreachable { progress: RequestProgress::NotConnected, .. } => {
            ("The daemon does not answer. To start it:", "sudo systemctl start watchdogd")
        }
        ClientError::Forbidden(_) => {
            ("This user may not ask the daemon. To ask it as root:", "sudo watchdogctl doctor")
        }
        _ => return None,
    };
    Some(NextStep::new(reason, command))
}

/// What runs, if the daemon says so, and what to do next.
fn first_steps(client: &ControlClient, status: &Status) -> (Option<AgentOverview>, Vec<NextStep>) {
    let tree = client.get::<Tree>("/v1/tree").map(|reply| reply.document);
    let findings = client.get::<Findings>("/v1/findings").map(|reply| reply.document.findings);
    let (Ok(tree), Ok(findings)) = (tree, findings) else { return (None, Vec::new()) };
    let hooks: Vec<HookAgent> = HookAgent::ALL
        .into_iter()
        .filter(|agent| {
            let settings = agent.in_home(hook::environment);
            settings.and_then(|settings| hook::is_installed(*agent, &settings)) == Some(false)
        })
        .collect();
    let now = first_steps::overview(status, &tree, &findings);
    let next = first_steps::next_steps(status, &now, &findings, &hooks);
    (Some(now), next)
}

/// Takes the daemon's result where this process cannot know better. Only loading a program shows whether LSM programs
/// and pins work. A user without privileges cannot probe what the daemon, which is root, uses, except swap, which the daemon
/// probes only when it starts.
///
/// Only the daemon knows the store of its fleet.
fn prefer_the_daemons(own: &mut Vec<Capability>, daemons: &[Capability], is_root: bool) {
    let from_daemon = |name: &str| match name {
        "lsm" | "bpffs" => true,
        "swap" | "swap_space" => false,
        _ => !is_root,
    };
    for own in own.iter_mut().filter(|own| from_daemon(&own.name)) {
        if let Some(daemons) = daemons.iter().find(|daemons| daemons.name == own.name) {
            own.clone_from(daemons);
        }
    }
    own.extend(daemons.iter().filter(|daemons| daemons.name.starts_with("fleet_")).cloned());
}

impl DaemonReport {
    fn reachable(socket: String, status: Status) -> Self {
        Self {
            reachable: true,
            socket,
            version: Some(status.version),
            degraded: Some(status.degraded),
            kernel_events: Some(status.tracking.kernel_events),
            set_aside: status.set_aside,
            error: None,
        }
    }
}

impl Diagnosis {
    fn new(capabilities: Vec<Capability>, daemon: DaemonReport) -> Self {
        let capabilities: Vec<Examined> = capabilities
            .into_iter()
            .map(|capability| Examined { essential: REQUIRED.contains(&capability.name.as_str()), capability })
            .collect();
        let ok = capabilities.iter().all(|examined| examined.capability.on || !examined.essential);
        Self { ok, capabilities, daemon, now: None, next: Vec::new() }
    }
}

/// Without `all`, capabilities without a problem are one line.
fn render(diagnosis: &Diagnosis, all: bool, is_root: bool, terminal: &Terminal) -> String {
    // Reasons are not cut.
    let uncut = Terminal { width: None, ..terminal.clone() };
    let mut table = TextTable::new(0, ["STATE", "CAPABILITY", "REASON"].map(Column::left).into());
    let (shown, available): (Vec<&Examined>, Vec<&Examined>) =
        diagnosis.capabilities.iter().partition(|examined| all || !examined.capability.on);
    let names = shown.iter().map(|examined| examined.capability.name.len()).max().unwrap_or_default();
    for Examined { capability, essential } in &shown {
        let Capability { name, on, why, cost, remedy } = capability;
        let state = match (on, essential) {
            (true, _) => Cell::new("on").style(Style::Good),
            (false, true) => Cell::new("OFF").style(Style::Bad),
            (false, false) => Cell::new("off").style(Style::Warn),
        };
        let has_overhead = *on && !matches!(cost.as_str(), "none" | "nothing");
        let overhead = if has_overhead { format!(" (overhead: {cost})") } else { String::new() };
        let reason = format!("{why}{overhead}");
        let fits = terminal.width.is_none_or(|width| INDENT + names + 2 + reason.chars().count() <= width);
        table.row(vec![state, Cell::new(name), Cell::new(if fits { reason.as_str() } else { "" })]);
        if !fits {
            table.note(terminal.wrap(&escape(&reason), INDENT));
        }
        if !on {
            table.note(terminal.wrap(&format!("impact: {}", escape(cost)), INDENT));
            if let Some(remedy) = remedy {
                table.note(terminal.wrap(&format!("fix: {}", escape(remedy)), INDENT));
            }
        }
    }
    let mut out = if shown.is_empty() { String::new() } else { table.render(&uncut) };
    if !available.is_empty() {
        let names: Vec<_> = available.iter().map(|examined| escape(&examined.capability.name)).collect();
        let number = count(names.len() as u64, "capability is available", "capabilities are available");
        out.push_str(&terminal.wrap(&format!("{number}: {} (--all shows details)", names.join(", ")), 0));
    }
    let state = format!("\n{}\n{}\n", daemon(&diagnosis.daemon), verdict(diagnosis, terminal));
    out.push_str(&terminal.fit(&state));
    if let Some(now) = &diagnosis.now {
        out.push_str(&format!("\n{}", first_steps::render_overview(now, is_root, terminal)));
    }
    if !diagnosis.next.is_empty() {
        out.push_str(&format!("\n{}", first_steps::render_steps(&diagnosis.next, terminal)));
    }
    out
}

fn daemon(daemon: &DaemonReport) -> String {
    let Some(version) = daemon.version.as_deref() else {
        let error = daemon.error.as_deref().unwrap_or("unknown");
        let lines: Vec<_> = error.lines().map(escape).collect();
        return format!("daemon: {}", lines.join("\n        "));
    };
    let tracking = if daemon.kernel_events == Some(true) { "by kernel events" } else { "by polling /proc" };
    let degraded = if daemon.degraded == Some(true) { ", degraded" } else { "" };
    let other = env!("CARGO_PKG_VERSION");
    let differs = if version == other { String::new() } else { format!(" (this is watchdogctl {other})") };
    let files = daemon.set_aside.iter().map(|file| format!("\nquarantined: {}", quarantined_file(file)));
    format!(
        "daemon: version {}{differs} at {}, tracking {tracking}{degraded}{}",
        escape(version),
        escape(&daemon.socket),
        files.collect::<String>()
    )
}

fn verdict<'a>(diagnosis: &Diagnosis, terminal: &Terminal) -> Cow<'a, str> {
    if diagnosis.ok {
        return terminal.paint(Style::Good, "All required capabilities are available.");
    }
    let missing: Vec<_> = diagnosis
        .capabilities
        .iter()
        .filter(|examined| examined.essential && !examined.capability.on)
        .map(|examined| escape(&examined.capability.name))
        .collect();
    let text = format!("Missing required capabilities: {} (see fix above)", missing.join(", "));
    terminal.paint(Style::Bad, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::{narrow, plain};

    fn capability(name: &str, on: bool, why: &str, cost: &str, remedy: Option<&str>) -> Capability {
        Capability { name: name.into(), on, why: why.into(), cost: cost.into(), remedy: remedy.map(Into::into) }
    }

    fn daemon_of_version(version: &str) -> DaemonReport {
        DaemonReport {
            reachable: true,
            socket: "/run/x.sock".into(),
            version: Some(version.into()),
            degraded: Some(false),
            kernel_events: Some(true),
            set_aside: Vec::new(),
            error: None,
        }
    }

    fn good() -> Vec<Capability> {
        vec![
            capability("btf", true, "/sys/kernel/btf/vmlinux can be read", "15 ms at start", None),
            capability("ring_buffer", true, "a test map could be made", "1 MiB of memory", None),
            capability("psi", false, "no /proc/pressure/memory", "pressure is not shown", Some("boot with psi=1")),
        ]
    }

    #[test]
    fn optional_capabilities_may_be_missing() {
        let diagnosis = Diagnosis::new(good(), daemon_of_version(env!("CARGO_PKG_VERSION")));
        assert!(diagnosis.ok);
        // A narrow terminal wraps the impact, and cuts nothing.
        insta::assert_snapshot!(render(&diagnosis, true, true, &narrow(20)), @r"
        STATE  CAPABILITY   REASON
        on     btf
               /sys/kernel/btf/vmlinux
               can be read
               (overhead: 15
               ms at start)
        on     ring_buffer
               a test map
               could be made
               (overhead: 1
               MiB of
               memory)
        off    psi
               no
               /proc/pressure/memory
               impact:
               pressure is
               not shown
               fix: boot
               with psi=1

        daemon: version
          0.1.0 at
          /run/x.sock,
          tracking by kernel
          events
        All required
          capabilities are
          available.
        ");
    }

    #[test]
    fn missing_required_capability_is_named() {
        let mut capabilities = good();
        capabilities[0] = capability("btf", false, "no \x1b[2J/sys/kernel/btf", "no kernel events", Some("enable it"));
        let error = "cannot reach the daemon at /x: no such file\nStart it.".to_owned();
        let daemon = DaemonReport { socket: "/x".into(), error: Some(error), ..DaemonReport::default() };
        let diagnosis = Diagnosis::new(capabilities, daemon);
        assert!(!diagnosis.ok);
        insta::assert_snapshot!(render(&diagnosis, false, true, &plain()), @r"
        STATE  CAPABILITY  REASON
        OFF    btf         no \u{1b}[2J/sys/kernel/btf
               impact: no kernel events
               fix: enable it
        off    psi         no /proc/pressure/memory
               impact: pressure is not shown
               fix: boot with psi=1
        1 capability is available: ring_buffer (--all shows details)

        daemon: cannot reach the daemon at /x: no such file
                Start it.
        Missing required capabilities: btf (see fix above)
        ");
    }

    #[test]
    fn required_capabilities_are_probed() {
        let probed = watchdog_host::capability::probe();
        for name in REQUIRED {
            assert!(probed.iter().any(|capability| capability.name == name), "{name}");
        }
    }

    #[test]
    fn other_daemon_version_is_shown() {
        let line = daemon(&daemon_of_version("9.9.9"));
        assert!(line.starts_with("daemon: version 9.9.9 (this is watchdogctl "), "{line}");
    }

    #[test]
    fn quarantined_files_are_listed() {
        let mut known = daemon_of_version(env!("CARGO_PKG_VERSION"));
        known.set_aside = crate::commands::testing::troubled_status().set_aside;
        assert!(daemon(&known).ends_with(
            "\nquarantined: /run/x/gate.jsonl: it is a FIFO, not a regular file; kept as /run/x/gate.jsonl.set-aside-1"
        ));
    }

    #[test]
    fn json_has_capabilities_and_daemon() {
        let diagnosis = Diagnosis::new(good(), daemon_of_version("0.1.0"));
        let document = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(document["ok"], true);
        assert_eq!(document["capabilities"][0]["name"], "btf");
        assert_eq!(document["capabilities"][0]["essential"], true);
        assert_eq!(document["capabilities"][2]["remedy"], "boot with psi=1");
        assert_eq!(document["daemon"]["kernel_events"], true);
    }

    #[test]
    fn ordinary_user_sees_the_daemons_capabilities() {
        let daemons = ["privileges", "swap_space"].map(|name| capability(name, true, "when it started", "none", None));
        let own = || ["privileges", "swap_space"].map(|name| capability(name, false, "now", "none", None)).to_vec();
        let (mut as_root, mut as_user) = (own(), own());
        prefer_the_daemons(&mut as_root, &daemons, true);
        prefer_the_daemons(&mut as_user, &daemons, false);
        assert_eq!((as_root[0].on, as_user[0].on), (false, true));
        assert_eq!((as_root[1].on, as_user[1].on), (false, false), "swap as it is now");
    }
}
