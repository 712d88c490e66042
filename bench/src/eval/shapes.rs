//! Shapes of healthy memory over time, without noise: MiB by seconds.

use std::f64::consts::TAU;

use fastrand::Rng;

use super::scales::{HOUR, between, required, spread};

/// Teeth of about this size and period, no two alike. The first are small: a heap's limit grows with the heap.
pub(super) fn teeth(rng: &mut Rng, size: f64, period: f64) -> impl FnMut(f64) -> f64 + use<> {
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

pub(super) fn saw_teeth(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let (size, period) = (spread(rng, 5.0, 1_000.0), spread(rng, 2.0, 1_200.0));
    teeth(rng, size, period)
}

pub(super) fn warm_up(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 2.0 * HOUR);
    let most = if time < 15.0 { 1_500.0 } else { 0.8 * required(time) };
    let size = spread(rng, most / 20.0, most);
    move |now| size * (1.0 - (-now / time).exp())
}

pub(super) fn ramp(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 4.0 * HOUR);
    let most = if time < 40.0 { 1_000.0 } else { required(time) / 2.0 };
    let (size, began) = (spread(rng, most / 20.0, most), between(rng, 0.0, 600.0));
    move |now| size * ((now - began) / time).clamp(0.0, 1.0)
}

pub(super) fn teeth_on_plateau(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let (mut plateau, mut teeth) = (warm_up(rng), saw_teeth(rng));
    move |now| plateau(now) + teeth(now)
}

/// Two to five steps: each a task's working set that stays.
pub(super) fn staircase(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
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
pub(super) fn logarithm(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let time = spread(rng, 1.0, 600.0);
    let size = spread(rng, 2.0, required(time) / 2.0);
    move |now| size * (1.0 + now / time).ln()
}

/// Now and then something large is read into memory, and stays for a while.
pub(super) fn loads(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
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
pub(super) fn bursts(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
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
pub(super) fn ebb_and_flow(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let period = spread(rng, 120.0, 24.0 * HOUR);
    let size = spread(rng, 5.0, required(period / 2.0) / 2.0);
    let phase = rng.f64();
    move |now| size * (0.5 + 0.5 * (TAU * (now / period + phase)).sin())
}

/// A quick rise, one drop, and then less growth than is worth a word.
pub(super) fn one_drop(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let (high, rises) = (spread(rng, 50.0, 400.0), spread(rng, 10.0, 40.0));
    let time = spread(rng, 60.0, 4.0 * HOUR);
    let size = required(time) / between(rng, 2.0, 20.0);
    move |now| if now < rises { high * now / rises } else { size * ((now - rises) / time).min(1.0) }
}

/// One to three pools of 4 to 32 workers that start within two minutes, grow within a minute and stay.
pub(super) fn worker_pools(rng: &mut Rng) -> impl FnMut(f64) -> f64 + use<> {
    let mut workers = Vec::new();
    for _ in 0..rng.u32(1..4) {
        let (began, within) = (between(rng, 0.0, 5.0 * HOUR), spread(rng, 5.0, 120.0));
        let size = spread(rng, 20.0, 300.0);
        for _ in 0..rng.u32(4..33) {
            workers.push((began + between(rng, 0.0, within), size * between(rng, 0.8, 1.2), between(rng, 2.0, 60.0)));
        }
    }
    move |now| workers.iter().map(|(at, size, takes)| size * ((now - at) / takes).clamp(0.0, 1.0)).sum()
}
