//! A simulated host that carries out the steps of a case.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use crate::actions::{ActionRequest, RequestedAction};
use crate::exits::ExplainTarget;
use crate::input::Input;
use crate::tests::shown_world::naming;
use crate::tests::world::{MINUTE, SECOND, SHELL, USER, World};
use watchdog_api::{FindingKind, Subject};
use watchdog_config as config;
use watchdog_fixtures::cases::{
    Actors, AgentStep, CaseError, CaseFile, CaseHost, CaseStep, CaseView, Check, GrowKind, GrowStep, HostSize,
    ShowsStep, StdinState, StdinStep,
};
use watchdog_types::{
    Bytes, Directory, Executable, Exit, ExitStatus, HostMemory, Inspection, KernelEvent, Memory, Pid, ProcessId,
    Sample, Stdin, Viewer,
};

/// claude's native program as its installer leaves it.
const CLAUDE: &str = "/home/u/.local/share/claude/versions/2.1.224";
pub(super) const SIGKILL: u8 = 9;

pub(super) struct CaseWorld {
    pub(super) world: World,
    pub(super) host: HostMemory,
    parents: HashMap<ProcessId, ProcessId>,
    zombies: Vec<ProcessId>,
    /// Agents with a client.
    served: HashSet<ProcessId>,
    /// Senders of signals outside every session, by comm.
    pub(super) strangers: HashMap<String, ProcessId>,
}

impl CaseWorld {
    pub(super) fn of(case: &CaseFile) -> Result<Self, String> {
        let config = config::parse(Path::new("config"), &case.config).map_err(|error| error.to_string())?;
        let mut host = Self {
            world: World::with(config),
            host: HostMemory::default(),
            parents: HashMap::new(),
            zombies: Vec::new(),
            served: HashSet::new(),
            strangers: HashMap::new(),
        };
        if case.host.available.is_some() || case.host.total.is_some() {
            host.set_host(case.host);
        }
        Ok(host)
    }

    fn set_host(&mut self, size: HostSize) {
        let set = |field: &mut Bytes, given: Option<watchdog_fixtures::cases::Amount>| {
            given.into_iter().for_each(|amount| *field = amount.0);
        };
        if self.host.total.0 == 0 {
            self.host.total = Bytes::from_mib(64 * 1024);
        }
        set(&mut self.host.total, size.total);
        set(&mut self.host.available, size.available);
        set(&mut self.host.shmem, size.shmem);
        set(&mut self.host.swap_total, size.swap_total);
        set(&mut self.host.swap_free, size.swap_free);
        self.world.host_is(self.host);
    }

    fn add(&mut self, actors: &mut Actors, name: &str, process: ProcessId, by: Option<ProcessId>) {
        actors.add(name, process);
        self.parents.extend(by.map(|by| (process, by)));
    }

    fn agent(&mut self, step: &AgentStep, actors: &mut Actors) -> Result<(), String> {
        let argv = step.argv.clone().unwrap_or_else(|| vec!["claude".into()]);
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let first = *words.first().ok_or("argv is empty")?;
        let path = step.path.as_deref().unwrap_or(if step.argv.is_some() { first } else { CLAUDE });
        let others = self.world.ordinary.clone();
        if step.client {
            let seen = &mut self.world.ordinary;
            (seen.tty, seen.stdin, seen.parent_comm) = (false, Stdin::Peer(Vec::new()), "client".into());
        }
        self.world.script.clone_from(&step.script);
        let process = self.world.agent_with(path, &words);
        if step.client {
            self.world.shows(process, |_| {});
            self.world.ordinary = others;
            self.served.insert(process);
        }
        self.add(actors, &step.name, process, None);
        Ok(())
    }

    /// Time passes, in steps that a daemon with as little to do takes.
    fn wait(&mut self, span: Duration) {
        if span <= 2 * MINUTE {
            self.world.wait(span);
        } else if span <= 20 * MINUTE {
            self.world.pass(span);
        } else {
            self.world.rest(span);
        }
    }

    pub(super) fn end(&mut self, process: ProcessId, status: ExitStatus, peak: Option<Bytes>) {
        self.world.end_after(process, status, peak);
        // Init waits for zombies whose parent has exited.
        let before = self.zombies.len();
        self.zombies.retain(|zombie| self.parents.get(zombie) != Some(&process));
        if self.zombies.len() != before {
            self.world.feed(Input::Zombies(self.zombies.clone()));
        }
    }

