//! `cargo xtask test`: all tests of the workspace against the running kernel, the test binaries as root. Cargo runs each of
//! them through [`runner`].

mod progress;
pub(crate) mod runner;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo::{Kind, cargo, executables};
use crate::privilege::is_root;
use crate::totals::Totals;

/// `cargo xtask test [ARGUMENT…]`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What `cargo test` is given: without any, it tests all packages.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds everything as the user who called, runs the test binaries as root, and prints one line of totals.
///
/// # Errors
/// When cargo cannot be run or does not build.
pub(crate) fn run(Options { arguments }: &Options) -> Result<ExitCode> {
    // `cargo test` builds a program for the tests of its own package only; the end-to-end tests start those of another.
    let mut build = cargo();
    build.args(["build", "--workspace", "--bins"]);
    if arguments.is_empty() {
        // Together: tests enable other features of the dependencies, and a build of the programs alone would compile all twice.
        build.arg("--tests");
    }
    let programs = executables(&mut build)?;
    let programs = programs.iter().find(|built| built.kind == Kind::Program).and_then(|built| built.path.parent());
    let programs = programs.context("cargo built no program")?;

    let mut test = cargo();
    test.args(["test", "--no-fail-fast"]).env("WATCHDOG_BIN_DIR", programs);
    if !is_root()? {
        eprintln!("the end-to-end tests load programs into the kernel and need root: sudo may ask for your password");
    }
    // As just built: that may have replaced the file of this process.
    let runner = programs.join("xtask");
    let runner = runner.to_str().context("the path of the workspace is not UTF-8")?;
    test.arg("--config").arg(format!("target.'cfg(all())'.runner = [{runner:?}, \"run-test\", \"--\"]"));
    let mut child = test.args(arguments).stdout(Stdio::piped()).spawn().context("running cargo")?;
    let output = child.stdout.take().context("cargo's output was not piped")?;
    let mut totals = Totals::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading cargo's output")?;
        println!("{line}");
        if let Some(result) = Totals::parse(&line) {
            totals += result;
        }
    }
    let status = child.wait().context("waiting for cargo")?;
    let Totals { passed, failed, .. } = totals;
    println!("tests: {passed} passed, {failed} failed");
    ensure!(failed == 0 || !status.success(), "cargo test succeeded although {failed} tests failed");
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
