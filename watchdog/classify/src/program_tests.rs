use rstest::rstest;

use super::*;

#[rstest]
#[case::plain("/usr/bin/rg", &["rg", "claude"], "rg", None, &["claude"])]
#[case::script("/usr/bin/node", &["node", "/x/.bin/gemini", "-p", "hi"], "gemini", Some("/x/.bin/gemini"), &["-p", "hi"])]
#[case::option_with_value("/usr/bin/node", &["node", "--require", "/x/claude", "/y/a.js"], "a.js", Some("/y/a.js"), &[])]
#[case::option_without_value("/usr/bin/node", &["node", "--max-old-space-size=9", "/y/a.js"], "a.js", Some("/y/a.js"), &[])]
#[case::eval("/usr/bin/node", &["node", "-e", "x", "/x/claude"], "node", None, &["/x/claude"])]
#[case::module("/v/python3", &["python3", "-m", "aider", "--model", "m"], "aider", Some("-m aider"), &["--model", "m"])]
#[case::module_in_a_cluster("/v/python3", &["python3", "-Im", "aider"], "aider", Some("-m aider"), &[])]
#[case::python_value("/v/python3", &["python3", "-X", "dev", "-Wignore", "s.py"], "s.py", Some("s.py"), &[])]
#[case::python_code("/v/python3", &["python3", "-c", "x", "aider"], "python3", None, &["aider"])]
#[case::executed("/x/.bin/claude", &["/usr/bin/env", "node", "/x/.bin/claude", "mcp"], "claude", Some("/x/.bin/claude"), &["mcp"])]
#[case::executed_with_option("/x/run", &["/bin/sh", "-e", "/x/run", "a"], "run", Some("/x/run"), &["a"])]
#[case::stdin("/bin/bash", &["bash", "-s", "--", "--token", "x"], "bash", None, &["--", "--token", "x"])]
#[case::strict_shell("/bin/bash", &["bash", "-eo", "pipefail", "/x/deploy.sh", "a"], "deploy.sh", Some("/x/deploy.sh"), &["a"])]
#[case::version("/usr/bin/ruby3.2", &["ruby3.2", "/x/s.rb"], "s.rb", Some("/x/s.rb"), &[])]
#[case::threads("/p/python3.14t", &["python3.14t", "-m", "aider"], "aider", Some("-m aider"), &[])]
#[case::version_of_script("/x/run", &["/usr/bin/perl5.36.0", "/x/run", "a"], "run", Some("/x/run"), &["a"])]
#[case::part_of_a_name("/usr/bin/python3-config", &["python3-config", "--libs"], "python3-config", None, &["--libs"])]
#[case::env("/usr/bin/env", &["env", "-i", "-u", "X", "A=1", "node", "/x/cli.js", "b"], "cli.js", Some("/x/cli.js"), &["b"])]
#[case::env_split("/usr/bin/env", &["env", "-S", "node --no-warnings", "/x/cli.js"], "cli.js", Some("/x/cli.js"), &[])]
#[case::title("/usr/bin/node", &["npm exec @a/b c"], "npm", None, &["exec", "@a/b", "c"])]
#[case::title_with_padding("/usr/bin/node", &["claude", "", ""], "claude", None, &[])]
#[case::no_title("/usr/bin/node", &["node"], "node", None, &[])]
#[case::login_shell("/bin/bash", &["-bash"], "bash", None, &[])]
#[case::main_class("/j/java", &["java", "-Xmx1g", "-cp", "/a.jar", "org.x.Main", "1"], "org.x.Main", Some("org.x.Main"), &["1"])]
#[case::bun_run("/b/bun", &["bun", "run", "/x/w.cjs", "--daemon"], "w.cjs", Some("/x/w.cjs"), &["--daemon"])]
#[case::node_eval_attached("/usr/bin/node", &["node", "--eval=x", "/x/claude"], "node", None, &["/x/claude"])]
#[case::node_test_reporter("/usr/bin/node", &["node", "--title", "t", "--disable-warning", "DEP", "s.mjs"], "s.mjs", Some("s.mjs"), &[])]
#[case::deno("/d/deno", &["deno", "run", "-A", "--ext", "ts", "--seed", "7", "/x/main.ts", "a"], "main.ts", Some("/x/main.ts"), &["a"])]
#[case::deno_package("/d/deno", &["deno", "run", "-A", "npm:@playwright/mcp@1.2/cli", "a"], "mcp", Some("npm:@playwright/mcp@1.2/cli"), &["a"])]
#[case::deno_eval("/d/deno", &["deno", "eval", "x"], "deno", None, &["eval", "x"])]
#[case::bun_values("/b/bun", &["bun", "--conditions", "dev", "--tsconfig-override", "t.json", "s.ts"], "s.ts", Some("s.ts"), &[])]
#[case::ruby("/usr/bin/ruby", &["ruby", "-I", "lib", "-rbundler", "-E", "UTF-8", "--encoding", "x", "s.rb", "1"], "s.rb", Some("s.rb"), &["1"])]
#[case::ruby_code("/usr/bin/ruby", &["ruby", "-ne", "puts", "s.rb"], "ruby", None, &["s.rb"])]
#[case::perl_module("/usr/bin/perl", &["perl", "-MFile::Temp", "s.pl"], "s.pl", Some("s.pl"), &[])]
#[case::php("/usr/bin/php8.3", &["php8.3", "-d", "memory_limit=1G", "artisan", "boost:mcp"], "artisan", Some("artisan"), &["boost:mcp"])]
#[case::php_file("/usr/bin/php", &["php", "-q", "-f", "/x/s.php", "1"], "s.php", Some("/x/s.php"), &["1"])]
#[case::php_code("/usr/bin/php", &["php", "-r", "x", "s.php"], "php", None, &["s.php"])]
#[case::dot_net_run("/d/dotnet", &["dotnet", "run", "--project", "/x"], "dotnet", None, &["run", "--project", "/x"])]
#[case::java_files("/j/java", &["java", "@args", "--source", "21", "--add-modules", "a,b", "Main.java", "1"], "Main.java", Some("Main.java"), &["1"])]
#[case::java_module("/j/java", &["java", "--upgrade-module-path", "/p", "-m", "org.x/org.x.Main", "1"], "org.x.Main", Some("org.x/org.x.Main"), &["1"])]
#[case::bun_x("/b/bun", &["bun", "x", "some-mcp"], "bun", None, &["x", "some-mcp"])]
#[case::no_exe_link("", &["node", "/x/cli.js"], "cli.js", Some("/x/cli.js"), &[])]
fn program_is_recognised(
    #[case] path: &str,
    #[case] argv: &[&str],
    #[case] name: &str,
    #[case] script: Option<&str>,
    #[case] args: &[&str],
) {
    let image = Image::new(path, argv.iter().copied());
    let program = Program::of(&image);
    assert_eq!(program.name(), name);
    assert_eq!(program.script.as_deref(), script);
    assert_eq!(program.args, args);
}

