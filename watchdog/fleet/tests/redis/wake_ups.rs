//! The threads of a host: what they report, and when.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use watchdog_fleet::{FleetEvent, FleetWorkers, Restated};
use watchdog_types::{AskNumber, FleetAnswer, FleetAsk};

use crate::guest::{FleetGuest, LONG, SHORT, is_lost, server, soon_after, until};

fn workers(guest: &FleetGuest, ttl: Duration) -> (FleetWorkers, Receiver<FleetEvent>) {
    let (sender, events) = mpsc::channel();
    let workers = FleetWorkers::start(&guest.store, ttl, move |event| drop(sender.send(event))).unwrap();
    workers.restate(guest.row.clone());
    (workers, events)
}

fn next(events: &Receiver<FleetEvent>, wanted: impl Fn(&FleetEvent) -> bool) -> FleetEvent {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let event = events.recv_timeout(until.saturating_duration_since(Instant::now())).expect("an event");
        if wanted(&event) {
            return event;
        }
    }
}

/// The answer of a store that a busy machine may delay beyond the timeout.
fn answer(workers: &FleetWorkers, events: &Receiver<FleetEvent>, ask: &FleetAsk) -> FleetAnswer {
    let mut last = FleetAnswer::Void;
    until(Duration::from_secs(20), || {
        workers.ask(ask.clone());
        if let FleetEvent::Answered(_, answer) = next(events, |event| matches!(event, FleetEvent::Answered(..))) {
            last = answer;
        }
        !is_lost(&last)
    });
    last
}

fn called(event: &FleetEvent) -> bool {
    *event == FleetEvent::Called
}

#[test]
fn freed_slot_wakes_waiting_host() {
    let Some(server) = server() else { return };
    let mut holder = FleetGuest::joined(&server, "holder");
    assert!(holder.gets(1));
    holder.counts(&["all"]);
    let waiting = FleetGuest::joined(&server, "waiting");
    let idle = FleetGuest::joined(&server, "idle");
    let (workers, events) = workers(&waiting, LONG);
    let (_idle_workers, idle_events) = self::workers(&idle, LONG);
    for events in [&events, &idle_events] {
        next(events, called);
    }
    let mut delays: Vec<Duration> = Vec::new();
    for number in 1..=5 {
        let mut ask = waiting.request(Duration::ZERO, 0, &[("all", 1)]);
        ask.number = AskNumber(number);
        let answer = answer(&workers, &events, &ask);
        assert!(matches!(answer, FleetAnswer::Refused { .. }), "{answer:?}");
        let freed = Instant::now();
        holder.releases(&["all"]);
        next(&events, called);
        delays.push(freed.elapsed());
        holder.row.held.insert("all".parse().unwrap(), 1);
        holder.restate();
    }
    delays.sort();
    eprintln!("woken after {delays:?}");
    assert!(delays[2] < Duration::from_secs(5), "{delays:?}");
    assert!(idle_events.try_iter().all(|event| !called(&event)), "only the host whose turn it is");
}

#[test]
fn workers_keep_the_row_alive() {
    let Some(server) = server() else { return };
    let mut watching = FleetGuest::joined(&server, "watching");
    let guest = FleetGuest::of(&server.url(), "guest", SHORT);
    let (workers, events) = workers(&guest, SHORT);
    for _ in 0..6 {
        let event = next(&events, |event| matches!(event, FleetEvent::Restated(Ok(_))));
        assert!(matches!(event, FleetEvent::Restated(Ok(Restated::Done { .. }))), "{event:?}");
    }
    let up =
        |watching: &mut FleetGuest| watching.view().hosts.iter().any(|host| host.host.as_str() == "guest" && host.up);
    until(soon_after(SHORT), || up(&mut watching));
    drop(workers);
    until(soon_after(SHORT * 2), || !up(&mut watching));
}

#[test]
fn lost_store_is_found_again() {
    let Some(mut server) = server() else { return };
    let guest = FleetGuest::of(&server.url(), "guest", SHORT);
    let (_workers, events) = workers(&guest, SHORT);
    next(&events, called);
    server.kill();
    next(&events, |event| matches!(event, FleetEvent::Restated(Err(_))));
    server.restart();
    next(&events, called);
    next(&events, |event| matches!(event, FleetEvent::Restated(Ok(_))));
}
