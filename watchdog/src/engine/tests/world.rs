//! A host in a test: it forks, executes and exits, answers the engine's questions, and keeps the time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::{self, FindingKind};
use crate::config::{Actions, Config, Reaction, Reactions};
use crate::engine::Engine;
use crate::engine::act::{Answer, Blow, Decided, Struck, Wave};
use crate::engine::effect::{Effect, Happening};
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, Ticks, Uid};
use crate::engine::input::{
    Activity, Exec, Exit, ExitStatus, Fork, HostMemory, Image, Input, Inspection, KernelEvent, Lineage, Memory, Sample,
    Scan, ScannedProcess, Tmpfs,
};
use crate::engine::process::Verdict;
use crate::engine::standing::Standing;
use crate::engine::view::{Naming, Viewer};

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
    pub(super) journal: Vec<Happening>,
    pub(super) effects: Vec<Effect>,
    /// Everything that the engine was told.
    pub(super) told: Vec<(BootTime, Input)>,
    living: BTreeMap<ProcessId, (Pid, Image)>,
    /// Whose processes are,
    pub(super) user: Uid,
    /// and whose those are that are another's; what they fork is so too.
    others: HashMap<ProcessId, Uid>,
    next_pid: u32,
    /// What an inspection shows of everybody else, but for the parent.
    pub(super) ordinary: Inspection,
    /// What processes do in a minute, since when: CPU time, how often they run, and bytes. All others sleep.
    habits: HashMap<ProcessId, (BootTime, Duration, u64, u64)>,
    /// Files in memory.
    pub(super) tmpfs: Tmpfs,
    /// Inspections stay unanswered.
    pub(super) slow_proc: bool,
    /// What was dealt to whom, in order.
    pub(super) blows: Vec<(BootTime, Blow, ProcessId)>,
    /// Signals end processes here. Otherwise policy strikes as hard as it can be told to, nobody minds, and every test of the
    /// engine is one of the rule that nobody is struck who must not be.
    mortal: bool,
    last_host: HostMemory,
    /// What each was last said to hold, which the host has back when it is gone.
    holds: HashMap<ProcessId, Bytes>,
    /// Where the answers of the hand that acts wait, if it is slow.
    pub(super) slow_hand: Option<Vec<Input>>,
    /// Why nothing can be dealt to anybody.
    pub(super) refusal: Option<Answer>,
    /// Who ignores SIGTERM.
    pub(super) stubborn: HashSet<ProcessId>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        let mut world = Self::mortal(Config { actions: aggressive(), ..config });
        world.mortal = false;
        world
    }

    /// A host whose processes end when they are told to, under exactly this configuration.
    pub(super) fn mortal(config: Config) -> Self {
        Self {
            engine: Engine::new(Arc::new(config)),
            now: BootTime(100_000_000_000),
            tracked: HashMap::new(),
            facts: HashMap::new(),
            journal: Vec::new(),
            effects: Vec::new(),
            told: Vec::new(),
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
            slow_proc: false,
            blows: Vec::new(),
            slow_hand: None,
            refusal: None,
            stubborn: HashSet::new(),
            mortal: true,
            last_host: HostMemory::default(),
            holds: HashMap::new(),
        }
    }

    /// A process that nobody above it tracks executes an agent's program.
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
            self.tell(Input::Kernel(KernelEvent::Fork(fork)));
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
        let image = image(path, argv);
        if let Some((_, known)) = self.living.get_mut(&process) {
            *known = image.clone();
        }
        let comm = path.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
        let uid = self.user_of(process);
        let exec = Exec { at: self.now, process, lineage, uid, ppid, comm, image };
        self.tell(Input::Kernel(KernelEvent::Exec(exec)));
    }

    /// Forks and executes.
    pub(super) fn spawn(&mut self, parent: ProcessId, argv: &[&str]) -> ProcessId {
        let process = self.fork(parent);
        self.exec(process, argv[0], argv);
        process
    }

    /// From the next that is heard of it on, a process is this user's.
    pub(super) fn belongs_to(&mut self, process: ProcessId, uid: Uid) {
        self.others.insert(process, uid);
    }

    fn user_of(&self, process: ProcessId) -> Uid {
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
            self.tell(Input::Kernel(KernelEvent::Exit(exit)));
        }
    }

    pub(super) fn memory(&mut self, process: ProcessId, anon: Bytes) {
        self.holds.insert(process, anon);
        self.sample(process, Memory { anon, ..Memory::default() });
    }

    pub(super) fn sample(&mut self, process: ProcessId, memory: Memory) {
        let sample = Sample { at: self.now, process, memory, ppid: None, zombie: false, tty: None, comm: None };
        self.tell(Input::Samples(vec![sample]));
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
            self.tell(Input::Tick);
        }
    }

    /// Changes what /proc shows of a process from now on.
    pub(super) fn shows(&mut self, process: ProcessId, change: impl FnOnce(&mut Inspection)) {
        let mut facts = self.inspection(process);
        change(&mut facts);
        self.facts.insert(process, facts);
    }

    pub(super) fn tell(&mut self, input: Input) {
        let mut open = vec![input];
        while let Some(input) = open.pop() {
            let mut effects = Vec::new();
            self.told.push((self.now, input.clone()));
            self.engine.step(self.now, input, &mut effects);
            for effect in effects {
                match &effect {
                    Effect::Inspect(process) if !self.slow_proc => {
                        let seen = self.living.contains_key(process).then(|| self.inspection(*process));
                        open.push(Input::Inspected(*process, seen));
                    }
                    Effect::LookAtActivity(processes) => {
                        let there = processes.iter().filter(|process| self.living.contains_key(*process));
                        open.push(Input::Activity(there.map(|process| self.activity(*process)).collect()));
                    }
                    Effect::LookAtTmpfs => open.push(Input::Tmpfs(self.tmpfs.clone())),
                    Effect::Track(process, lineage) => {
                        self.tracked.insert(*process, *lineage);
                    }
                    Effect::Untrack(process) => {
                        self.tracked.remove(process);
                    }
                    Effect::Strike(wave) => {
                        self.check(wave);
                        let answer = self.strike(wave);
                        match &mut self.slow_hand {
                            Some(waiting) => waiting.push(answer),
                            None => open.insert(0, answer),
                        }
                    }
                    Effect::LookAtHost if self.mortal => {
                        open.push(Input::Host(self.last_host));
                    }
                    Effect::Journal(entry) => self.journal.push(entry.what.clone()),
                    _ => {}
                }
                self.effects.push(effect);
            }
        }
    }

    /// What the hand that acts does, and what that comes to.
    fn strike(&mut self, wave: &Wave) -> Input {
        let mut answers = Vec::new();
        if let Some(why) = &self.refusal {
            let answers = wave.targets.iter().map(|process| (*process, why.clone())).collect();
            return Input::Struck(Struck { action: wave.action, blow: wave.blow, at: self.now, answers });
        }
        for process in &wave.targets {
            self.blows.push((self.now, wave.blow, *process));
            let there = self.living.contains_key(process);
            answers.push((*process, if there { Answer::Sent } else { Answer::Gone }));
            let dies = match wave.blow {
                Blow::Kill => true,
                Blow::Term => !self.stubborn.contains(process),
                Blow::Freeze | Blow::Thaw | Blow::Throttle | Blow::Loosen => false,
            };
            if self.mortal && there && dies {
                self.kill(*process);
            }
        }
        Input::Struck(Struck { action: wave.action, blow: wave.blow, at: self.now, answers })
    }

    /// The rule, told once more and independently: whoever is struck on his own account is alive, was left behind or is a helper,
    /// and is not meant to stay.
    fn check(&self, wave: &Wave) {
        if !matches!(wave.blow, Blow::Term | Blow::Kill | Blow::Freeze) {
            return;
        }
        let action = self.engine.acts.action(wave.action).expect("an action is known before anything is done");
        for target in &wave.targets {
            let struck = self.engine.table.alive(*target).unwrap_or_else(|| panic!("{target} is not alive"));
            let may_be_kept = matches!(action.grounds, crate::engine::act::Grounds::Kept(_));
            assert!(may_be_kept || !struck.verdict.is_kept(), "{target} is kept: {:?}", struck.verdict);
            assert!(target.pid > Pid(1) && *target != SHELL, "{target}");
            if matches!(action.by, Decided::Person(_)) {
                continue;
            }
            assert!(!matches!(struck.verdict, Verdict::Unknown(_)), "{target} is in doubt: {:?}", struck.verdict);
            let session = self.engine.sessions.get(struck.session).expect("a member's session is known");
            assert!([struck.uid, Uid::ROOT].contains(&session.uid), "{target} is of {:?}", struck.uid);
            let orphan = matches!(self.engine.standing(struck), Standing::Orphan { .. });
            assert!(orphan || !struck.is_agent(), "{target} is an agent, and not left behind");
            let above = self.engine.table.above(*target).take_while(|above| above.alive());
            let agent = above.into_iter().find(|above| above.is_agent()).filter(|_| orphan);
            let doubtful = agent.filter(|agent| matches!(agent.verdict, Verdict::Unknown(_)));
            assert!(doubtful.is_none(), "{target} is run by {:?}, in doubt", doubtful.map(|agent| agent.id));
            for below in self.engine.table.below(*target, |_| true) {
                let Some(below) = self.engine.table.alive(below) else { continue };
                assert!(orphan || !below.is_agent(), "below {target} runs the agent {}", below.id);
                assert!(!matches!(below.verdict, Verdict::Unknown(_)), "below {target} is {}, in doubt", below.id);
            }
        }
    }

    /// Who was told to end, each once, in order.
    pub(super) fn told_to_end(&self) -> Vec<ProcessId> {
        let told = self.blows.iter().filter(|(_, blow, _)| *blow == Blow::Term).map(|(_, _, process)| *process);
        let mut seen = HashSet::new();
        told.filter(|process| seen.insert(*process)).collect()
    }

    /// From now on the process does this much in a minute.
    pub(super) fn does(&mut self, process: ProcessId, cpu: Duration, runs: u64, bytes: u64) {
        self.habits.insert(process, (self.now, cpu, runs, bytes));
    }

    fn activity(&self, process: ProcessId) -> Activity {
        let (since, cpu, runs, bytes) = self.habits.get(&process).copied().unwrap_or_default();
        let minutes = self.now.since(since).as_secs_f64() / 60.0;
        // CPU time is told in ticks.
        let ticks = (cpu.mul_f64(minutes).as_millis() / 10) as u64;
        let runs = 50 + (runs as f64 * minutes) as u64;
        let bytes = Some((bytes as f64 * minutes) as u64);
        Activity { at: self.now, process, cpu: Duration::from_millis(100 + ticks * 10), runs, bytes }
    }

    /// The host has this much memory left, and as much shared memory.
    pub(super) fn host(&mut self, available: Bytes, shmem: Bytes) {
        let total = Bytes::from_mib(64 * 1024);
        self.host_is(HostMemory { total, available, shmem, ..HostMemory::default() });
    }

    pub(super) fn host_is(&mut self, host: HostMemory) {
        self.last_host = host;
        self.tell(Input::Host(host));
    }

    fn inspection(&self, process: ProcessId) -> Inspection {
        if let Some(facts) = self.facts.get(&process) {
            return facts.clone();
        }
        let ppid = self.living.get(&process).map_or(0, |(ppid, _)| ppid.0);
        Inspection { ppid, ..self.ordinary.clone() }
    }

    /// A scan of /proc as it would come out now, without the kernel's map when `tracked` is false.
    pub(super) fn scan(&self, tracked: bool) -> Input {
        let processes = self
            .living
            .iter()
            .map(|(process, (ppid, image))| ScannedProcess {
                process: *process,
                ppid: *ppid,
                uid: self.user_of(*process),
                comm: "comm".into(),
                image: image.clone(),
                titled: false,
                zombie: false,
                lineage: self.tracked.get(process).copied().filter(|_| tracked),
                memory: Memory::default(),
            })
            .collect();
        Input::Scan(Scan { began: self.now, processes })
    }

    /// A process that nobody tracks, and that will be an agent: a launcher at a terminal.
    pub(super) fn launcher(&mut self) -> ProcessId {
        let process = self.fresh();
        self.living.insert(process, (SHELL.pid, image("/usr/bin/watchdogctl", &["watchdogctl", "launch"])));
        process
    }

    /// Puts a process into /proc without anybody being told.
    pub(super) fn unseen(&mut self, parent: ProcessId, path: &str) -> ProcessId {
        let process = self.fresh();
        self.living.insert(process, (parent.pid, image(path, &[path])));
        if let Some(above) = self.tracked.get(&parent).copied() {
            self.tracked.insert(process, Lineage { parent: Some(parent), depth: above.depth + 1, ..above });
        }
        process
    }

    /// Changes what /proc shows of a process, with no event.
    pub(super) fn runs(&mut self, process: ProcessId, argv: &[&str]) {
        if let Some((_, known)) = self.living.get_mut(&process) {
            *known = image(argv[0], argv);
        }
    }

    /// Takes a process out of /proc without anybody being told.
    pub(super) fn vanish(&mut self, process: ProcessId) {
        self.living.remove(&process);
        self.tracked.remove(&process);
    }

    pub(super) fn living(&self) -> impl Iterator<Item = ProcessId> {
        self.living.keys().copied()
    }

    pub(super) fn tree(&self) -> api::Tree {
        self.engine.tree(Viewer::Root, &naming())
    }

    /// The session whose agent this is.
    pub(super) fn session(&self, root: ProcessId) -> api::Session {
        let tree = self.tree();
        let is = |session: &&api::Session| session.processes.iter().any(|p| p.pid == root.pid.0 && p.depth == 0);
        tree.sessions.iter().find(is).cloned().unwrap_or_else(|| panic!("no session of {root} in {tree:#?}"))
    }

    pub(super) fn row(&self, process: ProcessId) -> api::Process {
        let tree = self.tree();
        let mut rows = tree.sessions.iter().flat_map(|session| &session.processes);
        let row = rows.find(|row| row.pid == process.pid.0).cloned();
        row.unwrap_or_else(|| panic!("no process {process} in {tree:#?}"))
    }

    pub(super) fn open(&self, kind: FindingKind) -> Vec<api::Finding> {
        let findings = self.engine.findings(Viewer::Root, &naming(), false).findings;
        findings.into_iter().filter(|finding| finding.kind == kind).collect()
    }

    pub(super) fn all(&self, kind: FindingKind) -> Vec<api::Finding> {
        let findings = self.engine.findings(Viewer::Root, &naming(), true).findings;
        findings.into_iter().filter(|finding| finding.kind == kind).collect()
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

/// As hard as policy can be told to act.
pub(super) fn aggressive() -> Actions {
    let kinds = [FindingKind::Orphan, FindingKind::Stale, FindingKind::Leak, FindingKind::Overlimit];
    Actions {
        enforce: true,
        about: Reactions(kinds.map(|kind| (kind, Reaction::Terminate)).into()),
        grace: Duration::ZERO,
        kill_after: SECOND,
        max_kills_per_minute: 100_000,
        emergency_term: 90,
        emergency_kill: 80,
        settle: SECOND,
        ..Actions::default()
    }
}

pub(super) fn image(path: &str, argv: &[&str]) -> Image {
    Image { path: path.into(), argv: argv.iter().map(|arg| (*arg).to_owned()).collect(), truncated: false }
}

/// A number of the finding's evidence.
pub(super) fn number(finding: &api::Finding, name: &str) -> f64 {
    finding.evidence[name].as_f64().unwrap_or_else(|| panic!("{name} in {finding:#?}"))
}

/// The pids that an orphan finding lists.
pub(super) fn listed(finding: &api::Finding) -> Vec<u32> {
    let processes = finding.evidence.get("processes").and_then(|processes| processes.as_array());
    let mut pids: Vec<u32> =
        processes.into_iter().flatten().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok()).collect();
    pids.sort_unstable();
    pids
}

fn root_lineage(process: ProcessId) -> Lineage {
    Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false }
}

pub(super) fn naming() -> Naming<'static> {
    Naming { boot: Duration::from_secs(1_700_000_000), user: &|uid| uid.0.to_string() }
}
