//! Attaches the programs, and pins them where they outlive the daemon.

use std::os::fd::AsFd;
use std::path::Path;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tp_btf::BtfTracePointLinkId;

use super::error::KernelError;
use super::features::Features;
use super::layout::Variants;
use super::pin_paths;
use super::programs::{cause_programs, lifecycle_programs, open_pinned_program, tracepoint_program};
use super::stats::Misses;
use super::tracer::Tracer;
use watchdog_host::pins;

const CLOSE_WATCH: [&str; 3] = ["rss_stat", "reclaim_begin", "reclaim_end"];

impl Tracer {
    /// Attaches everything but close watch, and pins it in this directory. The order matters: programs that remove entries come
    /// before those that add them, so that no exit is missed of a process whose fork was seen.
    pub(super) fn attach_all(&mut self, variants: Variants, pinned_in: Option<&Path>) -> Result<(), KernelError> {
        let exit = variants.exit.ok_or(KernelError::UnknownForm("sched_process_exit"))?;
        let spares = variants.spares;
        let required = [
            Some("free"),
            Some(exit),
            spares.map(|spares| spares.exit),
            Some("exec"),
            Some("fork"),
            spares.map(|spares| spares.fork),
        ];
        for program in required.into_iter().flatten() {
            self.attach_lasting(program, pinned_in)?;
        }
        if self.features.signals.is_ok() {
            self.features.signals = self.attach_lasting("signal", pinned_in).map_err(|error| error.to_string());
        }
        if let (Ok(()), Some(program)) = (&self.features.oom, variants.victim) {
            self.features.oom = self.attach_lasting(program, pinned_in).map_err(|error| error.to_string());
        }
        self.misses = self.misses_of(&lifecycle_programs(variants));
        self.cause_misses = self.misses_of(&cause_programs(variants));
        let Features { signals, oom, close_watch, sampler, counting, files, lsm } = &self.features;
        for (name, feature) in [
            ("signals", signals),
            ("oom", oom),
            ("close watch", close_watch),
            ("sampler", sampler),
            ("counting", counting),
            ("executed files", files),
        ] {
            if let Err(reason) = feature {
                tracing::warn!(feature = name, %reason, "this kernel lacks a feature; continuing without it");
            }
        }
        if let Err(reason) = lsm {
            // The case on most kernels.
            tracing::info!(%reason, "the kernel does not refuse forks beyond a session's limit, nor agents past the gate");
        }
        Ok(())
    }

    fn misses_of(&self, groups: &[[Option<&'static str>; 2]]) -> Misses {
        let earlier = |name: &str| {
            let found = self.earlier.iter().find(|(earlier, _)| earlier == name);
            found.map(|(_, program)| program.as_fd())
        };
        let loaded = |name: &str| self.ebpf.program(name).and_then(|program| Some(program.fd().ok()?.as_fd()));
        let program = |name: &'static str| loaded(name).or_else(|| earlier(name));
        Misses::of(groups.iter().map(|names| names.iter().flatten().filter_map(|name| program(name)).collect()))
    }

    /// Attaches or detaches the memory programs, unless that is done already.
    ///
    /// # Errors
    /// When the kernel refuses; then none stays attached.
    pub fn set_close_watch(&mut self, on: bool) -> Result<(), KernelError> {
        match (on, self.close_watch.take()) {
            (true, None) => {
                self.features.close_watch.clone().map_err(KernelError::Off)?;
                let mut links = Vec::new();
                for program in CLOSE_WATCH {
                    match self.attach(program) {
                        Ok(link) => links.push((program, link)),
                        Err(error) => {
                            self.detach(links)?;
                            return Err(error);
                        }
                    }
                }
                self.close_watch = Some(links);
            }
            (false, Some(links)) => self.detach(links)?,
            (_, unchanged) => self.close_watch = unchanged,
        }
        Ok(())
    }

    #[must_use]
    pub fn close_watch(&self) -> bool {
        self.close_watch.is_some()
    }

    /// Attaches a program and pins it and its link in this directory, unless an earlier daemon has done so.
    fn attach_lasting(&mut self, program: &str, pinned_in: Option<&Path>) -> Result<(), KernelError> {
        let Some(dir) = pinned_in else { return self.attach(program).map(drop) };
        let failed = |doing| move |source| KernelError::program(program, doing, source);
        let (link_path, program_path) = (pin_paths::link_path(dir, program), pin_paths::program_path(dir, program));
        if link_path.exists() {
            let link = PinnedLink::from_pin(&link_path).map_err(|error| pin_paths::not_pinned(program, dir, &error))?;
            // Only its counters need the program.
            match open_pinned_program(&program_path) {
                Ok(loaded) => self.earlier.push((program.to_owned(), loaded)),
                Err(error) => tracing::warn!(
                    "cannot open {}: {error}; skipped runs of the kernel program `{program}` are not counted",
                    program_path.display()
                ),
            }
            self.links.push(link);
            return Ok(());
        }
        let attached = self.attach(program)?;
        let not_pinned = |error: aya::pin::PinError| pin_paths::not_pinned(program, dir, &error);
        pins::remove_if_there(&program_path)?;
        let loaded = tracepoint_program(&mut self.ebpf, program)?;
        loaded.pin(&program_path).map_err(not_pinned)?;
        let link = FdLink::from(loaded.take_link(attached).map_err(failed("attach"))?);
        self.links.push(link.pin(&link_path).map_err(not_pinned)?);
        Ok(())
    }

    fn attach(&mut self, program: &str) -> Result<BtfTracePointLinkId, KernelError> {
        tracepoint_program(&mut self.ebpf, program)?
            .attach()
            .map_err(|source| KernelError::program(program, "attach", source))
    }

    fn detach(&mut self, links: Vec<(&'static str, BtfTracePointLinkId)>) -> Result<(), KernelError> {
        for (program, link) in links {
            tracepoint_program(&mut self.ebpf, program)?
                .detach(link)
                .map_err(|source| KernelError::program(program, "detach", source))?;
        }
        Ok(())
    }
}
