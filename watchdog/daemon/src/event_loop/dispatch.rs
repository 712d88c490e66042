//! Passes the engine's effects on to the workers and to files.

use std::io;
use std::sync::atomic::Ordering;

use super::EventLoop;
use crate::state_writer::DurableUpdate;
use crate::worker::ChannelClosed;
use crate::workers::{BpfTask, ConfineTask, InspectRequest, PendingGrant, ScanTask};
use watchdog_engine::effect::{ActionCommand, BpfCommand, ClientReply, Effect, PersistCommand};
use watchdog_types::PageOut;

impl EventLoop {
    pub(super) fn dispatch(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        let (mut inspections, mut limits, mut resumed) = (Vec::new(), Vec::new(), Vec::new());
        let full_rewrite = self.persisted.file.is_due();
        if full_rewrite {
            self.persisted.file.rewrite(&self.state.gate_records());
        }
        for effect in effects {
            match effect {
                Effect::Inspect(process) => inspections.push(process),
                Effect::ReadProcessLimits(process) => limits.push(process),
                Effect::ScanProcesses => self.rescan.request(),
                Effect::Bpf(command) => {
                    if let BpfCommand::ApplyLimits(root, _) = &command {
                        resumed.extend(self.state.session_of(*root).map(|session| (*root, session)));
                    }
                    self.bpf(BpfTask::Engine(command))?;
                }
                Effect::Scan(request) => self.scan(ScanTask::Engine(request))?,
                Effect::Confine(command) => self.confine(ConfineTask::Engine(command))?,
                Effect::Act(command) => self.action(command)?,
                Effect::PageOut(order) => self.page_out(order)?,
                Effect::CancelPageOut(order) => self.workers.cancelled_page_out.store(order, Ordering::Relaxed),
                // The rewrite contains it.
                Effect::Persist(PersistCommand::Gate(_)) if full_rewrite => {}
                // A failure was logged, and the whole file is rewritten later.
                Effect::Persist(PersistCommand::Gate(record)) => drop(self.persisted.file.append(&record)),
                Effect::Persist(PersistCommand::Ids(ids)) => self.persist_ids(ids),
                // The thread that writes them ends after this one.
                Effect::Persist(PersistCommand::Peaks(peaks)) => {
                    let _ = self.persisted.durable.send(DurableUpdate::Peaks(peaks));
                }
                Effect::Persist(PersistCommand::Yields(yields)) => {
                    let _ = self.persisted.durable.send(DurableUpdate::Yields(yields));
                }
                Effect::Reply(ClientReply::Granted(granted)) => {
                    // The grant itself reports the cgroup.
                    resumed.retain(|(root, _)| *root != granted.lease.process);
                    let client = self.state.take_granted_client(&granted);
                    self.bpf(BpfTask::Grant(Box::new(PendingGrant { granted: *granted, client })))?;
                }
                Effect::Reply(ClientReply::Refused(refused)) => self.state.refuse(*refused),
                Effect::Reply(ClientReply::Queued(position)) => self.state.update_waiting(*position),
                Effect::AskFleet(ask) => {
                    if let Some(fleet) = &self.workers.fleet {
                        fleet.ask(*ask);
                    }
                }
                Effect::RestateFleet(statement) => {
                    if let Some(fleet) = &self.workers.fleet {
                        fleet.restate(*statement);
                    }
                }
                Effect::Reply(ClientReply::Subagent(_) | ClientReply::ActionsStarted(_))
                | Effect::Receipt(_)
                | Effect::Journal(_)
                | Effect::Latency(_)
                | Effect::Died(_) => {
                    debug_assert!(false, "DaemonState handles these itself");
                }
            }
        }
        for (root, session) in resumed {
            self.confine(ConfineTask::Resume(root, session))?;
        }
        if !limits.is_empty() {
            self.scan(ScanTask::ProcessLimits(limits))?;
        }
        if inspections.is_empty() {
            return Ok(());
        }
        let stdin_peers = self.state.stdin_peers();
        self.workers
            .inspector
            .send(InspectRequest { processes: inspections, stdin_peers })
            .map_err(|ChannelClosed| ended("inspector"))
    }

    pub(super) fn bpf(&self, task: BpfTask) -> io::Result<()> {
        self.workers.bpf.send(task).map_err(|ChannelClosed| ended("bpf"))
    }

    fn confine(&self, task: ConfineTask) -> io::Result<()> {
        self.workers.confinement.send(task).map_err(|ChannelClosed| ended("confinement"))
    }

    fn action(&self, command: ActionCommand) -> io::Result<()> {
        self.workers.signaller.send(command).map_err(|ChannelClosed| ended("signaller"))
    }

    fn page_out(&self, order: Box<PageOut>) -> io::Result<()> {
        self.workers.pager.send(order).map_err(|ChannelClosed| ended("pager"))
    }

    fn scan(&self, task: ScanTask) -> io::Result<()> {
        self.workers.scanner.send(task).map_err(|ChannelClosed| ended("scanner"))
    }
}

fn ended(worker: &str) -> io::Error {
    io::Error::other(format!("the worker thread `{worker}` has ended"))
}
