//! Memory and processes outside every tree: containers, build servers, files on a tmpfs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use watchdog_types::units::{count, size, span};
use watchdog_types::{Bytes, Pid, SessionId, Ticks, Uid};

/// The container clients of a session, and the containers that were started while they ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ContainerEvidence {
    /// The oldest.
    pub client: String,
    /// All of them run.
    pub client_alive: bool,
    /// How many, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_exited: Option<usize>,
    pub containers_started_meanwhile: Vec<ListedContainer>,
    /// What links the containers to the client.
    pub linked_by: String,
}

/// A running container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListedContainer {
    pub comm: String,
    pub id: String,
    pub pid: Pid,
    pub runtime: String,
    pub start_time: Ticks,
}

/// A build server that outlived the command which started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BuildServerEvidence {
    pub age_seconds: u64,
    pub charged_to: String,
    pub memory_bytes: Bytes,
    pub name: String,
    pub process_count: usize,
    pub started_by_session: SessionId,
}

/// Files on a tmpfs that grew while a session ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TmpfsEvidence {
    pub charged_to: String,
    pub growth_bytes: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_file: Option<LargestFile>,
    /// System V segments that no process has attached, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_segments: Vec<LeftSegment>,
    pub mapped_by_processes_bytes: Bytes,
    /// Those that grew, the most first.
    pub mounts: Vec<MountGrowth>,
    pub seen_for_seconds: Option<u64>,
    pub sessions_running: Vec<SessionId>,
    /// Shmem of /proc/meminfo.
    pub shmem_bytes: Bytes,
}

/// The largest file on the fullest tmpfs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LargestFile {
    pub path: String,
    pub size_bytes: Bytes,
    pub uid: Uid,
}

/// A System V segment that no process has attached: `ipcrm -m ID` removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeftSegment {
    pub creator_pid: Pid,
    /// The session of its creator, where that is still known.
    pub creator_session: Option<SessionId>,
    pub id: u64,
    pub size_bytes: Bytes,
    pub uid: Uid,
}

/// A tmpfs that grew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MountGrowth {
    pub growth_bytes: Bytes,
    pub path: String,
    pub used_bytes: Bytes,
}

impl ContainerEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let listed = self.containers_started_meanwhile.iter();
        listed
            .map(|container| {
                let ListedContainer { comm, id, pid, runtime, .. } = container;
                format!("{runtime} container {id}: {comm} (pid {pid})")
            })
            .collect()
    }
}

impl fmt::Display for ContainerEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let containers = self.containers_started_meanwhile.len() as u64;
        if let Some(clients) = self.clients {
            let exited = self.clients_exited.unwrap_or_default();
            write!(out, "{clients} container clients such as {}", self.client)?;
            return match exited {
                0 => out.write_str(" run containers outside the tree; their memory is not counted here"),
                _ => write!(
                    out,
                    ", of which {exited} exited; {} that started meanwhile may still run",
                    count(containers, "container", "containers")
                ),
            };
        }
        if self.client_alive {
            return write!(out, "{} runs a container outside the tree; its memory is not counted here", self.client);
        }
        write!(out, "a container started while {} ran is still running after it exited", self.client)
    }
}

impl BuildServerEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let age = span(Duration::from_secs(self.age_seconds));
        let processes = count(self.process_count as u64, "process", "processes");
        vec![format!("{processes}, started {age} ago by session {}", self.started_by_session)]
    }
}

impl fmt::Display for BuildServerEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = size(self.memory_bytes.0);
        write!(out, "{} ({memory}) is shared by its user's builds; its memory is charged to no session", self.name)
    }
}

impl TmpfsEvidence {
    fn segments_bytes(&self) -> u64 {
        self.left_segments.iter().map(|segment| segment.size_bytes.0).sum()
    }

    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts: Vec<String> = Vec::new();
        facts.extend(
            self.largest_file
                .as_ref()
                .map(|file| format!("largest file: {} ({}, uid {})", file.path, size(file.size_bytes.0), file.uid.0)),
        );
        facts.extend(self.mounts.iter().map(|mount| {
            format!("{} grew by {} to {}", mount.path, size(mount.growth_bytes.0), size(mount.used_bytes.0))
        }));
        facts.extend(self.left_segments.iter().map(|segment| {
            let LeftSegment { creator_pid, creator_session, id, size_bytes, uid } = segment;
            let session = creator_session.map(|session| format!(" of session {session}")).unwrap_or_default();
            format!(
                "segment {id}: {}, created by pid {creator_pid}{session}, uid {}; ipcrm -m {id}",
                size(size_bytes.0),
                uid.0
            )
        }));
        let (shmem, mapped) = (size(self.shmem_bytes.0), size(self.mapped_by_processes_bytes.0));
        facts.push(format!("the host has {shmem} of shared memory, of which processes map {mapped}"));
        facts
    }
}

impl fmt::Display for TmpfsEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mounts.first() {
            Some(most) if most.growth_bytes.0 >= self.growth_bytes.0 / 2 => write!(out, "files in {}", most.path)?,
            _ if self.segments_bytes() >= self.growth_bytes.0 / 2 => {
                let segments = count(self.left_segments.len() as u64, "System V segment", "System V segments");
                let grown = size(self.growth_bytes.0);
                return write!(
                    out,
                    "{segments} that no process has attached grew by {grown} while a session ran; ipcrm frees it"
                );
            }
            _ => out.write_str("shared memory that no process maps")?,
        }
        write!(out, " grew by {} while a session ran; deleting them frees it", size(self.growth_bytes.0))
    }
}
