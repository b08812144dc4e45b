//! Starting a command so that no moment of it is unwatched.
//!
//! The new process has one thing to do before it becomes the command: it writes the order to watch it into the socket of the
//! watchdog. From then on the order is the kernel's to deliver, whatever happens to us. A process that cannot write it ends,
//! and the command never starts.
//!
//! Until it becomes the command it runs in our memory while the thread that started it stands still, as with `vfork` and
//! `posix_spawn`: a process that serves a store is large, and copying its page tables would take longer than all the rest.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use rustix::process::Pid;

use crate::exit_code::ExitStatus;
use crate::output::{note, noted};

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

/// A command to start.
pub(super) struct CommandStart<'a> {
    pub(super) words: &'a [OsString],
    /// What is added to its environment, or taken out of it.
    pub(super) variables: &'a [(&'static str, Option<OsString>)],
    pub(super) streams: Streams,
    /// Whether it gets the terminal that is our stdin.
    pub(super) in_foreground: bool,
}

/// A process that was started: the leader of a group of its own.
#[derive(Debug)]
pub(super) struct StartedProcess {
    pub(super) pid: Pid,
    /// Becomes readable when it ends. Kernels before 5.2 have none.
    pub(super) descriptor: Option<OwnedFd>,
}

/// Why none was started.
#[derive(Debug)]
pub(super) enum StartError {
    /// The watchdog cannot be reached.
    Unwatched(io::Error),
    Failed(io::Error),
}

/// Starts a command, and waits until it runs. `order` is the order to watch it, but for the number of its group. A command that
/// cannot be executed has ended with the exit code that a shell gives, and says why on its stderr.
pub(super) fn start(
    command: &CommandStart<'_>,
    watchdog: BorrowedFd<'_>,
    order: String,
) -> Result<StartedProcess, StartError> {
    let failed = StartError::Failed;
    let CommandStart { words, variables, streams, in_foreground } = command;
    let words = c_strings(words.iter().cloned()).map_err(failed)?;
    let environment = c_strings(environment(variables)).map_err(failed)?;
    let pointers = |texts: &[CString]| -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(&words), pointers(&environment));
    let descriptors = match streams {
        Streams::Ours => [0, 1, 2],
        Streams::Given { stdin, stdout, stderr } => [stdin, stdout, stderr].map(AsRawFd::as_raw_fd),
    };
    let mut order = order.into_bytes();
    let order_bytes = order.len();
    // Room for the number and the end of the line.
    order.resize(order_bytes + 12, b'\n');
    let plan = ChildPlan {
        arguments: &arguments,
        environment: &variables,
        streams: descriptors,
        in_foreground: *in_foreground,
        watchdog: watchdog.as_raw_fd(),
        order,
        order_bytes,
        outcome: ChildOutcome::Executed,
    };
    let (process, outcome) = clone_child(plan).map_err(failed)?;
    match outcome {
        ChildOutcome::Executed => Ok(process),
        ChildOutcome::NotExecuted(error) if is_of_the_machine(&error) => {
            reap(&process);
            Err(StartError::Failed(error))
        }
        ChildOutcome::NotExecuted(error) => {
            let program = OsString::from_vec(words[0].to_bytes().to_vec());
            let why = why_not_executed(&program, &error);
            match streams {
                Streams::Ours => note(&why),
                Streams::Given { stderr, .. } => drop(rustix::io::write(stderr, noted(&why).as_bytes())),
            }
            Ok(process)
        }
        ChildOutcome::Unwatched(error) => {
            reap(&process);
            Err(StartError::Unwatched(error))
        }
        ChildOutcome::Failed(error) => {
            reap(&process);
            Err(StartError::Failed(error))
        }
    }
}

/// It has ended by itself, before it became anything.
fn reap(process: &StartedProcess) {
    let _ = rustix::process::waitpid(Some(process.pid), rustix::process::WaitOptions::empty());
}