    fn shows(seen: &mut Inspection, step: &ShowsStep) {
        let ShowsStep {
            process: _,
            tty,
            cwd_deleted,
            ignores_hup,
            stopped,
            comm,
            executable,
            parent_pid,
            parent_comm,
            leaderless,
            directory,
            oom_score_adj,
        } = step;
        seen.tty = tty.unwrap_or(seen.tty);
        seen.cwd_deleted = cwd_deleted.unwrap_or(seen.cwd_deleted);
        seen.ignores_hup = ignores_hup.unwrap_or(seen.ignores_hup);
        seen.stopped = stopped.unwrap_or(seen.stopped);
        seen.ppid = parent_pid.unwrap_or(seen.ppid);
        comm.iter().for_each(|comm| seen.comm.clone_from(comm));
        parent_comm.iter().for_each(|comm| seen.parent_comm.clone_from(comm));
        if let Some(file) = executable {
            seen.executable = Some(Box::new(Executable { path: file.path.clone(), of_root: file.of_root }));
        }
        seen.oom_score_adj = oom_score_adj.or(seen.oom_score_adj);
        if let Some(path) = directory {
            let inode = path.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            seen.directory = Some(Box::new(Directory { device: 1, inode }));
        }
        if *leaderless {
            seen.leader = None;
            seen.leader_alive = false;
        }
    }

    fn stdin(&mut self, step: &StdinStep, actors: &Actors) -> Result<(), String> {
        let process = actors.one(&step.process)?;
        let mut holders = Vec::new();
        for name in &step.by {
            holders.extend(actors.all(name)?);
        }
        self.world.shows(process, |seen| (seen.stdin, seen.stdin_unread) = (stdin_of(step.is, holders), step.unread.0));
        Ok(())
    }

    fn close_terminal(&mut self, agent: ProcessId) {
        self.world.shows(agent, |seen| {
            (seen.tty, seen.leader_alive, seen.leader) = (false, false, None);
            (seen.ppid, seen.parent_comm) = (1, "systemd".into());
        });
        self.shell_exits();
    }

    fn shell_exits(&mut self) {
        self.world.tracked.remove(&SHELL);
        let exit = Exit { at: self.world.now, process: SHELL, status: None, peak: None };
        self.world.feed(Input::Kernel(KernelEvent::Exit(exit)));
    }

    fn close_client(&mut self, agent: ProcessId) {
        self.world.shows(agent, |seen| {
            (seen.ppid, seen.parent_comm, seen.stdin) = (1, "systemd".into(), Stdin::Closed);
        });
        // A client leads the session of its agent.
        if self.served.contains(&agent) {
            self.world.shows(agent, |seen| (seen.leader_alive, seen.leader) = (false, None));
            self.shell_exits();
        }
        let sample = Sample {
            at: self.world.now,
            process: agent,
            memory: Memory::default(),
            ppid: Some(Pid(1)),
            zombie: false,
            tty: None,
            comm: None,
        };
        self.world.feed(Input::Samples(vec![sample]));
    }

    fn memory(&mut self, process: ProcessId, of: GrowKind, bytes: Bytes) {
        match of {
            GrowKind::Anon => self.world.memory(process, bytes),
            GrowKind::File => self.world.sample(process, Memory { file: bytes, ..Memory::default() }),
            GrowKind::Shmem => self.world.sample(process, Memory { shmem: bytes, ..Memory::default() }),
            GrowKind::Swap => self.world.sample(process, Memory { swap: bytes, ..Memory::default() }),
        }
    }

    fn grow(&mut self, step: &GrowStep, actors: &Actors) -> Result<(), String> {
        let processes = actors.all(&step.process)?;
        let [.., (span, _)] = step.points.as_slice() else { return Err("there are no points".into()) };
        let (began, available) = (self.world.now, self.host.available);
        while self.world.now.since(began) < span.0 {
            let at = self.world.now.since(began);
            let bytes = along(step, at);
            for process in &processes {
                self.memory(*process, step.of, bytes);
            }
            if step.from_host {
                let taken = bytes.0 * processes.len() as u64;
                self.host.available = Bytes(available.0.saturating_sub(taken));
                self.world.host_is(self.host);
            }
            if step.until_leak && !self.world.open(FindingKind::Leak).is_empty() {
                return Ok(());
            }
            self.world.pass(SECOND);
        }
        Ok(())
    }

