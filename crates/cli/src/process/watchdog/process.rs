//! The watchdog's own process. It keeps nothing open but its line to `run`, and nothing but KILL ends it early.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Pid;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::PART;
use super::deadline::{GroupAction, WatchdogDeadline};
use super::messages::{CommandId, WatchTerms, WatchdogOrder, WatchdogReport};
use crate::exit_code::ExitStatus;
use crate::process::boot_ms;
use crate::process::group::ProcessGroup;
use crate::process::{inherited_descriptors, start};

/// How often it looks whether the group is gone, once `run` is. Only then: as long as `run` lives, `run` says so.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// For how long it looks after it has killed: what is stuck in the kernel runs no code of its own any more.
const LOOK_AFTER_KILL_MS: u64 = 5_000;
/// What `ps` and `top` show. Not the binary's own name, so that `killall fencehold` leaves it to do its work.
const NAME: &std::ffi::CStr = c"fh-watchdog";

/// Watches until there is nothing left to watch. Its stdin is the line to `run`.
pub(in crate::process) fn main() -> ExitCode {
    // `run` sees the line end, and why does not matter: without a watchdog nothing starts.
    watch().map_or_else(|_| ExitStatus::Failed.into(), |()| ExitCode::SUCCESS)
}

/// Begins as a copy of `run`, which is there sooner than an execution of its binary, with this end of the line. `None`: `run` is not
/// to be copied any more.
pub(super) fn fork(line: &OwnedFd) -> io::Result<Option<Pid>> {
    start::fork(line, || take_own_name().and_then(|()| watch()))
}

/// Takes the name in the list of processes that it would have had from its beginning: what is sent to `run` by its arguments is not
/// for this one.
fn take_own_name() -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // What comes after the name, which may have any byte in it: the third field and those behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3)?.parse().ok();
    let (Some(begin), Some(end)) = (field(48), field(49)) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let length = usize::try_from(u64::saturating_sub(end, begin)).unwrap_or(0);
    let mut name = format!("fencehold\0{PART}\0").into_bytes();
    name.resize(length, 0);
    // The last byte says that the name ends here.
    if let Some(last) = name.last_mut() {
        *last = 0;
    }
    File::options().write(true).open("/proc/self/mem")?.write_all_at(&name, begin)
}

fn watch() -> io::Result<()> {
    stand_apart()?;
    WatchdogProcess::new()?.keep()
}

/// Leaves everything that could reach this process by way of the shell line or the terminal that it was started from.
fn stand_apart() -> io::Result<()> {
    inherited_descriptors::close_all()?;
    SigSet::all().thread_block()?;
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::thread::set_name(NAME)?;
    Ok(())
}

struct WatchdogProcess {
    line: File,
    heard: Vec<u8>,
    timer: OwnedFd,
    commands: BTreeMap<CommandId, WatchedGroup>,
}

struct WatchedGroup {
    group: ProcessGroup,
    deadline: WatchdogDeadline,
}

/// Whether to go on.
enum LineResult {
    Open,
    /// `run` is gone, or needs no watchdog any more.
    Ended,
}

impl WatchdogProcess {
    fn new() -> io::Result<Self> {
        let line = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(WatchdogProcess { line, heard: Vec::new(), timer, commands: BTreeMap::new() })
    }

    fn keep(mut self) -> io::Result<()> {
        self.report(WatchdogReport::Ready);
        while let LineResult::Open = self.listen()? {
            self.act();
        }
        self.finish_alone()
    }

    /// Waits for an order or for the time to act.
    fn listen(&mut self) -> io::Result<LineResult> {
        self.set_timer()?;
        let mut waits = [PollFd::new(&self.line, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(LineResult::Open),
            Err(error) => return Err(error.into()),
        }
        if waits[0].revents().is_empty() {
            return Ok(LineResult::Open);
        }
        // All that is there, before anything is done for want of news: after a stop, much may wait here.
        loop {
            let mut bytes = [0; 4 << 10];
            let count = match recv(&self.line, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, count)) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(LineResult::Open),
                // A line that is broken in any other way is as good as ended.
                Err(_) => 0,
            };
            if count == 0 {
                return Ok(LineResult::Ended);
            }
            self.heard.extend_from_slice(&bytes[..count]);
            while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                // Only another version could say anything else, and `run` is always the same binary. What it meant is unknown,
                // so the moments that are known stand.
                if let Some(order) = str::from_utf8(&line).ok().and_then(|line| line.parse().ok()) {
                    self.obey(order);
                }
            }
        }
    }

    fn obey(&mut self, order: WatchdogOrder) {
        match order {
            WatchdogOrder::Watch { command, terms: WatchTerms { grace_ms, moments }, group } => {
                let deadline = WatchdogDeadline::new(grace_ms, moments);
                self.commands.insert(command, WatchedGroup { group, deadline });
            }
            WatchdogOrder::Until(command, moments) => {
                if let Some(watched) = self.commands.get_mut(&command) {
                    watched.deadline.hear(moments);
                }
            }
            WatchdogOrder::Gone(command) => drop(self.commands.remove(&command)),
        }
    }

    fn act(&mut self) {
        let mut reports = String::new();
        for (command, WatchedGroup { group, deadline }) in &mut self.commands {
            while let Some(act) = deadline.act(boot_ms()) {
                // If we may not signal it (a command that became another user), nothing can be done from here.
                let report = match act {
                    GroupAction::Terminate => {
                        let _ = group.terminate();
                        WatchdogReport::Terminated(*command)
                    }
                    GroupAction::Kill => {
                        let _ = group.kill();
                        WatchdogReport::Killed(*command)
                    }
                };
                reports.push_str(&report.to_string());
            }
        }
        if !reports.is_empty() {
            self.write(&reports);
        }
    }

    /// `run` is gone. Nothing keeps the groups' numbers for us any more, so they are looked at often: one cannot be reused
    /// unnoticed in so short a time.
    fn finish_alone(&mut self) -> io::Result<()> {
        let now_ms = boot_ms();
        self.commands
            .values_mut()
            .for_each(|watched| watched.deadline.run_is_gone(now_ms));
        let mut give_up_at_ms = None;
        loop {
            self.commands.retain(|_, watched| !watched.group.is_empty());
            if self.commands.is_empty() {
                return Ok(());
            }
            let now_ms = boot_ms();
            self.act();
            if self.commands.values().all(|watched| watched.deadline.has_killed()) {
                let give_up_at_ms = *give_up_at_ms.get_or_insert(now_ms.saturating_add(LOOK_AFTER_KILL_MS));
                if now_ms >= give_up_at_ms {
                    return Ok(());
                }
            }
            self.set_timer()?;
            match poll(&mut [PollFd::new(&self.timer, PollFlags::IN)], Some(&LOOK_EVERY)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets the timer to the next thing to do. It counts suspended time, and fires at once for what is past.
    fn set_timer(&self) -> io::Result<()> {
        let due_ms = self.commands.values().filter_map(|watched| watched.deadline.due_ms()).min();
        // All zero would switch it off; a moment that is due since boot is due now.
        let at = due_ms.map_or(Timespec::default(), |due_ms| timespec(due_ms.max(1)));
        let setting = Itimerspec { it_interval: Timespec::default(), it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }

    fn report(&mut self, report: WatchdogReport) {
        self.write(&report.to_string());
    }

    /// If `run` does not read, that must not keep this process from its work; if it is gone, the line ends, and that is noticed.
    fn write(&mut self, text: &str) {
        let _ = send(&self.line, text.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

fn timespec(ms: u64) -> Timespec {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(ms % 1_000 * 1_000_000).unwrap_or(0);
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}
