//! Reads the kernel's type information: the offset of a member, the number of arguments of a tracepoint.
//!
//! aya's `Btf` does not expose members, and parses everything in 45 ms and 25 MB; this reads only what is requested.
//! The format is described in the kernel's Documentation/bpf/btf.rst.

use std::path::{Path, PathBuf};

use zerocopy::{FromBytes, Immutable, KnownLayout};

pub(super) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Why the kernel's types could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// Mostly because the kernel was built without CONFIG_DEBUG_INFO_BTF.
    #[error("cannot read the kernel's types from {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the kernel's types are not valid BTF: {0}")]
    Malformed(&'static str),
    #[error("the kernel has no type `{0}`")]
    NoType(String),
    #[error("the kernel's `{structure}` has no member `{member}`")]
    NoMember { structure: String, member: String },
}

pub(super) struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// The byte offset in `types` of each type. Its position is the id less 1: id 0 is `void`.
    index: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BtfMember {
    /// In bytes, from the start of the structure.
    pub offset: u32,
    pub type_id: TypeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeId(u32);

/// `struct btf_header` (include/uapi/linux/btf.h).
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FileHeader {
    magic: u16,
    version: u8,
    flags: u8,
    header_len: u32,
    types_offset: u32,
    types_len: u32,
    strings_offset: u32,
    strings_len: u32,
}

/// `struct btf_type`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawType {
    name: u32,
    info: u32,
    /// The size of a structure, or the type that a modifier, pointer or typedef refers to.
    size_or_type: u32,
}

/// `struct btf_member`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawMember {
    name: u32,
    type_id: u32,
    /// Bits from the start; with the structure's kind flag the upper 8 bits are the size of a bit field.
    offset: u32,
}

/// `struct btf_array`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawArray {
    element: u32,
    index: u32,
    count: u32,
}

const MAGIC: u16 = 0xeb9f;

/// `BTF_KIND_*`, as far as used here.
mod kind {
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const TYPE_TAG: u32 = 18;
}

