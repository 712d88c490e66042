//! Phrases about the senders of signals and about other exits.

use std::time::Duration;

use watchdog_api::{Cause, Companion, KillerRole, Relation, Sender};
use watchdog_types::signals::{self, SIGHUP, SIGINT, SIGQUIT};

const OOM_KILLER: &str = "a userspace OOM killer by its name";

/// Where a signal came from, as it follows the signal's name.
pub(super) fn by(sender: &Sender, origin: Option<&Sender>) -> String {
    let before = origin.map(|origin| (source(origin), signals::name(origin.signal.into()), action(origin)));
    match (sender.relation, before) {
        (Relation::Itself, None) => "that it sent to itself".into(),
        (Relation::Itself, Some((origin, signal, action))) => {
            format!("re-raised by its own handler after {origin} sent {signal}{action}")
        }
        (_, None) => format!("from {}{}", source(sender), action(sender)),
        (_, Some((origin, signal, action))) => {
            format!("from {}, which had received {signal} from {origin}{action}", source(sender))
        }
    }
}

fn action(sender: &Sender) -> String {
    sender.action.map(|action| format!(" (action {action})")).unwrap_or_default()
}

fn source(sender: &Sender) -> String {
    let name = sender.name.as_ref().unwrap_or(&sender.comm);
    let pid = sender.pid;
    match sender.relation {
        Relation::Itself => "itself".into(),
        Relation::Watchdog => "agent-watchdog".into(),
        Relation::Kernel => match sender.signal {
            SIGHUP => "the kernel (terminal closed or session leader exited)".into(),
            SIGINT | SIGQUIT => "the kernel (typed at the terminal)".into(),
            _ => "the kernel".into(),
        },
        Relation::Parent if sender.by_its_death => {
            format!("its parent {name} (pid {pid}), which exited (PR_SET_PDEATHSIG)")
        }
        Relation::Parent if sender.by_thread_exit => {
            format!(
                "its parent {name} (pid {pid}), whose thread that had started it exited (PR_SET_PDEATHSIG); the parent runs on"
            )
        }
        Relation::Parent => format!("its parent {name} (pid {pid})"),
        Relation::SameTree => format!("{name} (pid {pid}{}) in its own tree", role(sender)),
        Relation::OtherTree => match sender.session {
            Some(session) => format!("{name} (pid {pid}{}) in session {session}, another agent's tree", role(sender)),
            None => format!("{name} (pid {pid}{}) in another agent's tree", role(sender)),
        },
        Relation::Stranger if pid == 0 => {
            format!("{} (uid {}, outside the pid namespace of the watchdog)", sender.comm, sender.uid)
        }
        Relation::Stranger => {
            let what = match sender.role {
                Some(KillerRole::OomKiller) => OOM_KILLER,
                Some(KillerRole::ServiceManager) => "the service manager, which stops units",
                Some(KillerRole::ContainerRuntime) => "a container runtime, which stops containers",
                Some(KillerRole::Supervisor) => "a supervisor or orchestrator by its name",
                None => "outside any session",
            };
            let unit = sender.unit.as_ref().map(|unit| format!(", {unit}")).unwrap_or_default();
            let exit = match sender {
                Sender { by_thread_exit: true, .. } => {
                    ", whose thread that had started it exited (PR_SET_PDEATHSIG); the starter runs on"
                }
                Sender { by_its_death: true, .. } => ", which had started it and exited (PR_SET_PDEATHSIG)",
                _ => "",
            };
            format!("{name} (pid {pid}, uid {}{unit}, {what}){exit}", sender.uid)
        }
    }
}

fn role(sender: &Sender) -> String {
    if sender.role == Some(KillerRole::OomKiller) { format!(", {OOM_KILLER}") } else { String::new() }
}

pub(super) fn named(child: &Companion) -> String {
    format!("{} (pid {})", child.name, child.pid)
}

pub(super) fn child_ending(child: &Companion) -> String {
    let signal = child.signal.map_or_else(|| "a signal".into(), |signal| signals::name(signal.into()));
    let from = child.sender.as_ref().map(|sender| format!(" {}", by(sender, None))).unwrap_or_default();
    match child.cause {
        Cause::HeapLimit => format!("ran out of V8 heap and aborted ({signal})"),
        Cause::Oom => "was killed by the kernel's OOM killer".into(),
        Cause::Aborted => format!("aborted ({signal})"),
        Cause::Fault => format!("crashed with {signal}"),
        Cause::BrokenPipe => format!("was killed by {signal}: its pipe had no reader"),
        _ if child.signal.is_some() => format!("was killed by {signal}{from}"),
        Cause::AskedToEnd => {
            let asked =
                child.sender.as_ref().map_or_else(|| "a signal".into(), |sender| signals::name(sender.signal.into()));
            format!("exited with code {} after {asked}{from}", child.exit_code.unwrap_or_default())
        }
        _ => format!("exited with code {}", child.exit_code.unwrap_or_default()),
    }
}

/// Milliseconds below one second, tenths above.
pub(super) fn round(seconds: f64) -> f64 {
    let exact = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    let step = if exact < Duration::from_secs(1) { 1_000.0 } else { 10.0 };
    (exact.as_secs_f64() * step).round() / step
}
