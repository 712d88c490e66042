//! Backfill: how long a launch that waits for memory holds others back, and how many may pass it.
//!
//! The first launch in the order of the queue whose memory is not free is the head. It holds back all launches behind it that
//! need the same memory for `[gate] head_blocks_for`, so that memory which sessions release is left for it. Then
//! [`PASSES`] launches may pass it, and it holds others back again: as many as that at most come between two chances of the
//! head. A head that needs more than all sessions together could release gains nothing from holding others back, and
//! does so only once.
//!
//! The phase belongs to the memory and not to the head: launches that follow each other at the head have one phase
//! between them, or a user could hold others back for ever with many launches.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::line::Waiter;
use super::{Gate, GateRecord, Obstacle};
use crate::api::RefusalReason;
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::{Engine, Step};
use crate::units;

/// As many launches pass the head before it holds others back again.
pub(super) const PASSES: u32 = 16;

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
}

/// The heads by pool.
pub(super) type Heads = BTreeMap<Pool, Backfill>;

impl Backfill {
    /// For how much longer others are held back; `None` when they may pass.
    pub(super) fn blocks(&self, now: BootTime, head_blocks_for: Duration) -> Option<Duration> {
        Some(self.since.plus(head_blocks_for).since(now)).filter(|left| !left.is_zero())
    }
}

impl Step<'_> {
    /// A launch is the head of those that wait for this memory. For how much longer it holds others back.
    pub(super) fn is_head(&mut self, pool: Pool, process: ProcessId) -> Option<Duration> {
        let head_blocks_for = self.engine.config.gate.head_blocks_for;
        let fresh = Backfill { head: process, since: self.now, passed: 0 };
        let known = match self.engine.gate.heads.entry(pool.clone()) {
            Entry::Vacant(vacant) => vacant.insert(fresh),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                if known.head == process {
                    return known.blocks(self.now, head_blocks_for);
                }
                (known.head, known.passed) = (process, known.passed % PASSES);
                known
            }
        };
        let blocks = known.blocks(self.now, head_blocks_for);
        self.remember_head(&pool);
        blocks
    }

    /// A launch was granted that stands behind the head of this pool: whether the head holds others back from now on.
    pub(super) fn passes_head(&mut self, pool: &Pool) -> bool {
        let can_be_free = self.head_can_be_free(pool);
        let Some(known) = self.engine.gate.heads.get_mut(pool) else { return false };
        known.passed = known.passed.saturating_add(1);
        let blocks = can_be_free && known.passed % PASSES == 0;
        if blocks {
            known.since = self.now;
        }
        self.remember_head(pool);
        blocks && !self.engine.config.gate.head_blocks_for.is_zero()
    }

    /// Whether the memory that the head needs would be free if all sessions ended.
    fn head_can_be_free(&self, pool: &Pool) -> bool {
        let gate = &self.engine.gate;
        let waiter = gate.heads.get(pool).and_then(|known| gate.line.get(gate.line.of(known.head)?));
        let (Pool::Host, Some(waiter), Some(memory)) = (pool, waiter, self.engine.gate_memory(self.now)) else {
            return true;
        };
        let needed = self.engine.expected(&waiter.launch, &waiter.profiles);
        needed + memory.reserve <= memory.available + gate.held
    }

    /// Forgets the heads that wait no longer. What was left of their time holds for the next: a launch that comes back at
    /// once does not hold others back from the beginning.
    pub(super) fn forget_heads(&mut self) {
        let (now, head_blocks_for) = (self.now, self.engine.config.gate.head_blocks_for);
        let Gate { heads, line, leases, .. } = &mut self.engine.gate;
        heads.retain(|_, known| {
            let waits = line.of(known.head).is_some();
            waits || !leases.contains_key(&known.head) && known.blocks(now, head_blocks_for).is_some()
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
        GateRecord::HeldBack { head: self.head, since: self.since, passed: self.passed, cgroup }
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
