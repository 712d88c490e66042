use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use rstest::rstest;
use watchdog_api::Subject;
use watchdog_api::client::ConfirmedAction;
use watchdog_api::{ReclaimRun, ReclaimRunState};
use watchdog_render::testing::{planned, receipt, reclaim_run};

use super::staged::{idle_model, live, many, model, noon, observation, press};
use super::*;

/// Pids of processes and `#id` of sessions, in order.
fn ids(model: &TopModel) -> Vec<String> {
    let name = |row: &TopRow| match row.id {
        RowId::Session(id) => format!("#{id}"),
        RowId::Process { pid, .. } => pid.to_string(),
    };
    model.rows.iter().map(name).collect()
}

fn selected(model: &TopModel) -> String {
    let place = model.place().unwrap();
    ids(model)[place].clone()
}

#[test]
fn largest_sessions_and_siblings_come_first() {
    let model = model();
    let expected =
        ["#3", "41230", "41250", "41231", "41240", "41241", "41300", "41301", "#4", "50001", "50002", "50003"];
    assert_eq!(ids(&model), expected);
    assert_eq!(selected(&model), "#3");
}

#[rstest]
#[case::growth("s", "#3")]
#[case::peak("ss", "#3")]
#[case::age("sss", "#3")]
#[case::smallest("S", "#4")]
#[case::youngest("sssS", "#4")]
fn order_follows_the_sort_key(#[case] keys: &str, #[case] first: &str) {
    let mut model = model();
    press(&mut model, keys);
    assert_eq!(ids(&model)[0], first);
}

#[test]
fn growth_is_measured_per_minute() {
    let model = model();
    let row = |pid: &str| &model.rows[ids(&model).iter().position(|id| id == pid).unwrap()];
    assert_eq!(row("41250").growth, Some(60 << 20));
    assert_eq!(row("41231").growth, Some(0));
    assert_eq!(model.trends.sparkline(row("41250").id.series(), 8), "▁▂▃▄▅▆▇█");
}

#[test]
fn folded_row_shows_its_sum() {
    let mut model = model();
    press(&mut model, "↓↓↓ ");
    assert_eq!(selected(&model), "41231");
    let row = &model.rows[model.place().unwrap()];
    assert_eq!((row.hidden, row.memory_bytes), (2, 147 << 20));
    assert!(!ids(&model).contains(&"41240".to_owned()));
    press(&mut model, "→");
    assert_eq!(model.rows[model.place().unwrap()].memory_bytes, 80 << 20);
}

#[test]
fn left_folds_then_selects_parent() {
    let mut model = model();
    press(&mut model, "↓↓↓↓↓");
    assert_eq!(selected(&model), "41241");
    press(&mut model, "←");
    assert_eq!(selected(&model), "41240");
    press(&mut model, "←←");
    assert_eq!((selected(&model).as_str(), model.rows.len()), ("41231", 11));
}

#[test]
fn filter_keeps_matches_with_their_parents() {
    let mut model = model();
    press(&mut model, "fcargo TEST\n");
    assert_eq!(ids(&model), ["#3", "41230", "41300", "41301"]);
    assert!(matches!(model.plan.processes, ProcessInterest::All));
    press(&mut model, "\x1b");
    assert_eq!(ids(&model).len(), 12);
    press(&mut model, "fkept");
    assert_eq!(ids(&model), ["#4", "50003"]);
    press(&mut model, "\x1b");
    assert_eq!((ids(&model).len(), &model.prompt), (12, &None));
}

#[test]
fn search_finds_what_is_folded() {
    let mut model = model();
    press(&mut model, "z");
    assert_eq!(ids(&model), ["#3", "#4"]);
    press(&mut model, "/sleep\n");
    assert_eq!(selected(&model), "50003");
    press(&mut model, "/mcp\n");
    assert_eq!(selected(&model), "41231", "around the end");
    press(&mut model, "n");
    assert_eq!(selected(&model), "41240");
    press(&mut model, "N");
    assert_eq!(selected(&model), "41231");
    press(&mut model, "/absent\n");
    assert_eq!(model.notice.as_deref(), Some("no match: absent"));
}

#[test]
fn selection_survives_a_new_order() {
    let mut model = model();
    press(&mut model, "↓↓");
    let mut next = observation();
    next.tree.sessions[1].memory_bytes = 9 << 30;
    model.update(TopMessage::Observed(Box::new(next.clone())), noon());
    assert_eq!((selected(&model).as_str(), ids(&model)[0].as_str()), ("41250", "#4"));
    next.tree.sessions[0].processes.remove(4);
    model.update(TopMessage::Observed(Box::new(next)), noon());
    assert_eq!(selected(&model), "41231", "the row that took its place");
}

