//! Python for the guests: tests use it for what a shell cannot do, such as threads and overwritten arguments.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::output::output;

/// The path that the tests use, on the host and in a guest.
const PYTHON: &str = "/usr/bin/python3";

/// Large parts of the standard library that no test imports.
const LEFT_OUT: &[&str] =
    &["ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages", "test", "turtledemo"];

/// Copies this machine's Python, the libraries that it is linked to, and its standard library to the guest's root.
///
/// # Errors
/// When Python is missing, or a file cannot be copied.
pub(crate) fn copy(root: &Path) -> Result<()> {
    let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let library =
        output(Command::new(PYTHON).args(["-I", "-c", script])).context("on Debian, apt-get install python3")?;
    let library = PathBuf::from(library.trim_end());

    copy_file(Path::new(PYTHON), root)?;
    let mut linked = vec![PathBuf::from(PYTHON)];
    let mut directories = vec![library];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if LEFT_OUT.contains(&&*name) || name.starts_with("config-") {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if name.ends_with(".so") {
                linked.push(path.clone());
            }
            copy_file(&path, root)?;
        }
    }
    let libraries = output(Command::new("ldd").args(&linked))?;
    // "	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)", and the loader without an arrow.
    let mut libraries: Vec<&str> = libraries.split_whitespace().filter(|word| word.starts_with('/')).collect();
    // The names of the files asked about stand there too, each before its list: "/usr/bin/python3:".
    libraries.retain(|path| !path.ends_with(':'));
    libraries.sort_unstable();
    libraries.dedup();
    libraries.into_iter().try_for_each(|library| copy_file(Path::new(library), root))
}

/// Copies a file to the same path under `root`.
fn copy_file(path: &Path, root: &Path) -> Result<()> {
    let to = root.join(path.strip_prefix("/").unwrap_or(path));
    if let Some(directory) = to.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    std::fs::copy(path, &to).with_context(|| format!("copying {} to {}", path.display(), to.display()))?;
    Ok(())
}
