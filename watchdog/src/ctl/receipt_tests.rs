use serde_json::json;

use super::super::show::testing::plain;
use super::*;

/// Two orphans: one ended when it was told to, the other had to be killed.
pub(in crate::ctl) fn receipt() -> Receipt {
    let receipt = json!({
        "id": 7, "action": "terminate", "state": "done", "by": "person", "asked_by_uid": 1000, "finding": 12,
        "finding_kind": "orphan", "session": 3,
        "reason": "2 helpers outlived claude-code (pid 41230)", "evidence": {"agent_pid": 41_230, "count": 2},
        "began_at": "2026-01-02T11:57:00.000Z", "ended_at": "2026-01-02T11:57:10.400Z",
        "memory_bytes": 88_080_384, "freed_bytes": 88_080_384,
        "available_before_bytes": 1_073_741_824_u64, "available_after_bytes": 1_161_822_208_u64,
        "targets": [
            {"pid": 41_241, "start_time": 9, "parent_pid": 41_240, "kind": "mcp-server", "name": "a\u{1b}[2J.js", "uid": 1000,
             "memory_bytes": 83_886_080, "died_at": "2026-01-02T11:57:10.300Z",
             "sent": [{"at": "2026-01-02T11:57:00.100Z", "what": "TERM", "answer": "sent"},
                      {"at": "2026-01-02T11:57:10.100Z", "what": "KILL", "answer": "sent"}]},
            {"pid": 41_240, "start_time": 8, "parent_pid": 41_230, "kind": "tool", "name": "sh", "uid": 1000,
             "memory_bytes": 4_194_304, "died_at": "2026-01-02T11:57:00.220Z",
             "sent": [{"at": "2026-01-02T11:57:00.100Z", "what": "TERM", "answer": "sent"}]}
        ],
        "spared": [], "result": "2 processes ended after 10s, 84 MiB freed"
    });
    serde_json::from_value(receipt).unwrap()
}

/// The same before anything is done, with one that is left alone.
pub(in crate::ctl) fn planned() -> Planned {
    let mut action = Receipt { id: 0, state: ActionState::Planned, ended_at: None, ..receipt() };
    (action.freed_bytes, action.available_after_bytes, action.result) = (0, None, String::new());
    for target in &mut action.targets {
        target.sent.clear();
        target.died_at = None;
    }
    Planned {
        dry_run: true,
        memory_bytes: action.memory_bytes,
        actions: vec![action],
        spared: vec![Spared {
            pid: 41_250,
            start_time: 3,
            name: "tmux".into(),
            because: "it is meant to stay: a tmux server".into(),
            not_permitted: false,
        }],
        kill_after_seconds: 10.0,
    }
}