    fn exemption(&self, process: ProcessId) -> Option<String> {
        let what = RequestedAction::Reap(vec![Subject::Pid(process.pid.0)]);
        match self.world.engine.plan(&ActionRequest { uid: USER, what, expect: None }) {
            Err(refused) => Some(refused.to_string()),
            Ok(plans) => {
                let spared = plans.iter().flat_map(|plan| &plan.selection.spared);
                spared.clone().find(|(spared, _)| *spared == process).map(|(_, because)| because.to_string())
            }
        }
    }
}

fn stdin_of(state: StdinState, holders: Vec<ProcessId>) -> Stdin {
    match state {
        StdinState::Closed => Stdin::Closed,
        StdinState::Terminal => Stdin::Terminal,
        StdinState::Other => Stdin::Other,
        StdinState::Held => Stdin::Peer(holders),
    }
}

/// The memory at this time since the growth began.
fn along(step: &GrowStep, at: Duration) -> Bytes {
    let at = at.as_secs_f64();
    let points: Vec<(f64, f64)> =
        step.points.iter().map(|(span, amount)| (span.0.as_secs_f64(), amount.0.0 as f64)).collect();
    let after = points.iter().position(|(x, _)| *x > at).unwrap_or(points.len() - 1);
    let ((x1, y1), (x0, y0)) = (points[after], points[after.saturating_sub(1)]);
    let line = if x1 > x0 { y0 + (y1 - y0) * (at - x0) / (x1 - x0) } else { y1 };
    let saw = step.saw.as_ref().map_or(0.0, |(period, amount)| {
        let period = period.0.as_secs_f64();
        amount.0.0 as f64 * (at % period) / period
    });
    Bytes((line + saw) as u64)
}

