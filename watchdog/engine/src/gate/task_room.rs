//! Room for tasks: at pids.max, RLIMIT_NPROC or threads-max the forks of an agent fail, so its launch waits.

use super::launch::{Blocker, Launch, MEMORY_RETRY};
use crate::effect::{Effect, ScanRequest};
use crate::{Engine, Step};
use watchdog_api::{Evidence, RefusalReason};
use watchdog_types::{ProcessId, SessionId, TaskLimit, TaskLimitScope};

/// Threads of an agent with one helper. With less left, its launch waits.
const NEEDED: u64 = 16;
const REFRESHES_PER_TICK: usize = 8;

impl Step<'_> {
    pub(super) fn task_blocker(&self, launch: &Launch) -> Option<Blocker> {
        let is_short = |limit: &&TaskLimit| limit.is_near() || limit.max.saturating_sub(limit.used) < NEEDED;
        let limit = launch.tasks.iter().filter(is_short).max_by_key(|limit| limit.percent())?;
        let raised = limit.max.saturating_mul(2).max(limit.used.saturating_add(512));
        let (place, bound, command) = match &limit.of {
            TaskLimitScope::Cgroup(path) => {
                (format!("in cgroup {path}"), "pids.max".to_owned(), raise_pids_max(path, raised))
            }
            TaskLimitScope::User(uid) => {
                let command = format!("`ulimit -u {raised}` in the launching shell, below its hard limit");
                (format!("of uid {}", uid.0), "RLIMIT_NPROC".to_owned(), command)
            }
            TaskLimitScope::Host => {
                let command = format!("`sudo sysctl kernel.threads-max={raised} kernel.pid_max={raised}`");
                ("on this host".to_owned(), "kernel.threads-max".to_owned(), command)
            }
        };
        let detail = format!(
            "{} of {} tasks {place} ({bound}): forks of the agent would fail; end what holds them (`watchdogctl findings`), or \
             raise the limit: {command}",
            limit.used, limit.max
        );
        let holders = self.engine.task_holders(&limit.of);
        Some(Blocker { holders, ..Blocker::new(RefusalReason::Tasks, detail, &bound, MEMORY_RETRY) })
    }

    /// The answer to [`ScanRequest::LaunchTasks`].
    pub(crate) fn launch_tasks(&mut self, process: ProcessId, limits: Vec<TaskLimit>) {
        if let Some(waiter) = self.engine.gate.queue.of_mut(process) {
            waiter.launch.tasks = limits;
        }
        self.grant_ready();
    }

    /// Rereads the limits of launches that wait for tasks.
    pub(super) fn refresh_task_limits(&mut self) {
        let waiting = self.engine.gate.queue.iter().filter(|(_, waiter)| {
            waiter.blocker.as_ref().is_some_and(|blocker| blocker.reason == RefusalReason::Tasks)
        });
        let due: Vec<ProcessId> = waiting.map(|(_, waiter)| waiter.launch.process).take(REFRESHES_PER_TICK).collect();
        due.into_iter().for_each(|process| self.effect(Effect::Scan(ScanRequest::LaunchTasks(process))));
    }
}

impl Engine {
    /// The sessions that an open finding about this limit names.
    fn task_holders(&self, limit: &TaskLimitScope) -> Vec<SessionId> {
        let evidence = self.findings.open().find_map(|finding| match &finding.seen.evidence {
            Evidence::Tasks(tasks) => {
                let same = match limit {
                    TaskLimitScope::Cgroup(path) => tasks.limit_cgroup.as_ref() == Some(path),
                    TaskLimitScope::User(uid) => tasks.limit_uid == Some(*uid),
                    TaskLimitScope::Host => tasks.limit_cgroup.is_none() && tasks.limit_uid.is_none(),
                };
                same.then_some(tasks)
            }
            _ => None,
        });
        evidence.iter().flat_map(|tasks| &tasks.holders).map(|holder| SessionId(holder.session)).collect()
    }
}

/// The command for a unit of systemd, or else for the file.
fn raise_pids_max(path: &str, raised: u64) -> String {
    let unit = path.rsplit('/').next().unwrap_or_default();
    let of_systemd = [".scope", ".service", ".slice"].iter().any(|end| unit.ends_with(end));
    if !of_systemd {
        return format!("`echo {raised} | sudo tee /sys/fs/cgroup{path}/pids.max`");
    }
    // Units below user@UID.service are those of the user's manager.
    let user = if path.contains("/user@") && !unit.starts_with("user@") { " --user" } else { "" };
    let sudo = if user.is_empty() { "sudo " } else { "" };
    format!("`{sudo}systemctl{user} set-property {unit} TasksMax={raised}`")
}
