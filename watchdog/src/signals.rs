//! Signals by number and by name: the same numbers on x86-64 and arm64.

pub(crate) const SIGHUP: u8 = 1;
pub(crate) const SIGINT: u8 = 2;
pub(crate) const SIGQUIT: u8 = 3;
pub(crate) const SIGILL: u8 = 4;
pub(crate) const SIGTRAP: u8 = 5;
pub(crate) const SIGABRT: u8 = 6;
pub(crate) const SIGBUS: u8 = 7;
pub(crate) const SIGFPE: u8 = 8;
pub(crate) const SIGKILL: u8 = 9;
pub(crate) const SIGSEGV: u8 = 11;
pub(crate) const SIGPIPE: u8 = 13;
pub(crate) const SIGTERM: u8 = 15;
pub(crate) const SIGXCPU: u8 = 24;
pub(crate) const SIGSYS: u8 = 31;

/// The name of a signal that ends processes, by its number on x86-64 and arm64; others are named by their number.
#[must_use]
pub(crate) fn name(signal: u64) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.into()
}