impl CaseHost for CaseWorld {
    fn act(&mut self, step: &CaseStep, actors: &mut Actors) -> Result<(), String> {
        match step {
            CaseStep::Agent(step) => return self.agent(step, actors),
            CaseStep::Found(step) => {
                let process = self.world.unseen(SHELL, &step.path);
                if let Some(stdin) = step.stdin {
                    self.world.shows(process, |seen| seen.stdin = stdin_of(stdin, Vec::new()));
                }
                self.wait(step.age.0);
                self.world.feed(self.world.scan(false));
                self.add(actors, &step.name, process, None);
            }
            CaseStep::Fork(step) => {
                let by = actors.one(&step.by)?;
                let process = self.world.fork(by);
                self.add(actors, &step.name, process, Some(by));
            }
            CaseStep::Exec(step) => {
                let words: Vec<&str> = step.argv.iter().map(String::as_str).collect();
                let path = step.path.as_deref().or(words.first().copied()).ok_or("argv is empty")?;
                self.world.exec(actors.one(&step.process)?, path, &words);
            }
            CaseStep::Spawn(step) => {
                let by = actors.one(&step.by)?;
                let words: Vec<&str> = step.argv.iter().map(String::as_str).collect();
                let path = step.path.as_deref().or(words.first().copied()).ok_or("argv is empty")?;
                let process = self.world.fork(by);
                self.world.script.clone_from(&step.script);
                self.world.exec(process, path, &words);
                step.memory.into_iter().for_each(|memory| self.world.memory(process, memory.0));
                self.add(actors, &step.name, process, Some(by));
            }
            CaseStep::Npx(step) => {
                let by = actors.one(&step.by)?;
                let npm = self.world.spawn(by, &["/usr/bin/node", "/usr/bin/npx", "-y", &step.package]);
                let sh = self.world.fork(npm);
                self.world.exec(sh, "/usr/bin/dash", &["sh", "-c", &step.server]);
                let script = format!("/home/u/.npm/_npx/1/node_modules/.bin/{}", step.server);
                let server = self.world.spawn(sh, &["/usr/bin/node", &script]);
                for (process, by) in [(npm, by), (sh, npm), (server, sh)] {
                    self.add(actors, &step.name, process, Some(by));
                }
            }
            CaseStep::Exit(step) => {
                for process in actors.all(&step.process)? {
                    let status = step.signal.map_or(ExitStatus::Code(step.code), ExitStatus::Signal);
                    self.end(process, status, step.peak.map(|peak| peak.0));
                    if step.zombie {
                        self.zombies.push(process);
                    }
                }
                if step.zombie {
                    self.world.feed(Input::Zombies(self.zombies.clone()));
                }
            }
            CaseStep::Kill(name) => {
                actors.all(name)?.into_iter().for_each(|process| self.end(process, ExitStatus::Signal(SIGKILL), None));
            }
            CaseStep::Wait(span) => self.wait(span.0),
            CaseStep::Scan(tracked) => {
                let scan = self.world.scan(*tracked);
                self.world.feed(scan);
            }
            CaseStep::Setsid(name) => {
                for process in actors.all(name)? {
                    self.world.shows(process, |seen| (seen.sid, seen.tty) = (process.pid.0, false));
                }
            }
            CaseStep::Listen(step) => {
                for process in actors.all(&step.process)? {
                    self.world.shows(process, |seen| seen.listens.push(step.address.clone()));
                }
            }
            CaseStep::Stdin(step) => return self.stdin(step, actors),
            CaseStep::CloseTerminal(name) => {
                let agent = actors.one(name)?;
                self.close_terminal(agent);
            }
            CaseStep::CloseClient(name) => {
                let agent = actors.one(name)?;
                self.close_client(agent);
            }
            CaseStep::Shows(step) => {
                for process in actors.all(&step.process)? {
                    let mut seen = Inspection::default();
                    self.world.shows(process, |now| seen = now.clone());
                    Self::shows(&mut seen, step);
                    self.world.shows(process, |now| *now = seen);
                }
            }
            CaseStep::ShowsOthers(step) => {
                let mut seen = self.world.ordinary.clone();
                Self::shows(&mut seen, step);
                self.world.ordinary = seen;
            }
            CaseStep::Memory(step) => {
                let memory = Memory {
                    anon: step.anon.0,
                    file: step.file.0,
                    shmem: step.shmem.0,
                    swap: step.swap.0,
                    ..Memory::default()
                };
                for process in actors.all(&step.process)? {
                    self.world.sample(process, memory);
                }
            }
            CaseStep::Grow(step) => return self.grow(step, actors),
            CaseStep::Does(step) => {
                for process in actors.all(&step.process)? {
                    self.world.does(process, step.cpu.0, step.runs, step.bytes.0.0);
                }
            }
            CaseStep::Adopt(name) => {
                let process = actors.one(name)?;
                self.world.feed(Input::Adopt(process));
            }
            CaseStep::Host(size) => self.set_host(*size),
            CaseStep::Tmpfs(step) => return self.tmpfs(step, actors),
            CaseStep::Limits(step) => return self.limits(step, actors),
            CaseStep::Tasks(step) => return self.tasks(step, actors),
            CaseStep::Surroundings(step) => return self.surroundings(step, actors),
            CaseStep::Signal(step) => return self.signal(step, actors),
            CaseStep::Killer(step) => return self.killer(step, actors),
            CaseStep::Oom(step) => return self.oom(step, actors),
            CaseStep::Containers(step) => return self.containers(step, actors),
            CaseStep::Repeat(_)
            | CaseStep::ExpectFinding(_)
            | CaseStep::ExpectNoFinding(_)
            | CaseStep::ExpectState(_)
            | CaseStep::ExpectExplanation(_)
            | CaseStep::ExpectDeath(_)
            | CaseStep::ExpectSession(_)
            | CaseStep::ExpectExemption(_)
            | CaseStep::ExpectUser(_)
            | CaseStep::ExpectSessions(_) => return Err("the runner carries this out".into()),
        }
        Ok(())
    }

    fn meets(&mut self, check: Check<'_>) -> Result<(), CaseError> {
        let engine = &self.world.engine;
        let explain = |process: ProcessId| {
            engine.explain(Viewer::Root, &naming(), self.world.now, ExplainTarget::Pid(process.pid))
        };
        check(&CaseView {
            tree: self.world.tree(),
            users: engine.user_agents(Viewer::Root, self.world.now, |uid| uid.0.to_string()),
            findings: engine.findings(Viewer::Root, &naming(), true).findings,
            explain: &explain,
            exemption: &|process| self.exemption(process),
        })
    }
}
