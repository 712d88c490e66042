//! Every map, with its size and why.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use watchdog_common::{
    ARGV_MAX, DeathRecord, ExecRecord, FileId, GatedSession, LoadSettings, LossCause, PATH_MAX, ReaderState,
    RecountRequest, Tracked,
};

/// Tracked processes, by tgid: 56 bytes of value and some 60 of overhead each.
///
/// Preallocated, so that an insert in a fork fails only when the map is full (which is counted), never for lack of memory.
/// Userspace sets the size at load: `[tracking] max_processes`. A freed element may be reused at once, so every
/// reader compares the start of the process before it uses an entry.
#[map]
pub static TRACKED: HashMap<u32, Tracked> = HashMap::with_max_entries(65_536, 0);

/// Zombies: the start of each tracked process that has exited, by tgid. When it is full, the least recently used entry is
/// dropped: that process is no longer shown as a zombie.
#[map]
pub static DEAD: LruHashMap<u32, u64> = LruHashMap::with_max_entries(4_096, 0);

/// In a pid namespace: the pid there of each process in [`DEAD`], by its pid in the initial namespace. A process that is freed has only
/// the latter. Userspace sets the size at load: one entry in the initial namespace, which needs none.
#[map]
pub static FREED_AS: LruHashMap<u32, u32> = LruHashMap::with_max_entries(4_096, 0);

/// Entries in [`TRACKED`]: those that the programs added less those that they removed (slot 0), and the same of the daemon
/// (slot 1).
#[map]
pub static ENTRY_COUNT: Array<i64> = Array::with_max_entries(2, 0);

/// As slot 0 of [`ENTRY_COUNT`], by the user who is charged. Root is not in it. When it is full, further users share
/// [`watchdog_common::SHARED_ACCOUNT`], which userspace inserts at load.
#[map]
pub static CHARGED: HashMap<u32, i64> = HashMap::with_max_entries(4_096, 0);

/// As slot 1 of [`ENTRY_COUNT`], by user.
#[map]
pub static CHARGED_BY_DAEMON: HashMap<u32, i64> = HashMap::with_max_entries(4_096, 0);

/// Names of possible agents, as [`watchdog_common::name_hash`]; the value is unused. A few dozen are usual.
#[map]
pub static CANDIDATES: HashMap<u64, u8> = HashMap::with_max_entries(4_096, 0);

/// A switch: nonzero when every exec of an untracked process is a possible agent's. A map, not a constant, because a
/// reload may change it while the programs run.
#[map]
pub static TRACK_EVERY_EXEC: Array<u32> = Array::with_max_entries(1, 0);

/// Gated sessions with their living processes, by a number that is never reused: 32 bytes of value. A host runs out of
/// memory for sessions before this map is full.
#[map]
pub static GATED: HashMap<u32, GatedSession> = HashMap::with_max_entries(4_096, 0);

/// What the next read of `recount` does.
#[map]
pub static RECOUNT: Array<RecountRequest> = Array::with_max_entries(1, 0);

/// Names of agents that must not start past the gate, as [`watchdog_common::name_hash`]; the value is unused.
#[map]
pub static DENIED: HashMap<u64, u8> = HashMap::with_max_entries(4_096, 0);

/// Files of agents that must not start past the gate, under any name; their generation is 0 where userspace
/// does not know it. A few files for each name are usual.
#[map]
pub static DENIED_FILES: HashMap<FileId, u8> = HashMap::with_max_entries(4_096, 0);

/// Files that were executed while their only name was in [`DENIED`]: they are denied under each later name. An inode
/// that is reused has another generation, so it is another file.
#[map]
pub static SEEN_DENIED: LruHashMap<FileId, u8> = LruHashMap::with_max_entries(1_024, 0);

/// A switch: nonzero when programs in [`DENIED`] are killed at their exec. Stays 0 where an LSM program refuses
/// the exec instead.
#[map]
pub static KILL_DENIED: Array<u32> = Array::with_max_entries(1, 0);

/// The trial of LSM programs: the process whose new threads are counted (slot 0), and the count (slot 1).
#[map]
pub static LSM_TRIAL: Array<u32> = Array::with_max_entries(2, 0);

