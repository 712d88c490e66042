//! Steps of a case about the host: limits, signals, the OOM killer, containers and files in memory.

use super::case_world::{CaseWorld, SIGKILL};
use crate::effect::{Effect, ScanRequest};
use crate::input::Input;
use crate::tests::world::USER;
use watchdog_fixtures::cases::{
    Actors, ContainerStep, KillerStep, LimitsStep, OomStep, SignalStep, SurroundingsStep, TasksStep, TmpfsStep,
};
use watchdog_types::{
    Ancestor, Bytes, CgroupLimit, CgroupPressure, Container, ExitStatus, HeapCeiling, HeapRuntime, KernelEvent, Kill,
    KillSeen, Limits, Oom, OomCgroup, OomSeen, Pid, ProcessId, ResourceLimit, SharedSegment, Signal, Surroundings,
    TaskLimit, TaskLimitScope, TaskReading, Ticks, Tmpfs, TmpfsFile, TmpfsMount, Uid,
};

/// `si_code` of the kernel's own signals.
const SI_KERNEL: i32 = 0x80;

impl CaseWorld {
    pub(super) fn limits(&mut self, step: &LimitsStep, actors: &Actors) -> Result<(), String> {
        let cgroup = step.cgroup.as_ref().map(|path| CgroupLimit {
            path: path.clone(),
            max: step.max.map_or(Bytes(0), |max| max.0),
            current: step.current.map_or(Bytes(0), |current| current.0),
            cache: Bytes(0),
        });
        let limited = cgroup.as_ref().map_or("/", |cgroup| cgroup.path.as_str()).to_owned();
        let limits = Limits {
            own_cgroup: Some(step.own_cgroup.clone().unwrap_or(limited)),
            cgroup,
            v8_heap: step.v8_heap.map(|heap| heap.0),
            address_space: step
                .address_space
                .map(|(max, used)| Box::new(ResourceLimit { max: max.0, used: used.0, charged: Bytes(0) })),
            heap: step.java_heap.map(|heap| HeapCeiling { runtime: HeapRuntime::Jvm, max: heap.0, stated: true }),
            node_major: step.node_major,
            strict_seccomp: step.strict_seccomp,
            cpu_seconds: step.cpu_seconds,
            oom_score_adj: step.oom_score_adj,
            ..Limits::default()
        };
        for process in actors.all(&step.process)? {
            let charged = self.world.charged(process);
            let mut limits = limits.clone();
            limits.address_space.iter_mut().for_each(|space| space.charged = charged);
            self.world.feed(Input::Limits(process, limits));
        }
        Ok(())
    }

    pub(super) fn killer(&mut self, step: &KillerStep, actors: &Actors) -> Result<(), String> {
        let target = actors.one(&step.process)?;
        let killer = *self.strangers.get(&step.by).ok_or("it has sent no signal")?;
        let pressure = step.pressure.zip(step.target_cgroup.clone()).map(|((some, full), path)| CgroupPressure {
            path,
            some_avg10: some,
            full_avg10: full,
        });
        let seen = KillSeen {
            program: step.program.clone(),
            threads: Vec::new(),
            killer_cgroup: step.cgroup.clone(),
            cgroup: step.target_cgroup.clone(),
            pressure: pressure.into_iter().collect(),
        };
        self.world.feed(Input::KillSeen(Kill { killer, target }, seen));
        Ok(())
    }

    pub(super) fn signal(&mut self, step: &SignalStep, actors: &Actors) -> Result<(), String> {
        let process = actors.one(&step.process)?;
        let known = actors.one(&step.by).ok();
        let next = ProcessId { pid: Pid(700 + self.strangers.len() as u32), start_time: Ticks(600) };
        let sender = known.unwrap_or_else(|| *self.strangers.entry(step.by.clone()).or_insert(next));
        let signal = Signal {
            at: self.world.now,
            process,
            signal: step.signal,
            code: step.code,
            delivered: true,
            sender,
            sender_comm: step.by.clone(),
            sender_uid: if known.is_some() { USER } else { Uid::ROOT },
            sender_thread_exits: false,
        };
        self.world.feed(Input::Kernel(KernelEvent::Signal(signal)));
        Ok(())
    }

