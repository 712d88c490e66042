use super::*;
use clap::CommandFactory;
use rstest::rstest;

pub(super) fn help(arguments: &[&str]) -> String {
    let arguments = std::iter::once(&"watchdogctl").chain(arguments).chain(std::iter::once(&"--help"));
    Cli::try_parse_from(arguments).unwrap_err().to_string()
}

fn refused(arguments: &[&str]) -> String {
    let error = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[rstest]
#[case(&["--json", "--socket", "/x", "status"])]
#[case(&["status", "--json", "--socket", "/x"])]
#[case(&["config", "check", "f", "--json", "--socket=/x"])]
fn json_and_socket_stand_before_or_after_the_command(#[case] arguments: &[&str]) {
    let cli = Cli::try_parse_from(std::iter::once(&"watchdogctl").chain(arguments)).unwrap();
    assert!(cli.json);
    assert_eq!(cli.socket, PathBuf::from("/x"));
}

#[rstest]
#[case("30s", Some(30))]
#[case("5m", Some(300))]
#[case("2h", Some(7_200))]
#[case("1d", Some(86_400))]
#[case("30", None)]
#[case("s", None)]
#[case("-3s", None)]
#[case("1w", None)]
#[case("99999999999999999999s", None)]
#[case("9999999999999999999d", None)]
fn spans_have_a_unit(#[case] text: &str, #[case] seconds: Option<u64>) {
    assert_eq!(duration(text).ok(), seconds.map(Duration::from_secs));
}

#[test]
fn help_of_the_whole() {
    insta::assert_snapshot!(help(&[]), @r#"
    Shows which processes belong to which AI agent, what they cost in memory, and what was left behind

    Usage: watchdogctl [OPTIONS] <COMMAND>

    Commands:
      status      How the daemon and the host are: tracking, counts, memory, pressure, lost events
      tree        Sessions with their process trees and memory
      events      Forks, execs, exits, signals and findings as they happened
      findings    What was found, with the evidence: orphans, detached and abandoned processes
      history     What happened, as far back as it is remembered: sessions, findings, deaths, actions
      postmortem  The last minutes before the host or the daemon went down: who grew, who was left behind, what was killed
      launch      Asks the gate, waits in the queue if it must, and becomes CMD
      queue       Who waits for a launch, who was launched, who was refused and why, and what room there is
      plan        How many agents fit, what heap each gets, when a leak ends it, and what is in the way; works without a daemon
      hook        What an agent runs before and after its subagents: asks the gate, and tells the daemon
      statusline  One short line: agents, memory, what is free, findings; for a status line or a prompt
      reap        Ends what dead agents left behind: all of it, or what is named; shows it and asks first
      end         Ends a whole session, its agent too; shows it and asks first
      thaw        Lets go of what policy has frozen or throttled
      actions     What is being done to processes, and what was: why, what was sent to whom, and what came of it
      adopt       Marks a process or a session as meant to stay: it is never an orphan again
      explain     Why a process or a session died, or why it was found
      replay      Runs the engine over a recording of `watchdogd --record`, and shows what it finds; needs no daemon
      config      Works on configuration files; needs no daemon
      doctor      What this host gives, what is missing, what that costs, and what to do about it

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help
      -V, --version        Print version

    Exit codes:
       0  done
       1  the answer is "no", or it failed
       2  the command line is wrong
      69  the daemon is not reachable
      75  refused for now: try again later
      77  not permitted
    `launch` gives those of the command it starts, and 126 or 127 where that cannot be executed or is not there.

    Another user than root sees and acts on that user's processes only.
    Colours are used on a terminal only, and not with NO_COLOR=1, CLICOLOR=0 or TERM=dumb.
    "#);
}

#[test]
fn help_of_status() {
    insta::assert_snapshot!(help(&["status"]), @r"
    How the daemon and the host are: tracking, counts, memory, pressure, lost events

    Usage: watchdogctl status [OPTIONS]

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Examples:
      watchdogctl status
      watchdogctl status --json | jq .host.memory_available_bytes
    ");
}

#[test]
fn help_of_tree() {
    insta::assert_snapshot!(help(&["tree"]), @r"
    Sessions with their process trees and memory

    Usage: watchdogctl tree [OPTIONS] [SESSION]

    Arguments:
      [SESSION]  Only this session, by its number

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    A process is shown with the arguments that say what it runs, and no others: prompts and secrets stand there.
    --json gives all arguments. PEAK is the highest resident set so far.

    Examples:
      watchdogctl tree
      watchdogctl tree 3
      watchdogctl tree --json | jq '.sessions[] | {id, profile, memory_bytes}'
    ");
}

#[test]
fn help_of_events() {
    insta::assert_snapshot!(help(&["events"]), @r#"
    Forks, execs, exits, signals and findings as they happened

    Usage: watchdogctl events [OPTIONS]

    Options:
      -f, --follow         Go on with what happens from now on, until interrupted
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
          --since <D>      Only what happened within this time, such as 30s, 5m, 2h or 1d
      -h, --help           Print help

    The daemon remembers a bounded number of events; those before its last start are not among them.

    Examples:
      watchdogctl events --since 10m
      watchdogctl events --follow --since 30s
      watchdogctl events --follow --json | jq 'select(.type == "exit")'
    "#);
}

#[test]
fn help_of_findings() {
    insta::assert_snapshot!(help(&["findings"]), @r#"
    What was found, with the evidence: orphans, detached and abandoned processes

    Usage: watchdogctl findings [OPTIONS]

    Options:
          --all            Closed ones too, as far as the daemon remembers them
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Examples:
      watchdogctl findings
      watchdogctl findings --all
      watchdogctl findings --json | jq '.findings[] | select(.kind == "orphan") | .pid'
    "#);
}

#[test]
fn help_of_adopt() {
    insta::assert_snapshot!(help(&["adopt"]), @"
    Marks a process or a session as meant to stay: it is never an orphan again

    Usage: watchdogctl adopt [OPTIONS] <PID|SESSION>

    Arguments:
      <PID|SESSION>  A pid, a session's number, `pid:N` or `session:N`

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --undo           Takes it back: it may be found an orphan again
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    A plain number is the pid of a process of a session, or else the number of a session. If it is both, the process is
    meant, and a note says so. `pid:N` and `session:N` leave no doubt.

    Examples:
      watchdogctl adopt 41231
      watchdogctl adopt session:3
      watchdogctl adopt 41231 --undo
    ");
}

#[test]
fn help_of_config() {
    insta::assert_snapshot!(help(&["config"]), @r"
    Works on configuration files; needs no daemon

    Usage: watchdogctl config [OPTIONS] <COMMAND>

    Commands:
      check  Says whether a configuration is valid, and names file, line, key and what is allowed where it is not

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help
    ");
}

#[test]
fn help_of_config_check() {
    insta::assert_snapshot!(help(&["config", "check"]), @r#"
    Says whether a configuration is valid, and names file, line, key and what is allowed where it is not

    Usage: watchdogctl config check [OPTIONS] <FILE>

    Arguments:
      <FILE>  The file

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Examples:
      watchdogctl config check /etc/agent-watchdog/config.toml && sudo kill -HUP "$(pidof watchdogd)"
      watchdogctl config check new.toml --json | jq -r '.errors[]'
    "#);
}

#[test]
fn help_of_doctor() {
    insta::assert_snapshot!(help(&["doctor"]), @r"
    What this host gives, what is missing, what that costs, and what to do about it

    Usage: watchdogctl doctor [OPTIONS]

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    It probes this host itself, as the user who runs it: use sudo to see what the daemon would see. If a daemon is
    reachable, it is asked too. The exit code is 0 if everything essential is there.

    Examples:
      sudo watchdogctl doctor
      sudo watchdogctl doctor --json | jq '.capabilities[] | select(.on | not)'
    ");
}

#[test]
fn help_of_launch() {
    insta::assert_snapshot!(help(&["launch"]), @r"
    Asks the gate, waits in the queue if it must, and becomes CMD

    Usage: watchdogctl launch [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...  The command with its arguments

    Options:
          --profile <P>    The profile whose limits hold beside those of the one that recognises CMD; the tighter of both hold
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
          --priority <N>   Higher goes first among your own launches: -100 to 100; above 0 it goes before other users' only for root [default: 0]
          --timeout <D>    Gives up after this time in the queue, such as 30s or 5m; restarts of the daemon count
          --no-wait        Gives up at once where it would have to wait
          --fail-open      Starts CMD without the gate when there is no daemon, or it went away for 5 s
          --memory <SIZE>  What the session is expected to take, such as 800MiB or 10% of RAM; otherwise what is configured or learned
          --env <K=V>      Sets a variable, whatever it was set to before; may be given several times
          --retries <N>    When CMD fails, or the launch is refused, launches it again, as many times; a small supervisor stays for that
          --backoff <D>    Before the first retry; twice as long before each further one, up to 5m [default: 5s]
      -h, --help           Print help

    CMD replaces this program: terminal, directory, environment, descriptors, signals and exit status are its own, and
    nothing stays behind, unless --retries asks for it. The profile's variables are set where they are not set already; of
    NODE_OPTIONS, JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS those options are added that are not given. While it waits, a
    daemon that is restarted keeps its place; one that stays away is asked again until --timeout, or for 30m.

    A refusal is told on standard error; with --json as one JSON document, and nothing else is said there: granted (false),
    reason, detail, retry_after_seconds; of any other failure: error. Exit codes besides those of CMD: 2 no such
    profile; 69 no daemon; 75 refused; 77 not permitted; 126 CMD cannot be executed; 127 there is no such command (no place is
    asked for then).

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
    Who waits for a launch, who was launched, who was refused and why, and what room there is

    Usage: watchdogctl queue [OPTIONS]

    Options:
          --cancel <PID>   Takes the launch of this process out of the queue; it ends with exit code 75
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Those who wait stand in the order in which they will be served. EXPECTED is what is set aside for a launch. Of other
    users' launches only root sees more than the numbers.

    Examples:
      watchdogctl queue
      watchdogctl queue --cancel 41231
      watchdogctl queue --json | jq '.room.free_bytes'
    ");
}

#[test]
fn help_of_plan() {
    insta::assert_snapshot!(help(&["plan"]), @r"
    How many agents fit, what heap each gets, when a leak ends it, and what is in the way; works without a daemon

    Usage: watchdogctl plan [OPTIONS]

    Options:
          --agents <N>      So many agents; otherwise as many as fit
          --socket <PATH>   The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json            Print exactly one JSON document (with --follow: one a line) instead of text for people
          --profile <P>     Agents of this profile: what its past sessions peaked at is used
          --memory <SIZE>   What one agent takes with its helpers, such as 700MiB
          --leak <RATE>     How fast one agent leaks, such as 50MiB/m or 1GiB/h
          --hosts <SIZE,…>  Hosts with so much memory, instead of this one
      -h, --help            Print help

    What one agent takes is --memory, or what the profile's past sessions peaked at, or 512MiB. The room is what the gate
    would grant from; without a daemon it is what is available less 10 %; of --hosts, which are taken to be empty, it is all
    but 10 %. A heap gets its share less what is not heap: a quarter, 160 MiB at least. A leak is counted from the moment at
    which every agent has what it is expected to take. The exit code is 1 when not all fit.

    Examples:
      watchdogctl plan
      watchdogctl plan --agents 20 --profile claude-code --leak 50MiB/h
      watchdogctl plan --agents 40 --memory 700MiB --hosts 15GiB,15GiB,5GiB
    ");
}

#[test]
fn help_of_hook() {
    insta::assert_snapshot!(help(&["hook"]), @r"
    What an agent runs before and after its subagents: asks the gate, and tells the daemon

    Usage: watchdogctl hook [OPTIONS] <AGENT>

    Arguments:
      <AGENT>  The agent that runs it [possible values: claude-code, gemini-cli]

    Options:
          --print-settings  Print what has to be merged into the agent's settings, and do nothing else
          --socket <PATH>   The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json            Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help            Print help

    Before a subagent starts the gate is asked. If there is no room, the agent is told so, with the reason and when to try
    again; otherwise nothing is said, so that the agent's own rules for permissions hold. After it, and at the end of the
    session, the daemon is told. Without a daemon, or with an event that makes no sense, the agent goes on: the exit code is
    always 0.

    Claude Code: to be merged into ~/.claude/settings.json. Gemini CLI: into ~/.gemini/settings.json; every call of a tool
    that the matcher lets through counts as a subagent, so name your own subagents there.

    Examples:
      watchdogctl hook claude-code --print-settings
      watchdogctl hook gemini-cli --print-settings
    ");
}

#[test]
fn help_of_statusline() {
    insta::assert_snapshot!(help(&["statusline"]), @r#"
    One short line: agents, memory, what is free, findings; for a status line or a prompt

    Usage: watchdogctl statusline [OPTIONS]

    Options:
          --socket <PATH>  The daemon's control socket [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]
          --json           Print exactly one JSON document (with --follow: one a line) instead of text for people
      -h, --help           Print help

    Standard input is not read. Without a daemon it says so, and the exit code is 0.

    Example, for ~/.claude/settings.json:
      "statusLine": {"type": "command", "command": "watchdogctl statusline"}
    "#);
}

#[test]
fn a_wrong_argument_is_told_what_is_allowed() {
    insta::assert_snapshot!(refused(&["tree", "x"]), @r"
    error: invalid value 'x' for '[SESSION]': a session is given by its number, such as 3 or session:3

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["adopt", "x3"]), @r"
    error: invalid value 'x3' for '<PID|SESSION>': a process or a session is given by its number: 41231, pid:41231 or session:3

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["events", "--since", "3"]), @r"
    error: invalid value '3' for '--since <D>': a span is a whole number and its unit: 30s, 5m, 2h or 1d

    For more information, try '--help'.
    ");
}
