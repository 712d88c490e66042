//! `build-ebpf`: builds the kernel programs into the object that the daemon carries, and stamps it.
//!
//! The object is committed, so that building the daemon takes a stable toolchain and nothing else. The stamp beside it
//! says from which sources and by which tools it was made; `--check` tells when it is stale.

mod sources;
mod stamp;
mod strip;
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use self::stamp::Stamp;
use self::toolchain::Toolchain;

/// What is asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail when the committed object was made from other sources; and, when this machine has the tools
    /// that made it, build it again and fail when it comes out differently.
    #[arg(long)]
    check: bool,
}

/// Builds or checks.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = repository()?;
    let prebuilt = root.join("watchdog-ebpf/prebuilt");
    let (object, stamp) = (prebuilt.join("watchdog.bpf.o"), prebuilt.join("watchdog.bpf.stamp"));
    let sources = sources::digest(&root)?;
    if options.check { check(&root, &object, &stamp, sources) } else { build(&root, &object, &stamp, sources) }
}

fn build(root: &Path, object: &Path, stamp: &Path, sources: String) -> anyhow::Result<()> {
    let toolchain = Toolchain::find(root)?;
    println!("building the kernel programs with {toolchain}");
    let bytes = strip::to_essentials(&toolchain.build(root)?)?;
    std::fs::create_dir_all(object.parent().unwrap_or(root)).context("cannot create the directory of the object")?;
    std::fs::write(object, &bytes).with_context(|| format!("cannot write {}", object.display()))?;
    Stamp { sources, object: sources::digest_bytes(&bytes), tools: toolchain.tools }.write(stamp)?;
    println!("wrote {} ({} bytes) and its stamp", object.display(), bytes.len());
    Ok(())
}

fn check(root: &Path, object: &Path, stamp: &Path, sources: String) -> anyhow::Result<()> {
    let committed = Stamp::read(stamp)?;
    let bytes = std::fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    ensure!(
        committed.object == sources::digest_bytes(&bytes),
        "the committed object is not the one that its stamp speaks of: run `cargo xtask build-ebpf`"
    );
    ensure!(
        committed.sources == sources,
        "the committed object was made from other sources than these: run `cargo xtask build-ebpf` and commit the result"
    );
    println!("the committed object belongs to these sources");

    let toolchain = match Toolchain::find(root) {
        Ok(toolchain) if toolchain.tools == committed.tools => toolchain,
        Ok(toolchain) => {
            println!("not built again: it was made by {}, and here are {}", committed.tools, toolchain.tools);
            return Ok(());
        }
        Err(missing) => {
            println!("not built again: {missing}");
            return Ok(());
        }
    };
    let rebuilt = strip::to_essentials(&toolchain.build(root)?)?;
    if rebuilt != bytes {
        bail!(
            "the same tools make another object of these sources: run `cargo xtask build-ebpf` and commit the result"
        );
    }
    println!("built again with {toolchain}: the same object, byte for byte");
    Ok(())
}

fn repository() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest.parent().context("xtask lies in the repository")?.to_owned())
}
