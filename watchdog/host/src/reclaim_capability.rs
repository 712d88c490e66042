//! Requirements for paging out idle sessions, as rows of `watchdogctl doctor`.

use super::capability_row::CapabilityRow;
use super::probe::{HostProbe, PageOutCall};
use watchdog_types::{Bytes, SwapStatus};

/// Its number in capabilities(7).
pub(super) const CAP_SYS_NICE: u32 = 23;

/// The default of `[reclaim] reserve`, in per cent of the swap. The probe reads no configuration.
const RESERVE: u64 = 10;

/// Paging out idle sessions.
pub(super) fn page_out(facts: &HostProbe) -> CapabilityRow {
    let (on, why, remedy) = match (facts.process_madvise, facts.has(CAP_SYS_NICE)) {
        (PageOutCall::Works, true) => (true, "process_madvise works, and CAP_SYS_NICE is in effect", ""),
        (PageOutCall::Works, false) => {
            (false, "CAP_SYS_NICE is not in effect", "run watchdogd as root, or give its service CAP_SYS_NICE")
        }
        (PageOutCall::Absent, _) => (
            false,
            "the kernel has no process_madvise with MADV_PAGEOUT",
            "boot Linux 5.10 or newer, built with CONFIG_SWAP=y",
        ),
        (PageOutCall::Refused, _) => (
            false,
            "process_madvise is denied by seccomp or a security module",
            "let seccomp allow process_madvise (systemd: SystemCallFilter=, Docker: --cap-add=SYS_PTRACE)",
        ),
    };
    CapabilityRow {
        name: "page_out",
        on,
        why: why.to_owned(),
        with: "1 to 4 ms of CPU per MiB of an idle session that is paged out",
        without: "idle sessions keep their memory until they exit",
        remedy: Some(remedy),
    }
}

/// Where paged-out memory goes.
pub(super) fn swap(facts: &HostProbe) -> CapabilityRow {
    let SwapStatus { total, free, zram, zswap, compressed } = facts.swap;
    let compression = match (zram, zswap) {
        (true, _) => ", zram",
        (false, true) => ", behind zswap",
        (false, false) => "",
    };
    let taken = compressed.map_or_else(String::new, |taken| format!(" that uses {} MiB of memory now", taken.mib()));
    CapabilityRow {
        name: "swap",
        on: total > Bytes(0),
        why: match total {
            Bytes(0) => "SwapTotal is 0: the host has no swap".to_owned(),
            _ => format!("SwapTotal is {} MiB, of which {} MiB are free{compression}{taken}", total.mib(), free.mib()),
        },
        with: "swapped memory is counted as well",
        without: "idle sessions keep their memory, and OOM kills happen sooner",
        remedy: Some(
            "set up zram: `apt install systemd-zram-generator`, or `dnf install zram-generator-defaults`, then reboot",
        ),
    }
}

/// Whether swap has room for more. `None` without swap, which the row `swap` reports.
pub(super) fn swap_space(facts: &HostProbe) -> Option<CapabilityRow> {
    let SwapStatus { total, free, .. } = facts.swap;
    let room = Bytes(free.0.saturating_sub(total.percent(RESERVE).0));
    (total > Bytes(0)).then(|| CapabilityRow {
        name: "swap_space",
        on: room > Bytes(0),
        why: format!("{} of {} MiB of swap are free; {RESERVE} % stay free", free.mib(), total.mib()),
        with: "nothing",
        without: "nothing can be paged out: launches wait, and emergencies terminate processes, as without page-out",
        remedy: Some("add swap, or terminate what fills it: `watchdogctl tree` names the sessions with swapped memory"),
    })
}
