//! Random interleavings of all steps of some hosts against a model: without a partition the limit is never exceeded.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use watchdog_fleet::{FleetStore, Placement, PlacementAnswer};
use watchdog_tests::RedisServer;
use watchdog_types::{AskNumber, Bytes, FleetAnswer, FleetAsk, HostRow, PoolName};

use crate::guest::{FleetGuest, LONG, end_pause, name, pool};

const HOSTS: usize = 4;
const LIMITS: [(&str, u32); 3] = [("all", 5), ("user:ana", 2), ("user:bob", 4)];
const USERS: [&str; 2] = ["user:ana", "user:bob"];

#[derive(Clone, Debug)]
enum Move {
    /// The launch begins, if it is granted and the answer arrives.
    Ask {
        user: usize,
        priority: i32,
        waited: u32,
        answer_lost: bool,
    },
    /// The last ask once more, as after a lost answer.
    AskAgain,
    /// With the places of the sessions that run; `late`: as they were before the last change.
    Restate {
        late: bool,
    },
    SessionEnds(usize),
    /// Sessions go on.
    DaemonRestarts,
    /// Sessions end.
    Reboots,
    Reserve {
        on: usize,
        user: usize,
    },
    /// The launch that the ticket is for.
    Redeem,
    ScriptsFlushed,
}

fn moves() -> impl Strategy<Value = Vec<(usize, Move)>> {
    let one = prop_oneof![
        8 => (0..2_usize, -1..3_i32, 0..300_u32, prop::bool::weighted(0.2))
            .prop_map(|(user, priority, waited, answer_lost)| Move::Ask { user, priority, waited, answer_lost }),
        2 => Just(Move::AskAgain),
        5 => any::<bool>().prop_map(|late| Move::Restate { late }),
        4 => (0..8_usize).prop_map(Move::SessionEnds),
        1 => Just(Move::DaemonRestarts),
        1 => Just(Move::Reboots),
        2 => (0..HOSTS, 0..2_usize).prop_map(|(on, user)| Move::Reserve { on, user }),
        2 => Just(Move::Redeem),
        1 => Just(Move::ScriptsFlushed),
    ];
    prop::collection::vec((0..HOSTS, one), 1..60)
}

/// A host with its sessions, each by its user's pool: the truth, which only the kernel knows.
struct ModelHost {
    guest: FleetGuest,
    host: String,
    boot: u32,
    generation: u64,
    sessions: Vec<usize>,
    asked: u64,
    last: Option<FleetAsk>,
    /// Rows that were built, and may be sent later: the newest last.
    rows: Vec<HostRow>,
    tickets: Vec<(String, usize)>,
}

impl ModelHost {
    fn new(server: &RedisServer, number: usize) -> Self {
        let host = format!("host-{number}");
        let guest = FleetGuest::joined(server, &host);
        let rows = vec![guest.row.clone()];
        let (sessions, tickets) = (Vec::new(), Vec::new());
        Self { guest, host, boot: 1, generation: 1, sessions, asked: 0, last: None, rows, tickets }
    }

    fn pools(user: usize) -> BTreeMap<PoolName, u32> {
        let wanted = ["all", USERS[user]];
        LIMITS.iter().filter(|(name, _)| wanted.contains(name)).map(|(name, limit)| (pool(name), *limit)).collect()
    }

    /// The daemon builds a row from its sessions. Rows are sent in the order in which they are built.
    fn build_row(&mut self) {
        let mut held = BTreeMap::new();
        for user in &self.sessions {
            for place in Self::pools(*user).into_keys() {
                *held.entry(place).or_default() += 1;
            }
        }
        let mut row = self.guest.row.clone();
        row.held = held;
        row.settled = AskNumber(self.asked);
        row.summary.memory_available = Bytes(1 << 40);
        self.rows.push(row);
    }

    fn send_row(&mut self) {
        self.guest.row = self.rows.last().expect("a row").clone();
        self.guest.restate();
    }

    /// A launch of the last ask begins, at most once.
    fn begins(&mut self, answer: &FleetAnswer) {
        let granted = matches!(answer, FleetAnswer::Granted { .. });
        if let Some(ask) = self.last.take_if(|_| granted) {
            let user = usize::from(ask.pools.contains_key(&pool(USERS[1])));
            self.sessions.push(user);
        }
    }

