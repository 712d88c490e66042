use super::tests::help;
use super::*;
use rstest::rstest;

#[test]
fn help_of_reap() {
    insta::assert_snapshot!(help(&["reap"]), @"
    Ends what dead agents left behind: all of it, or what is named; shows it and asks first

    Usage: watchdogctl reap [OPTIONS] [SESSION|PID]...

    Arguments:
      [SESSION|PID]...  Only these: pids, numbers of sessions, `pid:N` or `session:N`; without any, all orphans

    Options:
          --dry-run        Shows what would be ended, why, and what that frees; does nothing
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -y, --yes            Asks nobody; where no person is at a terminal this is needed
          --no-wait        Does not wait until it is over: `watchdogctl actions` tells what came of it
      -h, --help           Print help

    An orphan is a process whose agent is dead. Each is looked at again before it is sent anything: what is meant to stay, what
    is in doubt, and a pid that has become another's are left alone. SIGTERM comes first, SIGKILL for those that are there after
    [actions] kill_after; children before their parents. On a terminal you are shown who, why and what it frees, and asked
    once: whoever came after that is left alone.

    A plain number is the pid of a process of a session, or else the number of a session, as in `adopt`. With a pid, what it
    started goes with it. The exit code is 0 when all who were to go are gone, or nothing was left behind; 1 when
    somebody of them is still there, or there was nobody but those who are left alone.

    Examples:
      watchdogctl reap --dry-run
      watchdogctl reap
      watchdogctl reap session:3 41231 --yes
      watchdogctl reap --yes --json | jq '.actions[] | {id, result}'
    ");
}

#[test]
fn help_of_end() {
    insta::assert_snapshot!(help(&["end"]), @"
    Ends a whole session, its agent too; shows it and asks first

    Usage: watchdogctl end [OPTIONS] <SESSION>

    Arguments:
      <SESSION>  The session, by its number; with --kept also the pid of a process, as in `adopt`

    Options:
          --kept           Ends what is meant to stay too
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --dry-run        Shows what would be ended, why, and what that frees; does nothing
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -y, --yes            Asks nobody; where no person is at a terminal this is needed
          --no-wait        Does not wait until it is over: `watchdogctl actions` tells what came of it
      -h, --help           Print help

    The agent and everything that it started get SIGTERM, children before their parents, and SIGKILL if they are there after
    [actions] kill_after. What is meant to stay is left alone, unless --kept is given: then it ends too. Each user may do
    this to their own processes, root to all. With --kept, a pid ends that process and what it started. A process that the
    user may not signal by the rule of kill(2) is spared; the exit code is 77 when nothing else could be done. `reap` ends
    only what dead agents left behind.

    Examples:
      watchdogctl end 3 --dry-run
      watchdogctl end 3
      watchdogctl end --kept pid:41231
      watchdogctl end 3 --yes --no-wait
    ");
}

#[test]
fn help_of_thaw() {
    insta::assert_snapshot!(help(&["thaw"]), @"
    Lets go of what policy has frozen or throttled

    Usage: watchdogctl thaw [OPTIONS] [SESSION|PID]...

    Arguments:
      [SESSION|PID]...  Only these: pids, numbers of sessions, `pid:N` or `session:N`; without any, all that is held

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Policy stops or throttles processes where [actions] says so, until their finding closes or somebody lets them go.
    `watchdogctl actions` lists what is held.

    Examples:
      watchdogctl thaw
      watchdogctl thaw session:3
    ");
}

#[test]
fn help_of_actions() {
    insta::assert_snapshot!(help(&["actions"]), @r#"
    What is being done to processes, and what was: why, what was sent to whom, and what came of it

    Usage: watchdogctl actions [OPTIONS] [ID]

    Arguments:
      [ID]  Only this one, whole

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    The daemon remembers a bounded number of actions; `watchdogctl history` tells of those before, too.

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
fn what_acts_takes_whom_and_how(#[case] arguments: &[&str], #[case] fine: bool) {
    let parsed = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments));
    assert_eq!(parsed.is_ok(), fine, "{parsed:?}");
}
