//! The breaker: while the host is short of memory nothing is granted.

use std::time::Duration;

use crate::config;
use crate::engine::id::BootTime;
use crate::engine::input::HostMemory;

/// Memory has to be below the lower share for this long before the breaker closes.
const CALM: Duration = Duration::from_secs(3);
/// Looks in a row at which pressure has to be high: a new trigger of PSI may fire once for nothing.
const PRESSED: u32 = 2;

/// The breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: Option<Open>,
    /// Looks in a row at which pressure was high.
    pressed: u32,
}

#[derive(Debug)]
struct Open {
    since: BootTime,
    why: String,
    /// Since when memory has been below the lower share.
    calm: Option<BootTime>,
}

impl Breaker {
    /// Since when it is open, and why.
    pub(super) fn open(&self) -> Option<(BootTime, &str)> {
        self.open.as_ref().map(|open| (open.since, open.why.as_str()))
    }

    /// The host's memory is this; whether the breaker opened or closed.
    pub(super) fn host(&mut self, now: BootTime, host: &HostMemory, gate: &config::Gate) -> bool {
        let Some(used) = used_percent(host) else { return false };
        let (upper, lower) = (f64::from(gate.breaker_open), f64::from(gate.breaker_close));
        let pressure = host.pressure_some_avg10.unwrap_or_default();
        let pressed = pressure >= f64::from(gate.breaker_pressure);
        self.pressed = if pressed { self.pressed.saturating_add(1) } else { 0 };
        if let Some(open) = &mut self.open {
            open.calm = (used < lower).then(|| open.calm.unwrap_or(now));
            let over = open.calm.is_some_and(|since| now.since(since) >= CALM);
            if over {
                self.open = None;
            }
            return over;
        }
        let why = if used > upper {
            format!("{used:.0}% of the memory is in use, more than {upper:.0}%")
        } else if self.pressed >= PRESSED && used > lower {
            format!("memory pressure is {pressure:.0}% while {used:.0}% of the memory is in use")
        } else {
            return false;
        };
        self.open = Some(Open { since: now, why, calm: None });
        true
    }
}

/// What share of the memory is in use; `None` before it has been looked at.
fn used_percent(host: &HostMemory) -> Option<f64> {
    let total = host.total.0;
    (total > 0).then(|| total.saturating_sub(host.available.0) as f64 * 100.0 / total as f64)
}