#[test]
fn a_plan_says_who_why_and_what_it_frees_and_who_is_left_alone() {
    insta::assert_snapshot!(plan(&planned(), "nothing\n", &plain()), @r"
    2 helpers outlived claude-code (pid 41230)
        PID  KIND         MEMORY  NAME
      41241  mcp-server   80 MiB  a\u{1b}[2J.js
      41240  tool        4.0 MiB  sh

    left alone
        PID  NAME  BECAUSE
      41250  tmux  it is meant to stay: a tmux server

    2 processes, 84 MiB to be freed: SIGTERM, and SIGKILL for those that are there 10s later
    ");
}

#[test]
fn an_agent_among_them_is_pointed_out() {
    let mut planned = planned();
    let target = &mut planned.actions[0].targets[1];
    (target.kind, target.name) = (ProcessKind::Agent, "claude".into());
    let text = plan(&planned, "nothing\n", &plain());
    assert!(text.contains("\n  warning: claude (pid 41240) is an agent, and it is alive\n"), "{text}");
}

#[test]
fn where_there_is_nothing_to_do_that_is_said() {
    assert_eq!(plan(&Planned::default(), "nothing was left behind\n", &plain()), "nothing was left behind\n");
    let spared = Planned { actions: Vec::new(), ..planned() };
    let text = plan(&spared, "nothing was left behind\n", &plain());
    assert!(text.contains("it is meant to stay: a tmux server"), "{text}");
    assert!(text.ends_with("\nnothing is left that may be ended\n"), "{text}");
}

#[test]
fn the_question_counts() {
    let mut planned = planned();
    assert_eq!(question(&planned), "End these 2 processes (84 MiB)? [y/N] ");
    planned.actions[0].targets.pop();
    assert_eq!(question(&planned), "End this process (84 MiB)? [y/N] ");
}

#[test]
fn an_outcome_says_of_each_what_was_sent_and_what_came_of_it() {
    insta::assert_snapshot!(outcome(&receipt(), &plain()), @r"
    action 7: 2 helpers outlived claude-code (pid 41230)
        PID  NAME            MEMORY  SENT                  CAME OF IT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later  gone after 10s
      41240  sh             4.0 MiB  TERM                  gone after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
    ");
}

#[test]
fn what_went_wrong_is_not_hidden() {
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
        PID  NAME            MEMORY  SENT                                            CAME OF IT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later                            still there
      41240  sh             4.0 MiB  TERM (it was gone)                              gone after 0.12s
          9  sh             4.0 MiB  TERM (not done: operation not permitted\u{1b})  still there
      not all came out as it should: 1 of 3 still there after SIGKILL
    ");
}

#[test]
fn one_action_can_be_read_whole() {
    let mut receipt = receipt();
    receipt.spared = planned().spared;
    insta::assert_snapshot!(whole(&receipt, &plain()), @r"
    action 7: 2 helpers outlived claude-code (pid 41230)
        PID  NAME            MEMORY  SENT                  CAME OF IT
      41241  a\u{1b}[2J.js   80 MiB  TERM, KILL 10s later  gone after 10s
      41240  sh             4.0 MiB  TERM                  gone after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
      terminate by uid 1000, session 3, finding 12 (orphan), begun 3m ago
      84 MiB freed; available on the host: 1.0 GiB before, 1.1 GiB after
      agent pid  41230
      count      2

    left alone
        PID  NAME  BECAUSE
      41250  tmux  it is meant to stay: a tmux server
    ");
}

#[test]
fn many_actions_are_a_row_each() {
    let mut called_off = Receipt { id: 8, state: ActionState::CalledOff, by: DecidedBy::Policy, ..receipt() };
    (called_off.result, called_off.freed_bytes, called_off.session) = ("called off: adopted".into(), 0, None);
    let mut held = Receipt { id: 9, action: ActionKind::Freeze, state: ActionState::Holding, ..receipt() };
    (held.by, held.result) = (DecidedBy::Emergency, String::new());
    insta::assert_snapshot!(list(&[receipt(), called_off, held], &plain()), @"
    ID   BEGAN  ACTION     BY         SESSION  PROCESSES   FREED  RESULT
     7  3m ago  terminate  uid 1000         3          2  84 MiB  done: 2 processes ended after 10s, 84 MiB freed
     8  3m ago  terminate  policy           -          2       0  called off: adopted
     9  3m ago  freeze     emergency        3          2  84 MiB  stopped, until they are let go
    ");
    assert!(list(&[], &plain()).starts_with("nothing was done"));
}

#[test]
fn the_history_tells_the_reason_at_the_beginning_and_the_result_at_the_end() {
    let begun = Receipt { state: ActionState::Running, result: String::new(), ..receipt() };
    insta::assert_snapshot!(line(&begun), @"#7 terminate a[2J.js (pid 41241), sh (pid 41240), by uid 1000: 2 helpers outlived claude-code (pid 41230)");
    insta::assert_snapshot!(line(&receipt()), @"#7 terminate a[2J.js (pid 41241), sh (pid 41240): done: 2 processes ended after 10s, 84 MiB freed");
}

#[test]
fn what_concerns_a_process_is_told_without_the_others() {
    let text = about(&receipt(), Some(41_240), 20, &plain());
    insta::assert_snapshot!(text, @"
    agent-watchdog, action 7 (terminate, by uid 1000, 3m ago): 2 helpers outlived claude-code (pid 41230)
      sh (pid 41240): TERM, from 2026-01-02 11:57:00.100; gone after 0.12s; it held 4.0 MiB
      done: 2 processes ended after 10s, 84 MiB freed
    ");
    assert!(!text.contains("41241"));
    let text = about(&receipt(), None, 1, &plain());
    assert!(text.contains("(pid 41241)") && text.contains("and 1 other\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn who_was_left_alone_is_told_why() {
    let receipt = Receipt { spared: planned().spared, ..receipt() };
    let text = about(&receipt, Some(41_250), 20, &plain());
    assert!(text.contains("tmux (pid 41250) was left alone: it is meant to stay: a tmux server"), "{text}");
}
