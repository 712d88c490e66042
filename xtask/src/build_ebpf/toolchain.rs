//! The toolchain for BPF: nightly or Debian's.
//!
//! rustup's toolchains have no `core` for BPF. It is either built from source (nightly), or it comes from Debian's package
//! `libstd-rust-web-dev-bpf`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::stamp::Tools;
use crate::output::output;

const TARGET: &str = "bpfel-unknown-none";
/// Older versions write BTF for aya-log that kernels reject ("UNION MaybeUninit<u8> Invalid name").
const LINKER_VERSION: &str = "0.13.0";

pub(super) struct Toolchain {
    way: ToolchainSource,
    linker: PathBuf,
    /// Its versions.
    pub(super) tools: Tools,
}

/// Where `core` comes from.
enum ToolchainSource {
    /// A `core` for BPF is installed beside this compiler.
    Installed { rustc: PathBuf, cargo: PathBuf },
    /// rustup's nightly, which builds its own.
    Nightly,
}

impl Toolchain {
    /// Detects the installed tools. The error lists everything that is missing, with the way to install it.
    pub(super) fn find(root: &Path) -> anyhow::Result<Self> {
        let way = ToolchainSource::find();
        let linker = find_linker(root);
        let (Some(way), Some(linker)) = (&way, &linker) else {
            let mut missing = String::from("this machine cannot build the kernel programs:");
            if way.is_none() {
                missing += NO_CORE;
            }
            if linker.is_none() {
                missing += &no_linker();
            }
            bail!(missing);
        };
        let rustc = first_line(way.rustc().arg("--version"))?;
        let tools = Tools { rustc, linker: first_line(Command::new(linker).arg("--version"))? };
        let way = match way {
            ToolchainSource::Installed { rustc, cargo } => {
                ToolchainSource::Installed { rustc: rustc.clone(), cargo: cargo.clone() }
            }
            ToolchainSource::Nightly => ToolchainSource::Nightly,
        };
        Ok(Self { way, linker: linker.clone(), tools })
    }

    /// Builds the object, as the linker writes it.
    pub(super) fn build(&self, root: &Path) -> anyhow::Result<Vec<u8>> {
        let crate_dir = root.join("watchdog-ebpf");
        let target_dir = root.join("target/ebpf");
        let mut command = self.way.cargo();
        command
            .current_dir(&crate_dir)
            .args(["build", "--locked", "--release", "--target", TARGET, "--target-dir"])
            .arg(&target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags(root)?.join("\x1f"))
            .env("PATH", self.path()?)
            // Do not pass the toolchain of this command to the other one.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_BUILD_TARGET");
        let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
        ensure!(status.success(), "the kernel programs do not build");
        let built = target_dir.join(TARGET).join("release/watchdog");
        std::fs::read(&built).with_context(|| format!("cannot read {}", built.display()))
    }

    /// Removes paths of this machine from the debug information, from which BTF is made: the object is reproducible
    /// anywhere.
    fn flags(&self, root: &Path) -> anyhow::Result<Vec<String>> {
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
            .context("neither CARGO_HOME nor a home directory is set")?;
        let sysroot = first_line(self.way.rustc().args(["--print", "sysroot"]))?;
        let remap = |from: &str, to: &str| format!("--remap-path-prefix={from}={to}");
        Ok(vec![
            "-Cdebuginfo=2".to_owned(),
            "-Clink-arg=--btf".to_owned(),
            remap(&root.to_string_lossy(), "watchdog"),
            remap(&cargo_home.join("registry/src").to_string_lossy(), "registry"),
            remap(&sysroot, "sysroot"),
        ])
    }

    /// PATH with the linker's directory first: rustc finds it by name.
    fn path(&self) -> anyhow::Result<OsString> {
        let directory = self.linker.parent().unwrap_or(Path::new("/")).to_owned();
        let rest = std::env::var_os("PATH").unwrap_or_default();
        Ok(std::env::join_paths(std::iter::once(directory).chain(std::env::split_paths(&rest)))?)
    }
}

impl ToolchainSource {
    fn find() -> Option<Self> {
        // Debian's, even if rustup's are first in PATH.
        let (rustc, cargo) = (PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo"));
        if let Ok(sysroot) = first_line(Command::new(&rustc).args(["--print", "sysroot"]))
            && Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib").is_dir()
            && cargo.is_file()
        {
            return Some(Self::Installed { rustc, cargo });
        }
        let sysroot = first_line(Self::Nightly.rustc().args(["--print", "sysroot"])).ok()?;
        Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").is_dir().then_some(Self::Nightly)
    }

    fn rustc(&self) -> Command {
        match self {
            Self::Installed { rustc, .. } => Command::new(rustc),
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "rustc"]);
                command
            }
        }
    }

    fn cargo(&self) -> Command {
        match self {
            Self::Installed { rustc, cargo } => {
                let mut command = Command::new(cargo);
                // Lets the stable compiler accept the unstable target.
                command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                command
            }
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo", "-Zbuild-std=core"]).env_remove("RUSTC");
                command
            }
        }
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tools.fmt(f)
    }
}

const NO_CORE: &str = "
- no Rust `core` for BPF. Either Debian's:
    apt-get install rustc-web cargo-web libstd-rust-web-dev-bpf
  or rustup's nightly with its sources:
    rustup toolchain install nightly --component rust-src";

fn no_linker() -> String {
    format!(
        "
- no bpf-linker in $BPF_LINKER, target/tools/bin or PATH:
    cargo install bpf-linker --version {LINKER_VERSION} --root target/tools
  or, where that finds no LLVM (Debian: llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev):
    LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version {LINKER_VERSION} --root target/tools \\
      --no-default-features --features llvm-22"
    )
}

fn find_linker(root: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("BPF_LINKER").map(PathBuf::from);
    named
        .into_iter()
        .chain([root.join("target/tools/bin/bpf-linker")])
        .chain(std::env::split_paths(&path).map(|directory| directory.join("bpf-linker")))
        .find(|candidate| candidate.is_file())
}

fn first_line(command: &mut Command) -> anyhow::Result<String> {
    let text = output(command)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