#[test]
fn only_unfolded_sessions_are_polled() {
    let mut model = live();
    let requests = model.update(TopMessage::Observed(Box::new(many(3, 2))), noon());
    let sessions = |ids: &[u64]| ProcessInterest::Sessions(ids.iter().copied().collect());
    let plan = |processes| TopRequest::Poll(PollPlan { processes, ..PollPlan::default() });
    assert_eq!(requests, [plan(sessions(&[1, 2, 3]))]);
    assert_eq!(press(&mut model, " "), [plan(sessions(&[2, 3]))]);
    assert_eq!(press(&mut model, "z"), [plan(sessions(&[]))]);
    assert_eq!(press(&mut model, "fx"), [plan(ProcessInterest::All)]);
    assert_eq!(
        press(&mut model, "\x1bp"),
        [plan(sessions(&[])), TopRequest::Poll(PollPlan { paused: true, ..PollPlan::default() })]
    );
}

#[test]
fn unlisted_processes_stay_known() {
    let mut model = model();
    let mut sums = observation();
    sums.tree.sessions[0].processes.clear();
    model.update(TopMessage::Observed(Box::new(sums)), noon());
    assert_eq!(ids(&model).len(), 12);
}

#[test]
fn many_processes_start_folded() {
    let mut model = live();
    let mut seen = many(3, 30);
    seen.counts.processes = 90;
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    assert_eq!(ids(&model), ["#1", "#2", "#3"]);
}

#[test]
fn reap_asks_and_acts_on_shown_processes() {
    let mut model = model();
    let action = ConfirmedAction::Reap(vec![Subject::Session(4)]);
    press(&mut model, "↓↓↓↓↓↓↓↓");
    assert_eq!(press(&mut model, "r"), [TopRequest::Plan(action.clone())]);
    model.update(TopMessage::Planned(action.clone(), Ok(Box::new(planned()))), noon());
    assert!(press(&mut model, "\n").is_empty(), "Enter is no consent");
    assert_eq!(press(&mut model, "y"), [TopRequest::Perform(action, planned().shown())]);
    let done = watchdog_api::Planned { actions: vec![receipt()], ..planned() };
    model.update(TopMessage::Acted(Ok(Box::new(done))), noon());
    assert!(matches!(&model.overlay, Some(Overlay { content: OverlayContent::Receipts(_), .. })));
    press(&mut model, "\x1b");
    assert!(model.overlay.is_none());
}

#[test]
fn refused_consent_does_nothing() {
    let mut model = model();
    press(&mut model, "e");
    model.update(TopMessage::Planned(ConfirmedAction::End(3), Ok(Box::new(planned()))), noon());
    assert!(press(&mut model, "n").is_empty());
    assert!(model.overlay.is_none());
    assert!(press(&mut model, "a\x1b").is_empty());
}

fn page_out(session: Option<u64>, state: ReclaimRunState) -> TopMessage {
    TopMessage::PagedOut(Ok(Box::new(ReclaimRun { session, state, ..reclaim_run() })))
}

#[rstest]
#[case::session("o", Some(3))]
#[case::session_of_process("↓o", Some(3))]
#[case::session_of_finding("\to", Some(4))]
#[case::all_idle("O", None)]
fn page_out_needs_a_yes(#[case] keys: &str, #[case] session: Option<u64>) {
    let mut model = model();
    assert_eq!(press(&mut model, keys), [TopRequest::PlanPageOut(session)]);
    model.update(page_out(session, ReclaimRunState::Planned), noon());
    assert!(press(&mut model, "\n").is_empty(), "Enter is no consent");
    assert_eq!(press(&mut model, "y"), [TopRequest::PageOut(session)]);
    model.update(page_out(session, ReclaimRunState::Running), noon());
    assert!(model.shows_page_out());
    model.update(page_out(session, ReclaimRunState::Done), noon());
    assert!(press(&mut model, "y").is_empty(), "a receipt asks nothing");
    assert!(matches!(&model.overlay, Some(Overlay { content: OverlayContent::PageOut(_), .. })));
}

#[test]
fn nothing_to_page_out_asks_nothing() {
    let mut model = model();
    press(&mut model, "O");
    let nothing = ReclaimRun { state: ReclaimRunState::Planned, processes: 0, sessions: 0, ..reclaim_run() };
    model.update(TopMessage::PagedOut(Ok(Box::new(nothing))), noon());
    assert!(!model.overlay.as_ref().unwrap().is_question());
    assert!(press(&mut model, "y").is_empty());
}

