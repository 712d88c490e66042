//! The breaker blocks all launches while the host is short of memory.

use std::time::Duration;

use watchdog_config as config;
use watchdog_types::{BootTime, HostMemory};

/// Memory use must stay below `breaker_close` for this long before the breaker closes.
const MEMORY_CALM: Duration = Duration::from_secs(3);
/// A breaker that pressure opened also closes after this time without pressure.
const PRESSURE_CALM: Duration = Duration::from_secs(30);
/// Pressure must last this long: a new PSI trigger may fire once without cause, and the kernel updates its averages only
/// every two seconds.
const PRESSURE_SUSTAINED: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub(super) struct BreakerState {
    open: Option<OpenBreaker>,
    /// When pressure became high.
    pressed: Option<BootTime>,
}

#[derive(Debug)]
struct OpenBreaker {
    since: BootTime,
    why: String,
    /// Memory use is below `breaker_open`.
    by_pressure: bool,
    /// When memory use fell below `breaker_close`.
    calm: Option<BootTime>,
    /// When pressure ended.
    relaxed: Option<BootTime>,
}

impl BreakerState {
    /// When it opened, and why.
    pub(super) fn open(&self) -> Option<(BootTime, &str)> {
        self.open.as_ref().map(|open| (open.since, open.why.as_str()))
    }

    /// Returns whether the breaker opened or closed.
    pub(super) fn host(&mut self, now: BootTime, host: &HostMemory, gate: &config::GateConfig) -> bool {
        let Some(used) = used_percent(host) else { return false };
        let (upper, lower) = (f64::from(gate.breaker_open), f64::from(gate.breaker_close));
        let pressure = host.pressure_some_avg10.unwrap_or_default();
        let pressed = pressure >= f64::from(gate.breaker_pressure);
        self.pressed = pressed.then(|| self.pressed.unwrap_or(now));
        let of_memory = (used > upper).then(|| format!("{used:.0}% of memory in use, limit {upper:.0}%"));
        if let Some(open) = &mut self.open {
            if let Some(why) = of_memory.filter(|_| open.by_pressure) {
                (open.by_pressure, open.why) = (false, why);
            }
            open.calm = (used < lower).then(|| open.calm.unwrap_or(now));
            open.relaxed = (!pressed).then(|| open.relaxed.unwrap_or(now));
            let lasted = |since: Option<BootTime>, span| since.is_some_and(|since| now.since(since) >= span);
            let over = lasted(open.calm, MEMORY_CALM) || open.by_pressure && lasted(open.relaxed, PRESSURE_CALM);
            if over {
                self.open = None;
            }
            return over;
        }
        let by_pressure = of_memory.is_none();
        let lasts = self.pressed.is_some_and(|since| now.since(since) >= PRESSURE_SUSTAINED);
        let of_pressure =
            (lasts && used > lower).then(|| format!("memory pressure {pressure:.0}% with {used:.0}% of memory in use"));
        let Some(why) = of_memory.or(of_pressure) else { return false };
        self.open = Some(OpenBreaker { since: now, why, by_pressure, calm: None, relaxed: None });
        true
    }
}

/// `None` before the host's memory has been read.
pub(crate) fn used_percent(host: &HostMemory) -> Option<f64> {
    let total = host.total.0;
    (total > 0).then(|| total.saturating_sub(host.available.0) as f64 * 100.0 / total as f64)
}
