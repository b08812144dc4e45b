//! The watchdog: a small process that ends the groups of commands in time when this process cannot; and this process's end of
//! the line to it. One serves all commands of this process.
//!
//! A command is watched before it runs: see [`start`](super::start). A watchdog that is killed is replaced, and the new one
//! hears of every command that runs.

mod deadline;
mod messages;
mod process;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::timeout;

use super::OURSELVES;
use super::group::ProcessGroup;
use super::start::{CommandStart, StartError, StartedProcess, start};
pub(super) use messages::Deadlines;
use messages::{CommandId, WatchTerms, WatchdogOrder, WatchdogReport};
pub(super) use process::main;

/// The name of this part in the arguments.
pub(super) const PART: &str = "__watchdog";
/// A watchdog that takes longer than this to begin is not to be relied on.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// A watchdog that was dismissed ends at once.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// How many watchdogs may be lost under one command before that is taken for a fault of the machine.
const WATCHDOGS_MAX: u32 = 4;

/// What a watchdog says, line by line.
type Reports = Lines<BufReader<UnixStream>>;

/// The watchdog of this process. All clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog(Arc<WatchdogShared>);

#[derive(Debug, Default)]
struct WatchdogShared {
    /// Held while one is being started.
    starting: AsyncMutex<()>,
    state: Mutex<WatchdogState>,
    /// Whether one is there.
    is_there: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct WatchdogState {
    /// The first one, from when it was started until it is needed.
    begun: Option<WatchdogProcess>,
    process: Option<WatchdogProcess>,
    /// How many there have been.
    generation: u64,
    commands: BTreeMap<CommandId, WatchedState>,
    last_command: CommandId,
}

#[derive(Debug)]
struct WatchdogProcess {
    child: ChildProcess,
    /// Our end of the line; no other process has it, so that it ends with us.
    line: Arc<StdStream>,
}

/// A process of ours that was not waited for yet.
#[derive(Debug)]
struct ChildProcess(Pid);

/// What is known of a command that runs.
#[derive(Debug)]
struct WatchedState {
    group: ProcessGroup,
    terms: WatchTerms,
    /// Which watchdog has heard of it.
    heard_by: u64,
    /// How many were lost under it.
    lost: u32,
    events: mpsc::UnboundedSender<WatchdogEvent>,
}

/// What the watchdog did to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogEvent {
    /// Time was up: it asked the group to end.
    Terminated,
    /// Time was up: it ended the group.
    Killed,
    /// No watchdog can be kept.
    Unwatched,
}

/// A command that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct WatchedCommand {
    watchdog: Watchdog,
    id: CommandId,
    events: mpsc::UnboundedReceiver<WatchdogEvent>,
}

impl Watchdog {
    /// Has the first one begin as a copy of this process, while this process is small and has one thread: executing its binary once more
    /// takes several milliseconds. Where that cannot be done, one is executed when it is needed.
    pub(crate) fn fork(&self) {
        match WatchdogProcess::fork() {
            Ok(process) => self.state().begun = Some(process),
            Err(error) => tracing::debug!(%error, "no watchdog was forked"),
        }
    }

    /// Sees to it that one is there. Where none can be started, the commands that run are not watched any more.
    pub(crate) async fn ensure(&self) -> io::Result<()> {
        let _alone = self.0.starting.lock().await;
        if self.state().process.is_some() {
            self.state().introduce_commands();
            return Ok(());
        }
        let (orders, introduced) = self.state().orders_for_a_new_one();
        let begun = self.state().begun.take();
        match WatchdogProcess::start(&orders, begun).await {
            Ok((process, reports)) => {
                let generation = {
                    let mut state = self.state();
                    state.generation += 1;
                    state.process = Some(process);
                    state.introduce_commands();
                    state.dismiss_ended_commands(&introduced);
                    state.generation
                };
                tracing::debug!(generation, "a watchdog was started");
                self.0.is_there.send_replace(true);
                tokio::spawn(self.clone().listen(generation, reports));
                Ok(())
            }
            Err(error) => {
                self.state()
                    .commands
                    .values()
                    .for_each(|command| command.tell(WatchdogEvent::Unwatched));
                Err(error)
            }
        }
    }

