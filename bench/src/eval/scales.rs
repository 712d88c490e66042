//! The scales of generated traces: time, growth, and random values between limits.

use fastrand::Rng;

pub(crate) const HOUR: f64 = 3_600.0;

/// By how much a leak may have grown when it is found, if that takes it so many seconds: 60 MiB in a minute, 300 MiB in
/// three hours, and between and beyond them what lies on one line in logarithms.
pub(crate) fn required(seconds: f64) -> f64 {
    let exponent = (300.0_f64 / 60.0).ln() / (3.0 * HOUR / 60.0).ln();
    60.0 * (seconds / 60.0).powf(exponent)
}

/// From `low` to `high`, every order of magnitude alike.
pub(super) fn spread(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.f64())
}

pub(super) fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.f64()
}
