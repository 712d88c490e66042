use std::borrow::Cow;
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;

use super::*;
use watchdog_api::ProcessKind;
use watchdog_classify::v8;
use watchdog_classify::{
    Parent, Program, agent_daemon, base_name, browser_daemon, build_server, container_client, editor_server,
    ends_by_itself, forks_multiplexer, helper_kind, lends_tools, multiplexer, options, serves, starts_container, table,
    user_daemon,
};
use watchdog_config::Patterns;
use watchdog_fixtures::captures::{captures, profiles};
use watchdog_types::Bytes;

fn image(path: &str, argv: &[&str]) -> Image {
    Image::new(path, argv.iter().copied())
}

/// Everything that the engine asks of an image.
fn judged(image: &Image, comm: &str, profiles: &[Profile]) -> impl PartialEq + Debug + use<> {
    use ProcessKind::{Agent, Browser, LanguageServer, McpServer, Other, Subagent, Tool};
    let node = self::image("/usr/bin/node", &["node", "/x/a.js"]);
    let kinds: Vec<ProcessKind> = [Agent, Subagent, McpServer, Browser, LanguageServer, Tool, Other]
        .into_iter()
        .map(|kind| helper_kind(image, comm, Some(Parent { kind, image: &node })))
        .chain([helper_kind(image, comm, None)])
        .collect();
    let program = Program::of(image);
    let roles = [
        serves(image),
        lends_tools(image),
        agent_daemon(image),
        forks_multiplexer(image),
        ends_by_itself(image),
        browser_daemon(image),
        container_client(image),
        starts_container(image),
    ];
    let editor = editor_server(image).then_some("an editor's server");
    let stays = [build_server(image, comm), multiplexer(image, comm), user_daemon(image), editor];
    let profile = Profile::find(profiles, image, comm).map(|profile| profile.name.clone());
    let label = program.name().to_owned();
    let script = program.script.map(Cow::into_owned);
    let heap = v8::stated_in_argv(image, Bytes::from_mib(8_192));
    (kinds, roles, stays, profile, label, script, image.path.clone(), heap)
}

fn redacted(image: &Image, profiles: &[Profile]) -> Image {
    let mut image = image.clone();
    Redactor::new(profiles).image(&mut image);
    image
}

#[test]
fn redaction_keeps_captured_roles() {
    let profiles = profiles();
    let mut looked_at = 0;
    for capture in &captures() {
        for process in capture.procs.iter().chain(&capture.survivors).chain(&capture.left_behind) {
            let image = process.image();
            let redacted = redacted(&image, &profiles);
            let (was, is) = (judged(&image, &process.comm, &profiles), judged(&redacted, &process.comm, &profiles));
            assert_eq!(was, is, "{}: {image:?} became {redacted:?}", capture.name);
            looked_at += 1;
        }
    }
    assert!(looked_at > 1_000, "only {looked_at} processes");
}