/// Whether an error of `execve` is for want of something that another time may have.
fn is_of_the_machine(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::ArgumentListTooLong)
        || error.raw_os_error() == Some(libc::EAGAIN)
}

fn why_not_executed(program: &OsStr, error: &io::Error) -> String {
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        return format!("{program:?} was not found (or the interpreter that its first line names)");
    }
    format!("{program:?} cannot be executed: {error}")
}

fn environment(changes: &[(&'static str, Option<OsString>)]) -> impl Iterator<Item = OsString> {
    let joined = |name: &OsStr, value: &OsStr| {
        let mut text = name.to_owned();
        text.push("=");
        text.push(value);
        text
    };
    let kept = std::env::vars_os().filter(|(name, _)| changes.iter().all(|(changed, _)| name != changed));
    let added = changes
        .iter()
        .filter_map(move |(name, value)| Some(joined(OsStr::new(name), value.as_ref()?)));
    kept.map(move |(name, value)| joined(&name, &value)).chain(added)
}

fn c_strings(texts: impl Iterator<Item = OsString>) -> io::Result<Vec<CString>> {
    texts
        .map(|text| CString::new(text.into_vec()).map_err(io::Error::from))
        .collect()
}

/// What the new process does, all of it prepared: it allocates nothing.
struct ChildPlan<'a> {
    /// Ended by a null pointer, both.
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    streams: [RawFd; 3],
    in_foreground: bool,
    watchdog: RawFd,
    /// The order as far as it is known, and room for the rest.
    order: Vec<u8>,
    order_bytes: usize,
    /// What came of it.
    outcome: ChildOutcome,
}

enum ChildOutcome {
    Executed,
    NotExecuted(io::Error),
    Unwatched(io::Error),
    Failed(io::Error),
}

/// The stack of the new process: `execvpe` puts a path on it, and the arguments once more where a script names no interpreter.
const STACK_BYTES: usize = 64 << 10;

/// Starts the process that follows the plan, and waits until it has executed the command or ended.
#[expect(
    unsafe_code,
    reason = "no safe call starts a process that does something of ours before it executes another program"
)]
fn clone_child(mut plan: ChildPlan<'_>) -> io::Result<(StartedProcess, ChildOutcome)> {
    let mut stack: Vec<u128> =
        Vec::with_capacity((STACK_BYTES + 16 * plan.arguments.len()) / size_of::<u128>());
    let mut descriptor: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // No handler of ours may run in the new process: it would run in our memory. It sets its own mask, and finds ours in
    // `before`.
    let everything = nix::sys::signal::SigSet::all();
    let before = everything.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    let mut child = Child { plan: &mut plan, mask: before };
    // SAFETY: the stack is our own, is not used for anything else, and is large enough for `run_child`; it grows down from its
    // end, which is aligned. This thread, and with it all that `child` borrows, stands still until the new process has
    // executed the command or ended (CLONE_VFORK). The kernel writes a descriptor to where the fourth argument points.
    let pid = unsafe {
        libc::clone(
            run_child,
            stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>(),
            flags,
            (&raw mut child).cast::<c_void>(),
            &raw mut descriptor,
        )
    };
    let error = io::Error::last_os_error();
    before.thread_set_mask()?;
    // SAFETY: the kernel has just opened it for this process, and nothing else knows it.
    let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) });
    let pid = if pid < 0 { None } else { Pid::from_raw(pid) }.ok_or(error)?;
    Ok((StartedProcess { pid, descriptor }, plan.outcome))
}

