//! One run of the command for a job: its payload on stdin, what it says kept.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use fencehold::Job;
use fencehold_core::limits::PAYLOAD_BYTES_MAX;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::checkpoint_file::{self, CheckpointFile};
use super::handler::CommandHandler;
use super::outcome::OutputEnd;
use super::output_thread::OutputWriter;
use crate::failure::Failure;
use crate::hold_id::{HOLD_VARIABLE, JOB_VARIABLE, KEY_VARIABLE, TASK_VARIABLE, TOKEN_VARIABLE};
use crate::process::{CommandEnd, CommandSpec, LeaseStatus, Streams, supervise};

/// How much of stdout is kept: one byte more than a result can have tells that it is too long.
const STDOUT_KEPT: usize = PAYLOAD_BYTES_MAX + 1;

/// How a run ended, and what it said.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) finish: CommandEnd,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr_end: OutputEnd,
}

/// Runs the command for a job, from its start until nothing of it is left.
pub(super) async fn run(
    handler: &CommandHandler,
    job: &Job,
    payload: &str,
    checkpoint: Option<&CheckpointFile>,
    grace_ms: u64,
    lease_status: watch::Receiver<LeaseStatus>,
) -> Result<CommandResult, Failure> {
    let CommandHandler { words, watchdog, lines, .. } = handler;
    let unready =
        |error: io::Error| Failure::failed(format!("the command's streams cannot be made: {error}"));
    let stdin = file_of(payload).map_err(unready)?;
    let (mut out, stdout) = pipe_from().map_err(unready)?;
    let (mut err, stderr) = pipe_from().map_err(unready)?;
    let streams = Streams::Given { stdin, stdout, stderr };
    let command = CommandSpec { words, variables: variables(job, checkpoint), grace_ms, streams };
    let (mut stdout, mut stderr_end) = (Vec::new(), OutputEnd::default());
    let finish = {
        let supervising = supervise(command, watchdog, lease_status, None);
        tokio::pin!(supervising);
        let (mut out_open, mut err_open) = (true, true);
        loop {
            tokio::select! {
                finish = &mut supervising => break finish?,
                heard = hear(&mut out, |bytes| keep(&mut stdout, bytes)), if out_open => out_open = heard,
                heard = hear(&mut err, |bytes| note(&mut stderr_end, &lines.writer, bytes)), if err_open => err_open = heard,
            }
        }
    };
    // The rest. A process that left the group may hold the streams open for ever; it is not waited for.
    hear_rest(&out, |bytes| keep(&mut stdout, bytes));
    hear_rest(&err, |bytes| note(&mut stderr_end, &lines.writer, bytes));
    Ok(CommandResult { finish, stdout, stderr_end })
}

/// A file without a name that holds the payload: it is whole before the command starts, and nothing has to feed it.
fn file_of(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("payload", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

fn pipe_from() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, its) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd(ours)?, its))
}

fn variables(job: &Job, checkpoint: Option<&CheckpointFile>) -> Vec<(&'static str, Option<OsString>)> {
    vec![
        (JOB_VARIABLE, Some(job.id().to_string().into())),
        (TOKEN_VARIABLE, Some(job.token().to_string().into())),
        ("FENCEHOLD_ATTEMPT", Some(job.attempt().to_string().into())),
        ("FENCEHOLD_QUEUE", Some(job.queue().to_string().into())),
        ("FENCEHOLD_KIND", Some(job.kind().to_string().into())),
        // The same for every attempt at this job: what it calls can tell a repetition by it.
        ("FENCEHOLD_IDEMPOTENCY_KEY", Some(job.id().to_string().into())),
        (checkpoint_file::VARIABLE, checkpoint.map(|file| file.path.clone().into())),
        ("TRACEPARENT", job.traceparent().map(Into::into)),
        // Those that are there belong to something else.
        (HOLD_VARIABLE, None),
        (KEY_VARIABLE, None),
        (TASK_VARIABLE, None),
    ]
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = STDOUT_KEPT.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn note(end: &mut OutputEnd, writer: &OutputWriter, bytes: &[u8]) {
    end.add(bytes);
    writer.pass_on(bytes);
}

/// Hears a piece. Whether there may be more. Nothing is lost if this is dropped.
async fn hear(from: &mut pipe::Receiver, mut take: impl FnMut(&[u8])) -> bool {
    match from.readable().await {
        Ok(()) => hear_now(from, &mut take) != Some(0),
        Err(_) => false,
    }
}

/// What is left once the command has ended. It is read whatever the runtime knows: news of the end may overtake those of the pipe.
fn hear_rest(from: &pipe::Receiver, mut take: impl FnMut(&[u8])) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = rustix::io::retry_on_intr(|| rustix::io::read(from, &mut bytes)) {
        take(&bytes[..count]);
    }
}

/// What is there at this moment: `Some(0)` at the end, `None` if there is nothing yet.
fn hear_now(from: &pipe::Receiver, take: &mut impl FnMut(&[u8])) -> Option<usize> {
    let mut bytes = [0; 16 << 10];
    match from.try_read(&mut bytes) {
        Ok(count) => {
            take(&bytes[..count]);
            Some(count)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_rest_is_heard_before_the_runtime_knows_of_it() {
        let (ours, its) = pipe_from().unwrap();
        File::from(its).write_all(b"said").unwrap();
        let mut heard = Vec::new();
        hear_rest(&ours, |bytes| heard.extend_from_slice(bytes));
        assert_eq!(heard, b"said");
    }
}
