//! `cargo xtask build-ebpf`: builds the object with the kernel programs that the daemon embeds, and its stamp.
//!
//! The object is committed, so that the daemon builds with a stable toolchain alone. The stamp beside it has hashes of the
//! sources and versions of the tools; `--check` finds a stale object.

mod sources;
mod stamp;
mod strip;
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use self::stamp::Stamp;
use self::toolchain::Toolchain;

#[derive(clap::Args)]
pub(crate) struct BuildEbpfOptions {
    /// Write nothing: fail when the committed object was built from other sources. With the same tools as in the
    /// stamp, build it again and fail when it differs.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &BuildEbpfOptions) -> anyhow::Result<()> {
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
        "the committed object does not match its stamp: run `cargo xtask build-ebpf`"
    );
    ensure!(
        committed.sources == sources,
        "the committed object was built from other sources: run `cargo xtask build-ebpf` and commit the result"
    );
    println!("the committed object matches its sources");

    let toolchain = match Toolchain::find(root) {
        Ok(toolchain) if toolchain.tools == committed.tools => toolchain,
        Ok(toolchain) => {
            println!("not rebuilt: it was built with {}, this machine has {}", committed.tools, toolchain.tools);
            return Ok(());
        }
        Err(missing) => {
            println!("not rebuilt: {missing}");
            return Ok(());
        }
    };
    let rebuilt = strip::to_essentials(&toolchain.build(root)?)?;
    if rebuilt != bytes {
        bail!("the same tools build a different object: run `cargo xtask build-ebpf` and commit the result");
    }
    println!("rebuilt with {toolchain}: identical");
    Ok(())
}

fn repository() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest.parent().context("xtask lies in the repository")?.to_owned())
}
