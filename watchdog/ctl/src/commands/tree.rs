use super::zombie_rows::UnreapedZombies;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Cell, Column, Forest, Style, Terminal, TextTable, branch, count, escape, process_command, size};
use watchdog_api::client::ControlClient;
use watchdog_api::{PROTECTED_SCORE, Process, ProcessKind, ProcessState, Session, SessionState, Tree};
use watchdog_types::Image;

pub(crate) fn run(
    client: &ControlClient,
    session: Option<u64>,
    ended: bool,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let path = session.map_or_else(|| "/v1/tree".into(), |id| format!("/v1/tree?session={id}"));
    let reply = client.get::<Tree>(&path)?;
    if let Some(id) = session.filter(|_| reply.document.sessions.is_empty()) {
        return Err(CtlError::Failed(format!(
            "no session {id}, or it belongs to another user\n`watchdogctl tree` lists sessions."
        )));
    }
    output.show(&reply.text, |terminal| render(&reply.document, ended || session.is_some(), terminal))
}

fn render(tree: &Tree, ended: bool, terminal: &Terminal) -> String {
    // What an ended session keeps running is shown like a living one.
    let has_living = |session: &Session| session.processes.iter().any(|process| process.state != ProcessState::Zombie);
    let is_shown = |session: &&Session| ended || session.state != SessionState::Ended || has_living(session);
    let shown: Vec<String> = tree
        .sessions
        .iter()
        .filter(is_shown)
        .map(|session| heading(session, terminal) + &processes(session, terminal))
        .collect();
    let hidden = tree.sessions.len() - shown.len();
    let mut out = shown.join("\n");
    if out.is_empty() {
        out.push_str("no sessions: no process matches a profile, or all belong to other users\n");
    }
    if hidden > 0 {
        let text = format!("{}: --ended shows them", count(hidden as u64, "ended session", "ended sessions"));
        out.push_str(&format!("{}\n", terminal.paint(Style::Faint, text)));
    }
    out
}

fn heading(session: &Session, terminal: &Terminal) -> String {
    let title = terminal.paint(Style::Strong, format!("session {}  {}", session.id, escape(&session.profile)));
    let state = match session.state {
        SessionState::Running => terminal.paint(Style::Good, "running"),
        SessionState::Orphaned => terminal.paint(Style::Bad, "orphaned (its agent is dead)"),
        SessionState::Ended => terminal.paint(Style::Faint, "ended"),
    };
    let mut facts = vec![state.into_owned()];
    let living = (session.processes.len() as u64).saturating_sub(session.zombies);
    facts.push(format!("{} in {}", size(session.memory_bytes), count(living, "process", "processes")));
    if session.zombies > 0 {
        facts.push(count(session.zombies, "zombie", "zombies"));
    }
    facts.push(format!("user {}", escape(&session.user)));
    facts.push(format!("started {}", terminal.ago(&session.started_at)));
    if session.swap_bytes > 0 {
        facts.push(format!("{} resident, {} swapped", size(session.resident_bytes), size(session.swap_bytes)));
    }
    if let Some(since) = &session.idle_since {
        facts.push(format!("idle for {}", terminal.age(since)));
    }
    if let Some(parent) = session.parent_session {
        facts.push(format!("inside session {parent}"));
    }
    if session.parent_session.is_none() && session.processes.first().is_some_and(lends_tools) {
        facts.push("MCP server, no agent above".into());
    }
    if let Some(score) = session.oom_score_adj.filter(|score| *score <= PROTECTED_SCORE) {
        let text = format!("protected from the OOM killer (oom_score_adj {score})");
        facts.push(terminal.paint(Style::Warn, text).into_owned());
    }
    if session.gated {
        facts.push("launched through the gate".into());
    }
    terminal.fit(&format!("{title}  {}\n", facts.join(", ")))
}

/// An agent that only serves its tools to another one: `claude mcp serve`.
fn lends_tools(process: &Process) -> bool {
    let path = process.argv.first().cloned().unwrap_or_default();
    let image = Image::new(path, process.argv.iter().cloned());
    process.kind == ProcessKind::Agent && watchdog_classify::lends_tools(&image)
}

