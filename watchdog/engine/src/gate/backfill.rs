//! Backfill: how long a launch that waits for memory blocks others, and how many may pass it.
//!
//! The first launch in queue order whose memory is not free is the head. It blocks all launches behind it that need the
//! same memory for `[gate] head_blocks_for`, so that memory which sessions release is left for it. Then
//! [`PASSES_PER_ROUND`] launches may pass it, and the next block begins.
//!
//! Each round doubles both, because a block must outlast the sessions whose memory the head needs, and their duration is
//! unknown. A round also ends once [`PASSES_PER_ROUND`] launches have passed and the queue was open for [`OPEN_FACTOR`] times the
//! block; otherwise a head would wait for weeks where launches are rare. A block is at most `head_blocks_for` longer than all
//! earlier blocks together, and at most [`MAX_BLOCK`]. A head that needs more than all sessions could release, or more than the
//! share of its user, gains nothing from a block and blocks only once.
//!
//! The phase belongs to the memory, not to the head: successive heads share it. Otherwise a user could block others forever
//! with many launches, or by cancelling a launch and queueing it again.
//! The phase ends with the grant of the head, or when no head has waited for `head_blocks_for`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::gate_record::GateRecord;
use super::launch::Blocker;
use super::queue::QueuedLaunch;
use super::session_slot::SessionSlot;
use crate::effect::{Effect, PersistCommand};
use crate::{Engine, Step};
use watchdog_api::RefusalReason;
use watchdog_types::{BootTime, ProcessId, units};

/// Passes in the first round. Each further round doubles them.
const PASSES_PER_ROUND: u32 = 16;
/// The queue stays open for at least this multiple of a block, if fewer launches pass than the round allows.
const OPEN_FACTOR: u32 = 4;
const MAX_BLOCK: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryPool {
    Host,
    /// The memory of a cgroup with a limit, by its path.
    Cgroup(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backfill {
    pub(super) head: ProcessId,
    /// When the current block began.
    pub(super) since: BootTime,
    /// Launches that passed this head.
    pub(super) passed: u32,
    /// Earlier blocks.
    pub(super) round: u32,
    /// Launches that passed any head in this round.
    pub(super) passed_in_round: u32,
    /// When the head left the queue, until another one follows.
    pub(super) left: Option<BootTime>,
}

pub(super) type Heads = BTreeMap<MemoryPool, Backfill>;

impl Backfill {
    /// Remaining time of the block; `None` when others may pass.
    pub(super) fn blocks(&self, now: BootTime, head_blocks_for: Duration) -> Option<Duration> {
        Some(self.since.plus(self.block(head_blocks_for)).since(now)).filter(|left| !left.is_zero())
    }

    /// Length of the block in this round.
    fn block(&self, head_blocks_for: Duration) -> Duration {
        head_blocks_for.saturating_mul(self.factor()).min(MAX_BLOCK)
    }

    fn round_is_over(&self, now: BootTime, head_blocks_for: Duration) -> bool {
        let block = self.block(head_blocks_for);
        let had_time = now.since(self.since.plus(block)) >= block.saturating_mul(OPEN_FACTOR);
        let passes = if had_time { PASSES_PER_ROUND } else { PASSES_PER_ROUND.saturating_mul(self.factor()) };
        self.passed_in_round >= passes
    }

    fn factor(&self) -> u32 {
        2_u32.saturating_pow(self.round)
    }
}

impl Step<'_> {
    /// Makes a launch the head. Returns the remaining time of the block.
    pub(super) fn register_head(&mut self, pool: MemoryPool, process: ProcessId) -> Option<Duration> {
        let head_blocks_for = self.engine.config.gate.head_blocks_for;
        let fresh = Backfill { head: process, since: self.now, passed: 0, round: 0, passed_in_round: 0, left: None };
        let gate = &mut self.engine.gate;
        let known = match gate.heads.entry(pool.clone()) {
            Entry::Vacant(vacant) => vacant.insert(fresh),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                if known.head == process {
                    return known.blocks(self.now, head_blocks_for);
                }
                if gate.leases.contains_key(&known.head) {
                    *known = fresh;
                } else {
                    (known.head, known.passed, known.left) = (process, 0, None);
                }
                known
            }
        };
        let blocks = known.blocks(self.now, head_blocks_for);
        self.persist_head(&pool);
        blocks
    }

    /// Counts a grant behind the head. Returns the remaining time of the block, if one began.
    pub(super) fn record_pass(&mut self, pool: &MemoryPool, slots: &[SessionSlot]) -> Option<Duration> {
        let can_be_free = self.head_can_be_free(pool, slots);
        let head_blocks_for = self.engine.config.gate.head_blocks_for;
        let known = self.engine.gate.heads.get_mut(pool)?;
        known.passed = known.passed.saturating_add(1);
        known.passed_in_round = known.passed_in_round.saturating_add(1);
        if can_be_free && known.round_is_over(self.now, head_blocks_for) {
            (known.since, known.passed_in_round) = (self.now, 0);
            if known.block(head_blocks_for) < MAX_BLOCK {
                known.round = known.round.saturating_add(1);
            }
        }
        let blocks = known.blocks(self.now, head_blocks_for);
        self.persist_head(pool);
        blocks
    }

    /// Whether the head's memory would be free, and within the share of its user, if all sessions ended.
    fn head_can_be_free(&self, pool: &MemoryPool, slots: &[SessionSlot]) -> bool {
        let gate = &self.engine.gate;
        let waiter = gate.heads.get(pool).and_then(|known| gate.queue.get(gate.queue.of(known.head)?));
        let (MemoryPool::Host, Some(waiter), Some(memory)) = (pool, waiter, self.engine.gate_memory(self.now)) else {
            return true;
        };
        let needed = self.engine.expected(&waiter.launch, &waiter.profiles);
        let most = self.engine.free_without_sessions(&memory);
        needed <= most && !self.exceeds_share(waiter.launch.uid, needed, most, slots)
    }

    /// Drops granted heads, and heads that left the queue more than `head_blocks_for` ago.
    pub(super) fn expire_heads(&mut self) {
        let (now, head_blocks_for) = (self.now, self.engine.config.gate.head_blocks_for);
        let gate = &mut self.engine.gate;
        gate.heads.retain(|_, known| {
            if gate.queue.of(known.head).is_some() {
                return true;
            }
            let left = *known.left.get_or_insert(now);
            !gate.leases.contains_key(&known.head) && now.since(left) < head_blocks_for
        });
    }

    fn persist_head(&mut self, pool: &MemoryPool) {
        if let Some(known) = self.engine.gate.heads.get(pool) {
            let record = known.record(pool);
            self.effect(Effect::Persist(PersistCommand::Gate(record)));
        }
    }
}

