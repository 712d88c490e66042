use super::*;
use crate::commands::testing::{healthy_status, process, tree};
use crate::render::testing::{narrow, plain};
use rstest::rstest;
use serde_json::json;

fn finding(id: u64, kind: &str, severity: &str, opened_at: &str, evidence: serde_json::Value) -> Finding {
    let finding = json!({
        "id": id, "kind": kind, "severity": severity, "session": 3, "pid": 5, "start_time": 6, "opened_at": opened_at,
        "closed_at": null, "closed_because": null, "summary": "it grows\u{1b}[2J", "evidence": evidence,
        "proposed_action": "report", "action_taken": null,
    });
    serde_json::from_value(finding).unwrap()
}

fn orphans(id: u64, count: usize, mib: u64, opened_at: &str) -> Finding {
    let evidence = json!({
        "agent_comm": "claude", "agent_died_seconds_ago": 9, "agent_pid": 4, "agent_start_time": 3, "agent_status": null,
        "clear": count, "count": count, "in_grace": false, "memory_bytes": mib << 20, "processes": [],
        "profile": "claude-code",
    });
    finding(id, "orphan", "warning", opened_at, evidence)
}

fn busy() -> (Status, Tree, Vec<Finding>) {
    let mut tree = tree();
    let mut left = process(500, 1, ProcessKind::McpServer, &["x"], 9);
    left.state = ProcessState::Orphaned;
    tree.sessions[0].processes.push(left);
    let findings = vec![
        orphans(1, 1, 300, "2026-01-02T10:00:00Z"),
        orphans(2, 1, 10, "2026-01-01T20:00:00Z"),
        finding(3, "leak", "warning", "2026-01-02T11:00:00Z", json!({})),
        finding(4, "leak", "critical", "2026-01-02T11:30:00Z", json!({})),
        finding(5, "detached", "info", "2026-01-02T11:30:00Z", json!({})),
    ];
    (healthy_status(), tree, findings)
}

#[test]
fn overview_counts_what_runs() {
    let (mut status, tree, findings) = busy();
    // Adopted agents are kept, and run all the same.
    status.counts.sessions_running = 7;
    let overview = overview(&status, &tree, &findings);
    insta::assert_snapshot!(
        render_overview(&overview, true, &plain()),
        @"now: 7 agents running, 6 helpers, 3.0 GiB; 2 orphans of 310 MiB since yesterday; 1 critical finding; 1 warning"
    );
    let text = render_overview(&AgentOverview::default(), false, &narrow(30));
    assert_eq!(text, "now, of your processes: no\nagent running\n");
}

#[test]
fn steps_are_single_commands() {
    let (mut status, tree, findings) = busy();
    let steps = next_steps(&status, &overview(&status, &tree, &findings), &findings, &[HookAgent::Codex]);
    insta::assert_snapshot!(render_steps(&steps, &plain()), @r"
    next:
      Look at the most severe finding: it grows\u{1b}[2J
          watchdogctl findings 4
      See the orphans, and terminate them after a question:
          watchdogctl reap
      Orphans are only reported. To let the daemon terminate them, and act when memory runs out:
          sudo watchdogctl config set actions.enforce true
      Subagents inside codex are not seen. To install its hook:
          watchdogctl hook install codex
      See all processes and their memory:
          watchdogctl tree
    ");
    status.config = Some(ConfigStatus {
        file: "/x.toml".into(),
        enforce: true,
        reloads: 1,
        problem: Some("/x.toml:1:1: bad".into()),
    });
    let steps = next_steps(&status, &AgentOverview::default(), &[], &[]);
    insta::assert_snapshot!(render_steps(&steps, &plain()), @r"
    next:
      The daemon rejected its configuration file and keeps the old one: /x.toml:1:1: bad
          watchdogctl config check /x.toml
      No agent is running. Start one as usual, then see its processes:
          watchdogctl tree
    ");
}

#[rstest]
#[case("2026-01-02T09:05:00Z", "since 09:05")]
#[case("2026-01-01T00:00:00Z", "since yesterday")]
#[case("2025-11-27T00:00:00Z", "since 27 Nov")]
#[case("2026-01-03T00:00:00Z", "since 3 Jan")]
#[case("\u{1b}", "since \\u{1b}")]
fn recent_days_have_names(#[case] moment: &str, #[case] text: &str) {
    assert_eq!(since_when(moment, &plain()), text);
}
