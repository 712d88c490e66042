//! Random trees, activity, memory and requests: every order keeps the rules of the test host (see `page_out_world.rs`), and a
//! replay decides the same.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::Engine;
use crate::actions::Permissions;
use crate::reclaim::ReclaimDemand;
use watchdog_types::SessionId;

#[derive(Clone, Debug)]
enum ReclaimStep {
    Agent,
    Fork(usize),
    Exec(usize, usize),
    Exit(usize),
    Foreign(usize),
    Memory(usize, u64, u64),
    Touch(usize),
    Work(usize, u64),
    Outcome(usize, usize),
    Host(u64, u64, f64),
    Adopt(usize),
    Unadopt(usize),
    Protect(usize),
    Demand(u64, bool),
    Slow(bool),
    Rest(u64),
}

const PROGRAMS: [&[&str]; 6] = [
    &SERVER,
    &["/bin/bash", "-c", "make"],
    &["/usr/bin/gpg-agent", "--daemon"],
    &["/usr/bin/nohup", "node", "bot.js"],
    &["/home/u/.local/bin/claude", "--output-format", "stream-json"],
    &["/usr/bin/tmux", "new-session", "-d"],
];

fn step() -> impl Strategy<Value = ReclaimStep> {
    let which = || 0_usize..64;
    prop_oneof![
        3 => Just(ReclaimStep::Agent),
        6 => which().prop_map(ReclaimStep::Fork),
        5 => (which(), 0..PROGRAMS.len()).prop_map(|(which, what)| ReclaimStep::Exec(which, what)),
        2 => which().prop_map(ReclaimStep::Exit),
        1 => which().prop_map(ReclaimStep::Foreign),
        8 => (which(), 0_u64..1_500, 0_u64..200).prop_map(|(which, anon, file)| ReclaimStep::Memory(which, anon, file)),
        3 => which().prop_map(ReclaimStep::Touch),
        2 => (which(), 0_u64..5_000).prop_map(|(which, cpu)| ReclaimStep::Work(which, cpu)),
        2 => (which(), 0_usize..5).prop_map(|(which, outcome)| ReclaimStep::Outcome(which, outcome)),
        6 => (0_u64..16_000, 0_u64..8_000, 0_u8..20).prop_map(|(free, swap, psi)| ReclaimStep::Host(free, swap, psi.into())),
        1 => which().prop_map(ReclaimStep::Adopt),
        1 => which().prop_map(ReclaimStep::Unadopt),
        1 => which().prop_map(ReclaimStep::Protect),
        2 => (0_u64..6, any::<bool>()).prop_map(|(session, root)| ReclaimStep::Demand(session, root)),
        1 => any::<bool>().prop_map(ReclaimStep::Slow),
        8 => (0_u64..600).prop_map(ReclaimStep::Rest),
    ]
}

const CONFIGS: [&str; 3] = [
    "",
    "[reclaim]\nmode = \"proactive\"\nidle = \"1m\"\nbudget = \"64MiB\"\nreserve = \"1GiB\"\n",
    "[reclaim]\nidle = \"30s\"\ninclude = [\"*/mcp-server-memory\"]\n[actions]\nenforce = true\n",
];

