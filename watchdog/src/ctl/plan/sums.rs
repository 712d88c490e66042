//! The arithmetic of a plan. Pure, and never more memory than there is.

use serde::Serialize;

/// What of a session is not the agent's heap, at least: code, stacks, buffers, and its helpers.
const LEAST_BESIDE_HEAP: u64 = 160 << 20;
/// The same as a share of the session's memory: one in so many parts.
const BESIDE_HEAP: u64 = 4;
/// A smaller limit makes an agent die, and does not make it frugal.
const LEAST_HEAP: u64 = 128 << 20;

/// A host that agents are to run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What it is called.
    pub(super) name: String,
    /// All its memory, in bytes.
    pub(super) total: u64,
    /// What there is for further agents, in bytes.
    pub(super) room: u64,
}

/// What is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// So many agents; `None` for as many as fit.
    pub(super) agents: Option<u64>,
    /// What one is expected to take, in bytes; not 0.
    pub(super) each: u64,
    /// How fast one leaks, in bytes per hour.
    pub(super) leak: Option<u64>,
    /// What one may take, in bytes.
    pub(super) bound: Option<u64>,
}

/// What becomes of it on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Share {
    /// The host.
    pub(super) name: String,
    /// All its memory.
    pub(super) total_bytes: u64,
    /// What there is for further agents.
    pub(super) room_bytes: u64,
    /// As many fit.
    pub(super) fits: u64,
    /// As many are put there.
    pub(super) agents: u64,
    /// What each of them gets if the room is divided evenly; 0 where there is none.
    pub(super) share_bytes: u64,
    /// What the heap of each may grow to; null where that is too little to be of use.
    pub(super) heap_bytes: Option<u64>,
    /// What a leak does.
    pub(super) leak: Option<Leak>,
}

/// When a leak ends it, from the moment at which every agent has what it is expected to take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Leak {
    /// One agent leaks, and takes all that is left.
    pub(super) one_leaks_seconds: f64,
    /// All of them do.
    pub(super) all_leak_seconds: f64,
    /// One has reached its own bound, if it has one.
    pub(super) bound_seconds: Option<f64>,
}

/// A plan over all hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Plan {
    /// As many fit on all hosts together.
    pub(super) fits: u64,
    /// As many are put somewhere: as many as are wanted, or as fit.
    pub(super) agents: u64,
    /// As many are wanted; null for as many as fit.
    pub(super) wanted: Option<u64>,
    /// In the order in which they were named.
    pub(super) hosts: Vec<Share>,
}

impl Plan {
    /// All that are wanted fit.
    pub(super) fn is_possible(&self) -> bool {
        self.agents > 0 && self.wanted.is_none_or(|wanted| wanted <= self.fits)
    }
}

/// Spreads the agents so that the smallest share is as large as can be.
pub(super) fn plan(places: &[Place], wish: &Wish) -> Plan {
    let each = wish.each.max(1);
    let fits: Vec<u64> = places.iter().map(|place| place.room / each).collect();
    let all = fits.iter().fold(0, |sum: u64, fits| sum.saturating_add(*fits));
    let agents = wish.agents.unwrap_or(all).min(all);
    let put = spread(places, &fits, agents);
    let hosts = places.iter().zip(fits).zip(put).map(|((place, fits), agents)| share(place, fits, agents, wish));
    Plan { fits: all, agents, wanted: wish.agents, hosts: hosts.collect() }
}

/// How many go to each host. `agents` is no more than all that fit.
///
/// A share of at least so many bytes is possible when the hosts hold enough agents of that size. The largest such share is
/// found by halving, which a million of agents does not make slower.
fn spread(places: &[Place], fits: &[u64], agents: u64) -> Vec<u64> {
    let hold = |share: u64| places.iter().zip(fits).map(move |(place, fits)| (place.room / share).min(*fits));
    let (mut possible, mut too_much) = (1, u64::MAX);
    while too_much - possible > 1 {
        let middle = possible + (too_much - possible) / 2;
        if hold(middle).fold(0, u64::saturating_add) >= agents { possible = middle } else { too_much = middle }
    }
    // Some hosts hold more than is needed: what is too much is left out where the shares are smallest.
    let mut put: Vec<u64> = hold(too_much).collect();
    let mut missing = agents - put.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)).min(agents);
    for (put, can) in put.iter_mut().zip(hold(possible)) {
        let more = (can - *put).min(missing);
        *put += more;
        missing -= more;
    }
    put
}

fn share(place: &Place, fits: u64, agents: u64, wish: &Wish) -> Share {
    let share = place.room.checked_div(agents).unwrap_or(0);
    // A bound that is lower than the share holds first.
    let usable = wish.bound.map_or(share, |bound| bound.min(share));
    let left = place.room.saturating_sub(agents.saturating_mul(wish.each));
    let leak = wish.leak.filter(|leak| *leak > 0 && agents > 0).map(|leak| Leak {
        one_leaks_seconds: seconds(left, leak),
        all_leak_seconds: seconds(left, leak.saturating_mul(agents)),
        bound_seconds: wish.bound.map(|bound| seconds(bound.saturating_sub(wish.each), leak)),
    });
    Share {
        name: place.name.clone(),
        total_bytes: place.total,
        room_bytes: place.room,
        fits,
        agents,
        share_bytes: share,
        heap_bytes: heap(usable),
        leak,
    }
}

