//! Kernels and programs from Debian's archive.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::modules;
use crate::dist::Architecture;
use crate::output::output;

/// A series of kernels that the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kernel {
    /// The kernel of Debian 12.
    #[value(name = "6.1")]
    V6_1,
    /// The kernel of Debian 13, and of Debian 12's backports.
    #[value(name = "6.12")]
    V6_12,
    /// The newest kernel of Debian sid. A cached image stays in use until it is removed.
    #[value(name = "sid")]
    Sid,
    /// The kernel of Debian 11, older than kernel events need. Only with --all, or by name.
    #[value(name = "5.10")]
    V5_10,
    /// The kernel of Debian 12 for arm64, with programs for arm64. Only with --all, or by name.
    #[value(name = "arm64")]
    Arm64,
}

/// Where a kernel comes from.
struct Source {
    /// `None`: the sources of this machine.
    suite: Option<&'static str>,
    /// A pattern of package names.
    pattern: &'static str,
    /// `{}` is the kernel's release.
    image: &'static str,
}

impl Kernel {
    /// The kernels that each run of CI boots.
    pub(crate) const DEFAULT: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Sid];

    pub(crate) fn architecture(self) -> Architecture {
        match self {
            Self::V6_1 | Self::V6_12 | Self::Sid | Self::V5_10 => Architecture::Amd64,
            Self::Arm64 => Architecture::Arm64,
        }
    }

    pub(crate) fn series(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Sid => "sid",
            Self::V5_10 => "5.10",
            Self::Arm64 => "arm64",
        }
    }

    /// The kernel's image, from the cache in `work` or from the archive.
    ///
    /// # Errors
    /// When it is neither in the cache nor can be fetched; the message says where to put one by hand.
    pub(crate) fn image(self, work: &Path) -> Result<PathBuf> {
        let directory = work.join("kernels");
        let image = directory.join(format!("vmlinuz-{}", self.series()));
        if !image.exists() || (self.has_modules() && !self.modules(work).exists()) {
            std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
            self.fetch(work, &directory, &image).with_context(|| {
                format!(
                    "no {} kernel: apt-get has none, and {} does not exist. Put an image for {} there",
                    self.series(),
                    image.display(),
                    self.architecture().name()
                )
            })?;
        }
        Ok(image)
    }

    /// The directory of the kernel's modules for guests, which may be missing.
    pub(crate) fn modules(self, work: &Path) -> PathBuf {
        work.join("kernels").join(format!("swap-modules-{}", self.series()))
    }

    /// Its guests have modules. No test of the other kernels needs swap.
    fn has_modules(self) -> bool {
        match self {
            Self::V6_1 | Self::V6_12 | Self::Sid => true,
            Self::V5_10 | Self::Arm64 => false,
        }
    }

    fn source(self) -> Source {
        let (suite, pattern, image) = match self {
            Self::V6_1 => (None, r"^linux-image-6\.1\..*cloud-amd64-unsigned$", "boot/vmlinuz-{}"),
            Self::V6_12 => (None, r"^linux-image-6\.12\..*cloud-amd64-unsigned$", "boot/vmlinuz-{}"),
            Self::Sid => (Some("sid"), r"^linux-binary-[0-9].*-cloud-amd64$", "usr/lib/modules/{}/vmlinuz"),
            Self::V5_10 => (Some("bullseye"), r"^linux-image-5\.10\..*-cloud-amd64-unsigned$", "boot/vmlinuz-{}"),
            Self::Arm64 => (Some("bookworm"), r"^linux-image-6\.1\..*-cloud-arm64-unsigned$", "boot/vmlinuz-{}"),
        };
        Source { suite, pattern, image }
    }

    fn fetch(self, work: &Path, directory: &Path, image: &Path) -> Result<()> {
        let source = self.source();
        let apt = match source.suite {
            None => Apt::of_host(),
            Some(suite) => Apt::of_suite(directory, suite, self.architecture())?,
        };
        let found = output(apt.command("apt-cache").args(["search", "--names-only", source.pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let name = newest(names)
            .with_context(|| format!("apt-cache finds nothing for {}: try apt-get update", source.pattern))?;

        let unpacked = directory.join(name);
        apt.unpack(name, &unpacked)?;
        let release = name.trim_start_matches("linux-image-").trim_start_matches("linux-binary-");
        let release = release.trim_end_matches("-unsigned");
        let vmlinuz = unpacked.join(source.image.replace("{}", release));
        if self == Self::Sid {
            apt.unpack(&format!("linux-modules-{release}"), &unpacked)?;
        }
        if self.has_modules() {
            let modules = self.modules(work);
            if modules.exists() {
                std::fs::remove_dir_all(&modules).with_context(|| format!("removing {}", modules.display()))?;
            }
            modules::extract(&unpacked, &modules)?;
        }
        // Renamed last: a file of this name is complete.
        std::fs::rename(&vmlinuz, image).with_context(|| format!("moving {}", vmlinuz.display()))?;
        std::fs::remove_dir_all(&unpacked).with_context(|| format!("removing {}", unpacked.display()))
    }
}

/// A static busybox of another architecture, from the cache in `work` or from Debian.
///
/// # Errors
/// When it is neither in the cache nor can be fetched.
pub(super) fn busybox(work: &Path, architecture: Architecture) -> Result<PathBuf> {
    let unpacked = work.join(format!("busybox-{}", architecture.name()));
    let program = unpacked.join("bin/busybox");
    if !program.exists() {
        std::fs::create_dir_all(work).with_context(|| format!("making {}", work.display()))?;
        Apt::of_suite(work, "bookworm", architecture)?.unpack("busybox-static", &unpacked)?;
    }
    Ok(program)
}

/// Package sources, as options of apt's programs.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// The sources of this machine.
    fn of_host() -> Self {
        Self { options: Vec::new() }
    }

    /// A suite of Debian, with its package lists in `directory`: the sources of this machine are unchanged.
    fn of_suite(directory: &Path, suite: &str, architecture: Architecture) -> Result<Self> {
        let architecture = architecture.name();
        let sources_text = format!(
            "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: {suite}\nComponents: main\n\
             Architectures: {architecture}\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
        let state = std::path::absolute(directory)?.join(format!("apt-{suite}-{architecture}"));
        let (lists, cache, sources) = (state.join("lists"), state.join("cache"), state.join("debian.sources"));
        for made in [lists.join("partial"), cache.join("archives/partial")] {
            std::fs::create_dir_all(&made).with_context(|| format!("making {}", made.display()))?;
        }
        std::fs::write(&sources, sources_text).with_context(|| format!("writing {}", sources.display()))?;
        let options = [
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=-".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            format!("Dir::Cache={}", cache.display()),
            "Acquire::Languages=none".to_owned(),
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
        ];
        let apt = Self { options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect() };
        println!("fetching the package lists of Debian {suite} for {architecture}");
        output(apt.command("apt-get").args(["--quiet", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    fn unpack(&self, name: &str, directory: &Path) -> Result<String> {
        println!("fetching {name}");
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        output(self.command("apt-get").args(["--quiet", "download", name]).current_dir(directory))?;
        let package = only_file(directory, ".deb")?;
        output(Command::new("dpkg").arg("--extract").arg(&package).arg(directory))?;
        std::fs::remove_file(&package).with_context(|| format!("removing {}", package.display()))?;
        Ok(package.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }
}

/// Fetches a package and unpacks it into `directory`, which is emptied first.
///
/// Returns the name of the package's file, which includes its version.
///
/// # Errors
/// When apt-get has no such package, or no network.
pub(crate) fn unpack(name: &str, directory: &Path) -> Result<String> {
    Apt::of_host().unpack(name, directory)
}

/// The name with the highest version.
fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.max_by_key(|name| {
        let numbers = name.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>()
    })
}

fn only_file(directory: &Path, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending)));
    files.next().with_context(|| format!("{} lacks a file of the package", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let names =
            ["linux-image-6.12.99+deb12-cloud", "linux-image-6.12.107+deb12-cloud", "linux-image-6.12.9+deb12-cloud"];
        assert_eq!(newest(names.into_iter()), Some("linux-image-6.12.107+deb12-cloud"));
    }

    #[test]
    fn missing_package_means_no_kernel() {
        assert_eq!(newest(std::iter::empty()), None);
    }
}
