use super::*;
use crate::render::testing::plain;
use rstest::rstest;
use serde_json::{Value, json};

fn record(what: Value) -> String {
    let mut record = json!({ "at": "2026-01-02T11:59:58.25Z", "run": "2026-01-02T00:00:00Z", "owner_uid": 1000 });
    record.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
    record.to_string()
}

fn host(available: u64, pressure: f64) -> String {
    record(json!({
        "type": "host", "memory_total_bytes": 16_u64 << 30, "memory_available_bytes": available, "swap_total_bytes": 0,
        "swap_free_bytes": 0, "shmem_bytes": 0, "pressure_some_avg10": pressure, "pressure_full_avg10": 0.0,
        "sessions": [{"session": 3, "profile": "codex", "uid": 1000, "memory_bytes": 3_u64 << 30, "processes": 7}],
    }))
}

fn session(more: Value) -> String {
    let mut session = json!({
        "session": 3, "profile": "claude-code", "user": "u\u{1b}", "started_at": "2026-01-02T09:00:00Z", "pid": 41230,
        "start_time": 7,
    });
    session.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record(session)
}

fn all() -> Vec<String> {
    vec![
        record(json!({"type": "daemon_started", "version": "0.1.0", "pid": 812, "boot_id": "b"})),
        session(json!({"type": "session_started"})),
        host(12 << 30, 0.1),
        host(1 << 30, 0.1),
        host(12 << 30, 35.5),
        record(json!({
            "type": "finding", "change": "opened", "id": 4, "kind": "orphan", "severity": "warning", "session": 3,
            "pid": 5, "start_time": 1, "opened_at": "", "closed_at": null, "closed_because": null,
            "summary": "3 helpers\u{202e}", "evidence": {}, "proposed_action": "report", "action_taken": null,
        })),
        record(json!({"type": "oom", "pid": 9, "start_time": 1, "session": null, "comm": "node\n"})),
        record(json!({"type": "death", "session": 3, "pid": 9, "summary": "node (9) was killed by SIGKILL"})),
        record(json!({"type": "death", "session": 3, "pid": 10, "comm": "node", "cause": "heap_limit"})),
        record(json!({"type": "action", "action": "adopt", "pids": [5, 6], "session": null, "asked_by_uid": 1000})),
        record(json!({
            "type": "action", "action": "terminate", "pids": [41241], "session": 3, "asked_by_uid": null,
            "receipt": crate::render::testing::receipt(),
        })),
        session(json!({
            "type": "session_ended", "ended_at": "2026-01-02T11:00:00Z", "peak_memory_bytes": 2_u64 << 30,
            "largest_process_peak_bytes": 1_u64 << 30, "helpers": 12,
        })),
        record(json!({"type": "daemon_stopped"})),
        record(json!({"type": "of_the_future"})),
        "{\u{1b}".to_owned(),
    ]
}

fn page(json: bool, host: bool, records: &[String]) -> String {
    let mut text = Vec::new();
    let mut output = CommandOutput { json, terminal: plain(), to: &mut text };
    let mut page = Page::open(HistoryOptions { since: None, session: None, host }, &mut output).unwrap();
    records.iter().for_each(|record| page.add(record).unwrap());
    assert_eq!(page.close(Ok(())).unwrap(), ExitCode::SUCCESS);
    String::from_utf8(text).unwrap()
}

#[test]
fn record_is_one_line() {
    insta::assert_snapshot!(page(false, false, &all()), @r"
    2026-01-02 11:59:58.250  daemon_started   -            version 0.1.0, pid 812
    2026-01-02 11:59:58.250  session_started  session 3    claude-code (pid 41230) of user u\u{1b}
    2026-01-02 11:59:58.250  host             -            1.0 GiB of 16 GiB available, pressure 0.10 %; largest: session 3 (codex) with 3.0 GiB
    2026-01-02 11:59:58.250  host             -            12 GiB of 16 GiB available, pressure 35.50 %; largest: session 3 (codex) with 3.0 GiB
    2026-01-02 11:59:58.250  finding          session 3    #4 orphan opened: 3 helpers\u{202e}
    2026-01-02 11:59:58.250  oom              -            the OOM killer killed node\n (pid 9)
    2026-01-02 11:59:58.250  death            session 3    node (9) was killed by SIGKILL
    2026-01-02 11:59:58.250  death            session 3    node (pid 10) died: heap limit
    2026-01-02 11:59:58.250  action           -            adopt 5, 6, requested by uid 1000
    2026-01-02 11:59:58.250  action           session 3    #7 terminate a\u{1b}[2J.js (pid 41241), sh (pid 41240): done: 2 processes ended after 10s, 84 MiB freed
    2026-01-02 11:59:58.250  session_ended    session 3    claude-code of user u\u{1b}: 12 helpers, peak 2.0 GiB in total, largest process 1.0 GiB
    2026-01-02 11:59:58.250  daemon_stopped   -
    2026-01-02 11:59:58.250  unknown          -            written by another version of the daemon
    unknown record: {\u{1b}
    (1 record of host memory without shortage: --host shows them)
    ");
}

#[test]
fn counted_record_shows_its_count() {
    let counted = record(json!({
        "type": "death", "session": 3, "pid": 9, "summary": "sleep was killed", "count": 240,
        "first_at": "2026-01-02T11:50:00Z", "last_at": "2026-01-02T11:59:58.25Z",
    }));
    let shown = page(false, false, &[counted]);
    insta::assert_snapshot!(shown, @"2026-01-02 11:59:58.250  death            session 3    sleep was killed (x 240 since 2026-01-02 11:50:00.000)");
}

#[test]
fn host_shows_all_memory_records() {
    let shown = page(false, true, &[host(12 << 30, 0.1)]);
    insta::assert_snapshot!(shown, @r"2026-01-02 11:59:58.250  host             -            12 GiB of 16 GiB available, pressure 0.10 %; largest: session 3 (codex) with 3.0 GiB");
}

#[test]
fn json_holds_all_records() {
    let records = &all()[..14];
    let document: Value = serde_json::from_str(&page(true, false, records)).unwrap();
    let given: Vec<Value> = records.iter().map(|record| serde_json::from_str(record).unwrap()).collect();
    assert_eq!(document["records"], Value::from(given));
    assert_eq!(page(true, false, &[]), "{\"records\":[]}\n");
}

#[test]
fn interrupted_document_is_valid_json() {
    let mut text = Vec::new();
    let mut output = CommandOutput { json: true, terminal: plain(), to: &mut text };
    let mut page = Page::open(HistoryOptions { since: None, session: None, host: false }, &mut output).unwrap();
    page.add(&host(1, 0.0)).unwrap();
    let code = page.close(Err(CtlError::Failed("interrupted".into()))).unwrap();
    assert_eq!(code, ExitCode::from(1));
    let document: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["records"].as_array().unwrap().len(), 1);
}

#[test]
fn empty_history_says_so() {
    assert_eq!(page(false, false, &[]), "no records in this period\n");
}

#[rstest]
#[case(None, None, "/v1/history")]
#[case(Some(300), None, "/v1/history?since=300s")]
#[case(Some(300), Some(3), "/v1/history?since=300s&session=3")]
fn query_becomes_parameters(#[case] since: Option<u64>, #[case] session: Option<u64>, #[case] asked: &str) {
    assert_eq!(path(HistoryOptions { since: since.map(Duration::from_secs), session, host: false }), asked);
}
