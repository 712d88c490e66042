//! `watchdogctl doctor`: what this host gives, what is missing, what that costs, and what to do about it.

use std::process::ExitCode;

use serde::Serialize;

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Cell, Column, Ink, Screen, Table, visible};
use super::status;
use crate::api::{Capability, SetAside, Status};

/// Without one of the first ones there are no kernel events, and short-lived processes are missed; without the last one
/// nothing can be ended.
const ESSENTIAL: [&str; 8] =
    ["privileges", "initial_pid_namespace", "proc_visibility", "btf", "tp_btf", "ring_buffer", "kernel_reads", "pidfd"];

/// The JSON document of `doctor`.
#[derive(Debug, Serialize)]
struct Diagnosis {
    /// Everything essential is on.
    ok: bool,
    capabilities: Vec<Examined>,
    daemon: Daemon,
}

/// A capability of this host, as this process sees it.
#[derive(Debug, Serialize)]
struct Examined {
    #[serde(flatten)]
    capability: Capability,
    essential: bool,
}

/// What the daemon says of itself, if there is one.
#[derive(Debug, Default, Serialize)]
struct Daemon {
    reachable: bool,
    socket: String,
    version: Option<String>,
    degraded: Option<bool>,
    kernel_events: Option<bool>,
    /// Its files that were damaged or not trusted, since it started.
    set_aside: Vec<SetAside>,
    /// Why nothing is known of it.
    error: Option<String>,
}

pub(super) async fn run(
    client: &Client,
    mut capabilities: Vec<Capability>,
    output: &mut Output<'_>,
) -> Result<ExitCode, Failure> {
    let socket = client.socket().display().to_string();
    let daemon = match client.get::<Status>("/v1/status").await {
        Ok(answer) => {
            believe_who_tried(&mut capabilities, &answer.document.capabilities);
            Daemon::known(socket, answer.document)
        }
        Err(failure) => Daemon { socket, error: Some(failure.to_string()), ..Daemon::default() },
    };
    let diagnosis = Diagnosis::new(capabilities, daemon);
    let document = serde_json::to_string(&diagnosis).map_err(|error| Failure::No(error.to_string()))?;
    output.show(&document, |screen| render(&diagnosis, screen))?;
    Ok(ExitCode::from(u8::from(!diagnosis.ok)))
}

/// Whether LSM programs and pins work shows when one is loaded, which the daemon has tried and this process cannot.
fn believe_who_tried(own: &mut [Capability], daemons: &[Capability]) {
    for own in own.iter_mut().filter(|own| matches!(own.name.as_str(), "lsm" | "bpffs")) {
        if let Some(daemons) = daemons.iter().find(|daemons| daemons.name == own.name) {
            own.clone_from(daemons);
        }
    }
}

