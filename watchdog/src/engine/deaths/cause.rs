//! Why a process died, from how it ended, what it was sent, and what held its memory.

use std::time::Duration;

use super::dead::Dead;
use super::signals::Note;
use crate::api::{Cause, HeapLimit, Relation};
use crate::engine::classify::Program;
use crate::engine::id::Bytes;
use crate::engine::input::ExitStatus;
use crate::signals::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};

/// What the processor or a filter of system calls makes of a mistake.
const FAULTS: [u8; 6] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];
/// V8 ends itself by SIGABRT; where it was built to stop at once, by a trap.
const ENDS_OF_V8: [u8; 3] = [SIGABRT, SIGILL, SIGTRAP];

/// Who exits so shortly after a request to end does it because of that: with the code that says so, or another.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const MAY_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A conclusion.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    pub(super) cause: Cause,
    /// The signal that did it.
    pub(super) signal: Option<&'a Note>,
    pub(super) heap: Option<HeapLimit>,
}

/// Judges a death by itself.
pub(super) fn judge(dead: &Dead) -> Judged<'_> {
    match dead.status {
        None if dead.oom.is_some() => Judged { cause: Cause::Oom, signal: None, heap: None },
        None => Judged { cause: Cause::Unknown, signal: None, heap: None },
        Some(ExitStatus::Code(code)) => {
            let signal = answered(dead, code);
            let cause = match (signal, code) {
                (Some(_), _) => Cause::AskedToEnd,
                (None, 0) => Cause::Finished,
                (None, _) => Cause::Failed,
            };
            Judged { cause, signal, heap: None }
        }
        Some(ExitStatus::Signal(number)) => by_signal(dead, number),
    }
}

fn by_signal(dead: &Dead, number: u8) -> Judged<'_> {
    let signal = deadly(dead, number);
    let relation = signal.map(|note| note.relation);
    let by_itself = matches!(relation, None | Some(Relation::Itself | Relation::Kernel));
    let heap = filled_heap(dead).filter(|_| ENDS_OF_V8.contains(&number) && by_itself);
    let cause = match (number, relation) {
        (SIGKILL, _) if dead.oom.is_some() => Cause::Oom,
        _ if heap.is_some() => Cause::HeapLimit,
        (SIGABRT, None | Some(Relation::Itself)) => Cause::Aborted,
        (SIGPIPE, None | Some(Relation::Kernel)) => Cause::BrokenPipe,
        (number, None | Some(Relation::Kernel)) if FAULTS.contains(&number) => Cause::Fault,
        (_, Some(Relation::Kernel)) => Cause::KernelSignal,
        (_, _) => Cause::Killed,
    };
    Judged { cause, signal, heap }
}

/// The note of the signal that ended it. Nobody survives the first SIGKILL; of others, earlier ones were survived.
fn deadly(dead: &Dead, number: u8) -> Option<&Note> {
    let mut same = dead.signals.iter().filter(|note| note.signal == number);
    if number == SIGKILL { same.next() } else { same.next_back() }
}

/// The request to end that an exit with this code answers.
fn answered(dead: &Dead, code: u8) -> Option<&Note> {
    dead.signals.iter().rev().find(|note| {
        let asks = matches!(note.signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) && note.delivered;
        let says_so = code.checked_sub(128) == Some(note.signal);
        let patience = if says_so { ANSWERS_WITHIN } else { MAY_ANSWER_WITHIN };
        asks && dead.at.since(note.at) <= patience
    })
}

/// The heap limit that a node process was at. Its resident set is a little more than its heap: code, stacks, the young
/// generation, and buffers, which do not count towards the limit.
fn filled_heap(dead: &Dead) -> Option<HeapLimit> {
    if !Program::of(&dead.image).runs_on_node() {
        return None;
    }
    let stated = dead.limits.as_deref().and_then(|limits| limits.v8_heap);
    let limit = stated.or_else(|| default_heap(dead.host.total))?;
    let (least, most) = (limit.percent(85).0, limit.0.saturating_mul(3) / 2 + Bytes::from_mib(256).0);
    (least..=most)
        .contains(&dead.peak.max(dead.last).0)
        .then_some(HeapLimit { limit_bytes: limit.0, stated: stated.is_some() })
}

/// V8's limit where nobody states one: half of the memory that there is, 2 GiB at most, and 4 GiB where there are 15 GiB
/// or more (`Heap::MaxOldGenerationSizeFromPhysicalMemory`, on 64 bits).
fn default_heap(total: Bytes) -> Option<Bytes> {
    const GIB: u64 = 1 << 30;
    let most = if total.0 >= 15 * GIB { 4 * GIB } else { 2 * GIB };
    (total.0 > 0).then(|| Bytes(most.min(total.0 / 2)))
}
