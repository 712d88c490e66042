//! Calculates a plan. Pure, and never assigns more memory than is free.

use serde::Serialize;

/// Memory of a session beside the agent's heap: code, stacks, buffers and helpers. At least this,
const MIN_BESIDE_HEAP: u64 = 160 << 20;
/// or one part in this many of the session's memory.
const BESIDE_HEAP_DIVISOR: u64 = 4;
/// A smaller heap limit makes an agent fail.
const MIN_HEAP: u64 = 128 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostCapacity {
    pub(super) name: String,
    /// Bytes of memory.
    pub(super) total: u64,
    /// Bytes that agents can use.
    pub(super) free: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlanRequest {
    /// `None` for as many as fit.
    pub(super) agents: Option<u64>,
    /// Expected bytes of one agent; not 0.
    pub(super) each: u64,
    /// Growth of a leaking agent in bytes per hour.
    pub(super) leak: Option<u64>,
    /// Memory limit of an agent in bytes.
    pub(super) limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HostPlan {
    pub(super) name: String,
    pub(super) total_bytes: u64,
    pub(super) room_bytes: u64,
    pub(super) fits: u64,
    /// Agents that are assigned.
    pub(super) agents: u64,
    /// Free memory divided evenly among the agents; 0 without agents.
    pub(super) share_bytes: u64,
    /// Heap limit of each agent; null if the share is too small for a useful one.
    pub(super) heap_bytes: Option<u64>,
    pub(super) leak: Option<LeakForecast>,
}

/// Counted from the moment at which every agent uses its expected memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct LeakForecast {
    /// One agent leaks until the host's memory is exhausted.
    pub(super) one_leaks_seconds: f64,
    /// All agents do.
    pub(super) all_leak_seconds: f64,
    /// One agent reaches its limit, if it has one.
    pub(super) bound_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CapacityPlan {
    /// Agents that fit on all hosts together.
    pub(super) fits: u64,
    /// Agents that are assigned: as many as requested, or as fit.
    pub(super) agents: u64,
    /// Requested agents; null for as many as fit.
    pub(super) wanted: Option<u64>,
    pub(super) hosts: Vec<HostPlan>,
}

impl CapacityPlan {
    pub(super) fn is_possible(&self) -> bool {
        self.agents > 0 && self.wanted.is_none_or(|wanted| wanted <= self.fits)
    }
}

/// Spreads the agents so that the smallest share is as large as possible.
pub(super) fn plan(hosts: &[HostCapacity], request: &PlanRequest) -> CapacityPlan {
    let each = request.each.max(1);
    let fits: Vec<u64> = hosts.iter().map(|host| host.free / each).collect();
    let all = fits.iter().fold(0, |sum: u64, fits| sum.saturating_add(*fits));
    let agents = request.agents.unwrap_or(all).min(all);
    let put = spread(hosts, &fits, agents);
    let hosts = hosts.iter().zip(fits).zip(put).map(|((host, fits), agents)| share(host, fits, agents, request));
    CapacityPlan { fits: all, agents, wanted: request.agents, hosts: hosts.collect() }
}

/// The number of agents for each host. `agents` must not exceed the number that fits.
///
/// A share is possible if the hosts hold enough agents of that size. Bisection finds the largest one, in time independent
/// of the number of agents.
fn spread(hosts: &[HostCapacity], fits: &[u64], agents: u64) -> Vec<u64> {
    let hold = |share: u64| hosts.iter().zip(fits).map(move |(host, fits)| (host.free / share).min(*fits));
    let (mut possible, mut too_much) = (1, u64::MAX);
    while too_much - possible > 1 {
        let middle = possible + (too_much - possible) / 2;
        if hold(middle).fold(0, u64::saturating_add) >= agents { possible = middle } else { too_much = middle }
    }
    // Hosts that hold more agents than needed get fewer where the shares are smallest.
    let mut put: Vec<u64> = hold(too_much).collect();
    let mut missing = agents - put.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)).min(agents);
    for (put, can) in put.iter_mut().zip(hold(possible)) {
        let more = (can - *put).min(missing);
        *put += more;
        missing -= more;
    }
    put
}

fn share(host: &HostCapacity, fits: u64, agents: u64, request: &PlanRequest) -> HostPlan {
    let share = host.free.checked_div(agents).unwrap_or(0);
    let usable = request.limit.map_or(share, |limit| limit.min(share));
    let left = host.free.saturating_sub(agents.saturating_mul(request.each));
    let leak = request.leak.filter(|leak| *leak > 0 && agents > 0).map(|leak| LeakForecast {
        one_leaks_seconds: seconds(left, leak),
        all_leak_seconds: seconds(left, leak.saturating_mul(agents)),
        bound_seconds: request.limit.map(|limit| seconds(limit.saturating_sub(request.each), leak)),
    });
    HostPlan {
        name: host.name.clone(),
        total_bytes: host.total,
        room_bytes: host.free,
        fits,
        agents,
        share_bytes: share,
        heap_bytes: heap(usable),
        leak,
    }
}

/// Heap limit for a session with this memory, in whole MiB.
pub(super) fn heap(session: u64) -> Option<u64> {
    let beside = (session / BESIDE_HEAP_DIVISOR).max(MIN_BESIDE_HEAP);
    let heap = session.saturating_sub(beside) & !((1 << 20) - 1);
    (heap >= MIN_HEAP).then_some(heap)
}

