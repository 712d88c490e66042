//! Memory over time, made up: what healthy programs do, and leaks under the same noise.
//!
//! No detector can distinguish a leak from a plateau that first grew in a straight line, as much and as long as a leak must
//! have grown to be found. So plateaus that grow here for longer than seconds stay below [`required`]: the growth at which
//! a leak must be found.

use std::f64::consts::TAU;

use fastrand::Rng;

use super::scales::{HOUR, between, required, spread};
use super::shapes::{
    bursts, ebb_and_flow, loads, logarithm, one_drop, ramp, saw_teeth, staircase, teeth, teeth_on_plateau, warm_up,
    worker_pools,
};
use watchdog_fixtures::traces::AVAILABLE_MIB;

/// Memory over time: seconds, and MiB.
pub(crate) type GeneratedTrace = Vec<(f64, f64)>;

/// A kind of behaviour.
pub(crate) struct Family {
    /// Its name in the table.
    pub(crate) name: &'static str,
    make: fn(&mut Rng) -> Case,
}

/// One process of a family.
pub(crate) struct Case {
    /// Its memory, as the engine counts it.
    pub(crate) trace: GeneratedTrace,
    /// Its resident memory, where that is more.
    pub(crate) resident: Option<GeneratedTrace>,
    /// Available memory of the host, in MiB.
    pub(crate) available: f64,
    /// Whether it is the sum of a session, which only long windows judge.
    pub(crate) session: bool,
    /// When a process of the role starts again: each life is a series of its own.
    pub(crate) restarts: Vec<f64>,
    /// V8's heap limit in MiB, at which each life dies.
    pub(crate) heap: Option<f64>,
    /// How it leaks, if it does.
    pub(crate) leak: Option<LeakShape>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LeakShape {
    /// When it begins, in seconds awake.
    pub(crate) began: f64,
    /// MiB per second; where it changes, the mean of the time that it may take to be found.
    pub(crate) rate: f64,
}

impl Case {
    pub(crate) fn of(trace: GeneratedTrace, leak: Option<LeakShape>) -> Self {
        let available = AVAILABLE_MIB as f64;
        Self { trace, resident: None, available, session: false, restarts: Vec::new(), heap: None, leak }
    }

    /// The time awake until a moment: the host sleeps in gaps, and what leaks with it.
    pub(crate) fn awake(&self, until: f64) -> f64 {
        let steps = self.trace.windows(2).take_while(|pair| pair[1].0 <= until);
        until - steps.map(|pair| (pair[1].0 - pair[0].0 - GAP).max(0.0)).sum::<f64>()
    }

