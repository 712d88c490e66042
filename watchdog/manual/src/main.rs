//! `watchdog-manual DIRECTORY DATE`: writes man pages and shell completions from the definitions of the command lines and
//! the example configuration. For `cargo xtask dist`, which packages them.

mod commands;
mod completions;
mod configuration;
mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use page::Edition;

#[derive(Parser)]
struct ManualOptions {
    /// Directory for the pages and scripts; is created
    directory: PathBuf,
    /// Date of the pages, such as 2026-01-31
    date: String,
}

fn main() -> Result<()> {
    let ManualOptions { directory, date } = ManualOptions::parse();
    let edition = Edition { version: env!("CARGO_PKG_VERSION").to_owned(), date };
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/config.toml");
    let config = std::fs::read_to_string(&config).with_context(|| format!("reading {}", config.display()))?;
    let mut files = commands::pages(&edition);
    files.push(configuration::page(&config, &edition));
    files.extend(completions::scripts()?);
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