impl RawType {
    fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    fn len(self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn has_bit_fields(self) -> bool {
        self.info >> 31 == 1
    }

    /// Bytes that follow the fixed part; `None` for an unknown kind, whose length is unknown too.
    fn trailing_bytes(self) -> Option<usize> {
        Some(match self.kind() {
            // INT, VAR, DECL_TAG
            1 | 14 | 17 => 4,
            kind::ARRAY => size_of::<RawArray>(),
            // STRUCT, UNION, DATASEC, ENUM64
            kind::STRUCT | kind::UNION | 15 | 19 => 12 * self.len(),
            // ENUM, FUNC_PROTO
            6 | kind::FUNC_PROTO => 8 * self.len(),
            // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

impl Btf {
    /// Cost: some 6 MB and 15 ms.
    pub(super) fn of_running_kernel() -> Result<Self, BtfError> {
        Self::from_file(Path::new(VMLINUX))
    }

    pub(super) fn from_file(path: &Path) -> Result<Self, BtfError> {
        let bytes = std::fs::read(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        let (header, _) =
            FileHeader::read_from_prefix(bytes).map_err(|_| BtfError::Malformed("shorter than a header"))?;
        if header.magic != MAGIC {
            return Err(BtfError::Malformed("no magic number, or a foreign byte order"));
        }
        let section = |offset: u32, len: u32| {
            let start = header.header_len as usize + offset as usize;
            bytes.get(start..start + len as usize).ok_or(BtfError::Malformed("a section reaches beyond the end"))
        };
        let types = section(header.types_offset, header.types_len)?.to_vec();
        let strings = section(header.strings_offset, header.strings_len)?.to_vec();

        let mut index = Vec::new();
        let mut at = 0;
        while at < types.len() {
            let raw = read_at::<RawType>(&types, at).ok_or(BtfError::Malformed("a truncated type"))?;
            index.push(u32::try_from(at).map_err(|_| BtfError::Malformed("larger than 4 GiB"))?);
            let trailing = raw.trailing_bytes().ok_or(BtfError::Malformed("an unknown kind of type"))?;
            at += size_of::<RawType>() + trailing;
        }
        Ok(Self { types, strings, index })
    }

    pub(super) fn structure(&self, name: &str) -> Result<TypeId, BtfError> {
        self.find(kind::STRUCT, name).ok_or_else(|| BtfError::NoType(format!("struct {name}")))
    }

    /// A member of a structure or of one of its anonymous members.
    pub(super) fn member(&self, structure: TypeId, name: &str) -> Result<BtfMember, BtfError> {
        self.search_member(structure, name, 0).ok_or_else(|| BtfError::NoMember {
            structure: self.raw(structure).map(|raw| self.string(raw.name).to_owned()).unwrap_or_default(),
            member: name.to_owned(),
        })
    }

    /// The element type and size of an array of structures; `None` for any other type.
    #[must_use]
    pub(super) fn array_element(&self, array: TypeId) -> Option<(TypeId, u32)> {
        let array = self.resolve(array)?;
        if self.raw(array)?.kind() != kind::ARRAY {
            return None;
        }
        let element = self.resolve(TypeId(self.trailing::<RawArray>(array, 0)?.element))?;
        let raw = self.raw(element)?;
        matches!(raw.kind(), kind::STRUCT | kind::UNION).then_some((element, raw.size_or_type))
    }

    /// Whether the kernel has a per-CPU variable of this name. Other variables have no BTF.
    #[must_use]
    pub(super) fn has_variable(&self, name: &str) -> bool {
        self.find(kind::VAR, name).is_some()
    }

    /// The number of arguments that a BTF tracepoint passes to a program; `None` when this kernel has no such tracepoint.
    ///
    /// `btf_trace_NAME` is a typedef of a pointer to a function whose first parameter is the tracepoint's own.
    #[must_use]
    pub(super) fn tracepoint_arity(&self, tracepoint: &str) -> Option<usize> {
        let typedef = self.find(kind::TYPEDEF, &format!("btf_trace_{tracepoint}"))?;
        let pointer = self.resolve(typedef)?;
        let raw = self.raw(pointer)?;
        if raw.kind() != kind::PTR {
            return None;
        }
        let function = self.raw(self.resolve(TypeId(raw.size_or_type))?)?;
        (function.kind() == kind::FUNC_PROTO).then(|| function.len().saturating_sub(1))
    }

    fn find(&self, kind: u32, name: &str) -> Option<TypeId> {
        let at = self.index.iter().position(|&at| {
            read_at::<RawType>(&self.types, at as usize)
                .is_some_and(|raw| raw.kind() == kind && self.string(raw.name) == name)
        })?;
        Some(TypeId(u32::try_from(at).ok()? + 1))
    }

    fn search_member(&self, structure: TypeId, name: &str, depth: u32) -> Option<BtfMember> {
        /// Anonymous structures nest four deep at most in today's kernels; a loop in broken BTF must end.
        const DEEPEST: u32 = 16;
        let raw = self.raw(structure)?;
        if depth > DEEPEST || !matches!(raw.kind(), kind::STRUCT | kind::UNION) {
            return None;
        }
        for i in 0..raw.len() {
            let member = self.trailing::<RawMember>(structure, i)?;
            let bits = if raw.has_bit_fields() { member.offset & 0x00ff_ffff } else { member.offset };
            let (offset, type_id) = (bits / 8, self.resolve(TypeId(member.type_id))?);
            let found = self.string(member.name);
            if found == name {
                return Some(BtfMember { offset, type_id });
            }
            if found.is_empty()
                && let Some(inner) = self.search_member(type_id, name, depth + 1)
            {
                return Some(BtfMember { offset: offset.checked_add(inner.offset)?, type_id: inner.type_id });
            }
        }
        None
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, mut id: TypeId) -> Option<TypeId> {
        /// Typedefs of typedefs are shorter than this; a loop in broken BTF must end.
        const LONGEST: usize = 32;
        for _ in 0..LONGEST {
            if id.0 == 0 {
                return Some(id);
            }
            let raw = self.raw(id)?;
            match raw.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = TypeId(raw.size_or_type);
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn raw(&self, id: TypeId) -> Option<RawType> {
        read_at(&self.types, self.position(id)?)
    }

    /// Item `i` of the list that follows a type.
    fn trailing<T: FromBytes>(&self, id: TypeId, i: usize) -> Option<T> {
        read_at(&self.types, self.position(id)? + size_of::<RawType>() + i * size_of::<T>())
    }

    fn position(&self, id: TypeId) -> Option<usize> {
        self.index.get((id.0 as usize).checked_sub(1)?).map(|&at| at as usize)
    }

    /// The string at `offset`; empty when it is none.
    fn string(&self, offset: u32) -> &str {
        let bytes = self.strings.get(offset as usize..).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }
}

fn read_at<T: FromBytes>(bytes: &[u8], at: usize) -> Option<T> {
    T::read_from_prefix(bytes.get(at..)?).ok().map(|(value, _)| value)
}

#[cfg(test)]
mod tests;
