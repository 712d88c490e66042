//! Types that carry meaning in place of bare numbers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watchdog_common::NANOS_PER_TICK;

/// A process number, as the initial pid namespace gives it. Never an identity: see [`ProcessId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Pid(pub u32);

/// Clock ticks since boot (USER_HZ, a hundred a second), the unit of field 22 of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Ticks(pub u64);

/// A moment of CLOCK_BOOTTIME, in nanoseconds since boot: it advances during suspend, and never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

/// What a process is: a pid is used again, a pid with the start of its process is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The thread group's id.
    pub pid: Pid,
    /// When it was forked. An exec keeps it, also from a thread other than the first.
    pub start_time: Ticks,
}

/// A session: an agent and everything forked below it. Counted up from 1 over all runs of the daemon, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SessionId(pub u64);

/// A finding. Counted up from 1 over all runs of the daemon, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FindingId(pub u64);

/// An action. Counted up from 1 over all runs of the daemon, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub u64);

/// Of each kind of id, the last that was given, or that may have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastIds {
    /// Of sessions.
    pub session: SessionId,
    /// Of findings.
    pub finding: FindingId,
    /// Of actions.
    pub action: ActionId,
}

impl LastIds {
    /// Of each kind the higher one.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            session: self.session.max(other.session),
            finding: self.finding.max(other.finding),
            action: self.action.max(other.action),
        }
    }

    /// These ids, each increased by `more`.
    #[must_use]
    pub fn plus(self, more: u64) -> Self {
        Self {
            session: SessionId(self.session.0.saturating_add(more)),
            finding: FindingId(self.finding.0.saturating_add(more)),
            action: ActionId(self.action.0.saturating_add(more)),
        }
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A user's number, as the initial user namespace gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Uid(pub u32);

impl Uid {
    /// The superuser.
    pub const ROOT: Self = Self(0);
}

impl ProcessId {
    /// The identity that a kernel record gives: a tgid, and its `start_boottime` in nanoseconds.
    #[must_use]
    pub fn from_kernel(tgid: u32, start_boottime: u64) -> Self {
        Self { pid: Pid(tgid), start_time: Ticks(start_boottime / NANOS_PER_TICK) }
    }
}

impl BootTime {
    /// The time from `earlier` to this moment; zero when `earlier` is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment and `span` more.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This moment and `span` less; not before the boot.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl From<Ticks> for BootTime {
    fn from(ticks: Ticks) -> Self {
        Self(ticks.0.saturating_mul(NANOS_PER_TICK))
    }
}

impl Bytes {
    /// This many KiB, the unit of /proc.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1024))
    }

    /// This many MiB.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1024 * 1024))
    }

    /// This many hundredths of it.
    #[must_use]
    pub const fn percent(self, hundredths: u64) -> Self {
        Self((self.0 / 100).saturating_mul(hundredths))
    }

    /// Whole MiB, as summaries show them.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0 / (1024 * 1024)
    }
}

impl std::ops::Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), |sum, amount| sum + amount)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid.0, self.start_time.0)
    }
}

/// The user ids of a process, as the initial user namespace sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// The real user id.
    pub real: Uid,
    /// The effective user id.
    pub effective: Uid,
    /// The saved set-user-ID.
    pub saved: Uid,
}
