//! Finds the init processes of containers by their cgroups.
//!
//! `docker run` is only a client: the container's processes are children of a shim that no agent forked. Only time links the
//! two, so this finds the containers that started in an interval.

use std::collections::HashMap;

use super::error::HostError;
use super::process::{self, ProcessDir};
use super::stat::ProcStat;
use watchdog_types::{ProcessId, Ticks};

/// Hexadecimal digits of a container id.
const ID_LEN: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInit {
    /// Pid 1 of the container.
    pub process: ProcessId,
    /// 64 hexadecimal digits.
    pub container_id: String,
    pub runtime: ContainerRuntime,
    pub comm: String,
}

/// By the name of the cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRuntime {
    /// With the cgroupfs or the systemd driver.
    Docker,
    /// Or another user of libpod.
    Podman,
    /// containerd without Docker: nerdctl, or a Kubernetes node.
    Containerd,
    /// CRI-O.
    Crio,
    /// A container id below an unknown name.
    Unknown,
}

/// The containers whose first process started in `from..=to`.
///
/// Reads stat and cgroup of every process, 20 µs each: call it after a container client was seen, not periodically. The init
/// process is the one that started first in the container's cgroup. Processes that `docker exec` starts later are in the
/// same cgroup and also have a parent outside of it.
///
/// # Errors
/// When /proc cannot be listed, or the kernel refuses a file that every user may read.
pub fn started_between(from: Ticks, to: Ticks) -> Result<Vec<ContainerInit>, HostError> {
    let mut buffer = Vec::new();
    let mut first: HashMap<String, (ProcStat, ContainerRuntime)> = HashMap::new();
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
    let mut found: Vec<ContainerInit> = first
        .into_iter()
        .filter(|(_, (stat, _))| (from..=to).contains(&stat.process.start_time))
        .map(|(container_id, (stat, runtime))| ContainerInit {
            process: stat.process,
            container_id,
            runtime,
            comm: stat.comm,
        })
        .collect();
    found.sort_by_key(|container| (container.process.start_time, container.process.pid));
    Ok(found)
}

/// Of two processes of the same tick, the parent started first.
fn begins_before(one: &ProcStat, other: &ProcStat) -> bool {
    let (start, other_start) = (one.process.start_time, other.process.start_time);
    start < other_start || (start == other_start && other.ppid == one.process.pid)
}

/// The container in a cgroup file of either version.
fn container(cgroups: &[u8]) -> Option<(&str, ContainerRuntime)> {
    let text = std::str::from_utf8(cgroups).ok()?;
    // hierarchy:controllers:path
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(of_path)
}

/// The innermost container of a cgroup's path: a container may contain others, and further cgroups.
fn of_path(path: &str) -> Option<(&str, ContainerRuntime)> {
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
fn of_segment<'a>(segment: &'a str, parent: &str) -> Option<(&'a str, ContainerRuntime)> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    let (prefix, id) = name.rsplit_once('-').unwrap_or(("", name));
    if id.len() != ID_LEN || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let runtime = match (prefix, parent) {
        ("docker", _) | ("", "docker") => ContainerRuntime::Docker,
        ("libpod", _) | ("", "libpod_parent") => ContainerRuntime::Podman,
        ("cri-containerd" | "nerdctl", _) | ("", "default" | "k8s.io") => ContainerRuntime::Containerd,
        ("crio", _) => ContainerRuntime::Crio,
        // The monitor of podman and CRI-O, outside of the container.
        ("libpod-conmon" | "crio-conmon", _) => return None,
        _ => ContainerRuntime::Unknown,
    };
    Some((id, runtime))
}

#[cfg(test)]
#[path = "containers_tests.rs"]
mod tests;
