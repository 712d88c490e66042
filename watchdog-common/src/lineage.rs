//! The value of the map of tracked processes: each child receives its parent's lineage inside the fork.

/// The descent of a tracked process. A pid alone is never an identity, so each pid has a start time beside it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct RawLineage {
    /// `start_boottime` of the session's root, in nanoseconds since boot.
    pub root_start: u64,
    /// `start_boottime` of the process that forked this one, in nanoseconds since boot; 0 when it is not known.
    pub parent_start: u64,
    /// tgid of the session's root.
    pub root: u32,
    /// tgid of the process that forked this one; 0 when it is not known. The present parent differs once that one has exited.
    pub parent: u32,
    /// Forks between the root (0) and this process.
    pub depth: u32,
    /// [`LineageFlags`], as bits.
    pub flags: u32,
}

/// The bits of [`RawLineage::flags`].
pub struct LineageFlags;

impl LineageFlags {
    /// Tracked by the kernel at exec because the file's name may be an agent's. Userspace confirms or drops it.
    pub const PROVISIONAL: u32 = 1 << 0;
    /// Tracked only for its exit (the session leader of an agent's terminal): children do not inherit.
    pub const WITNESS: u32 = 1 << 1;
    /// Has not called exec since its fork: it still shows its parent's name, and shares its memory copy-on-write.
    pub const FORKED: u32 = 1 << 3;
}

/// The value of the `TRACKED` map, keyed by tgid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct Tracked {
    /// Children inherit it, except the parent's identity, the depth and the flags.
    pub lineage: RawLineage,
    /// `start_boottime` of the process itself, in nanoseconds since boot.
    pub start: u64,
    /// `signal->maxrss` at the last exec, in pages. The kernel carries the peak of the image before the exec over into
    /// it (fs/exec.c, `exec_mmap`), so a peak at or below this value says nothing about the present program.
    pub inherited_peak: u64,
    /// The key in `GATED` of the session that counts the process; 0 for none. Children inherit it and are counted there too.
    /// It differs from that of the lineage's root for a moment when a process becomes a root itself.
    pub counted: u32,
    /// The user who is charged for the entry: that of the session's root when it was tracked. Children inherit it.
    pub uid: u32,
}

/// The account shared by users beyond the map's size. Not a valid uid: chown(2) takes it for "unchanged".
pub const SHARED_ACCOUNT: u32 = u32::MAX;

const _: () = assert!(size_of::<RawLineage>() == 32);
const _: () = assert!(size_of::<Tracked>() == 56);
