//! The explanation of an exit as text.

use std::time::Duration;

use super::phrases::{by, child_ending, named, round};
use super::story;
use crate::unit;
use watchdog_api::{
    Cause, Certainty, DeathFacts, DeathSeries, KernelReason, KillerRole, MemoryHolders, OomKill, OomScope, ProcessKind,
};
use watchdog_types::signals::{
    self, SIGBUS, SIGFPE, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGSYS, SIGXCPU, SIGXFSZ,
};
use watchdog_types::units::{count, seconds, size, span};

/// Smaller growth is not mentioned.
const MIN_GROWTH: i64 = 16 << 20;
/// A host with less available memory is reported as short of memory.
const SHORT_PERCENT: u64 = 10;
/// Sessions with a smaller share of the used memory did not fill the host.
const MINOR_PERCENT: u64 = 25;
/// Maximum number of cgroups whose pressure is named.
const MAX_PRESSURES: usize = 3;

pub(super) fn paragraph(facts: &DeathFacts) -> String {
    let mut sentences = vec![headline(facts)];
    sentences.extend(together(facts));
    sentences.extend(life(facts));
    sentences.extend(limit(facts));
    let held = facts.oom.as_ref().map(|oom| (&oom.memory, Some(oom.scope)));
    let when_killed = facts.memory_holders.as_ref().filter(|memory| memory.sessions_bytes > 0);
    let held = held.or(when_killed.map(|memory| (memory, None)));
    sentences.extend(held.map(|(memory, scope)| holders(memory, scope, facts)));
    sentences.extend(pressure(facts));
    sentences.extend(host(facts));
    sentences.extend(story::sentences(facts));
    sentences.extend(facts.series.as_ref().map(|of| series(of, facts)));
    sentences.join(" ")
}

/// The process and its cause of exit, in one sentence.
pub(super) fn headline(facts: &DeathFacts) -> String {
    let absence = if facts.while_no_daemon_ran { " The daemon was not running at that time." } else { "" };
    format!("{} {}.{absence}", subject(facts), ending(facts))
}

fn subject(facts: &DeathFacts) -> String {
    let session = match (facts.session, &facts.profile) {
        (Some(session), Some(profile)) => format!("session {session}, {profile}"),
        (Some(session), None) => format!("session {session}"),
        (None, _) => return format!("{} (pid {}, outside any session)", facts.name, facts.pid),
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
            Some(signal) => format!("exited with code {code} (from a shell: {})", signals::name(signal.into())),
            None => format!("exited with code {code}"),
        },
        Cause::AskedToEnd => match &facts.sender {
            Some(sender) => format!(
                "exited with code {code}, {} after {} {}",
                seconds(round(sender.before_seconds)),
                signals::name(sender.signal.into()),
                by(sender, facts.origin.as_ref())
            ),
            None => format!("exited with code {code} after a signal"),
        },
        Cause::Killed => match &facts.sender {
            Some(sender) => format!("was killed by {signal} {}", by(sender, facts.origin.as_ref())),
            None if facts.signal == Some(SIGKILL) => {
                format!(
                    "was killed by {signal}, and no sender was observed: for example, strict seccomp kills without a signal"
                )
            }
            None => format!("was killed by {signal}; the sender is unknown"),
        },
        Cause::KernelSignal => by_the_kernel(facts, &signal),
        Cause::BrokenPipe => format!("was killed by {signal}: it wrote to a pipe without a reader"),
        Cause::Fault => format!("crashed with {signal}: {}", fault(facts.signal.unwrap_or_default())),
        Cause::Aborted => format!("aborted ({signal}) on an unrecoverable error"),
        Cause::HeapLimit => heap(facts, &signal),
        Cause::Oom => {
            format!("was killed by the kernel's OOM killer{}", facts.oom.as_ref().map(scope).unwrap_or_default())
        }
        Cause::PassedOn => match &facts.passed_on_from {
            Some(child) => {
                format!("exited with code {code} because its child {} {}", named(child), child_ending(child))
            }
            None => format!("exited with code {code}, the status of a child"),
        },
        Cause::Unknown => "exited; its exit status was not observed".into(),
    }
}

