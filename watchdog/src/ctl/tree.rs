//! `watchdogctl tree`: sessions with their process trees and memory.

use std::collections::HashMap;

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Cell, Column, Ink, Screen, Table, age, count, short_command, size, span, visible};
use crate::api::{Process, ProcessState, Session, SessionState, Tree};

pub(super) async fn run(client: &Client, session: Option<u64>, output: &mut Output<'_>) -> Result<(), Failure> {
    let path = session.map_or_else(|| "/v1/tree".into(), |id| format!("/v1/tree?session={id}"));
    let answer = client.get::<Tree>(&path).await?;
    if let Some(id) = session.filter(|_| answer.document.sessions.is_empty()) {
        return Err(Failure::No(format!(
            "no session {id} is known to the daemon, or it is another user's\n`watchdogctl tree` lists those that are."
        )));
    }
    output.show(&answer.text, |screen| render(&answer.document, screen))
}

fn render(tree: &Tree, screen: &Screen) -> String {
    if tree.sessions.is_empty() {
        return "no sessions: no agent that a profile recognises is running, or it is another user's\n".into();
    }
    let sessions = tree.sessions.iter().map(|session| heading(session, screen) + &processes(session, screen));
    sessions.collect::<Vec<_>>().join("\n")
}

fn heading(session: &Session, screen: &Screen) -> String {
    let title = screen.paint(Ink::Strong, format!("session {}  {}", session.id, visible(&session.profile)));
    let state = match session.state {
        SessionState::Running => screen.paint(Ink::Good, "running"),
        SessionState::Orphaned => screen.paint(Ink::Bad, "orphaned: its agent is dead"),
        SessionState::Ended => screen.paint(Ink::Faint, "ended"),
    };
    let mut facts = vec![state.into_owned()];
    let living = (session.processes.len() as u64).saturating_sub(session.zombies);
    facts.push(format!("{} in {}", size(session.memory_bytes), count(living, "process", "processes")));
    if session.zombies > 0 {
        facts.push(count(session.zombies, "zombie", "zombies"));
    }
    facts.push(format!("user {}", visible(&session.user)));
    if let Some(age) = age(&session.started_at, screen.now) {
        facts.push(format!("started {} ago", span(age)));
    }
    if let Some(parent) = session.parent_session {
        facts.push(format!("inside session {parent}"));
    }
    if session.gated {
        facts.push("launched through the gate".into());
    }
    format!("{title}  {}\n", facts.join(", "))
}

fn processes(session: &Session, screen: &Screen) -> String {
    let all_in_order = session.processes.iter().all(|process| process.state == ProcessState::Running);
    let mut columns = vec![Column::right("PID"), Column::right("MEMORY"), Column::right("PEAK"), Column::left("KIND")];
    if !all_in_order {
        columns.push(Column::left("STATE"));
    }
    columns.push(Column::left("COMMAND"));
    let mut table = Table::new(2, columns);
    for (branch, process) in forest(&session.processes) {
        let charged = process.anon_bytes.saturating_add(process.shmem_bytes).saturating_add(process.swap_bytes);
        let mut row = vec![
            Cell::new(process.pid.to_string()),
            Cell::new(size(charged)),
            Cell::new(size(process.peak_bytes)).ink(Ink::Faint),
            Cell::new(process.kind.name()),
        ];
        if !all_in_order {
            row.push(state(process.state));
        }
        let why = process.kept_because.as_ref().map_or_else(String::new, |why| format!("  (kept: {why})"));
        row.push(Cell::new(format!("{branch}{}{why}", short_command(&process.argv, &process.comm))));
        table.row(row);
    }
    table.render(screen)
}

fn state(state: ProcessState) -> Cell {
    match state {
        ProcessState::Running => Cell::new(""),
        ProcessState::Orphaned => Cell::new(state.name()).ink(Ink::Bad),
        ProcessState::Detached | ProcessState::Stale => Cell::new(state.name()).ink(Ink::Warn),
        ProcessState::Zombie | ProcessState::Kept => Cell::new(state.name()).ink(Ink::Faint),
    }
}

