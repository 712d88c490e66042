use super::*;
use clap::CommandFactory;
use rstest::rstest;

pub(super) fn help(arguments: &[&str]) -> String {
    let arguments = std::iter::once(&"watchdogctl").chain(arguments).chain(std::iter::once(&"--help"));
    Cli::try_parse_from(arguments).unwrap_err().to_string()
}

fn refused(arguments: &[&str]) -> String {
    let error = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments)).unwrap_err();
    let error = with_launch_tip(error);
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn definition_is_valid() {
    Cli::command().debug_assert();
}

#[rstest]
#[case(&["--json", "--socket", "/x", "status"])]
#[case(&["status", "--json", "--socket", "/x"])]
#[case(&["config", "check", "f", "--json", "--socket=/x"])]
fn global_options_go_anywhere(#[case] arguments: &[&str]) {
    let cli = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments)).unwrap();
    assert!(cli.json);
    assert_eq!(cli.socket(), PathBuf::from("/x"));
}

#[test]
fn help_of_the_whole() {
    insta::assert_snapshot!(help(&[]), @r#"
    Show which processes belong to which AI agent, how much memory they use, and what exited agents left behind

    Usage: watchdogctl [OPTIONS] <COMMAND>

    Commands:
      status      Show the state of the daemon and the host: tracking, counts, memory, pressure, lost events
      tree        Show sessions with their process trees and memory
      top         Show sessions, processes and findings on a screen, live, from the history or from a recording
      events      Show forks, execs, exits, signals and findings in order of time
      findings    Show findings: orphaned, detached and abandoned processes, leaks, exceeded limits
      history     Show recorded sessions, findings, deaths and actions, across restarts of the daemon and the host
      postmortem  Show the last minutes before the host or the daemon went down: growth, orphans, kills
      launch      Start a command through the gate, and wait in its queue if necessary
      queue       Show waiting, running and refused launches, and the memory that is free for more
      fleet       Show the hosts that share limits with this one, or launch a command on one of them
      plan        Calculate how many agents fit, their heap limits, and when a leak exhausts memory; works without a daemon
      web         Serve a page for this user's browser on 127.0.0.1, until interrupted; prints its address
      hook        Gate and track subagents: install the hook of an agent, or handle its events
      statusline  Print one short line for a status line or a prompt: agents, memory, findings
      reap        Terminate orphans: all, or those of the given sessions and processes; asks first
      end         Terminate a session, including its agent; asks first
      reclaim     Page out idle sessions, or one session: their memory goes to swap until they are used again
      thaw        Resume frozen or throttled processes
      actions     Show running and past actions: reason, signals sent, result
      adopt       Keep a process or a session: it is never reported as an orphan again
      explain     Explain why a process or a session died, or why it has a finding
      replay      Run the detectors over a recording of `watchdogd --record`; works without a daemon
      config      Check, show and edit the configuration; works without a daemon
      doctor      Check what this host supports, show what runs now, and suggest what to do next

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help
      -V, --version        Print version

    Exit codes:
       0  success
       1  the answer is "no", or the command failed
       2  invalid command line
      69  the daemon is unreachable
      75  refused for now; try again later
      77  not permitted
    `launch` exits with the status of its command, with 126 if it cannot be executed, or with 127 if it is not found.

    Non-root users see and control only their own processes.
    Colours are used on terminals only, and not with NO_COLOR=1, CLICOLOR=0 or TERM=dumb.
    "#);
}

#[test]
fn help_of_status() {
    insta::assert_snapshot!(help(&["status"]), @r"
    Show the state of the daemon and the host: tracking, counts, memory, pressure, lost events

    Usage: watchdogctl status [OPTIONS]

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Examples:
      watchdogctl status
      watchdogctl status --json | jq .host.memory_available_bytes
    ");
}

#[test]
fn help_of_tree() {
    insta::assert_snapshot!(help(&["tree"]), @r"
    Show sessions with their process trees and memory

    Usage: watchdogctl tree [OPTIONS] [SESSION]

    Arguments:
      [SESSION]  Show this session only

    Options:
          --ended          Show ended sessions too (--json always prints them)
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Only arguments that identify the program are shown, because the others may be prompts or secrets. --json prints all
    arguments. PEAK is the highest resident set size so far.

    Examples:
      watchdogctl tree
      watchdogctl tree 3
      watchdogctl tree --json | jq '.sessions[] | {id, profile, memory_bytes}'
    ");
}

#[test]
fn help_of_events() {
    insta::assert_snapshot!(help(&["events"]), @r#"
    Show forks, execs, exits, signals and findings in order of time

    Usage: watchdogctl events [OPTIONS]

    Options:
      -f, --follow         Print new events as they happen, until interrupted
          --since <D>      Show events of this last period only, such as 30s, 5m, 2h or 1d
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Events are kept in memory since the daemon started ([daemon] journal_events).

    Examples:
      watchdogctl events --since 10m
      watchdogctl events --follow --since 30s
      watchdogctl events --follow --json | jq 'select(.type == "exit")'
    "#);
}

#[test]
fn help_of_findings() {
    insta::assert_snapshot!(help(&["findings"]), @r#"
    Show findings: orphaned, detached and abandoned processes, leaks, exceeded limits

    Usage: watchdogctl findings [OPTIONS] [ID]

    Arguments:
      [ID]  Show this finding with its evidence

    Options:
          --all            List closed and informational findings too
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Findings are listed with the most severe first. Informational findings are counted; --all lists them.

    Examples:
      watchdogctl findings
      watchdogctl findings 12
      watchdogctl findings --all
      watchdogctl findings --json | jq '.findings[] | select(.kind == "orphan") | .pid'
    "#);
}

#[test]
fn help_of_adopt() {
    insta::assert_snapshot!(help(&["adopt"]), @r"
    Keep a process or a session: it is never reported as an orphan again

    Usage: watchdogctl adopt [OPTIONS] <PID|SESSION>

    Arguments:
      <PID|SESSION>  A pid, a session, pid:N or session:N

    Options:
          --undo           Undo `adopt`: the process can be reported as an orphan again
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    A plain number is the pid of a process in a session, or else a session. If both exist, the process is used, and a note
    says so. Use pid:N or session:N to be explicit.

    Examples:
      watchdogctl adopt 41231
      watchdogctl adopt session:3
      watchdogctl adopt 41231 --undo
    ");
}

#[test]
fn help_of_config() {
    insta::assert_snapshot!(help(&["config"]), @r"
    Check, show and edit the configuration; works without a daemon

    Usage: watchdogctl config [OPTIONS] <COMMAND>

    Commands:
      check  Check a configuration file; report each error with file, line, key and allowed values
      set    Set a key of the configuration file, and reload the daemon
      unset  Remove a key from the configuration file, so that its default applies, and reload the daemon
      get    Print the value of a key, or else its default
      show   Print all keys with their values and defaults

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help
    ");
}

#[test]
fn help_of_config_check() {
    insta::assert_snapshot!(help(&["config", "check"]), @r#"
    Check a configuration file; report each error with file, line, key and allowed values

    Usage: watchdogctl config check [OPTIONS] <FILE>

    Arguments:
      <FILE>  The configuration file

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Examples:
      watchdogctl config check /etc/agent-watchdog/config.toml && sudo kill -HUP "$(pidof watchdogd)"
      watchdogctl config check new.toml --json | jq -r '.errors[]'
    "#);
}

#[test]
fn help_of_doctor() {
    insta::assert_snapshot!(help(&["doctor"]), @r"
    Check what this host supports, show what runs now, and suggest what to do next

    Usage: watchdogctl doctor [OPTIONS]

    Options:
          --all            Show available capabilities with their reason and overhead too (--json always prints them)
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    A running daemon says what it can use. Without one, the host is probed as the current user; use sudo to see what the
    daemon would see. The exit code is 0 if all required capabilities are available.

    Examples:
      sudo watchdogctl doctor
      sudo watchdogctl doctor --json | jq '.capabilities[] | select(.on | not)'
    ");
}

#[test]
fn help_of_launch() {
    insta::assert_snapshot!(help(&["launch"]), @r"
    Start a command through the gate, and wait in its queue if necessary

    Usage: watchdogctl launch [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...  The command and its arguments

    Options:
          --profile <P>    Apply this profile's limits in addition to those of the profile that matches CMD
          --priority <N>   Priority in the queue, -100 to 100, highest first; only root's launches overtake those of other users [default: 0]
          --timeout <D>    Fail after this time in the queue, such as 30s or 5m, including restarts of the daemon
          --no-wait        Fail instead of queueing
          --fail-open      Run CMD anyway if the daemon is unreachable (for 5 s if it was reachable before)
          --memory <SIZE>  Expected memory of the session, such as 800MiB or 10% of RAM; default: configured or learned
          --ticket <T>     Use the fleet slot that `watchdogctl fleet place` reserved on this host
          --env <K=V>      Set a variable, overriding its inherited value; can be repeated
          --retries <N>    Relaunch CMD up to N times if it fails or is refused; a small supervisor process stays
          --backoff <D>    Pause before the first retry; doubles with each retry, up to 5m [default: 5s]
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Waits in the gate's queue, then executes CMD in place of this process. CMD inherits the terminal, directory,
    environment, descriptors and signals, and its exit status is returned. No other process remains, except with --retries.
    The profile's variables are set unless they are already set; its options are added to NODE_OPTIONS, JAVA_TOOL_OPTIONS and
    JDK_JAVA_OPTIONS unless they are already given. The launch keeps its position in the queue if the daemon restarts. An
    unreachable daemon is retried until --timeout, or for 30m.

    Refusals are printed to stderr; with --json as one JSON document with granted (false), reason, detail and
    retry_after_seconds. Other errors are printed as a document with error. Exit codes besides those of CMD: 2 unknown profile, 69 no
    daemon, 75 refused, 77 not permitted, 126 CMD cannot be executed, 127 command not found (the gate is not contacted).

    Examples:
      watchdogctl launch -- claude
      watchdogctl launch --profile my-agent --timeout 10m --memory 2GiB -- ./my-agent --task 7
      watchdogctl launch --no-wait --json -- claude -p 'fix it' 2> refusal.json
      watchdogctl launch --retries 3 --backoff 10s -- claude -p 'fix it'
    ");
}

#[test]
fn help_of_queue() {
    insta::assert_snapshot!(help(&["queue"]), @r"
    Show waiting, running and refused launches, and the memory that is free for more

    Usage: watchdogctl queue [OPTIONS]

    Options:
          --cancel <PID>   Cancel the waiting launch of this process; it exits with 75
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Waiting launches are listed in the order in which they will be served. EXPECTED is the memory that is reserved for a
    launch. Non-root users see only totals of other users' launches.

    Examples:
      watchdogctl queue
      watchdogctl queue --cancel 41231
      watchdogctl queue --json | jq '.room.free_bytes'
    ");
}

#[test]
fn help_of_plan() {
    insta::assert_snapshot!(help(&["plan"]), @r"
    Calculate how many agents fit, their heap limits, and when a leak exhausts memory; works without a daemon

    Usage: watchdogctl plan [OPTIONS]

    Options:
          --agents <N>      Number of agents; default: as many as fit
          --profile <P>     Use the peak memory of this profile's past sessions
          --memory <SIZE>   Memory of one agent with its helpers, such as 700MiB
          --leak <RATE>     Growth of a leaking agent, such as 50MiB/m or 1GiB/h
          --hosts <SIZE,…>  Plan for empty hosts with this memory instead of this host
          --socket <PATH>   Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json            Print one JSON document instead of text (with --follow: one per line)
      -h, --help            Print help

    The memory of one agent is --memory, or the peak of the profile's past sessions, or 512 MiB. The free memory is what the
    gate can grant; without a daemon it is the available memory less 10 %. Hosts of --hosts count as empty, less 10 %. The
    heap of an agent is its share less 25 %, at least 160 MiB less. A leak starts when every agent uses its expected memory.
    The exit code is 1 if not all agents fit.

    Examples:
      watchdogctl plan
      watchdogctl plan --agents 20 --profile claude-code --leak 50MiB/h
      watchdogctl plan --agents 40 --memory 700MiB --hosts 15GiB,15GiB,5GiB
    ");
}

#[test]
fn help_of_hook() {
    insta::assert_snapshot!(help(&["hook"]), @r"
    Gate and track subagents: install the hook of an agent, or handle its events

    Usage: watchdogctl hook [OPTIONS] <AGENT>
           watchdogctl hook <COMMAND>

    Commands:
      install    Install the hook in an agent's settings; shows the change and asks first
      uninstall  Remove the hook from an agent's settings; shows the change and asks first

    Arguments:
      <AGENT>  The agent that runs the hook [possible values: claude-code, codex, gemini-cli]

    Options:
          --print-settings  Print the settings to merge into the agent's settings file, and exit
          --socket <PATH>   Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json            Print one JSON document instead of text (with --follow: one per line)
      -h, --help            Print help

    Before a subagent starts, the hook asks the gate. If the gate refuses, the agent receives the reason and when to retry.
    Otherwise the hook prints nothing, so that the agent's own permission rules apply. At the end of a subagent and of the
    session, the hook notifies the daemon. Without a daemon, or with an invalid event, the agent continues. The exit code is
    always 0.

    In Gemini CLI every call of a tool that the matcher accepts counts as a subagent. Versions without the tool invoke_agent
    need the names of your own subagents there.

    Examples:
      watchdogctl hook install claude-code
      watchdogctl hook gemini-cli --print-settings
    ");
}

#[test]
fn help_of_statusline() {
    insta::assert_snapshot!(help(&["statusline"]), @r#"
    Print one short line for a status line or a prompt: agents, memory, findings

    Usage: watchdogctl statusline [OPTIONS]

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    Standard input is not read. The exit code is 0 even without a daemon; the line then says so.

    Example, for ~/.claude/settings.json:
      "statusLine": {"type": "command", "command": "watchdogctl statusline"}
    "#);
}

#[test]
fn invalid_argument_names_allowed_values() {
    insta::assert_snapshot!(refused(&["tree", "x"]), @r"
    error: invalid value 'x' for '[SESSION]': expected a session, such as 3 or session:3

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["adopt", "x3"]), @r"
    error: invalid value 'x3' for '<PID|SESSION>': expected a pid or a session: 41231, pid:41231 or session:3

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["events", "--since", "3"]), @r"
    error: invalid value '3' for '--since <D>': expected a whole number and a unit: 30s, 5m, 2h or 1d

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["launch", "ls"]), @r"
    error: unexpected argument 'ls' found

      tip: put the command after `--`: watchdogctl launch -- CMD

    Usage: watchdogctl launch [OPTIONS] -- <CMD>...

    For more information, try '--help'.
    ");
}
