//! The maps of the programs, as userspace opens, reads and writes them.

use std::collections::HashSet;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use watchdog_common::{DeathRecord, LossCause, ReaderState, Tracked, name_hash};

use super::error::KernelError;

/// Flags of `bpf_map_update_elem` (include/uapi/linux/bpf.h).
pub(super) mod update {
    pub(crate) const NO_EXIST: u64 = 1;
    pub(crate) const EXIST: u64 = 2;
}

/// Deaths by tgid.
pub(super) type DeathMap = HashMap<MapData, u32, [u8; size_of::<DeathRecord>()]>;

/// The maps of tracking. Values are bytes: the types of the common crate do not implement aya's traits.
pub(super) struct TrackingMaps {
    pub(super) tracked: HashMap<MapData, u32, [u8; size_of::<Tracked>()]>,
    pub(super) candidates: HashMap<MapData, u64, u8>,
    pub(super) every_exec: Array<MapData, u32>,
    pub(super) dead: HashMap<MapData, u32, u64>,
    pub(super) lost: PerCpuArray<MapData, [u64; LossCause::SLOTS]>,
    pub(super) reader: Array<MapData, [u8; size_of::<ReaderState>()]>,
    pub(super) alive_at: Array<MapData, u64>,
    pub(super) root_deaths: DeathMap,
    pub(super) deaths: DeathMap,
    pub(super) death_count: PerCpuArray<MapData, u64>,
}

impl TrackingMaps {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            tracked: open(ebpf, "TRACKED", HashMap::try_from)?,
            candidates: open(ebpf, "CANDIDATES", HashMap::try_from)?,
            every_exec: open(ebpf, "TRACK_EVERY_EXEC", Array::try_from)?,
            dead: open(ebpf, "DEAD", HashMap::try_from)?,
            lost: open(ebpf, "LOST", PerCpuArray::try_from)?,
            reader: open(ebpf, "READER", Array::try_from)?,
            alive_at: open(ebpf, "ALIVE_AT", Array::try_from)?,
            root_deaths: open(ebpf, "ROOT_DEATHS", HashMap::try_from)?,
            deaths: open(ebpf, "DEATHS", HashMap::try_from)?,
            death_count: open(ebpf, "DEATH_COUNT", PerCpuArray::try_from)?,
        })
    }
}

pub(super) fn open<T>(
    ebpf: &mut Ebpf,
    name: &'static str,
    of: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, KernelError> {
    let map = ebpf.take_map(name).ok_or(KernelError::Missing(name))?;
    of(map).map_err(|source| KernelError::Map { map: name, doing: "open", source })
}

/// Replaces the names in a map; writes differences only.
pub(super) fn set_names(
    map: &mut HashMap<MapData, u64, u8>,
    name: &'static str,
    names: &[Vec<u8>],
) -> Result<(), KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: name, doing, source };
    let wanted: HashSet<u64> = names.iter().map(|name| name_hash(name)).collect();
    let present: HashSet<u64> = map.keys().collect::<Result<_, _>>().map_err(failed("read"))?;
    for &name in wanted.difference(&present) {
        map.insert(name, 1, 0).map_err(failed("write"))?;
    }
    for name in present.difference(&wanted) {
        map.remove(name).map_err(failed("write"))?;
    }
    Ok(())
}

pub(super) fn bytes_of(entry: &Tracked) -> [u8; size_of::<Tracked>()] {
    zerocopy::transmute!(*entry)
}

pub(super) fn is_missing(error: &MapError) -> bool {
    matches!(error, MapError::KeyNotFound | MapError::ElementNotFound) || is_errno(error, libc::ENOENT)
}

pub(super) fn is_errno(error: &MapError, errno: i32) -> bool {
    matches!(error, MapError::SyscallError(call) if call.io_error.raw_os_error() == Some(errno))
}

pub(super) fn reading(source: MapError) -> KernelError {
    KernelError::Map { map: "TRACKED", doing: "read", source }
}

pub(super) fn writing(source: MapError) -> KernelError {
    KernelError::Map { map: "TRACKED", doing: "write", source }
}
