//! What holds of every series.

use std::time::Duration;

use proptest::prelude::*;

use super::{Ceilings, Change, Demand, LeakLimit, Series, Watch};
use watchdog_types::{BootTime, Bytes};

const HOST: Bytes = Bytes::from_mib(16 * 1024);

fn ceilings() -> Ceilings {
    let mut ceilings = Ceilings::default();
    ceilings.add(LeakLimit::Host, HOST, HOST);
    ceilings
}

/// Steps of time in milliseconds and of memory in MiB, as bad as they come.
fn anything() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    let time = prop_oneof![8 => 0..5_000_u64, 1 => 0..10_000_000_u64, 1 => Just(u64::MAX / 1_000_000)];
    let memory = prop_oneof![6 => 0..4_000_u64, 1 => Just(0_u64), 1 => Just(u64::MAX / 1_048_576)];
    prop::collection::vec((time, memory, any::<bool>()), 1..300)
}

/// A leak under teeth and noise: MiB per second, teeth of some size and period, and noise.
fn leak() -> impl Strategy<Value = Vec<(u64, u64)>> {
    (0.02..2.0, 0.0..60.0, 3.0..40.0, 0.0..2.0, any::<u64>()).prop_map(|(rate, teeth, period, noise, seed)| {
        let mut state = seed | 1;
        let mut random = move || {
            // xorshift64*, G. Marsaglia 2003: good enough for noise.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut at = 0.0;
        let mut samples = Vec::new();
        while at < 900.0 {
            let memory = 64.0 + rate * at + teeth * (at % period) / period + noise * random();
            samples.push(((at * 1e9) as u64, (memory * 1_048_576.0) as u64));
            at += 0.5 + random();
        }
        samples
    })
}

fn alarm(samples: &[(u64, u64)], shift: u64, demand: Demand) -> Option<(u64, f64)> {
    let mut watch: Option<Watch> = None;
    for &(at, memory) in samples {
        let moment = BootTime(at + shift);
        match &mut watch {
            None => watch = Some(Watch::new(moment, Bytes(memory))),
            Some(watch) => {
                if watch.push(moment, Bytes(memory), &ceilings(), demand) == Some(Change::Opened) {
                    return Some((at, watch.found().unwrap().growth.rate));
                }
            }
        }
    }
    None
}

/// The seconds at which a leak is opened, with so many MiB left at first, where memory is so many MiB by seconds.
fn openings(seconds: u32, left: f64, memory: impl Fn(f64) -> f64) -> Vec<u32> {
    let bytes = |mib: f64| Bytes((mib * 1_048_576.0) as u64);
    let mut watch = Watch::new(BootTime(0), bytes(memory(0.0)));
    let mut opened = Vec::new();
    for second in 1..seconds {
        let now = memory(f64::from(second));
        let mut ceilings = Ceilings::default();
        let left = bytes(left - now);
        ceilings.add(LeakLimit::Host, left, left);
        let at = BootTime(u64::from(second) * 1_000_000_000);
        if watch.push(at, bytes(now), &ceilings, Demand::default()) == Some(Change::Opened) {
            opened.push(second);
        }
    }
    opened
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 512 }))]

    #[test]
    fn any_series_gives_finite_numbers(steps in anything()) {
        let mut at = 0_u64;
        let mut watch = Watch::new(BootTime(0), Bytes(0));
        for (time, memory, held) in steps {
            at = at.saturating_add(time.saturating_mul(1_000_000));
            if held {
                watch.hold(BootTime(at), &ceilings(), Demand::default());
            }
            watch.push(BootTime(at), Bytes(memory.saturating_mul(1_048_576)), &ceilings(), Demand::default());
            if let Some(found) = watch.found() {
                let growth = found.growth;
                prop_assert!(growth.rate.is_finite() && growth.low <= growth.rate && growth.rate <= growth.high, "{growth:?}");
                prop_assert!((0.0..=1.0).contains(&growth.confidence), "{growth:?}");
            }
        }
    }

    #[test]
    fn verdict_ignores_boot_time(samples in leak(), shift in 0..1_u64 << 50) {
        prop_assert_eq!(alarm(&samples, 0, Demand::default()), alarm(&samples, shift, Demand::default()));
    }

    #[test]
    fn required_growth_scales_with_memory(rate in 0.02..0.9, base in 16.0..500.0) {
        let samples = |times: f64| -> Vec<(u64, u64)> {
            let memory = |second: u32| (base + rate * f64::from(second)) * times * 1_048_576.0;
            (0..3_000).map(|second| (u64::from(second) * 1_000_000_000, memory(second) as u64)).collect()
        };
        let twice = Demand { factor: 2.0, ..Demand::default() };
        let (once, twice) = (alarm(&samples(1.0), 0, Demand::default()), alarm(&samples(2.0), 0, twice));
        prop_assert_eq!(once.map(|(at, _)| at), twice.map(|(at, _)| at));
        if let (Some((_, slow)), Some((_, quick))) = (once, twice) {
            prop_assert!((quick / slow / 2.0 - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn load_with_hours_left_is_no_leak(rate in 2.0..40.0, lasts in 5.0..600.0, hours in 1.6..9.0) {
        let left = 60.0 + rate * (lasts + hours * 3_600.0);
        prop_assert_eq!(openings(1_800, left, |s| 60.0 + rate * s.min(lasts)), [0; 0]);
    }

    #[test]
    fn load_that_levels_off_is_no_leak(first in 3.2..20.0, time in 20.0..400.0, hours in 1.6..9.0) {
        let left = 60.0 + first * (time + hours * 3_600.0);
        let memory = |s: f64| 60.0 + first * time * (1.0 - f64::exp(-s / time));
        prop_assert_eq!(openings(4_000, left, memory), [0; 0]);
    }

    #[test]
    fn long_first_tooth_is_no_leak(rate in 2.0..12.0, first in 60.0..600.0, next in 0.05..1.0, hours in 1.6..9.0) {
        let left = 60.0 + rate * (first + hours * 3_600.0);
        let memory = |s: f64| 60.0 + rate * if s < first { s } else { (s - first) % (first * next) };
        prop_assert_eq!(openings(3_000, left, memory), [0; 0]);
    }

    #[test]
    fn teeth_that_grow_are_expected(rate in 0.4..1.8, period in 30.0..300.0, grows in 1.0..2.2) {
        let ends = [1.0, 2.0, 2.0 + grows].map(|periods| periods * period);
        let memory = |s: f64| 60.0 + rate * (s - ends.iter().rev().find(|end| **end <= s).unwrap_or(&0.0));
        let opened = openings(ends[2] as u32 + 30, 28_672.0, memory);
        prop_assert!(opened.iter().all(|at| f64::from(*at) < ends[1]), "{opened:?}");
    }

    #[test]
    fn one_drop_delays_no_leak(fall in 40.0..1_200.0, rises in 5.0..600.0, rate in 0.4..1.5) {
        let found = |fall: f64| {
            let memory = |s: f64| if s < rises { 60.0 + fall * s / rises } else { 60.0 + rate * (s - rises) };
            openings(rises as u32 + 600, 28_672.0, memory).into_iter().find(|at| f64::from(*at) > rises)
        };
        let (with, without) = (found(fall), found(0.0));
        prop_assert!(with.is_some() && with <= without.map(|at| at + 20), "{with:?}, without the drop {without:?}");
    }

    #[test]
    fn what_never_grows_is_no_leak(start in 8..4_000_u64, falls in prop::collection::vec((1..100_000_u64, 0..200_u64), 1..300)) {
        let (mut at, mut memory) = (0, start);
        let mut watch = Watch::new(BootTime(0), Bytes::from_mib(memory));
        for (time, fall) in falls {
            at += time * 1_000_000;
            memory = memory.saturating_sub(fall);
            prop_assert_eq!(watch.push(BootTime(at), Bytes::from_mib(memory), &ceilings(), Demand::default()), None);
        }
    }

    #[test]
    fn late_sample_changes_nothing(samples in leak(), back in 1..1_000_000_u64) {
        let mut series = Series::new(BootTime(0), Bytes(0));
        for &(at, memory) in &samples {
            series.push(BootTime(at), Bytes(memory));
        }
        let before = format!("{series:?}");
        series.push(BootTime(samples.last().unwrap().0 - back), Bytes(1));
        prop_assert_eq!(before, format!("{series:?}"));
    }
}

/// Two teeth, then MiB an hour without any.
#[test]
fn old_teeth_delay_slow_leak_little() {
    for (period, size, rate) in [(1_000, 37.0, 300.0), (5_000, 40.0, 140.0)] {
        let memory = |second: u64| match second.checked_sub(2 * period) {
            Some(leaks) => 400.0 + rate * leaks as f64 / 3_600.0,
            None => 400.0 + size * (second % period) as f64 / period as f64,
        };
        let sample = |second: u64| (second * 1_000_000_000, (memory(second) * 1_048_576.0) as u64);
        let samples: Vec<(u64, u64)> = (0..4 * period + 2_000).map(sample).collect();
        let (at, _) = alarm(&samples, 0, Demand::default()).expect("a leak");
        let grown = memory(at / 1_000_000_000) - 400.0;
        assert!(grown < 150.0, "found after {grown} MiB");
    }
}

#[test]
fn gap_is_no_plateau() {
    let mut watch = Watch::new(BootTime(0), Bytes::from_mib(50));
    let mut found = None;
    for second in (0..200_u64).filter(|second| !(70..95).contains(second)) {
        let at = BootTime(second * 1_000_000_000);
        if watch.push(at, Bytes::from_mib(50 + second), &ceilings(), Demand::default()) == Some(Change::Opened) {
            found = Some(watch.found().unwrap().growth);
            break;
        }
    }
    let growth = found.expect("a leak");
    assert!((growth.rate / 1_048_576.0 - 1.0).abs() < 0.1 && growth.window < Duration::from_secs(200), "{growth:?}");
}

#[test]
fn sleep_stops_the_clock() {
    let mut watch = Watch::new(BootTime(0), Bytes::from_mib(50));
    let (mut found, mut asleep) = (None, 0);
    for second in 1..200_u64 {
        if second == 30 {
            asleep = 3_600;
            watch.skip(BootTime((second + asleep) * 1_000_000_000 - 1));
        }
        let at = BootTime((second + asleep) * 1_000_000_000);
        if watch.push(at, Bytes::from_mib(50 + second), &ceilings(), Demand::default()) == Some(Change::Opened) {
            found = Some((second, watch.found().unwrap().growth));
            break;
        }
    }
    let (second, growth) = found.expect("a leak");
    assert!((growth.rate / 1_048_576.0 - 1.0).abs() < 0.1 && second < 75, "after {second} s: {growth:?}");
}