/// Starts a copy of this process that does what is passed and nothing else, with this as its stdin and no other stream. `None`: this
/// process has more than one thread; a copy would miss the others, and could find a lock that one of them held.
#[expect(unsafe_code, reason = "no safe call copies a process")]
pub(super) fn fork(stdin: &OwnedFd, act: impl FnOnce() -> io::Result<()>) -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.take(2).count() != 1 {
        return Ok(None);
    }
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    // SAFETY: there is one thread, this one, and only it could start another. So nothing is in the middle of a change, and the copy may
    // do all that this process may.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let streams = [stdin.as_raw_fd(), nowhere.as_raw_fd(), nowhere.as_raw_fd()];
        // SAFETY: it touches no memory, and the three streams belong to no one.
        let is_done = |(given, stream)| unsafe { libc::dup2(given, stream) } >= 0;
        let begins = streams.into_iter().zip(0..).all(is_done);
        // Nothing of this process unwinds in the copy.
        let ended = begins.then(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)));
        let code = if let Some(Ok(Ok(()))) = ended { 0 } else { ExitStatus::Failed.code() };
        // SAFETY: it ends the copy, and runs nothing that this process has to do at its own end.
        unsafe { libc::_exit(c_int::from(code)) };
    }
    let error = io::Error::last_os_error();
    if pid < 0 { None } else { Pid::from_raw(pid) }.map(Some).ok_or(error)
}

struct Child<'a, 'b> {
    plan: &'a mut ChildPlan<'b>,
    /// Which signals the command blocks: those that the thread did that starts it.
    mask: nix::sys::signal::SigSet,
}

/// The new process, until it is the command.
#[expect(unsafe_code, reason = "it is called by the kernel, and calls what a new process may call")]
extern "C" fn run_child(child: *mut c_void) -> c_int {
    // SAFETY: `clone_child` passes one, and does nothing with it before this process has ended or executed the command.
    let child = unsafe { &mut *child.cast::<Child<'_, '_>>() };
    let Child { plan, mask } = child;
    plan.outcome = match prepare(plan, mask) {
        // SAFETY: both lists end with a null pointer, and are as long-lived as the plan.
        Ok(()) => unsafe {
            libc::execvpe(plan.arguments[0], plan.arguments.as_ptr(), plan.environment.as_ptr());
            ChildOutcome::NotExecuted(io::Error::last_os_error())
        },
        Err(outcome) => outcome,
    };
    let exit = match &plan.outcome {
        ChildOutcome::NotExecuted(error) if error.kind() == io::ErrorKind::NotFound => ExitStatus::NotFound,
        _ => ExitStatus::CannotRun,
    };
    // SAFETY: it ends this process without running anything of ours, whose memory it is.
    unsafe { libc::_exit(c_int::from(exit.code())) }
}

