use std::time::Duration;

use proptest::prelude::*;

use super::*;

const PER_USER: usize = Sizes::DESK.per_user;
const FOR_ROOT: usize = Sizes::DESK.for_root;

fn desk_only() -> Door {
    Door::new(Sizes::DESK, Sizes::DESK)
}

/// So many connections of a user, each with a request in progress.
fn serve(door: &Door, uid: u32, count: usize) -> Vec<Place> {
    let enter = || door.enter(Uid(uid)).filter(|place| place.begin(false));
    std::iter::repeat_with(enter).take(count).map_while(|place| place).collect()
}

fn is_evicted(place: &Place) -> bool {
    !lock(&place.inside).visitors.contains_key(&place.number)
}

fn open(door: &Door, uid: u32) -> usize {
    lock(&door.inside).visitors.values().filter(|visitor| visitor.uid == Uid(uid)).count()
}

#[test]
fn user_limit_bounds_requests_in_progress() {
    let door = desk_only();
    let greedy = serve(&door, 1000, PER_USER + 10);
    assert_eq!(greedy.len(), PER_USER);
    assert!(door.enter(Uid(1000)).is_none());
    assert!(door.enter(Uid(1001)).is_some());
}

#[test]
fn own_longest_idle_leaves_first() {
    let door = desk_only();
    let mut places = serve(&door, 1000, PER_USER - 2);
    let (first, second) = (door.enter(Uid(1000)).unwrap(), door.enter(Uid(1000)).unwrap());
    first.begin(false);
    std::thread::sleep(Duration::from_millis(2));
    first.finish();
    places.push(door.enter(Uid(1000)).unwrap());
    assert!(is_evicted(&second), "it has waited since before the other was served");
    assert!(!is_evicted(&first));
}

#[test]
fn two_hogs_leave_room_for_a_third() {
    for idle in [true, false] {
        let door = desk_only();
        let hogs: Vec<Place> = [1000, 1001].into_iter().flat_map(|uid| serve(&door, uid, PER_USER)).collect();
        if idle {
            hogs.iter().for_each(Place::finish);
        }
        let third: Vec<Place> = (0..RESERVE).map(|_| door.enter(Uid(1002)).expect("a reserve")).collect();
        assert!(third.iter().all(|place| place.begin(true) && !is_evicted(place)));
        let evicted = hogs.iter().filter(|place| is_evicted(place)).count();
        assert_eq!(evicted, RESERVE, "idle: {idle}");
        assert_eq!(door.enter(Uid(1002)).is_some(), idle, "beyond the reserve only idle ones give way");
    }
}

#[test]
fn root_enters_a_full_house() {
    let door = desk_only();
    let others: Vec<_> = (1..10).flat_map(|uid| serve(&door, uid, PER_USER)).collect();
    let roots = serve(&door, 0, FOR_ROOT);
    assert_eq!(roots.len(), FOR_ROOT);
    let newcomers = serve(&door, 99, RESERVE);
    assert_eq!(newcomers.len(), RESERVE, "root's reserve is not what they took");
    assert_eq!(open(&door, 0), FOR_ROOT);
    drop(others);
}

#[test]
fn stalled_client_gives_way() {
    let sizes = Sizes { per_user: 2, in_all: 2, for_root: 0, shared: false };
    let door = Door::new(sizes, sizes);
    let places = serve(&door, 7, 2);
    assert!(door.enter(Uid(7)).is_none(), "both are being answered");
    places[1].stall(true);
    assert!(door.enter(Uid(7)).is_some());
    assert!(is_evicted(&places[1]) && !is_evicted(&places[0]));
}

#[test]
fn oldest_anonymous_connection_gives_way() {
    let door = Door::new(Sizes::anonymous(2), Sizes::anonymous(2));
    let places = serve(&door, 7, 2);
    assert!(door.enter(Uid(7)).is_some());
    assert!(is_evicted(&places[0]) && !is_evicted(&places[1]));
}

#[test]
fn launches_leave_the_desk_free() {
    let sizes = Sizes::house(1_000, 1 << 20);
    let door = Door::new(sizes, Sizes::DESK);
    let one = serve(&door, 1000, 1_000);
    assert_eq!(one.len(), 1_000);
    let reader = door.enter(Uid(1000)).unwrap();
    assert!(reader.begin(true));
    drop(one);
    let several: Vec<_> = (1..=10).flat_map(|uid| serve(&door, uid, 100)).collect();
    assert_eq!(several.len(), 1_000);
    assert!(door.enter(Uid(1000)).is_some());
}

#[test]
fn desk_limit_counts_requests_in_progress() {
    let door = Door::new(Sizes::house(1_000, 1 << 20), Sizes::DESK);
    let places: Vec<_> = (0..PER_USER + 5).map(|_| door.enter(Uid(1000)).unwrap()).collect();
    assert_eq!(places.iter().filter(|place| place.begin(true)).count(), PER_USER);
    places[0].finish();
    assert!(places.last().unwrap().begin(true), "an answered request holds no place at the desk");
}

#[test]
fn few_descriptors_allow_few_connections() {
    let door = Door::new(Sizes::house(1_000, 1_024), Sizes::DESK);
    let others: Vec<_> = (1..10).flat_map(|uid| serve(&door, uid, 1_000)).collect();
    let open: usize = (1..10).map(|uid| open(&door, uid)).sum();
    assert!(open * Sizes::DESCRIPTORS < 1_024 / 2, "{open}");
    assert!(door.enter(Uid::ROOT).is_some());
    drop(others);
}

#[test]
fn smaller_house_closes_no_connection() {
    let door = Door::new(Sizes::house(10, 1 << 20), Sizes::DESK);
    let places = serve(&door, 1000, PER_USER + 10);
    door.resize(Sizes::house(0, 1 << 20));
    assert!(door.enter(Uid(1000)).is_none());
    assert!(door.enter(Uid(1001)).is_some());
    assert!(places.iter().all(|place| !is_evicted(place)));
    drop(places);
    assert!(lock(&door.inside).visitors.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the others do: no user has more than the limits allow, a user with fewer connections than the reserve gets
    /// in, and keeps what the reserve covers.
    #[test]
    fn each_user_has_its_reserve(steps in prop::collection::vec((0_u32..7, 0_u8..5), 1..400)) {
        let sizes = Sizes { per_user: 16, in_all: 40, for_root: 6, shared: false };
        let door = Door::new(sizes, sizes);
        let mut places: Vec<Place> = Vec::new();
        for (uid, act) in steps {
            let before = open(&door, uid);
            match act {
                0 | 1 => {
                    let entered = door.enter(Uid(uid));
                    let reserve = if uid == 0 { sizes.for_root } else { RESERVE };
                    prop_assert!(entered.is_some() || before >= reserve, "{uid} has {before} and is refused");
                    places.extend(entered);
                }
                2 => drop(places.iter().rev().find(|place| !is_evicted(place)).map(|place| place.begin(true))),
                3 => drop(places.first().map(Place::finish)),
                _ => drop(places.pop()),
            }
            places.retain(|place| !is_evicted(place));
            let all = lock(&door.inside).visitors.len();
            prop_assert!(all <= sizes.in_all && (0..7).all(|uid| open(&door, uid) <= sizes.per_user));
        }
        // Six users with a reserve of four each have room beside root's: nobody's last four were taken from them.
        for uid in 1..7 {
            while open(&door, uid) < RESERVE {
                places.push(door.enter(Uid(uid)).expect("a reserve"));
            }
        }
        prop_assert!((1..7).all(|uid| open(&door, uid) >= RESERVE));
    }
}
