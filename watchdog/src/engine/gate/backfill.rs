//! Backfill: how long a launch that waits for memory holds others back, and how many may pass it.
//!
//! The first launch in the order of the queue whose memory is not free is the head. It holds back all launches behind it that
//! need the same memory for `[gate] head_blocks_for`, so that memory which sessions release is left for it. Then
//! [`PASSES`] launches may pass it, and it holds others back again.
//!
//! Each round doubles both: a block must outlast the sessions whose memory the head needs, and how long sessions last is
//! unknown. A round also ends once [`PASSES`] launches have passed in it and others had [`OPEN_TIMES`] the time of the block,
//! or a head would wait for weeks where launches are few. So for each `head_blocks_for` of a block `PASSES` launches pass, or
//! others have four fifths of the time. A block is at most `head_blocks_for` longer than all blocks before it together, and
//! at most [`LONGEST_BLOCK`]. A head that needs more than all sessions together could release, or more than the share of its
//! user, gains nothing from holding others back, and does so only once.
//!
//! The phase belongs to the memory and not to the head: launches that follow each other at the head share one phase.
//! Otherwise a user could hold others back for ever with many launches, or by withdrawing a launch and queueing it again.
//! The phase ends with the grant of the head, or when no head has waited for `head_blocks_for`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::admission::Place;
use super::line::Waiter;
use super::{Gate, GateRecord, Obstacle};
use crate::api::RefusalReason;
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::{Engine, Step};
use crate::units;

/// Launches that pass the head before it holds others back for the second time; each further round doubles them.
const PASSES: u32 = 16;
/// So many times as long as a block others may pass, if fewer than the round allows do.
const OPEN_TIMES: u32 = 4;
/// Blocks grow up to this length.
const LONGEST_BLOCK: Duration = Duration::from_secs(86_400);

/// Memory that launches compete for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pool {
    /// The host's.
    Host,
    /// That of a cgroup with a limit, by its path.
    Cgroup(String),
}

/// The head of the launches that wait for one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backfill {
    pub(super) head: ProcessId,
    /// When it last began to hold others back.
    pub(super) since: BootTime,
    /// Launches that have passed it.
    pub(super) passed: u32,
    /// How often others were held back before.
    pub(super) round: u32,
    /// Launches that have passed a head in this round.
    pub(super) passed_in_round: u32,
    /// When the head left the queue, while no other has taken its place.
    pub(super) left: Option<BootTime>,
}

/// The heads by pool.
pub(super) type Heads = BTreeMap<Pool, Backfill>;

impl Backfill {
    /// For how much longer others are held back; `None` when they may pass.
    pub(super) fn blocks(&self, now: BootTime, head_blocks_for: Duration) -> Option<Duration> {
        Some(self.since.plus(self.block(head_blocks_for)).since(now)).filter(|left| !left.is_zero())
    }

    /// How long others are held back in this round.
    fn block(&self, head_blocks_for: Duration) -> Duration {
        head_blocks_for.saturating_mul(self.factor()).min(LONGEST_BLOCK)
    }

    /// Whether others had their share of this round.
    fn round_is_over(&self, now: BootTime, head_blocks_for: Duration) -> bool {
        let block = self.block(head_blocks_for);
        let had_time = now.since(self.since.plus(block)) >= block.saturating_mul(OPEN_TIMES);
        let passes = if had_time { PASSES } else { PASSES.saturating_mul(self.factor()) };
        self.passed_in_round >= passes
    }

    fn factor(&self) -> u32 {
        2_u32.saturating_pow(self.round)
    }
}

