//! What holds of every series.

use std::time::Duration;

use proptest::prelude::*;

use super::{Ceilings, Change, Demand, Limit, Series, Watch};
use crate::engine::id::{BootTime, Bytes};

const HOST: Bytes = Bytes::from_mib(16 * 1024);

fn ceilings() -> Ceilings {
    let mut ceilings = Ceilings::default();
    ceilings.add(Limit::Host, HOST, HOST);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 512 }))]

    #[test]
    fn no_series_makes_it_panic_or_say_what_is_not_a_number(steps in anything()) {
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
    fn it_does_not_matter_when_the_host_was_started(samples in leak(), shift in 0..1_u64 << 50) {
        prop_assert_eq!(alarm(&samples, 0, Demand::default()), alarm(&samples, shift, Demand::default()));
    }

    #[test]
    fn twice_the_memory_asks_for_twice_the_growth(rate in 0.02..2.0, base in 16.0..500.0) {
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
    fn a_sample_from_the_past_changes_nothing(samples in leak(), back in 1..1_000_000_u64) {
        let mut series = Series::new(BootTime(0), Bytes(0));
        for &(at, memory) in &samples {
            series.push(BootTime(at), Bytes(memory));
        }
        let before = format!("{series:?}");
        series.push(BootTime(samples.last().unwrap().0 - back), Bytes(1));
        prop_assert_eq!(before, format!("{series:?}"));
    }
}

#[test]
fn a_gap_is_no_flat_time() {
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
