use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rstest::rstest;
use watchdog_api::client::ConfirmedAction;
use watchdog_api::{ReclaimRun, ReclaimRunState};
use watchdog_render::testing::{fleet, planned, receipt, reclaim_run};

use super::*;
use crate::model::TopMessage;
use crate::model::staged::{idle_model, live, many, model, noon, observation, press};

/// The screen as text.
fn screen(model: &mut TopModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let (rows, top) = ScreenAreas::of(model, Rect::new(0, 0, width, height)).table_rows();
    model.set_view(rows, top);
    terminal.draw(|frame| _ = draw(model, Palette { colour: true }, frame)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn small_screen_shows_everything() {
    insta::assert_snapshot!(screen(&mut model(), 80, 24));
}

#[test]
fn large_screen_shows_verdicts() {
    insta::assert_snapshot!(screen(&mut model(), 120, 40));
}

/// Hundreds of everything, so that each number has its full length.
fn busy() -> TopModel {
    let mut model = live();
    let mut seen = observation();
    (seen.counts.sessions_running, seen.counts.sessions_orphaned, seen.counts.processes) = (148, 112, 12_345);
    seen.trouble = Some("degraded: polling /proc".into());
    let running = &mut seen.tree.sessions[0];
    (running.profile, running.process_count) = ("claude-code-nightly".into(), 1_234);
    running.idle_since = Some("2026-01-01T12:01:00Z".into());
    running.parent_session = Some(99);
    if let Some(gate) = &mut seen.gate {
        gate.breaker = Some("800 MiB of 2.0 GiB are available".into());
        (gate.waiting, gate.launched) = (117, 143);
    }
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    model
}

/// A narrow screen leaves out columns and parts of lines, never a digit of a number.
#[rstest]
#[case(40)]
#[case(60)]
#[case(80)]
fn narrow_screen_keeps_numbers_whole(#[case] width: u16) {
    let text = screen(&mut busy(), width, 20);
    for whole in ["112 orphaned", "degraded", "gate breaker open", "(1234", "idle 23h"] {
        assert!(text.contains(whole), "{whole}: {text}");
    }
    insta::assert_snapshot!(format!("narrow_{width}"), text);
    insta::assert_snapshot!(format!("narrow_fleet_{width}"), screen(&mut fleet_model(), width, 16));
    let mut past = crate::model::time_tests::in_history();
    press(&mut past, "[");
    insta::assert_snapshot!(format!("narrow_history_{width}"), screen(&mut past, width, 20));
}

#[test]
fn folded_process_keeps_hidden_number() {
    let mut model = model();
    press(&mut model, "↓");
    press(&mut model, "←");
    for width in [40, 60, 80, 120] {
        let text = screen(&mut model, width, 24);
        assert!(text.contains("(+6)"), "{text}");
    }
}

#[test]
fn question_lists_targets() {
    let mut model = model();
    press(&mut model, "r");
    model.update(TopMessage::Planned(ConfirmedAction::Reap(Vec::new()), Ok(Box::new(planned()))), noon());
    insta::assert_snapshot!(screen(&mut model, 80, 24));
}

#[test]
fn receipt_shows_signals_and_result() {
    let mut model = model();
    let done = watchdog_api::Planned { actions: vec![receipt()], ..planned() };
    model.update(TopMessage::Acted(Ok(Box::new(done))), noon());
    insta::assert_snapshot!(screen(&mut model, 120, 40));
}

/// The screen of the fleet.
fn fleet_model() -> TopModel {
    let mut model = idle_model();
    press(&mut model, "F");
    let mut seen = model.observation.clone().unwrap();
    seen.fleet = Some(Ok(Box::new(fleet())));
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    model
}

#[test]
fn idle_session_shows_swap() {
    insta::assert_snapshot!("idle_session_small", screen(&mut idle_model(), 80, 24));
    insta::assert_snapshot!("idle_session_large", screen(&mut idle_model(), 120, 40));
}

#[test]
fn fleet_lists_hosts_and_pools() {
    insta::assert_snapshot!("fleet_small", screen(&mut fleet_model(), 80, 24));
    insta::assert_snapshot!("fleet_large", screen(&mut fleet_model(), 120, 40));
}

#[test]
fn long_fleet_scrolls_to_its_end() {
    let mut model = fleet_model();
    let mut seen = model.observation.clone().unwrap();
    let Some(Ok(long)) = &mut seen.fleet else { panic!() };
    let one = long.hosts[0].clone();
    long.hosts.extend((0..1_000).map(|n| watchdog_api::FleetHost { host: format!("host-{n:04}"), ..one.clone() }));
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    assert!(!screen(&mut model, 80, 24).contains("user:1000"));
    model.overlay.as_mut().unwrap().scroll = usize::MAX;
    let text = screen(&mut model, 80, 24);
    assert!(text.contains("host-0999") && text.contains("user:1000"), "{text}");
}

#[test]
fn fleet_without_answer_says_why() {
    let mut model = fleet_model();
    let mut seen = model.observation.clone().unwrap();
    seen.fleet = Some(Err("the fleet's store is slow: try again\x1b".into()));
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    let text = screen(&mut model, 80, 24);
    assert!(text.contains("store is slow: try again\\u{1b}"), "{text}");
}

#[test]
fn page_out_asks_and_reports() {
    let mut model = idle_model();
    press(&mut model, "o");
    let planned = ReclaimRun {
        session: Some(3),
        state: ReclaimRunState::Planned,
        paged_out_bytes: 1_500 << 20,
        resident_before_bytes: 1_530 << 20,
        compressed_bytes: None,
        ..reclaim_run()
    };
    model.update(TopMessage::PagedOut(Ok(Box::new(planned.clone()))), noon());
    insta::assert_snapshot!("page_out_question", screen(&mut model, 80, 24));
    press(&mut model, "y");
    let done = ReclaimRun { state: ReclaimRunState::Done, seconds: 3.0, resident_after_bytes: 30 << 20, ..planned };
    model.update(TopMessage::PagedOut(Ok(Box::new(done))), noon());
    insta::assert_snapshot!("page_out_receipt", screen(&mut model, 80, 24));
}

#[test]
fn help_lists_all_keys() {
    let mut model = model();
    press(&mut model, "?");
    insta::assert_snapshot!(screen(&mut model, 80, 32));
}

#[test]
fn history_has_a_slider() {
    let mut model = crate::model::time_tests::in_history();
    press(&mut model, "[");
    insta::assert_snapshot!(screen(&mut model, 80, 24));
}

#[test]
fn lost_daemon_has_a_banner() {
    let mut model = model();
    model.update(TopMessage::Unreachable("cannot reach the daemon at /run/x: no such file\nhint".into()), noon());
    let text = screen(&mut model, 80, 24);
    assert!(text.contains("no connection"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("trying again every second (shown: 0s ago): cannot reach the daemon at /run"), "{text}");
}

#[test]
fn hostile_names_cannot_draw() {
    let text = screen(&mut model(), 120, 40);
    assert!(text.contains(r"evil\u{1b}[2J\u{202e}"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{text}");
}

#[test]
fn every_size_can_be_drawn() {
    let mut model = model();
    for (width, height) in [(1, 1), (39, 30), (40, 12), (41, 13), (60, 12), (300, 100), (80, 11)] {
        let _ = screen(&mut model, width, height);
    }
    press(&mut model, "?");
    for (width, height) in [(1, 1), (40, 12), (60, 12), (300, 100)] {
        let _ = screen(&mut model, width, height);
    }
    let _ = screen(&mut live(), 80, 24);
}

#[test]
fn without_colours_text_is_the_same() {
    let mut model = model();
    let coloured = screen(&mut model, 80, 24);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| _ = draw(&model, Palette { colour: false }, frame)).unwrap();
    assert_eq!(terminal.backend().to_string(), coloured);
    let styled = terminal.backend().buffer().content().iter().any(|cell| cell.fg != ratatui::style::Color::Reset);
    assert!(!styled, "a colour without colours");
}

/// Time of one redraw of 60 sessions with 2,000 processes, and of one with 10,000: `cargo test --release -- --ignored`.
#[test]
#[ignore = "a measurement; only a release build says something"]
fn redraw_time() {
    for (sessions, processes) in [(60, 34), (100, 100)] {
        let mut model = live();
        let seen = many(sessions, processes);
        model.update(TopMessage::Observed(Box::new(seen.clone())), noon());
        if model.rows.len() < 100 {
            press(&mut model, "z");
        }
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        let mut times: Vec<_> = (0..200)
            .map(|_| {
                let next = Box::new(seen.clone());
                let began = Instant::now();
                model.update(TopMessage::Observed(next), noon());
                terminal.draw(|frame| _ = draw(&model, Palette { colour: true }, frame)).unwrap();
                began.elapsed()
            })
            .collect();
        times.sort();
        println!("{} rows: median {:?}, worst {:?}", model.rows.len(), times[100], times[199]);
    }
    let _ = observation();
}
