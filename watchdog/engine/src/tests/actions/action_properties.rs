//! Random trees, evidence, pressure and requests, with the most aggressive policy: what [`World`] checks at every operation
//! holds, no process is signalled twice, and no process outside the sessions is ever a target.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::actions::Permissions;
use crate::tests::world::{SHELL, aggressive};

#[derive(Clone, Debug)]
enum ActionStep {
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

fn act() -> impl Strategy<Value = ActionStep> {
    let which = 0_usize..64;
    prop_oneof![
        2 => any::<bool>().prop_map(ActionStep::Agent),
        8 => which.clone().prop_map(ActionStep::Fork),
        8 => (which.clone(), 0..PROGRAMS.len()).prop_map(|(which, what)| ActionStep::Exec(which, what)),
        4 => which.clone().prop_map(ActionStep::Exit),
        1 => which.clone().prop_map(ActionStep::Stubborn),
        3 => (which.clone(), 0_usize..5).prop_map(|(which, what)| ActionStep::Shows(which, what)),
        3 => (which.clone(), 0_u64..4_000).prop_map(|(which, mib)| ActionStep::Memory(which, mib)),
        2 => (0_u64..16_000).prop_map(ActionStep::Host),
        1 => which.clone().prop_map(ActionStep::Adopt),
        1 => which.clone().prop_map(ActionStep::Unadopt),
        1 => which.clone().prop_map(ActionStep::Reap),
        1 => (0_u64..6).prop_map(ActionStep::End),
        1 => which.prop_map(ActionStep::Guard),
        4 => (0_u64..20_000).prop_map(ActionStep::Wait),
    ]
}

fn no_exempt_process_is_signalled(acts: Vec<ActionStep>) -> Result<(), TestCaseError> {
    let mut world = World::mortal(Config { actions: aggressive(), ..Config::default() });
    let stranger = world.unseen(SHELL, "/usr/bin/postgres");
    let mut protected = BTreeSet::new();
    for act in acts {
        let tracked: Vec<ProcessId> = world.living().filter(|id| world.tracked.contains_key(id)).collect();
        let pick = |which: usize| tracked.get(which % tracked.len().max(1)).copied();
        match (act, pick) {
            (ActionStep::Agent(codex), _) => {
                world.agent(if codex { "/usr/local/bin/codex" } else { "/home/u/.local/bin/claude" });
            }
            (ActionStep::Host(available), _) => world.host_is(memory(16_384, available.min(16_000))),
            (ActionStep::Wait(millis), _) => world.wait(std::time::Duration::from_millis(millis)),
            (ActionStep::End(session), _) => drop(ask(&mut world, USER, RequestedAction::End(SessionId(session)))),
            (act, pick) => {
                let (ActionStep::Fork(which)
                | ActionStep::Exec(which, _)
                | ActionStep::Exit(which)
                | ActionStep::Stubborn(which)
                | ActionStep::Shows(which, _)
                | ActionStep::Memory(which, _)
                | ActionStep::Adopt(which)
                | ActionStep::Unadopt(which)
                | ActionStep::Reap(which)
                | ActionStep::Guard(which)) = act
                else {
                    continue;
                };
                let Some(process) = pick(which) else { continue };
                match act {
                    ActionStep::Fork(_) => drop(world.fork(process)),
                    ActionStep::Exec(_, what) => world.exec(process, PROGRAMS[what][0], PROGRAMS[what]),
                    ActionStep::Exit(_) => world.kill(process),
                    ActionStep::Stubborn(_) => drop(world.stubborn.insert(process)),
                    ActionStep::Shows(_, what) => world.shows(process, |seen| match what {
                        0 => seen.listens = vec!["tcp 127.0.0.1:3000".into()],
                        1 => seen.tty = !seen.tty,
                        2 => seen.ignores_hup = true,
                        3 => seen.sid = process.pid.0,
                        _ => seen.comm = "tmux: server".into(),
                    }),
                    ActionStep::Memory(_, mib) => world.memory(process, Bytes::from_mib(mib)),
                    ActionStep::Adopt(_) => world.feed(Input::Adopt(process)),
                    ActionStep::Unadopt(_) => world.feed(Input::Unadopt(process)),
                    ActionStep::Reap(_) => drop(reap(&mut world, &[Subject::Pid(process.pid.0)])),
                    ActionStep::Guard(_) => {
                        protected.insert(process);
                        world.feed(Input::Permissions(Permissions { missing: None, protected: protected.clone() }));
                    }
                    _ => {}
                }
            }
        }
        for process in &protected {
            // It may have been signalled before it was protected.
            world.operations.retain(|(_, _, struck)| struck != process || !protected.contains(struck));
        }
    }
    let before = world.operations.len();
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    for (_, _, process) in &world.operations[before.min(world.operations.len())..] {
        prop_assert!(!protected.contains(process), "{} is protected", process);
    }
    for (_, _, process) in &world.operations {
        prop_assert!(*process != stranger && *process != SHELL, "{} is in no session", process);
    }
    // A user may request what policy did before, once policy is done with the process.
    let mut by_policy = BTreeSet::new();
    for receipt in receipts(&world) {
        let mut by_user = BTreeSet::new();
        let seen = if receipt.asked_by_uid.is_some() { &mut by_user } else { &mut by_policy };
        for target in &receipt.targets {
            for sent in &target.sent {
                let operation = (target.pid, target.start_time, sent.what.clone());
                prop_assert!(seen.insert(operation), "{} received {} twice", target.pid, sent.what);
            }
        }
    }
    for receipt in receipts(&world) {
        prop_assert!(receipt.state != ActionState::Running, "{:#?}", receipt);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn exempt_processes_receive_no_signal(acts in prop::collection::vec(act(), 1..120)) {
        no_exempt_process_is_signalled(acts)?;
    }
}

/// Policy spared a process that had executed an agent since the SIGTERM, and its user ended the session then.
#[test]
fn user_ends_what_policy_spared() {
    use ActionStep::{Agent, End, Exec, Exit, Fork, Host, Stubborn, Wait};
    let before =
        [Agent(false), Fork(0), Fork(0), Exit(0), Exit(0), Agent(false), Agent(false), Fork(0), Fork(29), Fork(3)];
    let agents = [Agent(false), Exit(22), Agent(false), Exit(2), Stubborn(44), Host(13_108), Agent(false), Fork(26)];
    let after = [Agent(false), Exec(0, 0), Exec(22, 3), Agent(false), Agent(false), Agent(false), Wait(940), End(2)];
    no_exempt_process_is_signalled([&before[..], &agents[..], &after[..]].concat()).unwrap();
}