/// Levels that are drawn at most: what is deeper stands at the last of them, after an ellipsis.
const DRAWN_LEVELS: usize = 20;

/// Each process with the branch that leads to it, parents before children.
///
/// The parent of a process is whoever forked it, or else today's parent; and only if it is older and stands before it,
/// so that no answer can make a loop of them.
fn forest(processes: &[Process]) -> Vec<(String, &Process)> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    let mut roots = Vec::new();
    let mut seen: HashMap<u32, usize> = HashMap::new();
    for (i, process) in processes.iter().enumerate() {
        let older =
            |pid: u32| seen.get(&pid).copied().filter(|&parent| processes[parent].start_time <= process.start_time);
        match older(process.parent_pid).or_else(|| older(process.ppid)) {
            Some(parent) => children[parent].push(i),
            None => roots.push(i),
        }
        seen.insert(process.pid, i);
    }

    let mut drawn = Vec::with_capacity(processes.len());
    // Whether the process on each level of the way down has a sibling below it; the roots themselves have no branch.
    let mut open: Vec<bool> = Vec::new();
    let mut stack: Vec<(usize, usize, bool)> = roots.iter().rev().map(|&root| (root, 0, false)).collect();
    while let Some((i, level, more)) = stack.pop() {
        open.truncate(level.saturating_sub(1));
        if level > 0 {
            open.push(more);
        }
        drawn.push((branch(&open), &processes[i]));
        let last = children[i].len().saturating_sub(1);
        stack.extend(children[i].iter().enumerate().rev().map(|(n, &child)| (child, level + 1, n < last)));
    }
    drawn
}

fn branch(open: &[bool]) -> String {
    let Some((&more, above)) = open.split_last() else { return String::new() };
    let hidden = above.len().saturating_sub(DRAWN_LEVELS);
    let mut text = String::from(if hidden > 0 { "… " } else { "" });
    text.extend(above[hidden..].iter().map(|&more| if more { "│  " } else { "   " }));
    text.push_str(if more { "├─ " } else { "└─ " });
    text
}

#[cfg(test)]
pub(super) mod testing {
    //! A session as the daemon would show it.

    use crate::api::{Process, ProcessKind, ProcessState, Session, SessionState, Tree};

    pub(in crate::ctl) fn process(pid: u32, parent: u32, kind: ProcessKind, argv: &[&str], mib: u64) -> Process {
        Process {
            pid,
            start_time: u64::from(pid),
            ppid: parent,
            parent_pid: parent,
            depth: 0,
            kind,
            comm: "comm".into(),
            argv: argv.iter().map(ToString::to_string).collect(),
            state: ProcessState::Running,
            rss_bytes: mib << 20,
            anon_bytes: mib << 20,
            shmem_bytes: 0,
            swap_bytes: 0,
            peak_bytes: (mib + 8) << 20,
            kept_because: None,
        }
    }

