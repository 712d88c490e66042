//! Processes and sessions as arguments name them.

use std::str::FromStr;

use crate::error::CtlError;
use crate::output::print_error;
use watchdog_api::client::ControlClient;
use watchdog_api::{Subject, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetArg {
    /// `41231`: the process of a session with this pid, or else the session with this id.
    Number(u32),
    /// `pid:41231`
    Pid(u32),
    /// `session:3`
    Session(u64),
}

impl FromStr for TargetArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "expected a pid or a session: 41231, pid:41231 or session:3";
        // `parse` alone accepts "+3".
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once(':') {
            Some(("pid", pid)) if digits(pid) => pid.parse().map(Self::Pid).map_err(|_| WRONG),
            Some(("session", id)) if digits(id) => id.parse().map(Self::Session).map_err(|_| WRONG),
            None if digits(text) => text.parse().map(Self::Number).map_err(|_| WRONG),
            _ => Err(WRONG),
        }
    }
}

/// The subjects of these arguments. Asks the daemon what plain numbers mean.
pub(crate) fn resolve_all(client: &ControlClient, targets: &[TargetArg]) -> Result<Vec<Subject>, CtlError> {
    let plain = targets.iter().any(|target| matches!(target, TargetArg::Number(_)));
    let tree = if plain { client.get::<Tree>("/v1/tree")?.document } else { Tree::default() };
    Ok(targets.iter().map(|target| resolve(*target, &tree)).collect())
}

fn resolve(target: TargetArg, tree: &Tree) -> Subject {
    match target {
        TargetArg::Pid(pid) => Subject::Pid(pid),
        TargetArg::Session(id) => Subject::Session(id),
        TargetArg::Number(number) => {
            let mut processes = tree.sessions.iter().flat_map(|session| &session.processes);
            let is_process = processes.any(|process| process.pid == number);
            let is_session = tree.sessions.iter().any(|session| session.id == u64::from(number));
            if is_process && is_session {
                warn_ambiguous(number);
            }
            // The daemon reports an unknown number best as an unknown pid.
            if is_session && !is_process { Subject::Session(u64::from(number)) } else { Subject::Pid(number) }
        }
    }
}

/// Says that a number was taken as a pid although a session has it too.
pub(crate) fn warn_ambiguous(number: u32) {
    print_error(&format!(
        "watchdogctl: {number} is both a process and a session; using the process. \
         Use session:{number} for the session.\n"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::tree;
    use rstest::rstest;

    #[rstest]
    #[case("41231", Some(TargetArg::Number(41231)))]
    #[case("pid:7", Some(TargetArg::Pid(7)))]
    #[case("session:3", Some(TargetArg::Session(3)))]
    #[case("+3", None)]
    #[case("-3", None)]
    #[case("s3", None)]
    #[case("pid:", None)]
    #[case("", None)]
    #[case("99999999999", None)]
    fn target_is_parsed(#[case] text: &str, #[case] target: Option<TargetArg>) {
        assert_eq!(text.parse().ok(), target);
    }

    #[test]
    fn pid_takes_precedence_over_session() {
        let mut tree = tree();
        assert_eq!(resolve(TargetArg::Number(41231), &tree), Subject::Pid(41231));
        assert_eq!(resolve(TargetArg::Number(3), &tree), Subject::Session(3));
        tree.sessions[0].processes[1].pid = 3;
        assert_eq!(resolve(TargetArg::Number(3), &tree), Subject::Pid(3));
    }

    #[test]
    fn unknown_number_is_a_pid() {
        assert_eq!(resolve(TargetArg::Number(99), &tree()), Subject::Pid(99));
    }
}
