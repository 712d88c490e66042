use std::time::Duration;

use proptest::prelude::*;

use super::*;

const PER_USER: usize = ConnectionLimits::CONTROL.per_user;
const FOR_ROOT: usize = ConnectionLimits::CONTROL.reserved_for_root;

fn control_only() -> ConnectionLimiter {
    ConnectionLimiter::new(ConnectionLimits::CONTROL, ConnectionLimits::CONTROL)
}

/// Connections of a user, each with a request in progress.
fn serve(limiter: &ConnectionLimiter, uid: u32, count: usize) -> Vec<ConnectionPermit> {
    let enter = || limiter.try_acquire(Uid(uid)).filter(|permit| permit.begin(false));
    std::iter::repeat_with(enter).take(count).map_while(|permit| permit).collect()
}

fn is_evicted(permit: &ConnectionPermit) -> bool {
    !lock(&permit.table).connections.contains_key(&permit.number)
}

fn open(limiter: &ConnectionLimiter, uid: u32) -> usize {
    lock(&limiter.table).connections.values().filter(|connection| connection.uid == Uid(uid)).count()
}

#[test]
fn user_limit_bounds_requests_in_progress() {
    let limiter = control_only();
    let greedy = serve(&limiter, 1000, PER_USER + 10);
    assert_eq!(greedy.len(), PER_USER);
    assert!(limiter.try_acquire(Uid(1000)).is_none());
    assert!(limiter.try_acquire(Uid(1001)).is_some());
}

#[test]
fn own_longest_idle_leaves_first() {
    let limiter = control_only();
    let mut places = serve(&limiter, 1000, PER_USER - 2);
    let (first, second) = (limiter.try_acquire(Uid(1000)).unwrap(), limiter.try_acquire(Uid(1000)).unwrap());
    first.begin(false);
    std::thread::sleep(Duration::from_millis(2));
    first.finish();
    places.push(limiter.try_acquire(Uid(1000)).unwrap());
    assert!(is_evicted(&second), "it has been idle for longer");
    assert!(!is_evicted(&first));
}

#[test]
fn two_heavy_users_leave_slots() {
    for idle in [true, false] {
        let limiter = control_only();
        let hogs: Vec<ConnectionPermit> =
            [1000, 1001].into_iter().flat_map(|uid| serve(&limiter, uid, PER_USER)).collect();
        if idle {
            hogs.iter().for_each(ConnectionPermit::finish);
        }
        let third: Vec<ConnectionPermit> =
            (0..RESERVE).map(|_| limiter.try_acquire(Uid(1002)).expect("a reserve")).collect();
        assert!(third.iter().all(|permit| permit.begin(true) && !is_evicted(permit)));
        let evicted = hogs.iter().filter(|permit| is_evicted(permit)).count();
        assert_eq!(evicted, RESERVE, "idle: {idle}");
        assert_eq!(limiter.try_acquire(Uid(1002)).is_some(), idle, "beyond the reserve only idle ones are closed");
    }
}

#[test]
fn root_connects_at_the_limit() {
    let limiter = control_only();
    let others: Vec<_> = (1..10).flat_map(|uid| serve(&limiter, uid, PER_USER)).collect();
    let roots = serve(&limiter, 0, FOR_ROOT);
    assert_eq!(roots.len(), FOR_ROOT);
    let newcomers = serve(&limiter, 99, RESERVE);
    assert_eq!(newcomers.len(), RESERVE, "root's reserve is free");
    assert_eq!(open(&limiter, 0), FOR_ROOT);
    drop(others);
}

#[test]
fn idle_user_gives_way_to_newcomer() {
    let limits = ConnectionLimits::for_queue(0, 1 << 20);
    let limiter = ConnectionLimiter::new(limits, ConnectionLimits::CONTROL);
    let users = (1..).take(limits.total - FOR_ROOT);
    let places: Vec<ConnectionPermit> =
        users.map(|uid| limiter.try_acquire(Uid(uid)).expect("there is room")).collect();
    places[1..].iter().for_each(|permit| assert!(permit.begin(false)));
    assert!(limiter.try_acquire(Uid(1)).is_none(), "a user with a connection displaces no other user");
    let newcomer = limiter.try_acquire(Uid(9_999)).expect("one is idle");
    assert!(is_evicted(&places[0]) && newcomer.begin(false));
    assert!(limiter.try_acquire(Uid(10_000)).is_none(), "all others wait for a launch");
}

#[test]
fn oldest_request_gives_way_to_newcomer() {
    let limiter = ConnectionLimiter::new(ConnectionLimits::for_queue(1_000, 1 << 20), ConnectionLimits::CONTROL);
    let of = |uid| limiter.try_acquire(Uid(uid)).expect("there is room");
    let users = (1..).take(ConnectionLimits::CONTROL.total - FOR_ROOT);
    let streams: Vec<ConnectionPermit> = users.map(of).collect();
    streams.iter().for_each(|permit| assert!(permit.begin(true)));
    let newcomer = of(9_999);
    assert!(newcomer.begin(true));
    assert!(is_evicted(&streams[0]) && streams[1..].iter().all(|permit| !is_evicted(permit)));
    assert!(!of(2).begin(true), "a user with a request displaces no other user");
}