#[rstest]
#[case::plain("/usr/bin/curl", &["curl", "-H", "Authorization: SECRET", "--token=SECRET", "-uSECRET"], &["curl"])]
#[case::prompt("/x/claude.exe", &["claude", "-p", "SECRET", "--model", "SECRET", "SECRET words"], &["claude", "-p", "--model"])]
#[case::script("/usr/bin/node", &["node", "--require", "SECRET", "--max-old-space-size=200", "/x/cli.js", "SECRET"], &["node", "--max-old-space-size=200", "/x/cli.js"])]
#[case::heap("/usr/bin/node", &["node", "--max-old-space-size=SECRET", "/x/cli.js"], &["node", "/x/cli.js"])]
#[case::share("/usr/bin/node", &["node", "--max-old-space-size-percentage=12.5", "/x/cli.js", "SECRET"], &["node", "--max-old-space-size-percentage=12.5", "/x/cli.js"])]
#[case::executed_with_a_heap("/x/cli.js", &["/usr/bin/node", "--max-old-space-size=200", "/x/cli.js", "SECRET"], &["node", "--max-old-space-size=200", "/x/cli.js"])]
#[case::flags_of_deno("/usr/bin/deno", &["deno", "run", "--v8-flags=--title=SECRET,--max-old-space-size=200", "/x/a.ts"], &["deno", "--v8-flags=--max-old-space-size=200", "/x/a.ts"])]
#[case::own_command("/usr/bin/deno", &["deno", "fmt", "SECRET.ts"], &["deno", "fmt"])]
#[case::ambiguous_command("/usr/bin/deno", &["deno", "bundle"], &["deno", "bundle"])]
#[case::no_heap_after_all("/usr/bin/node", &["node", "--max-old-space-size=200", "--max-old-space-size=SECRET", "/x/cli.js"], &["node", "/x/cli.js"])]
#[case::eval("/usr/bin/node", &["node", "-e", "SECRET()", "SECRET"], &["node", "-e"])]
#[case::php("/usr/bin/php", &["php", "-r", "SECRET", "SECRET"], &["php", "-r"])]
#[case::python("/v/python3", &["python3", "-c", "SECRET"], &["python3"])]
#[case::module("/v/python3", &["python3", "-Im", "aider", "--message", "SECRET"], &["python3", "-m", "aider"])]
#[case::shell("/bin/sh", &["sh", "-c", "A=SECRET exec npx -y mcp-x --key SECRET; echo SECRET"], &["sh", "-c", "npx"])]
#[case::nothing("/bin/sh", &["sh", "-c", "export A=SECRET"], &["sh", "-c"])]
#[case::env("/usr/bin/env", &["env", "-i", "KEY=SECRET", "node", "/x/cli.js", "SECRET"], &["env", "node", "/x/cli.js"])]
#[case::assignments("/usr/bin/nice", &["nice", "KEY=SECRET", "timeout", "30", "mcp-x", "SECRET"], &["nice", "timeout", "mcp-x"])]
#[case::package("/usr/bin/npx", &["npx", "-y", "@scope/mcp-x@1", "SECRET"], &["npx", "@scope/mcp-x@1"])]
#[case::title("/usr/bin/node", &["npm exec @scope/mcp-x SECRET", "", ""], &["npm exec @scope/mcp-x"])]
#[case::setproctitle("/usr/sbin/x", &["worker: SECRET SECRET"], &["worker:"])]
#[case::container("/usr/bin/docker", &["docker", "run", "-i", "-e", "KEY=SECRET", "ghcr.io/x/mcp", "SECRET"], &["docker", "run", "-i", "ghcr.io/x/mcp"])]
#[case::container_without_image("/usr/bin/docker", &["docker", "run", "-eKEY=SECRET", "alpine", "sh", "SECRET"], &["docker", "run"])]
#[case::executed("/x/run", &["/usr/bin/env", "node", "/x/run", "SECRET"], &["/usr/bin/env", "node", "/x/run"])]
fn what_people_write_is_not_recorded(#[case] path: &str, #[case] argv: &[&str], #[case] kept: &[&str]) {
    let original = image(path, argv);
    let profiles = profiles();
    let image = redacted(&original, &profiles);
    let text = image.argv.join("\n");
    assert!(!text.contains("SECRET") && !text.contains("words"), "{image:?}");
    for kept in kept {
        assert!(text.contains(kept), "{kept} is missing: {image:?}");
    }
    assert_eq!(judged(&original, "comm", &profiles), judged(&image, "comm", &profiles), "{image:?}");
}

#[test]
fn marks_equal_within_one_recording() {
    let (one, other) = (Redactor::new(&[]), Redactor::new(&[]));
    let mark = |redactor: &Redactor, argument: &str| {
        let mut image = image("/x/server", &["server", argument]);
        redactor.image(&mut image);
        image.argv[1].clone()
    };
    assert_eq!(mark(&one, "/home/u"), mark(&one, "/home/u"));
    assert_ne!(mark(&one, "/home/u"), mark(&one, "/home/v"));
    assert_ne!(mark(&one, "/home/u"), mark(&other, "/home/u"));
}

#[test]
fn first_argument_kept_for_profile() {
    let patterns =
        |first: &str| Patterns { exe: vec!["*/agent".into()], first_arg: vec![first.into()], ..Patterns::default() };
    let profiles =
        [Profile::new("work", [patterns("work*")]).unwrap(), Profile::new("any", [patterns("[!-]*")]).unwrap()];
    let first = |argument: &str| redacted(&image("/x/agent", &["agent", argument, "work-too"]), &profiles).argv;
    assert_eq!(first("work-hard")[1], "work-hard");
    assert_ne!(first("work-hard")[2], "work-too");
    assert_ne!(first("a prompt")[1], "a prompt", "its mark is no option either");
}

#[test]
fn input_without_image_is_unchanged() {
    let mut input = Input::Lost(3);
    Redactor::new(&[]).input(&mut input);
    assert_eq!(input, Input::Lost(3));
}

