//! The log on stderr, as text or JSON. In the journal, each line has its priority (sd-daemon(3)).

use std::io::{IsTerminal, Stderr, Write};

use rustix::fs::fstat;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::options::LogFormat;

/// The target of the `ready` line, which is logged whatever RUST_LOG says.
pub(super) const READY: &str = "watchdogd";

pub(super) fn init(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let filter = match format!("{READY}=info").parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let writer = LogWriter { to_journal: std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stderr(&stream)) };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // Fails only when logging is set up already.
    let _ = match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// `stream` is `DEVICE:INODE` of the journal's socket (systemd.exec(5)). A child that inherits the variable may have
/// another stderr.
fn is_stderr(stream: &str) -> bool {
    fstat(std::io::stderr()).is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == stream)
}

struct LogWriter {
    to_journal: bool,
}

struct PrefixedStderr {
    prefix: &'static str,
    stderr: Stderr,
}

const fn prefix(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "<3>",
        tracing::Level::WARN => "<4>",
        tracing::Level::INFO => "<6>",
        _ => "<7>",
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = PrefixedStderr;

    fn make_writer(&'a self) -> Self::Writer {
        PrefixedStderr { prefix: "", stderr: std::io::stderr() }
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        let prefix = if self.to_journal { prefix(*meta.level()) } else { "" };
        PrefixedStderr { prefix, stderr: std::io::stderr() }
    }
}

impl Write for PrefixedStderr {
    /// Writes one line, which the formatter passes whole.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut stderr = self.stderr.lock();
        stderr.write_all(&[self.prefix.as_bytes(), line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stderr.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_journals_stream_is_stderr() {
        let stat = fstat(std::io::stderr()).unwrap();
        assert!(is_stderr(&format!("{}:{}", stat.st_dev, stat.st_ino)));
        assert!(!is_stderr(&format!("{}:{}", stat.st_dev, stat.st_ino + 1)));
        assert!(!is_stderr("nonsense"));
    }

    #[test]
    fn priorities_are_those_of_syslog() {
        let levels = [tracing::Level::ERROR, tracing::Level::WARN, tracing::Level::INFO, tracing::Level::DEBUG];
        assert_eq!(levels.map(prefix), ["<3>", "<4>", "<6>", "<7>"]);
    }
}
