//! Kernels and programs from Debian's archive.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

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
}

impl Kernel {
    /// The series' number.
    pub(crate) fn series(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Sid => "sid",
        }
    }

    /// The kernel's image, from the cache in `work` or from the archive.
    ///
    /// # Errors
    /// When it is neither in the cache nor can be fetched: the message says where to put one by hand.
    pub(crate) fn image(self, work: &Path) -> Result<PathBuf> {
        let directory = work.join("kernels");
        let image = directory.join(format!("vmlinuz-{}", self.series()));
        if !image.exists() {
            std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
            self.fetch(&directory, &image).with_context(|| {
                format!(
                    "no {} kernel: apt-get gives none here, and there is none at {}. An x86-64 image put there is used",
                    self.series(),
                    image.display()
                )
            })?;
        }
        Ok(image)
    }

    fn fetch(self, directory: &Path, image: &Path) -> Result<()> {
        let apt = match self {
            Self::V6_1 | Self::V6_12 => Apt::of_host(),
            Self::Sid => Apt::of_sid(directory)?,
        };
        let pattern = match self {
            Self::V6_1 | Self::V6_12 => {
                format!(r"^linux-image-{}\..*cloud-amd64-unsigned$", self.series().replace('.', r"\."))
            }
            Self::Sid => r"^linux-binary-[0-9].*-cloud-amd64$".to_owned(),
        };
        let found = output(apt.command("apt-cache").args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let name =
            newest(names).with_context(|| format!("apt-cache finds nothing for {pattern}: try apt-get update"))?;

        let unpacked = directory.join(name);
        apt.unpack(name, &unpacked)?;
        let release = name.trim_start_matches("linux-image-").trim_start_matches("linux-binary-");
        let release = release.trim_end_matches("-unsigned");
        let vmlinuz = unpacked.join(match self {
            Self::V6_1 | Self::V6_12 => format!("boot/vmlinuz-{release}"),
            Self::Sid => format!("usr/lib/modules/{release}/vmlinuz"),
        });
        // The image gets its name last: what has the name is whole.
        std::fs::rename(&vmlinuz, image).with_context(|| format!("moving {}", vmlinuz.display()))?;
        std::fs::remove_dir_all(&unpacked).with_context(|| format!("removing {}", unpacked.display()))
    }
}

/// Where packages come from: options of apt's programs.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// The sources of this machine.
    fn of_host() -> Self {
        Self { options: Vec::new() }
    }

    /// Debian sid, with package lists of its own in `directory`: this machine's sources stay as they are.
    fn of_sid(directory: &Path) -> Result<Self> {
        const SOURCES: &str = "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: sid\nComponents: main\n\
            Architectures: amd64\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";
        let state = std::path::absolute(directory)?.join("apt-sid");
        let (lists, cache, sources) = (state.join("lists"), state.join("cache"), state.join("sid.sources"));
        for made in [lists.join("partial"), cache.join("archives/partial")] {
            std::fs::create_dir_all(&made).with_context(|| format!("making {}", made.display()))?;
        }
        std::fs::write(&sources, SOURCES).with_context(|| format!("writing {}", sources.display()))?;
        let options = [
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=-".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            format!("Dir::Cache={}", cache.display()),
            "Acquire::Languages=none".to_owned(),
        ];
        let apt = Self { options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect() };
        println!("fetching the package lists of Debian sid");
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

/// Fetches the package of this name, and unpacks it into `directory`, where only the package's own files are then.
///
/// Returns the name of the package's file, in which its version stands.
///
/// # Errors
/// When apt-get has no such package, or no network.
pub(crate) fn unpack(name: &str, directory: &Path) -> Result<String> {
    Apt::of_host().unpack(name, directory)
}

/// The name with the highest numbers in it.
fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.max_by_key(|name| {
        let numbers = name.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>()
    })
}

/// The one file of a directory whose name ends so.
fn only_file(directory: &Path, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending)));
    files.next().with_context(|| format!("{} lacks what the package should hold", directory.display()))
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
    fn nothing_found_is_no_kernel() {
        assert_eq!(newest(std::iter::empty()), None);
    }
}