/// A word of a command line: what the rules know, and what they do not.
fn word() -> impl Strategy<Value = String> {
    let known: Vec<&'static str> = [
        table::PACKAGE_RUNNERS,
        table::PREFIX_COMMANDS,
        table::MCP_VERBS,
        table::AGENT_OPTIONS_WITH_VALUE,
        table::CONTAINER_CLIENTS,
        table::TOOL_PACKAGES,
        table::BROWSER_SCRIPTS,
    ]
    .concat()
    .into_iter()
    .chain(options::of_wrappers())
    .collect();
    let runners = [
        "npm", "uv", "bun", "deno", "pipx", "node", "python3", "sh", "bash", "java", "dotnet", "env", "perl", "php",
        "bundle", "conda", "doppler", "fnm",
    ];
    let agents = ["claude", "codex", "/x/.bin/gemini", "opencode", "cline", "goose", "git", "sccache", "turbo", "adb"];
    let odd = [
        "-",
        "--",
        "-i",
        "-it",
        "-c",
        "-e",
        "-m",
        "-lc",
        "-S",
        "-pe",
        "+x",
        "-Xmx1g",
        "--max-old-space-size=9",
        "--max_old_space_size=10",
        "--max-old-space-size=my own",
        "--max-old-space-size-percentage=12.5",
        "A=1",
        "7",
        "x=/y,z",
        "/x/server.py",
        "/x/my-mcp/build/index.js",
        "@scope/mcp-x@1",
        "ghcr.io/x/mcp",
        "/nodeReuse:true",
        "{}",
        "run-test-mcp-server",
        "boost:mcp",
        "mcp:start",
        "/x/server.ts",
        "--service=1",
        "--ping",
        "--parent-pid=7",
        "--statefile=/x",
        "--directory=/x",
        "--lsp",
        "mcp",
        "daemon",
        "tool",
        "uvx",
        "run",
        "exec",
        "--acp",
        "--managed-daemon",
        "app-server",
        "/nodemode:1",
        "create-x",
        "",
        "my prompt",
        "cd /x && npx mcp-y",
        "A=1 exec uvx mcp-z; rm",
        "'node' \"s.js\"",
        "ssh: x [mux]",
        "bazel(x)",
    ];
    prop_oneof![
        3 => select(known).prop_map(str::to_owned),
        3 => select(runners.to_vec()).prop_map(str::to_owned),
        2 => select(agents.to_vec()).prop_map(str::to_owned),
        4 => select(odd.to_vec()).prop_map(str::to_owned),
        2 => "-{0,2}[a-z=/.@,]{1,8}",
        1 => "[ -~]{0,12}",
    ]
}

/// A word of node's own command line.
fn word_of_node() -> impl Strategy<Value = &'static str> {
    select(vec![
        "--max-old-space-size=9",
        "--max_old_space_size=10",
        "--max-old-space-size=+7",
        "--max-old-space-size=my own",
        "--max-old-space-size=",
        "--max-old-space-size-percentage=12.5",
        "--max_old_space_size_percentage=none",
        "--max-old-space-size",
        "--require",
        "-e",
        "--",
        "--no-warnings",
        "/x/a.js",
        "my prompt",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn heap_limits_survive_redaction(
        executed in any::<bool>(),
        env in any::<bool>(),
        words in prop::collection::vec(word_of_node(), 0..6),
    ) {
        // A script that was executed itself has the one option of its first line before it.
        let script = ["/x/cli.js"];
        let (option, rest) = words.split_at(words.len().min(1));
        let before = if executed { [option, &script[..], rest].concat() } else { words };
        let argv = [if env { &["/usr/bin/env", "node"][..] } else { &["/usr/bin/node"] }, &before].concat();
        let path = if executed { script[0] } else { argv[0] };
        let original = image(path, &argv);
        let redacted = redacted(&original, &[]);
        let heap = |image: &Image| v8::stated_in_argv(image, Bytes::from_mib(8_192));
        prop_assert_eq!(heap(&original), heap(&redacted), "{:?} became {:?}", original, redacted);
    }

    #[test]
    fn redaction_changes_no_verdict(
        at in 0..5_usize,
        words in prop::collection::vec(word(), 1..9),
    ) {
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        let path = match at {
            // A script that was executed itself.
            0 => argv.get(1).copied().unwrap_or(argv[0]).to_owned(),
            1 => argv.get(2).copied().unwrap_or(argv[0]).to_owned(),
            2 => String::new(),
            _ => format!("/usr/bin/{}", base_name(argv[0])),
        };
        let profiles = profiles();
        let original = image(&path, &argv);
        let redacted = redacted(&original, &profiles);
        prop_assert_eq!(
            judged(&original, "comm", &profiles), judged(&redacted, "comm", &profiles), "{:?} became {:?}", original, redacted
        );
    }
}
