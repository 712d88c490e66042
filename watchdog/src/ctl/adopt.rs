//! `watchdogctl adopt`: marks a process or a session as meant to stay, or takes that back.

use std::str::FromStr;

use super::client::Client;
use super::failure::Failure;
use super::output::{Output, complain};
use super::show::count;
use crate::api::{AdoptRequest, Adopted, Subject, Tree};

/// A process or a session, as it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `41231`: a process of a session, or else a session.
    Number(u32),
    /// `pid:41231`
    Pid(u32),
    /// `session:3`
    Session(u64),
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a process or a session is given by its number: 41231, pid:41231 or session:3";
        // `parse` alone would take "+3" too.
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once(':') {
            Some(("pid", pid)) if digits(pid) => pid.parse().map(Self::Pid).map_err(|_| WRONG),
            Some(("session", id)) if digits(id) => id.parse().map(Self::Session).map_err(|_| WRONG),
            None if digits(text) => text.parse().map(Self::Number).map_err(|_| WRONG),
            _ => Err(WRONG),
        }
    }
}

pub(super) async fn run(client: &Client, target: Target, undo: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let subjects = subjects(client, &[target]).await?;
    for subject in subjects {
        let answer = client.post::<Adopted>("/v1/adopt", &AdoptRequest::new(subject, undo)).await?;
        if answer.document.pids.is_empty() {
            return Err(Failure::No(
                "nothing was adopted: no process of it is alive\n`watchdogctl tree` lists those that are.".into(),
            ));
        }
        output.show(&answer.text, |_| render(subject, undo, &answer.document))?;
    }
    Ok(())
}

/// Whom targets name; notes say where one could have named something else.
pub(super) async fn subjects(client: &Client, targets: &[Target]) -> Result<Vec<Subject>, Failure> {
    let plain = targets.iter().any(|target| matches!(target, Target::Number(_)));
    let tree = if plain { client.get::<Tree>("/v1/tree").await?.document } else { Tree::default() };
    Ok(targets.iter().map(|target| subject(*target, &tree)).collect())
}

fn subject(target: Target, tree: &Tree) -> Subject {
    match target {
        Target::Pid(pid) => Subject::Pid(pid),
        Target::Session(id) => Subject::Session(id),
        Target::Number(number) => {
            let (subject, note) = resolve(number, tree);
            if let Some(note) = note {
                complain(&note);
            }
            subject
        }
    }
}

/// What a plain number means, and a note where it could have meant something else. A number that nobody knows is
/// taken for a pid: the daemon says best why it cannot be adopted.
fn resolve(number: u32, tree: &Tree) -> (Subject, Option<String>) {
    let mut processes = tree.sessions.iter().flat_map(|session| &session.processes);
    let is_process = processes.any(|process| process.pid == number);
    let is_session = tree.sessions.iter().any(|session| session.id == u64::from(number));
    match (is_process, is_session) {
        (true, true) => {
            let note = format!(
                "watchdogctl: {number} is a process and a session: the process is meant. \
                 `session:{number}` names the session.\n"
            );
            (Subject::Pid(number), Some(note))
        }
        (false, true) => (Subject::Session(u64::from(number)), None),
        (_, false) => (Subject::Pid(number), None),
    }
}

fn render(subject: Subject, undo: bool, adopted: &Adopted) -> String {
    let pids: Vec<String> = adopted.pids.iter().map(u32::to_string).collect();
    let whom = match subject {
        Subject::Pid(pid) => format!("process {pid}"),
        Subject::Session(id) => format!("session {id}"),
    };
    let pids = pids.join(", ");
    let number = count(adopted.pids.len() as u64, "process is", "processes are");
    if undo {
        return format!("no longer adopted, {whom}: {number} judged anew ({pids})\n");
    }
    format!("adopted {whom}: {number} meant to stay from now on ({pids})\n")
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("41231", Some(Target::Number(41231)))]
    #[case("pid:7", Some(Target::Pid(7)))]
    #[case("session:3", Some(Target::Session(3)))]
    #[case("+3", None)]
    #[case("-3", None)]
    #[case("s3", None)]
    #[case("pid:", None)]
    #[case("", None)]
    #[case("99999999999", None)]
    fn a_target_is_a_number_or_says_what_it_is(#[case] text: &str, #[case] target: Option<Target>) {
        assert_eq!(text.parse().ok(), target);
    }

    #[test]
    fn a_number_is_a_known_pid_or_else_a_session() {
        assert_eq!(resolve(41231, &tree()), (Subject::Pid(41231), None));
        assert_eq!(resolve(3, &tree()), (Subject::Session(3), None));
    }

    #[test]
    fn a_number_that_nobody_knows_is_left_to_the_daemon() {
        assert_eq!(resolve(99, &tree()), (Subject::Pid(99), None));
    }

    #[test]
    fn where_a_number_is_both_the_process_is_meant_and_a_note_says_so() {
        let mut tree = tree();
        tree.sessions[0].processes[1].pid = 3;
        let (subject, note) = resolve(3, &tree);
        assert_eq!(subject, Subject::Pid(3));
        insta::assert_snapshot!(note.unwrap(), @"watchdogctl: 3 is a process and a session: the process is meant. `session:3` names the session.");
    }

    #[test]
    fn what_was_adopted_is_counted_and_named() {
        let adopted = Adopted { pids: vec![7, 9] };
        insta::assert_snapshot!(render(Subject::Session(3), false, &adopted), @"adopted session 3: 2 processes are meant to stay from now on (7, 9)");
        let adopted = Adopted { pids: vec![7] };
        insta::assert_snapshot!(render(Subject::Pid(7), false, &adopted), @"adopted process 7: 1 process is meant to stay from now on (7)");
        insta::assert_snapshot!(render(Subject::Pid(7), true, &adopted), @"no longer adopted, process 7: 1 process is judged anew (7)");
    }
}