#[test]
fn stalled_client_gives_way() {
    let limits = ConnectionLimits { per_user: 2, total: 2, reserved_for_root: 0, shared: false, requests: false };
    let limiter = ConnectionLimiter::new(limits, limits);
    let places = serve(&limiter, 7, 2);
    assert!(limiter.try_acquire(Uid(7)).is_none(), "both are in progress");
    places[1].stall(true);
    assert!(limiter.try_acquire(Uid(7)).is_some());
    assert!(is_evicted(&places[1]) && !is_evicted(&places[0]));
}

#[test]
fn oldest_anonymous_connection_gives_way() {
    let limiter = ConnectionLimiter::new(ConnectionLimits::anonymous(2), ConnectionLimits::anonymous(2));
    let places = serve(&limiter, 7, 2);
    assert!(limiter.try_acquire(Uid(7)).is_some());
    assert!(is_evicted(&places[0]) && !is_evicted(&places[1]));
}

#[test]
fn launches_count_separately() {
    let limits = ConnectionLimits::for_queue(1_000, 1 << 20);
    let limiter = ConnectionLimiter::new(limits, ConnectionLimits::CONTROL);
    let one = serve(&limiter, 1000, 1_000);
    assert_eq!(one.len(), 1_000);
    let reader = limiter.try_acquire(Uid(1000)).unwrap();
    assert!(reader.begin(true));
    drop(one);
    let several: Vec<_> = (1..=10).flat_map(|uid| serve(&limiter, uid, 100)).collect();
    assert_eq!(several.len(), 1_000);
    assert!(limiter.try_acquire(Uid(1000)).is_some());
}

#[test]
fn control_limit_counts_requests_in_progress() {
    let limiter = ConnectionLimiter::new(ConnectionLimits::for_queue(1_000, 1 << 20), ConnectionLimits::CONTROL);
    let places: Vec<_> = (0..PER_USER + 5).map(|_| limiter.try_acquire(Uid(1000)).unwrap()).collect();
    assert_eq!(places.iter().filter(|permit| permit.begin(true)).count(), PER_USER);
    places[0].finish();
    assert!(places.last().unwrap().begin(true), "an answered request is not in progress");
}

#[test]
fn few_descriptors_allow_few_connections() {
    let limiter = ConnectionLimiter::new(ConnectionLimits::for_queue(1_000, 1_024), ConnectionLimits::CONTROL);
    let others: Vec<_> = (1..10).flat_map(|uid| serve(&limiter, uid, 1_000)).collect();
    let open: usize = (1..10).map(|uid| open(&limiter, uid)).sum();
    assert!(open * ConnectionLimits::DESCRIPTORS < 1_024 / 2, "{open}");
    assert!(limiter.try_acquire(Uid::ROOT).is_some());
    drop(others);
}

#[test]
fn lower_limit_closes_no_connection() {
    let limiter = ConnectionLimiter::new(ConnectionLimits::for_queue(10, 1 << 20), ConnectionLimits::CONTROL);
    let places = serve(&limiter, 1000, PER_USER + 10);
    limiter.resize(ConnectionLimits::for_queue(0, 1 << 20));
    assert!(limiter.try_acquire(Uid(1000)).is_none());
    assert!(limiter.try_acquire(Uid(1001)).is_some());
    assert!(places.iter().all(|permit| !is_evicted(permit)));
    drop(places);
    assert!(lock(&limiter.table).connections.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// In every case: no user exceeds the limits, and a user with fewer connections than the reserve can connect and keeps
    /// the reserve.
    #[test]
    fn each_user_has_its_reserve(steps in prop::collection::vec((0_u32..7, 0_u8..5), 1..400)) {
        let limits = ConnectionLimits { per_user: 16, total: 40, reserved_for_root: 6, shared: false, requests: true };
        let limiter = ConnectionLimiter::new(limits, limits);
        let mut places: Vec<ConnectionPermit> = Vec::new();
        for (uid, act) in steps {
            let before = open(&limiter, uid);
            match act {
                0 | 1 => {
                    let entered = limiter.try_acquire(Uid(uid));
                    let reserve = if uid == 0 { limits.reserved_for_root } else { RESERVE };
                    prop_assert!(entered.is_some() || before >= reserve, "{uid} has {before} and is refused");
                    places.extend(entered);
                }
                2 => drop(places.iter().rev().find(|permit| !is_evicted(permit)).map(|permit| permit.begin(true))),
                3 => drop(places.first().map(ConnectionPermit::finish)),
                _ => drop(places.pop()),
            }
            places.retain(|permit| !is_evicted(permit));
            let all = lock(&limiter.table).connections.len();
            prop_assert!(all <= limits.total && (0..7).all(|uid| open(&limiter, uid) <= limits.per_user));
        }
        // Six users with a reserve of four each fit beside root's, so none lost its last four.
        for uid in 1..7 {
            while open(&limiter, uid) < RESERVE {
                places.push(limiter.try_acquire(Uid(uid)).expect("a reserve"));
            }
        }
        prop_assert!((1..7).all(|uid| open(&limiter, uid) >= RESERVE));
    }
}
