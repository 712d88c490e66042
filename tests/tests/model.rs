//! Random sequences of events against a model: after each step the daemon shows the state of the model, also after it was
//! stopped, killed, reloaded or upgraded.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `WATCHDOG_MODEL_SEQUENCES` | number of sequences, 10 by default |
//! | `WATCHDOG_MODEL_SEED` | seed of the first sequence, 1 by default; each further one adds 1 |
#![expect(clippy::unwrap_used, reason = "a test reports by a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog_api::{FindingKind, ProcessState, SessionState};
use watchdog_tests::{Daemon, ProcessKey, Snapshot, Stage, is_alive, limit, poll, seconds};

/// Steps of one sequence.
const STEPS: usize = 14;
/// `[gate] max_sessions`.
const MAX_SESSIONS: usize = 4;
/// `[tracking] max_processes`: another value is another layout of the kernel maps.
const LAYOUTS: [u32; 2] = [16_384, 16_640];

/// Index of a process in the model.
type Node = usize;

/// A process that was forked below an agent, or an agent.
struct ModelProcess {
    name: String,
    process: ProcessKey,
    session: usize,
    parent: Option<Node>,
    alive: bool,
    adopted: bool,
}

/// A session, by the agent that began it.
struct ModelSession {
    agent: Node,
    gated: bool,
    /// The daemon's id, once it was shown.
    id: Option<u64>,
}

/// A launch in the queue.
struct ModelWaiter {
    name: String,
    process: ProcessKey,
}

#[derive(Default)]
struct ModelState {
    members: Vec<ModelProcess>,
    groups: Vec<ModelSession>,
    queue: Vec<ModelWaiter>,
    /// Every session id that was shown, by the session's index.
    session_ids: BTreeMap<u64, usize>,
    /// Every finding id that was shown, with its kind and session. The process that an orphan finding names is its first that
    /// lives, which changes.
    finding_ids: BTreeMap<u64, (FindingKind, Option<u64>)>,
}

impl ModelState {
    fn living(&self) -> Vec<Node> {
        (0..self.members.len()).filter(|node| self.members[*node].alive).collect()
    }

    /// Sessions whose agent lives: those that were not launched count against the limit, too.
    fn running(&self) -> usize {
        self.groups.iter().filter(|group| self.members[group.agent].alive).count()
    }

    fn add(&mut self, name: String, process: ProcessKey, session: usize, parent: Option<Node>) -> Node {
        self.members.push(ModelProcess { name, process, session, parent, alive: true, adopted: false });
        self.members.len() - 1
    }

    fn begin(&mut self, name: String, process: ProcessKey, gated: bool) {
        let agent = self.add(name, process, self.groups.len(), None);
        self.groups.push(ModelSession { agent, gated, id: None });
    }

    /// A process dies; an adoption passes to the nearest living descendants.
    fn die(&mut self, node: Node) {
        self.members[node].alive = false;
        if self.members[node].adopted {
            for heir in self.living() {
                let mut above = self.members[heir].parent;
                while let Some(parent) = above.filter(|parent| *parent != node && !self.members[*parent].alive) {
                    above = self.members[parent].parent;
                }
                if above == Some(node) {
                    self.members[heir].adopted = true;
                }
            }
        }
    }

    /// Launches start while there is room.
    fn admit(&mut self) {
        while self.running() < MAX_SESSIONS && !self.queue.is_empty() {
            let ModelWaiter { name, process } = self.queue.remove(0);
            self.begin(name, process, true);
        }
    }

    /// Whether an adoption covers the process without being its own.
    fn covered(&self, node: Node) -> bool {
        let mut above = self.members[node].parent;
        while let Some(parent) = above {
            let dead_agent = self.groups[self.members[parent].session].agent == parent && !self.members[parent].alive;
            if self.members[parent].adopted && self.members[parent].alive {
                return true;
            }
            if dead_agent {
                return false;
            }
            above = self.members[parent].parent;
        }
        false
    }

