//! Relative paths of a command line, as the working directory of the process makes them absolute.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

use super::error::{HostError, is_missing};
use super::process::ProcessDir;
use watchdog_classify::{Program, Runtime};
use watchdog_types::{Image, ProcessId};

/// Extensions that node adds to the path of a script.
const NODE_EXTENSIONS: [&str; 3] = ["js", "cjs", "mjs"];

/// Resolves what a process has just executed. Nothing is read where its path and its script are absolute; 10 µs else.
pub fn resolve(process: ProcessId, image: &mut Image) -> Result<(), HostError> {
    if !is_relative(image) {
        return Ok(());
    }
    match ProcessDir::of(process, &mut Vec::new())? {
        Some((dir, _)) => resolve_in(&dir, image),
        None => Ok(()),
    }
}

/// Whether a path of it depends on the working directory.
fn is_relative(image: &Image) -> bool {
    let program = Program::of(image);
    program.relative_script().is_some() || (!image.path.is_empty() && !image.path.starts_with('/'))
}

/// A path stays as it is where no file is there: the word is no path, or the process has changed its directory since.
pub(crate) fn resolve_in(dir: &ProcessDir, image: &mut Image) -> Result<(), HostError> {
    if !is_relative(image) {
        return Ok(());
    }
    let Some(directory) = dir.link("cwd")? else { return Ok(()) };
    let opened = match openat(dir.fd(), "cwd", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => opened,
        Err(errno) if is_missing(errno) => return Ok(()),
        Err(errno) => return Err(HostError::io("open", dir.path("cwd"), errno)),
    };
    let directory = PathBuf::from(String::from_utf8_lossy(&directory).into_owned());
    let program = Program::of(image);
    let script = program.relative_script().filter(|script| is_script(&opened, script, program.runtime));
    let script = script.map(|script| absolute(&directory, script));
    let is_path = program.script.as_deref() != Some(image.path.as_str()) && !image.path.starts_with('/');
    let path = (is_path && is_there(&opened, Path::new(&image.path))).then(|| absolute(&directory, &image.path));
    image.script = script;
    image.path = path.unwrap_or_else(|| std::mem::take(&mut image.path));
    Ok(())
}

fn is_there(directory: &OwnedFd, path: &Path) -> bool {
    !path.as_os_str().is_empty() && statat(directory.as_fd(), path, AtFlags::empty()).is_ok()
}

fn is_script(directory: &OwnedFd, script: &str, runtime: Option<Runtime>) -> bool {
    let path = Path::new(script);
    is_there(directory, path)
        || (runtime == Some(Runtime::Node)
            && NODE_EXTENSIONS.iter().any(|extension| is_there(directory, &path.with_added_extension(extension))))
}

/// Without `.` and `..`, which say nothing of a file.
fn absolute(directory: &Path, path: &str) -> String {
    let mut whole = directory.to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => drop(whole.pop()),
            Component::Normal(name) => whole.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use rstest::rstest;

    use super::*;
    use crate::testing::TestProcess;

    /// Resolves as in a process whose working directory has `my-agent/cli.py` and `my-agent/main.js`.
    fn resolved(below: &str, path: &str, argv: &[&str]) -> (Option<String>, String) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("my-agent")).unwrap();
        fs::write(root.join("my-agent/cli.py"), "").unwrap();
        fs::write(root.join("my-agent/main.js"), "").unwrap();
        let subject = TestProcess::spawn(Command::new("/bin/sleep").arg("1000").current_dir(root.join(below)));
        let mut image = Image::new(path, argv.iter().copied());
        resolve(subject.process, &mut image).unwrap();
        let short = |path: String| path.replace(root.to_str().unwrap(), "/R");
        (image.script.map(short), short(image.path))
    }

    #[rstest]
    #[case::inside("my-agent", "/usr/bin/python3", &["python3", "cli.py"], Some("/R/my-agent/cli.py"))]
    #[case::above(".", "/usr/bin/python3", &["python3", "-X", "dev", "./my-agent/cli.py"], Some("/R/my-agent/cli.py"))]
    #[case::beside("my-agent", "/usr/bin/python3", &["python3", "../my-agent/./cli.py"], Some("/R/my-agent/cli.py"))]
    #[case::executed("my-agent", "./cli.py", &["/usr/bin/python3", "./cli.py"], Some("/R/my-agent/cli.py"))]
    #[case::extension_of_node("my-agent", "/usr/bin/node", &["node", "main"], Some("/R/my-agent/main"))]
    #[case::name_in_package_json(".", "/usr/bin/bun", &["bun", "run", "dev"], None)]
    #[case::module("my-agent", "/usr/bin/python3", &["python3", "-m", "cli"], None)]
    fn script_gets_working_directory(
        #[case] below: &str,
        #[case] path: &str,
        #[case] argv: &[&str],
        #[case] script: Option<&str>,
    ) {
        assert_eq!(resolved(below, path, argv), (script.map(str::to_owned), path.to_owned()));
    }

    #[test]
    fn executed_file_gets_working_directory() {
        let (script, path) = resolved(".", "my-agent/cli.py", &["an-agent", "x"]);
        assert_eq!((script, path.as_str()), (None, "/R/my-agent/cli.py"));
    }
}
