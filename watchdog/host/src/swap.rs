//! Swap of the host: how much there is, and whether it is compressed memory.

use std::fs;

use rustix::system::sysinfo;

use watchdog_types::{Bytes, SwapStatus};

/// Swap now. 100 µs. What cannot be read counts as absent.
#[must_use]
pub fn swap_status() -> SwapStatus {
    let zram: Vec<String> = fs::read_to_string("/proc/swaps").as_deref().map(zram_devices).unwrap_or_default();
    let zswap = fs::read_to_string("/sys/module/zswap/parameters/enabled").is_ok_and(|on| on.trim() == "Y");
    let taken = zram.iter().filter_map(|device| {
        let statistics = fs::read_to_string(format!("/sys/block/{device}/mm_stat")).ok()?;
        mem_used_total(&statistics)
    });
    let pool = fs::read_to_string("/proc/meminfo").ok().filter(|_| zswap).and_then(|meminfo| pool(&meminfo));
    let amounts: Vec<Bytes> = taken.chain(pool).collect();
    let (total, free) = totals();
    SwapStatus {
        total,
        free,
        zram: !zram.is_empty(),
        zswap,
        compressed: (!amounts.is_empty()).then(|| amounts.into_iter().sum()),
    }
}

/// Free swap now. One system call, 1 µs.
#[must_use]
pub(crate) fn swap_free() -> Bytes {
    totals().1
}

/// SwapTotal and SwapFree.
pub(crate) fn totals() -> (Bytes, Bytes) {
    let info = sysinfo();
    let bytes = |units: u64| Bytes(units.saturating_mul(u64::from(info.mem_unit)));
    (bytes(info.totalswap), bytes(info.freeswap))
}

/// Names of the zram devices that /proc/swaps lists.
fn zram_devices(swaps: &str) -> Vec<String> {
    let device = |line: &str| Some(line.split_whitespace().next()?.rsplit('/').next()?.to_owned());
    swaps.lines().skip(1).filter_map(device).filter(|device| device.starts_with("zram")).collect()
}

/// The third field of mm_stat: all memory that a zram device takes (Documentation/admin-guide/blockdev/zram.rst).
fn mem_used_total(statistics: &str) -> Option<Bytes> {
    statistics.split_whitespace().nth(2)?.parse().ok().map(Bytes)
}

/// `Zswap:` of /proc/meminfo, from Linux 5.19 on: the memory that its pool takes.
fn pool(meminfo: &str) -> Option<Bytes> {
    super::stat::Fields(meminfo.as_bytes()).kib("Zswap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zram_devices_are_named() {
        let swaps = "Filename\t\t\tType\t\tSize\tUsed\tPriority\n/dev/zram0  partition\t1048572\t0\t100\n/swapfile  file\t4\t0\t-2\n";
        assert_eq!(zram_devices(swaps), ["zram0"]);
        assert!(zram_devices("Filename\n").is_empty());
    }

    #[test]
    fn compressed_amounts_are_read() {
        assert_eq!(mem_used_total("4096 74 12288 0 12288 1 0 0 0\n"), Some(Bytes(12_288)));
        assert_eq!(mem_used_total("4096"), None);
        assert_eq!(pool("MemTotal: 5 kB\nZswap:   12 kB\nZswapped: 40 kB\n"), Some(Bytes(12 << 10)));
    }

    #[test]
    fn status_agrees_with_meminfo() {
        let _turn = crate::testing::SwapTurn::take();
        let (status, host) = (swap_status(), crate::meminfo::host_memory().unwrap());
        assert_eq!(status.total, host.swap_total);
        assert!(status.free <= status.total && (status.total > Bytes(0) || !status.zram), "{status:?}");
    }
}
