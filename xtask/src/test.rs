//! `cargo xtask test`: all tests of the workspace on the running kernel, the test binaries as root. [`runner`] starts each of
//! them.

mod progress;
pub(crate) mod runner;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::test_totals::Totals;
use crate::workers::in_parallel;
use xtask::cargo::{BuiltBinary, Kind, cargo, executables, target_directory, workspace};
use xtask::host_info::processors;
use xtask::privilege::is_root;

/// How many tests of a binary run at a time: twice as many as there are processors, because most wait for a daemon.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// `cargo xtask test [ARGUMENT…]`
#[derive(clap::Args)]
pub(crate) struct TestOptions {
    /// Arguments of `cargo test` [default: all packages, two test binaries at a time].
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds everything as the calling user, runs the test binaries as root, and prints one line of totals.
pub(crate) fn run(TestOptions { arguments }: &TestOptions) -> Result<ExitCode> {
    // `cargo test` builds programs only for tests of the same package; the end-to-end tests start those of others.
    let mut build = cargo();
    build.args(["build", "--workspace", "--bins"]);
    if arguments.is_empty() {
        // Together: tests enable other features of dependencies, so separate builds would compile them twice.
        build.arg("--tests");
    }
    let (programs, mut tests): (Vec<_>, Vec<_>) =
        executables(&mut build)?.into_iter().partition(|built| built.kind == Kind::Program);
    let programs = programs.first().and_then(|built| built.path.parent()).context("cargo built no program")?;
    // The program just built: the build may have replaced the file of this process.
    let run = TestRun { programs, runner: programs.join("xtask") };

    if !is_root()? {
        eprintln!("the end-to-end tests load programs into the kernel and need root: sudo may ask for your password");
    }
    let totals = if arguments.is_empty() {
        // The end-to-end tests take longest.
        tests.sort_by_key(|test| test.kind != Kind::IntegrationTests);
        let mut totals = run.binaries(&tests)?;
        totals += run.cargo_test(&["--workspace".into(), "--doc".into()])?;
        totals
    } else {
        run.cargo_test(arguments)?
    };
    let Totals { passed, failed, .. } = totals;
    println!("tests: {passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts test binaries.
struct TestRun<'a> {
    programs: &'a Path,
    runner: PathBuf,
}

impl TestRun<'_> {
    /// Runs test binaries, two at a time: most of their tests wait. Prints the output of each when it has ended.
    fn binaries(&self, tests: &[BuiltBinary]) -> Result<Totals> {
        if !is_root()? {
            // sudo asks for the password once, before there are two of it.
            let status = Command::new("sudo").arg("--validate").status().context("running sudo")?;
            ensure!(status.success(), "sudo --validate: {status}");
        }
        let logs = target_directory().join("tests");
        std::fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
        let mut totals = Totals::default();
        for outcome in in_parallel(tests, 2, |test| self.binary(test, &logs)) {
            totals += outcome?;
        }
        Ok(totals)
    }

    fn binary(&self, test: &BuiltBinary, logs: &Path) -> Result<Totals> {
        let started = Instant::now();
        let name = format!("{}-{}", test.package(), test.name);
        let path = logs.join(&name).with_extension("log");
        // A file, because a process that a test left behind would keep a pipe open.
        let log = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut command = Command::new(&self.runner);
        command.args(["run-test", "--"]).arg(&test.path);
        // As cargo does it.
        command.current_dir(workspace().join(&test.directory));
        command.stdin(Stdio::null()).stdout(log.try_clone().context("duplicating a descriptor")?).stderr(log);
        let status = self.apply(&mut command).status().with_context(|| format!("running {name}"))?;

        let output = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "\n     Running {name} ({:.0?})", started.elapsed())
            .and_then(|()| stdout.write_all(&output))
            .context("printing the output")?;
        let mut totals = Totals::default();
        for line in String::from_utf8_lossy(&output).lines() {
            totals += Totals::parse(line).unwrap_or_default();
        }
        Ok(checked(totals, status.success()))
    }

    /// Runs `cargo test`.
    fn cargo_test(&self, arguments: &[OsString]) -> Result<Totals> {
        let mut test = cargo();
        test.args(["test", "--no-fail-fast"]);
        let runner = self.runner.to_str().context("the path of the workspace is not UTF-8")?;
        test.arg("--config").arg(format!("target.'cfg(all())'.runner = [{runner:?}, \"run-test\", \"--\"]"));
        let mut child =
            self.apply(&mut test).args(arguments).stdout(Stdio::piped()).spawn().context("running cargo")?;
        let output = child.stdout.take().context("cargo's output was not piped")?;
        let mut totals = Totals::default();
        for line in BufReader::new(output).lines() {
            let line = line.context("reading cargo's output")?;
            println!("{line}");
            totals += Totals::parse(&line).unwrap_or_default();
        }
        let status = child.wait().context("waiting for cargo")?;
        Ok(checked(totals, status.success()))
    }

    fn apply<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if std::env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, (2 * processors()).to_string());
        }
        command.env("WATCHDOG_BIN_DIR", self.programs)
    }
}

/// A run that fails without a failed test counts as one.
fn checked(totals: Totals, succeeded: bool) -> Totals {
    let failed = if succeeded { totals.failed } else { totals.failed.max(1) };
    Totals { failed, ..totals }
}
