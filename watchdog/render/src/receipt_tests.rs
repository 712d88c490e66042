use super::*;
use crate::testing::{plain, planned, receipt};

#[test]
fn preview_lists_targets_and_spared() {
    insta::assert_snapshot!(preview(&planned(), "nothing\n", &plain()), @r"
    2 helpers outlived claude-code (pid 41230)
        PID  KIND         MEMORY  NAME
      41241  mcp-server   80 MiB  a\u{1b}[2J.js
      41240  tool        4.0 MiB  sh

    spared
        PID  NAME  REASON
      41250  tmux  kept: a tmux server

    To end a spared process with its descendants: watchdogctl end --kept pid:PID
    Will free about 84 MiB from 2 processes (SIGTERM, then SIGKILL after 10s)
    ");
}

#[test]
fn preview_warns_about_live_agents() {
    let mut planned = planned();
    let target = &mut planned.actions[0].targets[1];
    (target.kind, target.name) = (ProcessKind::Agent, "claude".into());
    let text = preview(&planned, "nothing\n", &plain());
    assert!(text.contains("\n  warning: claude (pid 41240) is a live agent\n"), "{text}");
}

#[test]
fn preview_without_targets_says_so() {
    assert_eq!(preview(&Planned::default(), "nothing was left behind\n", &plain()), "nothing was left behind\n");
    let spared = Planned { actions: Vec::new(), ..planned() };
    let text = preview(&spared, "nothing was left behind\n", &plain());
    assert!(text.contains("kept: a tmux server"), "{text}");
    assert!(text.ends_with("\nno targets: all processes are spared\n"), "{text}");
}

#[test]
fn question_counts_processes() {
    let mut planned = planned();
    assert_eq!(question(&planned), "Terminate 2 processes (84 MiB)? [y/N] ");
    planned.actions[0].targets.pop();
    assert_eq!(question(&planned), "Terminate 1 process (84 MiB)? [y/N] ");
}

#[test]
fn outcome_lists_signals_and_results() {
    insta::assert_snapshot!(outcome(&receipt(), &plain()), @r"
    action 7: 2 helpers outlived claude-code (pid 41230)
        PID  NAME            MEMORY  SENT                  RESULT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later  exited after 10s
      41240  sh             4.0 MiB  TERM                  exited after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
    ");
}

#[test]
fn outcome_shows_failures() {
    let mut receipt = receipt();
    receipt.state = ActionState::Incomplete;
    receipt.result = "1 of 3 still there after SIGKILL".into();
    receipt.targets[0].died_at = None;
    receipt.targets[1].sent[0].answer = "gone".into();
    let mut third = receipt.targets[1].clone();
    (third.pid, third.died_at, third.sent[0].answer) = (9, None, "operation not permitted\u{1b}".into());
    receipt.targets.push(third);
    insta::assert_snapshot!(outcome(&receipt, &plain()), @r"
    action 7: 2 helpers outlived claude-code (pid 41230)
        PID  NAME            MEMORY  SENT                                          RESULT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later                          still running
      41240  sh             4.0 MiB  TERM (already exited)                         exited after 0.12s
          9  sh             4.0 MiB  TERM (failed: operation not permitted\u{1b})  still running
      incomplete: 1 of 3 still there after SIGKILL
    ");
}

#[test]
fn details_show_memory_and_evidence() {
    let mut receipt = receipt();
    receipt.spared = planned().spared;
    insta::assert_snapshot!(details(&receipt, &plain()), @r"
    action 7: 2 helpers outlived claude-code (pid 41230)
        PID  NAME            MEMORY  SENT                  RESULT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later  exited after 10s
      41240  sh             4.0 MiB  TERM                  exited after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
      terminate by uid 1000, session 3, finding 12 (orphan), started 3m ago
      84 MiB freed (available: 1.0 GiB -> 1.1 GiB)
      agent pid  41230
      count      2

    spared
        PID  NAME  REASON
      41250  tmux  kept: a tmux server
    ");
}

#[test]
fn list_has_one_row_per_action() {
    let mut called_off = Receipt { id: 8, state: ActionState::CalledOff, by: DecidedBy::Policy, ..receipt() };
    (called_off.result, called_off.freed_bytes, called_off.session) = ("called off: adopted".into(), 0, None);
    let mut held = Receipt { id: 9, action: ActionKind::Freeze, state: ActionState::Holding, ..receipt() };
    (held.by, held.result) = (DecidedBy::Emergency, String::new());
    insta::assert_snapshot!(list(&[receipt(), called_off, held], &plain()), @"
    ID  STARTED  ACTION     BY         SESSION  PROCESSES   FREED  RESULT
     7   3m ago  terminate  uid 1000         3          2  84 MiB  done: 2 processes ended after 10s, 84 MiB freed
     8   3m ago  terminate  policy           -          2       0  called off: adopted
     9   3m ago  freeze     emergency        3          2  84 MiB  frozen until resumed
    ");
    assert!(list(&[], &plain()).starts_with("no actions"));
}

#[test]
fn line_shows_reason_then_result() {
    let begun = Receipt { state: ActionState::Running, result: String::new(), ..receipt() };
    insta::assert_snapshot!(line(&begun), @"#7 terminate a[2J.js (pid 41241), sh (pid 41240), by uid 1000: 2 helpers outlived claude-code (pid 41230)");
    insta::assert_snapshot!(line(&receipt()), @"#7 terminate a[2J.js (pid 41241), sh (pid 41240): done: 2 processes ended after 10s, 84 MiB freed");
}

#[test]
fn explanation_is_limited_to_the_process() {
    let text = explanation(&receipt(), Some(41_240), 20, &plain());
    insta::assert_snapshot!(text, @"
    action 7 of agent-watchdog (terminate, by uid 1000, 3m ago): 2 helpers outlived claude-code (pid 41230)
      sh (pid 41240, 4.0 MiB): TERM at 2026-01-02 11:57:00.100; exited after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
    ");
    assert!(!text.contains("41241"));
    let text = explanation(&receipt(), None, 1, &plain());
    assert!(text.contains("(pid 41241, 80 MiB)") && text.contains("and 1 other\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn explanation_names_why_spared() {
    let receipt = Receipt { spared: planned().spared, ..receipt() };
    let text = explanation(&receipt, Some(41_250), 20, &plain());
    assert!(text.contains("tmux (pid 41250) was spared (kept: a tmux server)"), "{text}");
}
