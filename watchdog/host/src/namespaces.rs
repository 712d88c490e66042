//! The pid and time namespaces of this process, whose pids and clock its /proc has.

use std::fmt;
use std::fs;

use super::stat::Fields;

/// A pid namespace, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace(u32);

impl PidNamespace {
    /// `PROC_PID_INIT_INO` of include/linux/proc_ns.h: the host's own.
    pub const INITIAL: Self = Self(0xefff_fffc);

    /// The namespace of this process; `None` when /proc shows another one's processes, or is not mounted.
    #[must_use]
    pub fn own() -> Option<Self> {
        let status = fs::read("/proc/self/status").ok()?;
        // A pid for each namespace from that of /proc down to that of the process.
        (Fields(&status).words("NSpid")?.count() == 1).then(|| inode(&fs::read_link("/proc/self/ns/pid").ok()?))?
    }

    #[cfg(test)]
    pub(super) fn of(inode: u32) -> Self {
        Self(inode)
    }

    #[must_use]
    pub fn is_initial(self) -> bool {
        self == Self::INITIAL
    }

    #[must_use]
    pub fn inode(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PidNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid:[{}]", self.0)
    }
}

fn inode(link: &std::path::Path) -> Option<PidNamespace> {
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok().map(PidNamespace)
}

/// The offset of this process's time namespace to CLOCK_BOOTTIME, in nanoseconds. 0 on kernels without time namespaces (before
/// Linux 5.6).
#[must_use]
pub fn boottime_offset() -> i64 {
    let link = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    // The offsets are those of future children, which a process that called unshare(2) does not have itself.
    if link("time") != link("time_for_children") {
        return 0;
    }
    fs::read_to_string("/proc/self/timens_offsets").ok().and_then(|text| offset_in(&text)).unwrap_or(0)
}

fn offset_in(text: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.starts_with("boottime"))?;
    let mut numbers = line.split_whitespace().skip(1).map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_is_parsed() {
        let parsed = |link: &str| inode(std::path::Path::new(link)).map(|namespace| namespace.to_string());
        assert_eq!(parsed("pid:[4026531836]").as_deref(), Some("pid:[4026531836]"));
        assert_eq!(parsed("mnt:[4026531836]"), None);
        assert!(inode(std::path::Path::new("pid:[4026531836]")).unwrap().is_initial());
    }

    #[test]
    fn boottime_offset_is_parsed() {
        assert_eq!(
            offset_in("monotonic           0         0\nboottime      86400 500000000\n"),
            Some(86_400_500_000_000)
        );
        assert_eq!(offset_in("monotonic           0         0\nboottime         -5         7\n"), Some(-4_999_999_993));
        assert_eq!(offset_in("monotonic 0 0\n"), None);
    }

    #[test]
    fn proc_of_tests_is_their_own() {
        assert!(PidNamespace::own().is_some());
    }
}
