//! Leak rules of other tools.

use super::generate::GeneratedTrace;
use super::scales::HOUR;

/// A look every half hour: more than 2 GB is a leak. What scripts in cron do.
pub(super) fn threshold(trace: &GeneratedTrace) -> Option<f64> {
    const LIMIT: f64 = 2e9 / 1_048_576.0;
    let mut next = HOUR / 2.0;
    for &(at, memory) in trace {
        if at >= next {
            if memory > LIMIT {
                return Some(at);
            }
            next += HOUR / 2.0;
        }
    }
    None
}

/// A straight line through the last ten minutes, taken each minute: r² of 0.8 and 10 MiB an hour are a leak.
pub(super) fn regression(trace: &GeneratedTrace) -> Option<f64> {
    const WINDOW: f64 = 600.0;
    let (mut first, mut next) = (0, WINDOW);
    for (last, &(at, _)) in trace.iter().enumerate() {
        if at < next {
            continue;
        }
        next = at + 60.0;
        while trace[first].0 < at - WINDOW {
            first += 1;
        }
        let (slope, r2) = line(&trace[first..=last]);
        if r2 >= 0.8 && slope * HOUR >= 10.0 {
            return Some(at);
        }
    }
    None
}

/// Slope and coefficient of determination.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (px, py) in points {
        xx += (px - x) * (px - x);
        xy += (px - x) * (py - y);
        yy += (py - y) * (py - y);
    }
    if xx == 0.0 || yy == 0.0 { (0.0, 0.0) } else { (xy / xx, xy * xy / (xx * yy)) }
}

/// Memory divided by the age, from 30 s on: more than 1 GiB an hour is a leak. What some agents' own diagnostics do.
pub(super) fn over_uptime(trace: &GeneratedTrace) -> Option<f64> {
    trace.iter().find(|(at, memory)| *at >= 30.0 && memory / at * HOUR > 1_024.0).map(|(at, _)| *at)
}

/// "if totalmem > 200 MB for 5 cycles" of monit's manual, with its cycle of 30 s.
pub(super) fn five_cycles(trace: &GeneratedTrace) -> Option<f64> {
    let (mut next, mut above) = (30.0, 0);
    for &(at, memory) in trace {
        if at < next {
            continue;
        }
        next += 30.0;
        above = if memory > 200.0 { above + 1 } else { 0 };
        if above == 5 {
            return Some(at);
        }
    }
    None
}
