use super::super::queue::testing::busy;
use super::super::show::testing::plain;
use super::*;
use rstest::rstest;

const GIB: u64 = 1 << 30;

fn options() -> Options {
    Options { agents: Some(4), profile: None, memory: None, leak: Some(60 << 20), hosts: vec![15 * GIB, 5 * GIB] }
}

#[test]
fn a_plan_over_two_hosts() {
    let options = options();
    let (source, places) = places(&options, None).unwrap();
    insta::assert_snapshot!(render(&report(&options, None, source, &places), &plain()), @r"
        yes: 36 agents fit, and 4 are wanted; 512 MiB each (default)

        HOST     MEMORY     ROOM  FIT  AGENTS    SHARE     HEAP  ONE LEAKS  ALL LEAK  BOUND
        host 1   15 GiB   14 GiB   27       3  4.5 GiB  3.4 GiB     8d 12h    2d 20h      -
        host 2  5.0 GiB  4.5 GiB    9       1  4.5 GiB  3.4 GiB     2d 20h    2d 20h      -

        set for each: NODE_OPTIONS=--max-old-space-size=3456
        ");
}

#[test]
fn a_plan_that_is_not_possible_says_how_many_fit() {
    let options = Options { agents: Some(100), memory: Some(2 * GIB), leak: None, ..options() };
    let (source, places) = places(&options, None).unwrap();
    let report = report(&options, None, source, &places);
    assert!(!report.plan.is_possible());
    insta::assert_snapshot!(render(&report, &plain()), @r"
        no: 8 agents fit, and 100 are wanted; 2.0 GiB each (given)

        HOST     MEMORY     ROOM  FIT  AGENTS    SHARE     HEAP
        host 1   15 GiB   14 GiB    6       6  2.2 GiB  1.7 GiB
        host 2  5.0 GiB  4.5 GiB    2       2  2.2 GiB  1.7 GiB

        set for each: NODE_OPTIONS=--max-old-space-size=1728
        ");
}

#[test]
fn a_profile_brings_what_was_learned_and_its_bound() {
    let queue = busy();
    let profile = profile(Some("claude-code"), Some(&queue)).unwrap();
    let (source, places) = places(&options(), None).unwrap();
    let report = report(&options(), profile, source, &places);
    assert_eq!((report.each_bytes, report.each_from), (700 << 20, "learned"));
    assert!(report.plan.hosts[0].leak.unwrap().bound_seconds.is_some());
    // The bound of 2 GiB is below the share.
    assert_eq!(report.node_options.as_deref(), Some("--max-old-space-size=1536"));
}

#[test]
fn a_profile_that_nobody_knows_is_a_usage_error_with_the_names() {
    let failure = profile(Some("codex"), Some(&busy())).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().contains("claude-code"), "{failure}");
    assert!(profile(Some("codex"), None).unwrap().is_none());
}

#[test]
fn advice_is_shown_with_its_mark() {
    let advice = [
        Advice { about: "swap", ok: false, text: "none".into() },
        Advice { about: "overcommit", ok: true, text: "vm.overcommit_memory=0".into() },
    ];
    insta::assert_snapshot!(settings(&advice, &plain()), @r"
    off  swap        none
    ok   overcommit  vm.overcommit_memory=0
    ");
}

#[rstest]
#[case("50MiB/m", Some((50 << 20) * 60))]
#[case("1GiB/h", Some(1 << 30))]
#[case("1KiB/s", Some(1024 * 3600))]
#[case("24MiB/d", Some(1 << 20))]
#[case("50MiB", None)]
#[case("50/m", None)]
#[case("50MiB/w", None)]
#[case("16000000TiB/s", None)]
fn a_rate_is_a_size_and_a_time(#[case] text: &str, #[case] per_hour: Option<u64>) {
    assert_eq!(rate(text).ok(), per_hour);
}
