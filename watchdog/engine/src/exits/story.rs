//! Deaths around one as a story in the order of time: what came first, how, and what followed.

use super::phrases::{child_ending, named, round};
use watchdog_api::{Cause, Companion, DeathFacts, Sender};
use watchdog_types::units::{count, seconds, size};

/// Companions named.
const MAX_NAMED: usize = 3;

/// `rust-analyzer (pid 7) was killed by SIGKILL from earlyoom (pid 3, …) 0.5s before it in cgroup /a. This exit may follow from it.`
/// Then the exits after it, and the processes that it left.
pub(super) fn sentences(facts: &DeathFacts) -> Option<String> {
    let (mut before, others): (Vec<&Companion>, Vec<&Companion>) =
        facts.died_with.iter().partition(|other| is_possible_cause(other, facts));
    let (mut after, others): (Vec<&Companion>, Vec<&Companion>) =
        others.into_iter().partition(|other| other.later && is_forced(other));
    before.sort_by(|one, other| other.apart_seconds.total_cmp(&one.apart_seconds));
    after.sort_by(|one, other| one.apart_seconds.total_cmp(&other.apart_seconds));
    let mut sentences = Vec::new();
    let place =
        |other: &Companion| other.cgroup.as_ref().map(|cgroup| format!(" in cgroup {cgroup}")).unwrap_or_default();
    let apart = |other: &Companion| seconds(round(other.apart_seconds));
    // The first is the likely cause of the others.
    for other in before.iter().take(MAX_NAMED) {
        sentences.push(format!("{} {} {} before it{}.", named(other), child_ending(other), apart(other), place(other)));
    }
    let is_related = before.iter().any(|other| other.related);
    if is_related && matches!(facts.cause, Cause::Failed | Cause::BrokenPipe | Cause::Aborted) {
        sentences.push("This exit may follow from it.".into());
    }
    for other in after.iter().take(MAX_NAMED) {
        sentences.push(format!("Then {} {} {} after it.", named(other), child_ending(other), apart(other)));
    }
    let shown: Vec<String> = others.iter().take(MAX_NAMED).map(|other| named(other)).collect();
    let named_count = before.len().min(MAX_NAMED) + after.len().min(MAX_NAMED) + shown.len();
    let more = facts.died_with_count.saturating_sub(named_count as u64);
    match (shown.is_empty(), more) {
        (true, 0) => {}
        (true, more) => sentences.push(format!("{more} more exited within 1s of it.")),
        (false, 0) => sentences.push(format!("Exited within 1s of it: {}.", shown.join(", "))),
        (false, more) => sentences.push(format!("Exited within 1s of it: {} and {more} more.", shown.join(", "))),
    }
    if let Some(left) = facts.left {
        let processes = count(left.processes, "process", "processes");
        sentences.push(format!("It left {processes} running with {}.", size(left.memory_bytes)));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// An exit that something else caused, or an error.
fn is_forced(other: &Companion) -> bool {
    !matches!(other.cause, Cause::Finished | Cause::Failed | Cause::PassedOn | Cause::Unknown)
}

/// An abnormal exit before this one that another process caused. What one sender kills has one cause.
fn is_possible_cause(other: &Companion, facts: &DeathFacts) -> bool {
    let pid = |sender: &Option<Sender>| sender.as_ref().map(|sender| sender.pid);
    let same_sender = other.sender.is_some() && pid(&other.sender) == pid(&facts.sender);
    !other.later && is_forced(other) && !same_sender
}
