//! Settings of the host that conflict with a plan. Pure: [`HostSettings`] in, sentences out.

use serde::Serialize;

use super::capacity::HostPlan;
use crate::render::{count, size};
use watchdog_api::{Breaker, PROTECTED_SCORE, ProfileBounds, UserAgents};

/// Upper bound of the heap limit that V8 chooses itself.
const V8_MAX_DEFAULT_HEAP: u64 = 4 << 30;
/// With less, pages of a browser crash.
const MIN_SHM: u64 = 256 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSettings {
    /// Size limit of /dev/shm in bytes; `None` if it does not exist.
    pub(super) shm: Option<u64>,
    /// SwapTotal, in bytes.
    pub(super) swap: u64,
    /// vm.overcommit_memory; `None` if it is unreadable.
    pub(super) overcommit: Option<u64>,
    /// CommitLimit less Committed_AS, in bytes.
    pub(super) commit_left: Option<u64>,
    /// --max-old-space-size of NODE_OPTIONS, in bytes.
    pub(super) node_heap: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    /// `/dev/shm`, `swap`, `overcommit` or `heap`; with a daemon `protected`, `breaker` and `quota` too.
    pub(super) about: &'static str,
    /// It does not conflict with the plan.
    pub(super) ok: bool,
    /// One sentence, with the fix.
    pub(super) text: String,
}

pub(super) fn host_advice(host: &HostPlan, each: u64, settings: &HostSettings) -> Vec<Advice> {
    vec![shm(host, each, settings), swap(host, settings), overcommit(host, each, settings), heap(host, settings)]
}

/// Advice on the breaker if it is open, and on the limit of the profile.
pub(super) fn of_gate(agents: u64, breaker: &Breaker, profile: Option<&ProfileBounds>) -> Vec<Advice> {
    let breaker = breaker.open.then(|| {
        let text = format!("the gate refuses all launches now: {}", breaker.detail);
        Advice { about: "breaker", ok: false, text }
    });
    let quota = profile.and_then(|profile| {
        let (most, running) = (u64::from(profile.max_sessions?), profile.running);
        let ok = agents <= most.saturating_sub(running);
        Some(Advice { about: "quota", ok, text: format!("{running} of {most} sessions of this profile are running") })
    });
    [breaker, quota].into_iter().flatten().collect()
}

/// Advice on agents and helpers that the OOM killer spares, if there are any.
pub(super) fn of_protected(users: &[UserAgents]) -> Option<Advice> {
    let protected: u64 = users.iter().map(|user| user.protected).sum();
    let helpers: u64 = users.iter().map(|user| user.protected_helpers).sum();
    let agents = (protected > 0).then(|| count(protected, "running agent", "running agents"));
    let listed = agents.into_iter().chain((helpers > 0).then(|| count(helpers, "helper", "helpers")));
    let listed = listed.collect::<Vec<_>>().join(" and ");
    let have = if protected + helpers == 1 { "has" } else { "have" };
    let text = format!(
        "{listed} {have} an oom_score_adj of {PROTECTED_SCORE} or less: when memory runs out, others die in their place; see \
         `watchdogctl findings`"
    );
    (protected + helpers > 0).then_some(Advice { about: "protected", ok: false, text })
}

fn shm(host: &HostPlan, each: u64, settings: &HostSettings) -> Advice {
    let left = host.room_bytes.saturating_sub(host.agents.saturating_mul(each));
    let (ok, text) = match settings.shm {
        None => (false, "missing: browsers and other programs with named shared memory fail".into()),
        Some(shm) if shm < MIN_SHM => {
            let (shm, least) = (size(shm), size(MIN_SHM));
            (false, format!("{shm}: browsers crash below {least}; increase its size (--shm-size of a container)"))
        }
        Some(shm) if shm > left => {
            let (shm, left) = (size(shm), size(left));
            (false, format!("can use up to {shm}; the plan leaves {left}"))
        }
        Some(shm) => (true, format!("can use up to {}, within what the plan leaves", size(shm))),
    };
    Advice { about: "/dev/shm", ok, text }
}

fn swap(host: &HostPlan, settings: &HostSettings) -> Advice {
    let (ok, text) = match settings.swap {
        0 => (false, "none: the OOM killer acts as soon as memory is full".into()),
        swap if swap > host.total_bytes => {
            let swap = size(swap);
            (false, format!("{swap}, more than memory: leaking agents slow the host down long before they are killed"))
        }
        swap => (true, size(swap)),
    };
    Advice { about: "swap", ok, text }
}

fn overcommit(host: &HostPlan, each: u64, settings: &HostSettings) -> Advice {
    let needed = host.agents.saturating_mul(each);
    let (ok, text) = match (settings.overcommit, settings.commit_left) {
        (Some(2), Some(left)) if left < needed => {
            let (left, needed) = (size(left), size(needed));
            (
                false,
                format!(
                    "vm.overcommit_memory=2 leaves {left} to reserve; the plan needs at least {needed}: allocations fail; raise \
                     vm.overcommit_ratio, or set it to 0"
                ),
            )
        }
        (Some(2), _) => (
            false,
            "vm.overcommit_memory=2: runtimes reserve much more than they use and may fail to start; set it to 0"
                .into(),
        ),
        (Some(mode), _) => (true, format!("vm.overcommit_memory={mode}")),
        (None, _) => (true, "unknown".into()),
    };
    Advice { about: "overcommit", ok, text }
}

