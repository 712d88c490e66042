//! The cases of `tests/cases` that say `live = true`, on the running kernel. `tests/cases/README.md` describes the language.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use rustix::process::Signal;
use watchdog_api::Explanation;
use watchdog_fixtures::cases::{
    Actors, AgentStep, CaseError, CaseFile, CaseHost, CaseStep, CaseView, Check, ExitStep, MemoryStep, case_text,
    run_case,
};
use watchdog_fixtures::for_each_case;
use watchdog_tests::{Daemon, ProcessKey, Stage, poll, seconds};
use watchdog_types::{Pid, ProcessId, Ticks};

/// Times of a case are for the default grace of 30 s; here it is 3 s.
const TIMES_FASTER: u32 = 10;
const GRACE: &str = "[orphans]\ngrace = \"3s\"\n";

/// Processes that execute the words that they are sent.
struct LiveHost {
    daemon: Daemon,
    stage: Stage,
    /// Words that each process was sent, by its name on the stage.
    sent: HashMap<String, u32>,
    on_stage: HashMap<ProcessId, String>,
    installed: HashSet<String>,
    clients: HashMap<ProcessId, ProcessKey>,
    /// Children become zombies; else the kernel reaps them.
    leaves_zombies: bool,
}

fn id_of(key: ProcessKey) -> ProcessId {
    ProcessId { pid: Pid(key.pid), start_time: Ticks(key.start_time) }
}

fn key_of(process: ProcessId) -> ProcessKey {
    ProcessKey { pid: process.pid.0, start_time: process.start_time.0 }
}

impl LiveHost {
    fn of(case: &CaseFile) -> Result<Self, String> {
        let (grace, tables) = match case.config.split_once("[orphans]\n") {
            Some((before, after)) => (format!("{GRACE}{after}"), before),
            None => (GRACE.to_owned(), case.config.as_str()),
        };
        let stage = Stage::new();
        let config = format!("{tables}\n{grace}");
        let daemon = Daemon::configured(&stage, &config);
        let leaves_zombies =
            case.steps.iter().any(|step| matches!(step.get_ref(), CaseStep::Exit(exit) if exit.zombie));
        Ok(Self {
            daemon,
            stage,
            sent: HashMap::new(),
            on_stage: HashMap::new(),
            installed: HashSet::new(),
            clients: HashMap::new(),
            leaves_zombies,
        })
    }

    /// The script of a process: it reports, and then does what it is sent.
    fn script(&self, name: &str) -> String {
        let reaps = if self.leaves_zombies { "" } else { "bury " };
        format!("{reaps}report {name} obey {name}")
    }

    /// A name on the stage that no process has had.
    fn fresh(&self, name: &str, actors: &Actors) -> String {
        format!("{name}-{}", actors.count(name) + 1)
    }

    fn add(&mut self, name: &str, on_stage: &str, key: ProcessKey, actors: &mut Actors) {
        let process = id_of(key);
        actors.add(name, process);
        self.on_stage.insert(process, on_stage.to_owned());
        let daemon = &self.daemon;
        daemon.eventually(seconds(5.0), "the process is known", |seen| seen.process(key).map(drop));
    }

    fn send(&mut self, process: ProcessId, words: &str) -> Result<(), String> {
        let name = self.on_stage.get(&process).ok_or_else(|| format!("{process} is not on the stage"))?;
        let number = self.sent.entry(name.clone()).or_default();
        *number += 1;
        // The file appears with its content.
        let directory = self.stage.directory();
        let (draft, file) = (directory.join("draft"), directory.join(format!("{name}.{number}")));
        std::fs::write(&draft, words).and_then(|()| std::fs::rename(draft, file)).map_err(|error| error.to_string())
    }

    /// The program of this path, as a fixture of the same file name.
    fn program(&mut self, path: &str) -> String {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        if self.installed.insert(name.clone()) {
            self.stage.install(&name);
        }
        name
    }

