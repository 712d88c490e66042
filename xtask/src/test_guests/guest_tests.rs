//! Which tests run in the guests, and why.

use Tests::{All, Named};

use super::debian::Kernel;

/// Which tests of a binary run.
#[derive(Clone, Copy)]
pub(super) enum Tests {
    All,
    /// Tests whose names contain one of these.
    Named(&'static [&'static str]),
}

/// Where the tests of a binary run, and why only there. An emulated processor needs about ten times as long as this host, on
/// which all of them run too: a guest runs a test only if a kernel program, a cgroup or a pidfd decides its result.
pub(super) struct Row {
    pub(super) binary: &'static str,
    pub(super) every_kernel: Option<Tests>,
    /// [`ONE_KERNEL`] runs these besides. Without this and without `every_kernel`, the release check runs all.
    pub(super) one_kernel: Option<Tests>,
    pub(super) why: &'static str,
}

const fn row(binary: &'static str, every_kernel: Option<Tests>, one_kernel: Option<Tests>, why: &'static str) -> Row {
    Row { binary, every_kernel, one_kernel, why }
}

/// The integration tests of guests. Other binaries run on the host only: they test verdicts of the engine, files, sockets, HTTP,
/// pidfds by themselves (see [`LIBRARY_TESTS`]), or need node, npm or a network.
pub(super) const INTEGRATION_TESTS: &[Row] = &[
    row("kernel_live", Some(All), None, "every kernel program by itself, on every layout of the kernel's types"),
    row("machine", Some(All), None, "what a guest must have for the others"),
    row(
        "pid_namespace",
        Some(All),
        None,
        "the numbers of a pid in nested namespaces, on every layout of the kernel's types",
    ),
    row("pid_reuse", Some(All), None, "start times in kernel records against those in /proc"),
    row(
        "absence",
        Some(Named(&["helper_detached_meanwhile_is_member", "another_layout_takes_over_without_gap"])),
        Some(Named(&[
            "unit_capabilities_suffice_for_takeover",
            "full_ring_is_counted_and_repaired",
            "unpin_removes_everything",
        ])),
        "pinned programs, links and maps, and the capabilities that opening them needs; which start was killed when is not \
         the kernel's matter",
    ),
    row(
        "tree",
        Some(Named(&["tree_follows_forks", "vfork_and_posix_spawn_are_forks"])),
        Some(Named(&["running_agent_is_found", "exited_parent_does_not_hide_child"])),
        "events and the scan from end to end; kernel_live has threads, double forks, zombies and titles",
    ),
    row(
        "memory",
        Some(Named(&["exit_event_has_peak", "tree_shows_burst_and_peak"])),
        Some(Named(&["shared_memory_is_shown_as_such"])),
        "rss counters, the exit's high-water mark and the task iterator; the rest is arithmetic on /proc",
    ),
    row(
        "orphans",
        None,
        Some(Named(&["dead_agent_gives_one_finding", "agent_without_terminal_is_abandoned"])),
        "the exit event and the terminal in a sample; the rest are verdicts of the engine",
    ),
    row(
        "gate",
        Some(Named(&[
            "ungated_agent_reported_or_denied",
            "denied_file_is_denied_however_executed",
            "fork_beyond_limit_fails",
            "oom_kills_whole_session_only",
        ])),
        Some(Named(&[
            "lease_ends_with_launched_command",
            "denied_name_is_file_name",
            "process_leaving_cgroup_is_reported",
        ])),
        "LSM programs and cgroups; order, limits and rights in the queue are the engine's",
    ),
    row(
        "losses",
        None,
        Some(Named(&["losses_are_counted_and_repaired"])),
        "a full ring from end to end; kernel_live has the counters and the full map",
    ),
    row(
        "deaths",
        Some(Named(&[
            "cgroup_oom_names_cgroup",
            "host_oom_names_largest_session",
            "strangers_sigterm_names_the_stranger",
        ])),
        None,
        "the tracepoints of OOM kills and signals, and the counters of cgroups",
    ),
    row("model", None, None, "random sequences take minutes: pins, layouts and exits while no daemon runs"),
    row(OLD_KERNEL_BINARY, Some(All), None, "what is left below the oldest kernel with kernel events"),
    row(
        "reclaim",
        None,
        Some(Named(&["requested_session_goes_out_and_returns"])),
        "page-outs from end to end, into zram; the page_out tests of watchdog-host cover each kernel",
    ),
    row("throttle", None, Some(All), "memory.high, the same since 5.10; the host may have no memory controller"),
    row("small_machine", None, Some(All), "needs a machine that may run out of memory"),
    row(SYSTEMD_BINARY, None, Some(All), "the unit's sandbox, in a guest with systemd"),
    row(PACKAGE_BINARY, None, Some(All), "installation, upgrade and removal, in a guest with systemd and dpkg"),
];

/// The kernel of the guests without LSM programs and with systemd, and of the tests that run on one kernel only.
pub(crate) const ONE_KERNEL: Kernel = Kernel::V6_12;

/// Unit tests that call the kernel, by package. Other unit tests have the same result on every kernel.
pub(super) const LIBRARY_TESTS: &[(&str, Tests)] =
    &[("watchdog-kernel", All), ("watchdog-host", Named(&["cgroup", "page_out", "pidfd"]))];

/// The tests whose result depends on whether the kernel calls LSM programs: names of a binary's tests contain one of these.
pub(super) const LSM_TESTS: &[(&str, &[&str])] = &[
    ("kernel_live", &["gate"]),
    ("gate", &["ungated_agent_reported_or_denied", "denied_", "fork_beyond_limit_fails"]),
];

/// The tests of the installed daemon, as systemd runs it: they have a guest of their own.
pub(super) const SYSTEMD_BINARY: &str = "systemd_unit";
pub(super) const PACKAGE_BINARY: &str = "package";

/// The only tests of 5.10, where no kernel program loads.
pub(super) const OLD_KERNEL_BINARY: &str = "old_kernel";
