//! Cgroup paths as runtimes make them, and real cgroups of such names.

use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;

use super::super::testing::TestProcess;
use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OUTER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

#[rstest]
#[case::docker_v1("12:memory:/docker/{}", Some(ContainerRuntime::Docker))]
#[case::docker_v2("0::/system.slice/docker-{}.scope", Some(ContainerRuntime::Docker))]
#[case::docker_own_group("0::/system.slice/docker-{}.scope/init", Some(ContainerRuntime::Docker))]
#[case::docker_in_docker(
    "5:pids:/docker/ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff/docker/{}",
    Some(ContainerRuntime::Docker)
)]
#[case::podman_rootless(
    "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{}.scope/container",
    Some(ContainerRuntime::Podman)
)]
#[case::podman_cgroupfs("4:memory:/libpod_parent/libpod-{}", Some(ContainerRuntime::Podman))]
#[case::podman_monitor("0::/user.slice/user-1000.slice/libpod-conmon-{}.scope", None)]
#[case::kubernetes(
    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{}.scope",
    Some(ContainerRuntime::Containerd)
)]
#[case::kubernetes_cgroupfs("3:cpu:/kubepods/besteffort/pod12-34/{}", Some(ContainerRuntime::Unknown))]
#[case::nerdctl("0::/system.slice/nerdctl-{}.scope", Some(ContainerRuntime::Containerd))]
#[case::containerd("7:memory:/default/{}", Some(ContainerRuntime::Containerd))]
#[case::crio("0::/kubepods.slice/crio-{}.scope", Some(ContainerRuntime::Crio))]
#[case::a_session("0::/user.slice/user-1000.slice/session-3.scope", None)]
#[case::later_hierarchy("2:cpu:/\n1:name=systemd:/docker/{}\n0::/", Some(ContainerRuntime::Docker))]
fn cgroup_names_container(#[case] path: &str, #[case] runtime: Option<ContainerRuntime>) {
    let cgroups = path.replace("{}", ID);
    assert_eq!(container(cgroups.as_bytes()), runtime.map(|runtime| (ID, runtime)));
}

#[test]
fn malformed_container_id_rejected() {
    assert_eq!(container(format!("0::/docker/{}", &ID[1..]).as_bytes()), None);
    assert_eq!(container(format!("0::/docker/{}g", &ID[1..]).as_bytes()), None);
    assert_eq!(container(format!("0::/docker/{OUTER}").as_bytes()), Some((OUTER, ContainerRuntime::Docker)));
}

/// Cgroups of this test alone, removed at its end.
struct TestGroup {
    made: Vec<PathBuf>,
}

impl TestGroup {
    /// A group below whichever hierarchy of this host lets us make one: the unified one, or pids of version 1.
    fn new(name: &str, id: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let root = roots.iter().map(PathBuf::from).find(|root| root.join("cgroup.procs").exists())?;
        let outer = root.join(format!("watchdog-test-{}-{name}", std::process::id()));
        let made = vec![outer.clone(), outer.join("docker"), outer.join("docker").join(id)];
        for path in &made {
            std::fs::create_dir(path).ok()?;
        }
        Some(Self { made })
    }

    fn enter(&self, process: ProcessId) {
        std::fs::write(self.made[2].join("cgroup.procs"), process.pid.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            super::super::testing::eventually("an empty cgroup", || std::fs::remove_dir(path).is_ok());
        }
    }
}

#[test]
fn only_init_of_container_found() {
    let id = format!("{:064x}", std::process::id());
    let Some(group) = TestGroup::new("window", &id) else {
        assert!(!rustix::process::geteuid().is_root(), "root can make cgroups");
        return;
    };
    let mut found = Vec::new();
    let (first, second);
    {
        first = TestProcess::spawn(Command::new("sleep").arg("60"));
        group.enter(first.process);
        // The next one is to start in a later tick.
        std::thread::sleep(std::time::Duration::from_millis(30));
        second = TestProcess::spawn(Command::new("sleep").arg("61"));
        group.enter(second.process);
        let start = first.process.start_time;
        for (from, to) in
            [(start, start), (Ticks(0), Ticks(start.0 - 1)), (Ticks(start.0 + 1), second.process.start_time)]
        {
            let ours = |container: &ContainerInit| container.container_id == id;
            found.push(started_between(from, to).unwrap().into_iter().filter(ours).collect::<Vec<_>>());
        }
    }
    let expected = ContainerInit {
        process: first.process,
        container_id: id.clone(),
        runtime: ContainerRuntime::Docker,
        comm: "sleep".to_owned(),
    };
    drop((first, second));
    assert_eq!(found, [vec![expected], vec![], vec![]]);
}
