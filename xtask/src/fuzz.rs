//! `cargo xtask fuzz`: runs the fuzz targets on the stable toolchain.
//!
//! `cargo fuzz` needs a nightly compiler for its sanitizers. Coverage, which guides libFuzzer, is a pass of LLVM that the
//! stable compiler runs too. Sanitizers find memory errors, which safe code does not have.

use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::output::output;
use xtask::cargo::{BuiltBinary, Kind, cargo, executables, target_directory, workspace};

/// `cargo xtask fuzz [TARGET] [--seconds N]`
#[derive(clap::Args)]
pub(crate) struct FuzzOptions {
    /// Only this target: the name of a file in fuzz/fuzz_targets.
    target: Option<String>,
    /// Seconds per target.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// Build the targets without running them.
    #[arg(long)]
    build_only: bool,
}

/// Coverage for libFuzzer (SanitizerCoverage in LLVM's documentation), and checks that a release build leaves out.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];
/// Seconds per input; a slower one is a failure.
const PATIENCE: Duration = Duration::from_secs(10);
/// MB per input: a crafted file must not exhaust the host.
const MEMORY: u32 = 1_024;
/// Lines of libFuzzer that are printed after a failure.
const SHOWN: usize = 60;

/// Builds the targets and runs them side by side: each uses one processor.
///
/// # Errors
/// When they cannot be built or run, or one of them finds a failure.
pub(crate) fn run(FuzzOptions { target, seconds, build_only }: &FuzzOptions) -> Result<ExitCode> {
    let targets = build(target.as_deref())?;
    if *build_only {
        return Ok(ExitCode::SUCCESS);
    }
    let results: Vec<Result<bool>> = std::thread::scope(|scope| {
        let runs: Vec<_> = targets.iter().map(|target| scope.spawn(|| fuzz(target, *seconds))).collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut failed = Vec::new();
    for (target, result) in targets.iter().zip(results) {
        if !result? {
            failed.push(target.name.as_str());
        }
    }
    ensure!(failed.is_empty(), "found by fuzzing: {}", failed.join(", "));
    Ok(ExitCode::SUCCESS)
}

fn build(target: Option<&str>) -> Result<Vec<BuiltBinary>> {
    let mut build = cargo();
    build.args(["build", "--package", "watchdog-fuzz", "--features", "fuzzing", "--profile", "guest"]);
    match target {
        Some(target) => build.args(["--bin", target]),
        None => build.arg("--bins"),
    };
    // With an explicit target, build scripts and macros are built without the flags, with which they would not link.
    build.args(["--target", &host()?]).arg("--target-dir").arg(target_directory().join("fuzz"));
    build.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    let mut targets = executables(&mut build)?;
    targets.retain(|built| built.package() == "fuzz" && built.kind == Kind::Program);
    ensure!(!targets.is_empty(), "no fuzz target was built");
    Ok(targets)
}

/// The triple that this machine's compiler builds for.
fn host() -> Result<String> {
    let text = output(Command::new("rustc").arg("-vV").current_dir(workspace()))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not print its host")?.to_owned())
}

/// Runs a target; `false` when it found a failure, which is printed.
fn fuzz(target: &BuiltBinary, seconds: u64) -> Result<bool> {
    let name = &target.name;
    let of = |what: &str| -> Result<PathBuf> {
        let directory = target_directory().join("fuzz").join(what).join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    };
    let (found, artifacts) = (of("corpus")?, of("artifacts")?);
    let seeds = workspace().join("fuzz/corpus").join(name);
    let mut command = Command::new(&target.path);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={}", PATIENCE.as_secs()))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .arg(&found)
        .arg(&seeds);
    let mut child = command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run {command:?}"))?;
    let stderr = child.stderr.take().context("the target's messages were not piped")?;
    let mut report = FuzzReport::default();
    let mut lines = Vec::new();
    for line in BufReader::new(stderr).split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("reading the target's messages")?).into_owned();
        report.read(&line);
        lines.push(line);
    }
    let status = child.wait().context("waiting for the target")?;
    if !status.success() {
        let shown = lines.len().saturating_sub(SHOWN);
        lines[shown..].iter().for_each(|line| println!("{line}"));
        println!("{name}: {status}; the input is in {}", artifacts.display());
        return Ok(false);
    }
    let FuzzReport { executions, per_second, edges } = report;
    ensure!(executions > 0 && edges > 0, "{name} printed no statistics: {}", lines.join("\n"));
    println!("{name}: {executions} executions, {per_second} a second, {edges} edges covered, nothing found");
    Ok(true)
}

/// Statistics of a libFuzzer run.
#[derive(Debug, Default, PartialEq, Eq)]
struct FuzzReport {
    executions: u64,
    per_second: u64,
    /// In the control flow graph.
    edges: u64,
}

impl FuzzReport {
    /// Reads a line of its output.
    fn read(&mut self, line: &str) {
        let number = |text: &str| text.trim().parse().ok();
        if let Some(executions) = line.strip_prefix("stat::number_of_executed_units:").and_then(number) {
            self.executions = executions;
        } else if let Some(per_second) = line.strip_prefix("stat::average_exec_per_sec:").and_then(number) {
            self.per_second = per_second;
        } else if let Some((_, after)) = line.split_once(" cov: ")
            && line.starts_with('#')
            && let Some(edges) = after.split(' ').next().and_then(number)
        {
            self.edges = edges;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzer_output_is_parsed() {
        let mut report = FuzzReport::default();
        let said = "INFO: seed corpus: files: 7 min: 24b max: 176b total: 600b rss: 31Mb\n\
                    #8\tINITED cov: 180 ft: 190 corp: 7/600b exec/s: 0 rss: 31Mb\n\
                    #4194304\tpulse  cov: 246 ft: 534 corp: 61/3kb lim: 4096 exec/s: 838860 rss: 412Mb\n\
                    #9999999\tDONE   cov: 247 ft: 534 corp: 61/3kb lim: 4096 exec/s: 833333 rss: 412Mb\n\
                    stat::number_of_executed_units: 9999999\n\
                    stat::average_exec_per_sec:     833333\n\
                    stat::new_units_added:          55";
        said.lines().for_each(|line| report.read(line));
        assert_eq!(report, FuzzReport { executions: 9_999_999, per_second: 833_333, edges: 247 });
    }
}
