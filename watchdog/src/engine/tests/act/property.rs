//! Random trees, evidence, pressure and people, with policy as aggressive as it can be told to be: what [`World`] checks at every
//! blow holds, nobody is told anything twice, and nobody outside the sessions is ever named.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::engine::act::Rights;
use crate::engine::tests::world::{SHELL, aggressive};

#[derive(Clone, Debug)]
enum Act {
    Agent(bool),
    Fork(usize),
    Exec(usize, usize),
    Exit(usize),
    Stubborn(usize),
    Shows(usize, usize),
    Memory(usize, u64),
    Host(u64),
    Adopt(usize),
    Unadopt(usize),
    Reap(usize),
    End(u64),
    Guard(usize),
    Wait(u64),
}

/// What a process of a session may turn out to be.
const PROGRAMS: [&[&str]; 10] = [
    &["/usr/bin/node", "/usr/bin/npx", "-y", "@modelcontextprotocol/server-memory"],
    &["/usr/bin/sleep", "1000"],
    &["/bin/bash", "-c", "make"],
    &["/usr/local/bin/codex", "exec"],
    &["/home/u/.local/bin/claude", "--output-format", "stream-json"],
    &["/usr/bin/tmux", "new-session", "-d"],
    &["/usr/bin/nohup", "node", "bot.js"],
    &["/usr/bin/setsid", "server"],
    &["/opt/google/chrome/chrome", "--headless"],
    &["/usr/bin/java", "-cp", "gradle.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"],
];

fn act() -> impl Strategy<Value = Act> {
    let who = 0_usize..64;
    prop_oneof![
        2 => any::<bool>().prop_map(Act::Agent),
        8 => who.clone().prop_map(Act::Fork),
        8 => (who.clone(), 0..PROGRAMS.len()).prop_map(|(who, what)| Act::Exec(who, what)),
        4 => who.clone().prop_map(Act::Exit),
        1 => who.clone().prop_map(Act::Stubborn),
        3 => (who.clone(), 0_usize..5).prop_map(|(who, what)| Act::Shows(who, what)),
        3 => (who.clone(), 0_u64..4_000).prop_map(|(who, mib)| Act::Memory(who, mib)),
        2 => (0_u64..16_000).prop_map(Act::Host),
        1 => who.clone().prop_map(Act::Adopt),
        1 => who.clone().prop_map(Act::Unadopt),
        1 => who.clone().prop_map(Act::Reap),
        1 => (0_u64..6).prop_map(Act::End),
        1 => who.prop_map(Act::Guard),
        4 => (0_u64..20_000).prop_map(Act::Wait),
    ]
}

fn nobody_is_struck_who_must_not_be(acts: Vec<Act>) -> Result<(), TestCaseError> {
    let mut world = World::mortal(Config { actions: aggressive(), ..Config::default() });
    let stranger = world.unseen(SHELL, "/usr/bin/postgres");
    let mut guarded = BTreeSet::new();
    for act in acts {
        let tracked: Vec<ProcessId> = world.living().filter(|id| world.tracked.contains_key(id)).collect();
        let pick = |who: usize| tracked.get(who % tracked.len().max(1)).copied();
        match (act, pick) {
            (Act::Agent(codex), _) => {
                world.agent(if codex { "/usr/local/bin/codex" } else { "/home/u/.local/bin/claude" });
            }
            (Act::Host(available), _) => world.host_is(memory(16_384, available.min(16_000))),
            (Act::Wait(millis), _) => world.wait(std::time::Duration::from_millis(millis)),
            (Act::End(session), _) => drop(ask(&mut world, USER, What::End(SessionId(session)))),
            (act, pick) => {
                let (Act::Fork(who)
                | Act::Exec(who, _)
                | Act::Exit(who)
                | Act::Stubborn(who)
                | Act::Shows(who, _)
                | Act::Memory(who, _)
                | Act::Adopt(who)
                | Act::Unadopt(who)
                | Act::Reap(who)
                | Act::Guard(who)) = act
                else {
                    continue;
                };
                let Some(process) = pick(who) else { continue };
                match act {
                    Act::Fork(_) => drop(world.fork(process)),
                    Act::Exec(_, what) => world.exec(process, PROGRAMS[what][0], PROGRAMS[what]),
                    Act::Exit(_) => world.kill(process),
                    Act::Stubborn(_) => drop(world.stubborn.insert(process)),
                    Act::Shows(_, what) => world.shows(process, |seen| match what {
                        0 => seen.listens = vec!["tcp 127.0.0.1:3000".into()],
                        1 => seen.tty = !seen.tty,
                        2 => seen.ignores_hup = true,
                        3 => seen.sid = process.pid.0,
                        _ => seen.comm = "tmux: server".into(),
                    }),
                    Act::Memory(_, mib) => world.memory(process, Bytes::from_mib(mib)),
                    Act::Adopt(_) => world.tell(Input::Adopt(process)),
                    Act::Unadopt(_) => world.tell(Input::Unadopt(process)),
                    Act::Reap(_) => drop(reap(&mut world, &[Subject::Pid(process.pid.0)])),
                    Act::Guard(_) => {
                        guarded.insert(process);
                        world.tell(Input::Rights(Rights { missing: None, guarded: guarded.clone() }));
                    }
                    _ => {}
                }
            }
        }
        for process in &guarded {
            // It may have been told before it was guarded.
            world.blows.retain(|(_, _, struck)| struck != process || !guarded.contains(struck));
        }
    }
    let before = world.blows.len();
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    for (_, _, process) in &world.blows[before.min(world.blows.len())..] {
        prop_assert!(!guarded.contains(process), "{} is guarded", process);
    }
    let mut told = BTreeSet::new();
    for (_, blow, process) in &world.blows {
        prop_assert!(*process != stranger && *process != SHELL, "{} is in no session", process);
        prop_assert!(told.insert((*process, *blow)), "{} was dealt {:?} twice", process, blow);
    }
    for receipt in receipts(&world) {
        prop_assert!(receipt.state != ActionState::Running, "{:#?}", receipt);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nobody_is_ever_struck_who_must_not_be_and_nobody_twice(acts in prop::collection::vec(act(), 1..120)) {
        nobody_is_struck_who_must_not_be(acts)?;
    }
}
