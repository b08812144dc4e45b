//! The start gate: a process that waits for leave, and then becomes the command.
//!
//! It waits on a pipe whose other end only `run` has. If `run` dies first, the pipe ends without leave, and the
//! command never starts.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{OURSELVES, inherited_descriptors};
use crate::exit_code::ExitStatus;
use crate::output::note;

/// The name of this part in the arguments.
pub(super) const PART: &str = "__start";

/// `work` starts commands on several threads, one at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// What a command reads and writes.
#[derive(Debug)]
pub(crate) enum Streams {
    /// What this process does.
    Ours,
    Given {
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
}

/// Leave to start. Dropping it instead ends the waiting process.
#[derive(Debug)]
pub(super) struct StartGate {
    leave: File,
}

impl StartGate {
    /// Starts the process that will become the command, as the leader of a group of its own, and leaves it waiting.
    pub(super) fn spawn(
        words: &[OsString],
        variables: &[(&str, Option<OsString>)],
        streams: Streams,
    ) -> io::Result<(StartGate, Child)> {
        // Held until our copy of the end that goes along is closed: the command of another job must not inherit it.
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (wait, leave) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(OURSELVES);
        command
            .arg0("fencehold")
            .arg(PART)
            .arg(wait.as_raw_fd().to_string())
            .args(words)
            .process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Streams::Given { stdin, stdout, stderr } = streams {
            command.stdin(stdin).stdout(stdout).stderr(stderr);
        }
        // This one end goes along. No other command is started meanwhile that could inherit it too; a watchdog closes what
        // it inherits.
        rustix::io::fcntl_setfd(&wait, FdFlags::empty())?;
        let child = command.spawn()?;
        Ok((StartGate { leave: File::from(leave) }, child))
    }

    /// Gives leave. A process that is no longer there to take it is no error: its ending tells.
    pub(super) fn open(mut self) -> io::Result<()> {
        match self.leave.write_all(b"!") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// The waiting process: `__start DESCRIPTOR COMMAND…`.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let number = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let (Some(number), Some(program)) = (number, arguments.next()) else { return unstarted("not by hand") };
    let Ok(wait) = inherited_descriptors::adopt(number) else { return unstarted("not by hand") };
    if !may_start(wait) {
        return unstarted("`fencehold run` ended before it could start");
    }
    let error = Command::new(&program).args(arguments).exec();
    cannot_start(&program, &error)
}

/// Waits for leave. The pipe is closed afterwards: the command must not find it.
fn may_start(wait: OwnedFd) -> bool {
    matches!(File::from(wait).read(&mut [0]), Ok(1))
}

fn unstarted(why: &str) -> ExitCode {
    note(&format!("the command was not started: {why}"));
    ExitStatus::CannotRun.into()
}

/// Says why a command cannot be started, in the shell's exit codes.
pub(super) fn cannot_start(program: &OsStr, error: &io::Error) -> ExitCode {
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        note(&format!("{program:?} was not found (or the interpreter that its first line names)"));
        return ExitStatus::NotFound.into();
    }
    note(&format!("{program:?} cannot be executed: {error}"));
    ExitStatus::CannotRun.into()
}
