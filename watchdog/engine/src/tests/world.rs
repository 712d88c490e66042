//! A host in a test: it forks, executes and exits, answers the engine's requests, and keeps the time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::Engine;
use crate::actions::{Operation, OperationOutcome};
use crate::effect::{ActionCommand, BpfCommand, Effect, JournalEvent, ScanRequest};
use crate::input::Input;
use watchdog_api::FindingKind;
use watchdog_config::{ActionsConfig, Config, Response, Responses};
use watchdog_types::{
    BootTime, Bytes, Exec, Exit, ExitStatus, Fork, HostMemory, Image, Inspection, KernelEvent, Lineage, Memory,
    PageOut, PageOutOutcome, Pid, ProcessId, Sample, Surroundings, TaskReading, Ticks, Tmpfs, Uid,
};

pub(super) const SHELL: ProcessId = ProcessId { pid: Pid(100), start_time: Ticks(1_000) };
pub(super) const USER: Uid = Uid(1_000);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) now: BootTime,
    /// The kernel's map.
    pub(super) tracked: HashMap<ProcessId, Lineage>,
    /// What an inspection of a process will show, where it differs from the ordinary.
    pub(super) facts: HashMap<ProcessId, Inspection>,
    pub(super) journal: Vec<JournalEvent>,
    pub(super) effects: Vec<Effect>,
    pub(super) inputs: Vec<(BootTime, Input)>,
    pub(super) living: BTreeMap<ProcessId, (Pid, Image)>,
    /// The owner of new processes.
    pub(super) user: Uid,
    /// Processes of other users; their children inherit the user.
    pub(super) others: HashMap<ProcessId, Uid>,
    next_pid: u32,
    /// The inspection of all other processes, except for the parent.
    pub(super) ordinary: Inspection,
    /// What processes do in a minute, since when: CPU time, how often they run, and bytes. All others sleep.
    pub(super) habits: HashMap<ProcessId, (BootTime, Duration, u64, u64)>,
    /// Files in memory.
    pub(super) tmpfs: Tmpfs,
    /// The absolute path of the script that is executed next.
    pub(super) script: Option<String>,
    pub(super) tasks: TaskReading,
    pub(super) surroundings: BTreeMap<ProcessId, Surroundings>,
    /// Inspections are not answered.
    pub(super) slow_proc: bool,
    /// Operations by process, in order.
    pub(super) operations: Vec<(BootTime, Operation, ProcessId)>,
    /// Signals kill processes here. Otherwise the policy is the most aggressive one and signals have no effect, so that every
    /// test of the engine also tests that no exempt process is signalled.
    pub(super) mortal: bool,
    pub(super) last_host: HostMemory,
    /// Orders to page out, in order of time, and what went.
    pub(super) page_outs: Vec<(BootTime, PageOut, Bytes)>,
    /// The outcome of a page-out, if it is not complete.
    pub(super) page_out_outcomes: HashMap<ProcessId, PageOutOutcome>,
    /// Processes excluded from page-out by an answer since their last exec.
    pub(super) never_paged_out: HashSet<ProcessId>,
    /// Their memory is not moved to swap, as with memory.swap.max = 0.
    pub(super) not_swapped: HashSet<ProcessId>,
    /// Orders to page out are not answered.
    pub(super) slow_swap: bool,
    /// The last reported memory of each process, which the host has back when the process exits.
    holds: HashMap<ProcessId, Bytes>,
    /// Results of batches that are held back, if the signaller is slow.
    pub(super) slow_signaller: Option<Vec<Input>>,
    /// The outcome of every operation, if it fails.
    pub(super) refusal: Option<OperationOutcome>,
    /// Processes that ignore SIGTERM.
    pub(super) stubborn: HashSet<ProcessId>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with_claude() -> (Self, ProcessId) {
        let mut world = Self::new();
        let agent = world.claude();
        (world, agent)
    }

    pub(super) fn with(config: Config) -> Self {
        let mut world = Self::mortal(Config { actions: aggressive(), ..config });
        world.mortal = false;
        world
    }

    /// A host whose processes exit on a signal, under exactly this configuration.
    pub(super) fn mortal(config: Config) -> Self {
        Self {
            engine: Engine::new(Arc::new(config)),
            now: BootTime(100_000_000_000),
            tracked: HashMap::new(),
            facts: HashMap::new(),
            journal: Vec::new(),
            effects: Vec::new(),
            inputs: Vec::new(),
            living: BTreeMap::new(),
            user: USER,
            others: HashMap::new(),
            next_pid: 1_000,
            ordinary: Inspection {
                sid: SHELL.pid.0,
                leader_alive: true,
                leader: Some(SHELL),
                tty: true,
                comm: "comm".into(),
                ..Inspection::default()
            },
            habits: HashMap::new(),
            tmpfs: Tmpfs::default(),
            script: None,
            tasks: TaskReading::default(),
            surroundings: BTreeMap::new(),
            slow_proc: false,
            operations: Vec::new(),
            slow_signaller: None,
            refusal: None,
            stubborn: HashSet::new(),
            mortal: true,
            last_host: HostMemory::default(),
            page_outs: Vec::new(),
            page_out_outcomes: HashMap::new(),
            never_paged_out: HashSet::new(),
            not_swapped: HashSet::new(),
            slow_swap: false,
            holds: HashMap::new(),
        }
    }

    /// A process with no tracked ancestor executes an agent's program.
    pub(super) fn agent(&mut self, path: &str) -> ProcessId {
        self.agent_with(path, &[path])
    }

    pub(super) fn agent_with(&mut self, path: &str, argv: &[&str]) -> ProcessId {
        let process = self.fresh();
        self.living.insert(process, (SHELL.pid, Image::default()));
        let lineage = root_lineage(process);
        self.tracked.insert(process, lineage);
        self.exec_with(process, lineage, SHELL.pid, path, argv);
        process
    }

    pub(super) fn claude(&mut self) -> ProcessId {
        self.agent("/home/u/.local/bin/claude")
    }

    pub(super) fn fork(&mut self, parent: ProcessId) -> ProcessId {
        let process = self.fresh();
        let image = self.living.get(&parent).map(|(_, image)| image.clone()).unwrap_or_default();
        self.living.insert(process, (parent.pid, image));
        self.belongs_to(process, self.user_of(parent));
        if let Some(above) = self.tracked.get(&parent).copied() {
            let lineage = Lineage { parent: Some(parent), depth: above.depth + 1, forked: true, ..above };
            self.tracked.insert(process, lineage);
            let uid = self.user_of(process);
            let fork = Fork { at: self.now, process, lineage, uid, comm: "parent".into() };
            self.feed(Input::Kernel(KernelEvent::Fork(fork)));
        }
        process
    }

    pub(super) fn exec(&mut self, process: ProcessId, path: &str, argv: &[&str]) {
        let ppid = self.living.get(&process).map_or(Pid(1), |(ppid, _)| *ppid);
        if let Some(entry) = self.tracked.get_mut(&process) {
            entry.forked = false;
            let lineage = *entry;
            self.exec_with(process, lineage, ppid, path, argv);
        }
    }

    fn exec_with(&mut self, process: ProcessId, lineage: Lineage, ppid: Pid, path: &str, argv: &[&str]) {
        let image = Image { script: self.script.take(), ..image(path, argv) };
        if let Some((_, known)) = self.living.get_mut(&process) {
            *known = image.clone();
        }
        self.never_paged_out.remove(&process);
        let comm = path.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
        let uid = self.user_of(process);
        let exec = Exec { at: self.now, process, lineage, uid, ppid, comm, image };
        self.feed(Input::Kernel(KernelEvent::Exec(exec)));
    }

    /// Forks and executes.
    pub(super) fn spawn(&mut self, parent: ProcessId, argv: &[&str]) -> ProcessId {
        let process = self.fork(parent);
        self.exec(process, argv[0], argv);
        process
    }

    /// The process belongs to this user from its next event on.
    pub(super) fn belongs_to(&mut self, process: ProcessId, uid: Uid) {
        self.others.insert(process, uid);
    }

    pub(super) fn user_of(&self, process: ProcessId) -> Uid {
        self.others.get(&process).copied().unwrap_or(self.user)
    }

    pub(super) fn kill(&mut self, process: ProcessId) {
        self.end(process, ExitStatus::Signal(9));
    }

    pub(super) fn end(&mut self, process: ProcessId, status: ExitStatus) {
        self.end_after(process, status, None);
    }

    /// Ends a process whose highest resident set the kernel knows.
    pub(super) fn end_after(&mut self, process: ProcessId, status: ExitStatus, peak: Option<Bytes>) {
        self.living.remove(&process);
        if let Some(held) = self.holds.remove(&process) {
            self.last_host.available += held;
            self.last_host.anon = Bytes(self.last_host.anon.0.saturating_sub(held.0));
        }
        for (ppid, _) in self.living.values_mut() {
            if *ppid == process.pid {
                *ppid = Pid(1);
            }
        }
        if self.tracked.remove(&process).is_some() {
            let exit = Exit { at: self.now, process, status: Some(status), peak };
            self.feed(Input::Kernel(KernelEvent::Exit(exit)));
        }
    }

    pub(super) fn memory(&mut self, process: ProcessId, anon: Bytes) {
        self.holds.insert(process, anon);
        self.sample(process, Memory { anon, ..Memory::default() });
    }

    pub(super) fn sample(&mut self, process: ProcessId, memory: Memory) {
        let sample = Sample { at: self.now, process, memory, ppid: None, zombie: false, tty: None, comm: None };
        self.feed(Input::Samples(vec![sample]));
    }

    /// Time passes, in steps of the daemon's tick.
    pub(super) fn wait(&mut self, span: Duration) {
        self.ticks(span, Duration::from_millis(250));
    }

    /// Time passes, in steps of an idle daemon's tick.
    pub(super) fn pass(&mut self, span: Duration) {
        self.ticks(span, SECOND);
    }

    /// A long time passes in which nothing happens: the ticks are further apart than the daemon's.
    pub(super) fn rest(&mut self, span: Duration) {
        self.ticks(span, 5 * SECOND);
    }

    fn ticks(&mut self, span: Duration, step: Duration) {
        let end = self.now.plus(span);
        while self.now < end {
            self.now = self.now.plus(step).min(end);
            self.feed(Input::Tick);
        }
    }

    pub(super) fn feed(&mut self, input: Input) {
        let mut open = vec![input];
        while let Some(input) = open.pop() {
            let mut effects = Vec::new();
            self.inputs.push((self.now, input.clone()));
            self.engine.step(self.now, input, &mut effects);
            for effect in effects {
                match &effect {
                    Effect::Inspect(process) if !self.slow_proc => {
                        let seen = self.living.contains_key(process).then(|| self.inspection(*process));
                        open.push(Input::Inspected(*process, seen));
                    }
                    Effect::Scan(ScanRequest::Activity(processes)) => {
                        let there = processes.iter().filter(|process| self.living.contains_key(*process));
                        open.push(Input::Activity(there.map(|process| self.activity(*process)).collect()));
                    }
                    Effect::Scan(ScanRequest::Surroundings(agents)) => {
                        let seen = agents.iter().filter_map(|agent| self.surroundings.get(agent)).cloned();
                        open.push(Input::Surroundings(seen.collect()));
                    }
                    Effect::Scan(ScanRequest::Tasks { .. }) => open.push(Input::Tasks(self.tasks.clone())),
                    Effect::Scan(ScanRequest::Tmpfs) => open.push(Input::Tmpfs(self.tmpfs.clone())),
                    Effect::Bpf(BpfCommand::Track(process, lineage)) => {
                        self.tracked.insert(*process, *lineage);
                    }
                    Effect::Bpf(BpfCommand::Untrack(process)) => {
                        self.tracked.remove(process);
                    }
                    Effect::Act(ActionCommand::Execute(batch)) => {
                        self.check(batch);
                        let answer = self.execute(batch);
                        match &mut self.slow_signaller {
                            Some(waiting) => waiting.push(answer),
                            None => open.insert(0, answer),
                        }
                    }
                    Effect::Bpf(BpfCommand::ReadHost) if self.mortal => {
                        open.push(Input::Host(self.last_host));
                    }
                    Effect::PageOut(order) => {
                        let answer = self.page_out(order);
                        open.extend((!self.slow_swap).then_some(answer));
                    }
                    Effect::Journal(entry) => self.journal.push(entry.what.clone()),
                    _ => {}
                }
                self.effects.push(effect);
            }
        }
    }

    /// The host has this much memory left, and as much shared memory.
    pub(super) fn host(&mut self, available: Bytes, shmem: Bytes) {
        let total = Bytes::from_mib(64 * 1024);
        self.host_is(HostMemory { total, available, shmem, ..HostMemory::default() });
    }

    pub(super) fn host_is(&mut self, host: HostMemory) {
        self.last_host = host;
        self.feed(Input::Host(host));
    }

    /// anon + shmem + swap as last sampled.
    pub(super) fn charged(&self, process: ProcessId) -> Bytes {
        self.engine.table.get(process).map(|known| known.memory.charged()).unwrap_or_default()
    }

    /// An untracked process that will be an agent: a launcher at a terminal.
    pub(super) fn launcher(&mut self) -> ProcessId {
        let process = self.fresh();
        self.living.insert(process, (SHELL.pid, image("/usr/bin/watchdogctl", &["watchdogctl", "launch"])));
        process
    }

    pub(super) fn living(&self) -> impl Iterator<Item = ProcessId> {
        self.living.keys().copied()
    }

    pub(super) fn fresh(&mut self) -> ProcessId {
        self.next_pid += 1;
        self.now = self.now.plus(Duration::from_millis(10));
        ProcessId { pid: Pid(self.next_pid), start_time: Ticks(self.now.0 / 10_000_000) }
    }
}

/// Every test ends with memory running out.
impl Drop for World {
    fn drop(&mut self) {
        if !self.mortal && !std::thread::panicking() {
            self.host(Bytes::from_mib(1), Bytes(0));
            self.wait(3 * SECOND);
        }
    }
}

/// The most aggressive policy.
pub(super) fn aggressive() -> ActionsConfig {
    let kinds = [FindingKind::Orphan, FindingKind::Stale, FindingKind::Leak, FindingKind::Overlimit];
    ActionsConfig {
        enforce: true,
        responses: Responses(kinds.map(|kind| (kind, Response::Terminate)).into()),
        grace: Duration::ZERO,
        kill_after: SECOND,
        max_kills_per_minute: 100_000,
        emergency_term: 90,
        emergency_kill: 80,
        settle: SECOND,
        ..ActionsConfig::default()
    }
}

pub(super) fn image(path: &str, argv: &[&str]) -> Image {
    Image::new(path, argv.iter().copied())
}

fn root_lineage(process: ProcessId) -> Lineage {
    Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false }
}