fn processes(session: &Session, terminal: &Terminal) -> String {
    let all_running = session.processes.iter().all(|process| process.state == ProcessState::Running);
    let mut columns = vec![Column::right("PID"), Column::right("MEMORY"), Column::right("PEAK"), Column::left("KIND")];
    if !all_running {
        columns.push(Column::left("STATE"));
    }
    columns.push(Column::left("COMMAND"));
    let mut table = TextTable::new(2, columns);
    // The heading of the session says so for all that its agent started.
    let protected = session.oom_score_adj.is_some_and(|score| score <= PROTECTED_SCORE);
    let (rows, zombies) = UnreapedZombies::collapse(&session.processes);
    for (branch, process) in forest(&rows) {
        let charged = process.anon_bytes.saturating_add(process.shmem_bytes).saturating_add(process.swap_bytes);
        let mut row = vec![
            Cell::new(process.pid.to_string()),
            Cell::new(size(charged)),
            Cell::new(size(process.peak_bytes)).style(Style::Faint),
            Cell::new(process.kind.name()),
        ];
        if !all_running {
            row.push(state(process.state));
        }
        let why = process.kept_because.as_ref().map_or_else(String::new, |why| format!("  (kept: {why})"));
        let command = match zombies.get(&process.pid).filter(|zombies| zombies.count > 1) {
            Some(zombies) => zombies.describe(&rows),
            None => process_command(process),
        };
        let spared = process.oom_score_adj.filter(|score| *score <= PROTECTED_SCORE && !protected);
        let spared = spared.map_or_else(String::new, |score| format!("  (protected, oom_score_adj {score})"));
        row.push(Cell::new(format!("{branch}{command}{why}{spared}")));
        table.row(row);
    }
    table.render(terminal)
}

fn state(state: ProcessState) -> Cell {
    match state {
        ProcessState::Running => Cell::new(""),
        ProcessState::Orphaned => Cell::new(state.name()).style(Style::Bad),
        ProcessState::Detached | ProcessState::Stale => Cell::new(state.name()).style(Style::Warn),
        ProcessState::Zombie | ProcessState::Kept => Cell::new(state.name()).style(Style::Faint),
    }
}