/// fork, exec, exit, signals, refusals and the OOM killer: room for about 4,000 forks or 750 execs.
///
/// The daemon maps each page of a ring twice, and both count as its memory, so this is as large as its budget allows on a host
/// with two CPUs. The loader enlarges it on larger hosts.
#[map]
pub static LIFECYCLE: RingBuf = RingBuf::with_byte_size(512 << 10, 0);

/// Memory steps and reclaim in close watch: about 900 records. A separate ring, so that a burst of them cannot displace a
/// fork or an exit.
#[map]
pub static MEMORY: RingBuf = RingBuf::with_byte_size(64 << 10, 0);

/// The reader of the lifecycle ring needs no notice of a record before this moment: CLOCK_BOOTTIME, nanoseconds. Written by
/// the reader, which looks into the ring then.
#[map]
pub static LIFECYCLE_QUIET: Array<u64> = Array::with_max_entries(1, 0);

/// The same for the memory ring.
#[map]
pub static MEMORY_QUIET: Array<u64> = Array::with_max_entries(1, 0);

/// Lost records, per CPU, by the slots of [`LossCause`]: one value, so that userspace reads it in one call.
#[map]
pub static LOST: PerCpuArray<[u64; LossCause::SLOTS]> = PerCpuArray::with_max_entries(1, 0);

/// The start of the last child for which [`TRACKED`] had no room, per CPU: the second program on fork must not count it again.
#[map]
pub static LAST_REFUSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Deaths of session roots, by tgid: 112 bytes of value. Read by a daemon at its start. When it is full, the least recently used
/// entries are dropped. The loader makes room for 256 for each CPU if that is more.
#[map]
pub static ROOT_DEATHS: LruHashMap<u32, DeathRecord> = LruHashMap::with_max_entries(1_024, 0);

/// Deaths of other tracked processes that lived for a second, or that a signal killed while the ring was full. A separate map,
/// so that helpers cannot displace a root.
#[map]
pub static DEATHS: LruHashMap<u32, DeathRecord> = LruHashMap::with_max_entries(4_096, 0);

/// Inserts into [`DEATHS`], per CPU: those beyond its size were dropped.
#[map]
pub static DEATH_COUNT: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The last heartbeat of a daemon: CLOCK_BOOTTIME, nanoseconds; 0 before the first.
#[map]
pub static ALIVE_AT: Array<u64> = Array::with_max_entries(1, 0);

/// How far the last daemon had read.
#[map]
pub static READER: Array<ReaderState> = Array::with_max_entries(1, 0);

/// Where an exec's record is assembled: it is too large for the 512 bytes of stack. One per CPU, and claimed: see
/// `scratch`.
#[map]
pub static SCRATCH: PerCpuArray<ExecScratch> = PerCpuArray::with_max_entries(1, 0);

/// Close watch: pages (anonymous, shmem, swap) that were last reported, by tgid. When it is full, the least recently used entry
/// is dropped: that process's next fault reports again.
#[map]
pub static LAST_STEP: LruHashMap<u32, i64> = LruHashMap::with_max_entries(8_192, 0);

/// Close watch: when a thread entered direct reclaim, by tid. Only as many threads reclaim at once as the host can run
/// or block on writeback.
#[map]
pub static RECLAIM_START: LruHashMap<u32, u64> = LruHashMap::with_max_entries(1_024, 0);

/// How many pid namespaces lie around the daemon's own. Written by `own_level`, before any program is attached.
#[map]
pub static NAMESPACE_LEVEL: Array<u32> = Array::with_max_entries(1, 0);

#[unsafe(no_mangle)]
pub static SETTINGS: LoadSettings =
    LoadSettings { memory_step_pages: 1_024, max_processes: 65_536, pid_namespace: 0, reserved: 0, boottime_offset: 0 };

/// The largest record of an exec.
#[repr(C)]
pub struct ExecScratch {
    /// Nonzero while a program uses it.
    pub claimed: u64,
    pub record: ExecRecord,
    /// The path, directly followed by argv. Larger than both, so that a mask bounds each length.
    pub text: [u8; PATH_MAX + ARGV_MAX.next_power_of_two()],
}