fn by_the_kernel(facts: &DeathFacts, signal: &str) -> String {
    match facts.kernel_reason {
        Some(KernelReason::CpuLimit) => {
            return format!("was killed by {signal} from the kernel: it reached {}", cpu_limit(facts));
        }
        Some(KernelReason::NamespaceEnd) => {
            let first = facts
                .sender
                .as_ref()
                .map(|sender| format!(" {} (pid {}),", sender.name.as_ref().unwrap_or(&sender.comm), sender.pid));
            let first = first.unwrap_or_default();
            return format!(
                "was killed by {signal} from the kernel:{first} the first process of its pid namespace, exited"
            );
        }
        Some(KernelReason::Seccomp) => {
            return format!(
                "was killed by {signal} from the kernel: strict seccomp forbids the system call that it made"
            );
        }
        None => {}
    }
    match facts.signal.unwrap_or_default() {
        SIGHUP => format!("was killed by {signal} from the kernel: its terminal closed or its session leader exited"),
        SIGINT | SIGQUIT => format!("was killed by {signal}, typed at its terminal"),
        SIGKILL => format!(
            "was killed by the kernel ({signal}), but no OOM kill was observed: its pid namespace ended, it reached a \
             resource limit, its tracer exited, or its program failed to load"
        ),
        SIGXCPU => format!("was killed by {signal} from the kernel: it reached {}", cpu_limit(facts)),
        SIGXFSZ => format!("was killed by {signal} from the kernel: it exceeded its file size limit (RLIMIT_FSIZE)"),
        _ => format!("was killed by {signal} from the kernel"),
    }
}

/// Both limits send the same signals; only the hard limit of RLIMIT_CPU is read.
fn cpu_limit(facts: &DeathFacts) -> String {
    match facts.cpu_limit_seconds {
        Some(limit) => format!("its CPU time limit (RLIMIT_CPU, {limit} s)"),
        None => "its CPU time limit (RLIMIT_CPU, or RLIMIT_RTTIME of a realtime process)".into(),
    }
}

fn fault(number: u8) -> &'static str {
    match number {
        SIGBUS => "bus error (e.g. truncated mmap file, or a full file system or hugepage pool behind a mapping)",
        SIGFPE => "arithmetic error (e.g. division by zero)",
        SIGSEGV => "invalid memory access (bad pointer or stack overflow)",
        SIGSYS => "forbidden system call (seccomp)",
        _ => "trap or illegal instruction (e.g. a failed runtime check)",
    }
}

fn heap(facts: &DeathFacts, signal: &str) -> String {
    let Some(heap) = facts.heap else { return format!("ran out of V8 heap and aborted ({signal})") };
    let source = if heap.stated { "from --max-old-space-size" } else { "the V8 default here" };
    format!(
        "ran out of V8 heap and aborted ({signal}): heap limit {} ({source}), peak {}; not an OOM kill",
        size(heap.limit_bytes),
        size(facts.memory.peak_bytes.max(facts.memory.last_bytes))
    )
}

fn scope(oom: &OomKill) -> String {
    let inferred = if oom.scope_is == Certainty::Inferred { " (inferred from limits and host memory)" } else { "" };
    match (oom.scope, &oom.cgroup) {
        (OomScope::Global, _) => format!(": the host ran out of memory{inferred}"),
        (OomScope::Cgroup, Some(cgroup)) => {
            let limit = oom.cgroup_max_bytes.map(|max| format!(" of {}", size(max))).unwrap_or_default();
            format!(": its cgroup {cgroup} reached its limit{limit}{inferred}")
        }
        (OomScope::Cgroup, None) => {
            ": a cgroup reached its limit, which is unknown (inferred: the host had memory left)".into()
        }
        (OomScope::Unknown, _) => "; unknown whether the host or a cgroup ran out of memory".into(),
    }
}

