//! Names and files of agents that must not start past the gate, as the maps of the programs hold them.

use std::collections::BTreeSet;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::lsm::LsmLinkId;
use watchdog_common::FileId;

use super::error::KernelError;
use super::maps::{is_missing, open, set_names};

type FileMap = HashMap<MapData, [u8; size_of::<FileId>()], u8>;

pub(super) struct DeniedFileTable {
    denied: HashMap<MapData, u64, u8>,
    denied_files: FileMap,
    seen_denied: FileMap,
    kill_denied: Array<MapData, u32>,
    names: Vec<Vec<u8>>,
    /// The attached program that refuses execs.
    pub(super) exec_link: Option<LsmLinkId>,
}

impl DeniedFileTable {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            denied: open(ebpf, "DENIED", HashMap::try_from)?,
            denied_files: open(ebpf, "DENIED_FILES", HashMap::try_from)?,
            seen_denied: open(ebpf, "SEEN_DENIED", HashMap::try_from)?,
            kill_denied: open(ebpf, "KILL_DENIED", Array::try_from)?,
            names: Vec::new(),
            exec_link: None,
        })
    }

    /// Replaces the names. Files that were denied for an earlier name are forgotten.
    pub(super) fn set_names(&mut self, names: &[Vec<u8>]) -> Result<(), KernelError> {
        set_names(&mut self.denied, "DENIED", names)?;
        if self.names != names {
            self.names = names.to_vec();
            set_files(&mut self.seen_denied, "SEEN_DENIED", &BTreeSet::new())?;
        }
        Ok(())
    }

    pub(super) fn set_files(&mut self, files: &BTreeSet<FileId>) -> Result<(), KernelError> {
        set_files(&mut self.denied_files, "DENIED_FILES", files)
    }

    /// Whether the program on exec kills denied programs.
    pub(super) fn set_kill(&mut self, on: bool) -> Result<(), KernelError> {
        let failed = |source| KernelError::Map { map: "KILL_DENIED", doing: "write", source };
        self.kill_denied.set(0, u32::from(on), 0).map_err(failed)
    }
}

fn set_files(map: &mut FileMap, name: &'static str, files: &BTreeSet<FileId>) -> Result<(), KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: name, doing, source };
    let present: Vec<[u8; size_of::<FileId>()]> = map.keys().collect::<Result<_, _>>().map_err(failed("read"))?;
    let known = |key: &[u8; size_of::<FileId>()]| -> FileId { zerocopy::transmute!(*key) };
    for key in present.iter().filter(|key| !files.contains(&known(key))) {
        match map.remove(key) {
            // An LRU map may have dropped it meanwhile.
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