fn heap(host: &HostPlan, settings: &HostSettings) -> Advice {
    let (ok, text) = match (host.heap_bytes, settings.node_heap) {
        (None, _) if host.agents == 0 => (true, "no agent fits".into()),
        (None, _) => (false, format!("a share of {} is too small for a useful heap limit", size(host.share_bytes))),
        (Some(heap), Some(set)) if set > heap => {
            (false, format!("NODE_OPTIONS allows heaps of {}; set {}", size(set), node_options(heap)))
        }
        (Some(_), Some(set)) => (true, format!("NODE_OPTIONS allows heaps of {}", size(set))),
        (Some(heap), None) if heap >= V8_MAX_DEFAULT_HEAP => {
            (true, "the default limit of V8 is below the share".into())
        }
        (Some(heap), None) => (
            false,
            format!(
                "NODE_OPTIONS sets no limit, and the default of V8 is up to {}; set {}",
                size(V8_MAX_DEFAULT_HEAP),
                node_options(heap)
            ),
        ),
    };
    Advice { about: "heap", ok, text }
}

/// The option for a heap limit in bytes.
pub(super) fn node_options(heap: u64) -> String {
    format!("--max-old-space-size={}", heap >> 20)
}

/// The heap limit that a NODE_OPTIONS sets, in bytes. The last one counts.
pub(super) fn node_heap(options: &str) -> Option<u64> {
    let mut limits = options.split_ascii_whitespace().filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        let mib: u64 = value.parse().ok()?;
        (name.replace('_', "-") == "--max-old-space-size").then_some(mib.saturating_mul(1 << 20))
    });
    limits.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const GIB: u64 = 1 << 30;

    fn host() -> HostPlan {
        HostPlan {
            name: "this host".into(),
            total_bytes: 16 * GIB,
            room_bytes: 10 * GIB,
            fits: 10,
            agents: 8,
            share_bytes: GIB + GIB / 4,
            heap_bytes: Some(960 << 20),
            leak: None,
        }
    }

    fn sound() -> HostSettings {
        HostSettings {
            shm: Some(GIB),
            swap: 4 * GIB,
            overcommit: Some(0),
            commit_left: Some(GIB),
            node_heap: Some(512 << 20),
        }
    }

    fn off(settings: &HostSettings) -> Vec<&'static str> {
        host_advice(&host(), GIB, settings).iter().filter(|advice| !advice.ok).map(|advice| advice.about).collect()
    }

    #[test]
    fn suitable_host_has_no_warning() {
        assert_eq!(off(&sound()), Vec::<&str>::new());
    }

    #[rstest]
    #[case(HostSettings { shm: Some(64 << 20), ..sound() }, "/dev/shm")]
    #[case(HostSettings { shm: None, ..sound() }, "/dev/shm")]
    #[case(HostSettings { shm: Some(8 * GIB), ..sound() }, "/dev/shm")]
    #[case(HostSettings { swap: 0, ..sound() }, "swap")]
    #[case(HostSettings { swap: 64 * GIB, ..sound() }, "swap")]
    #[case(HostSettings { overcommit: Some(2), ..sound() }, "overcommit")]
    #[case(HostSettings { overcommit: Some(2), commit_left: Some(100 * GIB), ..sound() }, "overcommit")]
    #[case(HostSettings { node_heap: None, ..sound() }, "heap")]
    #[case(HostSettings { node_heap: Some(4 * GIB), ..sound() }, "heap")]
    fn conflicting_setting_is_named(#[case] settings: HostSettings, #[case] about: &str) {
        assert_eq!(off(&settings), [about]);
    }

    #[test]
    fn gate_advice_has_breaker_and_quota() {
        let profile = ProfileBounds {
            name: "p".into(),
            running: 3,
            max_sessions: Some(4),
            expected_bytes: GIB,
            learned_from: 0,
            max_memory_bytes: None,
        };
        assert_eq!(of_gate(9, &Breaker::default(), None), []);
        assert!(of_gate(1, &Breaker::default(), Some(&profile))[0].ok);
        let open = Breaker { open: true, since: None, detail: "83 % in use".into() };
        let advice = of_gate(2, &open, Some(&profile));
        assert_eq!(
            advice.iter().map(|advice| (advice.about, advice.ok)).collect::<Vec<_>>(),
            [("breaker", false), ("quota", false)]
        );
    }

    #[rstest]
    #[case("--max-old-space-size=512", Some(512))]
    #[case("--inspect --max_old_space_size=512 --max-old-space-size=1024", Some(1024))]
    #[case("--inspect", None)]
    #[case("--max-old-space-size=x", None)]
    #[case("", None)]
    fn last_heap_limit_counts(#[case] options: &str, #[case] mib: Option<u64>) {
        assert_eq!(node_heap(options), mib.map(|mib| mib << 20));
    }
}
