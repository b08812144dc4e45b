//! The watchdog: a small process that ends the command's group in time when `run` cannot; and `run`'s end of the line to it.

mod deadline;
mod messages;
mod process;

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::OURSELVES;
use super::group::ProcessGroup;
use messages::WatchdogOrder;
pub(super) use messages::{Deadlines, WatchdogReport};
pub(super) use process::main;

/// The name of this part in the arguments.
pub(super) const PART: &str = "__watchdog";
/// A watchdog that takes longer than this to stand or to answer is not to be relied on.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// A watchdog that was dismissed ends at once.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// A running watchdog.
#[derive(Debug)]
pub(super) struct Watchdog {
    child: Child,
    /// Our end of the line; no other process has it, so that it ends with us.
    to: StdStream,
    /// The same end, for listening.
    from: Lines<BufReader<UnixStream>>,
}

impl Watchdog {
    /// Starts one and waits until it stands.
    pub(super) async fn start() -> io::Result<Self> {
        let (ours, its) = StdStream::pair()?;
        let child = Command::new(OURSELVES)
            .arg0("fencehold")
            .arg(PART)
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        ours.set_nonblocking(true)?;
        let from = BufReader::new(UnixStream::from_std(ours.try_clone()?)?).lines();
        let mut watchdog = Watchdog { child, to: ours, from };
        watchdog.expect(WatchdogReport::Ready).await?;
        Ok(watchdog)
    }

    /// Gives it a group to watch, and waits until it does.
    pub(super) async fn watch(
        &mut self,
        group: ProcessGroup,
        grace_ms: u64,
        moments: Deadlines,
    ) -> io::Result<()> {
        self.tell(WatchdogOrder::Watch { group, grace_ms, moments })?;
        self.expect(WatchdogReport::Watching).await
    }

    /// The lease goes on until then.
    pub(super) fn until(&self, moments: Deadlines) -> io::Result<()> {
        self.tell(WatchdogOrder::Until(moments))
    }

    /// What it has done; `None`: it is gone. Can be dropped and called again.
    pub(super) async fn report(&mut self) -> Option<WatchdogReport> {
        loop {
            let line = self.from.next_line().await.ok().flatten()?;
            if let Ok(report) = line.parse() {
                return Some(report);
            }
        }
    }

    /// There is nothing left to watch. When this returns it is gone, so nothing is signalled any more.
    pub(super) async fn dismiss(mut self) {
        let left = async {
            self.tell(WatchdogOrder::Gone).ok()?;
            while self.report().await.is_some() {}
            Some(())
        };
        // One that is stopped does not hear. Its place is empty all the same.
        if timeout(LEAVES_WITHIN, left).await.ok().flatten().is_none() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    /// Its line has ended, so it has, or is about to.
    pub(super) fn bury(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A line is short and the buffer is long: one that does not fit means a watchdog that has long been stopped, and
    /// waiting for it would stop us too.
    fn tell(&self, order: WatchdogOrder) -> io::Result<()> {
        let line = order.to_string();
        match (&self.to).write(line.as_bytes()) {
            Ok(written) if written == line.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) => Err(error),
        }
    }

    async fn expect(&mut self, expected: WatchdogReport) -> io::Result<()> {
        match timeout(ANSWERS_WITHIN, self.report()).await {
            Ok(Some(report)) if report == expected => Ok(()),
            Ok(_) => Err(io::Error::other("it ended at once")),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
        }
    }
}

impl Drop for Watchdog {
    /// One that was never dismissed ends the command, if there is one, and goes: its line ends here. It may take its
    /// time for that, and nothing waits for it.
    fn drop(&mut self) {
        let _ = self.child.try_wait();
    }
}