    pub(in crate::ctl) fn tree() -> Tree {
        use ProcessKind::{Agent, McpServer, Tool};
        let processes = vec![
            process(41230, 900, Agent, &["claude", "--resume"], 512),
            process(41231, 41230, McpServer, &["npm", "exec", "@modelcontextprotocol/server-memory"], 80),
            process(41240, 41231, McpServer, &["sh", "-c", "mcp-server-memory"], 1),
            process(41241, 41240, McpServer, &["node", "/x/server-memory/dist/index.js"], 66),
            process(41250, 41230, McpServer, &["uvx", "mcp-server-git"], 1100),
            process(41300, 41230, Tool, &["/bin/bash", "-c", "cargo test"], 3),
            process(41301, 41300, Tool, &["cargo", "test", "--workspace"], 9),
        ];
        let session = Session {
            id: 3,
            profile: "claude-code".into(),
            state: SessionState::Running,
            gated: false,
            user: "ada".into(),
            uid: 1000,
            started_at: "2026-01-02T09:55:00.000Z".into(),
            memory_bytes: 1700 << 20,
            parent_session: None,
            zombies: 0,
            processes,
        };
        Tree { sessions: vec![session] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::{coloured, narrow, plain};
    use super::testing::{process, tree};
    use super::*;
    use crate::api::ProcessKind;

    fn orphaned() -> Tree {
        let mut tree = tree();
        let session = &mut tree.sessions[0];
        session.id = 4;
        session.state = SessionState::Orphaned;
        session.parent_session = Some(3);
        session.gated = true;
        session.zombies = 1;
        session.processes.remove(0);
        for process in &mut session.processes {
            process.state = ProcessState::Orphaned;
        }
        session.processes[1].state = ProcessState::Zombie;
        session.processes[3].state = ProcessState::Kept;
        session.processes[3].kept_because = Some("listens on tcp 127.0.0.1:3000".into());
        tree
    }

    #[test]
    fn a_session_is_drawn_as_the_tree_that_it_is() {
        insta::assert_snapshot!(render(&tree(), &plain()), @r"
        session 3  claude-code  running, 1.7 GiB in 7 processes, user ada, started 2h 5m ago
            PID   MEMORY     PEAK  KIND        COMMAND
          41230  512 MiB  520 MiB  agent       claude
          41231   80 MiB   88 MiB  mcp-server  ├─ npm exec @modelcontextprotocol/server-memory
          41240  1.0 MiB  9.0 MiB  mcp-server  │  └─ sh -c
          41241   66 MiB   74 MiB  mcp-server  │     └─ node server-memory/…/index.js
          41250  1.1 GiB  1.1 GiB  mcp-server  ├─ uvx mcp-server-git
          41300  3.0 MiB   11 MiB  tool        └─ bash -c
          41301  9.0 MiB   17 MiB  tool           └─ cargo test
        ");
    }

    #[test]
    fn what_a_dead_agent_left_behind_has_states_and_several_roots() {
        insta::assert_snapshot!(render(&orphaned(), &plain()), @r"
        session 4  claude-code  orphaned: its agent is dead, 1.7 GiB in 5 processes, 1 zombie, user ada, started 2h 5m ago, inside session 3, launched through the gate
            PID   MEMORY     PEAK  KIND        STATE     COMMAND
          41231   80 MiB   88 MiB  mcp-server  orphaned  npm exec @modelcontextprotocol/server-memory
          41240  1.0 MiB  9.0 MiB  mcp-server  zombie    └─ sh -c
          41241   66 MiB   74 MiB  mcp-server  orphaned     └─ node server-memory/…/index.js
          41250  1.1 GiB  1.1 GiB  mcp-server  kept      uvx mcp-server-git  (kept: listens on tcp 127.0.0.1:3000)
          41300  3.0 MiB   11 MiB  tool        orphaned  bash -c
          41301  9.0 MiB   17 MiB  tool        orphaned  └─ cargo test
        ");
    }

    #[test]
    fn commands_are_cut_at_the_edge_of_the_terminal() {
        let text = render(&tree(), &narrow(66));
        insta::assert_snapshot!(text, @r"
        session 3  claude-code  running, 1.7 GiB in 7 processes, user ada, started 2h 5m ago
            PID   MEMORY     PEAK  KIND        COMMAND
          41230  512 MiB  520 MiB  agent       claude
          41231   80 MiB   88 MiB  mcp-server  ├─ npm exec @modelcontextp…
          41240  1.0 MiB  9.0 MiB  mcp-server  │  └─ sh -c
          41241   66 MiB   74 MiB  mcp-server  │     └─ node server-memor…
          41250  1.1 GiB  1.1 GiB  mcp-server  ├─ uvx mcp-server-git
          41300  3.0 MiB   11 MiB  tool        └─ bash -c
          41301  9.0 MiB   17 MiB  tool           └─ cargo test
        ");
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 66));
    }

    #[test]
    fn sessions_are_set_apart_and_none_at_all_is_said_aloud() {
        let two = Tree { sessions: [tree().sessions, orphaned().sessions].concat() };
        assert_eq!(render(&two, &plain()).matches("\n\nsession ").count(), 1);
        insta::assert_snapshot!(render(&Tree::default(), &plain()), @"no sessions: no agent that a profile recognises is running, or it is another user's");
    }

    #[test]
    fn a_name_that_is_an_escape_sequence_is_shown_and_not_obeyed() {
        let mut tree = tree();
        let session = &mut tree.sessions[0];
        session.profile = "\x1b]0;owned\x07".into();
        session.user = "a\u{202e}b".into();
        session.processes.truncate(2);
        session.processes[0].argv = vec!["/tmp/\x1b[2J\x1b[1;1Hroot\n#".into()];
        session.processes[1].argv.clear();
        session.processes[1].comm = "\u{9b}31mnode\r".into();
        let text = render(&tree, &coloured());
        let codes = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m"];
        let bare = codes.iter().fold(text, |text, code| text.replace(code, ""));
        assert!(bare.chars().all(|c| c == '\n' || !c.is_control()), "{bare:?}");
        insta::assert_snapshot!(bare, @r"
        session 3  \u{1b}]0;owned\u{7}  running, 1.7 GiB in 2 processes, user a\u{202e}b, started 2h 5m ago
            PID   MEMORY     PEAK  KIND        COMMAND
          41230  512 MiB  520 MiB  agent       \u{1b}[2J\u{1b}[1;1Hroot\n#
          41231   80 MiB   88 MiB  mcp-server  └─ [\u{9b}31mnode\r]
        ");
    }

    #[test]
    fn parents_that_name_each_other_make_no_loop() {
        let mut one = process(10, 11, ProcessKind::Agent, &["a"], 1);
        let mut two = process(11, 10, ProcessKind::Other, &["b"], 1);
        let itself = process(12, 12, ProcessKind::Other, &["c"], 1);
        // A later process that has the pid of an earlier parent.
        (one.start_time, two.start_time) = (10, 5);
        let processes = [one, two, itself];
        let drawn: Vec<_> = forest(&processes).into_iter().map(|(branch, process)| (branch, process.pid)).collect();
        assert_eq!(drawn, [(String::new(), 10), (String::new(), 11), (String::new(), 12)]);
    }

    #[test]
    fn who_forked_a_process_counts_more_than_todays_parent() {
        let agent = process(10, 1, ProcessKind::Agent, &["a"], 1);
        let helper = process(11, 10, ProcessKind::Other, &["b"], 1);
        let mut daemonised = process(12, 11, ProcessKind::Other, &["c"], 1);
        daemonised.ppid = 10;
        let processes = [agent, helper, daemonised];
        let drawn: Vec<_> = forest(&processes).into_iter().map(|(branch, process)| (branch, process.pid)).collect();
        assert_eq!(drawn, [(String::new(), 10), ("└─ ".into(), 11), ("   └─ ".into(), 12)]);
    }

    #[test]
    fn a_chain_of_ten_thousand_is_drawn_in_bounded_lines() {
        let processes: Vec<_> =
            (1..=10_000).map(|pid| process(pid, pid - 1, ProcessKind::Other, &["fork"], 1)).collect();
        let drawn = forest(&processes);
        assert_eq!(drawn.len(), 10_000);
        assert!(drawn.iter().all(|(branch, _)| branch.chars().count() <= 3 * DRAWN_LEVELS + 5));
        assert!(drawn[9_999].0.starts_with("… "));
    }
}