#[test]
fn closed_page_out_ends_as_notice() {
    let mut model = idle_model();
    press(&mut model, "o\x1bF");
    model.update(page_out(Some(3), ReclaimRunState::Planned), noon());
    model.update(page_out(Some(3), ReclaimRunState::Running), noon());
    assert!(matches!(&model.overlay, Some(Overlay { content: OverlayContent::Fleet, .. })));
    model.update(page_out(Some(3), ReclaimRunState::Done), noon());
    assert!(model.notice.as_ref().unwrap().starts_with("paged out 1.9 GiB of session 3 in 4s"));
}

#[test]
fn fleet_is_read_while_shown() {
    let mut model = idle_model();
    press(&mut model, "F");
    assert!(model.plan.fleet);
    press(&mut model, "F");
    assert!(!model.plan.fleet && model.overlay.is_none());
    let mut alone = super::staged::model();
    assert!(press(&mut alone, "F").is_empty());
    assert_eq!(alone.notice.as_deref(), Some("this host belongs to no fleet: [fleet] store is not set"));
}

#[test]
fn plan_after_closing_is_not_shown() {
    let mut model = model();
    press(&mut model, "e\x1b");
    model.update(TopMessage::Planned(ConfirmedAction::End(3), Ok(Box::new(planned()))), noon());
    assert!(model.overlay.is_none(), "a late question would catch a key");
}

#[rstest]
#[case("a", PlainAction::Adopt(Subject::Session(3)))]
#[case("↓u", PlainAction::Unadopt(Subject::Pid(41_230)))]
#[case("t", PlainAction::Thaw(Some(Subject::Session(3))))]
#[case("T", PlainAction::Thaw(None))]
fn plain_actions_need_a_yes(#[case] keys: &str, #[case] action: PlainAction) {
    let mut model = model();
    assert!(press(&mut model, keys).is_empty());
    assert_eq!(press(&mut model, "y"), [TopRequest::PerformPlain(action)]);
}

#[test]
fn end_is_for_sessions() {
    let mut model = model();
    assert!(press(&mut model, "↓e").is_empty());
    assert!(model.notice.is_some());
    assert_eq!(press(&mut model, "E"), [TopRequest::Plan(ConfirmedAction::EndKept(Subject::Pid(41_230)))]);
}

#[test]
fn finding_pane_selects_its_session() {
    let mut model = model();
    assert_eq!(press(&mut model, "\tx"), [TopRequest::Explain(Subject::Session(4))]);
}

#[test]
fn verdicts_have_reasons() {
    let model = model();
    let verdict = |id: &str| {
        let row = &model.rows[ids(&model).iter().position(|found| found == id).unwrap()];
        verdict(model.observation.as_ref().unwrap(), row)
    };
    assert_eq!(verdict("50003"), "kept: started through nohup");
    assert_eq!(verdict("50001"), "orphan: 2 orphaned processes (80 MiB) from codex (pid 50000)");
    assert_eq!(verdict("50002"), "orphaned: its agent is dead");
    assert_eq!(verdict("41230"), "");
}

#[test]
fn lost_daemon_keeps_the_last_state() {
    let mut model = model();
    model.update(TopMessage::Unreachable("cannot reach the daemon".into()), noon());
    assert_eq!((model.problem.as_deref(), ids(&model).len()), (Some("cannot reach the daemon"), 12));
    model.update(TopMessage::Observed(Box::new(observation())), noon());
    assert_eq!(model.problem, None);
}

#[test]
fn wheel_and_click_select_rows() {
    let mut model = model();
    let event = |kind, row| MouseEvent { kind, column: 1, row, modifiers: KeyModifiers::NONE };
    assert_eq!(press(&mut model, "m"), [TopRequest::CaptureMouse(true)]);
    model.update(TopMessage::Mouse(event(MouseEventKind::ScrollDown, 5)), noon());
    assert_eq!(selected(&model), "41231");
    model.update(TopMessage::Mouse(event(MouseEventKind::Down(MouseButton::Left), 4)), noon());
    assert_eq!(selected(&model), "#3");
    model.update(TopMessage::Mouse(event(MouseEventKind::Down(MouseButton::Left), 200)), noon());
    assert_eq!(selected(&model), "#3");
}

#[test]
fn scrolling_keeps_selection_on_the_screen() {
    let mut model = live();
    model.update(TopMessage::Observed(Box::new(many(1, 40))), noon());
    model.set_view(10, 4);
    press(&mut model, "G");
    assert_eq!((model.offset, model.place()), (31, Some(40)));
    model.set_view(20, 4);
    assert_eq!(model.offset, 21);
    press(&mut model, "g");
    assert_eq!((model.offset, model.place()), (0, Some(0)));
}