impl Daemon {
    fn known(socket: String, status: Status) -> Self {
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
    fn new(capabilities: Vec<Capability>, daemon: Daemon) -> Self {
        let capabilities: Vec<Examined> = capabilities
            .into_iter()
            .map(|capability| Examined { essential: ESSENTIAL.contains(&capability.name.as_str()), capability })
            .collect();
        let ok = capabilities.iter().all(|examined| examined.capability.on || !examined.essential);
        Self { ok, capabilities, daemon }
    }
}

fn render(diagnosis: &Diagnosis, screen: &Screen) -> String {
    // Nothing is cut off: the end of a line says what to do.
    let screen = &Screen { width: None, ..screen.clone() };
    let mut table = Table::new(0, vec![Column::left(""), Column::left(""), Column::left("")]);
    for Examined { capability, essential } in &diagnosis.capabilities {
        let mark = match (capability.on, essential) {
            (true, _) => Cell::new("on").ink(Ink::Good),
            (false, true) => Cell::new("OFF").ink(Ink::Bad),
            (false, false) => Cell::new("off").ink(Ink::Warn),
        };
        table.row(vec![mark, Cell::new(&capability.name), Cell::new(story(capability))]);
    }
    format!("{}\n{}\n{}\n", table.render(screen), daemon(&diagnosis.daemon), verdict(diagnosis, screen))
}

/// Why, what it costs, and what to do, in one line.
fn story(capability: &Capability) -> String {
    let remedy = capability.remedy.as_ref().map(|remedy| format!("to do: {remedy}"));
    let parts = [Some(capability.why.clone()), Some(format!("costs: {}", capability.cost)), remedy];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn daemon(daemon: &Daemon) -> String {
    let Some(version) = daemon.version.as_deref() else {
        let error = daemon.error.as_deref().unwrap_or("it was not asked");
        let lines: Vec<_> = error.lines().map(visible).collect();
        return format!("daemon: {}", lines.join("\n        "));
    };
    let tracking = if daemon.kernel_events == Some(true) { "by kernel events" } else { "by looking at /proc only" };
    let degraded = if daemon.degraded == Some(true) { ", degraded" } else { "" };
    let other = env!("CARGO_PKG_VERSION");
    let differs = if version == other { String::new() } else { format!(" (this is watchdogctl {other})") };
    let files = daemon.set_aside.iter().map(|file| format!("\nset aside: {}", status::set_aside(file)));
    format!(
        "daemon: version {}{differs} at {}, tracking {tracking}{degraded}{}",
        visible(version),
        visible(&daemon.socket),
        files.collect::<String>()
    )
}

fn verdict<'a>(diagnosis: &Diagnosis, screen: &Screen) -> std::borrow::Cow<'a, str> {
    if diagnosis.ok {
        return screen.paint(Ink::Good, "Everything essential is on.");
    }
    let missing: Vec<_> = diagnosis
        .capabilities
        .iter()
        .filter(|examined| examined.essential && !examined.capability.on)
        .map(|examined| visible(&examined.capability.name))
        .collect();
    let text = format!("Essential and off: {}. See above what that costs, and what to do.", missing.join(", "));
    screen.paint(Ink::Bad, text)
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::{narrow, plain};
    use super::*;

    fn capability(name: &str, on: bool, why: &str, cost: &str, remedy: Option<&str>) -> Capability {
        Capability { name: name.into(), on, why: why.into(), cost: cost.into(), remedy: remedy.map(Into::into) }
    }

    fn daemon_of(version: &str) -> Daemon {
        Daemon {
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
    fn a_capable_host_may_lack_what_is_not_essential() {
        let diagnosis = Diagnosis::new(good(), daemon_of(env!("CARGO_PKG_VERSION")));
        assert!(diagnosis.ok);
        // As on a terminal that is too narrow for any of it.
        insta::assert_snapshot!(render(&diagnosis, &narrow(20)), @r"
        on   btf          /sys/kernel/btf/vmlinux can be read; costs: 15 ms at start
        on   ring_buffer  a test map could be made; costs: 1 MiB of memory
        off  psi          no /proc/pressure/memory; costs: pressure is not shown; to do: boot with psi=1

        daemon: version 0.1.0 at /run/x.sock, tracking by kernel events
        Everything essential is on.
        ");
    }

    #[test]
    fn what_is_essential_and_off_is_named_with_what_to_do() {
        let mut capabilities = good();
        capabilities[0] = capability("btf", false, "no \x1b[2J/sys/kernel/btf", "no kernel events", Some("enable it"));
        let error = "the daemon is not reachable at /x: there is no such file\nStart it.".to_owned();
        let daemon = Daemon { socket: "/x".into(), error: Some(error), ..Daemon::default() };
        let diagnosis = Diagnosis::new(capabilities, daemon);
        assert!(!diagnosis.ok);
        insta::assert_snapshot!(render(&diagnosis, &plain()), @r"
        OFF  btf          no \u{1b}[2J/sys/kernel/btf; costs: no kernel events; to do: enable it
        on   ring_buffer  a test map could be made; costs: 1 MiB of memory
        off  psi          no /proc/pressure/memory; costs: pressure is not shown; to do: boot with psi=1

        daemon: the daemon is not reachable at /x: there is no such file
                Start it.
        Essential and off: btf. See above what that costs, and what to do.
        ");
    }

    #[test]
    fn what_is_essential_is_among_what_is_probed() {
        let probed = crate::host::capability::probe();
        for name in ESSENTIAL {
            assert!(probed.iter().any(|capability| capability.name == name), "{name}");
        }
    }

    #[test]
    fn another_version_of_the_daemon_is_pointed_out() {
        let line = daemon(&daemon_of("9.9.9"));
        assert!(line.starts_with("daemon: version 9.9.9 (this is watchdogctl "), "{line}");
    }

    #[test]
    fn set_aside_files_are_named() {
        let mut known = daemon_of(env!("CARGO_PKG_VERSION"));
        known.set_aside = super::super::status::testing::in_trouble().set_aside;
        assert!(daemon(&known).ends_with(
            "\nset aside: /run/x/gate.jsonl: it is a FIFO, not a regular file; kept as /run/x/gate.jsonl.set-aside-1"
        ));
    }

    #[test]
    fn the_document_has_a_place_for_all_of_it() {
        let diagnosis = Diagnosis::new(good(), daemon_of("0.1.0"));
        let document = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(document["ok"], true);
        assert_eq!(document["capabilities"][0]["name"], "btf");
        assert_eq!(document["capabilities"][0]["essential"], true);
        assert_eq!(document["capabilities"][2]["remedy"], "boot with psi=1");
        assert_eq!(document["daemon"]["kernel_events"], true);
    }
}
