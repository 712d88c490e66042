//! Responds to queries for the fleet or for a host, and reads the store periodically.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::fleet_facts::FleetFacts;
use super::placement::{Dice, PlaceQuery};
use super::{fleet_view, placement};
use crate::worker::{ChannelClosed, Worker};
use watchdog_api::{Fleet, HostChoice};
use watchdog_fleet::FleetStore;
use watchdog_host::clock;
use watchdog_types::{FleetView, Uid, Viewer};

/// Interval between two reads of the view and the health of the store without a client; longer in a large fleet.
const LOOK: Duration = Duration::from_secs(30);
/// All hosts together read about two views a second.
const LOOK_PER_HOST: Duration = Duration::from_millis(600);
/// When to retry after no host was found.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum number of reservations of one user at a time, for root too.
const MAX_TICKETS: usize = 32;

#[derive(Debug)]
pub(crate) enum FleetQuery {
    View(Viewer, oneshot::Sender<Fleet>),
    Place(PlaceQuery, oneshot::Sender<HostChoice>),
}

pub(super) struct QueryThread<S> {
    store: S,
    facts: Arc<FleetFacts>,
    /// When the reservations of each user expire.
    tickets: HashMap<Uid, Vec<Instant>>,
    next_look: Instant,
}

impl<S: FleetStore> Worker for QueryThread<S> {
    type Command = FleetQuery;

    fn handle(&mut self, query: FleetQuery) -> Result<(), ChannelClosed> {
        match query {
            FleetQuery::View(viewer, reply) => {
                if !reply.is_closed() {
                    drop(reply.send(self.view(viewer)));
                }
            }
            FleetQuery::Place(query, reply) => {
                // The slot would stay reserved if the client has disconnected.
                if !reply.is_closed() {
                    drop(reply.send(self.place(&query)));
                }
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        Some(self.next_look)
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        if self.next_look <= Instant::now() {
            self.look();
            self.next_look = Instant::now() + LOOK.max(LOOK_PER_HOST * self.facts.hosts().up);
        }
        Ok(())
    }
}

impl<S: FleetStore> QueryThread<S> {
    pub(super) fn new(store: S, facts: Arc<FleetFacts>) -> Self {
        Self { store, facts, tickets: HashMap::new(), next_look: Instant::now() }
    }

    fn look(&mut self) {
        let health = self.store.health();
        if health.is_ok()
            && let Ok(view) = self.store.view()
        {
            self.facts.viewed(view);
        }
        self.facts.examined(health);
    }

    /// The current view, or the last one where it cannot be read. The renewal decides whether the store is lost.
    fn view(&mut self, viewer: Viewer) -> Fleet {
        let read = (!self.facts.is_lost()).then(|| self.store.view());
        let failed = read.and_then(|read| read.map(|view| self.facts.viewed(view)).err());
        let (view, age) = match self.facts.view() {
            Some((at, view)) => (view, clock::now().since(at)),
            None => (FleetView::default(), Duration::ZERO),
        };
        let mut fleet =
            fleet_view::to_api(&self.facts, &self.facts.config().fleet, viewer, view, age, self.facts.row());
        let outdated = || failed.map(|error| format!("the hosts are those of {} s ago: {error}", age.as_secs()));
        fleet.problem = fleet.problem.or_else(outdated);
        fleet
    }

    fn place(&mut self, query: &PlaceQuery) -> HostChoice {
        let now = Instant::now();
        let tickets = self.tickets.entry(query.uid).or_default();
        tickets.retain(|expires| *expires > now);
        if tickets.len() >= MAX_TICKETS {
            let detail =
                format!("this user has {MAX_TICKETS} reservations already: use them, or retry when they expire");
            return placement::nowhere(detail, Some(RETRY));
        }
        let placed = self.store.view().and_then(|view| {
            let own = &self.facts.host;
            let placed = placement::place(&mut self.store, &view, &self.facts.config(), own, query, &mut Random);
            self.facts.viewed(view);
            placed
        });
        let placed = placed.unwrap_or_else(|error| placement::nowhere(error.to_string(), Some(RETRY)));
        if let Some(seconds) = placed.expires_in_seconds {
            let expires = now + Duration::try_from_secs_f64(seconds).unwrap_or_default();
            self.tickets.entry(query.uid).or_default().push(expires);
        }
        placed
    }
}

/// The kernel's random numbers.
struct Random;

impl Dice for Random {
    fn below(&mut self, count: usize) -> usize {
        usize::try_from(u64::from_le_bytes(bytes()) % count as u64).unwrap_or(0)
    }

    fn ticket(&mut self) -> String {
        bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // It fails only before the kernel's generator is seeded, long before a network is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}
