//! What the kernel looks out for at the exec of an untracked process.

use super::Profile;
use super::profile::Patterns;
use crate::engine::classify::AGENT_RUNTIMES;

/// What the kernel must look out for at the exec of an untracked process, so that no agent of these profiles is missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Names of path components, the last or the one before it.
    pub names: Vec<Vec<u8>>,
    /// Some profile cannot be told by names: every exec has to be looked at.
    pub every_exec: bool,
}

/// comm is cut at this many bytes: a name this long may stand for a longer one.
const COMM_LEN: usize = 15;

impl Candidates {
    /// What these profiles need. The interpreters of agents are always among the names, because a `#!` script is seen as
    /// its interpreter from the moment that `env` has found it.
    #[must_use]
    pub fn of(profiles: &[Profile]) -> Self {
        let mut names: Vec<Vec<u8>> = AGENT_RUNTIMES.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
        names.push(b"env".to_vec());
        let mut every_exec = false;
        for way in profiles.iter().flat_map(Profile::ways) {
            match names_of(way) {
                Some(needed) => names.extend(needed),
                None => every_exec = true,
            }
        }
        names.retain(|name| !name.starts_with(b"-m "));
        names.sort_unstable();
        names.dedup();
        Self { names, every_exec }
    }

    /// Whether the kernel reports the exec of this path.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        let mut components = path.rsplit('/');
        let last_two = [components.next(), components.next()];
        self.every_exec
            || last_two.into_iter().flatten().any(|name| self.names.iter().any(|known| known == name.as_bytes()))
    }
}

/// Names that hold for each program this way recognises, from one of its keys; `None` when no key tells.
pub(super) fn names_of(way: &Patterns) -> Option<Vec<Vec<u8>>> {
    let of_key = |patterns: &[String], name: fn(&str) -> Option<Vec<u8>>| {
        if patterns.is_empty() {
            return None;
        }
        patterns.iter().flat_map(|pattern| expanded(pattern)).map(|pattern| name(&pattern)).collect::<Option<Vec<_>>>()
    };
    // argv[0] is whatever the parent chose to write there, so it says nothing about the path.
    of_key(&way.exe, name_in_path)
        .or_else(|| of_key(&way.script, name_of_script))
        .or_else(|| of_key(&way.comm, name_in_comm))
}

/// The last component, or the one before it, of every path that this glob matches.
fn name_in_path(glob: &str) -> Option<Vec<u8>> {
    let mut components = glob.rsplit('/');
    let last = components.next()?;
    if is_literal(last) {
        return Some(last.as_bytes().to_vec());
    }
    // The last component must not be able to take in a '/', or the one before it would no longer stand before it.
    let before = components.next()?;
    (is_literal(before) && stays_within_component(last)).then(|| before.as_bytes().to_vec())
}

/// Whether no wildcard of this last component can match a '/'.
fn stays_within_component(last: &str) -> bool {
    let plain_classes = ["[0-9]", "[a-z]", "[A-Z]"];
    let rest = plain_classes.iter().fold(last.to_owned(), |rest, class| rest.replace(class, ""));
    !rest.contains(['*', '?', '[', ']', '\\', '/'])
}

/// As for a path; a Python module bears its own name, and is found by its interpreter.
fn name_of_script(glob: &str) -> Option<Vec<u8>> {
    if glob.starts_with("-m ") && !glob.contains(['*', '?', '[', '{', '\\']) {
        Some(glob.as_bytes().to_vec())
    } else {
        name_in_path(glob)
    }
}

/// At exec, comm is the file's name, as far as it fits.
fn name_in_comm(glob: &str) -> Option<Vec<u8>> {
    (is_literal(glob) && glob.len() < COMM_LEN).then(|| glob.as_bytes().to_vec())
}

/// Writes out `{a,b}`; braces inside braces stay, and are no literal.
pub(super) fn expanded(glob: &str) -> Vec<String> {
    let Some((before, rest)) = glob.split_once('{') else { return vec![glob.to_owned()] };
    let Some((choices, after)) = rest.split_once('}').filter(|(choices, _)| !choices.contains(['{', '\\', '['])) else {
        return vec![glob.to_owned()];
    };
    let ends = expanded(after);
    let choices = choices.split(',');
    choices.flat_map(|choice| ends.iter().map(move |end| format!("{before}{choice}{end}"))).collect()
}

pub(super) fn is_literal(component: &str) -> bool {
    !component.is_empty() && !component.contains(['*', '?', '[', ']', '{', '}', '\\', '!'])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn candidates(patterns: Patterns) -> Candidates {
        Candidates::of(&[Profile::new("p", [patterns]).unwrap()])
    }

    #[test]
    fn the_built_in_profiles_are_told_by_names() {
        let candidates = Candidates::of(&Profile::built_in());
        assert!(!candidates.every_exec);
        for path in
            ["/x/claude.exe", "/home/u/.local/share/claude/versions/2.1.224", "/usr/bin/node", "/v/bin/python3.11"]
        {
            assert!(candidates.covers(path), "{path}");
        }
        for path in ["/usr/bin/cc", "/bin/sh", "/bin/bash", "/usr/bin/git", "/usr/bin/perl"] {
            assert!(!candidates.covers(path), "{path}");
        }
    }

    #[rstest]
    #[case::exe(Patterns { exe: vec!["*/a".into()], ..Default::default() }, false)]
    #[case::directory(Patterns { exe: vec!["*/versions/{1,2}".into()], ..Default::default() }, false)]
    #[case::star_takes_in_slashes(Patterns { exe: vec!["*/versions/*".into()], ..Default::default() }, true)]
    #[case::wildcard(Patterns { exe: vec!["*/a*".into()], ..Default::default() }, true)]
    #[case::argv0(Patterns { argv0: vec!["a".into()], ..Default::default() }, true)]
    #[case::exe_tells_more(Patterns { exe: vec!["*/a".into()], argv0: vec!["b*".into()], ..Default::default() }, false)]
    #[case::comm(Patterns { comm: vec!["a".into()], ..Default::default() }, false)]
    #[case::cut_comm(Patterns { comm: vec!["fifteen-letters".into()], ..Default::default() }, true)]
    #[case::script(Patterns { script: vec!["*/s.py".into()], ..Default::default() }, false)]
    #[case::module(Patterns { script: vec!["-m aider".into()], ..Default::default() }, false)]
    fn every_exec_is_asked_for_where_names_do_not_tell(#[case] patterns: Patterns, #[case] every_exec: bool) {
        assert_eq!(candidates(patterns).every_exec, every_exec);
    }
}