/// Panics where an order breaks a rule; returns the number of orders.
fn play(config: &str, steps: Vec<ReclaimStep>) -> usize {
    let mut world = host(config);
    let stranger = world.unseen(SHELL, "/usr/bin/postgres");
    for step in steps {
        let tracked: Vec<ProcessId> = world.living().filter(|id| world.tracked.contains_key(id)).collect();
        let pick = |which: usize| tracked.get(which % tracked.len().max(1)).copied();
        match step {
            ReclaimStep::Agent => drop(world.claude()),
            ReclaimStep::Host(mib, swap, psi) => {
                let (available, swap_free) = (Bytes::from_mib(mib), Bytes::from_mib(swap));
                let pressure_some_avg10 = Some(psi);
                world.host_is(HostMemory { available, swap_free, pressure_some_avg10, ..world.last_host });
            }
            ReclaimStep::Demand(session, root) => {
                let uid = if root { Uid::ROOT } else { USER };
                let session = (session > 0).then_some(SessionId(session));
                world.feed(Input::RequestReclaim(ReclaimDemand { uid, session }));
            }
            ReclaimStep::Slow(slow) => world.slow_swap = slow,
            ReclaimStep::Rest(seconds) => world.rest(Duration::from_secs(seconds)),
            ReclaimStep::Fork(which) => drop(pick(which).map(|parent| world.fork(parent))),
            ReclaimStep::Exec(which, what) => {
                pick(which).into_iter().for_each(|id| world.exec(id, PROGRAMS[what][0], PROGRAMS[what]));
            }
            ReclaimStep::Exit(which) => pick(which).into_iter().for_each(|id| world.kill(id)),
            ReclaimStep::Foreign(which) => pick(which).into_iter().for_each(|id| world.belongs_to(id, Uid(77))),
            ReclaimStep::Memory(which, anon, file) => pick(which).into_iter().for_each(|id| {
                let (anon, file) = (Bytes::from_mib(anon), Bytes::from_mib(file));
                world.sample(id, Memory { anon, file, ..Memory::default() });
            }),
            ReclaimStep::Touch(which) => {
                pick(which)
                    .filter(|id| world.engine.table.get(*id).is_some())
                    .into_iter()
                    .for_each(|id| touched(&mut world, id));
            }
            ReclaimStep::Work(which, cpu) => {
                pick(which).into_iter().for_each(|id| world.does(id, Duration::from_millis(cpu), cpu, cpu));
            }
            ReclaimStep::Outcome(which, outcome) => pick(which).into_iter().for_each(|id| {
                let outcome = match outcome {
                    0 => PageOutOutcome::Gone,
                    1 => PageOutOutcome::Excluded(PageOutExclusion::Locked),
                    2 => PageOutOutcome::Failed("no".into()),
                    3 => PageOutOutcome::NoSwap,
                    _ => PageOutOutcome::Done,
                };
                world.page_out_outcomes.insert(id, outcome);
            }),
            ReclaimStep::Adopt(which) => pick(which).into_iter().for_each(|id| world.feed(Input::Adopt(id))),
            ReclaimStep::Unadopt(which) => pick(which).into_iter().for_each(|id| world.feed(Input::Unadopt(id))),
            ReclaimStep::Protect(which) => pick(which).into_iter().for_each(|id| {
                world.feed(Input::Permissions(Permissions { missing: None, protected: [id].into() }));
            }),
        }
    }
    assert!(world.page_outs.iter().all(|(_, order, _)| order.processes.iter().all(|one| one.id != stranger)));
    assert_eq!(orders(&replayed(&world, config)), orders(&world.effects), "a replay decides otherwise");
    world.page_outs.len()
}

fn orders(effects: &[Effect]) -> Vec<&Effect> {
    let orders = |effect: &&Effect| matches!(effect, Effect::PageOut(_) | Effect::CancelPageOut(_));
    effects.iter().filter(orders).collect()
}

/// The effects of an engine that reads the inputs of this world from a recording.
fn replayed(world: &World, config: &str) -> Vec<Effect> {
    let mut engine = Engine::new(Arc::new(parse(config)));
    let mut effects = Vec::new();
    for (at, input) in &world.inputs {
        let text = serde_json::to_string(input).unwrap();
        engine.step(*at, serde_json::from_str(&text).unwrap(), &mut effects);
    }
    effects
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn random_orders_obey_rules_and_replay(config in 0..CONFIGS.len(), steps in prop::collection::vec(step(), 1..80)) {
        play(CONFIGS[config], steps);
    }
}

#[test]
fn random_hosts_do_page_out() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = prop::collection::vec(step(), 80);
    let orders: usize = (0..24).map(|_| play(CONFIGS[1], steps.new_tree(&mut runner).unwrap().current())).sum();
    assert!(orders > 20, "{orders} orders: the property tests nothing");
}
