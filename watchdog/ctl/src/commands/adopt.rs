use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::count;
use crate::target::{TargetArg, resolve_all};
use watchdog_api::client::ControlClient;
use watchdog_api::{AdoptRequest, Adopted, Subject};

pub(crate) fn run(
    client: &ControlClient,
    target: TargetArg,
    undo: bool,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    for subject in resolve_all(client, &[target])? {
        let reply = client.post::<Adopted>("/v1/adopt", &AdoptRequest::new(subject, undo))?;
        if reply.document.pids.is_empty() {
            return Err(CtlError::Failed(
                "nothing was adopted: it has no live process\n`watchdogctl tree` lists live processes.".into(),
            ));
        }
        output.show(&reply.text, |_| render(subject, undo, &reply.document))?;
    }
    Ok(())
}

fn render(subject: Subject, undo: bool, adopted: &Adopted) -> String {
    let pids: Vec<String> = adopted.pids.iter().map(u32::to_string).collect();
    let subject = match subject {
        Subject::Pid(pid) => format!("process {pid}"),
        Subject::Session(id) => format!("session {id}"),
    };
    let pids = pids.join(", ");
    let number = count(adopted.pids.len() as u64, "process", "processes");
    if undo {
        return format!("released {subject}: {number} will be re-evaluated ({pids})\n");
    }
    format!("adopted {subject}: {number} will be kept ({pids})\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_processes_are_listed() {
        let two = Adopted { pids: vec![7, 9] };
        insta::assert_snapshot!(render(Subject::Session(3), false, &two), @"adopted session 3: 2 processes will be kept (7, 9)");
        let one = Adopted { pids: vec![7] };
        insta::assert_snapshot!(render(Subject::Pid(7), false, &one), @"adopted process 7: 1 process will be kept (7)");
        insta::assert_snapshot!(render(Subject::Pid(7), true, &one), @"released process 7: 1 process will be re-evaluated (7)");
    }
}
