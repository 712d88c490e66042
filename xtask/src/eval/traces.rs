//! Memory of real programs over time, each with its verdict.

use std::path::Path;

use anyhow::{Context, Result};

use super::generate::Trace;

/// A trace that was captured.
pub(super) struct Captured {
    pub(super) name: String,
    pub(super) leaks: bool,
    /// V8's limit, where the command line states one, in MiB.
    pub(super) heap: Option<f64>,
    pub(super) trace: Trace,
}

/// All traces of a directory, by name.
///
/// # Errors
/// When it or one of them cannot be read, or one of them is not as it should be.
pub(super) fn captured(directory: &Path) -> Result<Vec<Captured>> {
    let entries = directory.read_dir().with_context(|| format!("reading {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            read(name, &text).with_context(|| format!("{} is no trace", path.display()))
        })
        .collect()
}

/// Lines after `#` are the head, with the command and the verdict; then milliseconds, and KiB of which files do not count.
fn read(name: String, text: &str) -> Result<Captured> {
    let heads = || text.lines().filter_map(|line| line.strip_prefix('#').map(str::trim));
    let verdict = heads().find_map(|head| head.strip_prefix("verdict: ")).context("no verdict")?;
    let heap = heads()
        .find_map(|head| head.split_once("--max-old-space-size="))
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let trace = rows
        .map(|row| {
            let numbers = row.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>().context("a number")?;
            let kib = match numbers[..] {
                [_, rss] => rss,
                [_, anon, _, shmem] => anon + shmem,
                _ => anyhow::bail!("{row:?} has neither two columns nor four"),
            };
            Ok((numbers[0] / 1_000.0, kib / 1_024.0))
        })
        .collect::<Result<_>>()?;
    Ok(Captured { name, leaks: verdict.starts_with("leak"), heap, trace })
}