    /// The values for rules that count resident memory.
    pub(crate) fn resident(&self) -> &GeneratedTrace {
        self.resident.as_ref().unwrap_or(&self.trace)
    }
}

impl Family {
    /// The process of this number.
    pub(crate) fn case(&self, seed: u64) -> Case {
        (self.make)(&mut Rng::with_seed(seed))
    }
}

/// Traces without a leak.
pub(crate) const HEALTHY: [Family; 16] = [
    Family { name: "noise", make: |rng| healthy(rng, |_| |_| 0.0) },
    Family { name: "saw-teeth", make: |rng| healthy(rng, saw_teeth) },
    Family { name: "warm-up, then plateau", make: |rng| healthy(rng, warm_up) },
    Family { name: "ramp, then plateau", make: |rng| healthy(rng, ramp) },
    Family { name: "staircase", make: |rng| healthy(rng, staircase) },
    Family { name: "logarithm", make: |rng| healthy(rng, logarithm) },
    Family { name: "one-off loads", make: |rng| healthy(rng, loads) },
    Family { name: "tool bursts", make: |rng| healthy(rng, bursts) },
    Family { name: "ebb and flow", make: |rng| healthy(rng, ebb_and_flow) },
    Family { name: "saw-teeth on a plateau", make: |rng| healthy(rng, teeth_on_plateau) },
    Family { name: "load, then plateau", make: load_then_plateau },
    Family { name: "one drop, then slow", make: |rng| healthy(rng, one_drop) },
    Family {
        name: "worker pools",
        make: |rng| Case { session: true, available: 131_072.0, ..healthy(rng, worker_pools) },
    },
    Family { name: "page cache", make: |rng| with_files(rng, 20_000.0) },
    Family { name: "touched shared memory", make: |rng| with_files(rng, 2_000.0) },
    Family { name: "runs of one tool", make: runs_of_one_tool },
];

/// Traces with a leak of 20 MiB an hour to 50 MiB a minute.
pub(crate) const LEAKING: [Family; 11] = [
    Family { name: "straight", make: |rng| leaking(rng, Under::Noise) },
    Family { name: "under saw-teeth", make: |rng| leaking(rng, Under::SawTeeth) },
    Family { name: "in steps", make: |rng| leaking(rng, Under::Steps) },
    Family { name: "with gaps", make: |rng| leaking(rng, Under::Gaps) },
    Family { name: "after hours of calm", make: |rng| leaking(rng, Under::Calm) },
    Family { name: "quicker and quicker", make: |rng| leaking(rng, Under::Acceleration) },
    Family { name: "after one old drop", make: |rng| leaking(rng, Under::OldDrop) },
    Family { name: "slow, below churn", make: |rng| leaking(rng, Under::Churn) },
    Family { name: "rising floor of saw-teeth", make: |rng| leaking(rng, Under::Floor) },
    Family { name: "shared memory", make: |rng| leaking(rng, Under::Shared) },
    Family { name: "restarts of one role", make: restarts_of_one_role },
];

/// How long a leak of this rate may take to be found.
fn time_to_find(rate: f64) -> f64 {
    let exponent = (300.0_f64 / 60.0).ln() / (3.0 * HOUR / 60.0).ln();
    // rate * t = 60 * (t / 60)^exponent
    60.0 * (rate).powf(1.0 / (exponent - 1.0))
}

/// Healthy hours, with a program's own noise on top of a shape.
fn healthy<S: FnMut(f64) -> f64>(rng: &mut Rng, shape: impl FnOnce(&mut Rng) -> S) -> Case {
    let hours = spread(rng, 0.5, 20.0);
    let base = spread(rng, 20.0, 800.0);
    let mut shape = shape(rng);
    let mut noise = Noise::new(rng);
    let gaps = rng.u8(..) < 64;
    let mut clock = Clock::new(rng, gaps);
    let mut trace = GeneratedTrace::new();
    while clock.now < hours * HOUR {
        let awake = clock.awake();
        let value = base + shape(awake) + noise.at(rng, awake);
        trace.push((clock.now, value.max(1.0)));
        clock.tick(rng, value);
    }
    Case::of(trace, None)
}

/// The noise above a leak.
#[derive(Clone, Copy, PartialEq)]
enum Under {
    Noise,
    SawTeeth,
    Steps,
    Gaps,
    Calm,
    Acceleration,
    OldDrop,
    Churn,
    Floor,
    Shared,
}

fn leaking(rng: &mut Rng, under: Under) -> Case {
    let most = if under == Under::Churn { 300.0 / HOUR } else { 50.0 / 60.0 };
    let rate = spread(rng, 20.0 / HOUR, most);
    let (time, base) = (time_to_find(rate), spread(rng, 20.0, 800.0));
    let began = match under {
        Under::Calm => between(rng, 1.0, 6.0) * HOUR,
        _ => between(rng, 0.0, 60.0),
    };
    // Up to five times as high as the leak may grow until it is found, and at least twelve of them in that time.
    let mut teeth: Box<dyn FnMut(f64) -> f64> = match under {
        Under::SawTeeth => {
            let size = spread(rng, 0.2, 10.0) * required(time) / 2.0;
            let period = time / between(rng, 12.0, 120.0);
            Box::new(teeth(rng, size, period.max(2.0)))
        }
        Under::Churn => Box::new(bursts(rng)),
        _ => Box::new(|_| 0.0),
    };
    let (began, high) = match under {
        // The drop took away what grew at least four times as quickly.
        Under::OldDrop => {
            let rises = spread(rng, 10.0, 45.0);
            (rises, spread(rng, 50.0, 400.0).max(4.0 * rate * rises))
        }
        _ => (began, 0.0),
    };
    let step = between(rng, 0.01, 0.04) * time;
    let mut noise = Noise::new(rng);
    noise.size = noise.size.min(required(time) / 25.0);
    let mut clock = Clock::new(rng, under == Under::Gaps);
    clock.longest_gap = clock.longest_gap.min(time / 10.0);
    let mut trace = GeneratedTrace::new();
    while clock.awake() < began + (3.0 * time).max(330.0 / rate) {
        let now = clock.awake();
        let leaks = (now - began).max(0.0);
        let leaked = match under {
            // Of saw-teeth, each leaves a part of itself behind.
            Under::Steps | Under::Floor => (leaks / step).floor() * step * rate,
            Under::Acceleration => rate * leaks * (0.7 + 0.3 * leaks / time),
            _ => rate * leaks,
        };
        let above = match under {
            Under::OldDrop if now < began => high * now / began,
            Under::Floor => (leaks % step) * rate * 4.0,
            _ => teeth(now),
        };
        let value = base + leaked + above + noise.at(rng, now);
        trace.push((clock.now, value.max(1.0)));
        clock.tick(rng, value);
    }
    Case::of(trace, Some(LeakShape { began, rate }))
}

/// When samples are taken: every one to three seconds, four times a second where memory moves quickly, with gaps where
/// asked for. That is what the daemon's sampler does.
struct Clock {
    now: f64,
    interval: f64,
    gaps: bool,
    longest_gap: f64,
    /// All gaps so far.
    asleep: f64,
    last: f64,
    quick: u32,
}

/// The shortest gap, in seconds.
const GAP: f64 = 5.0;
/// Growth in MiB per second from which on samples are taken quickly, and for how many of them.
const QUICK: f64 = 8.0;
const QUICK_FOR: u32 = 60;

impl Clock {
    fn new(rng: &mut Rng, gaps: bool) -> Self {
        Self {
            now: 0.0,
            interval: between(rng, 1.0, 2.0),
            gaps,
            longest_gap: HOUR,
            asleep: 0.0,
            last: f64::MAX,
            quick: 0,
        }
    }

