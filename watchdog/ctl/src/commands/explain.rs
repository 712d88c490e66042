use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::explanation;
use crate::target::{TargetArg, warn_ambiguous};
use watchdog_api::Explanation;
use watchdog_api::client::{ClientError, ControlClient, JsonReply};

pub(crate) fn run(client: &ControlClient, target: TargetArg, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    let (pid, reply) = match target {
        TargetArg::Pid(pid) => (Some(pid), of_process(client, pid)?),
        TargetArg::Session(id) => (None, of_session(client, id)?),
        TargetArg::Number(number) => of_number(client, number)?,
    };
    output.show(&reply.text, |terminal| explanation(&reply.document, pid, terminal))
}

fn of_process(client: &ControlClient, pid: u32) -> Result<JsonReply<Explanation>, ClientError> {
    client.get(&format!("/v1/explain?pid={pid}"))
}

fn of_session(client: &ControlClient, id: u64) -> Result<JsonReply<Explanation>, ClientError> {
    client.get(&format!("/v1/explain?session={id}"))
}

/// A plain number is the pid of a live or dead process, or else a session. Returns the pid if it is one.
fn of_number(client: &ControlClient, number: u32) -> Result<(Option<u32>, JsonReply<Explanation>), CtlError> {
    match of_process(client, number) {
        Ok(process) => {
            if of_session(client, number.into()).is_ok() {
                warn_ambiguous(number);
            }
            Ok((Some(number), process))
        }
        Err(ClientError::NotFound(_)) => match of_session(client, number.into()) {
            Err(ClientError::NotFound(_)) => Err(CtlError::Failed(format!(
                "no session {number}, and no record of a process {number}: it was never tracked, or its record has \
                 expired\n`watchdogctl tree` lists live processes and sessions."
            ))),
            other => Ok((None, other?)),
        },
        Err(other) => Err(other.into()),
    }
}
