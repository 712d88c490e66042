//! The directory of a benchmark: the worker as an agent's program and as another program, and a configuration with a profile
//! for the agent.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Removed when dropped.
pub(super) struct BenchStage {
    dir: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// Tracked from its exec on.
    Agent,
    /// Untracked.
    Stranger,
}

impl BenchStage {
    pub(super) fn build() -> Result<Self> {
        let mut named = tempfile::Builder::new();
        named.prefix("watchdog-bench-").permissions(readable_by_all());
        let dir = named.tempdir().context("making a directory")?;
        let stage = Self { dir };
        let this = std::env::current_exe().context("finding this program's own path")?;
        for role in [As::Agent, As::Stranger] {
            fs::copy(&this, stage.program(role)).context("copying this program")?;
        }
        fs::write(stage.path("config.toml"), stage.config("auto")).context("writing the configuration")?;
        fs::write(stage.path("small.c"), SMALL_C).context("writing a C program")?;
        Ok(stage)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn program(&self, role: As) -> PathBuf {
        self.path(match role {
            As::Agent => "watchdog-bench-agent",
            As::Stranger => "watchdog-bench-other",
        })
    }

    /// A configuration with a profile for the agent. Other agents on the host are not measured.
    pub(super) fn config(&self, close_watch: &str) -> String {
        let agent = self.program(As::Agent);
        format!(
            "[tracking]\nbuilt_in_profiles = false\nclose_watch = {close_watch:?}\n\
             [[profile]]\nname = \"bench\"\nexe = [{:?}]\n",
            agent.to_string_lossy()
        )
    }

    /// A new, empty directory.
    pub(super) fn runtime_dir(&self) -> Result<TempDir> {
        let mut named = tempfile::Builder::new();
        named.prefix("run-").permissions(readable_by_all());
        named.tempdir_in(self.dir.path()).context("making a runtime directory")
    }

    /// The worker with a piped stdout, not started.
    pub(super) fn worker<S: AsRef<Path>>(&self, role: As, work: &[S]) -> Command {
        let mut command = Command::new(self.program(role));
        command.arg("worker").args(work.iter().map(AsRef::as_ref));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Runs the worker and returns its output.
    pub(super) fn work<S: AsRef<Path>>(&self, role: As, work: &[S]) -> Result<String> {
        let output = self.worker(role, work).output().context("running the worker")?;
        ensure!(output.status.success(), "the worker: {}", output.status);
        String::from_utf8(output.stdout).context("the worker's output is not UTF-8")
    }
}

/// Clients of other users must reach the control socket.
fn readable_by_all() -> Permissions {
    Permissions::from_mode(0o755)
}

/// Input of `gcc -O2 -c`.
const SMALL_C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *next; char name[32]; int value; };
static struct node *push(struct node *head, const char *name, int value) {
    struct node *fresh = malloc(sizeof *fresh);
    if (!fresh) abort();
    strncpy(fresh->name, name, sizeof fresh->name - 1);
    fresh->name[sizeof fresh->name - 1] = 0;
    fresh->value = value;
    fresh->next = head;
    return fresh;
}
int sum(const struct node *head) { int all = 0; for (; head; head = head->next) all += head->value; return all; }
int main(int argc, char **argv) {
    struct node *head = NULL;
    for (int i = 0; i < argc; i++) head = push(head, argv[i], (int)strlen(argv[i]));
    printf("%d\n", sum(head));
    return 0;
}
"#;
