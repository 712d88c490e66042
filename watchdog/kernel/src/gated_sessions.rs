//! The counts of gated sessions, as the maps of the programs hold them.

use std::collections::HashMap as StdHashMap;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::lsm::LsmLinkId;
use watchdog_common::{GatedSession, RecountRequest};

use super::error::KernelError;
use super::liveness::start_of;
use super::maps::{is_errno, is_missing, open};
use watchdog_types::ProcessId;

pub(super) struct GatedSessions {
    pub(super) gated: HashMap<MapData, u32, [u8; size_of::<GatedSession>()]>,
    recount: Array<MapData, [u8; size_of::<RecountRequest>()]>,
    by_root: StdHashMap<ProcessId, CountedSession>,
    last_number: u32,
    /// The attached program that refuses forks.
    pub(super) fork_link: Option<LsmLinkId>,
}

#[derive(Clone, Copy)]
pub(super) struct CountedSession {
    /// Its key in `GATED`, which no other session ever gets.
    pub(super) number: u32,
    pub(super) max_processes: Option<u32>,
}

/// The kernel's counts of a gated session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCount {
    /// Its living processes: no zombies, no threads.
    pub live: i64,
    pub refused: u64,
}

impl GatedSessions {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            gated: open(ebpf, "GATED", HashMap::try_from)?,
            recount: open(ebpf, "RECOUNT", Array::try_from)?,
            by_root: StdHashMap::new(),
            last_number: 0,
            fork_link: None,
        })
    }

    pub(super) fn of_root(&self, root: ProcessId) -> Option<CountedSession> {
        self.by_root.get(&root).copied()
    }

    /// The key of this root's session; 0 when it is not gated.
    pub(super) fn number(&self, root: ProcessId) -> u32 {
        self.of_root(root).map_or(0, |session| session.number)
    }

    pub(super) fn with_number(&self, number: u32) -> Option<(ProcessId, CountedSession)> {
        self.by_root.iter().map(|(root, session)| (*root, *session)).find(|(_, session)| session.number == number)
    }

    pub(super) fn has_limit(&self) -> bool {
        self.by_root.values().any(|session| session.max_processes.is_some())
    }

    pub(super) fn insert(&mut self, root: ProcessId, session: CountedSession) {
        self.by_root.insert(root, session);
    }

    pub(super) fn remove(&mut self, root: ProcessId) -> Option<CountedSession> {
        self.by_root.remove(&root)
    }

    /// Drops the sessions of an earlier daemon: they get numbers that none of them had. `carried` are the numbers in the entries
    /// of tracked processes.
    pub(super) fn start_over(&mut self, carried: impl Iterator<Item = u32>) -> Result<(), KernelError> {
        let failed = |source| KernelError::Map { map: "GATED", doing: "read", source };
        let numbers: Vec<u32> = self.gated.keys().collect::<Result<_, _>>().map_err(failed)?;
        self.last_number = numbers.iter().copied().chain(carried).max().unwrap_or(0);
        numbers.into_iter().try_for_each(|number| self.release(number))
    }

    /// Inserts a count of 0 under a new number, and returns the number.
    pub(super) fn allocate(&mut self, root: ProcessId, max_processes: Option<u32>) -> Result<u32, KernelError> {
        let number = self.last_number.wrapping_add(1).max(1);
        let value =
            GatedSession { max_processes: max_processes.unwrap_or(0), root: root.pid.0, ..GatedSession::default() };
        let bytes: [u8; _] = zerocopy::transmute!(value);
        match self.gated.insert(number, bytes, 0) {
            Ok(()) => {
                self.last_number = number;
                Ok(number)
            }
            Err(error) if is_errno(&error, libc::E2BIG) => Err(KernelError::TooManySessions(root)),
            Err(source) => Err(KernelError::Map { map: "GATED", doing: "write", source }),
        }
    }

    pub(super) fn release(&mut self, number: u32) -> Result<(), KernelError> {
        match self.gated.remove(&number) {
            Err(source) if !is_missing(&source) => Err(KernelError::Map { map: "GATED", doing: "write", source }),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&self, number: u32) -> Result<SessionCount, KernelError> {
        let value = self.gated.get(&number, 0);
        let value = value.map_err(|source| KernelError::Map { map: "GATED", doing: "read", source })?;
        let GatedSession { live, refused, reported_at: _, max_processes: _, root: _ } = zerocopy::transmute!(value);
        Ok(SessionCount { live, refused })
    }

    /// Sets what the next read of the iterator `recount` does.
    pub(super) fn request_recount(&mut self, root: ProcessId, number: u32, before: u32) -> Result<(), KernelError> {
        let request = RecountRequest { root_start: start_of(root), root: root.pid.0, number, before, reserved: 0 };
        let bytes: [u8; _] = zerocopy::transmute!(request);
        let failed = |source| KernelError::Map { map: "RECOUNT", doing: "write", source };
        self.recount.set(0, bytes, 0).map_err(failed)
    }
}
