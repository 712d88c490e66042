//! Finding CMD as `execvp` does, and becoming it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::super::failure::Failure;
use super::origin;

/// Where `execvp` looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// What runs a text file that names no interpreter.
const SHELL: &str = "/bin/sh";

/// Variables with their values, in the order in which the program will see them.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// The file that `name` means: itself where it has a slash, else the first of this name in `path` that can be executed.
///
/// # Errors
/// [`Failure::NotFound`] when there is none, [`Failure::NotExecutable`] when none of them can be executed.
pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(Failure::NotFound("the command to be started is empty".into()));
    }
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(error) if is_absent(&error) => Err(Failure::NotFound(format!("{shown}: {error}"))),
            Err(error) => Err(Failure::NotExecutable(format!("{shown}: {error}"))),
        };
    }
    let mut refused = None;
    for directory in env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty entry is the directory where one is.
        let file = if directory.as_os_str().is_empty() { Path::new(".").join(name) } else { directory.join(name) };
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if is_absent(&error) => {}
            Err(error) => refused = refused.or(Some((file, error))),
        }
    }
    Err(match refused {
        Some((file, error)) => Failure::NotExecutable(format!("{}: {error}", file.display())),
        None => Failure::NotFound(format!("{shown}: there is no such command in PATH")),
    })
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn executable(file: &Path) -> io::Result<()> {
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    Ok(access(file, Access::EXEC_OK)?)
}

/// Becomes the program. It comes back only to say why that was not possible.
pub(super) fn execute(file: &Path, argv: &[OsString], environment: &Environment) -> Failure {
    let error = match prepare(file, argv, environment) {
        Ok(call) => call.make(),
        Err(error) => error,
    };
    let story = format!("{} cannot be executed: {error}", file.display());
    if is_absent(&error) { Failure::NotFound(story) } else { Failure::NotExecutable(story) }
}

/// What `execve` is given.
struct Call {
    file: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

fn prepare(file: &Path, argv: &[OsString], environment: &Environment) -> io::Result<Call> {
    let environment = environment.iter().map(|(name, value)| {
        let mut entry = name.as_bytes().to_vec();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        CString::new(entry)
    });
    Ok(Call {
        file: CString::new(file.as_os_str().as_bytes())?,
        argv: argv.iter().map(|argument| CString::new(argument.as_bytes())).collect::<Result<_, _>>()?,
        environment: environment.collect::<Result<_, _>>()?,
    })
}

impl Call {
    fn make(mut self) -> io::Error {
        origin::restore();
        let error = self.execve();
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        // As execvp does it: the shell takes the file for a script of its own.
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
        // SAFETY: the file, and every string of both arrays, ends with NUL; both arrays end with a null pointer; all of
        // them live until the call comes back, and nothing here runs after it if it does not.
        unsafe { libc::execve(self.file.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The path from the root, with nothing resolved: as the kernel will report it.
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
    fn the_first_that_can_be_executed_is_taken() {
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
    fn what_is_not_there_and_what_cannot_be_executed_are_told_apart() {
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
    fn without_a_path_the_system_s_own_is_searched() {
        assert!(find(OsStr::new("sh"), None).unwrap().ends_with("bin/sh"));
    }

    #[test]
    fn an_absolute_path_names_the_file_as_it_was_given() {
        assert_eq!(absolute(Path::new("/usr/bin/env")), "/usr/bin/env");
        assert_eq!(absolute(Path::new("x/agent")), env::current_dir().unwrap().join("x/agent").to_str().unwrap());
    }
}
