//! A death in one paragraph, for a person who has just woken up.

use std::time::Duration;

use crate::api::{Cause, Certainty, Companion, DeathFacts, OomKill, OomScope, ProcessKind, Relation, Sender};
use crate::signals::{self, SIGBUS, SIGFPE, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGSYS, SIGXCPU};
use crate::units::{count, seconds, size};

/// Growth of less than this is not worth a word.
const WORTH_A_WORD: i64 = 16 << 20;
/// A host that has this share of its memory available is not short of it.
const PLENTY: u64 = 20;
/// One that has less than this is.
const SHORT: u64 = 10;
/// Sessions that held less than this share of what was in use did not fill the host.
const A_PART: u64 = 25;
/// Programs that kill from user space when memory is short, by their comm.
const USER_SPACE_OOM_KILLERS: [&str; 5] = ["earlyoom", "systemd-oomd", "oomd", "nohang", "low-memory-moni"];

/// All that is known, in sentences.
pub(super) fn paragraph(facts: &DeathFacts) -> String {
    let mut sentences = vec![headline(facts)];
    sentences.extend(life(facts));
    sentences.extend(facts.oom.as_ref().map(|oom| holders(oom, facts)));
    sentences.extend(host(facts));
    sentences.extend(companions(facts));
    sentences.join(" ")
}

/// Who, and why, in one sentence.
pub(super) fn headline(facts: &DeathFacts) -> String {
    let absence = if facts.while_no_daemon_ran { " It died while no daemon ran." } else { "" };
    format!("{} {}.{absence}", subject(facts), ending(facts))
}

fn subject(facts: &DeathFacts) -> String {
    let session = match (facts.session, &facts.profile) {
        (Some(session), Some(profile)) => format!("session {session}, {profile}"),
        (Some(session), None) => format!("session {session}"),
        (None, _) => return format!("{} (pid {}), a process of no agent,", facts.name, facts.pid),
    };
    let role = match facts.kind {
        Some(ProcessKind::Agent) => "the agent of ",
        Some(ProcessKind::Subagent) => "a subagent of ",
        Some(ProcessKind::McpServer) => "an MCP server of ",
        Some(ProcessKind::Browser) => "a browser process of ",
        Some(ProcessKind::LanguageServer) => "a language server of ",
        Some(ProcessKind::Tool) => "a tool of ",
        Some(ProcessKind::Other) | None => "of ",
    };
    format!("{} (pid {}, {role}{session})", facts.name, facts.pid)
}

fn ending(facts: &DeathFacts) -> String {
    let signal = facts.signal.map_or_else(|| "a signal".to_owned(), |signal| signals::name(signal.into()));
    let code = facts.exit_code.unwrap_or_default();
    match facts.cause {
        Cause::Finished => "exited with code 0".into(),
        Cause::Failed => match code.checked_sub(128).filter(|signal| *signal > 0 && *signal < 65) {
            Some(signal) => {
                format!(
                    "exited with code {code}, which stands for {} where a shell says it",
                    signals::name(signal.into())
                )
            }
            None => format!("exited with code {code}"),
        },
        Cause::AskedToEnd => match &facts.sender {
            Some(sender) => format!(
                "exited with code {code}, {} after it was sent {} {}",
                seconds(round(sender.before_seconds)),
                signals::name(sender.signal.into()),
                by(sender, facts.origin.as_ref())
            ),
            None => format!("exited with code {code} after a signal"),
        },
        Cause::Killed => match &facts.sender {
            Some(sender) => format!("was ended by {signal}, sent {}", by(sender, facts.origin.as_ref())),
            None => format!("was ended by {signal}; nobody saw who sent it"),
        },
        Cause::KernelSignal => by_the_kernel(facts.signal.unwrap_or_default(), &signal),
        Cause::BrokenPipe => format!("was ended by {signal}: it wrote into a pipe that nobody read any more"),
        Cause::Fault => format!("crashed with {signal}: {}", fault(facts.signal.unwrap_or_default())),
        Cause::Aborted => format!("aborted itself ({signal}), as programs do on an error that they cannot handle"),
        Cause::HeapLimit => heap(facts, &signal),
        Cause::Oom => {
            format!("was killed by the kernel's OOM killer{}", facts.oom.as_ref().map(where_to).unwrap_or_default())
        }
        Cause::PassedOn => match &facts.passed_on_from {
            Some(child) => {
                format!("exited with code {code}, which passes on the end of {}: {}", named(child), end_of(child))
            }
            None => format!("exited with code {code}, which passes on the end of a child"),
        },
        Cause::Unknown => "is gone, and nobody saw how it ended".into(),
    }
}