impl Step<'_> {
    /// A launch is the head of those that wait for this memory. For how much longer it holds others back.
    pub(super) fn is_head(&mut self, pool: Pool, process: ProcessId) -> Option<Duration> {
        let head_blocks_for = self.engine.config.gate.head_blocks_for;
        let fresh = Backfill { head: process, since: self.now, passed: 0, round: 0, passed_in_round: 0, left: None };
        let Gate { heads, leases, .. } = &mut self.engine.gate;
        let known = match heads.entry(pool.clone()) {
            Entry::Vacant(vacant) => vacant.insert(fresh),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                if known.head == process {
                    return known.blocks(self.now, head_blocks_for);
                }
                if leases.contains_key(&known.head) {
                    *known = fresh;
                } else {
                    (known.head, known.passed, known.left) = (process, 0, None);
                }
                known
            }
        };
        let blocks = known.blocks(self.now, head_blocks_for);
        self.remember_head(&pool);
        blocks
    }

    /// A launch was granted that stands behind the head of this pool: for how long the head holds others back from now on,
    /// if it does.
    pub(super) fn passes_head(&mut self, pool: &Pool, places: &[Place]) -> Option<Duration> {
        let can_be_free = self.head_can_be_free(pool, places);
        let head_blocks_for = self.engine.config.gate.head_blocks_for;
        let known = self.engine.gate.heads.get_mut(pool)?;
        known.passed = known.passed.saturating_add(1);
        known.passed_in_round = known.passed_in_round.saturating_add(1);
        if can_be_free && known.round_is_over(self.now, head_blocks_for) {
            (known.since, known.passed_in_round) = (self.now, 0);
            if known.block(head_blocks_for) < LONGEST_BLOCK {
                known.round = known.round.saturating_add(1);
            }
        }
        let blocks = known.blocks(self.now, head_blocks_for);
        self.remember_head(pool);
        blocks
    }

    /// Whether the memory that the head needs would be free, and within the share of its user, if all sessions ended.
    fn head_can_be_free(&self, pool: &Pool, places: &[Place]) -> bool {
        let gate = &self.engine.gate;
        let waiter = gate.heads.get(pool).and_then(|known| gate.line.get(gate.line.of(known.head)?));
        let (Pool::Host, Some(waiter), Some(memory)) = (pool, waiter, self.engine.gate_memory(self.now)) else {
            return true;
        };
        let needed = self.engine.expected(&waiter.launch, &waiter.profiles);
        let most = self.engine.free_without_sessions(&memory);
        needed <= most && !self.exceeds_share(waiter.launch.uid, needed, most, places)
    }

    /// Forgets the heads that were granted, and those that left the queue so long ago that the next head starts anew.
    pub(super) fn forget_heads(&mut self) {
        let (now, head_blocks_for) = (self.now, self.engine.config.gate.head_blocks_for);
        let Gate { heads, line, leases, .. } = &mut self.engine.gate;
        heads.retain(|_, known| {
            if line.of(known.head).is_some() {
                return true;
            }
            let left = *known.left.get_or_insert(now);
            !leases.contains_key(&known.head) && now.since(left) < head_blocks_for
        });
    }

    fn remember_head(&mut self, pool: &Pool) {
        if let Some(known) = self.engine.gate.heads.get(pool) {
            let record = known.record(pool);
            self.effect(Effect::Remember(record));
        }
    }
}

impl Backfill {
    pub(super) fn record(&self, pool: &Pool) -> GateRecord {
        let cgroup = match pool {
            Pool::Host => None,
            Pool::Cgroup(path) => Some(path.clone()),
        };
        let Self { head, since, passed, round, passed_in_round, left: _ } = *self;
        GateRecord::HeldBack { head, since, passed, round, passed_in_round, cgroup }
    }
}

impl Engine {
    /// What a launch that waits for memory has to know beside its obstacle: for how long the head holds others back, and, if it
    /// is the head itself, how many have passed it.
    pub(super) fn held_back(&self, waiter: &Waiter, now: BootTime) -> Option<String> {
        waiter.obstacle.as_ref().filter(|obstacle| obstacle.reason == RefusalReason::Memory)?;
        let competes = |pool: &Pool| match pool {
            Pool::Host => true,
            Pool::Cgroup(path) => waiter.launch.cgroups.iter().any(|limit| limit.path == *path),
        };
        let (_, known) = self.gate.heads.iter().find(|(pool, _)| competes(pool))?;
        let blocks = known.blocks(now, self.config.gate.head_blocks_for);
        let blocks = blocks.map(|left| format!("{} until others may pass", units::span(whole_seconds(left))));
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

/// What stands in the way of those behind a head: what the head needs is its own affair.
pub(super) fn behind_head(ahead: &Obstacle, blocks: Duration) -> Obstacle {
    Obstacle {
        detail: format!("a launch ahead waits for memory ({})", ahead.bound),
        retry_after: Some(whole_seconds(blocks)),
        ..ahead.clone()
    }
}

fn whole_seconds(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}
