//! The first processes of containers, found by their cgroups.
//!
//! `docker run` is only a client: the container's processes are children of a shim that no agent forked. What links the
//! two is time, so this tells which containers began between two moments.

use std::collections::HashMap;

use super::error::HostError;
use super::process::{self, ProcessDir};
use super::stat::Stat;
use crate::engine::id::{ProcessId, Ticks};

/// Digits of a container's id.
const ID_LEN: usize = 64;

/// A container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The process that is pid 1 in it.
    pub process: ProcessId,
    /// 64 hexadecimal digits.
    pub container_id: String,
    /// What runs it.
    pub runtime: Runtime,
    /// The process's comm.
    pub comm: String,
}

/// What runs a container, by the name of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Docker, through its cgroupfs or its systemd driver.
    Docker,
    /// Podman, and what else uses libpod.
    Podman,
    /// containerd without Docker: nerdctl, or a Kubernetes node.
    Containerd,
    /// CRI-O.
    Crio,
    /// A cgroup that bears such an id, below a name that we do not know.
    Unknown,
}

/// The containers whose first process started in `from..=to`.
///
/// Looks at every process's stat and cgroup: 20 µs each, so it is for the moment when a container's client was seen, not
/// for every round. A container's first process is the one that started first of all that are in its cgroup: those that
/// `docker exec` starts later have the same cgroup and also a parent outside of it.
///
/// # Errors
/// When /proc cannot be listed, or the kernel refuses a file that everybody may read.
pub fn started_between(from: Ticks, to: Ticks) -> Result<Vec<Container>, HostError> {
    let mut buffer = Vec::new();
    let mut first: HashMap<String, (Stat, Runtime)> = HashMap::new();
    for pid in process::pids()? {
        let Some((dir, stat)) = ProcessDir::with_stat(pid, &mut buffer)? else { continue };
        if stat.is_kernel_thread() {
            continue;
        }
        if dir.read_up_to("cgroup", 64 * 1024, &mut buffer)?.is_none() {
            continue;
        }
        let Some((id, runtime)) = container(&buffer) else { continue };
        match first.get(id) {
            Some((earlier, _)) if !begins_before(&stat, earlier) => {}
            _ => {
                first.insert(id.to_owned(), (stat, runtime));
            }
        }
    }
    let mut found: Vec<Container> = first
        .into_iter()
        .filter(|(_, (stat, _))| (from..=to).contains(&stat.process.start_time))
        .map(|(container_id, (stat, runtime))| Container {
            process: stat.process,
            container_id,
            runtime,
            comm: stat.comm,
        })
        .collect();
    found.sort_by_key(|container| (container.process.start_time, container.process.pid));
    Ok(found)
}

/// Of two processes that started in the same tick, the parent is the first.
fn begins_before(one: &Stat, other: &Stat) -> bool {
    let (start, other_start) = (one.process.start_time, other.process.start_time);
    start < other_start || (start == other_start && other.ppid == one.process.pid)
}

/// The container that a cgroup file (of either hierarchy version) names.
fn container(cgroups: &[u8]) -> Option<(&str, Runtime)> {
    let text = std::str::from_utf8(cgroups).ok()?;
    // hierarchy:controllers:path
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(of_path)
}

/// The innermost container of a cgroup's path: a container may hold others, and groups of its own.
fn of_path(path: &str) -> Option<(&str, Runtime)> {
    let mut found = None;
    let mut parent = "";
    for segment in path.split('/') {
        if let Some((id, runtime)) = of_segment(segment, parent) {
            found = Some((id, runtime));
        }
        parent = segment;
    }
    found
}

/// `docker-ID.scope` (systemd), `docker/ID` (cgroupfs), and their like.
fn of_segment<'a>(segment: &'a str, parent: &str) -> Option<(&'a str, Runtime)> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    let (prefix, id) = name.rsplit_once('-').unwrap_or(("", name));
    if id.len() != ID_LEN || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let runtime = match (prefix, parent) {
        ("docker", _) | ("", "docker") => Runtime::Docker,
        ("libpod", _) | ("", "libpod_parent") => Runtime::Podman,
        ("cri-containerd" | "nerdctl", _) | ("", "default" | "k8s.io") => Runtime::Containerd,
        ("crio", _) => Runtime::Crio,
        // The monitor that podman and CRI-O keep outside of the container.
        ("libpod-conmon" | "crio-conmon", _) => return None,
        _ => Runtime::Unknown,
    };
    Some((id, runtime))
}

#[cfg(test)]
#[path = "containers_tests.rs"]
mod tests;