#[expect(clippy::cast_precision_loss, reason = "shown as minutes and hours")]
fn seconds(bytes: u64, per_hour: u64) -> f64 {
    bytes as f64 / per_hour.max(1) as f64 * 3_600.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn host(gib: u64) -> HostCapacity {
        HostCapacity { name: format!("{gib} GiB"), total: gib * GIB, free: gib * GIB }
    }

    fn request(agents: Option<u64>, each: u64) -> PlanRequest {
        PlanRequest { agents, each, leak: None, limit: None }
    }

    fn put(plan: &CapacityPlan) -> Vec<u64> {
        plan.hosts.iter().map(|host| host.agents).collect()
    }

    #[test]
    fn whole_agents_fit() {
        let plan = plan(&[host(15), host(15), host(5)], &request(None, 2 * GIB));
        assert_eq!((plan.fits, put(&plan)), (16, vec![7, 7, 2]));
        assert!(plan.is_possible());
    }

    #[test]
    fn agents_are_spread_for_largest_share() {
        let hosts = [host(15), host(15), host(5)];
        assert_eq!(put(&plan(&hosts, &request(Some(7), GIB))), [3, 3, 1]);
        assert_eq!(put(&plan(&hosts, &request(Some(1), GIB))), [1, 0, 0]);
        assert_eq!(plan(&hosts, &request(Some(7), GIB)).hosts[2].share_bytes, 5 * GIB);
    }

    #[test]
    fn more_than_fit_is_impossible() {
        let few = plan(&[host(3)], &request(Some(4), GIB));
        assert_eq!((few.agents, few.is_possible()), (3, false));
        assert!(!plan(&[host(0)], &request(None, GIB)).is_possible());
        assert!(!plan(&[], &request(None, GIB)).is_possible());
    }

    #[test]
    fn heap_leaves_memory_beside_it() {
        assert_eq!(heap(4 * GIB), Some(3 * GIB));
        assert_eq!(heap(512 << 20), Some(352 << 20));
        assert_eq!(heap(256 << 20), None);
        assert_eq!(heap(0), None);
    }

    #[test]
    fn leak_exhausts_free_memory() {
        let request = PlanRequest { agents: Some(4), each: GIB, leak: Some(GIB), limit: Some(3 * GIB) };
        let leak = plan(&[host(8)], &request).hosts[0].leak.unwrap();
        let hours = [leak.one_leaks_seconds, leak.all_leak_seconds, leak.bound_seconds.unwrap()];
        assert_eq!(hours.map(|seconds| seconds / 3_600.0), [4.0, 1.0, 2.0]);
    }

    #[test]
    fn limit_below_share_caps_heap() {
        let request = PlanRequest { limit: Some(2 * GIB), ..request(Some(1), GIB) };
        assert_eq!(plan(&[host(8)], &request).hosts[0].heap_bytes, heap(2 * GIB));
    }

    proptest! {
        #[test]
        fn plan_stays_within_memory(
            rooms in proptest::collection::vec(0..64 * GIB, 0..6),
            agents in proptest::option::of(0..300_u64),
            each in 1..8 * GIB,
            leak in proptest::option::of(0..GIB),
        ) {
            let hosts: Vec<HostCapacity> =
                rooms.iter().map(|&room| HostCapacity { name: String::new(), total: room, free: room }).collect();
            let plan = plan(&hosts, &PlanRequest { agents, each, leak, limit: None });
            prop_assert!(plan.agents <= plan.fits);
            prop_assert_eq!(plan.agents, agents.unwrap_or(plan.fits).min(plan.fits));
            prop_assert_eq!(plan.hosts.iter().map(|host| host.agents).sum::<u64>(), plan.agents);
            for host in &plan.hosts {
                prop_assert!(host.agents <= host.fits);
                prop_assert!(host.agents * each <= host.room_bytes);
                prop_assert!(host.agents * host.share_bytes <= host.room_bytes);
                prop_assert!(host.agents == 0 || host.share_bytes >= each);
                prop_assert!(host.heap_bytes.unwrap_or(0) <= host.share_bytes);
                if let Some(leak) = host.leak {
                    prop_assert!(leak.all_leak_seconds <= leak.one_leaks_seconds);
                    prop_assert!(leak.all_leak_seconds >= 0.0);
                }
            }
        }

        #[test]
        fn smallest_share_is_maximal(
            rooms in proptest::collection::vec(GIB..32 * GIB, 1..4),
            agents in 1..12_u64,
        ) {
            let hosts: Vec<HostCapacity> =
                rooms.iter().map(|&room| HostCapacity { name: String::new(), total: room, free: room }).collect();
            let plan = plan(&hosts, &request(Some(agents), GIB / 4));
            let smallest = plan.hosts.iter().filter(|host| host.agents > 0).map(|host| host.share_bytes).min();
            // Greedy: each agent goes where its share is largest.
            let mut counts = vec![0_u64; rooms.len()];
            for _ in 0..plan.agents {
                let best = (0..rooms.len()).max_by_key(|&i| rooms[i] / (counts[i] + 1)).unwrap();
                counts[best] += 1;
            }
            let greedy = rooms.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(room, n)| room / n).min();
            prop_assert_eq!(smallest, greedy);
        }
    }
}
