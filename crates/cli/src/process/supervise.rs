//! A command from its start to the moment when nothing of it is left.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_current_process_group, waitid};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::boot_ms;
use super::group::ProcessGroup;
use super::lease_status::LeaseStatus;
use super::process_exit::ProcessExit;
use super::signals::Signals;
use super::start::{CommandStart, StartError, Streams};
use super::terminal::Terminal;
use super::watchdog::{Deadlines, Watchdog, WatchdogEvent, WatchedCommand};
use crate::duration::show_ms;
use crate::exit_code::{ExitStatus, of_signal};
use crate::failure::Failure;
use crate::output::note;

/// How often to look for what the command left behind, once it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long what was killed may take to be gone. What is stuck in the kernel for longer runs no code of its own.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// The most that a command gets whose lease was taken away: another holder may have it already.
const TAKEN_GRACE_MS: u64 = 1_000;
/// How long a stop that we ask for ourselves may take to happen, or the end of it to arrive.
const STOPS_WITHIN: Duration = Duration::from_millis(200);

/// What is to be run.
#[derive(Debug)]
pub(crate) struct CommandSpec<'a> {
    /// The program and its arguments.
    pub(crate) words: &'a [OsString],
    /// What is added to its environment, or taken out of it.
    pub(crate) variables: Vec<(&'static str, Option<OsString>)>,
    /// What it gets between the request to end and its end.
    pub(crate) grace_ms: u64,
    /// What it reads and writes.
    pub(crate) streams: Streams,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandEnd {
    /// The command's exit code; `None` if it could not be ended.
    pub(crate) code: Option<u8>,
    /// The lease was lost under it, or it was ended so that it would not be.
    pub(crate) lost: bool,
    /// It was ended because no watchdog could be kept.
    pub(crate) unwatched: bool,
    /// Processes that could not be ended.
    pub(crate) left: Vec<u32>,
}

/// Runs a command to its end, and ends what it leaves behind. When this returns nothing of it runs any more, except
/// what [`CommandEnd::left`] names.
pub(crate) async fn supervise(
    command: CommandSpec<'_>,
    watchdog: &Watchdog,
    mut lease_status: watch::Receiver<LeaseStatus>,
    mut signals: Option<&mut Signals>,
) -> Result<CommandEnd, Failure> {
    let CommandSpec { words, mut variables, grace_ms, streams } = command;
    // A caller that gives the command its own streams keeps the terminal, too.
    let terminal = if matches!(streams, Streams::Ours) { Terminal::of_stdin() } else { None };
    let terminal = terminal
        .map(TerminalOfCommand::listen)
        .transpose()
        .map_err(|error| unstartable(words, &error))?;
    variables.extend(super::credentials::withheld());
    let in_foreground = terminal.as_ref().is_some_and(|terminal| terminal.terminal.is_offered());
    let moments = moments(*lease_status.borrow_and_update(), grace_ms);
    let (process, watched) = {
        let start = CommandStart { words, variables: &variables, streams, in_foreground };
        // What was made for the command's streams is closed again here.
        watchdog.start(&start, grace_ms, moments).await.map_err(|error| match error {
            StartError::Unwatched(error) => unwatchable(&error),
            StartError::Failed(error) => unstartable(words, &error),
        })?
    };
    let group = ProcessGroup::led_by(process.pid);
    let mut exit = ProcessExit::of(process.descriptor).map_err(|error| unheard(group, &error))?;
    let mut course = CommandRun {
        group,
        watched: Some(watched),
        terminal,
        grace_ms,
        moments,
        ended: None,
        left: Vec::new(),
        kill_at: None,
        killed_at: None,
        lost: false,
        unwanted: false,
        unwatched: false,
    };
    course.look().await;
    let mut followed = true;
    while !course.is_over().await {
        let due = course.due();
        tokio::select! {
            arrived = or_never(signals.as_mut().map(|signals| signals.next())) => course.pass_on(arrived),
            () = exit.changed(), if course.ended.is_none() => course.look().await,
            _ = or_never(course.terminal.as_mut().map(|terminal| terminal.child_news.recv())) => course.look().await,
            // If nothing follows the lease any more, what was last known stands.
            changed = lease_status.changed(), if followed => match changed {
                Ok(()) => course.hear(*lease_status.borrow_and_update()),
                Err(_) => followed = false,
            },
            event = or_never(course.watched.as_mut().map(WatchedCommand::event)) => course.heed(event),
            () = or_never(due.map(sleep_until)) => course.act(),
        }
    }
    Ok(course.finish())
}

/// The end of the command cannot be heard of, so it is ended.
fn unheard(group: ProcessGroup, error: &io::Error) -> Failure {
    let _ = group.kill();
    let _ = waitid(WaitId::Pid(group.leader()), WaitIdOptions::EXITED);
    Failure::failed(format!("the command was ended, as its end cannot be waited for: {error}"))
}

/// The terminal, where the command may be stopped by a key.
struct TerminalOfCommand {
    terminal: Terminal,
    child_news: SignalStream,
    continued: SignalStream,
}

impl TerminalOfCommand {
    fn listen(terminal: Terminal) -> io::Result<Self> {
        let child_news = signal(SignalKind::child())?;
        let continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        Ok(TerminalOfCommand { terminal, child_news, continued })
    }
}

fn unwatchable(error: &io::Error) -> Failure {
    Failure::failed(format!("the watchdog cannot be started ({error}), so the command was not"))
}

fn unstartable(words: &[OsString], error: &io::Error) -> Failure {
    let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let exit = if error.kind() == io::ErrorKind::ArgumentListTooLong {
        ExitStatus::CannotRun
    } else {
        ExitStatus::Failed
    };
    Failure::new(exit, format!("{program:?} cannot be started: {error}"))
}

fn moments(lease_status: LeaseStatus, grace_ms: u64) -> Deadlines {
    match lease_status {
        LeaseStatus::Until { kill_at_ms } => Deadlines::ending_at(kill_at_ms, grace_ms),
        LeaseStatus::RanOut => Deadlines::ending_at(boot_ms(), 0),
        LeaseStatus::Taken => {
            let now_ms = boot_ms();
            Deadlines { term_at_ms: now_ms, kill_at_ms: now_ms + grace_ms.min(TAKEN_GRACE_MS) }
        }
        LeaseStatus::Unwanted { kill_at_ms } => {
            let now_ms = boot_ms();
            // We ask, and the watchdog only ends: to some, a second request means something else.
            Deadlines::ending_at(kill_at_ms.clamp(now_ms, now_ms + grace_ms), 0)
        }
    }
}

/// What comes of it; without anything to wait for, nothing ever does.
async fn or_never<T>(coming: Option<impl Future<Output = T>>) -> T {
    match coming {
        Some(coming) => coming.await,
        None => std::future::pending().await,
    }
}

/// A command on its course.
struct CommandRun {
    group: ProcessGroup,
    /// Until nothing of it is left.
    watched: Option<WatchedCommand>,
    terminal: Option<TerminalOfCommand>,
    grace_ms: u64,
    /// What the watchdog heard last.
    moments: Deadlines,
    /// The leader's exit code, once it has ended and was reaped.
    ended: Option<u8>,
    /// Those of the group who still ran when it was last looked at.
    left: Vec<u32>,
    /// When to end by force what was asked to end.
    kill_at: Option<Instant>,
    killed_at: Option<Instant>,
    lost: bool,
    unwanted: bool,
    unwatched: bool,
}

impl CommandRun {
    async fn is_over(&mut self) -> bool {
        let given_up = self.killed_at.is_some_and(|at| Instant::now() >= at + GONE_WITHIN);
        if given_up || self.ended.is_some() {
            self.left = left_of(self.group).await;
        }
        given_up || self.ended.is_some() && self.left.is_empty()
    }

    /// When there is something to do without a signal or news.
    fn due(&self) -> Option<Instant> {
        let look = self.ended.map(|_| Instant::now() + LOOK_EVERY);
        let force = match self.killed_at {
            Some(killed_at) => Some(killed_at + GONE_WITHIN),
            None => self.kill_at,
        };
        [look, force].into_iter().flatten().min()
    }

    fn act(&mut self) {
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.kill();
        }
    }

    fn pass_on(&self, signal: Signal) {
        if let Err(error) = self.group.send(signal) {
            note(&format!("signal {} cannot be passed on to the command: {error}", signal.as_raw()));
        }
    }

    /// Asks the command to end within a time, or sooner if it was asked before.
    fn end_within(&mut self, within_ms: u64) {
        let kill_at = Instant::now() + Duration::from_millis(within_ms);
        if self.kill_at.is_none()
            && within_ms > 0
            && let Err(error) = self.group.terminate()
        {
            note(&format!("the command cannot be asked to end: {error}"));
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        self.act();
    }

    fn kill(&mut self) {
        if self.killed_at.is_none() {
            self.killed_at = Some(Instant::now());
            if let Err(error) = self.group.kill() {
                note(&format!("the command cannot be ended: {error}; only its token keeps it out"));
            }
        }
    }

    /// News of the lease. The watchdog hears them first: it must know even if we stop here.
    fn hear(&mut self, lease_status: LeaseStatus) {
        self.moments = moments(lease_status, self.grace_ms);
        if let Some(watched) = &self.watched
            && let Err(error) = watched.until(self.moments)
        {
            tracing::warn!(%error, "the watchdog cannot be sent the lease's deadline");
        }
        let Deadlines { term_at_ms, kill_at_ms } = self.moments;
        match lease_status {
            LeaseStatus::Until { .. } => {}
            LeaseStatus::RanOut | LeaseStatus::Taken => {
                self.lost = true;
                self.end_within(kill_at_ms - term_at_ms);
            }
            LeaseStatus::Unwanted { .. } => {
                self.unwanted = true;
                self.end_within(kill_at_ms.saturating_sub(boot_ms()));
            }
        }
    }

    /// Time was up, as the watchdog saw it. A command that was asked to end before that lost nothing by it.
    fn time_was_up(&mut self) {
        self.lost |= !self.unwanted;
    }

    /// What the watchdog did, or that there is none.
    fn heed(&mut self, event: WatchdogEvent) {
        match event {
            WatchdogEvent::Terminated => {
                self.time_was_up();
                // It was asked to end; that it does is our business too.
                let left_ms = self.moments.kill_at_ms.saturating_sub(boot_ms());
                self.kill_at.get_or_insert(Instant::now() + Duration::from_millis(left_ms));
            }
            WatchdogEvent::Killed => {
                self.time_was_up();
                self.kill();
            }
            // A command is not left without one, unless nothing is left of it to watch.
            WatchdogEvent::Unwatched => {
                if self.ended.is_none() && self.killed_at.is_none() {
                    note("the watchdog is gone and cannot be replaced, so the command is ended");
                    self.unwatched = true;
                    self.end_within(self.grace_ms);
                }
            }
        }
    }

    /// What has become of the leader.
    async fn look(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let leader = || WaitId::Pid(self.group.leader());
        if let Ok(Some(status)) = waitid(leader(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            self.ended = Some(exit_code(&status));
            // We may not have run for a while, and not have heard yet what the watchdog did.
            if boot_ms() >= self.moments.term_at_ms {
                self.time_was_up();
            }
            if !left_of(self.group).await.is_empty() {
                self.end_within(self.grace_ms);
            }
        } else if self.terminal.is_some()
            && let Ok(Some(status)) = waitid(leader(), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)
            && let Some(by) = status.stopping_signal()
        {
            self.stop_along(by).await;
        }
    }

    /// The terminal has stopped the command. The shell can only see that if we stop too.
    async fn stop_along(&mut self, by: i32) {
        let Some(TerminalOfCommand { terminal, continued, .. }) = &mut self.terminal else { return };
        let wants_terminal = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&by);
        if wants_terminal && terminal.give(self.group) {
            let _ = self.group.send(Signal::CONT);
            return;
        }
        if !wants_terminal && by != Signal::TSTP.as_raw() {
            // A user stopped just the command.
            return;
        }
        terminal.take_back(self.group);
        let left_ms = self.moments.term_at_ms.saturating_sub(boot_ms());
        note(&format!(
            "stopped: the lease is not renewed meanwhile, and the command is ended in {}",
            show_ms(left_ms)
        ));
        let _ = kill_current_process_group(Signal::TSTP);
        // Stopped here, until SIGCONT. In a group that cannot be stopped (its shell is gone) we go on.
        tokio::select! {
            _ = continued.recv() => {}
            () = sleep(STOPS_WITHIN) => {}
        }
        terminal.give(self.group);
        let _ = self.group.send(Signal::CONT);
    }

    /// Nothing runs any more, or what does cannot be ended.
    fn finish(mut self) -> CommandEnd {
        // Also what cannot be seen in /proc. Once no process is left, the number may be reused.
        if !self.group.is_empty() {
            let _ = self.group.kill();
        }
        drop(self.watched.take());
        if let Some(TerminalOfCommand { terminal, .. }) = &self.terminal {
            terminal.take_back(self.group);
        }
        let left = std::mem::take(&mut self.left);
        CommandEnd { code: self.ended, lost: self.lost, unwatched: self.unwatched, left }
    }
}

/// Those of a group who still run. The kernel says whether there is anybody at all; only then is /proc looked through, which
/// takes the longer the more processes there are, and not on the thread that renews.
async fn left_of(group: ProcessGroup) -> Vec<u32> {
    if group.is_empty() {
        return Vec::new();
    }
    tracing::debug!(group = group.number(), "looking through /proc for what a command left behind");
    tokio::task::spawn_blocking(move || group.running()).await.unwrap_or_default()
}

/// The exit code of a process, as a shell tells it.
fn exit_code(status: &WaitIdStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(signal)) => of_signal(signal),
        (None, None) => ExitStatus::Failed.code(),
    }
}