    fn agent(&mut self, step: &AgentStep, actors: &mut Actors) -> Result<(), String> {
        let name = self.fresh(&step.name, actors);
        let script = self.script(&name);
        if !step.client {
            let key = self.stage.agent(&script);
            self.stage.reported(&name);
            self.add(&step.name, &name, key, actors);
            return Ok(());
        }
        let client = self.program("client");
        let program = self.stage.directory().join(self.stage.agent_name());
        let script = format!("setsid program | [ {} {script} ] hold", program.display());
        let client = self.stage.start(&client, &script);
        let key = self.stage.reported(&name);
        self.add(&step.name, &name, key, actors);
        self.clients.insert(id_of(key), client);
        // The client counts from the daemon's first look at the agent on.
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    fn spawn(&mut self, name: &str, by: &str, argv: (&str, &[String]), actors: &mut Actors) -> Result<(), String> {
        let parent = actors.one(by)?;
        let on_stage = self.fresh(name, actors);
        let (path, arguments) = argv;
        let program = self.program(path);
        // Words of the language of scripts are separated by spaces.
        let plain = |word: &&String| !word.contains([' ', '[', ']']);
        let shown: Vec<&str> = arguments.iter().skip(1).filter(plain).map(String::as_str).collect();
        let script = self.script(&on_stage);
        self.send(parent, &format!("spawn-as {program} [ {} ] [ {script} ]", shown.join(" ")))?;
        let key = self.stage.reported(&on_stage);
        self.add(name, &on_stage, key, actors);
        Ok(())
    }

    fn exit(&mut self, step: &ExitStep, actors: &Actors) -> Result<(), String> {
        for process in actors.all(&step.process)? {
            match (step.signal, step.code) {
                (Some(number), _) => {
                    let signal = Signal::from_named_raw(i32::from(number)).ok_or("no such signal")?;
                    self.stage.signal(key_of(process), signal);
                }
                (None, 0) => self.send(process, "exit")?,
                (None, code) => return Err(format!("exit code {code}: a live process exits with 0")),
            }
            if !step.zombie {
                self.await_exit(process)?;
            }
        }
        Ok(())
    }

    fn await_exit(&self, process: ProcessId) -> Result<(), String> {
        let exited = || (!watchdog_tests::is_alive(key_of(process))).then_some(());
        poll(seconds(5.0), exited).ok_or_else(|| format!("{process} did not exit"))
    }

    fn kill(&self, process: ProcessId) -> Result<(), String> {
        self.stage.kill(key_of(process));
        self.await_exit(process)
    }

    fn memory(&mut self, step: &MemoryStep, actors: &Actors) -> Result<(), String> {
        let mib = |amount: watchdog_fixtures::cases::Amount| amount.0.0 >> 20;
        let mut words = String::new();
        for (word, amount) in [("anon", step.anon), ("shared", step.shmem)] {
            if mib(amount) > 0 {
                // Writing to a String cannot fail.
                let _ = write!(words, "{word} {} ", mib(amount));
            }
        }
        for process in actors.all(&step.process)? {
            self.send(process, &words)?;
        }
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn explain(&self, process: ProcessId) -> Option<Explanation> {
        let answer = self.daemon.ctl(&["explain", &process.pid.to_string()]);
        serde_json::from_str(&answer.stdout).ok()
    }

    fn exemption(&self, process: ProcessId) -> Option<String> {
        let answer = self.daemon.ctl_text(&["reap", "--dry-run", &format!("pid:{}", process.pid)]);
        (answer.code != 0).then_some(answer.stderr)
    }
}

impl CaseHost for LiveHost {
    fn act(&mut self, step: &CaseStep, actors: &mut Actors) -> Result<(), String> {
        match step {
            CaseStep::Agent(step) => return self.agent(step, actors),
            CaseStep::Fork(step) => {
                let parent = actors.one(&step.by)?;
                let name = self.fresh(&step.name, actors);
                let script = self.script(&name);
                self.send(parent, &format!("fork [ {script} ]"))?;
                let key = self.stage.reported(&name);
                self.add(&step.name, &name, key, actors);
            }
            CaseStep::Exec(step) => {
                let process = actors.one(&step.process)?;
                let path = step.path.as_deref().or(step.argv.first().map(String::as_str)).ok_or("argv is empty")?;
                let program = self.program(path);
                let name = format!("{}-exec", self.on_stage.get(&process).ok_or("not on the stage")?);
                self.send(process, &format!("exec {program} [ report {name} obey {name} ]"))?;
                self.stage.reported(&name);
                self.on_stage.insert(process, name);
            }
            CaseStep::Spawn(step) => {
                let path = step.path.as_deref().or(step.argv.first().map(String::as_str)).ok_or("argv is empty")?;
                self.spawn(&step.name, &step.by, (path, &step.argv), actors)?;
            }
            CaseStep::Npx(step) => {
                let script = format!("/home/u/.npm/_npx/1/node_modules/.bin/{}", step.server);
                let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
                let npm = words(&["node", "/usr/bin/npx", "-y", &step.package]);
                let sh = words(&["sh", "-c", &step.server]);
                let server = words(&["node", &script]);
                self.spawn(&step.name, &step.by, ("/usr/bin/node", &npm), actors)?;
                self.spawn(&step.name, &step.name, ("/usr/bin/dash", &sh), actors)?;
                self.spawn(&step.name, &step.name, ("/usr/bin/node", &server), actors)?;
            }
            CaseStep::Exit(step) => return self.exit(step, actors),
            CaseStep::Kill(name) => {
                for process in actors.all(name)? {
                    self.kill(process)?;
                }
            }
            CaseStep::Wait(span) => std::thread::sleep(span.0 / TIMES_FASTER),
            CaseStep::Setsid(name) => {
                for process in actors.all(name)? {
                    self.send(process, "setsid")?;
                }
            }
            CaseStep::Listen(step) => {
                for process in actors.all(&step.process)? {
                    self.send(process, "listen-tcp")?;
                }
            }
            CaseStep::CloseClient(name) => {
                let agent = actors.one(name)?;
                let client = self.clients.get(&agent).copied().ok_or("the agent has no client")?;
                self.kill(id_of(client))?;
            }
            CaseStep::Memory(step) => return self.memory(step, actors),
            CaseStep::Adopt(name) => {
                let process = actors.one(name)?;
                let answer = self.daemon.ctl(&["adopt", &process.pid.to_string()]);
                if answer.code != 0 {
                    return Err(format!("adopt: {answer:?}"));
                }
            }
            _ => return Err("the real kernel cannot do this in a test: remove `live = true`".into()),
        }
        Ok(())
    }

    fn meets(&mut self, check: Check<'_>) -> Result<(), CaseError> {
        let mut last = Err(CaseError::Unmet("it was never looked at".into()));
        poll(seconds(5.0), || {
            let seen = self.daemon.snapshot();
            last = check(&CaseView {
                tree: seen.tree,
                users: self.daemon.status().users,
                findings: seen.findings,
                explain: &|process| self.explain(process),
                exemption: &|process| self.exemption(process),
            });
            (!matches!(last, Err(CaseError::Unmet(_)))).then_some(())
        });
        last
    }
}

macro_rules! case {
    ($test:ident, live, $name:literal, $text:expr) => {
        #[test]
        fn $test() {
            if let Err(error) = run_case($name, &case_text($name, $text), LiveHost::of) {
                panic!("{error}");
            }
        }
    };
    ($test:ident, simulated, $name:literal, $text:expr) => {};
}

for_each_case!(case);
