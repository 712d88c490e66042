//! Limits of a program's own: of its runtime's heap, and the resource limits of setrlimit(2).

use std::fs;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::process::ProcessDir;
use super::stat::Fields;
use watchdog_classify::{Runtime, base_name, go_memory_limit, java_heap, v8};
use watchdog_types::{Bytes, HeapCeiling, HeapRuntime, Limits, ResourceLimit};

/// Bytes of an environment that are read.
const ENVIRONMENT: usize = 1 << 20;
/// Bytes of a command line: a class path may be long.
const COMMAND_LINE: usize = 256 << 10;
/// A program of Go says so in a note among its first bytes.
const HEAD: usize = 32 << 10;
const GO_NOTE: &[u8] = b"Go\0\0";

/// All but the cgroup's. `memory` is what the process can have at most.
pub(super) fn program_limits(dir: &ProcessDir, memory: Bytes, buffer: &mut Vec<u8>) -> Result<Limits, HostError> {
    let mut limits = Limits::default();
    resources(dir, &mut limits, buffer)?;
    let Some(exe) = dir.link("exe")? else { return Ok(limits) };
    let exe = String::from_utf8_lossy(exe.strip_suffix(b" (deleted)").unwrap_or(&exe)).into_owned();
    match Runtime::of(base_name(&exe)) {
        Some(Runtime::Node) => {
            let options = variables(dir, ["NODE_OPTIONS"], buffer)?;
            limits.v8_heap = options[0].as_deref().and_then(|options| v8::stated_in_node_options(options, memory));
            limits.node_major = node_major(Path::new(&exe));
        }
        Some(Runtime::Deno) => {
            let [flags] = variables(dir, ["DENO_V8_FLAGS"], buffer)?;
            limits.v8_heap = flags.as_deref().and_then(|flags| v8::stated_in_deno_flags(flags, memory));
        }
        Some(Runtime::Java) => limits.heap = java(dir, memory, buffer)?,
        Some(_) => {}
        None => {
            let [limit] = variables(dir, ["GOMEMLIMIT"], buffer)?;
            if let Some(max) = limit.as_deref().and_then(go_memory_limit)
                && is_go(dir, buffer)?
            {
                limits.heap = Some(HeapCeiling { runtime: HeapRuntime::Go, max, stated: true });
            }
        }
    }
    Ok(limits)
}

