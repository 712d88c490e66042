//! Finds CMD as execvp(3) does, and executes it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::signal_state;
use crate::error::CtlError;

/// Search path of execvp(3) without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Runs text files without an interpreter line.
const SHELL: &str = "/bin/sh";

/// Variables in the order of the new process.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// The file of a command: `name` itself if it has a slash, else the first executable of this name in `path`.
pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, CtlError> {
    if name.is_empty() {
        return Err(CtlError::CommandNotFound("the command is empty".into()));
    }
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(error) if is_absent(&error) => Err(CtlError::CommandNotFound(format!("{shown}: {error}"))),
            Err(error) => Err(CtlError::NotExecutable(format!("{shown}: {error}"))),
        };
    }
    let mut refused = None;
    for directory in env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty entry is the current directory.
        let file = if directory.as_os_str().is_empty() { Path::new(".").join(name) } else { directory.join(name) };
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if is_absent(&error) => {}
            Err(error) => refused = refused.or(Some((file, error))),
        }
    }
    Err(match refused {
        Some((file, error)) => CtlError::NotExecutable(format!("{}: {error}", file.display())),
        None => CtlError::CommandNotFound(format!("{shown}: command not found in PATH")),
    })
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn executable(file: &Path) -> io::Result<()> {
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    Ok(access(file, Access::EXEC_OK)?)
}

/// Executes the program in place. Returns only on failure.
pub(super) fn execute(file: &Path, argv: &[OsString], environment: &Environment) -> CtlError {
    let error = match prepare(file, argv, environment) {
        Ok(call) => call.make(),
        Err(error) => error,
    };
    let text = format!("{}: cannot execute: {error}", file.display());
    if is_absent(&error) { CtlError::CommandNotFound(text) } else { CtlError::NotExecutable(text) }
}

/// Arguments of execve(2).
struct ExecCall {
    file: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

fn prepare(file: &Path, argv: &[OsString], environment: &Environment) -> io::Result<ExecCall> {
    let environment = environment.iter().map(|(name, value)| {
        let mut entry = name.as_bytes().to_vec();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        CString::new(entry)
    });
    Ok(ExecCall {
        file: CString::new(file.as_os_str().as_bytes())?,
        argv: argv.iter().map(|argument| CString::new(argument.as_bytes())).collect::<Result<_, _>>()?,
        environment: environment.collect::<Result<_, _>>()?,
    })
}

impl ExecCall {
    fn make(mut self) -> io::Error {
        signal_state::restore();
        let error = self.execve();
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        // As execvp(3): without an interpreter line, the shell runs the file.
        let Ok(shell) = CString::new(SHELL) else { return error };
        let script = std::mem::replace(&mut self.file, shell.clone());
        let arguments = self.argv.drain(..).skip(1);
        self.argv = [shell, script].into_iter().chain(arguments).collect();
        self.execve()
    }

    fn execve(&self) -> io::Error {
        let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings.iter().map(|string| string.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
        };
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        // SAFETY: all strings end with NUL, both arrays end with a null pointer, and all of them outlive the call.
        unsafe { libc::execve(self.file.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The absolute path without resolving links, as the kernel reports it.
pub(super) fn absolute(file: &Path) -> String {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    String::from_utf8_lossy(&absolute.into_os_string().into_vec()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn write(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let file = directory.join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn first_executable_is_found() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path(), "agent", 0o644);
        fs::create_dir(one.path().join("tool")).unwrap();
        let agent = write(two.path(), "agent", 0o755);
        let tool = write(two.path(), "tool", 0o755);
        let path = env::join_paths([Path::new("/nowhere"), one.path(), two.path()]).unwrap();
        assert_eq!(find(OsStr::new("agent"), Some(&path)).unwrap(), agent);
        assert_eq!(find(OsStr::new("tool"), Some(&path)).unwrap(), tool);
    }

    #[test]
    fn missing_and_not_executable_differ() {
        let directory = tempfile::tempdir().unwrap();
        let file = write(directory.path(), "agent", 0o644);
        let path = directory.path().as_os_str();
        for name in [OsStr::new("agent"), file.as_os_str(), directory.path().as_os_str()] {
            assert_eq!(find(name, Some(path)).unwrap_err().code(), 126, "{name:?}");
        }
        for name in ["", "no-such-command", "/nowhere/agent", "./no-such-command"] {
            assert_eq!(find(OsStr::new(name), Some(path)).unwrap_err().code(), 127, "{name:?}");
        }
    }

    #[test]
    fn default_path_is_searched() {
        assert!(find(OsStr::new("sh"), None).unwrap().ends_with("bin/sh"));
    }

    #[test]
    fn absolute_path_is_not_resolved() {
        assert_eq!(absolute(Path::new("/usr/bin/env")), "/usr/bin/env");
        assert_eq!(absolute(Path::new("x/agent")), env::current_dir().unwrap().join("x/agent").to_str().unwrap());
    }
}
