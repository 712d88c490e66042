//! The kind of program of a killer outside every session.

use crate::unit;
use watchdog_api::KillerRole;
use watchdog_types::KillSeen;

/// By comm, program or unit. comm has fifteen characters.
#[rustfmt::skip]
const OOM_KILLERS: [&str; 11] = [
    "bustd", "earlyoom", "lmkd", "low-memory-moni", "low-memory-monitor", "nohang", "nohang-desktop", "oomd", "oomd_bin",
    "systemd-oomd", "thrash-protect",
];
const SERVICE_MANAGERS: [&str; 5] = ["systemd", "systemd-shutdow", "systemd-shutdown", "init", "openrc-init"];
#[rustfmt::skip]
const CONTAINER_RUNTIMES: [&str; 14] = [
    "buildkitd", "conmon", "conmonrs", "containerd", "crio", "crun", "dockerd", "incusd", "lxc-monitord", "lxd",
    "podman", "runc", "runsc", "youki",
];
const SHIM: &str = "containerd-shim";
/// `PM2 v5.4.2: God Daemon`.
const PM2: &str = "PM2 v";
/// Batch systems too: they kill jobs that exceed what they asked for.
#[rustfmt::skip]
const SUPERVISORS: [&str; 34] = [
    "Runner.Listener", "Runner.Worker", "buildkite-agent", "catatonit", "circusd", "condor_starter", "docker-init",
    "dumb-init", "foreman", "gitlab-runner", "god", "hivemind", "honcho", "k3s-agent", "k3s-server", "kubelet", "monit",
    "mprocs", "nomad", "overmind", "pbs_mom", "pm2", "process-compose", "runsv", "runsvdir", "s6-supervise",
    "s6-svscan", "sbatchd", "slurmstepd", "supervise-daemo", "supervise-daemon", "supervisord", "tini", "woodpecker-agent",
];

/// Whether the killer still ran the program that sent the signal: `sh -c 'kill 7; exec sleep 9'` does not.
pub(super) fn is_same_program(comm: &str, seen: &KillSeen) -> bool {
    seen.threads.is_empty() || seen.threads.iter().any(|name| name == comm)
}

pub(super) fn is_oom_killer(name: &str) -> bool {
    OOM_KILLERS.contains(&name)
}

/// The role of a killer by its names: any process can take these, so they are only said as such.
pub(super) fn role_of(comm: &str, seen: Option<&KillSeen>) -> Option<KillerRole> {
    let unit = seen.and_then(|seen| unit::innermost(seen.killer_cgroup.as_deref()?));
    let service = unit.and_then(|unit| unit.strip_suffix(".service"));
    let program = seen.filter(|seen| is_same_program(comm, seen)).and_then(|seen| seen.program.as_deref());
    let names: Vec<&str> = [Some(comm), program, service].into_iter().flatten().collect();
    let is = |known: &[&str]| names.iter().any(|name| known.contains(name));
    if is(&OOM_KILLERS) {
        Some(KillerRole::OomKiller)
    } else if is(&SERVICE_MANAGERS) {
        Some(KillerRole::ServiceManager)
    } else if is(&CONTAINER_RUNTIMES) || names.iter().any(|name| name.starts_with(SHIM)) {
        Some(KillerRole::ContainerRuntime)
    } else {
        (is(&SUPERVISORS) || names.iter().any(|name| name.starts_with(PM2))).then_some(KillerRole::Supervisor)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn later_program_gives_no_role() {
        let threads = vec!["earlyoom".into(), "worker".into()];
        let seen = KillSeen { program: Some("earlyoom".into()), threads, ..KillSeen::default() };
        assert_eq!(role_of("worker", Some(&seen)), Some(KillerRole::OomKiller));
        assert_eq!(role_of("bash", Some(&seen)), None);
    }

    #[rstest]
    #[case::comm("earlyoom", None, None, Some(KillerRole::OomKiller))]
    #[case::script("python3", Some("nohang"), None, Some(KillerRole::OomKiller))]
    #[case::unit("python3", None, Some("/system.slice/nohang-desktop.service"), Some(KillerRole::OomKiller))]
    #[case::systemd("systemd", Some("systemd"), Some("/init.scope"), Some(KillerRole::ServiceManager))]
    #[case::shim("containerd-shim", Some("containerd-shim-runc-v2"), None, Some(KillerRole::ContainerRuntime))]
    #[case::kubelet("kubelet", None, Some("/system.slice/kubelet.service"), Some(KillerRole::Supervisor))]
    #[case::pm2("PM2 v5.4.2: God", None, Some("/system.slice/pm2-u.service"), Some(KillerRole::Supervisor))]
    #[case::batch_system(
        "slurmstepd",
        Some("slurmstepd"),
        Some("/system.slice/slurmstepd.scope"),
        Some(KillerRole::Supervisor)
    )]
    #[case::ci_job(
        "Runner.Worker",
        Some("Runner.Worker"),
        Some("/system.slice/actions.runner.x.service"),
        Some(KillerRole::Supervisor)
    )]
    #[case::openrc("supervise-daemo", Some("supervise-daemon"), None, Some(KillerRole::Supervisor))]
    #[case::shutdown("systemd-shutdow", None, None, Some(KillerRole::ServiceManager))]
    #[case::shell("bash", Some("bash"), Some("/user.slice/u.slice/session-1.scope"), None)]
    fn killer_is_known_by_its_names(
        #[case] comm: &str,
        #[case] program: Option<&str>,
        #[case] cgroup: Option<&str>,
        #[case] role: Option<KillerRole>,
    ) {
        let (program, killer_cgroup) = (program.map(str::to_owned), cgroup.map(str::to_owned));
        let seen = KillSeen { program, killer_cgroup, ..KillSeen::default() };
        assert_eq!(role_of(comm, Some(&seen)), role);
    }
}
