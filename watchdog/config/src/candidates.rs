//! The file names that the kernel programs report at the exec of an untracked process.

use super::patterns::expanded;
use super::profile::Profile;
use watchdog_classify::{AGENT_RUNTIMES, Runtime};

/// Superset of the agents that these profiles recognise, in terms that a kernel program can test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The last path component, or the one before it.
    pub names: Vec<Vec<u8>>,
    /// Report every exec: some profile implies no name.
    pub every_exec: bool,
}

impl Candidates {
    /// Contains the interpreters of agents, whatever the profiles match: the kernel reports a `#!` script as its interpreter
    /// once `env` has found it. Empty without profiles.
    #[must_use]
    pub fn of(profiles: &[Profile]) -> Self {
        if profiles.is_empty() {
            return Self::default();
        }
        let mut names: Vec<Vec<u8>> = AGENT_RUNTIMES.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
        names.push(b"env".to_vec());
        let mut every_exec = false;
        for patterns in profiles.iter().flat_map(Profile::patterns) {
            let runtimes = patterns.script.iter().flat_map(|glob| expanded(glob));
            let runtimes = runtimes.filter_map(|script| Runtime::of_extension(&script));
            names.extend(runtimes.flat_map(Runtime::file_names).map(|name| name.as_bytes().to_vec()));
            match patterns.names() {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::Patterns;

    fn candidates(patterns: Patterns) -> Candidates {
        Candidates::of(&[Profile::new("p", [patterns]).unwrap()])
    }

    #[test]
    fn built_in_profiles_imply_names() {
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

    #[test]
    fn no_profile_needs_no_exec() {
        assert_eq!(Candidates::of(&[]), Candidates::default());
    }

    #[rstest]
    #[case("*/my-agent.sh", &["/bin/sh", "/usr/bin/bash", "/usr/bin/dash"], &["/usr/bin/ruby"])]
    #[case("*/{a,b}.rb", &["/usr/bin/ruby"], &["/bin/sh"])]
    #[case("*/my-agent", &[], &["/bin/sh", "/usr/bin/ruby"])]
    #[case("*/.sh", &[], &["/bin/sh"])]
    fn extension_names_interpreters(#[case] script: &str, #[case] seen: &[&str], #[case] ignored: &[&str]) {
        let candidates = candidates(Patterns { script: vec![script.into()], ..Default::default() });
        assert!(seen.iter().all(|path| candidates.covers(path)));
        assert!(!ignored.iter().any(|path| candidates.covers(path)));
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
    fn profile_without_names_needs_every_exec(#[case] patterns: Patterns, #[case] every_exec: bool) {
        assert_eq!(candidates(patterns).every_exec, every_exec);
    }
}