/// What of a session's memory its agent's heap may take, in whole MiB.
pub(super) fn heap(session: u64) -> Option<u64> {
    let beside = (session / BESIDE_HEAP).max(LEAST_BESIDE_HEAP);
    let heap = session.saturating_sub(beside) & !((1 << 20) - 1);
    (heap >= LEAST_HEAP).then_some(heap)
}

#[expect(clippy::cast_precision_loss, reason = "minutes and hours are shown of it")]
fn seconds(bytes: u64, per_hour: u64) -> f64 {
    bytes as f64 / per_hour.max(1) as f64 * 3_600.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn place(gib: u64) -> Place {
        Place { name: format!("{gib} GiB"), total: gib * GIB, room: gib * GIB }
    }

    fn wish(agents: Option<u64>, each: u64) -> Wish {
        Wish { agents, each, leak: None, bound: None }
    }

    fn put(plan: &Plan) -> Vec<u64> {
        plan.hosts.iter().map(|host| host.agents).collect()
    }

    #[test]
    fn as_many_as_fit_is_whole_agents_only() {
        let plan = plan(&[place(15), place(15), place(5)], &wish(None, 2 * GIB));
        assert_eq!((plan.fits, put(&plan)), (16, vec![7, 7, 2]));
        assert!(plan.is_possible());
    }

    #[test]
    fn fewer_agents_are_spread_so_that_each_gets_most() {
        let places = [place(15), place(15), place(5)];
        assert_eq!(put(&plan(&places, &wish(Some(7), GIB))), [3, 3, 1]);
        assert_eq!(put(&plan(&places, &wish(Some(1), GIB))), [1, 0, 0]);
        assert_eq!(plan(&places, &wish(Some(7), GIB)).hosts[2].share_bytes, 5 * GIB);
    }

    #[test]
    fn more_than_fit_is_not_possible() {
        let few = plan(&[place(3)], &wish(Some(4), GIB));
        assert_eq!((few.agents, few.is_possible()), (3, false));
        assert!(!plan(&[place(0)], &wish(None, GIB)).is_possible());
        assert!(!plan(&[], &wish(None, GIB)).is_possible());
    }

    #[test]
    fn a_heap_is_what_is_left_beside_it() {
        assert_eq!(heap(4 * GIB), Some(3 * GIB));
        assert_eq!(heap(512 << 20), Some(352 << 20));
        assert_eq!(heap(256 << 20), None);
        assert_eq!(heap(0), None);
    }

    #[test]
    fn a_leak_takes_what_is_left_and_then_it_is_over() {
        let wish = Wish { agents: Some(4), each: GIB, leak: Some(GIB), bound: Some(3 * GIB) };
        let leak = plan(&[place(8)], &wish).hosts[0].leak.unwrap();
        let hours = [leak.one_leaks_seconds, leak.all_leak_seconds, leak.bound_seconds.unwrap()];
        assert_eq!(hours.map(|seconds| seconds / 3_600.0), [4.0, 1.0, 2.0]);
    }

    #[test]
    fn a_bound_below_the_share_limits_the_heap() {
        let wish = Wish { bound: Some(2 * GIB), ..wish(Some(1), GIB) };
        assert_eq!(plan(&[place(8)], &wish).hosts[0].heap_bytes, heap(2 * GIB));
    }

    proptest! {
        #[test]
        fn never_more_memory_than_there_is_and_nobody_gets_less_than_expected(
            rooms in proptest::collection::vec(0..64 * GIB, 0..6),
            agents in proptest::option::of(0..300_u64),
            each in 1..8 * GIB,
            leak in proptest::option::of(0..GIB),
        ) {
            let places: Vec<Place> =
                rooms.iter().map(|&room| Place { name: String::new(), total: room, room }).collect();
            let plan = plan(&places, &Wish { agents, each, leak, bound: None });
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
        fn no_other_spread_gives_the_poorest_more(
            rooms in proptest::collection::vec(GIB..32 * GIB, 1..4),
            agents in 1..12_u64,
        ) {
            let places: Vec<Place> =
                rooms.iter().map(|&room| Place { name: String::new(), total: room, room }).collect();
            let plan = plan(&places, &wish(Some(agents), GIB / 4));
            let poorest = plan.hosts.iter().filter(|host| host.agents > 0).map(|host| host.share_bytes).min();
            // One by one, each to where it gets most.
            let mut counts = vec![0_u64; rooms.len()];
            for _ in 0..plan.agents {
                let best = (0..rooms.len()).max_by_key(|&i| rooms[i] / (counts[i] + 1)).unwrap();
                counts[best] += 1;
            }
            let greedy = rooms.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(room, n)| room / n).min();
            prop_assert_eq!(poorest, greedy);
        }
    }
}