/// The values of environment variables. The rest of the environment may contain secrets and is discarded.
fn variables<const N: usize>(
    dir: &ProcessDir,
    names: [&str; N],
    buffer: &mut Vec<u8>,
) -> Result<[Option<String>; N], HostError> {
    if dir.read_up_to("environ", ENVIRONMENT, buffer)?.is_none() {
        return Ok(names.map(|_| None));
    }
    let value = |name: &str| {
        let value = |variable: &[u8]| Some(variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
        let value = buffer.split(|byte| *byte == 0).find_map(value)?;
        Some(String::from_utf8_lossy(&value).into_owned())
    };
    let values = names.map(value);
    buffer.clear();
    Ok(values)
}

/// The order is Java's: of equal options the last one counts.
fn java(dir: &ProcessDir, memory: Bytes, buffer: &mut Vec<u8>) -> Result<Option<HeapCeiling>, HostError> {
    let names = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];
    let [tool, launcher, last] = variables(dir, names, buffer)?.map(Option::unwrap_or_default);
    if dir.read_up_to("cmdline", COMMAND_LINE, buffer)?.is_none() {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(buffer).into_owned();
    buffer.clear();
    // What stands behind the class is the program's.
    let own = line.split('\0').skip(1).take_while(|word| *word != "-jar" && *word != "-m");
    let options = tool.split_whitespace().chain(launcher.split_whitespace()).chain(own).chain(last.split_whitespace());
    let heap = java_heap(options, memory);
    Ok(heap.map(|(max, stated)| HeapCeiling { runtime: HeapRuntime::Jvm, max, stated }))
}

fn is_go(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<bool, HostError> {
    match dir.read_up_to("exe", HEAD, buffer) {
        Ok(found) => Ok(found.is_some() && buffer.windows(GO_NOTE.len()).any(|bytes| bytes == GO_NOTE)),
        Err(error) if error.is_denied() => Ok(false),
        Err(error) => Err(error),
    }
}

/// From the header that stands beside an installed node, or from a directory that bears the version: `v20.1.0/bin/node`.
fn node_major(exe: &Path) -> Option<u32> {
    let of_name = |name: &str| name.strip_prefix('v')?.split('.').next()?.parse().ok();
    let above = exe.parent()?.parent()?;
    let header: PathBuf = above.join("include/node/node_version.h");
    let of_header = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define NODE_MAJOR_VERSION"))?.trim().to_owned();
        line.parse().ok()
    };
    let named = above.file_name().and_then(|name| of_name(name.to_str()?));
    named.or_else(|| fs::read_to_string(header).ok().and_then(of_header))
}

/// The limits of setrlimit(2) with what counts against them, and strict seccomp.
fn resources(dir: &ProcessDir, limits: &mut Limits, buffer: &mut Vec<u8>) -> Result<(), HostError> {
    if dir.read_up_to("limits", 8192, buffer)?.is_none() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(buffer).into_owned();
    let [space, data] = ["Max address space", "Max data size"].map(|name| resource(&text, name, 0));
    limits.cpu_seconds = resource(&text, "Max cpu time", 1);
    if dir.read_up_to("status", 8192, buffer)?.is_none() {
        return Ok(());
    }
    let status = Fields(buffer);
    let amount = |name| status.kib(name).unwrap_or_default();
    let charged = amount("RssAnon") + amount("RssShmem") + amount("VmSwap");
    let limit = |max: Option<u64>, used| {
        max.map(|max| Box::new(ResourceLimit { max: Bytes(max), used: amount(used), charged }))
    };
    limits.address_space = limit(space, "VmSize");
    limits.data = limit(data, "VmData");
    limits.strict_seccomp = status.number::<u32>("Seccomp") == Some(1);
    Ok(())
}

/// The soft (0) or hard (1) limit in a line of /proc/PID/limits; `None` where it is unlimited.
fn resource(text: &str, name: &str, column: usize) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::limits::{CgroupTree, SeenCgroups};
    use super::super::testing::{TestProcess, eventually};
    use super::*;

    /// A shell that sets these limits, and then sleeps.
    fn limited(ulimits: &str) -> Limits {
        let subject = TestProcess::spawn(Command::new("/bin/sh").args(["-c", &format!("{ulimits}; exec sleep 60")]));
        let stat = format!("/proc/{}/stat", subject.process.pid);
        eventually("its sleep", || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains("(sleep) S ")));
        CgroupTree::of_host().limits(subject.process, &mut SeenCgroups::new()).unwrap().unwrap()
    }

    #[test]
    fn resource_limits_are_read_with_use() {
        let limits = limited("ulimit -v 2000000; ulimit -d 1000000; ulimit -t 90");
        let space = limits.address_space.unwrap();
        assert_eq!((space.max, limits.cpu_seconds), (Bytes::from_kib(2_000_000), Some(90)));
        assert!(space.used.0 > 1 << 20 && space.charged < space.used, "{space:?}");
        assert!(space.reached_at() < space.max && space.reached_at().0 > space.max.0 / 2, "{space:?}");
        assert_eq!(limits.data.as_deref().map(|data| data.max), Some(Bytes::from_kib(1_000_000)));
        assert!(!limits.strict_seccomp);
    }

    #[test]
    fn unlimited_resources_have_no_ceiling() {
        let limits = limited("true");
        assert_eq!((limits.address_space, limits.data, limits.heap), (None, None, None));
    }

    #[test]
    fn installed_node_tells_version() {
        let top = tempfile::tempdir().unwrap();
        let named = top.path().join("versions/v10.24.1/bin");
        assert_eq!(node_major(&named.join("node")), Some(10));
        let header = top.path().join("usr/include/node");
        fs::create_dir_all(&header).unwrap();
        fs::write(header.join("node_version.h"), "#ifndef X\n#define NODE_MAJOR_VERSION 22\n").unwrap();
        assert_eq!(node_major(&top.path().join("usr/bin/node")), Some(22));
        assert_eq!(node_major(&top.path().join("opt/bin/node")), None);
    }
}
