//! The slope of a line through few points, by Theil and Sen.
//!
//! The median of the slopes between all pairs: up to 29 % of the points may be anything (P. K. Sen, "Estimates of the
//! regression coefficient based on Kendall's tau", JASA 63, 1968; H. Theil, 1950). Its interval follows from the variance
//! of Kendall's S without ties (the same paper, section 4).

use super::minima::SPANS;

/// Pairs of as many points as there are.
const PAIRS: usize = SPANS * (SPANS - 1) / 2;
/// The interval holds the slope in 95 of 100 cases.
const Z: f64 = 1.96;

/// A slope, and the interval that it is in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slope {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The slope through these points; `None` when they are fewer than two.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let mut slopes = [0.0; PAIRS];
    let mut count = 0;
    for (n, (x0, y0)) in points.iter().enumerate() {
        for (x1, y1) in &points[n + 1..] {
            if x1 > x0 && count < PAIRS {
                slopes[count] = (y1 - y0) / (x1 - x0);
                count += 1;
            }
        }
    }
    let slopes = &mut slopes[..count];
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let n = points.len() as f64;
    let spread = Z * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt() / 2.0;
    let middle = (count as f64 - 1.0) / 2.0;
    let at = |rank: f64| slopes[(rank.round().max(0.0) as usize).min(count - 1)];
    let median = (slopes[(count - 1) / 2] + slopes[count / 2]) / 2.0;
    Some(Slope { median, low: at(middle - spread), high: at(middle + spread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_its_slope() {
        let points: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) + 7.0)).collect();
        assert_eq!(slope(&points), Some(Slope { median: 3.0, low: 3.0, high: 3.0 }));
    }

    #[test]
    fn quarter_of_points_may_be_outliers() {
        let mut points: Vec<(f64, f64)> = (0..16).map(|x| (f64::from(x), 2.0 * f64::from(x))).collect();
        for n in [1, 6, 9, 14] {
            points[n].1 = 1e6;
        }
        let slope = slope(&points).unwrap();
        assert!((slope.median - 2.0).abs() < 0.2, "{slope:?}");
        assert!(slope.low <= 2.0 && slope.high >= 2.0, "{slope:?}");
    }

    #[test]
    fn one_point_has_none() {
        assert_eq!(slope(&[(1.0, 1.0)]), None);
        assert_eq!(slope(&[]), None);
    }
}
