//! What the kernel holds gated sessions to: how many processes may live, and that no agent starts past the gate.
//!
//! Counting is part of the programs on fork and exit, and costs nothing worth a word. Refusing is done by LSM programs, which
//! are attached only while there is something to refuse.

use std::collections::{BTreeSet, HashMap as StdHashMap};
use std::io::Read;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::lsm::LsmLinkId;
use procfs::ProcResult;
use procfs::process::Task;
use watchdog_common::{FileId, Gated, Recount};
use zerocopy::IntoBytes;

use super::error::KernelError;
use super::load::open;
use super::programs::{lsm_program, read_iterator};
use super::tracer::{Tracer, is_errno, is_missing, set_names, start_of};
use crate::engine::id::ProcessId;
use crate::engine::input::Lineage;

/// Sessions that are counted, and what is attached for them.
pub(super) struct Gate {
    pub(super) gated: HashMap<MapData, u32, [u8; size_of::<Gated>()]>,
    recount: Array<MapData, [u8; size_of::<Recount>()]>,
    denied: HashMap<MapData, u64, u8>,
    denied_files: HashMap<MapData, [u8; size_of::<FileId>()], u8>,
    seen_denied: HashMap<MapData, [u8; size_of::<FileId>()], u8>,
    /// What [`Tracer::set_denied`] was last called with.
    denied_names: Vec<Vec<u8>>,
    kill_denied: Array<MapData, u32>,
    /// By their roots.
    sessions: StdHashMap<ProcessId, Session>,
    last_number: u32,
    /// The program that refuses forks.
    forks: Option<LsmLinkId>,
    /// The program that refuses execs.
    execs: Option<LsmLinkId>,
}

#[derive(Clone, Copy)]
struct Session {
    /// Its key in `GATED`.
    number: u32,
    /// As many processes of it may live.
    max_processes: Option<u32>,
}

/// What the kernel has counted of a gated session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its processes that live: no zombie, no thread.
    pub live: i64,
    /// Its forks that were refused.
    pub refused: u64,
}

/// The program that refuses forks, its hook, and the same of the one that refuses execs and of the one that only tries.
const FORKS: (&str, &str) = ("task_alloc", "task_alloc");
const EXECS: (&str, &str) = ("deny_exec", "bprm_creds_for_exec");
const TRIAL: (&str, &str) = ("lsm_trial", "task_alloc");

/// Times that a session is counted at most. Each time finds only what was being forked the time before.
const RECOUNTS: usize = 16;

impl Gate {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            gated: open(ebpf, "GATED", HashMap::try_from)?,
            recount: open(ebpf, "RECOUNT", Array::try_from)?,
            denied: open(ebpf, "DENIED", HashMap::try_from)?,
            denied_files: open(ebpf, "DENIED_FILES", HashMap::try_from)?,
            seen_denied: open(ebpf, "SEEN_DENIED", HashMap::try_from)?,
            denied_names: Vec::new(),
            kill_denied: open(ebpf, "KILL_DENIED", Array::try_from)?,
            sessions: StdHashMap::new(),
            last_number: 0,
            forks: None,
            execs: None,
        })
    }

    /// The key of this root's session; 0 when it is not gated.
    fn number(&self, root: ProcessId) -> u32 {
        self.sessions.get(&root).map_or(0, |session| session.number)
    }

    /// Makes good for a daemon that has ended: its sessions are bound anew, under numbers that none of them had, and until then
    /// nothing is denied.
    pub(super) fn begin_after(&mut self, counted: impl Iterator<Item = u32>) -> Result<(), KernelError> {
        let failed = |map, doing| move |source| KernelError::Map { map, doing, source };
        self.kill_denied.set(0, 0, 0).map_err(failed("KILL_DENIED", "write"))?;
        let numbers: Vec<u32> = self.gated.keys().collect::<Result<_, _>>().map_err(failed("GATED", "read"))?;
        self.last_number = numbers.iter().copied().chain(counted).max().unwrap_or(0);
        numbers.into_iter().try_for_each(|number| self.forget(number))
    }

    fn forget(&mut self, number: u32) -> Result<(), KernelError> {
        match self.gated.remove(&number) {
            Err(source) if !is_missing(&source) => Err(KernelError::Map { map: "GATED", doing: "write", source }),
            _ => Ok(()),
        }
    }
}

