//! MCP servers that list their tools after each page-out, as a client asks for after a long pause.

use std::time::Duration;

use anyhow::{Context, Result};

use super::bench_servers::BenchServers;
use super::interrupt::Interrupt;
use super::paging::{MemorySum, ReclaimLoad, all_done, millis, paged_out, proportional};
use crate::figures::Figures;
use crate::quantile::quantile;
use watchdog_host::memory;
use watchdog_host::swap::swap_status;
use watchdog_types::{Bytes, PagedOut, PagedOutProcess, ProcessId};

/// How long the servers are left alone after they were paged out.
const REST: Duration = Duration::from_secs(60);

pub(super) fn run(
    ReclaimLoad { name, servers, rounds, .. }: ReclaimLoad,
    quick: bool,
    interrupt: &Interrupt,
    figures: &mut Figures,
) -> Result<()> {
    let home = tempfile::tempdir().context("making a home")?;
    let mut servers = BenchServers::start(servers, home.path(), None)?;
    println!("reclaim: {} MCP servers (everything, memory, claude mcp serve), {rounds} rounds, {name}", servers.len());
    let mut warm = Vec::new();
    for round in 0..rounds {
        interrupt.check()?;
        warm.extend(servers.answer(round));
    }

    at_once(name, &servers.ids(), interrupt, quick, figures)?;

    let (mut cold, mut freed, mut cpu) = (Vec::new(), Bytes(0), Duration::ZERO);
    for round in 0..rounds {
        interrupt.check()?;
        let Some(server) = servers.running(round) else { continue };
        let paged = paged_out(&[server]);
        all_done(&paged)?;
        freed += paged.processes.iter().map(PagedOutProcess::freed).sum();
        cpu += paged.cpu;
        cold.extend(servers.answer(round));
    }
    for (when, answers) in [("warm", &warm), ("paged out", &cold)] {
        let [p50, p95, most] = [0.5, 0.95, 1.0].map(|share| quantile(answers, share));
        figures.info(format!("reclaim, {name}: {when} p50, p95, max"), format!("{p50:.0}, {p95:.0}, {most:.0} ms"));
        let missing = rounds.saturating_sub(answers.len() as u64);
        let what = format!("reclaim, {name}: {when}, missing of {rounds} answers");
        figures.holds(what, "0", missing.to_string(), missing == 0);
    }
    figures.at_most(format!("reclaim, {name}: paged out p95"), 150.0, quantile(&cold, 0.95), 0.0, "ms");
    #[expect(clippy::cast_precision_loss, reason = "some GiB")]
    let per_mib = millis(cpu) / (freed.mib().max(1) as f64);
    figures.info(format!("reclaim, {name}: CPU per MiB freed"), format!("{per_mib:.2} ms"));
    Ok(())
}

/// All servers at once: what that frees, and what comes back in a minute of rest.
fn at_once(name: &str, servers: &[ProcessId], interrupt: &Interrupt, quick: bool, figures: &mut Figures) -> Result<()> {
    let compressed_before = swap_status().compressed;
    let before = proportional(servers)?;
    let paged: PagedOut = paged_out(servers);
    let after = proportional(servers)?;
    all_done(&paged)?;
    let sum = MemorySum::of(&paged);
    #[expect(clippy::cast_precision_loss, reason = "some GiB")]
    let percent = |rest: Bytes| rest.0 as f64 * 100.0 / before.0.max(1) as f64;
    figures.info(format!("reclaim, {name}: resident (PSS)"), format!("{} → {} MiB", before.mib(), after.mib()));
    figures.info(format!("reclaim, {name}: anonymous"), sum.anonymous());
    figures.at_most(format!("reclaim, {name}: resident of before"), 25.0, percent(after), 0.0, "%");
    if let Some((earlier, now)) = compressed_before.zip(swap_status().compressed) {
        let compressed = Bytes(now.0.saturating_sub(earlier.0));
        let amounts = format!("{} → {} MiB", sum.swapped().mib(), compressed.mib());
        figures.info(format!("reclaim, {name}: swapped, compressed"), amounts);
        figures.at_most(format!("reclaim, {name}: with compressed"), 50.0, percent(after + compressed), 0.0, "%");
    }
    let took = format!("{:.1} s, {:.1} s of CPU", paged.took.as_secs_f64(), paged.cpu.as_secs_f64());
    figures.info(format!("reclaim, {name}: took"), took);
    interrupt.pause(if quick { REST / 6 } else { REST })?;
    let mut back = Bytes(0);
    for process in &paged.processes {
        let now = memory::memory(process.id)?.context("a server exited")?;
        back += Bytes(now.anon.0.saturating_sub(process.after.anon.0));
    }
    figures.info(format!("reclaim, {name}: came back in a minute"), format!("{} MiB", back.mib()));
    Ok(())
}
