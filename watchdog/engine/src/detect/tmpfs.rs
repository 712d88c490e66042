//! External, too: files on a tmpfs. They are memory, and no process's: a task's output that grew to 31 GB in /tmp shows in
//! no RSS, and outlives its session until it is removed.
//!
//! What grows is what the kernel counts as Shmem, less what processes map of it. The kernel's count comes with every look
//! at the host's memory and costs nothing more; the rest is asked for when that count has grown by as much as is worth a
//! word while a session runs. Growth counts from before the session began, so both are known at all times. System V memory and
//! memfds that no process maps are in the same count.

use std::time::Duration;

use super::{Conclusions, Detector, Facts};
use crate::effect::{Effect, ScanRequest};
use crate::finding::{Detection, Key, Proposal};
use watchdog_api::evidence::{LargestFile, LeftSegment, MountGrowth, TmpfsEvidence};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, Bytes, Pid, ProcessId, SessionId, Ticks, Tmpfs, TmpfsFile, Uid};

/// A closer look costs 30 µs for each process of the host: at most this often while nothing changes.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// And this often when a process has exited since, which may have left what it had mapped.
const LOOK_AFTER_EXIT: Duration = Duration::from_secs(2);
/// While no session runs, the closer look is renewed when the count has changed by this share of the threshold, in per cent.
const STALE_PERCENT: u64 = 25;
/// From this share of the host's memory on it is worth doing something about.
const HEAVY_PERCENT: u64 = 10;
/// The subject of the finding: no process.
const NO_PROCESS: ProcessId = ProcessId { pid: Pid(0), start_time: Ticks(0) };
const KEY: Key = Key { kind: FindingKind::External, about: NO_PROCESS };
/// How many sessions and mounts the evidence lists.
const LISTED: usize = 20;

/// What tmpfs files took before the sessions that run now began, and take now.
#[derive(Debug, Default)]
pub(crate) struct TmpfsWatch {
    /// The least that the kernel has counted since; while no session runs, what it counts now. `None` before the first look.
    least: Option<Bytes>,
    /// The last closer look before, or the first since.
    before: Option<Tmpfs>,
    /// That one was asked for.
    began: bool,
    /// When a closer look was last asked for because of growth.
    asked: Option<BootTime>,
    /// A process of a session with shared memory has exited since.
    exited: bool,
    grew_since: Option<BootTime>,
}

impl Detector for TmpfsWatch {
    fn exited(&mut self, _process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {
        self.exited = true;
    }

    fn host_read(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let shmem = facts.host.shmem;
        let running = facts.sessions.iter().any(|session| session.ended.is_none());
        let open = facts.findings.is_open(KEY);
        let threshold = facts.config.external.tmpfs_growth.on_host(facts.host.total);
        if !running && !open {
            self.rest(shmem, threshold, out);
            return;
        }
        let least = self.least.map_or(shmem, |least| least.min(shmem));
        self.least = Some(least);
        let grown = shmem.0.saturating_sub(least.0);
        if open && grown < threshold.0 / 2 {
            self.grew_since = None;
            out.close(KEY, "given back");
            return;
        }
        let now = facts.now;
        let first = !std::mem::replace(&mut self.began, true);
        let pause = if self.exited { LOOK_AFTER_EXIT } else { LOOK_EVERY };
        let due = grown >= threshold.0 && self.asked.is_none_or(|asked| now.since(asked) >= pause);
        if due {
            self.asked = Some(now);
            self.exited = false;
        }
        if first || due {
            out.ask(Effect::Scan(ScanRequest::Tmpfs));
        }
    }

    fn tmpfs_read(&mut self, seen: &Tmpfs, facts: &Facts<'_>, out: &mut Conclusions) {
        let threshold = facts.config.external.tmpfs_growth.on_host(facts.host.total);
        let Some(least) = self.least else { return };
        if facts.sessions.iter().all(|session| session.ended.is_some()) && !facts.findings.is_open(KEY) {
            self.before = Some(seen.clone());
            return;
        }
        let Some(before) = &self.before else {
            self.before = Some(seen.clone());
            return;
        };
        // Both bounds hold: what the kernel's count grew by, and what is in no process now and was not then.
        let counted = seen.shmem.0.saturating_sub(least.0);
        let unmapped = seen.unmapped().0.saturating_sub(before.unmapped().0);
        let grown = Bytes(counted.min(unmapped));
        if grown < threshold || threshold.0 == 0 {
            return;
        }
        self.grew_since.get_or_insert(facts.now);
        out.report(self.observation(grown, seen, facts));
    }
}

impl TmpfsWatch {
    /// While no session runs, everything counts from now.
    fn rest(&mut self, shmem: Bytes, threshold: Bytes, out: &mut Conclusions) {
        let stale = self.before.as_ref().is_none_or(|before| {
            threshold.0 > 0 && before.shmem.0.abs_diff(shmem.0) > threshold.percent(STALE_PERCENT).0
        });
        let ask = stale && self.least != Some(shmem);
        let before = self.before.take();
        *self = Self { least: Some(shmem), began: true, before, ..Self::default() };
        if ask {
            out.ask(Effect::Scan(ScanRequest::Tmpfs));
        }
    }

