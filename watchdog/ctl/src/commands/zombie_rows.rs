//! Zombies in the tree: one row for all that one parent has not reaped.

use std::collections::{HashMap, HashSet};

use crate::render::count;
use watchdog_api::{Process, ProcessState};

pub(super) struct UnreapedZombies {
    pub(super) count: u64,
    parent: Option<u32>,
    /// Programs, each once.
    names: Vec<String>,
}

impl UnreapedZombies {
    /// The rows, with one zombie in place of all of its parent, and the zombies that it stands for by its pid.
    pub(super) fn collapse(processes: &[Process]) -> (Vec<Process>, HashMap<u32, Self>) {
        let parents: HashSet<u32> = processes.iter().map(|process| process.parent_pid).collect();
        let mut standing: HashMap<u32, u32> = HashMap::new();
        let mut zombies: HashMap<u32, Self> = HashMap::new();
        let mut rows = Vec::with_capacity(processes.len());
        for process in processes {
            // One with rows below it keeps its own.
            if process.state != ProcessState::Zombie || parents.contains(&process.pid) {
                rows.push(process.clone());
                continue;
            }
            let first = *standing.entry(process.parent_pid).or_insert(process.pid);
            let group = zombies.entry(first).or_insert_with(|| {
                rows.push(process.clone());
                let parent = processes.iter().find(|parent| parent.pid == process.parent_pid);
                Self { count: 0, parent: parent.map(|parent| parent.pid), names: Vec::new() }
            });
            group.count += 1;
            let name = name(process);
            if !group.names.iter().any(|known| known == name) {
                group.names.push(name.to_owned());
            }
        }
        (rows, zombies)
    }

    pub(super) fn describe(&self, rows: &[Process]) -> String {
        let parent = rows.iter().find(|row| Some(row.pid) == self.parent);
        let parent = parent.map_or_else(String::new, |parent| {
            format!(": {} (pid {}) does not wait for its children", name(parent), parent.pid)
        });
        let names = match self.names.as_slice() {
            [first, _, _, _, ..] => format!("{first} and others"),
            names => names.join(", "),
        };
        format!("{} ({names}){parent}", count(self.count, "zombie", "zombies"))
    }
}

/// As findings name it: the script of an interpreter. A daemon of an earlier version gives none.
fn name(process: &Process) -> &str {
    if process.name.is_empty() { &process.comm } else { &process.name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::process;
    use watchdog_api::ProcessKind;

    fn zombie(pid: u32, parent: u32, comm: &str) -> Process {
        let zombie = process(pid, parent, ProcessKind::Tool, &[comm], 0);
        Process { state: ProcessState::Zombie, comm: comm.into(), ..zombie }
    }

    #[test]
    fn zombies_of_parent_share_row() {
        let mut all =
            vec![process(10, 1, ProcessKind::Agent, &["a"], 1), process(11, 10, ProcessKind::McpServer, &["b"], 1)];
        all[1].comm = "server".into();
        all.extend((100..400).map(|pid| zombie(pid, 11, "true")));
        all.push(zombie(400, 11, "git"));
        all.push(zombie(401, 10, "sh"));
        let (rows, zombies) = UnreapedZombies::collapse(&all);
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [10, 11, 100, 401]);
        let text = zombies[&100].describe(&rows);
        assert_eq!(text, "301 zombies (true, git): server (pid 11) does not wait for its children");
        assert_eq!(zombies[&401].count, 1);
    }

    #[test]
    fn zombies_are_named_by_their_scripts() {
        let mut parent = process(10, 1, ProcessKind::Agent, &["python3", "/x/agent.py"], 1);
        (parent.comm, parent.name) = ("python3".into(), "agent.py".into());
        let mut all = vec![parent, zombie(11, 10, "python3"), zombie(12, 10, "python3")];
        all[1].name = "task.py".into();
        all[2].name = "task.py".into();
        let (rows, zombies) = UnreapedZombies::collapse(&all);
        let text = zombies[&11].describe(&rows);
        assert_eq!(text, "2 zombies (task.py): agent.py (pid 10) does not wait for its children");
    }

    #[test]
    fn zombie_with_children_keeps_row() {
        let all = [zombie(10, 1, "sh"), zombie(11, 1, "sh"), process(12, 10, ProcessKind::Tool, &["c"], 1)];
        let (rows, _) = UnreapedZombies::collapse(&all);
        assert_eq!(rows.len(), 3);
    }
}
