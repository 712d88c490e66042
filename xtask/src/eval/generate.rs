//! Memory over time, made up: what healthy programs do, and leaks under the same noise.
//!
//! A plateau that first grew in a straight line, by as much and as long as a leak has when it must be found, is told from
//! a leak by nobody. So what grows here for longer than seconds, and stays, is less than [`required`]: the growth by which a
//! leak has to be found.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Seconds in an hour.
pub(crate) const HOUR: f64 = 3_600.0;

/// Memory over time: seconds, and MiB.
pub(crate) type Trace = Vec<(f64, f64)>;

/// A kind of behaviour.
pub(crate) struct Family {
    /// Its name in the table.
    pub(crate) name: &'static str,
    make: fn(&mut Rng) -> Case,
}

/// One process of a family.
pub(crate) struct Case {
    /// Its memory.
    pub(crate) trace: Trace,
    /// How it leaks, if it does.
    pub(crate) leak: Option<Leak>,
}

/// A leak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leak {
    /// When it begins, in seconds.
    pub(crate) began: f64,
    /// MiB per second; where it changes, the mean of the time that it may take to be found.
    pub(crate) rate: f64,
}

impl Family {
    /// The process of this number.
    pub(crate) fn case(&self, seed: u64) -> Case {
        (self.make)(&mut Rng::with_seed(seed))
    }
}

/// What leaks nothing.
pub(crate) const HEALTHY: [Family; 10] = [
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
];

/// What leaks, from 20 MiB an hour to 50 MiB a minute.
pub(crate) const LEAKING: [Family; 6] = [
    Family { name: "straight", make: |rng| leaking(rng, Under::Noise) },
    Family { name: "under saw-teeth", make: |rng| leaking(rng, Under::SawTeeth) },
    Family { name: "in steps", make: |rng| leaking(rng, Under::Steps) },
    Family { name: "with gaps", make: |rng| leaking(rng, Under::Gaps) },
    Family { name: "after hours of calm", make: |rng| leaking(rng, Under::Calm) },
    Family { name: "quicker and quicker", make: |rng| leaking(rng, Under::Acceleration) },
];

/// By how much a leak may have grown when it is found, if that takes it so many seconds: 60 MiB in a minute, 300 MiB in
/// three hours, and between and beyond them what lies on one line in logarithms.
pub(crate) fn required(seconds: f64) -> f64 {
    let exponent = (300.0_f64 / 60.0).ln() / (3.0 * HOUR / 60.0).ln();
    60.0 * (seconds / 60.0).powf(exponent)
}

/// How long a leak of this rate may take to be found.
fn time_to_find(rate: f64) -> f64 {
    let exponent = (300.0_f64 / 60.0).ln() / (3.0 * HOUR / 60.0).ln();
    // rate * t = 60 * (t / 60)^exponent
    60.0 * (rate).powf(1.0 / (exponent - 1.0))
}

/// From `low` to `high`, every order of magnitude alike.
fn spread(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.f64())
}

fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.f64()
}

/// Healthy hours, with a program's own noise on top of a shape.
fn healthy<S: FnMut(f64) -> f64>(rng: &mut Rng, shape: impl FnOnce(&mut Rng) -> S) -> Case {
    let hours = spread(rng, 0.5, 20.0);
    let base = spread(rng, 20.0, 800.0);
    let mut shape = shape(rng);
    let mut noise = Noise::new(rng);
    let gaps = rng.u8(..) < 64;
    let mut clock = Clock::new(rng, gaps);
    let mut trace = Trace::new();
    while clock.now < hours * HOUR {
        // In a gap the host is asleep, and the program with it.
        let awake = clock.now - clock.asleep;
        let value = base + shape(awake) + noise.at(rng, awake);
        trace.push((clock.now, value.max(1.0)));
        clock.tick(rng, value);
    }
    Case { trace, leak: None }
}

/// What a leak hides under.
#[derive(Clone, Copy, PartialEq)]
enum Under {
    Noise,
    SawTeeth,
    Steps,
    Gaps,
    Calm,
    Acceleration,
}