    fn observation(&self, grown: Bytes, seen: &Tmpfs, facts: &Facts<'_>) -> Detection {
        let before = |path: &str| {
            let mounts = self.before.iter().flat_map(|before| &before.mounts);
            mounts.into_iter().find(|mount| mount.path == path).map_or(Bytes(0), |mount| mount.used)
        };
        let mut mounts: Vec<(u64, &str, Bytes)> = seen
            .mounts
            .iter()
            .map(|mount| (mount.used.0.saturating_sub(before(&mount.path).0), mount.path.as_str(), mount.used))
            .filter(|(grown, ..)| *grown > 0)
            .collect();
        mounts.sort_unstable_by(|one, other| other.cmp(one));
        let sessions: Vec<SessionId> = facts
            .sessions
            .iter()
            .filter(|session| session.ended.is_none())
            .map(|session| session.id)
            .take(LISTED)
            .collect();
        let total = facts.host.total;

        let listed = mounts.iter().take(LISTED).map(|(grown, path, used)| MountGrowth {
            growth_bytes: Bytes(*grown),
            path: (*path).to_owned(),
            used_bytes: *used,
        });
        let largest = seen.largest.as_ref();
        let evidence = Evidence::Tmpfs(Box::new(TmpfsEvidence {
            charged_to: "nobody".into(),
            growth_bytes: grown,
            largest_file: largest.map(|TmpfsFile { path, size, uid }| LargestFile {
                path: path.clone(),
                size_bytes: *size,
                uid: *uid,
            }),
            left_segments: seen
                .segments
                .iter()
                .take(LISTED)
                .map(|segment| LeftSegment {
                    creator_pid: segment.creator,
                    creator_session: facts.table.iter().find(|it| it.id.pid == segment.creator).map(|it| it.session),
                    id: segment.id,
                    size_bytes: segment.size,
                    uid: segment.uid,
                })
                .collect(),
            mapped_by_processes_bytes: seen.mapped,
            mounts: listed.collect(),
            seen_for_seconds: self.grew_since.map(|since| facts.now.since(since).as_secs()),
            sessions_running: sessions,
            shmem_bytes: seen.shmem,
        }));
        Detection {
            key: KEY,
            severity: if grown >= total.percent(HEAVY_PERCENT) { Severity::Warning } else { Severity::Info },
            session: None,
            subject: NO_PROCESS,
            members: Vec::new(),
            // A path may be a secret of the file's owner.
            uid: seen.largest.as_ref().map_or(Uid::ROOT, |file| file.uid),
            cause: facts.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        }
    }
}