/// Everything before the command is executed. It only makes system calls: no memory is allocated, and no lock is taken.
#[expect(unsafe_code, reason = "these system calls have no safe form that does nothing else")]
fn prepare(plan: &mut ChildPlan<'_>, mask: &nix::sys::signal::SigSet) -> Result<(), ChildOutcome> {
    let done = |result: c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: none of these calls touches memory but what is passed to it, which is valid: our own variables, and an order of
    // which no more is sent than there is.
    unsafe {
        done(libc::setpgid(0, 0)).map_err(ChildOutcome::Failed)?;
        for signal in 1..=libc::SIGRTMAX() {
            let mut action: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            let is_handled = is_known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            // Rust ignores SIGPIPE. What is ignored otherwise was when this process began, and stays so.
            if is_handled || signal == libc::SIGPIPE {
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
        // The two of the C library's own, which it hides: ignored, as `posix_spawn` leaves them.
        for signal in [32, 33] {
            let ignored = [libc::SIG_IGN, 0, 0, 0];
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ignored.as_ptr(),
                std::ptr::null_mut::<c_void>(),
                8,
            );
        }
        if plan.in_foreground {
            // Where that fails, the command gets the terminal when it reads.
            libc::tcsetpgrp(0, libc::getpid());
        }
        for (given, stream) in plan.streams.into_iter().zip(0..) {
            if given != stream {
                done(libc::dup2(given, stream)).map_err(ChildOutcome::Failed)?;
            }
        }
        let order = finish_order(&mut plan.order, plan.order_bytes, libc::getpid());
        let sent = libc::send(plan.watchdog, order.as_ptr().cast(), order.len(), libc::MSG_NOSIGNAL);
        if usize::try_from(sent) != Ok(order.len()) {
            return Err(ChildOutcome::Unwatched(io::Error::last_os_error()));
        }
        libc::sigprocmask(libc::SIG_SETMASK, mask.as_ref(), std::ptr::null_mut());
    }
    Ok(())
}

/// Puts the number behind the order, in the room that it has.
fn finish_order(order: &mut [u8], length: usize, pid: i32) -> &[u8] {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut left = pid;
    while left > 0 {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
    }
    let end = length + digits.len() - at;
    order[length..end].copy_from_slice(&digits[at..]);
    order[end] = b'\n';
    &order[..=end]
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    fn start_with(watchdog: &UnixStream, words: &[&str]) -> Result<StartedProcess, StartError> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let command =
            CommandStart { words: &words, variables: &[], streams: Streams::Ours, in_foreground: false };
        start(&command, watchdog.as_fd(), "watch 7 ".to_owned())
    }

    fn exit_code(process: &StartedProcess) -> Option<i32> {
        waitpid(Some(process.pid), WaitOptions::empty())
            .unwrap()
            .unwrap()
            .1
            .exit_status()
    }

    #[test]
    fn the_order_to_watch_a_command_is_there_before_the_command_runs() {
        let (ours, its) = UnixStream::pair().unwrap();
        let process = start_with(&ours, &["sh", "-c", "exit 3"]).unwrap();
        drop(ours);
        let mut order = String::new();
        (&its).read_to_string(&mut order).unwrap();
        assert_eq!(order, format!("watch 7 {}\n", process.pid.as_raw_nonzero()));
        assert_eq!(exit_code(&process), Some(3));
    }

    #[test]
    fn a_command_that_no_watchdog_can_hear_of_is_not_started() {
        let room = tempfile::tempdir().unwrap();
        let started = room.path().join("started");
        let touch = ["touch", started.to_str().unwrap()];
        let (ours, its) = UnixStream::pair().unwrap();
        drop(its);
        assert!(matches!(start_with(&ours, &touch), Err(StartError::Unwatched(_))));

        // One that has long been stopped: what is said to it is not read.
        let (ours, _its) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4096]).is_ok() {}
        while (&ours).write(&[0]).is_ok() {}
        assert!(matches!(start_with(&ours, &touch), Err(StartError::Unwatched(_))));
        assert!(!started.exists());
    }

    #[test]
    fn what_cannot_be_executed_ends_with_the_code_of_a_shell() {
        let (ours, _its) = UnixStream::pair().unwrap();
        for (program, code) in [("/no/such/program", 127), ("/", 126), ("", 127)] {
            let process = start_with(&ours, &[program]).unwrap();
            assert_eq!(exit_code(&process), Some(code), "{program}");
        }
        let long = "x".repeat(8 << 20);
        assert!(matches!(start_with(&ours, &["true", &long]), Err(StartError::Failed(_))));
    }

    #[test]
    fn a_process_with_threads_is_not_copied() {
        let (_ours, its) = UnixStream::pair().unwrap();
        let copying = std::thread::spawn(move || fork(&OwnedFd::from(its), || Ok(())));
        assert!(copying.join().unwrap().unwrap().is_none());
    }

    #[test]
    fn an_order_ends_with_the_number_of_the_group() {
        for pid in [1, 10, 4_194_304, i32::MAX] {
            let mut order = b"watch 1 2 3 4 ".to_vec();
            let length = order.len();
            order.resize(length + 12, b'?');
            let said = finish_order(&mut order, length, pid).to_vec();
            assert_eq!(String::from_utf8(said).unwrap(), format!("watch 1 2 3 4 {pid}\n"));
        }
    }
}
