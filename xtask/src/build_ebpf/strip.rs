//! Removes machine-specific data from the object.
//!
//! These are the debug information, from which BTF was made and which is four fifths of the object, and mangled names,
//! which contain a hash of the source path.

use anyhow::Context;
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

/// The object without DWARF sections and their relocations, and with numbers for the names of functions that are not
/// programs.
pub(super) fn to_essentials(object: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::read(object).context("bpf-linker did not write an ELF file")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        if name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") {
            section.delete = true;
        }
    }
    builder.delete_orphans();
    for (number, symbol) in builder.symbols.iter_mut().filter(|symbol| symbol.name.starts_with(b"_R")).enumerate() {
        symbol.name = format!("function_{number}").into_bytes().into();
    }
    // LLVM stores the names of sections and symbols in one table, this writer in two.
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped).context("cannot write the object without debug information")?;
    Ok(stripped)
}
