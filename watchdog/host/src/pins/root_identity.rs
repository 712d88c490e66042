//! The root directory and pid namespace from which a daemon sees its runtime directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::namespaces::PidNamespace;

pub(super) fn root_identity() -> String {
    let root = fs::metadata("/").map(|root| identity(&root)).unwrap_or_default();
    match PidNamespace::own() {
        Some(namespace) if !namespace.is_initial() => format!("{root} {namespace}"),
        _ => root,
    }
}

fn identity(root: &fs::Metadata) -> String {
    format!("{}:{}", root.dev(), root.ino())
}

/// Whether no process of this host has this root directory, and this pid namespace if one is named. Only the initial pid
/// namespace shows all processes.
pub(super) fn is_unused_root(root: &Path) -> bool {
    let sees_all = PidNamespace::own().is_some_and(PidNamespace::is_initial);
    let named = root.to_str().and_then(|root| root.split_once(' '));
    let namespace = named.map(|(_, namespace)| namespace);
    let root = named.map_or(root, |(root, _)| Path::new(root));
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let mut processes =
        processes.flatten().filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    sees_all
        && processes.all(|process| match fs::metadata(process.path().join("root")) {
            Ok(found) => {
                Path::new(&identity(&found)) != root
                    || namespace.is_some_and(|namespace| {
                        fs::read_link(process.path().join("ns/pid")).is_ok_and(|found| found != Path::new(namespace))
                    })
            }
            // It has exited.
            Err(error) => error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_root_is_in_use() {
        assert!(!is_unused_root(Path::new(&root_identity())));
    }
}
