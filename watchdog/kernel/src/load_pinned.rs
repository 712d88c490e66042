//! Loads the programs with pins, and takes over those of an earlier daemon.

use super::error::KernelError;
use super::load::{LoadOptions, LoadPlan, Pinning};
use super::takeover::Inherited;
use super::tracer::{Streams, Tracer};
use watchdog_host::pins::{self, PinError, Pins};

impl Tracer {
    /// As [`Tracer::load`], with pins: the programs stay attached when this process exits. Those that an earlier daemon left are
    /// taken over, or, where they were built or sized in another way, replaced. No fork is missed meanwhile.
    ///
    /// If pinning fails, everything is loaded without pins: see [`Inherited::pins`].
    ///
    /// # Errors
    /// As [`Tracer::load`].
    pub fn load_pinned(
        options: &LoadOptions<'_>,
        pins: Result<Pins, PinError>,
    ) -> Result<(Self, Streams, Inherited), KernelError> {
        let plan = LoadPlan::new(options)?;
        let pins = match pins {
            Ok(pins) => pins,
            Err(error) => return Self::load_unpinned(&plan, &error),
        };
        let layout = plan.layout_hash();
        let complete = pins.complete(layout);
        if complete.is_dir() {
            let taken = plan.execute(Pinning::Existing(&complete)).and_then(|(mut tracer, streams)| {
                let inherited = tracer.take_over(&complete)?;
                Ok((tracer, streams, inherited))
            });
            match taken {
                Ok((mut tracer, streams, mut inherited)) => {
                    tracer.import_others(&pins, &complete, &mut inherited);
                    tracer.pins = Some(pins);
                    return Ok((tracer, streams, inherited));
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot take over the pinned programs of an earlier daemon, importing their maps: {error}"
                    );
                    if let Err(error) = pins.set_aside(&complete) {
                        return Self::load_unpinned(&plan, &error);
                    }
                }
            }
        }
        let (mut tracer, streams, mut inherited) = match Self::pin_anew(&plan, &pins, layout) {
            Ok((tracer, streams)) => {
                (tracer, streams, Inherited { pins: Ok(complete.clone()), ..Inherited::default() })
            }
            Err(KernelError::Pin(error)) => Self::load_unpinned(&plan, &error)?,
            Err(error) => return Err(error),
        };
        tracer.import_others(&pins, &complete, &mut inherited);
        tracer.pins = Some(pins);
        Ok((tracer, streams, inherited))
    }

    fn load_unpinned(plan: &LoadPlan<'_>, why: &PinError) -> Result<(Self, Streams, Inherited), KernelError> {
        let (tracer, streams) = plan.execute(Pinning::Nowhere)?;
        Ok((tracer, streams, Inherited::nothing(why.to_string())))
    }

    fn pin_anew(plan: &LoadPlan<'_>, pins: &Pins, layout: u64) -> Result<(Self, Streams), KernelError> {
        let unfinished = pins.begin(layout)?;
        let loaded = plan.execute(Pinning::New(&unfinished));
        let finished = loaded.and_then(|loaded| {
            pins.finish(&unfinished, layout)?;
            Ok(loaded)
        });
        if finished.is_err()
            && let Err(error) = pins::remove(&unfinished)
        {
            tracing::warn!("{error}");
        }
        finished
    }
}
