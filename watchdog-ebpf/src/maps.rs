//! Every map, with its size and why.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use watchdog_common::{
    ARGV_MAX, DeathRecord, ExecRecord, FileId, Gated, LossCause, PATH_MAX, Reader, Recount, Settings, Tracked,
};

/// Who is tracked, by tgid: 56 bytes of value and some 60 of overhead each.
///
/// Preallocated, so that an insert in a fork cannot fail for want of memory, only for want of room (which is counted).
/// Userspace sets the size at load: `[tracking] max_processes`. A freed element may be used again at once, so every
/// reader compares the start of the process before it believes an entry.
#[map]
pub static TRACKED: HashMap<u32, Tracked> = HashMap::with_max_entries(65_536, 0);

/// Zombies: when each tracked process that has exited started, by tgid. Least recently used entries fall out: what is lost is
/// that the process is shown as a zombie.
#[map]
pub static DEAD: LruHashMap<u32, u64> = LruHashMap::with_max_entries(4_096, 0);

/// Entries of [`TRACKED`]: those that programs added less those that they removed, and (slot 1) the same of the daemon.
#[map]
pub static HELD: Array<i64> = Array::with_max_entries(2, 0);

/// As the first slot of [`HELD`], by the user to whom the entries are charged. Root is not in it; users for whom there is no room
/// share [`watchdog_common::SHARED_ACCOUNT`], which userspace inserts at load.
#[map]
pub static CHARGED: HashMap<u32, i64> = HashMap::with_max_entries(4_096, 0);

/// As the second slot of [`HELD`], by user.
#[map]
pub static CHARGED_BY_DAEMON: HashMap<u32, i64> = HashMap::with_max_entries(4_096, 0);

/// Names of possible agents, as [`watchdog_common::name_hash`]; the value is not used. A few dozen names are the rule.
#[map]
pub static CANDIDATES: HashMap<u64, u8> = HashMap::with_max_entries(4_096, 0);

/// One switch: not 0 when every exec of an untracked process is a possible agent. A map rather than a constant because a
/// new configuration may change it while the programs run.
#[map]
pub static TRACK_EVERY_EXEC: Array<u32> = Array::with_max_entries(1, 0);

/// Gated sessions with what lives of them, by a number that no other session ever has: 32 bytes of value. A host has memory
/// for fewer sessions than there is room for here.
#[map]
pub static GATED: HashMap<u32, Gated> = HashMap::with_max_entries(4_096, 0);

/// What `recount` is to do when it is read next.
#[map]
pub static RECOUNT: Array<Recount> = Array::with_max_entries(1, 0);

/// Names of agents that are not let start past the gate, as [`watchdog_common::name_hash`]; the value is not used.
#[map]
pub static DENIED: HashMap<u64, u8> = HashMap::with_max_entries(4_096, 0);

/// Files that are agents which are not let start past the gate, whatever they are called; their generation is 0 where userspace
/// does not know it. A few files for each name are the rule.
#[map]
pub static DENIED_FILES: HashMap<FileId, u8> = HashMap::with_max_entries(4_096, 0);

/// Files that were executed while they had one of the names in [`DENIED`], and no other: they are denied under each later
/// name. A generation belongs to one file for ever, so an inode that is used again is another file.
#[map]
pub static SEEN_DENIED: LruHashMap<FileId, u8> = LruHashMap::with_max_entries(1_024, 0);

/// One switch: not 0 when what is in [`DENIED`] is killed as it comes out of its exec. Stays 0 where an LSM program refuses
/// the exec instead.
#[map]
pub static KILL_DENIED: Array<u32> = Array::with_max_entries(1, 0);

/// Whether LSM programs work here: the process whose next thread is to be counted (slot 0), and the count (slot 1).
#[map]
pub static LSM_TRIAL: Array<u32> = Array::with_max_entries(2, 0);

/// fork, exec, exit, signals, refusals and the OOM killer: about 4,000 forks or 750 execs before anything is lost.
///
/// The daemon maps each page of a ring twice, and both count as its memory, so this is as large as its budget allows on a host
/// with two CPUs. Userspace makes it larger where there are more.
#[map]
pub static LIFECYCLE: RingBuf = RingBuf::with_byte_size(512 << 10, 0);

/// Steps of memory and reclaim in close watch: about 900 records. A ring of their own, so that a burst of memory cannot
/// push out a fork or an exit.
#[map]
pub static MEMORY: RingBuf = RingBuf::with_byte_size(64 << 10, 0);

/// When the reader of each ring was last told that there is something: CLOCK_BOOTTIME, nanoseconds.
#[map]
pub static LAST_NOTICE: Array<u64> = Array::with_max_entries(2, 0);

/// Records that found no room, per CPU, by the slots of [`LossCause`]: one value, so that userspace reads it in one call.
#[map]
pub static LOST: PerCpuArray<[u64; LossCause::SLOTS]> = PerCpuArray::with_max_entries(1, 0);

/// When the last child started that found no room in [`TRACKED`], per CPU: the second program on fork does not count it again.
#[map]
pub static LAST_REFUSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Deaths of session roots, by tgid: 112 bytes of value. Read by the next daemon after one that was down. Least recently used
/// entries are dropped. The loader makes room for 256 for each CPU if that is more.
#[map]
pub static ROOT_DEATHS: LruHashMap<u32, DeathRecord> = LruHashMap::with_max_entries(1_024, 0);

/// Deaths of all other tracked processes that lived for a while, or that a signal ended while the ring was full, in a map of
/// their own so that helpers cannot push out a root.
#[map]
pub static DEATHS: LruHashMap<u32, DeathRecord> = LruHashMap::with_max_entries(4_096, 0);

/// Deaths that were put into [`DEATHS`], per CPU: more than it holds were dropped from it.
#[map]
pub static DEATH_COUNT: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// When a daemon last said that it runs: CLOCK_BOOTTIME, nanoseconds. 0 before the first time.
#[map]
pub static ALIVE_AT: Array<u64> = Array::with_max_entries(1, 0);

/// What the last daemon had seen.
#[map]
pub static READER: Array<Reader> = Array::with_max_entries(1, 0);

/// Where an exec's record is put together: it is too large for the 512 bytes of stack. One per CPU, and claimed: see
/// [`scratch`](crate::scratch).
#[map]
pub static SCRATCH: PerCpuArray<ExecScratch> = PerCpuArray::with_max_entries(1, 0);

/// Close watch: pages (anonymous, shmem, swap) that were last reported, by tgid. Least recently used entries fall out:
/// what is lost is a threshold, and the next fault reports again.
#[map]
pub static LAST_STEP: LruHashMap<u32, i64> = LruHashMap::with_max_entries(8_192, 0);

/// Close watch: when a thread went into direct reclaim, by tid. Only as many threads reclaim at once as the host can run
/// or block on writeback.
#[map]
pub static RECLAIM_START: LruHashMap<u32, u64> = LruHashMap::with_max_entries(1_024, 0);

/// What userspace decides at load time.
#[unsafe(no_mangle)]
pub static SETTINGS: Settings = Settings { memory_step_pages: 1_024, max_processes: 65_536 };

/// The largest record of an exec.
#[repr(C)]
pub struct ExecScratch {
    /// Not 0 while a program uses it.
    pub claimed: u64,
    /// The fixed part.
    pub record: ExecRecord,
    /// The path, then argv directly behind it. Larger than both, so that a mask bounds each of their lengths.
    pub text: [u8; PATH_MAX + ARGV_MAX.next_power_of_two()],
}
