use super::*;
use crate::commands::testing::busy_queue;
use crate::render::testing::plain;
use rstest::rstest;

const GIB: u64 = 1 << 30;

fn options() -> PlanOptions {
    PlanOptions { agents: Some(4), profile: None, memory: None, leak: Some(60 << 20), hosts: vec![15 * GIB, 5 * GIB] }
}

#[test]
fn plan_spreads_over_hosts() {
    let options = options();
    let (source, hosts) = capacities(&options, None).unwrap();
    insta::assert_snapshot!(render(&report(&options, None, source, &hosts), &plain()), @r"
        yes: 36 agents fit, 4 requested; 512 MiB each (default)

        HOST     MEMORY     FREE  FIT  AGENTS    SHARE     HEAP  ONE LEAKS  ALL LEAK  LIMIT
        host 1   15 GiB   14 GiB   27       3  4.5 GiB  3.4 GiB     8d 12h    2d 20h      -
        host 2  5.0 GiB  4.5 GiB    9       1  4.5 GiB  3.4 GiB     2d 20h    2d 20h      -

        set for each agent: NODE_OPTIONS=--max-old-space-size=3456
        ");
}

#[test]
fn impossible_plan_says_how_many_fit() {
    let options = PlanOptions { agents: Some(100), memory: Some(2 * GIB), leak: None, ..options() };
    let (source, hosts) = capacities(&options, None).unwrap();
    let report = report(&options, None, source, &hosts);
    assert!(!report.plan.is_possible());
    insta::assert_snapshot!(render(&report, &plain()), @r"
        no: 8 agents fit of 100; 2.0 GiB each (given)

        HOST     MEMORY     FREE  FIT  AGENTS    SHARE     HEAP
        host 1   15 GiB   14 GiB    6       6  2.2 GiB  1.7 GiB
        host 2  5.0 GiB  4.5 GiB    2       2  2.2 GiB  1.7 GiB

        set for each agent: NODE_OPTIONS=--max-old-space-size=1728
        ");
}

#[test]
fn profile_sets_memory_and_limit() {
    let queue = busy_queue();
    let profile = profile(Some("claude-code"), Some(&queue)).unwrap();
    let (source, hosts) = capacities(&options(), None).unwrap();
    let report = report(&options(), profile, source, &hosts);
    assert_eq!((report.each_bytes, report.each_from), (700 << 20, "learned"));
    assert!(report.plan.hosts[0].leak.unwrap().bound_seconds.is_some());
    // The limit of 2 GiB is below the share.
    assert_eq!(report.node_options.as_deref(), Some("--max-old-space-size=1536"));
}

#[test]
fn unknown_profile_is_a_usage_error() {
    let error = profile(Some("codex"), Some(&busy_queue())).unwrap_err();
    assert_eq!(error.code(), 2);
    assert!(error.to_string().contains("claude-code"), "{error}");
    assert!(profile(Some("codex"), None).unwrap().is_none());
}

#[test]
fn advice_has_a_mark() {
    let advice = [
        Advice { about: "swap", ok: false, text: "none".into() },
        Advice { about: "overcommit", ok: true, text: "vm.overcommit_memory=0".into() },
    ];
    insta::assert_snapshot!(settings(&advice, &plain()), @r"
    warn  swap        none
    ok    overcommit  vm.overcommit_memory=0
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
fn rate_is_parsed(#[case] text: &str, #[case] per_hour: Option<u64>) {
    assert_eq!(rate(text).ok(), per_hour);
}