impl Tracer {
    /// Counts the session of this root from now on, lets it through the exec hook, and, where LSM programs work, refuses its
    /// forks with EAGAIN while `max_processes` of it live (the root included; `None` for no bound). What the session has
    /// already started is counted too, sessions inside it included that are not bound themselves. Once more for the same root
    /// replaces the bound.
    ///
    /// The root is [tracked](Self::track) before. Takes a look at all threads of the host for a root that has no child yet, as one
    /// that is launched; else two, and one more for each session inside one inside of it.
    ///
    /// # Errors
    /// When the kernel cannot count, or there is no room; or when it refuses to attach the program that refuses: the
    /// session is then counted, and not held.
    pub fn bound(&mut self, root: ProcessId, max_processes: Option<u32>) -> Result<(), KernelError> {
        self.features.counting.clone().map_err(KernelError::Off)?;
        let before = self.gate.sessions.get(&root).copied();
        if before.is_none_or(|session| session.max_processes != max_processes) {
            self.count_anew(root, max_processes, before)?;
        }
        self.attach_what_is_needed()
    }

    /// Counts a session under a new number, from nothing.
    fn count_anew(
        &mut self,
        root: ProcessId,
        max_processes: Option<u32>,
        before: Option<Session>,
    ) -> Result<(), KernelError> {
        let number = self.gate.last_number.wrapping_add(1).max(1);
        let value = Gated { max_processes: max_processes.unwrap_or(0), root: root.pid.0, ..Gated::default() };
        let mut bytes = [0; size_of::<Gated>()];
        bytes.copy_from_slice(value.as_bytes());
        match self.gate.gated.insert(number, bytes, 0) {
            Ok(()) => {}
            Err(error) if is_errno(&error, libc::E2BIG) => return Err(KernelError::TooManySessions(root)),
            Err(source) => return Err(KernelError::Map { map: "GATED", doing: "write", source }),
        }
        self.gate.last_number = number;
        if let Err(error) = self.recount(root, number, before.map_or(0, |before| before.number)) {
            self.gate.forget(number)?;
            return Err(error);
        }
        self.gate.sessions.insert(root, Session { number, max_processes });
        before.map_or(Ok(()), |before| self.gate.forget(before.number))
    }

    /// Corrects the count of the session with this number, in which a process was counted whose exit the programs did not see.
    pub(super) fn correct_count(&mut self, number: u32) -> Result<(), KernelError> {
        let mut sessions = self.gate.sessions.iter().map(|(root, session)| (*root, *session));
        match sessions.find(|(_, session)| session.number == number) {
            Some((root, session)) => self.count_anew(root, session.max_processes, Some(session)),
            None => Ok(()),
        }
    }

    /// Holds the session of this root to nothing any more. One that is not held is nothing to do for.
    ///
    /// # Errors
    /// When the map cannot be written, or a program not be detached.
    pub fn unbound(&mut self, root: ProcessId) -> Result<(), KernelError> {
        if let Some(session) = self.gate.sessions.remove(&root) {
            // Its processes keep the number, which no other session will ever have.
            self.gate.forget(session.number)?;
        }
        self.attach_what_is_needed()
    }

    /// What the kernel has counted of the session of this root; `None` when it is not [bound](Self::bound).
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counted(&self, root: ProcessId) -> Result<Option<Counted>, KernelError> {
        let Some(session) = self.gate.sessions.get(&root) else { return Ok(None) };
        let value = self.gate.gated.get(&session.number, 0);
        let value = value.map_err(|source| KernelError::Map { map: "GATED", doing: "read", source })?;
        let Gated { live, refused, told: _, max_processes: _, root: _ } = zerocopy::transmute!(value);
        Ok(Some(Counted { live, refused }))
    }

