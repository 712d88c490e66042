//! Modules of Debian's kernels for the guests: zram, which swap in a guest needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// With what it depends on, the module of a guest.
const WANTED: &str = "zram";
/// Its default compressor, which it finds by name. From Linux 6.12 on, zram contains one.
const COMPRESSOR: &str = "lzo_rle";
/// In the root of a package's files; in newer packages the second.
const DIRECTORIES: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// Decompresses the modules of an unpacked kernel package into `directory`: `RELEASE/NN-NAME.ko`, in the order in which they
/// must be loaded.
///
/// # Errors
/// When the package has no such modules, or xz is missing.
pub(super) fn extract(unpacked: &Path, directory: &Path) -> Result<()> {
    let releases = DIRECTORIES.map(|directory| unpacked.join(directory));
    let releases = releases.into_iter().find(|releases| releases.exists());
    let releases = releases.with_context(|| format!("{} has no modules", unpacked.display()))?;
    let release = entries(&releases)?.into_iter().next().with_context(|| format!("{} is empty", releases.display()))?;
    let target = directory.join(release.file_name().unwrap_or_default());
    fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
    let mut loaded = Vec::new();
    if find(&release, COMPRESSOR)?.is_some() {
        load(COMPRESSOR, &release, &mut loaded)?;
    }
    load(WANTED, &release, &mut loaded)?;
    for (at, (name, content)) in loaded.iter().enumerate() {
        let file = target.join(format!("{at:02}-{name}.ko"));
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Path in the guest without the first slash, and the file, of all modules in `directory`; none without it.
///
/// # Errors
/// When a directory cannot be listed.
pub(crate) fn files(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for release in entries(directory)? {
        for module in entries(&release)? {
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("guest/modules/{}/{}", name(&release), name(&module)), module));
        }
    }
    Ok(files)
}

/// Appends a module, after those that it depends on.
fn load(name: &str, release: &Path, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    if loaded.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let file = find(release, name)?.with_context(|| format!("{} has no module {name}", release.display()))?;
    let content = decompress(&file)?;
    for dependency in depends(&content) {
        load(&dependency, release, loaded)?;
    }
    loaded.push((name.to_owned(), content));
    Ok(())
}

/// The names in `depends=` of a module's .modinfo.
fn depends(module: &[u8]) -> Vec<String> {
    let list = module.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A module's file. Names have underscores, and files either those or hyphens.
fn find(directory: &Path, name: &str) -> Result<Option<PathBuf>> {
    for path in entries(directory)? {
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
            continue;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        if file.strip_prefix(name).is_some_and(|ending| [".ko", ".ko.xz"].contains(&ending)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn decompress(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_some_and(|ending| ending == "ko") {
        return fs::read(file).with_context(|| format!("reading {}", file.display()));
    }
    let done = Command::new("xz").args(["--decompress", "--stdout"]).arg(file).output();
    let done = done.context("running xz: on Debian, apt-get install xz-utils")?;
    if !done.status.success() {
        bail!("xz of {}: {}", file.display(), done.status);
    }
    Ok(done.stdout)
}

/// Sorted by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    let mut paths = listed
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(|| format!("listing {}", directory.display()))?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first() {
        let unpacked = tempfile::tempdir().unwrap();
        let release = unpacked.path().join(DIRECTORIES[0]).join("6.1.0");
        for (path, content) in [
            ("kernel/drivers/block/zram.ko", "\0depends=zsmalloc,lz4_compress\0name=zram\0"),
            ("kernel/mm/zsmalloc.ko", "\0depends=\0"),
            ("kernel/lib/lz4-compress.ko", "\0depends=zsmalloc\0"),
            ("kernel/crypto/lzo-rle.ko", "\0depends=\0"),
        ] {
            let file = release.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let to = tempfile::tempdir().unwrap();
        extract(unpacked.path(), to.path()).unwrap();
        let names: Vec<String> = files(to.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        let expected = ["00-lzo_rle.ko", "01-zsmalloc.ko", "02-lz4_compress.ko", "03-zram.ko"];
        assert_eq!(names, expected.map(|name| format!("guest/modules/6.1.0/{name}")));
        assert!(files(&to.path().join("missing")).unwrap().is_empty());
    }
}