    fn ask(&mut self, user: usize, priority: i32, waited: u32, ticket: Option<String>) -> FleetAnswer {
        // The next ask gives the last one up.
        self.build_row();
        self.send_row();
        self.asked += 1;
        let mut ask = self.guest.request(Duration::from_secs(waited.into()), priority, &[]);
        ask.number = AskNumber(self.asked);
        ask.pools = Self::pools(user);
        ask.ticket = ticket.map(|text| name(&text));
        let answer = self.guest.send(&ask);
        self.last = Some(ask);
        answer
    }

    fn restarts(&mut self, server: &RedisServer) {
        let Self { host, boot, generation, .. } = self;
        let (machine, boot) = (format!("machine-{host}"), format!("boot-{boot}"));
        self.guest = FleetGuest::on(&server.url(), host, LONG, &machine, &boot, *generation);
        (self.asked, self.last) = (0, None);
        self.rows.clear();
        self.build_row();
        self.send_row();
    }
}

fn play(server: &RedisServer, hosts: &mut [ModelHost], at: usize, one: Move) {
    let host = &mut hosts[at];
    match one {
        Move::Ask { user, priority, waited, answer_lost } => {
            let answer = host.ask(user, priority, waited, None);
            if !answer_lost {
                host.begins(&answer);
            }
        }
        Move::AskAgain => {
            if let Some(ask) = host.last.clone() {
                let answer = host.guest.send(&ask);
                host.begins(&answer);
            }
        }
        Move::Restate { late } => {
            // A late row is one from before the last ask; its `settled` says so.
            if !late && host.last.is_none() {
                host.build_row();
            }
            host.send_row();
        }
        Move::SessionEnds(which) if !host.sessions.is_empty() => {
            let which = which % host.sessions.len();
            host.sessions.remove(which);
        }
        Move::SessionEnds(_) => {}
        Move::DaemonRestarts => {
            host.generation += 1;
            host.restarts(server);
        }
        Move::Reboots => {
            (host.boot, host.generation) = (host.boot + 1, host.generation + 1);
            host.sessions.clear();
            host.tickets.clear();
            host.restarts(server);
        }
        Move::Reserve { on, user } => {
            let ticket = format!("ticket-{}", fastrand::u64(..));
            let pools = ModelHost::pools(user).into_iter().collect();
            let target = name(&hosts[on].host);
            let lifetime = Duration::from_secs(60);
            let wanted = Placement { host: target, ticket: name(&ticket), pools, memory: Bytes(1), lifetime };
            if hosts[at].guest.store.reserve(&wanted).unwrap() == PlacementAnswer::Reserved {
                hosts[on].tickets.push((ticket, user));
            }
        }
        Move::Redeem => {
            if let Some((ticket, user)) = host.tickets.pop() {
                let answer = host.ask(user, 0, 0, Some(ticket));
                assert!(matches!(answer, FleetAnswer::Granted { .. }), "a reserved place is granted: {answer:?}");
                host.begins(&answer);
            }
        }
        Move::ScriptsFlushed => drop(server.command(&["SCRIPT", "FLUSH"])),
    }
}

fn check(hosts: &mut [ModelHost]) {
    let view = hosts[0].guest.view();
    for (limited, limit) in LIMITS {
        let running = hosts.iter().flat_map(|host| &host.sessions);
        let running = running.filter(|user| limited == "all" || USERS[**user] == limited).count();
        let held = view.pools.iter().find(|one| one.name == pool(limited)).map_or(0, |one| one.held);
        assert!(running <= limit as usize, "{running} sessions of {limit} in {limited}");
        assert!(held <= limit, "{held} places of {limit} in {limited}");
        assert!(running <= held as usize, "{running} sessions run in {limited}, {held} are known");
    }
}

#[test]
fn random_steps_never_exceed_limits() {
    let Some(server) = RedisServer::start(&["--appendonly", "no"]) else { return };
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in moves())| {
        server.command(&["FLUSHALL"]);
        end_pause(&server);
        let mut hosts: Vec<ModelHost> = (0..HOSTS).map(|number| ModelHost::new(&server, number)).collect();
        for (at, one) in steps {
            play(&server, &mut hosts, at, one);
            check(&mut hosts);
        }
    });
}