impl Backfill {
    pub(super) fn record(&self, pool: &MemoryPool) -> GateRecord {
        let cgroup = match pool {
            MemoryPool::Host => None,
            MemoryPool::Cgroup(path) => Some(path.clone()),
        };
        let Self { head, since, passed, round, passed_in_round, left: _ } = *self;
        GateRecord::Head { head, since, passed, round, passed_in_round, cgroup }
    }
}

impl Engine {
    /// Addition to the blocker of a launch that waits for memory: the remaining block, and for the head the passes so far.
    pub(super) fn head_note(&self, waiter: &QueuedLaunch, now: BootTime) -> Option<String> {
        waiter.blocker.as_ref().filter(|blocker| blocker.reason == RefusalReason::Memory)?;
        let competes = |pool: &MemoryPool| match pool {
            MemoryPool::Host => true,
            MemoryPool::Cgroup(path) => waiter.launch.cgroups.iter().any(|limit| limit.path == *path),
        };
        let (_, known) = self.gate.heads.iter().find(|(pool, _)| competes(pool))?;
        let blocks = known.blocks(now, self.config.gate.head_blocks_for);
        let blocks = blocks.map(|left| format!("others may pass in {}", units::span(whole_seconds(left))));
        let passed = match known.passed {
            _ if known.head != waiter.launch.process => None,
            0 => None,
            1 => Some("passed by 1 launch".to_owned()),
            passed => Some(format!("passed by {passed} launches")),
        };
        let notes: Vec<String> = passed.into_iter().chain(blocks).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// The blocker of launches behind a head. It withholds the head's own numbers.
pub(super) fn behind_head(ahead: &Blocker, blocks: Duration) -> Blocker {
    Blocker {
        detail: format!("a launch ahead is waiting for memory ({})", ahead.bound),
        retry_after: Some(whole_seconds(blocks)),
        ..ahead.clone()
    }
}

fn whole_seconds(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}