#[rstest]
#[case::script(&["python3", "cli.py"], Some("cli.py"))]
#[case::below(&["node", "./dist/index.js"], Some("./dist/index.js"))]
#[case::archive(&["java", "-jar", "app.jar"], Some("app.jar"))]
#[case::class(&["java", "org.x.Main"], None)]
#[case::module(&["python3", "-m", "aider"], None)]
#[case::absolute(&["node", "/x/cli.js"], None)]
#[case::address(&["deno", "run", "https://x.dev/main.ts"], None)]
fn relative_script_is_path(#[case] argv: &[&str], #[case] script: Option<&str>) {
    assert_eq!(Program::of_words(argv.to_vec()).relative_script(), script);
}

#[test]
fn resolved_script_replaces_relative_one() {
    let script = Some("/home/u/my-agent/cli.py".to_owned());
    let image = Image { script, ..Image::new("/usr/bin/python3", ["python3", "-X", "dev", "cli.py", "cli.py"]) };
    let program = Program::of(&image);
    assert_eq!((program.location(), program.args.as_slice()), ("/home/u/my-agent/cli.py", &["cli.py"][..]));
}

#[rstest]
#[case(&["bash", "-c", "-l", "ls"], "ls")]
#[case(&["bash", "-lc", "ls"], "ls")]
#[case(&["bash", "-l", "-o", "pipefail", "-c", "ls", "name"], "ls")]
#[case(&["bash", "--noprofile", "-euo", "pipefail", "-c", "ls"], "ls")]
fn shell_command_is_found(#[case] argv: &[&str], #[case] command: &str) {
    assert_eq!(Program::of_words(argv.to_vec()).command, Some(command));
}

#[rstest]
#[case("/x/node_modules/@playwright/mcp/cli.js", Some("@playwright/mcp"))]
#[case("/x/node_modules/a/node_modules/nx/src/s.js", Some("nx"))]
#[case("/x/node_modules/.bin/vite", None)]
#[case("/x/cli.js", None)]
fn npm_package_is_recognised(#[case] script: &str, #[case] package: Option<&str>) {
    assert_eq!(Program::of_words(vec!["node", script]).package(), package);
}