    fn is_orphan(&self, node: Node) -> bool {
        let member = &self.members[node];
        let agent = self.groups[member.session].agent;
        member.alive && node != agent && !self.members[agent].alive && !member.adopted && !self.covered(node)
    }

    /// What the daemon shows that the model does not hold, or the reverse; ids that were shown are noted.
    fn differences(&mut self, snapshot: &Snapshot, daemon: &Daemon) -> String {
        let mut text = String::new();
        self.compare_processes(snapshot, &mut text);
        self.compare_findings(snapshot, &mut text);
        let queue = daemon.queue();
        let waiting: Vec<u32> = queue.waiting.iter().map(|waiter| waiter.pid).collect();
        let expected: Vec<u32> = self.queue.iter().map(|waiter| waiter.process.pid).collect();
        if waiting != expected {
            let _ = writeln!(text, "queue {waiting:?}, expected {expected:?}");
        }
        let leases: BTreeSet<u32> = queue.leases.iter().map(|lease| lease.pid).collect();
        let gated = self.groups.iter().filter(|group| group.gated).map(|group| &self.members[group.agent]);
        let expected: BTreeSet<u32> = gated.filter(|agent| agent.alive).map(|agent| agent.process.pid).collect();
        if leases != expected {
            let _ = writeln!(text, "leases {leases:?}, expected {expected:?}");
        }
        text
    }

    fn compare_processes(&mut self, snapshot: &Snapshot, text: &mut String) {
        let mut shown = BTreeMap::new();
        for session in &snapshot.tree.sessions {
            for process in session.processes.iter().filter(|process| process.state != ProcessState::Zombie) {
                let identity = ProcessKey { pid: process.pid, start_time: process.start_time };
                shown.insert(identity, (session, process.state));
            }
        }
        for node in self.living() {
            let member = &self.members[node];
            let Some((session, state)) = shown.remove(&member.process) else {
                let _ = writeln!(text, "{} ({}) is missing", member.name, member.process);
                continue;
            };
            let group = &mut self.groups[member.session];
            let first = *group.id.get_or_insert(session.id);
            let owner = *self.session_ids.entry(session.id).or_insert(member.session);
            if (first, owner) != (session.id, member.session) {
                let _ = writeln!(text, "{} is in session {}, which was {first} before", member.name, session.id);
            }
            let group = &self.groups[member.session];
            if group.gated != session.gated {
                let _ = writeln!(text, "session {} gated {}, expected {}", session.id, session.gated, group.gated);
            }
            if (session.state == SessionState::Running) != self.members[group.agent].alive {
                let _ = writeln!(text, "session {} is {:?}", session.id, session.state);
            }
            let wrong = match state {
                ProcessState::Orphaned => !self.is_orphan(node),
                ProcessState::Kept => !member.adopted,
                _ => self.is_orphan(node) || member.adopted,
            };
            if wrong {
                let _ = writeln!(text, "{} is {state:?}, adopted {}", member.name, member.adopted);
            }
        }
        for (process, (session, state)) in shown {
            let _ = writeln!(text, "{process} of session {} is shown as {state:?}, and is not expected", session.id);
        }
    }

    fn compare_findings(&mut self, snapshot: &Snapshot, text: &mut String) {
        for finding in &snapshot.findings {
            let what = (finding.kind, finding.session);
            let first = *self.finding_ids.entry(finding.id).or_insert(what);
            if first != what {
                let _ = writeln!(text, "finding {} is {what:?}, and was {first:?}", finding.id);
            }
        }
        let groups = 0..self.groups.len();
        let orphaned = groups.filter(|group| {
            (0..self.members.len()).any(|node| self.members[node].session == *group && self.is_orphan(node))
        });
        let (open, expected) = (snapshot.open(FindingKind::Orphan).len(), orphaned.count());
        if open != expected {
            let _ = writeln!(text, "{open} open orphan findings, expected {expected}");
        }
    }
}

