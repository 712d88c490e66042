//! The directory in which everything happens: the worker once as an agent's program and once as a stranger's, and a
//! configuration by which the daemon knows the one and not the other.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The stage. Dropping it removes the directory.
pub(super) struct Stage {
    dir: TempDir,
}

/// As whom the worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// As an agent: tracked from its exec on.
    Agent,
    /// As nobody in particular.
    Stranger,
}

impl Stage {
    /// Sets it up.
    pub(super) fn build() -> Result<Self> {
        let mut named = tempfile::Builder::new();
        named.prefix("watchdog-bench-").permissions(for_everybody());
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

    /// A file of the stage.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The worker's file.
    pub(super) fn program(&self, role: As) -> PathBuf {
        self.path(match role {
            As::Agent => "watchdog-bench-agent",
            As::Stranger => "watchdog-bench-other",
        })
    }

    /// A configuration that knows the agent.
    pub(super) fn config(&self, close_watch: &str) -> String {
        let agent = self.program(As::Agent);
        format!(
            "[tracking]\nclose_watch = {close_watch:?}\n[[profile]]\nname = \"bench\"\nexe = [{:?}]\n",
            agent.to_string_lossy()
        )
    }

    /// A new, empty directory.
    pub(super) fn runtime_dir(&self) -> Result<TempDir> {
        let mut named = tempfile::Builder::new();
        named.prefix("run-").permissions(for_everybody());
        named.tempdir_in(self.dir.path()).context("making a runtime directory")
    }

    /// The worker, about to do `work`, with its stdout piped.
    pub(super) fn worker<S: AsRef<Path>>(&self, role: As, work: &[S]) -> Command {
        let mut command = Command::new(self.program(role));
        command.arg("bench-worker").args(work.iter().map(AsRef::as_ref));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Has the worker do `work`, and returns what it printed.
    pub(super) fn work<S: AsRef<Path>>(&self, role: As, work: &[S]) -> Result<String> {
        let output = self.worker(role, work).output().context("running the worker")?;
        ensure!(output.status.success(), "the worker: {}", output.status);
        String::from_utf8(output.stdout).context("the worker's output is not UTF-8")
    }
}

/// Clients of other users have to get to the control socket.
fn for_everybody() -> Permissions {
    Permissions::from_mode(0o755)
}

/// What `gcc -O2 -c` is measured with: small, and not nothing.
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
