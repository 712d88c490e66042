//! What of this host is in the way of a plan, or makes its end worse. Pure: [`Settings`] in, sentences out.

use serde::Serialize;

use super::super::show::size;
use super::sums::Share;
use crate::api::{Breaker, ProfileBounds};

/// V8 chooses its own limit by the host's memory, and never a higher one than this.
const V8_CHOOSES: u64 = 4 << 30;
/// What a browser needs there: with less, pages crash.
const LEAST_SHM: u64 = 256 << 20;

/// What this host is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// How large /dev/shm may become, in bytes; `None` where there is none.
    pub(super) shm: Option<u64>,
    /// SwapTotal, in bytes.
    pub(super) swap: u64,
    /// vm.overcommit_memory; `None` where it cannot be read.
    pub(super) overcommit: Option<u64>,
    /// What may still be reserved under CommitLimit, in bytes.
    pub(super) commit_left: Option<u64>,
    /// The heap limit of NODE_OPTIONS, in bytes.
    pub(super) node_heap: Option<u64>,
}

/// One thing, and whether it fits the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    /// `/dev/shm`, `swap`, `overcommit` or `heap`; with a daemon `breaker` and `quota` too.
    pub(super) about: &'static str,
    /// It is as it should be.
    pub(super) ok: bool,
    /// In one sentence, with what to do.
    pub(super) text: String,
}

/// One for each setting.
pub(super) fn advise(host: &Share, each: u64, settings: &Settings) -> Vec<Advice> {
    vec![shm(host, each, settings), swap(host, settings), overcommit(host, each, settings), heap(host, settings)]
}

/// What the gate says to so many agents, where it says anything.
pub(super) fn of_gate(agents: u64, breaker: &Breaker, profile: Option<&ProfileBounds>) -> Vec<Advice> {
    let breaker = breaker.open.then(|| {
        let text = format!("nothing is granted at present: {}", breaker.detail);
        Advice { about: "breaker", ok: false, text }
    });
    let quota = profile.and_then(|profile| {
        let (most, running) = (u64::from(profile.max_sessions?), profile.running);
        let ok = agents <= most.saturating_sub(running);
        Some(Advice { about: "quota", ok, text: format!("{running} of {most} sessions of this profile run") })
    });
    [breaker, quota].into_iter().flatten().collect()
}

fn shm(host: &Share, each: u64, settings: &Settings) -> Advice {
    let left = host.room_bytes.saturating_sub(host.agents.saturating_mul(each));
    let (ok, text) = match settings.shm {
        None => (false, "there is none: browsers, and whatever shares memory by name, fail".into()),
        Some(shm) if shm < LEAST_SHM => {
            let (shm, least) = (size(shm), size(LEAST_SHM));
            (false, format!("{shm}: browsers crash below {least}; mount it larger (--shm-size of a container)"))
        }
        Some(shm) if shm > left => {
            let (shm, left) = (size(shm), size(left));
            (
                false,
                format!("files there are memory that belongs to no process: up to {shm}, and the plan leaves {left}"),
            )
        }
        Some(shm) => (true, format!("{}, which the plan leaves", size(shm))),
    };
    Advice { about: "/dev/shm", ok, text }
}

fn swap(host: &Share, settings: &Settings) -> Advice {
    let (ok, text) = match settings.swap {
        0 => {
            (false, "none: when the memory is full the OOM killer comes at once, without a time in which to act".into())
        }
        swap if swap > host.total_bytes => {
            let swap = size(swap);
            (
                false,
                format!("{swap}, more than memory: agents that leak make the host crawl long before they are ended"),
            )
        }
        swap => (true, size(swap)),
    };
    Advice { about: "swap", ok, text }
}