/// Each process with its branch characters, parents before children.
fn forest(processes: &[Process]) -> Vec<(String, &Process)> {
    let forest = Forest::of(processes);
    let mut drawn = Vec::with_capacity(processes.len());
    // For each level below the root: whether a sibling follows.
    let mut open: Vec<bool> = Vec::new();
    let mut stack: Vec<(usize, usize, bool)> = forest.roots.iter().rev().map(|&root| (root, 0, false)).collect();
    while let Some((i, level, more)) = stack.pop() {
        open.truncate(level.saturating_sub(1));
        if level > 0 {
            open.push(more);
        }
        drawn.push((branch(&open), &processes[i]));
        let children = &forest.children[i];
        let last = children.len().saturating_sub(1);
        stack.extend(children.iter().enumerate().rev().map(|(n, &child)| (child, level + 1, n < last)));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{process, tree};
    use crate::render::testing::{coloured, narrow, plain};

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
    fn session_is_drawn_as_a_tree() {
        insta::assert_snapshot!(render(&tree(), false, &plain()), @r"
        session 3  claude-code  running, 1.7 GiB in 7 processes, user ada, started 2h 5m ago
            PID   MEMORY     PEAK  KIND        COMMAND
          41230  512 MiB  520 MiB  agent       claude
          41231   80 MiB   88 MiB  mcp-server  ├─ npm exec @modelcontextprotocol/server-memory
          41240  1.0 MiB  9.0 MiB  mcp-server  │  └─ sh -c mcp-server-memory
          41241   66 MiB   74 MiB  mcp-server  │     └─ node server-memory/…/index.js
          41250  1.1 GiB  1.1 GiB  mcp-server  ├─ uvx mcp-server-git
          41300  3.0 MiB   11 MiB  tool        └─ bash -c cargo test
          41301  9.0 MiB   17 MiB  tool           └─ cargo test
        ");
    }

    #[test]
    fn orphaned_session_has_states_and_roots() {
        insta::assert_snapshot!(render(&orphaned(), false, &plain()), @r"
        session 4  claude-code  orphaned (its agent is dead), 1.7 GiB in 5 processes, 1 zombie, user ada, started 2h 5m ago, inside session 3, launched through the gate
            PID   MEMORY     PEAK  KIND        STATE     COMMAND
          41231   80 MiB   88 MiB  mcp-server  orphaned  npm exec @modelcontextprotocol/server-memory
          41240  1.0 MiB  9.0 MiB  mcp-server  zombie    └─ sh -c mcp-server-memory
          41241   66 MiB   74 MiB  mcp-server  orphaned     └─ node server-memory/…/index.js
          41250  1.1 GiB  1.1 GiB  mcp-server  kept      uvx mcp-server-git  (kept: listens on tcp 127.0.0.1:3000)
          41300  3.0 MiB   11 MiB  tool        orphaned  bash -c cargo test
          41301  9.0 MiB   17 MiB  tool        orphaned  └─ cargo test
        ");
    }

    #[test]
    fn protected_agent_is_named() {
        let mut tree = tree();
        tree.sessions[0].oom_score_adj = Some(-700);
        let protected = render(&tree, false, &plain());
        assert!(protected.contains("2h 5m ago, protected from the OOM killer (oom_score_adj -700)\n"), "{protected}");
        tree.sessions[0].processes[0].oom_score_adj = Some(-700);
        assert_eq!(render(&tree, false, &plain()), protected, "the heading covers its processes");
        tree.sessions[0].processes[0].oom_score_adj = Some(-100);
        tree.sessions[0].oom_score_adj = Some(-100);
        assert!(!render(&tree, false, &plain()).contains("protected"));
    }

    #[test]
    fn protected_helper_is_marked() {
        let mut tree = tree();
        tree.sessions[0].oom_score_adj = Some(0);
        tree.sessions[0].processes[4].oom_score_adj = Some(-900);
        tree.sessions[0].processes[6].oom_score_adj = Some(-499);
        let text = render(&tree, false, &plain());
        assert!(text.contains("uvx mcp-server-git  (protected, oom_score_adj -900)\n"), "{text}");
        assert_eq!(text.matches("oom_score_adj").count(), 1, "{text}");
    }

    #[test]
    fn commands_are_cut_at_edge() {
        let text = render(&tree(), false, &narrow(66));
        insta::assert_snapshot!(text, @r"
        session 3  claude-code  running, 1.7 GiB in 7 processes, user ada,
          started 2h 5m ago
            PID   MEMORY     PEAK  KIND        COMMAND
          41230  512 MiB  520 MiB  agent       claude
          41231   80 MiB   88 MiB  mcp-server  ├─ npm exec @modelcontextp…
          41240  1.0 MiB  9.0 MiB  mcp-server  │  └─ sh -c mcp-server-mem…
          41241   66 MiB   74 MiB  mcp-server  │     └─ node server-memor…
          41250  1.1 GiB  1.1 GiB  mcp-server  ├─ uvx mcp-server-git
          41300  3.0 MiB   11 MiB  tool        └─ bash -c cargo test
          41301  9.0 MiB   17 MiB  tool           └─ cargo test
        ");
        assert!(text.lines().all(|line| line.chars().count() <= 66));
    }

    #[test]
    fn sessions_are_separated() {
        let two = Tree { sessions: [tree().sessions, orphaned().sessions].concat() };
        assert_eq!(render(&two, false, &plain()).matches("\n\nsession ").count(), 1);
        insta::assert_snapshot!(render(&Tree::default(), false, &plain()), @"no sessions: no process matches a profile, or all belong to other users");
    }

    #[test]
    fn server_without_agent_is_named() {
        let mut tree = tree();
        tree.sessions[0].processes.truncate(1);
        tree.sessions[0].processes[0].argv = ["claude", "mcp", "serve"].map(String::from).into();
        assert!(render(&tree, false, &plain()).contains("started 2h 5m ago, MCP server, no agent above\n"));
        tree.sessions[0].parent_session = Some(2);
        assert!(!render(&tree, false, &plain()).contains("MCP server"));
    }

    #[test]
    fn names_are_escaped() {
        let mut tree = tree();
        let session = &mut tree.sessions[0];
        session.profile = "\x1b]0;owned\x07".into();
        session.user = "a\u{202e}b".into();
        session.processes.truncate(2);
        session.processes[0].argv = vec!["/tmp/\x1b[2J\x1b[1;1Hroot\n#".into()];
        session.processes[1].argv.clear();
        session.processes[1].comm = "\u{9b}31mnode\r".into();
        let text = render(&tree, false, &coloured());
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
    fn parent_cycle_is_broken() {
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
    fn forking_parent_takes_precedence() {
        let agent = process(10, 1, ProcessKind::Agent, &["a"], 1);
        let helper = process(11, 10, ProcessKind::Other, &["b"], 1);
        let mut daemonised = process(12, 11, ProcessKind::Other, &["c"], 1);
        daemonised.ppid = 10;
        let processes = [agent, helper, daemonised];
        let drawn: Vec<_> = forest(&processes).into_iter().map(|(branch, process)| (branch, process.pid)).collect();
        assert_eq!(drawn, [(String::new(), 10), ("└─ ".into(), 11), ("   └─ ".into(), 12)]);
    }

    #[test]
    fn deep_chain_has_bounded_lines() {
        let processes: Vec<_> =
            (1..=10_000).map(|pid| process(pid, pid - 1, ProcessKind::Other, &["fork"], 1)).collect();
        let drawn = forest(&processes);
        assert_eq!(drawn.len(), 10_000);
        assert!(drawn.iter().all(|(branch, _)| branch.chars().count() <= 3 * 20 + 5));
        assert!(drawn[9_999].0.starts_with("… "));
    }

    #[test]
    fn ended_sessions_are_counted() {
        let mut both = Tree { sessions: [tree().sessions, tree().sessions].concat() };
        both.sessions[1].state = SessionState::Ended;
        let text = render(&both, false, &plain());
        assert_eq!(text.matches("session 3  claude-code").count(), 2, "the ended session has living processes");
        both.sessions[1].processes.clear();
        let text = render(&both, false, &plain());
        assert!(
            text.ends_with(
                "cargo test
1 ended session: --ended shows them
"
            ),
            "{text}"
        );
        assert_eq!(render(&both, true, &plain()).matches("session 3  claude-code").count(), 2);
    }
}