/// `It ran 7s; 205 MiB at exit, 242 MiB peak, grew 139 MiB in 2.3s.`
fn life(facts: &DeathFacts) -> Option<String> {
    let memory = &facts.memory;
    let peak = memory.peak_bytes.max(memory.last_bytes);
    let at_exit = (memory.last_bytes > 0).then(|| format!("{} at exit", size(memory.last_bytes)));
    let peak = (peak > 0).then(|| format!("{} peak", size(peak)));
    let grown = memory.growth_bytes.filter(|bytes| *bytes >= MIN_GROWTH).map(|bytes| {
        let within =
            memory.growth_window_seconds.map(|within| format!(" in {}", seconds(round(within)))).unwrap_or_default();
        let doubled = match (memory.doubled_in_seconds, memory.growth_window_seconds) {
            (Some(doubled), Some(within)) if doubled < within * 0.75 => {
                format!(" (doubled in the last {})", seconds(round(doubled)))
            }
            _ => String::new(),
        };
        format!("grew {}{within}{doubled}", size(bytes.unsigned_abs()))
    });
    let memory = [at_exit, peak, grown].into_iter().flatten().collect::<Vec<_>>().join(", ");
    match facts.age_seconds.map(|age| seconds(round(age))) {
        Some(age) if memory.is_empty() => Some(format!("It ran {age}.")),
        Some(age) => Some(format!("It ran {age}; {memory}.")),
        None if memory.is_empty() => None,
        None => Some(format!("Memory: {memory}.")),
    }
}

/// `It and 11 more processes of /user.slice/app.scope were killed at once, as cgroup.kill does.`
fn together(facts: &DeathFacts) -> Option<String> {
    let cgroup = facts.cgroup.as_ref().filter(|_| facts.killed_together > 0)?;
    let others = count(facts.killed_together, "more process", "more processes");
    let unit = unit::innermost(cgroup).map(|unit| format!("{unit} ({cgroup})")).unwrap_or_else(|| cgroup.clone());
    Some(format!("It and {others} of {unit} were killed at once, as a kill of the whole cgroup does."))
}

/// `It was within 12 MiB of its address space limit (ulimit -v) of 2.0 GiB, beyond which allocations fail.`
fn limit(facts: &DeathFacts) -> Option<String> {
    let near = facts.limit_near.as_ref()?;
    let (left, max) = (size(near.left_bytes), size(near.max_bytes));
    Some(format!("It was within {left} of its {} of {max}, beyond which allocations fail.", near.name))
}

/// `Memory pressure over 10 s: 71 % some, 55 % full in app.scope (/user.slice/app.scope).`
fn pressure(facts: &DeathFacts) -> Option<String> {
    let listed: Vec<String> = facts
        .pressure
        .iter()
        .take(MAX_PRESSURES)
        .map(|then| format!("{:.0} % some, {:.0} % full in {}", then.some_avg10, then.full_avg10, then.cgroup))
        .collect();
    (!listed.is_empty()).then(|| format!("Memory pressure over 10 s: {}.", listed.join("; ")))
}