    /// Starts a command under it. A watchdog that cannot be reached is replaced, once.
    pub(super) async fn start(
        &self,
        command: &CommandStart<'_>,
        grace_ms: u64,
        moments: Deadlines,
    ) -> Result<(StartedProcess, WatchedCommand), StartError> {
        let terms = WatchTerms { grace_ms, moments };
        let mut is_second = false;
        loop {
            self.ensure().await.map_err(StartError::Unwatched)?;
            let Some((id, line, generation)) = self.state().next_command() else { continue };
            match start(command, line.as_fd(), terms.order(id)) {
                Ok(process) => {
                    let watched =
                        self.started(id, ProcessGroup::led_by(process.pid), terms, generation).await;
                    return Ok((process, watched));
                }
                Err(StartError::Unwatched(error)) => {
                    self.lose(generation);
                    if is_second {
                        return Err(StartError::Unwatched(error));
                    }
                    is_second = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A command runs, and this watchdog has the order to watch it.
    async fn started(
        &self,
        id: CommandId,
        group: ProcessGroup,
        terms: WatchTerms,
        heard_by: u64,
    ) -> WatchedCommand {
        let (sender, events) = mpsc::unbounded_channel();
        let state = WatchedState { group, terms, heard_by, lost: 0, events: sender };
        let is_current = {
            let mut shared = self.state();
            shared.commands.insert(id, state);
            shared.generation == heard_by && shared.process.is_some()
        };
        if !is_current {
            // It was lost meanwhile, when this command was not known yet. Where there is no other, this one hears of that.
            let _ = self.ensure().await;
        }
        WatchedCommand { watchdog: self.clone(), id, events }
    }

    /// Hears it until it is gone, and replaces it if a command needs one.
    fn listen(self, generation: u64, mut reports: Reports) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            while let Some(report) = next_report(&mut reports).await {
                self.state().pass_on(report);
            }
            if self.lose(generation) && self.ensure().await.is_ok() {
                tracing::warn!("the watchdog was gone, and has been replaced");
            }
        })
    }

    /// It is gone, or cannot be reached. Whether another is needed.
    fn lose(&self, generation: u64) -> bool {
        let mut state = self.state();
        if state.generation == generation
            && let Some(process) = state.process.take()
        {
            process.bury();
            state.commands.values_mut().for_each(WatchedState::lose_watchdog);
            self.0.is_there.send_replace(false);
        }
        state.process.is_none() && state.commands.values().any(|command| command.lost < WATCHDOGS_MAX)
    }

    /// Nothing is left to watch. When this returns it is gone.
    pub(crate) async fn dismiss(self) {
        let generation = {
            let state = self.state();
            let Some(process) = &state.process else { return };
            let _ = process.line.shutdown(Shutdown::Write);
            state.generation
        };
        // One that is stopped does not hear. Its place is empty all the same.
        if timeout(LEAVES_WITHIN, self.0.is_there.subscribe().wait_for(|is_there| !is_there))
            .await
            .is_err()
        {
            self.lose(generation);
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchdogState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchdogState {
    /// The number of the next command, and who is to watch it.
    fn next_command(&mut self) -> Option<(CommandId, Arc<StdStream>, u64)> {
        let line = Arc::clone(&self.process.as_ref()?.line);
        self.last_command += 1;
        Some((self.last_command, line, self.generation))
    }

    /// What a watchdog is to read first: that it is to watch every command that runs.
    fn orders_for_a_new_one(&self) -> (String, Vec<CommandId>) {
        let order = |(id, command): (&CommandId, &WatchedState)| command.order(*id).to_string();
        (self.commands.iter().map(order).collect(), self.commands.keys().copied().collect())
    }

    /// Tells a new watchdog of commands that it was introduced to and that have ended since.
    fn dismiss_ended_commands(&mut self, introduced: &[CommandId]) {
        let WatchdogState { process: Some(process), commands, .. } = self else { return };
        for id in introduced.iter().filter(|id| !commands.contains_key(id)) {
            let _ = process.tell(WatchdogOrder::Gone(*id));
        }
    }

    /// Tells a watchdog of the commands that run, with the moments that hold now.
    fn introduce_commands(&mut self) {
        let WatchdogState { process: Some(process), generation, commands, .. } = self else { return };
        for (id, command) in commands.iter_mut().filter(|(_, command)| command.heard_by != *generation) {
            if process.tell(command.order(*id)).is_ok() {
                command.heard_by = *generation;
            }
        }
    }

    fn pass_on(&self, report: WatchdogReport) {
        let (command, event) = match report {
            WatchdogReport::Ready => return,
            WatchdogReport::Terminated(command) => (command, WatchdogEvent::Terminated),
            WatchdogReport::Killed(command) => (command, WatchdogEvent::Killed),
        };
        if let Some(command) = self.commands.get(&command) {
            command.tell(event);
        }
    }
}

impl WatchedState {
    fn order(&self, command: CommandId) -> WatchdogOrder {
        WatchdogOrder::Watch { command, terms: self.terms, group: self.group }
    }

    fn tell(&self, event: WatchdogEvent) {
        let _ = self.events.send(event);
    }

    fn lose_watchdog(&mut self) {
        self.lost += 1;
        if self.lost == WATCHDOGS_MAX {
            self.tell(WatchdogEvent::Unwatched);
        }
    }
}

impl WatchdogProcess {
    /// Starts one and waits until it is ready; the one that has begun will do. It finds these orders in its line from its first moment
    /// on, whatever becomes of this process meanwhile.
    async fn start(orders: &str, begun: Option<Self>) -> io::Result<(Self, Reports)> {
        if let Some(process) = begun {
            // There was no command yet for which it could be too late.
            match write_whole(&process.line, orders) {
                Ok(()) => {
                    if let Ok(started) = process.wait_until_ready().await {
                        return Ok(started);
                    }
                }
                Err(_) => process.bury(),
            }
        }
        Self::execute(orders)?.wait_until_ready().await
    }

    async fn wait_until_ready(self) -> io::Result<(Self, Reports)> {
        let mut reports = BufReader::new(UnixStream::from_std(self.line.try_clone()?)?).lines();
        let error = match timeout(BEGINS_WITHIN, next_report(&mut reports)).await {
            Ok(Some(WatchdogReport::Ready)) => return Ok((self, reports)),
            Ok(_) => io::Error::other("it ended at once"),
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
        };
        self.bury();
        Err(error)
    }

    /// One that is a copy of this process.
    fn fork() -> io::Result<Self> {
        let no_threads = || io::Error::other("this process has threads");
        Self::begin("", |its| process::fork(&its)?.ok_or_else(no_threads))
    }

    /// One that executes this binary once more.
    fn execute(orders: &str) -> io::Result<Self> {
        Self::begin(orders, |its| {
            let child = Command::new(OURSELVES)
                .arg0("fencehold")
                .arg(PART)
                .stdin(Stdio::from(its))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            Ok(Pid::from_child(&child))
        })
    }

    fn begin(orders: &str, process: impl FnOnce(OwnedFd) -> io::Result<Pid>) -> io::Result<Self> {
        let (line, its) = StdStream::pair()?;
        line.set_nonblocking(true)?;
        write_whole(&line, orders)?;
        let child = ChildProcess(process(OwnedFd::from(its))?);
        Ok(WatchdogProcess { child, line: Arc::new(line) })
    }

    /// A line is short and the buffer is long: one that does not fit means a watchdog that has long been stopped, and
    /// waiting for it would stop us too. It is ended, and so replaced.
    fn tell(&mut self, order: WatchdogOrder) -> io::Result<()> {
        write_whole(&self.line, &order.to_string()).inspect_err(|_| self.child.kill())
    }

    fn bury(self) {
        self.child.kill();
        let _ = waitpid(Some(self.child.0), WaitOptions::empty());
    }
}

impl ChildProcess {
    fn kill(&self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Writes all of it at once, or fails.
fn write_whole(mut line: &StdStream, text: &str) -> io::Result<()> {
    match line.write(text.as_bytes())? {
        written if written == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The next thing that it says; `None`: it is gone. Can be dropped and called again.
async fn next_report(reports: &mut Reports) -> Option<WatchdogReport> {
    loop {
        let line = reports.next_line().await.ok().flatten()?;
        if let Ok(report) = line.parse() {
            return Some(report);
        }
    }
}

impl WatchedCommand {
    /// The lease goes on until then.
    pub(super) fn until(&self, moments: Deadlines) -> io::Result<()> {
        let mut state = self.watchdog.state();
        let WatchdogState { process, commands, generation, .. } = &mut *state;
        let Some(command) = commands.get_mut(&self.id) else { return Ok(()) };
        command.terms.moments = moments;
        match process {
            // One that has not heard of it yet hears these moments then.
            Some(process) if command.heard_by == *generation => {
                process.tell(WatchdogOrder::Until(self.id, moments))
            }
            _ => Ok(()),
        }
    }

    /// What was done to it. Can be dropped and called again.
    pub(super) async fn event(&mut self) -> WatchdogEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

impl Drop for WatchedCommand {
    /// There is nothing left of it to watch.
    fn drop(&mut self) {
        let mut state = self.watchdog.state();
        state.commands.remove(&self.id);
        if let Some(process) = &mut state.process {
            let _ = process.tell(WatchdogOrder::Gone(self.id));
        }
    }
}
