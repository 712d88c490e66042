//! The breaker: while the host is short of memory nothing is granted.

use std::time::Duration;

use crate::config;
use crate::engine::id::BootTime;
use crate::engine::input::HostMemory;

/// Memory has to be below the lower share for this long before the breaker closes.
const CALM: Duration = Duration::from_secs(3);
/// What pressure opened closes also when there has been none for this long.
const PRESSURE_CALM: Duration = Duration::from_secs(30);
/// Pressure has to be high for this long: a new trigger of PSI may fire once for nothing, and the kernel brings its averages up
/// to date every two seconds only.
const PRESSED: Duration = Duration::from_secs(4);

/// The breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: Option<Open>,
    /// Since when pressure has been high.
    pressed: Option<BootTime>,
}

#[derive(Debug)]
struct Open {
    since: BootTime,
    why: String,
    /// Memory was not above its upper share.
    by_pressure: bool,
    /// Since when memory has been below the lower share,
    calm: Option<BootTime>,
    /// and since when pressure has not been high.
    relaxed: Option<BootTime>,
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
        self.pressed = pressed.then(|| self.pressed.unwrap_or(now));
        let of_memory = (used > upper).then(|| format!("{used:.0}% of the memory is in use, more than {upper:.0}%"));
        if let Some(open) = &mut self.open {
            if let Some(why) = of_memory.filter(|_| open.by_pressure) {
                (open.by_pressure, open.why) = (false, why);
            }
            open.calm = (used < lower).then(|| open.calm.unwrap_or(now));
            open.relaxed = (!pressed).then(|| open.relaxed.unwrap_or(now));
            let lasted = |since: Option<BootTime>, span| since.is_some_and(|since| now.since(since) >= span);
            let over = lasted(open.calm, CALM) || open.by_pressure && lasted(open.relaxed, PRESSURE_CALM);
            if over {
                self.open = None;
            }
            return over;
        }
        let by_pressure = of_memory.is_none();
        let lasts = self.pressed.is_some_and(|since| now.since(since) >= PRESSED);
        let of_pressure = (lasts && used > lower)
            .then(|| format!("memory pressure is {pressure:.0}% while {used:.0}% of the memory is in use"));
        let Some(why) = of_memory.or(of_pressure) else { return false };
        self.open = Some(Open { since: now, why, by_pressure, calm: None, relaxed: None });
        true
    }
}

/// What share of the memory is in use; `None` before it has been looked at.
fn used_percent(host: &HostMemory) -> Option<f64> {
    let total = host.total.0;
    (total > 0).then(|| total.saturating_sub(host.available.0) as f64 * 100.0 / total as f64)
}
