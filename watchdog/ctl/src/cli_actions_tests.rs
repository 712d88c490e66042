use super::tests::help;
use super::*;
use rstest::rstest;

#[test]
fn help_of_reap() {
    insta::assert_snapshot!(help(&["reap"]), @r"
    Terminate orphans: all, or those of the given sessions and processes; asks first

    Usage: watchdogctl reap [OPTIONS] [SESSION|PID]...

    Arguments:
      [SESSION|PID]...  Pids, sessions, pid:N or session:N; default: all orphans

    Options:
          --dry-run        Show the targets, the reason and the memory to be freed; change nothing
      -y, --yes            Do not ask; required unless stdin and stdout are terminals
          --no-wait        Do not wait for the result; `watchdogctl actions` shows it later
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    An orphan is a process whose agent is dead. Each orphan is checked again before each signal; kept processes, uncertain
    ones and reused pids are spared. SIGTERM comes first, then SIGKILL after [actions] kill_after, children before their
    parents. On a terminal the command lists the processes, the reason and their memory, and asks once; processes that
    appear later are spared.

    A plain number is the pid of a process in a session, or else a session, as in `adopt`. A pid includes its descendants.
    The exit code is 0 if all targets exited or there was nothing to reap, and 1 if a target is still running or all were
    spared.

    Examples:
      watchdogctl reap --dry-run
      watchdogctl reap
      watchdogctl reap session:3 41231 --yes
      watchdogctl reap --yes --json | jq '.actions[] | {id, result}'
    ");
}

#[test]
fn help_of_end() {
    insta::assert_snapshot!(help(&["end"]), @r"
    Terminate a session, including its agent; asks first

    Usage: watchdogctl end [OPTIONS] <SESSION>

    Arguments:
      <SESSION>  The session; with --kept also a pid, as in `adopt`

    Options:
          --kept           Terminate kept processes too
          --dry-run        Show the targets, the reason and the memory to be freed; change nothing
      -y, --yes            Do not ask; required unless stdin and stdout are terminals
          --no-wait        Do not wait for the result; `watchdogctl actions` shows it later
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    The agent and all processes of its session receive SIGTERM, children before their parents, and SIGKILL after [actions]
    kill_after. Kept processes are spared unless --kept is given; with --kept, a pid terminates that process and its
    descendants. Users can terminate their own processes, and root can terminate all. A process that the user cannot signal
    (see kill(2)) is spared; the exit code is 77 if nothing else could be done. To terminate only orphans, use `reap`.

    Examples:
      watchdogctl end 3 --dry-run
      watchdogctl end 3
      watchdogctl end --kept pid:41231
      watchdogctl end 3 --yes --no-wait
    ");
}

#[test]
fn help_of_thaw() {
    insta::assert_snapshot!(help(&["thaw"]), @r"
    Resume frozen or throttled processes

    Usage: watchdogctl thaw [OPTIONS] [SESSION|PID]...

    Arguments:
      [SESSION|PID]...  Pids, sessions, pid:N or session:N; default: all frozen and throttled processes

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    A policy under [actions] can freeze or throttle processes. They stay frozen or throttled until their
    finding closes or `thaw` resumes them. `watchdogctl actions` lists them.

    Examples:
      watchdogctl thaw
      watchdogctl thaw session:3
    ");
}

#[test]
fn help_of_actions() {
    insta::assert_snapshot!(help(&["actions"]), @r#"
    Show running and past actions: reason, signals sent, result

    Usage: watchdogctl actions [OPTIONS] [ID]

    Arguments:
      [ID]  Show all details of this action

    Options:
          --socket <PATH>  Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print one JSON document instead of text (with --follow: one per line)
      -h, --help           Print help

    The daemon keeps a limited number of actions; `watchdogctl history` also shows older ones.

    Examples:
      watchdogctl actions
      watchdogctl actions 7
      watchdogctl actions --json | jq '.actions[] | select(.state == "incomplete")'
    "#);
}

#[rstest]
#[case(&["reap", "session:3", "41231", "--yes", "--no-wait"], true)]
#[case(&["reap", "-y"], true)]
#[case(&["reap", "s3"], false)]
#[case(&["end", "3", "--dry-run"], true)]
#[case(&["end", "session:3"], true)]
#[case(&["end"], false)]
#[case(&["end", "3", "4"], false)]
#[case(&["end", "--kept", "pid:3"], true)]
#[case(&["end", "--kept"], false)]
#[case(&["thaw", "pid:7"], true)]
#[case(&["thaw", "--yes"], false)]
#[case(&["actions", "7"], true)]
#[case(&["actions", "x"], false)]
#[case(&["adopt", "7", "--undo"], true)]
fn action_arguments_are_parsed(#[case] arguments: &[&str], #[case] fine: bool) {
    let parsed = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments));
    assert_eq!(parsed.is_ok(), fine, "{parsed:?}");
}