    /// Lets no process outside of [bound](Self::bound) sessions execute a file with one of these names, or one of the
    /// [files](Self::set_denied_files) (when `on`): the exec fails with EPERM where LSM programs work; elsewhere the process
    /// is killed as it comes out of the exec, before the first instruction of the new program.
    ///
    /// A name is the last component of the path as it was given to exec, or the file's own, through whichever link or
    /// descriptor it is executed. A file that was executed under its own denied name, and has no other, is denied from
    /// then on under each name. Where LSM programs do not work, a script is known by the path alone, since its interpreter has
    /// taken its place when it can be killed.
    ///
    /// # Errors
    /// When the kernel cannot count, so that it does not know whom to let through: then nothing is denied. When a map cannot
    /// be written, or the kernel refuses to attach or detach the program.
    pub fn set_denied(&mut self, names: &[Vec<u8>], on: bool) -> Result<(), KernelError> {
        if on {
            self.features.counting.clone().map_err(KernelError::Off)?;
            self.note_alive()?;
        }
        let names = if on { names } else { &[] };
        set_names(&mut self.gate.denied, "DENIED", names)?;
        if self.gate.denied_names != names {
            self.gate.denied_names = names.to_vec();
            set_files(&mut self.gate.seen_denied, "SEEN_DENIED", &BTreeSet::new())?;
        }
        let lsm = self.features.lsm.is_ok();
        self.gate.kill_denied.set(0, u32::from(on && !lsm), 0).map_err(|source| KernelError::Map {
            map: "KILL_DENIED",
            doing: "write",
            source,
        })?;
        let link = self.gate.execs.take();
        self.gate.execs = toggle(&mut self.ebpf, EXECS, link, on && lsm)?;
        Ok(())
    }

    /// Replaces the files that are denied whatever they are called; only what differs is written.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_denied_files(&mut self, files: &BTreeSet<FileId>) -> Result<(), KernelError> {
        set_files(&mut self.gate.denied_files, "DENIED_FILES", files)
    }

    /// Whether the programs that refuse forks, and execs, are attached.
    #[must_use]
    pub fn refuses(&self) -> (bool, bool) {
        (self.gate.forks.is_some(), self.gate.execs.is_some())
    }

    /// Counts a process whose entry was just made or changed, and that was counted under this number, where it belongs: with its
    /// session, or, where that is not bound, where it was counted before, or where its root is, or the process is that
    /// started its session.
    pub(super) fn count_where_it_belongs(
        &mut self,
        process: ProcessId,
        counted: u32,
        lineage: &Lineage,
    ) -> Result<(), KernelError> {
        if lineage.witness || self.features.counting.is_err() {
            return Ok(());
        }
        let number = match (self.gate.number(lineage.root), counted) {
            (0, 0) if process != lineage.root => self.counted_under(lineage.root)?,
            (0, 0) => lineage.parent.map_or(Ok(0), |parent| self.counted_under(parent))?,
            (0, counted) => counted,
            (number, _) => number,
        };
        if number == counted { Ok(()) } else { self.recount(lineage.root, number, 0) }
    }

    /// Takes the session of this root off wherever it is counted.
    pub(super) fn count_nowhere(&mut self, root: ProcessId) -> Result<(), KernelError> {
        self.recount(root, 0, 0)
    }

    /// Has all living processes of this root's session counted under this number (under none, if it is 0), those that are
    /// counted under the number `before`, if that is not 0, and the sessions that were started in one that is, and are not
    /// bound themselves.
    fn recount(&mut self, root: ProcessId, number: u32, before: u32) -> Result<(), KernelError> {
        let request = Recount { root_start: start_of(root), root: root.pid.0, number, before, reserved: 0 };
        let mut bytes = [0; size_of::<Recount>()];
        bytes.copy_from_slice(request.as_bytes());
        self.gate.recount.set(0, bytes, 0).map_err(|source| KernelError::Map {
            map: "RECOUNT",
            doing: "write",
            source,
        })?;
        for _ in 0..RECOUNTS {
            let mut found = Vec::new();
            read_iterator(&mut self.ebpf, "recount")?
                .read_to_end(&mut found)
                .map_err(|error| KernelError::Iterator("recount", error))?;
            // What is being forked is its forker's child before it is told of, and gets the old number at worst.
            if found.is_empty() || found.len() == 1 && is_childless(root) {
                break;
            }
        }
        Ok(())
    }

    fn attach_what_is_needed(&mut self) -> Result<(), KernelError> {
        let bounded = self.gate.sessions.values().any(|session| session.max_processes.is_some());
        let link = self.gate.forks.take();
        self.gate.forks = toggle(&mut self.ebpf, FORKS, link, bounded && self.features.lsm.is_ok())?;
        Ok(())
    }
}