fn by_the_kernel(number: u8, signal: &str) -> String {
    match number {
        SIGHUP => {
            format!("was ended by {signal} from the kernel: its terminal, or the leader of its session, went away")
        }
        SIGINT | SIGQUIT => format!("was ended by {signal} from its terminal, where somebody typed it"),
        SIGKILL => format!(
            "was killed by the kernel itself ({signal}), without a choice of the OOM killer that was seen: its pid \
             namespace ended, it used up a limit, or its program could not be loaded"
        ),
        SIGXCPU => format!("was ended by {signal} from the kernel: it used up the CPU time that its limit allows"),
        _ => format!("was ended by {signal} from the kernel"),
    }
}

fn fault(number: u8) -> &'static str {
    match number {
        SIGBUS => "it touched memory behind which there is nothing, such as a file that was cut short",
        SIGFPE => "it calculated what has no result, such as a division by zero",
        SIGSEGV => "it touched memory that it does not have: a bad pointer, or a stack that ran over",
        SIGSYS => "it made a system call that a filter forbids",
        _ => "it came to an instruction that stops it, as runtimes place them behind failed checks",
    }
}

fn heap(facts: &DeathFacts, signal: &str) -> String {
    let Some(heap) = facts.heap else { return format!("filled its V8 heap and aborted ({signal})") };
    let whose = if heap.stated { "as its arguments or NODE_OPTIONS state" } else { "V8's own limit on this host" };
    format!(
        "filled its V8 heap and aborted ({signal}): the heap may have {} ({whose}), and the process had {} at its peak. \
         The kernel's OOM killer had no part in it",
        size(heap.limit_bytes),
        size(facts.memory.peak_bytes.max(facts.memory.last_bytes))
    )
}

fn where_to(oom: &OomKill) -> String {
    let inferred =
        if oom.scope_is == Certainty::Inferred { ", as far as limits and the host's memory tell" } else { "" };
    match (oom.scope, &oom.cgroup) {
        (OomScope::Global, _) => format!(", because the host ran out of memory{inferred}"),
        (OomScope::Cgroup, Some(cgroup)) => {
            let limit = oom.cgroup_max_bytes.map(|max| format!(" of {}", size(max))).unwrap_or_default();
            format!(", because its cgroup {cgroup} reached its limit{limit}{inferred}")
        }
        (OomScope::Cgroup, None) => format!(", because a cgroup reached its limit{inferred}"),
        (OomScope::Unknown, _) => "; whether the host ran out of memory or a cgroup could not be told".into(),
    }
}

fn by(sender: &Sender, origin: Option<&Sender>) -> String {
    let name = sender.name.as_ref().unwrap_or(&sender.comm);
    let pid = sender.pid;
    let direct = match sender.relation {
        Relation::Itself => "by itself".into(),
        Relation::Watchdog => match sender.action {
            Some(action) => format!("by agent-watchdog (action {action})"),
            None => "by agent-watchdog".into(),
        },
        Relation::Kernel => {
            "by the kernel: its terminal, or the leader of its session, went away, or somebody typed it".into()
        }
        Relation::Parent if sender.by_its_death => {
            format!("by the death of its parent {name} (pid {pid}), as it had asked for")
        }
        Relation::Parent => format!("by its parent {name} (pid {pid})"),
        Relation::SameTree => format!("by {name} (pid {pid}) of its own tree"),
        Relation::OtherTree => match sender.session {
            Some(session) => format!("by {name} (pid {pid}) of another agent's tree, session {session}"),
            None => format!("by {name} (pid {pid}) of another agent's tree"),
        },
        Relation::Stranger => {
            let what = if USER_SPACE_OOM_KILLERS.contains(&sender.comm.as_str()) {
                "by its name a program that kills when memory is short"
            } else {
                "a process of no agent"
            };
            format!("by {} (pid {pid}, uid {}), {what}", sender.comm, sender.uid)
        }
    };
    match origin {
        Some(origin) => {
            format!("{direct}; that one had been sent {} {}", signals::name(origin.signal.into()), by(origin, None))
        }
        None => direct,
    }
}

fn named(child: &Companion) -> String {
    format!("{} (pid {})", child.name, child.pid)
}

fn end_of(child: &Companion) -> String {
    let signal = child.signal.map_or_else(|| "a signal".into(), |signal| signals::name(signal.into()));
    match child.cause {
        Cause::HeapLimit => format!("it filled its V8 heap and aborted ({signal})"),
        Cause::Oom => "the kernel's OOM killer took it".into(),
        Cause::Aborted => format!("it aborted itself ({signal})"),
        Cause::Fault => format!("it crashed with {signal}"),
        Cause::BrokenPipe => format!("it was ended by {signal}, since nobody read what it wrote"),
        _ if child.signal.is_some() => format!("it was ended by {signal}"),
        _ => format!("it exited with code {}", child.exit_code.unwrap_or_default()),
    }
}