/// One sequence.
struct ModelRun {
    random: fastrand::Rng,
    /// Before the stage, whose directory holds its files: fields are dropped in order.
    daemon: Option<Daemon>,
    stage: Stage,
    model: ModelState,
    /// Commands that were given to each process.
    commands: BTreeMap<String, usize>,
    names: usize,
    layout: usize,
    /// What was done, for the message of a failure.
    log: String,
}

impl ModelRun {
    fn new(seed: u64) -> Self {
        let stage = Stage::new();
        let config = format!(
            "[tracking]\nmax_processes = {}\n[gate]\nmax_sessions = {MAX_SESSIONS}\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n",
            LAYOUTS[0]
        );
        let daemon = Daemon::configured(&stage, &config);
        Self {
            random: fastrand::Rng::with_seed(seed),
            daemon: Some(daemon),
            stage,
            model: ModelState::default(),
            commands: BTreeMap::new(),
            names: 0,
            layout: 0,
            log: format!("seed {seed}\n"),
        }
    }

    fn note(&mut self, what: &str) {
        let _ = writeln!(self.log, "{what}");
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("p{}", self.names)
    }

    fn pick(&mut self, from: &[Node]) -> Option<Node> {
        self.random.choice(from).copied()
    }

    /// Has a process carry out words of the fixtures' language.
    fn command(&mut self, node: Node, words: &str) {
        let name = self.model.members[node].name.clone();
        let number = self.commands.entry(name.clone()).or_default();
        *number += 1;
        let path = self.stage.directory().join(format!("{name}.{number}"));
        let new = path.with_extension("new");
        std::fs::write(&new, words).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// An agent that nothing launched.
    fn start(&mut self) {
        let name = self.name();
        self.note(&format!("start {name}"));
        let agent = self.stage.agent(&format!("report {name} obey {name}"));
        assert_eq!(self.stage.reported(&name), agent);
        self.model.begin(name, agent, false);
    }

    fn launch(&mut self) {
        let name = self.name();
        self.note(&format!("launch {name}"));
        let daemon = self.daemon.as_ref().unwrap();
        let words = daemon.launch(&self.stage, &[], &format!("report {name} obey {name}"));
        let process = self.stage.execute(words);
        self.model.queue.push(ModelWaiter { name, process });
        self.model.admit();
    }

    fn spawn(&mut self) {
        let living = self.model.living();
        let Some(parent) = self.pick(&living) else { return self.start() };
        let name = self.name();
        let doubly = self.random.bool();
        let of = self.model.members[parent].name.clone();
        self.note(&format!("{of} forks {name}{}", if doubly { " twice, with setsid" } else { "" }));
        let helper = format!("helper [ report {name} obey {name} ]");
        let words =
            if doubly { format!("fork [ fork [ setsid exec {helper} ] exit ]") } else { format!("spawn {helper}") };
        self.command(parent, &words);
        let process = self.stage.reported(&name);
        let session = self.model.members[parent].session;
        self.model.add(name, process, session, Some(parent));
    }

    fn exit(&mut self) {
        let living = self.model.living();
        let Some(node) = self.pick(&living) else { return self.start() };
        let killed = self.random.bool();
        let name = self.model.members[node].name.clone();
        self.note(&format!("{name} {}", if killed { "is killed" } else { "exits" }));
        let process = self.model.members[node].process;
        if killed {
            self.stage.kill(process)
        } else {
            self.command(node, "exit")
        }
        let exited = poll(limit(Duration::from_secs(10)), || (!is_alive(process)).then_some(()));
        assert!(exited.is_some(), "{name} lives\n{}", self.log);
        self.model.die(node);
    }

    /// A launch that waits is given up by its client's death.
    fn cancel(&mut self) {
        if self.model.queue.is_empty() {
            return;
        }
        let at = self.random.usize(..self.model.queue.len());
        let ModelWaiter { name, process } = self.model.queue.remove(at);
        self.note(&format!("the client of {name} is killed"));
        self.stage.kill(process);
    }

    fn adopt(&mut self) {
        let agents: BTreeSet<Node> = self.model.groups.iter().map(|group| group.agent).collect();
        let helpers: Vec<Node> = self.model.living().into_iter().filter(|node| !agents.contains(node)).collect();
        let Some(node) = self.pick(&helpers) else { return };
        let member = &mut self.model.members[node];
        member.adopted = true;
        let (name, pid) = (member.name.clone(), member.process.pid);
        self.note(&format!("{name} is adopted"));
        let answer = self.daemon.as_ref().unwrap().ctl(&["adopt", &format!("pid:{pid}")]);
        assert_eq!(answer.code, 0, "{answer:?}\n{}", self.log);
    }

    fn reload(&mut self) {
        self.note("reload");
        self.daemon.as_ref().unwrap().send(Signal::HUP);
    }

    /// The daemon ends, things happen, and it starts again: perhaps with another layout, perhaps killed while it starts.
    fn restart(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let signal = if self.random.bool() { Signal::TERM } else { Signal::KILL };
        self.note(&format!("the daemon ends by {signal:?}"));
        daemon.send(signal);
        assert!(daemon.wait(limit(Duration::from_secs(5))).is_some(), "the daemon still runs\n{}", self.log);
        for _ in 0..self.random.usize(..4) {
            match self.random.u32(..5) {
                0 => self.start(),
                1 => self.cancel(),
                2 | 3 => self.spawn(),
                _ => self.exit(),
            }
        }
        if self.random.u32(..3) == 0 {
            self.layout = 1 - self.layout;
            self.note("another layout");
            set_layout(daemon.config(), LAYOUTS[1 - self.layout], LAYOUTS[self.layout]);
        }
        while self.random.u32(..3) == 0 {
            let after = Duration::from_millis(self.random.u64(..300));
            self.note(&format!("the daemon is killed {after:?} after its start"));
            daemon.start_and_kill(limit(after));
        }
        self.note("the daemon starts");
        daemon.restart();
        self.model.admit();
        self.daemon = Some(daemon);
    }

    fn step(&mut self) {
        match self.random.u32(..20) {
            0 | 1 => self.start(),
            2..=5 => self.launch(),
            6..=9 => self.spawn(),
            10..=12 => self.exit(),
            13 => self.cancel(),
            14 => self.adopt(),
            15 => self.reload(),
            _ => self.restart(),
        }
        self.model.admit();
        self.settle();
    }

    /// Waits until the daemon shows what the model holds.
    fn settle(&mut self) {
        let daemon = self.daemon.as_ref().unwrap();
        let model = &mut self.model;
        let mut last = (String::new(), None);
        let settled = poll(seconds(10.0), || {
            let snapshot = daemon.snapshot();
            let differences = model.differences(&snapshot, daemon);
            let settled = differences.is_empty().then_some(());
            last = (differences, Some(snapshot));
            settled
        });
        let (differences, snapshot) = last;
        assert!(settled.is_some(), "{differences}\n{}\n{}", self.log, daemon.describe(snapshot.as_ref()));
    }
}

fn set_layout(config: &Path, from: u32, to: u32) {
    let text = std::fs::read_to_string(config).unwrap();
    std::fs::write(config, text.replace(&format!("max_processes = {from}"), &format!("max_processes = {to}"))).unwrap();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn random_sequences_match_the_model() {
    let sequences = number("WATCHDOG_MODEL_SEQUENCES").unwrap_or(10);
    let first = number("WATCHDOG_MODEL_SEED").unwrap_or(1);
    for seed in first..first + sequences {
        let began = Instant::now();
        let mut run = ModelRun::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        println!("seed {seed}: {STEPS} steps in {:.1?}", began.elapsed());
    }
}