fn overcommit(host: &Share, each: u64, settings: &Settings) -> Advice {
    let needed = host.agents.saturating_mul(each);
    let (ok, text) = match (settings.overcommit, settings.commit_left) {
        (Some(2), Some(left)) if left < needed => {
            let (left, needed) = (size(left), size(needed));
            (
                false,
                format!(
                    "vm.overcommit_memory=2 lets {left} more be reserved, and the plan takes {needed} at least: allocations \
                     fail; raise vm.overcommit_ratio, or use 0"
                ),
            )
        }
        (Some(2), _) => (
            false,
            "vm.overcommit_memory=2: runtimes reserve much more than they use, and may fail to start; use 0".into(),
        ),
        (Some(mode), _) => (true, format!("vm.overcommit_memory={mode}")),
        (None, _) => (true, "not known".into()),
    };
    Advice { about: "overcommit", ok, text }
}

fn heap(host: &Share, settings: &Settings) -> Advice {
    let (ok, text) = match (host.heap_bytes, settings.node_heap) {
        (None, _) if host.agents == 0 => (true, "nothing is started".into()),
        (None, _) => (false, format!("a share of {} is too little for a heap limit to help", size(host.share_bytes))),
        (Some(heap), Some(set)) if set > heap => {
            (false, format!("NODE_OPTIONS lets each heap grow to {}; {} fits", size(set), node_options(heap)))
        }
        (Some(_), Some(set)) => (true, format!("NODE_OPTIONS lets each heap grow to {}", size(set))),
        (Some(heap), None) if heap >= V8_CHOOSES => (true, "V8's own limit is below the share".into()),
        (Some(heap), None) => (
            false,
            format!(
                "NODE_OPTIONS has no limit, and V8 may choose up to {}: set {}",
                size(V8_CHOOSES),
                node_options(heap)
            ),
        ),
    };
    Advice { about: "heap", ok, text }
}

/// The option that limits a heap to so many bytes.
pub(super) fn node_options(heap: u64) -> String {
    format!("--max-old-space-size={}", heap >> 20)
}

/// The limit that a NODE_OPTIONS sets, in bytes. The last one counts.
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

    fn host() -> Share {
        Share {
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

    fn sound() -> Settings {
        Settings {
            shm: Some(GIB),
            swap: 4 * GIB,
            overcommit: Some(0),
            commit_left: Some(GIB),
            node_heap: Some(512 << 20),
        }
    }

    fn off(settings: &Settings) -> Vec<&'static str> {
        advise(&host(), GIB, settings).iter().filter(|advice| !advice.ok).map(|advice| advice.about).collect()
    }

    #[test]
    fn a_sound_host_has_nothing_in_the_way() {
        assert_eq!(off(&sound()), Vec::<&str>::new());
    }

    #[rstest]
    #[case(Settings { shm: Some(64 << 20), ..sound() }, "/dev/shm")]
    #[case(Settings { shm: None, ..sound() }, "/dev/shm")]
    #[case(Settings { shm: Some(8 * GIB), ..sound() }, "/dev/shm")]
    #[case(Settings { swap: 0, ..sound() }, "swap")]
    #[case(Settings { swap: 64 * GIB, ..sound() }, "swap")]
    #[case(Settings { overcommit: Some(2), ..sound() }, "overcommit")]
    #[case(Settings { overcommit: Some(2), commit_left: Some(100 * GIB), ..sound() }, "overcommit")]
    #[case(Settings { node_heap: None, ..sound() }, "heap")]
    #[case(Settings { node_heap: Some(4 * GIB), ..sound() }, "heap")]
    fn what_is_off_is_named(#[case] settings: Settings, #[case] about: &str) {
        assert_eq!(off(&settings), [about]);
    }

    #[test]
    fn the_gate_has_its_say_too() {
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
        let said = of_gate(2, &open, Some(&profile));
        assert_eq!(
            said.iter().map(|advice| (advice.about, advice.ok)).collect::<Vec<_>>(),
            [("breaker", false), ("quota", false)]
        );
    }

    #[rstest]
    #[case("--max-old-space-size=512", Some(512))]
    #[case("--inspect --max_old_space_size=512 --max-old-space-size=1024", Some(1024))]
    #[case("--inspect", None)]
    #[case("--max-old-space-size=x", None)]
    #[case("", None)]
    fn the_last_limit_counts(#[case] options: &str, #[case] mib: Option<u64>) {
        assert_eq!(node_heap(options), mib.map(|mib| mib << 20));
    }
}