fn set_files(
    map: &mut HashMap<MapData, [u8; size_of::<FileId>()], u8>,
    name: &'static str,
    files: &BTreeSet<FileId>,
) -> Result<(), KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: name, doing, source };
    let present: Vec<[u8; size_of::<FileId>()]> = map.keys().collect::<Result<_, _>>().map_err(failed("read"))?;
    let known = |key: &[u8; size_of::<FileId>()]| -> FileId { zerocopy::transmute!(*key) };
    for key in present.iter().filter(|key| !files.contains(&known(key))) {
        match map.remove(key) {
            // An LRU map may have forgotten it meanwhile.
            Err(source) if !is_missing(&source) => return Err(failed("write")(source)),
            _ => {}
        }
    }
    let present: BTreeSet<FileId> = present.iter().map(known).collect();
    for file in files.difference(&present) {
        let key: [u8; size_of::<FileId>()] = zerocopy::transmute!(*file);
        map.insert(key, 1, 0).map_err(failed("write"))?;
    }
    Ok(())
}

/// Whether no thread of a process has a child, which is certain to be so only if it says so.
fn is_childless(process: ProcessId) -> bool {
    let threads = procfs::process::Process::new(process.pid.0.cast_signed()).and_then(|found| found.tasks());
    let has_none =
        |thread: ProcResult<Task>| thread.and_then(|thread| thread.children()).is_ok_and(|all| all.is_empty());
    threads.is_ok_and(|mut threads| threads.all(has_none))
}

/// Attaches or detaches a program, unless that is done already.
fn toggle(
    ebpf: &mut Ebpf,
    (name, _): (&str, &str),
    link: Option<LsmLinkId>,
    on: bool,
) -> Result<Option<LsmLinkId>, KernelError> {
    match (on, link) {
        (true, None) => {
            let attached = lsm_program(ebpf, name)?.attach();
            attached.map(Some).map_err(|source| KernelError::program(name, "attach", source))
        }
        (false, Some(link)) => {
            let detached = lsm_program(ebpf, name)?.detach(link);
            detached.map(|()| None).map_err(|source| KernelError::program(name, "detach", source))
        }
        (_, link) => Ok(link),
    }
}

/// Loads the LSM programs, if it turns out that the kernel calls such: the hooks may be there while the module is not active
/// (`lsm=` without `bpf`), and everything but the call works then too. So a program is attached, a thread started, and
/// looked whether the program saw it.
pub(super) fn try_lsm(ebpf: &mut Ebpf, btf: &aya::Btf) -> Result<(), KernelError> {
    let load = |ebpf: &mut Ebpf, (name, hook): (&str, &str)| {
        lsm_program(ebpf, name)?.load(hook, btf).map_err(|source| KernelError::program(name, "load", source))
    };
    load(ebpf, TRIAL)?;
    let called = is_called(ebpf);
    lsm_program(ebpf, TRIAL.0)?.unload().map_err(|source| KernelError::program(TRIAL.0, "unload", source))?;
    if !called? {
        return Err(KernelError::Off(
            "LSM programs can be attached, and are not called: `bpf` is not among the active security modules"
                .to_owned(),
        ));
    }
    load(ebpf, FORKS)?;
    load(ebpf, EXECS)
}

fn is_called(ebpf: &mut Ebpf) -> Result<bool, KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: "LSM_TRIAL", doing, source };
    let map = ebpf.map_mut("LSM_TRIAL").ok_or(KernelError::Missing("LSM_TRIAL"))?;
    Array::<_, u32>::try_from(map)
        .and_then(|mut trial| trial.set(0, std::process::id(), 0))
        .map_err(failed("write"))?;
    let link = toggle(ebpf, TRIAL, None, true)?;
    let started = std::thread::Builder::new().spawn(|| ()).map_err(KernelError::Trial);
    // An empty thread has nothing to panic at.
    let ended = started.map(|thread| drop(thread.join()));
    toggle(ebpf, TRIAL, link, false)?;
    ended?;
    let map = ebpf.map("LSM_TRIAL").ok_or(KernelError::Missing("LSM_TRIAL"))?;
    let count = Array::<_, u32>::try_from(map).and_then(|trial| trial.get(&1, 0)).map_err(failed("read"))?;
    Ok(count > 0)
}
