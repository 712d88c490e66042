//! Real agents and MCP servers from npm that are paged out again and again: what it frees, what it costs, and how soon they
//! answer afterwards.
//!
//! Swap is zram, or a file on this machine's disk. It and all processes are removed at the end, and when a signal interrupts.
//! No daemon runs: it would use the same function. [`refault`] has one.

mod bench_servers;
mod interrupt;
mod orphans;
mod paging;
pub(crate) mod refault;
mod servers;
mod terminals;

use anyhow::Result;

use super::figures::Figures;
use interrupt::Interrupt;
use orphans::OrphanReaper;
use paging::ReclaimLoad;
use watchdog_host::testing::{SwapKind, TestSwap};

/// A swap file takes its size on disk.
const LOADS: [ReclaimLoad; 2] = [
    ReclaimLoad { kind: SwapKind::Zram, name: "zram", swap_mib: 4_096, servers: 20, rounds: 1_000 },
    ReclaimLoad { kind: SwapKind::File, name: "swap file", swap_mib: 1_024, servers: 3, rounds: 100 },
];

/// Measures servers with zram and with a swap file, and agents in terminals with zram.
pub(super) fn run(quick: bool, figures: &mut Figures) -> Result<()> {
    let interrupt = Interrupt::new();
    for load in LOADS {
        let load = if quick { ReclaimLoad { servers: 3, rounds: 30, ..load } } else { load };
        let Some(_swap) = TestSwap::of(load.kind, load.swap_mib) else {
            println!("reclaim: skipped with {}, which this machine cannot have", load.name);
            continue;
        };
        // After the swap, which has a process of its own.
        let _orphans = OrphanReaper::new()?;
        servers::run(load, quick, &interrupt, figures)?;
        if load.kind == SwapKind::Zram {
            terminals::run(quick, &interrupt, figures)?;
        }
    }
    Ok(())
}
