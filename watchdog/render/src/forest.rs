//! Parents and children among the processes of a session.

use std::collections::HashMap;

use watchdog_api::Process;

/// Deeper levels are drawn at the last one, after an ellipsis.
const MAX_LEVELS: usize = 20;

/// Indices into the processes that it was made of, in their order.
pub struct Forest {
    /// Processes without a parent in the session.
    pub roots: Vec<usize>,
    /// For each process, what it forked.
    pub children: Vec<Vec<usize>>,
}

impl Forest {
    /// The parent of a process is the one that forked it, or else the current one. It must be older and listed earlier, so
    /// that no response can form a cycle.
    #[must_use]
    pub fn of(processes: &[Process]) -> Self {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
        let mut roots = Vec::new();
        let mut seen: HashMap<u32, usize> = HashMap::with_capacity(processes.len());
        for (i, process) in processes.iter().enumerate() {
            let older =
                |pid: u32| seen.get(&pid).copied().filter(|&parent| processes[parent].start_time <= process.start_time);
            match older(process.parent_pid).or_else(|| older(process.ppid)) {
                Some(parent) => children[parent].push(i),
                None => roots.push(i),
            }
            seen.insert(process.pid, i);
        }
        Self { roots, children }
    }
}

/// The characters before a process. `open` says for each level below the root whether a sibling follows.
#[must_use]
pub fn branch(open: &[bool]) -> String {
    let Some((&more, above)) = open.split_last() else { return String::new() };
    let hidden = above.len().saturating_sub(MAX_LEVELS);
    let mut text = String::from(if hidden > 0 { "… " } else { "" });
    text.extend(above[hidden..].iter().map(|&more| if more { "│  " } else { "   " }));
    text.push_str(if more { "├─ " } else { "└─ " });
    text
}
