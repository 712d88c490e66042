//! External, too: files on a tmpfs. They are memory, and no process's: a task's output that grew to 31 GB in /tmp shows in
//! no RSS, and outlives its session until it is removed.
//!
//! What grows is what the kernel counts as Shmem, less what processes map of it. The kernel's count comes with every look
//! at the host's memory and costs nothing more; the rest is asked for when that count has grown by as much as is worth a
//! word while a session runs.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::{FindingKind, Severity};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Ticks, Uid};
use crate::engine::input::Tmpfs;

/// A closer look costs 30 µs for each process of the host: at most this often.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// From this share of the host's memory on it is worth doing something about.
const HEAVY_PERCENT: u64 = 10;
/// What the finding is about: no process, and nobody is charged.
const NOBODY: ProcessId = ProcessId { pid: Pid(0), start_time: Ticks(0) };
const KEY: Key = Key { kind: FindingKind::External, about: NOBODY };
/// How many sessions and mounts the evidence lists.
const LISTED: usize = 20;

/// What tmpfs files took when the sessions that run now began, and take now.
#[derive(Debug, Default)]
pub(in crate::engine) struct TmpfsWatch {
    /// The least that the kernel has counted since; `None` while no session runs.
    least: Option<Bytes>,
    /// The first closer look since.
    before: Option<Tmpfs>,
    /// That one was asked for.
    began: bool,
    /// When a closer look was last asked for because of growth.
    asked: Option<BootTime>,
    grew_since: Option<BootTime>,
}

impl Step<'_> {
    /// The kernel's count is known anew.
    pub(in crate::engine) fn tmpfs_host(&mut self, shmem: Bytes) {
        let running = self.engine.sessions.iter().any(|session| session.ended.is_none());
        let open = self.engine.findings.is_open(KEY);
        let watch = &mut self.engine.tmpfs;
        if !running && !open {
            *watch = TmpfsWatch::default();
            return;
        }
        let least = watch.least.map_or(shmem, |least| least.min(shmem));
        watch.least = Some(least);
        let threshold = self.engine.config.external.tmpfs_growth.on_host(self.engine.close_watch.host.total);
        let grown = shmem.0.saturating_sub(least.0);
        if open && grown < threshold.0 / 2 {
            self.engine.tmpfs.grew_since = None;
            self.close(KEY, "given back");
            return;
        }
        let (now, watch) = (self.now, &mut self.engine.tmpfs);
        let first = !std::mem::replace(&mut watch.began, true);
        let due = grown >= threshold.0 && watch.asked.is_none_or(|asked| now.since(asked) >= LOOK_EVERY);
        if due {
            watch.asked = Some(now);
        }
        if first || due {
            self.effect(Effect::LookAtTmpfs);
        }
    }

    /// A closer look is in.
    pub(in crate::engine) fn tmpfs(&mut self, seen: Tmpfs) {
        let threshold = self.engine.config.external.tmpfs_growth.on_host(self.engine.close_watch.host.total);
        let watch = &mut self.engine.tmpfs;
        let Some(least) = watch.least else { return };
        let Some(before) = &watch.before else {
            watch.before = Some(seen);
            return;
        };
        // Both bounds hold: what the kernel's count grew by, and what is in no process now and was not then.
        let counted = seen.shmem.0.saturating_sub(least.0);
        let unmapped = seen.unmapped().0.saturating_sub(before.unmapped().0);
        let grown = Bytes(counted.min(unmapped));
        if grown < threshold || threshold.0 == 0 {
            return;
        }
        watch.grew_since.get_or_insert(self.now);
        let observed = self.tmpfs_seen(grown, &seen);
        self.observe(observed);
    }

    fn tmpfs_seen(&self, grown: Bytes, seen: &Tmpfs) -> Observation {
        let engine = &*self.engine;
        let before = |path: &str| {
            let mounts = engine.tmpfs.before.iter().flat_map(|before| &before.mounts);
            mounts.into_iter().find(|mount| mount.path == path).map_or(Bytes(0), |mount| mount.used)
        };
        let mut mounts: Vec<(u64, &str, Bytes)> = seen
            .mounts
            .iter()
            .map(|mount| (mount.used.0.saturating_sub(before(&mount.path).0), mount.path.as_str(), mount.used))
            .filter(|(grown, ..)| *grown > 0)
            .collect();
        mounts.sort_unstable_by(|one, other| other.cmp(one));
        let sessions: Vec<SessionId> = engine
            .sessions
            .iter()
            .filter(|session| session.ended.is_none())
            .map(|session| session.id)
            .take(LISTED)
            .collect();
        let total = engine.close_watch.host.total;

        let mut evidence = Map::new();
        evidence.insert("growth_bytes".into(), json!(grown));
        evidence.insert("shmem_bytes".into(), json!(seen.shmem));
        evidence.insert("mapped_by_processes_bytes".into(), json!(seen.mapped));
        let since = engine.tmpfs.grew_since.map(|since| self.now.since(since).as_secs());
        evidence.insert("seen_for_seconds".into(), json!(since));
        let listed = mounts.iter().take(LISTED);
        let listed = listed.map(|(grown, path, used)| json!({"path": path, "growth_bytes": grown, "used_bytes": used}));
        evidence.insert("mounts".into(), Value::Array(listed.collect()));
        if let Some(file) = &seen.largest {
            let largest = json!({"path": file.path, "size_bytes": file.size, "uid": file.uid});
            evidence.insert("largest_file".into(), largest);
        }
        evidence.insert("sessions_running".into(), json!(sessions));
        evidence.insert("charged_to".into(), json!("nobody"));
        let place = match mounts.first() {
            Some((most, path, _)) if *most >= grown.0 / 2 => format!("files in {path}"),
            _ => "shared memory that no process maps".into(),
        };
        let mib = grown.mib();
        Observation {
            key: KEY,
            severity: if grown >= total.percent(HEAVY_PERCENT) { Severity::Warning } else { Severity::Info },
            session: None,
            subject: NOBODY,
            members: Vec::new(),
            // A path may be a secret of the file's owner.
            uid: seen.largest.as_ref().map_or(Uid::ROOT, |file| file.uid),
            cause: self.now,
            summary: format!(
                "{place} grew by {mib} MiB while a session ran: memory of no process, until they are removed"
            ),
            evidence,
            proposal: Proposal::Report,
        }
    }
}
