//! By how much one thing is more than another, from many rounds of both.

use crate::quantile::{median, quantile};

/// By how many per cent a thing grew, and how far off that may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NoiseFreeGrowth {
    /// The median of the rounds' own ratios, in per cent.
    pub(super) per_cent: f64,
    /// Two standard errors of that median; of a few rounds, their range.
    pub(super) uncertainty: f64,
    /// The same from the quick ends (p10) of all rounds, which noise reaches least.
    pub(super) p10_per_cent: f64,
}

/// Fewer rounds than this have no quartiles to speak of.
const FEW: usize = 10;

/// Compares values that were measured in pairs, one of each in the same round.
pub(super) fn growth(before: &[f64], after: &[f64]) -> NoiseFreeGrowth {
    let ratios: Vec<f64> = before.iter().zip(after).map(|(before, after)| (after / before - 1.0) * 100.0).collect();
    #[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
    let rounds = ratios.len().max(1) as f64;
    // A standard deviation by the quartiles, which outliers do not move; a median's error is 1.25 times a mean's.
    let deviation = (quantile(&ratios, 0.75) - quantile(&ratios, 0.25)) / 1.35;
    let two_errors = 2.0 * 1.25 * deviation / rounds.sqrt();
    // Quartiles of a handful say nothing: there, all that is sure is the range.
    let range = quantile(&ratios, 1.0) - quantile(&ratios, 0.0);
    NoiseFreeGrowth {
        per_cent: median(&ratios),
        uncertainty: if ratios.len() < FEW { range } else { two_errors },
        p10_per_cent: (quantile(after, 0.1) / quantile(before, 0.1) - 1.0) * 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_noise_is_no_growth() {
        let before = [100.0, 200.0, 400.0, 100.0];
        let after = before.map(|value| value * 1.02);
        let growth = growth(&before, &after);
        assert!((growth.per_cent - 2.0).abs() < 1e-9 && growth.uncertainty < 1e-9, "{growth:?}");
    }
}