fn leaking(rng: &mut Rng, under: Under) -> Case {
    let rate = spread(rng, 20.0 / HOUR, 50.0 / 60.0);
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
        _ => Box::new(|_| 0.0),
    };
    let step = between(rng, 0.01, 0.04) * time;
    let mut noise = Noise::new(rng);
    noise.size = noise.size.min(required(time) / 25.0);
    let mut clock = Clock::new(rng, under == Under::Gaps);
    clock.longest_gap = clock.longest_gap.min(time / 10.0);
    let mut trace = Trace::new();
    while clock.now < began + (3.0 * time).max(330.0 / rate) {
        let leaks = (clock.now - began).max(0.0);
        let leaked = match under {
            Under::Steps => (leaks / step).floor() * step * rate,
            Under::Acceleration => rate * leaks * (0.7 + 0.3 * leaks / time),
            _ => rate * leaks,
        };
        let value = base + leaked + teeth(clock.now) + noise.at(rng, clock.now);
        trace.push((clock.now, value.max(1.0)));
        clock.tick(rng, value);
    }
    Case { trace, leak: Some(Leak { began, rate }) }
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

    fn tick(&mut self, rng: &mut Rng, memory: f64) {
        let interval = if self.quick > 0 { 0.25 } else { self.interval };
        self.quick = if memory - self.last > QUICK * interval { QUICK_FOR } else { self.quick.saturating_sub(1) };
        self.last = memory;
        self.now += interval * between(rng, 0.8, 1.5);
        if self.gaps && rng.u16(..) < 40 {
            let gap = spread(rng, 5.0, self.longest_gap.max(6.0));
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

/// Teeth of about this size and period, no two alike. The first are small: a heap's limit grows with the heap.
fn teeth(rng: &mut Rng, size: f64, period: f64) -> impl FnMut(f64) -> f64 + use<> {
    let mut rng = Rng::with_seed(rng.u64(..));
    let (mut began, mut part) = (0.0, (8.0 / size).min(1.0));
    let mut length = period * part;
    let slope = size / period;
    move |now| {
        while now >= began + length {
            began += length;
            part = (part * between(&mut rng, 1.1, 1.4)).min(1.0);
            length = period * part * between(&mut rng, 0.7, 1.2);
        }
        (now - began) * slope
    }
}

fn saw_teeth(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let (size, period) = (spread(rng, 5.0, 1_000.0), spread(rng, 2.0, 1_200.0));
    teeth(rng, size, period)
}

fn warm_up(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 2.0 * HOUR);
    let most = if time < 15.0 { 1_500.0 } else { 0.8 * required(time) };
    let size = spread(rng, most / 20.0, most);
    move |now| size * (1.0 - (-now / time).exp())
}

fn ramp(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 4.0 * HOUR);
    let most = if time < 40.0 { 1_000.0 } else { required(time) / 2.0 };
    let (size, began) = (spread(rng, most / 20.0, most), between(rng, 0.0, 600.0));
    move |now| size * ((now - began) / time).clamp(0.0, 1.0)
}

fn teeth_on_plateau(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let (mut plateau, mut teeth) = (warm_up(rng), saw_teeth(rng));
    move |now| plateau(now) + teeth(now)
}

/// Two to five steps: each a task's working set that stays.
fn staircase(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let apart = spread(rng, 5.0, 2.0 * HOUR);
    let steps: Vec<(f64, f64, f64)> = (0..rng.u32(2..6))
        .scan(0.0, |at, _| {
            *at += apart * between(rng, 0.5, 1.5);
            Some((*at, spread(rng, 10.0, 200.0), between(rng, 0.2, (apart / 8.0).min(10.0))))
        })
        .collect();
    move |now| steps.iter().map(|(at, size, takes)| size * ((now - at) / takes).clamp(0.0, 1.0)).sum()
}

/// A cache that is missed less and less.
fn logarithm(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 600.0);
    let size = spread(rng, 2.0, required(time) / 2.0);
    move |now| size * (1.0 + now / time).ln()
}

/// Now and then something large is read into memory, and stays for a while.
fn loads(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let loads: Vec<(f64, f64, f64, f64)> = (0..rng.u32(1..5))
        .map(|_| {
            let began = between(rng, 0.0, 10.0 * HOUR);
            (began, spread(rng, 50.0, 4_000.0), spread(rng, 1.0, 30.0), spread(rng, 60.0, 10.0 * HOUR))
        })
        .collect();
    move |now| {
        let load = |&(began, size, takes, stays): &(f64, f64, f64, f64)| {
            if now > began + stays { 0.0 } else { size * ((now - began) / takes).clamp(0.0, 1.0) }
        };
        loads.iter().map(load).sum()
    }
}

/// One to three gigabytes a second for a second or two, and back.
fn bursts(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let mut rng = Rng::with_seed(rng.u64(..));
    let every = spread(&mut rng, 10.0, HOUR);
    let mut burst = (between(&mut rng, 0.0, every), 1.5, 2_000.0);
    move |now| {
        let (began, lasts, rate) = burst;
        if now > began + 2.0 * lasts {
            burst = (
                now + every * between(&mut rng, 0.2, 2.0),
                between(&mut rng, 0.8, 2.0),
                spread(&mut rng, 300.0, 3_000.0),
            );
        }
        if (began..began + lasts).contains(&now) { (now - began) * rate } else { 0.0 }
    }
}

/// A working set that grows and shrinks with what people do.
fn ebb_and_flow(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let period = spread(rng, 120.0, 24.0 * HOUR);
    let size = spread(rng, 5.0, required(period / 2.0) / 2.0);
    let phase = rng.f64();
    move |now| size * (0.5 + 0.5 * (TAU * (now / period + phase)).sin())
}
