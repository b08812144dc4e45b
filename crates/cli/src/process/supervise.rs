//! A command from its start to the moment when nothing of it is left.

use std::ffi::OsString;
use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_current_process_group, waitid};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::boot_ms;
use super::group::ProcessGroup;
use super::lease_status::LeaseStatus;
use super::signals::Signals;
use super::start_gate::{StartGate, Streams};
use super::terminal::Terminal;
use super::watchdog::{Deadlines, Watchdog, WatchdogReport};
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
/// How many watchdogs may be lost under one command before that is taken for a fault of the machine.
const WATCHDOGS_MAX: u32 = 4;
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
    mut lease_status: watch::Receiver<LeaseStatus>,
    mut signals: Option<&mut Signals>,
) -> Result<CommandEnd, Failure> {
    // Before there are children, so that none can end unheard.
    let mut child_news = signal(SignalKind::child()).map_err(|error| unwatchable(&error))?;
    let continued =
        signal(SignalKind::from_raw(Signal::CONT.as_raw())).map_err(|error| unwatchable(&error))?;
    let mut watchdog = Watchdog::start().await.map_err(|error| unwatchable(&error))?;
    // A caller that gives the command its own streams keeps the terminal, too.
    let terminal = if matches!(command.streams, Streams::Ours) { Terminal::of_stdin() } else { None };
    let CommandSpec { words, mut variables, grace_ms, streams } = command;
    variables.extend(super::credentials::withheld());
    let (gate, child) =
        StartGate::spawn(words, &variables, streams).map_err(|error| unstartable(words, &error))?;
    let group = ProcessGroup::led_by(&child);
    let moments = moments(*lease_status.borrow_and_update(), grace_ms);
    let mut course = CommandRun {
        group,
        child,
        watchdog: None,
        watchdogs: 1,
        terminal,
        continued,
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
    if let Err(error) = watchdog.watch(group, grace_ms, moments).await {
        // The gate closes for good, and the process that waits there ends by itself.
        drop(gate);
        let _ = course.child.wait();
        return Err(unwatchable(&error));
    }
    course.watchdog = Some(watchdog);
    if let Some(terminal) = &course.terminal {
        terminal.offer(group);
    }
    gate.open().map_err(|error| unwatchable(&error))?;
    let mut followed = true;
    while !course.is_over().await {
        let due = course.due();
        tokio::select! {
            arrived = or_never(signals.as_mut().map(|signals| signals.next())) => course.pass_on(arrived),
            _ = child_news.recv() => course.look().await,
            // If nothing follows the lease any more, what was last known stands.
            changed = lease_status.changed(), if followed => match changed {
                Ok(()) => course.hear(*lease_status.borrow_and_update()),
                Err(_) => followed = false,
            },
            report = or_never(course.watchdog.as_mut().map(Watchdog::report)) => course.heed(report).await,
            () = or_never(due.map(sleep_until)) => course.act(),
        }
    }
    Ok(course.finish().await)
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
    child: Child,
    watchdog: Option<Watchdog>,
    watchdogs: u32,
    terminal: Option<Terminal>,
    continued: SignalStream,
    grace_ms: u64,
    /// What the watchdog was last told.
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
        if let Some(watchdog) = &self.watchdog
            && let Err(error) = watchdog.until(self.moments)
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

    /// What the watchdog did, or that it is gone.
    async fn heed(&mut self, report: Option<WatchdogReport>) {
        match report {
            Some(WatchdogReport::Ready | WatchdogReport::Watching) => {}
            Some(WatchdogReport::Terminated) => {
                self.time_was_up();
                // It was asked to end; that it does is our business too.
                let left_ms = self.moments.kill_at_ms.saturating_sub(boot_ms());
                self.kill_at.get_or_insert(Instant::now() + Duration::from_millis(left_ms));
            }
            Some(WatchdogReport::Killed) => {
                self.time_was_up();
                self.kill();
            }
            None => self.replace_watchdog().await,
        }
    }

    /// A watchdog can be killed like anything else. The command is not left without one.
    async fn replace_watchdog(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.bury();
        }
        if self.ended.is_some() || self.killed_at.is_some() {
            return;
        }
        self.watchdogs += 1;
        if self.watchdogs <= WATCHDOGS_MAX
            && let Ok(mut watchdog) = Watchdog::start().await
            && watchdog.watch(self.group, self.grace_ms, self.moments).await.is_ok()
        {
            tracing::warn!("the watchdog was gone, and has been replaced");
            self.watchdog = Some(watchdog);
            return;
        }
        note("the watchdog is gone and cannot be replaced, so the command is ended");
        self.unwatched = true;
        self.end_within(self.grace_ms);
    }

    /// What has become of the leader.
    async fn look(&mut self) {
        let leader = || WaitId::Pid(self.group.leader());
        let stopped = waitid(leader(), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let ended = waitid(leader(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
        if let Ok(Some(status)) = ended
            && self.ended.is_none()
        {
            self.ended = Some(exit_code(&status));
            let _ = self.child.wait();
            // We may not have run for a while, and not have heard yet what the watchdog did.
            if boot_ms() >= self.moments.term_at_ms {
                self.time_was_up();
            }
            if !left_of(self.group).await.is_empty() {
                self.end_within(self.grace_ms);
            }
        } else if let Ok(Some(status)) = stopped
            && let Some(by) = status.stopping_signal()
        {
            self.stop_along(by).await;
        }
    }

    /// The terminal has stopped the command. The shell can only see that if we stop too.
    async fn stop_along(&mut self, by: i32) {
        let Some(terminal) = &self.terminal else { return };
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
            _ = self.continued.recv() => {}
            () = sleep(STOPS_WITHIN) => {}
        }
        terminal.give(self.group);
        let _ = self.group.send(Signal::CONT);
    }

    /// Nothing runs any more, or what does cannot be ended.
    async fn finish(mut self) -> CommandEnd {
        // Also what cannot be seen in /proc. Once no process is left, the number may be reused.
        if !self.group.is_empty() {
            let _ = self.group.kill();
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss().await;
        }
        if let Some(terminal) = &self.terminal {
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
