//! The needed fields of /proc/PID/stat and /proc/PID/status.

use std::time::Duration;

use watchdog_common::NANOS_PER_TICK;

use watchdog_types::{Bytes, Pid, ProcessId, Ticks, Uid, UserIds};

/// `PF_KTHREAD` of include/linux/sched.h: a kernel thread.
const PF_KTHREAD: u32 = 0x0020_0000;

/// /proc/PID/stat. The numbers in brackets are those of proc_pid_stat(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcStat {
    /// pid (1) and starttime (22).
    pub(crate) process: ProcessId,
    /// comm (2).
    pub(crate) comm: String,
    /// state (3): one letter.
    pub(crate) state: u8,
    /// ppid (4); 0 when the parent is in a pid namespace outside of ours.
    pub(crate) ppid: Pid,
    /// pgrp (5); 0 while the process is being reaped, or when its leader is in a pid namespace outside of ours.
    pub(crate) pgid: Pid,
    /// session (6); 0 as for pgrp.
    pub(crate) sid: Pid,
    /// tty_nr (7); 0 without a controlling terminal.
    pub(crate) tty: u32,
    /// flags (9): `PF_*`.
    flags: u32,
    /// utime (14) and stime (15) of all threads, including exited ones.
    pub(crate) cpu: Duration,
    /// num_threads (20): threads that are not reaped; 0 while the process is being reaped.
    threads: u32,
}

impl ProcStat {
    /// `None` when the line is malformed. A comm may contain spaces, parentheses and newlines: the last `)` ends it.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let pid = number(line.get(..open)?)?;
        let comm = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let mut fields = line.get(close + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let state = *fields.next()?.first()?;
        let ppid = Pid(number(fields.next()?)?);
        let pgid = group(fields.next()?)?;
        let sid = group(fields.next()?)?;
        let tty = number(fields.next()?)?;
        let flags = number(fields.nth(1)?)?;
        // Four fields lie between flags (9) and utime (14), and four between stime (15) and num_threads (20).
        let utime: u64 = number(fields.nth(4)?)?;
        let ticks = utime.saturating_add(number(fields.next()?)?);
        let cpu = Duration::from_nanos(ticks.saturating_mul(NANOS_PER_TICK));
        let threads = number(fields.nth(4)?)?;
        let start_time = Ticks(number(fields.nth(1)?)?);
        let process = ProcessId { pid: Pid(pid), start_time };
        Some(Self { process, comm, state, ppid, pgid, sid, tty, flags, cpu, threads })
    }

    /// Exited and not reaped. `X` is visible for an instant during reaping.
    pub(crate) fn is_zombie(&self) -> bool {
        match self.state {
            // The state is the first thread's, which may exit long before the others.
            b'Z' => self.threads <= 1,
            state => matches!(state, b'X' | b'x'),
        }
    }

    /// The first thread, whose state this is, has exited, and others have not.
    pub(crate) fn first_thread_exited(&self) -> bool {
        self.state == b'Z' && self.threads > 1
    }

    /// The thread whose state this is has exited.
    pub(crate) fn has_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Stopped by a signal; a debugger's stop is `t`.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == b'T'
    }

    /// Has neither a program nor memory.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// A file of `Name: value` lines, such as /proc/PID/status or smaps_rollup.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The words after `name:`.
    pub(crate) fn words(&self, name: &str) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let value = self
            .0
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":")))?;
        Some(value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()))
    }

    /// The first number of a value.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        number(self.words(name)?.next()?)
    }

    /// An amount of memory ("123 kB").
    pub(crate) fn kib(&self, name: &str) -> Option<Bytes> {
        self.number(name).map(Bytes::from_kib)
    }

    /// The real uid, the first of the four of `Uid:`.
    pub(crate) fn uid(&self) -> Option<Uid> {
        self.number("Uid").map(Uid)
    }

    pub(crate) fn user_ids(&self) -> Option<UserIds> {
        let mut ids = self.words("Uid")?.map(|word| number(word).map(Uid));
        Some(UserIds { real: ids.next()??, effective: ids.next()??, saved: ids.next()?? })
    }

    /// Whether a signal set (16 hexadecimal digits, bit n-1 for signal n) contains `signal`.
    pub(crate) fn has_signal(&self, set: &str, signal: u32) -> Option<bool> {
        let digits = std::str::from_utf8(self.words(set)?.next()?).ok()?;
        let mask = u64::from_str_radix(digits, 16).ok()?;
        Some(mask >> signal.checked_sub(1)? & 1 == 1)
    }
}

/// A process group or session; 0 for -1, which the kernel writes while the process is being reaped.
fn group(text: &[u8]) -> Option<Pid> {
    number::<i32>(text).map(|id| Pid(u32::try_from(id).unwrap_or(0)))
}

/// Parses a decimal number, with surrounding whitespace.
pub(crate) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("node", "node")]
    #[case::blanks_and_parentheses("a) S 1 (b", "a) S 1 (b")]
    #[case::newline("a\nb", "a\nb")]
    fn comm_cannot_shift_fields(#[case] comm: &str, #[case] expected: &str) {
        let line = format!(
            "4242 ({comm}) T 17 18 19 34816 4242 4194304 5 0 0 0 1 2 0 0 20 0 7 0 987654 1000 200 18446744073709551615\n"
        );
        let stat = ProcStat::parse(line.as_bytes()).unwrap();
        assert_eq!(stat.process, ProcessId { pid: Pid(4242), start_time: Ticks(987_654) });
        assert_eq!((stat.comm.as_str(), stat.ppid, stat.pgid, stat.sid), (expected, Pid(17), Pid(18), Pid(19)));
        assert_eq!((stat.tty, stat.is_stopped(), stat.is_zombie()), (34816, true, false));
        assert!(!stat.is_kernel_thread());
    }

    #[test]
    fn cpu_time_sums_both_fields() {
        let line = b"42 (a) b) S 1 42 42 0 -1 4194304 5 0 0 0 12 30 0 0 20 0 7 0 9 1 2 3\n";
        let stat = ProcStat::parse(line).unwrap();
        assert_eq!((stat.cpu, stat.process.start_time), (Duration::from_millis(420), Ticks(9)));
    }

    #[test]
    fn reaped_process_has_no_group() {
        let line = b"4242 (node) X 17 -1 -1 0 -1 4194304 5 0 0 0 1 2 0 0 20 0 7 0 987654 0 0 18446744073709551615\n";
        let stat = ProcStat::parse(line).unwrap();
        assert_eq!((stat.pgid, stat.sid, stat.is_zombie()), (Pid(0), Pid(0), true));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_comm("12 node S 1 2 3")]
    #[case::cut("12 (node) S 1 2 3 0 -1 4194304 5 0")]
    #[case::cut_early("42 (a) S 1")]
    #[case::reversed("12 )node( S 1 2 3")]
    fn truncated_stat_line_rejected(#[case] line: &str) {
        assert_eq!(ProcStat::parse(line.as_bytes()), None);
    }

    #[test]
    fn status_field_matches_whole_name() {
        let fields = Fields(b"Name:\tnode\nUid:\t1000\t0\t0\t0\nVmHWM:\t  2048 kB\nSigIgn:\t0000000000000001\n");
        assert_eq!(fields.uid(), Some(Uid(1000)));
        assert_eq!(fields.kib("VmHWM"), Some(Bytes(2 << 20)));
        assert_eq!(fields.kib("VmHW"), None);
        assert_eq!(fields.has_signal("SigIgn", 1), Some(true));
        assert_eq!(fields.has_signal("SigIgn", 2), Some(false));
    }
}
