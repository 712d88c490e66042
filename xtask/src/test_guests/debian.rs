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
}

impl Kernel {
    /// The series' number.
    pub(crate) fn series(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
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
        let pattern = format!(r"^linux-image-{}\..*cloud-amd64-unsigned$", self.series().replace('.', r"\."));
        let found = output(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let name =
            newest(names).with_context(|| format!("apt-cache finds nothing for {pattern}: try apt-get update"))?;

        let unpacked = directory.join(name);
        unpack(name, &unpacked)?;
        let vmlinuz = only_file(&unpacked.join("boot"), "")?;
        // The image gets its name last: what has the name is whole.
        std::fs::rename(&vmlinuz, image).with_context(|| format!("moving {}", vmlinuz.display()))?;
        std::fs::remove_dir_all(&unpacked).with_context(|| format!("removing {}", unpacked.display()))
    }
}

/// Fetches the package of this name, and unpacks it into `directory`, where only the package's own files are then.
///
/// Returns the name of the package's file, in which its version stands.
///
/// # Errors
/// When apt-get has no such package, or no network.
pub(crate) fn unpack(name: &str, directory: &Path) -> Result<String> {
    println!("fetching {name}");
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    output(Command::new("apt-get").args(["--quiet", "download", name]).current_dir(directory))?;
    let package = only_file(directory, ".deb")?;
    output(Command::new("dpkg").arg("--extract").arg(&package).arg(directory))?;
    std::fs::remove_file(&package).with_context(|| format!("removing {}", package.display()))?;
    Ok(package.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// The name with the highest numbers in it.
fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.max_by_key(|name| {
        let numbers = name.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>()
    })
}

/// The one file of a directory whose name ends so, and, in /boot, is a kernel.
fn only_file(directory: &Path, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if ending.is_empty() { name.starts_with("vmlinuz-") } else { name.ends_with(ending) }
    });
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
