//! Whether two processes were started with the same environment, without its contents.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use super::error::HostError;
use super::process::ProcessDir;

/// Bytes of an environment that are read.
const MAX_BYTES: usize = 1 << 20;
/// Variables that differ from one start of a program to the next.
const VOLATILE: [&[u8]; 6] = [b"OLDPWD", b"PWD", b"SHLVL", b"TRACEPARENT", b"TRACESTATE", b"_"];

/// A hash of the environment at the exec, which no other run of the daemon can compute; `None` if it is empty. 20 µs.
pub(crate) fn hash(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    if dir.read_up_to("environ", MAX_BYTES, buffer)?.is_none() {
        return Ok(None);
    }
    let hash = hash_of(buffer);
    buffer.clear();
    Ok(hash)
}

fn hash_of(environment: &[u8]) -> Option<u64> {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let is_volatile = |variable: &[u8]| {
        let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
        VOLATILE.contains(&name)
    };
    let variables = environment.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
    let mut variables: Vec<&[u8]> = variables.filter(|variable| !is_volatile(variable)).collect();
    variables.sort_unstable();
    (!variables.is_empty()).then(|| KEY.get_or_init(RandomState::new).hash_one(variables))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::hash_of;

    #[rstest]
    #[case::order(b"B=2\0A=1\0", true)]
    #[case::volatile(b"A=1\0PWD=/x\0SHLVL=2\0B=2\0_=/usr/bin/node\0", true)]
    #[case::value(b"A=1\0B=3\0", false)]
    #[case::more(b"A=1\0B=2\0PWD_X=1\0", false)]
    #[case::boundary(b"A=1B=2\0", false)]
    fn same_environments_have_one_hash(#[case] other: &[u8], #[case] same: bool) {
        assert_eq!(hash_of(b"A=1\0B=2\0") == hash_of(other), same);
    }

    #[test]
    fn empty_environment_has_no_hash() {
        assert_eq!((hash_of(b""), hash_of(b"\0\0PWD=/\0")), (None, None));
    }
}