    /// In a gap the host is asleep, and the program with it.
    fn awake(&self) -> f64 {
        self.now - self.asleep
    }

    fn tick(&mut self, rng: &mut Rng, memory: f64) {
        let interval = if self.quick > 0 { 0.25 } else { self.interval };
        self.quick = if memory - self.last > QUICK * interval { QUICK_FOR } else { self.quick.saturating_sub(1) };
        self.last = memory;
        self.now += interval * between(rng, 0.8, 1.5);
        if self.gaps && rng.u16(..) < 40 {
            let gap = spread(rng, GAP, self.longest_gap.max(6.0));
            self.now += gap;
            self.asleep += gap;
        }
    }
}

/// Noise that forgets itself after a while (an Ornstein-Uhlenbeck process).
struct Noise {
    size: f64,
    memory: f64,
    last: f64,
    value: f64,
}

impl Noise {
    fn new(rng: &mut Rng) -> Self {
        Self { size: spread(rng, 0.1, 12.0), memory: spread(rng, 0.5, 600.0), last: 0.0, value: 0.0 }
    }

    fn at(&mut self, rng: &mut Rng, now: f64) -> f64 {
        let keeps = (-(now - self.last) / self.memory).exp();
        self.value = self.value * keeps + (1.0 - keeps * keeps).sqrt() * normal(rng);
        self.last = now;
        self.value * self.size
    }
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
}

/// One load of 1 to 30 minutes, at a rate that no slow leak has, where memory lasts for hours at its rate.
fn load_then_plateau(rng: &mut Rng) -> Case {
    let time = spread(rng, 60.0, 30.0 * 60.0);
    let slowest = 6.9 * (1.4 * time / 200.0).powf(0.25);
    let rate = spread(rng, slowest, 100.0);
    let began = between(rng, 0.0, 600.0);
    let hours = between(rng, 4.0, 12.0);
    let case = healthy(rng, |_| move |now| rate * (now - began).clamp(0.0, time));
    Case { available: rate * hours * HOUR, ..case }
}

/// Calm private memory, beside pages of files or of other processes that it touches at up to 50 MiB a second.
fn with_files(rng: &mut Rng, most: f64) -> Case {
    let (rate, size) = (spread(rng, 0.1, 50.0), spread(rng, 100.0, most));
    let case = healthy(rng, |_| |_| 0.0);
    let resident = case.trace.iter().map(|(at, own)| (*at, own + (rate * at).min(size))).collect();
    Case { resident: Some(resident), ..case }
}

/// Lives of one role, under noise: memory of each by its age, and when they start.
fn lives(rng: &mut Rng, count: u32, mut life: impl FnMut(&mut Rng) -> (f64, f64), memory: impl Fn(f64) -> f64) -> Case {
    let (base, mut noise, mut clock) = (spread(rng, 20.0, 200.0), Noise::new(rng), Clock::new(rng, false));
    noise.size = noise.size.min(4.0);
    let (mut trace, mut restarts) = (GeneratedTrace::new(), Vec::new());
    for _ in 0..count {
        let (lasts, pause) = life(rng);
        let began = clock.now;
        restarts.push(began);
        while clock.now < began + lasts {
            let value = base + memory(clock.now - began) + noise.at(rng, clock.now);
            trace.push((clock.now, value.max(1.0)));
            clock.tick(rng, value);
        }
        clock.now += pause;
    }
    Case { restarts, heap: Some(base), ..Case::of(trace, None) }
}

/// Three to seven lives, each of which leaks until its heap limit ends it after 3 to 30 minutes.
fn restarts_of_one_role(rng: &mut Rng) -> Case {
    let lasts = spread(rng, 180.0, 1_800.0);
    let limit = required(lasts) * between(rng, 1.3, 3.0);
    let (count, rate) = (rng.u32(3..8), limit / lasts);
    let case = lives(rng, count, |rng| (lasts, between(rng, 0.2, 4.0)), |age| rate * age);
    let heap = case.heap.map(|base| base + limit);
    Case { heap, leak: Some(LeakShape { began: 0.0, rate }), ..case }
}

/// A compiler or a test, again and again: it reads its work into memory in seconds, and exits.
fn runs_of_one_tool(rng: &mut Rng) -> Case {
    let (size, takes) = (spread(rng, 50.0, 1_000.0), spread(rng, 1.0, 30.0));
    let count = rng.u32(5..40);
    let life = |rng: &mut Rng| (spread(rng, 10.0, 900.0), spread(rng, 1.0, 9.0));
    let case = lives(rng, count, life, |age| size * (age / takes).min(1.0));
    Case { heap: None, ..case }
}