    pub(super) fn oom(&mut self, step: &OomStep, actors: &Actors) -> Result<(), String> {
        let victim = actors.one(&step.process)?;
        let kernel = ProcessId { pid: Pid(77), start_time: Ticks(700) };
        let signal = Signal {
            at: self.world.now,
            process: victim,
            signal: SIGKILL,
            code: SI_KERNEL,
            delivered: true,
            sender: kernel,
            sender_comm: "trigger".into(),
            sender_uid: Uid::ROOT,
            sender_thread_exits: false,
        };
        self.world.feed(Input::Kernel(KernelEvent::Signal(signal)));
        let oom = Oom {
            at: self.world.now,
            pid: victim.pid,
            process: Some(victim),
            comm: "comm".into(),
            trigger: Pid(1),
            uid: Some(USER),
        };
        self.world.feed(Input::Kernel(KernelEvent::Oom(oom)));
        let asked = self.world.effects.iter().rev().find_map(|effect| match effect {
            Effect::Scan(ScanRequest::Oom { number, .. }) => Some(*number),
            _ => None,
        });
        if let Some(number) = asked {
            let cgroup = step.cgroup.iter().map(|path| OomCgroup {
                path: path.clone(),
                max: step.max.map(|max| max.0),
                hit: Some(true),
            });
            let seen = OomSeen { number, cgroups: cgroup.collect(), complete: !step.unread, ..OomSeen::default() };
            self.world.feed(Input::OomSeen(seen));
        }
        self.end(victim, ExitStatus::Signal(SIGKILL), Some(step.peak.0));
        Ok(())
    }

    pub(super) fn containers(&mut self, step: &ContainerStep, actors: &Actors) -> Result<(), String> {
        let client = actors.one(&step.client)?;
        let found = (0_u32..).zip(&step.running).map(|(number, comm)| Container {
            process: ProcessId { pid: Pid(9_000 + number), start_time: Ticks(client.start_time.0 + 50) },
            id: "a".repeat(64),
            runtime: "docker".into(),
            comm: comm.clone(),
        });
        let found = found.collect();
        self.world.feed(Input::Containers(client, found));
        Ok(())
    }

    pub(super) fn tmpfs(&mut self, step: &TmpfsStep, actors: &Actors) -> Result<(), String> {
        let mut segments = Vec::new();
        if let Some((size, creator)) = &step.segment {
            segments.push(SharedSegment { id: 7, size: size.0, creator: actors.one(creator)?.pid, uid: USER });
        }
        let left: Bytes = segments.iter().map(|segment| segment.size).sum();
        let largest = step.largest.as_ref().map(|path| TmpfsFile { path: path.clone(), size: step.used.0, uid: USER });
        self.host.shmem = step.used.0 + step.mapped.0 + left;
        self.world.tmpfs = Tmpfs {
            shmem: self.host.shmem,
            mapped: step.mapped.0,
            mounts: vec![TmpfsMount { path: step.mount.clone(), used: step.used.0 }],
            largest,
            segments,
        };
        self.world.host_is(self.host);
        Ok(())
    }

    pub(super) fn surroundings(&mut self, step: &SurroundingsStep, actors: &Actors) -> Result<(), String> {
        let ancestors = step.below.iter().map(|name| {
            let number = name.bytes().fold(0, |sum: u32, byte| sum * 31 % 9_973 + u32::from(byte));
            let process = ProcessId { pid: Pid(20_000 + number), start_time: Ticks(500) };
            Ancestor { process, name: name.clone(), oom_score_adj: Some(step.oom_score_adj) }
        });
        let ancestors: Vec<Ancestor> = ancestors.collect();
        for name in &step.agents {
            for agent in actors.all(name)? {
                let (ancestors, terminal) = (ancestors.clone(), step.terminal);
                self.world.surroundings.insert(agent, Surroundings { agent, ancestors, terminal });
            }
        }
        Ok(())
    }

    pub(super) fn tasks(&mut self, step: &TasksStep, actors: &Actors) -> Result<(), String> {
        let mut agents = Vec::new();
        for name in &step.agents {
            agents.extend(actors.all(name)?);
        }
        let of = match (&step.cgroup, step.uid) {
            (Some(path), _) => TaskLimitScope::Cgroup(path.clone()),
            (None, Some(uid)) => TaskLimitScope::User(Uid(uid)),
            (None, None) => TaskLimitScope::Host,
        };
        let mut threads = Vec::new();
        for (name, number) in &step.threads {
            threads.extend(actors.all(name)?.into_iter().map(|process| (process, *number)));
        }
        let limit = TaskLimit { of, used: step.used, max: step.max, agents };
        self.world.tasks = TaskReading { limits: vec![limit], threads };
        Ok(())
    }
}