/// `scope` is that of the kernel's OOM kill; `None` when a process killed.
fn holders(memory: &MemoryHolders, scope: Option<OomScope>, facts: &DeathFacts) -> String {
    let known = facts.oom.as_ref().is_some_and(|oom| oom.cgroup.is_some());
    let within = if scope == Some(OomScope::Cgroup) && known { " in that cgroup" } else { "" };
    if memory.sessions_bytes == 0 {
        return format!("No session is known to have held memory{within}.");
    }
    let listed: Vec<String> = memory
        .holders
        .iter()
        .map(|holder| {
            let session = match (holder.session, &holder.profile) {
                (Some(session), Some(profile)) => format!("session {session} ({profile})"),
                _ => "a session of another user".into(),
            };
            format!("{session} {} in {}", size(holder.memory_bytes), count(holder.processes, "process", "processes"))
        })
        .collect();
    let mut text = format!("Sessions held {}{within}: {}", size(memory.sessions_bytes), listed.join(", "));
    if memory.orphans > 0 {
        let orphans = count(memory.orphans, "orphan", "orphans");
        text.push_str(&format!("; {orphans} held {} of it", size(memory.orphaned_bytes)));
    }
    let used = facts.host.total_bytes.saturating_sub(facts.host.available_bytes);
    if matches!(scope, None | Some(OomScope::Global)) && memory.sessions_bytes < used / 100 * MINOR_PERCENT {
        text.push_str(&format!("; a small part of the {} in use, so the cause is elsewhere", size(used)));
    }
    text.push('.');
    let largest: Vec<String> = memory
        .largest
        .iter()
        .take(3)
        .map(|large| {
            let score = large.oom_score_adj.map(|score| format!(", oom_score_adj {score}")).unwrap_or_default();
            format!("{} (pid {}) {}{score}", large.name, large.pid, size(large.memory_bytes))
        })
        .collect();
    if let Some(first) = memory.largest.first() {
        text.push_str(&format!(" Largest processes: {}.", largest.join("; ")));
        if first.pid != facts.pid && facts.session.is_some() {
            let role = facts.sender.as_ref().and_then(|sender| sender.role);
            let by_score = scope.is_some() || role == Some(KillerRole::OomKiller);
            let why = if by_score { ": the OOM killer also weighs oom_score_adj" } else { "" };
            text.push_str(&format!(" The victim was not the largest{why}."));
        }
    }
    text
}

/// `Host: 22/24 GiB available, swap 1.0/2.0 GiB free, pressure 0 %.`
fn host(facts: &DeathFacts) -> Option<String> {
    let host = &facts.host;
    // The host's memory does not explain an ordinary exit.
    let relevant = !matches!(facts.cause, Cause::Finished | Cause::Failed | Cause::BrokenPipe);
    if host.total_bytes == 0 || !relevant {
        return None;
    }
    let mut text = format!("Host: {} available", part_of(host.available_bytes, host.total_bytes));
    if host.swap_total_bytes > 0 {
        text.push_str(&format!(", swap {} free", part_of(host.swap_free_bytes, host.swap_total_bytes)));
    }
    if let Some(some) = host.pressure_some_avg10 {
        text.push_str(&format!(", pressure {some:.0} %"));
    }
    // An OOM kill states its own cause.
    if facts.oom.is_none() && host.available_bytes < host.total_bytes / 100 * SHORT_PERCENT {
        text.push_str(" (short of memory)");
    }
    text.push('.');
    Some(text)
}

/// `22/24 GiB`, or `512 MiB/24 GiB` where the units differ.
fn part_of(part: u64, whole: u64) -> String {
    let (part, whole) = (size(part), size(whole));
    let unit = whole.split_once(' ').map_or("", |(_, unit)| unit);
    let part = part.strip_suffix(unit).map_or(part.as_str(), str::trim_end);
    format!("{part}/{whole}")
}

/// `Its starter (pid 100) has lost 6 gemini in 2h: 6 times it ran out of V8 heap, after 20m.`
fn series(series: &DeathSeries, facts: &DeathFacts) -> String {
    let span_of = |seconds: f64| span(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let times = count(series.same_cause, "time", "times");
    let age = series.median_age_seconds.map(|age| format!(", mostly after {}", span_of(age))).unwrap_or_default();
    let how = match facts.cause {
        Cause::HeapLimit => "it ran out of V8 heap",
        Cause::Oom => "the OOM killer killed it",
        Cause::Killed | Cause::KernelSignal => "a signal killed it",
        Cause::Fault => "it crashed",
        Cause::Aborted => "it aborted",
        Cause::AskedToEnd => "it exited after a signal",
        Cause::Failed | Cause::PassedOn => "it failed",
        Cause::BrokenPipe => "its pipe had no reader",
        Cause::Finished | Cause::Unknown => "it exited",
    };
    let starter = series.starter_pid.or(facts.parent_pid).map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let (name, lives, within) = (&facts.name, series.deaths, span_of(series.span_seconds));
    format!("Its starter{starter} has started {name} {lives} times in {within}: {times} {how}{age}.")
}
