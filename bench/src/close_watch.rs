//! The cost of close watch: time added to a page fault, time to attach and to detach.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::Result;

use super::cost::{Load, compare};
use super::figures::Figures;
use super::stage::BenchStage;
use super::watch::AttachedPrograms;
use crate::quantile::{median, quantile};

/// Measures with programs that stay loaded: only close watch is switched on and off.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if quick { 4 } else { 60 };
    let watch = CloseWatchLoad { programs: RefCell::new(AttachedPrograms::load(stage)?), times: RefCell::default() };
    let loads = [Load {
        name: "fault",
        work: vec!["faults".to_owned(), "10".to_owned()],
        untracked_goal: 8.0,
        tracked_goal: 13.0,
    }];
    compare(stage, "close watch", &loads, rounds, || watch.on(), figures)?;
    let times = watch.times.into_inner();
    for (what, times) in [("attach", &times.attach), ("detach", &times.detach)] {
        let (typical, slow) = (median(times), quantile(times, 0.9));
        figures.info(format!("close watch: to {what}"), format!("{typical:.1} ms (p90 {slow:.1})"));
    }
    Ok(())
}

struct CloseWatchLoad {
    programs: RefCell<AttachedPrograms>,
    times: RefCell<FaultTimes>,
}

/// In milliseconds.
#[derive(Default)]
struct FaultTimes {
    attach: Vec<f64>,
    detach: Vec<f64>,
}

/// Close watch, until it is dropped.
struct On<'a>(&'a CloseWatchLoad);

impl CloseWatchLoad {
    fn on(&self) -> Result<On<'_>> {
        let took = self.switch(true)?;
        self.times.borrow_mut().attach.push(took);
        Ok(On(self))
    }

    fn switch(&self, on: bool) -> Result<f64> {
        let began = Instant::now();
        self.programs.borrow_mut().tracer.set_close_watch(on)?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        match self.0.switch(false) {
            Ok(took) => self.0.times.borrow_mut().detach.push(took),
            Err(error) => eprintln!("close watch could not be detached: {error:#}"),
        }
    }
}