fn life(facts: &DeathFacts) -> Option<String> {
    let memory = &facts.memory;
    let age = facts.age_seconds.map(|age| format!("It lived for {}", seconds(round(age))));
    let peak = memory.peak_bytes.max(memory.last_bytes);
    let held = (peak > 0).then(|| match memory.last_bytes {
        0 => format!("had {} at its peak", size(peak)),
        last => format!("held {} at last and {} at its peak", size(last), size(peak)),
    });
    let grown = memory.growth_bytes.filter(|bytes| *bytes >= WORTH_A_WORD).map(|bytes| {
        let within =
            memory.growth_window_seconds.map(|within| format!(" in {}", seconds(round(within)))).unwrap_or_default();
        let doubled = match (memory.doubled_in_seconds, memory.growth_window_seconds) {
            (Some(doubled), Some(within)) if doubled < within * 0.75 => {
                format!(", half of what it held in the last {}", seconds(round(doubled)))
            }
            _ => String::new(),
        };
        format!("it had grown by {}{within}{doubled}", size(bytes.unsigned_abs()))
    });
    let first = [age, held].into_iter().flatten().collect::<Vec<_>>().join(", ");
    match (first.is_empty(), grown) {
        (true, _) => None,
        (false, None) => Some(format!("{first}.")),
        (false, Some(grown)) => Some(format!("{first}; {grown}.")),
    }
}

fn holders(oom: &OomKill, facts: &DeathFacts) -> String {
    let within = if oom.scope == OomScope::Cgroup { " in that cgroup" } else { "" };
    if oom.holders.is_empty() {
        return format!("No agent's process is known to have held memory{within} then.");
    }
    let listed: Vec<String> = oom
        .holders
        .iter()
        .map(|holder| {
            let who = match (holder.session, &holder.profile) {
                (Some(session), Some(profile)) => format!("session {session} ({profile})"),
                _ => "a session of another user".into(),
            };
            format!("{who} {} in {}", size(holder.memory_bytes), count(holder.processes, "process", "processes"))
        })
        .collect();
    let mut text = format!("Then{within} agents held {}: {}", size(oom.sessions_bytes), listed.join(", "));
    if oom.orphans > 0 {
        let orphans = count(oom.orphans, "orphan", "orphans");
        text.push_str(&format!("; of that {orphans} held {}", size(oom.orphaned_bytes)));
    }
    let used = facts.host.total_bytes.saturating_sub(facts.host.available_bytes);
    if oom.scope == OomScope::Global && oom.sessions_bytes < used / 100 * A_PART {
        text.push_str(&format!("; that is little of the {} in use, so the cause is elsewhere", size(used)));
    }
    text.push('.');
    let largest: Vec<String> = oom
        .largest
        .iter()
        .take(3)
        .map(|large| {
            let score = large.oom_score_adj.map(|score| format!(", oom_score_adj {score}")).unwrap_or_default();
            format!("{} (pid {}) with {}{score}", large.name, large.pid, size(large.memory_bytes))
        })
        .collect();
    if let Some(first) = oom.largest.first() {
        text.push_str(&format!(" The largest: {}.", largest.join("; ")));
        if first.pid != facts.pid && facts.session.is_some() {
            text.push_str(" The victim was not the largest of them: the OOM killer weighs by size and oom_score_adj.");
        }
    }
    text
}

fn host(facts: &DeathFacts) -> Option<String> {
    let host = &facts.host;
    // How a host fares is no news to one who asks about an ordinary end.
    let telling = !matches!(facts.cause, Cause::Finished | Cause::Failed | Cause::BrokenPipe);
    if host.total_bytes == 0 || !telling {
        return None;
    }
    let mut text = format!("The host had {} of {} available", size(host.available_bytes), size(host.total_bytes));
    if host.swap_total_bytes > 0 {
        text.push_str(&format!(", and {} of {} of swap", size(host.swap_free_bytes), size(host.swap_total_bytes)));
    }
    if let Some(some) = host.pressure_some_avg10 {
        text.push_str(&format!(", with a memory pressure of {some:.0} %"));
    }
    let calm = host.pressure_some_avg10.is_none_or(|some| some < 10.0);
    let plenty = host.available_bytes >= host.total_bytes / 100 * PLENTY;
    let short = host.available_bytes < host.total_bytes / 100 * SHORT;
    // Where the OOM killer came, its reason is told already.
    match facts.oom {
        None if plenty && calm => text.push_str(": it was not short of memory"),
        None if short => text.push_str(": it was short of memory"),
        _ => {}
    }
    text.push('.');
    Some(text)
}

fn companions(facts: &DeathFacts) -> Option<String> {
    let shown: Vec<String> = facts.died_with.iter().take(3).map(named).collect();
    let more = facts.died_with_count.saturating_sub(shown.len() as u64);
    match (shown.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(format!("Within a second of it died {}.", shown.join(", "))),
        (false, more) => Some(format!("Within a second of it died {} and {more} more.", shown.join(", "))),
    }
}

/// What is short in milliseconds, what is longer in tenths.
fn round(seconds: f64) -> f64 {
    let exact = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    let step = if exact < Duration::from_secs(1) { 1_000.0 } else { 10.0 };
    (exact.as_secs_f64() * step).round() / step
}
