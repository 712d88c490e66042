use serde_json::json;

use super::*;
use crate::render::testing::plain;
use watchdog_api::{Finding, FindingKind, Severity};
use watchdog_recording::RecordingSummary;

fn finding(id: u64, kind: FindingKind, closed: Option<&str>) -> Finding {
    let evidence = json!({ "agent_died_at": "2026-01-02T03:04:15Z", "count": 2 });
    Finding {
        id,
        kind,
        severity: Severity::Warning,
        session: Some(1),
        pid: 4_000 + u32::try_from(id).unwrap(),
        start_time: 7,
        opened_at: "2026-01-02T03:04:15.250Z".into(),
        closed_at: closed.map(|_| "2026-01-02T05:04:05Z".into()),
        closed_because: closed.map(ToOwned::to_owned),
        summary: "2 processes left behind".into(),
        evidence: serde_json::from_value(evidence).unwrap(),
        proposed_action: "terminate".into(),
        action_taken: None,
    }
}

fn change(millis: u64, change: &str, proposed: &str) -> ReplayedChange {
    ReplayedChange {
        at: "2026-01-02T03:04:15.250Z".into(),
        after: Duration::from_millis(millis),
        change: change.into(),
        severity: Severity::Warning,
        proposed_action: proposed.into(),
        summary: format!("{change} \x1b[2J"),
    }
}

fn example(findings: Vec<ReplayedFinding>, end: &'static str, end_reason: Option<&str>) -> Replay {
    Replay {
        recording: RecordingSummary {
            format_version: 1,
            written_by: "0.1.0".into(),
            kernel: "6.12.1".into(),
            boot_id: "b".into(),
            began_at: "2026-01-02T03:04:05.000Z".into(),
            ended_at: "2026-01-02T05:04:35.000Z".into(),
            duration_seconds: 7_230.0,
            inputs: 4_321,
            end,
            end_reason: end_reason.map(ToOwned::to_owned),
            whole_argv: false,
        },
        findings,
    }
}

#[test]
fn changes_are_in_order_of_time() {
    let orphan = ReplayedFinding {
        finding: finding(1, FindingKind::Orphan, Some("gone")),
        changes: vec![
            change(10_250, "opened", "report"),
            change(40_250, "changed", "terminate"),
            change(7_200_000, "closed", "terminate"),
        ],
    };
    let detached = ReplayedFinding {
        finding: finding(2, FindingKind::Detached, None),
        changes: vec![change(30_000, "opened", "report")],
    };
    insta::assert_snapshot!(render(&example(vec![orphan, detached], "stopped", None), &plain()), @r"
    2026-01-02T03:04:05.000Z, 2:00:30.000 long, 4321 inputs, without arguments, kernel 6.12.1, agent-watchdog 0.1.0

             AT  CHANGE   ID  KIND      SEVERITY  SESSION   PID  PROPOSED
       0:10.250  opened    1  orphan    warning         1  4001  report
        opened \u{1b}[2J
       0:30.000  opened    2  detached  warning         1  4002  report
        opened \u{1b}[2J
          agent died  2h ago
          count       2
       0:40.250  changed   1  orphan    warning         1  4001  terminate
        changed \u{1b}[2J
    2:00:00.000  closed    1  orphan    warning         1  4001  terminate
        closed \u{1b}[2J
        closed: gone
          agent died  2h ago
          count       2
    ");
}

#[test]
fn no_findings_says_so() {
    assert!(render(&example(Vec::new(), "stopped", None), &plain()).ends_with("\n\nno findings\n"));
}

#[test]
fn incomplete_recording_has_a_warning() {
    let text = |end, reason| warning(&example(Vec::new(), end, reason)).unwrap_or_default();
    assert_eq!(text("stopped", None), "");
    insta::assert_snapshot!(
        [
            text("torn", Some("corrupt deflate stream")),
            text("fell_behind", None),
            text("failed", Some("No space left on device (os error 28)")),
            text("unknown", None),
        ]
        .join("\n"),
        @r"
    is truncated after 4321 inputs (2:00:30.000): corrupt deflate stream; everything before was replayed
    ends after 4321 inputs (2:00:30.000): the recorder could not keep up
    ends after 4321 inputs (2:00:30.000): writing failed (No space left on device (os error 28))
    has no end marker: it stops after 4321 inputs (2:00:30.000); its daemon was killed or is still running; everything was replayed
    "
    );
}

#[test]
fn offsets_have_milliseconds() {
    let shown = [0.25, 59.9994, 61.0, 3_600.0, 90_061.5].map(offset);
    assert_eq!(shown, ["0:00.250", "0:59.999", "1:01.000", "1:00:00.000", "1:01:01:01.500"]);
}
