//! The surroundings of agents: the processes above them, and whether a multiplexer shows their terminal to a person.

use std::collections::HashMap;

use super::error::HostError;
use super::fds::holds_terminal;
use super::process::ProcessDir;
use super::scan::image;
use watchdog_classify as classify;
use watchdog_types::{AgentTerminal, Ancestor, Pid, ProcessId, Surroundings};

/// Processes above an agent that are read.
const DEEPEST: usize = 32;
/// Multiplexers whose server opens the terminals of its clients. Begins of comm, which tmux sets.
const SHOW_TERMINALS: &[&str] = &["screen", "tmux"];
/// Multiplexers whose server has only connections, and no terminal.
const HIDE_TERMINALS: &[&str] = &["abduco", "dtach", "zellij"];

struct Above {
    ancestor: Ancestor,
    parent: Pid,
    comm: String,
}

/// The surroundings of these agents, without those that have exited. 60 µs for each process above one of them, and 2 µs for
/// each descriptor of a multiplexer.
pub fn read(agents: &[ProcessId]) -> Result<Vec<Surroundings>, HostError> {
    let mut known: HashMap<Pid, Option<Above>> = HashMap::new();
    let mut shown: HashMap<Pid, bool> = HashMap::new();
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    for agent in agents {
        let Some((_, stat)) = ProcessDir::of(*agent, &mut buffer)? else { continue };
        let mut terminal = if stat.tty == 0 { AgentTerminal::Absent } else { AgentTerminal::Attached };
        let mut multiplexed = stat.tty == 0;
        let mut ancestors = Vec::new();
        let mut parent = stat.ppid;
        while parent > Pid(1) && ancestors.len() < DEEPEST {
            let above = match known.entry(parent) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => entry.insert(read_one(parent, &mut buffer)?),
            };
            let Some(Above { ancestor, parent: next, comm }) = above else { break };
            if !multiplexed && let Some(how) = multiplexer(comm) {
                multiplexed = true;
                terminal = match how {
                    Multiplexer::Hides => AgentTerminal::Unknown,
                    Multiplexer::Shows if is_shown(parent, &mut shown)? => AgentTerminal::Attached,
                    Multiplexer::Shows => AgentTerminal::Detached,
                };
            }
            ancestors.push(ancestor.clone());
            parent = *next;
        }
        found.push(Surroundings { agent: *agent, ancestors, terminal });
    }
    Ok(found)
}

enum Multiplexer {
    Shows,
    Hides,
}

fn multiplexer(comm: &str) -> Option<Multiplexer> {
    let begins = |names: &[&str]| names.iter().any(|name| comm.to_ascii_lowercase().starts_with(name));
    if begins(SHOW_TERMINALS) { Some(Multiplexer::Shows) } else { begins(HIDE_TERMINALS).then_some(Multiplexer::Hides) }
}

fn is_shown(server: Pid, shown: &mut HashMap<Pid, bool>) -> Result<bool, HostError> {
    if let Some(known) = shown.get(&server) {
        return Ok(*known);
    }
    let holds = match ProcessDir::open(server)? {
        Some(dir) => holds_terminal(&dir)?,
        None => false,
    };
    shown.insert(server, holds);
    Ok(holds)
}

fn read_one(pid: Pid, buffer: &mut Vec<u8>) -> Result<Option<Above>, HostError> {
    let Some((dir, stat)) = ProcessDir::with_stat(pid, buffer)? else { return Ok(None) };
    let Some(image) = image(&dir, buffer)? else { return Ok(None) };
    let name = match multiplexer(&stat.comm) {
        Some(_) => stat.comm.clone(),
        None => classify::label(&image, &stat.comm),
    };
    let ancestor = Ancestor { process: stat.process, name, oom_score_adj: dir.oom_score_adj(buffer)? };
    Ok(Some(Above { ancestor, parent: stat.ppid, comm: stat.comm }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::this_process;

    #[test]
    fn ancestors_of_own_process_are_read() {
        let own = this_process().unwrap();
        let read = read(&[own]).unwrap();
        let parent = read[0].ancestors.first().unwrap();
        assert_eq!(parent.process.pid.0, std::os::unix::process::parent_id());
        assert!(parent.oom_score_adj.is_some() && !parent.name.is_empty(), "{parent:?}");
    }

    #[test]
    fn exited_agent_has_no_surroundings() {
        let own = this_process().unwrap();
        let reused = ProcessId { start_time: watchdog_types::Ticks(own.start_time.0 + 1), ..own };
        assert!(read(&[reused]).unwrap().is_empty());
    }
}
