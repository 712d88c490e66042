//! Page-outs without limits, and their sums.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use watchdog_host::page_out;
use watchdog_host::testing::SwapKind;
use watchdog_types::{
    Bytes, Memory, PageOut, PageOutOutcome, PageOutProcess, PagedOut, PagedOutProcess, ProcessId, SessionId, Uid,
};

/// What is measured with one kind of swap.
#[derive(Clone, Copy)]
pub(super) struct ReclaimLoad {
    pub(super) kind: SwapKind,
    pub(super) name: &'static str,
    pub(super) swap_mib: u64,
    pub(super) servers: usize,
    pub(super) rounds: u64,
}

/// Without limits that are reached here.
pub(super) fn paged_out(processes: &[ProcessId]) -> PagedOut {
    let uid = Uid(rustix::process::geteuid().as_raw());
    let process = |id: &ProcessId| PageOutProcess { id: *id, uid, budget: Bytes::from_mib(4096) };
    let order = PageOut {
        number: 1,
        session: SessionId(1),
        processes: processes.iter().map(process).collect(),
        rate: Bytes::from_mib(4096),
        reserve: Bytes(0),
    };
    page_out(&order, &|| true)
}

pub(super) fn all_done(answer: &PagedOut) -> Result<()> {
    let ended = |process: &PagedOutProcess| matches!(process.outcome, PageOutOutcome::Done | PageOutOutcome::Gone);
    ensure!(answer.processes.iter().all(ended), "not paged out: {answer:?}");
    Ok(())
}

/// Memory of all processes of an answer, before and after.
pub(super) struct MemorySum<'a>(&'a PagedOut);

impl<'a> MemorySum<'a> {
    pub(super) fn of(answer: &'a PagedOut) -> Self {
        Self(answer)
    }

    fn sum(&self, of: fn(&Memory) -> Bytes) -> (Bytes, Bytes) {
        let all = &self.0.processes;
        (all.iter().map(|process| of(&process.before)).sum(), all.iter().map(|process| of(&process.after)).sum())
    }

    pub(super) fn swapped(&self) -> Bytes {
        self.0.processes.iter().map(PagedOutProcess::swapped).sum()
    }

    pub(super) fn resident(&self) -> String {
        shown(self.sum(Memory::rss))
    }

    pub(super) fn anonymous(&self) -> String {
        shown(self.sum(|memory| memory.anon))
    }
}

fn shown((before, after): (Bytes, Bytes)) -> String {
    format!("{} → {} MiB", before.mib(), after.mib())
}

/// Resident memory, with each shared page divided by the number of its users: `Pss` of smaps_rollup.
pub(super) fn proportional(processes: &[ProcessId]) -> Result<Bytes> {
    let of = |process: &ProcessId| -> Result<Bytes> {
        let path = format!("/proc/{}/smaps_rollup", process.pid);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok());
        line.map(Bytes::from_kib).with_context(|| format!("{path} has no Pss"))
    };
    processes.iter().map(of).sum()
}

pub(super) fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
