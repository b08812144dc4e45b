//! Workers in processes of their own, and how a test leads them.
//!
//! A worker is the test binary once more, told by its environment who it is and where it works. It *says* on its output
//! what it is about, and where it *holds* it waits for the word to go on. So a test knows where a process stands when it
//! kills or stops it.
#![allow(clippy::print_stdout, reason = "output is how a process speaks")]
#![allow(unreachable_pub, reason = "it is a module of a test program")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fencehold::fence::file::Appended;
use fencehold::fence::{FenceError, FencedFile, KeyToken};
use fencehold::{Fencehold, Job, JobError};
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::sync::watch;

/// Longer than anything that a test does to a process, however busy the machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// So long that a busy machine loses no claim that is renewed.
pub const TTL: Duration = Duration::from_secs(3);

/// Where Debian keeps it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const NAME: &str = "FENCEHOLD_TEST_WORKER";
const ROOM: &str = "FENCEHOLD_TEST_ROOM";
/// What a process says starts with this: the test runner writes on the same output.
const SAYS: &str = "@says ";

/// A directory with the store and the file that jobs write to.
#[derive(Clone)]
pub struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    pub fn new(path: &Path) -> Self {
        WorkDirectory { path: path.to_owned() }
    }

    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub fn file(&self) -> PathBuf {
        self.path.join("lines")
    }

    /// Names the store by its URL, where it is not the directory.
    pub fn sign(&self) -> PathBuf {
        self.path.join("url")
    }

    /// By how much the wall clocks of processes are set, if they are: as libfaketime reads it.
    pub fn clock(&self) -> PathBuf {
        self.path.join("clock")
    }

    /// Sets the wall clocks of all processes that are started here from now on, whole at any moment.
    pub fn set_clocks(&self, by_s: i64) {
        let written = self.clock().with_extension("new");
        std::fs::write(&written, format!("{by_s:+}")).unwrap();
        std::fs::rename(written, self.clock()).unwrap();
    }

    /// Puts the sign up, whole at any moment.
    pub fn put_up_sign(&self, url: &str) {
        let written = self.sign().with_extension("new");
        std::fs::write(&written, url).unwrap();
        std::fs::rename(written, self.sign()).unwrap();
    }

    /// To the store that the sign names, if there is one.
    pub async fn connect(&self, owner: &str) -> Fencehold {
        let url = std::fs::read_to_string(self.sign())
            .unwrap_or_else(|_| format!("file:{}?create=true", self.store().display()));
        let connecting = Fencehold::builder().url(url).owner(owner).timeout(TIMEOUT).connect();
        connecting.await.unwrap()
    }

    /// The lines of the file, which must end with a whole one.
    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn: {text:?}");
        text.lines().map(str::to_owned).collect()
    }
}

/// An attempt, by its key and its token.
pub type AttemptKey = (String, u64);

pub fn attempt(job: &Job) -> AttemptKey {
    (KeyToken::for_job(job.id(), job.token()).key().to_string(), job.token().get())
}

/// What a process says about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEvent {
    /// It has raised the fence and begun to work.
    Begun,
    /// It waits for the word to go on.
    Holds,
    /// The fence refused it as stale.
    Refused,
    /// It works no longer.
    Ended,
}

impl AttemptEvent {
    const ALL: [AttemptEvent; 4] =
        [AttemptEvent::Begun, AttemptEvent::Holds, AttemptEvent::Refused, AttemptEvent::Ended];
}

/// One thing that a process says.
#[derive(Clone, Debug)]
pub struct ProcessEvent {
    pub what: AttemptEvent,
    pub attempt: AttemptKey,
}

fn heard(line: &str) -> Option<ProcessEvent> {
    // The runner leaves its own line open.
    let (_, said) = line.split_once(SAYS)?;
    let mut words = said.split(' ');
    let what = words.next()?;
    let what = AttemptEvent::ALL.into_iter().find(|known| format!("{known:?}") == what)?;
    Some(ProcessEvent { what, attempt: (words.next()?.to_owned(), words.next()?.parse().ok()?) })
}

/// The name and the room of this process; `None`: it runs the tests.
pub fn this_process() -> Option<(String, WorkDirectory)> {
    let name = std::env::var(NAME).ok()?;
    Some((name, WorkDirectory::new(Path::new(&std::env::var_os(ROOM)?))))
}

/// The side of the worker: its place in the room, its fence, and whom it listens to.
pub struct WorkerSide {
    pub name: String,
    pub work_dir: WorkDirectory,
    fence: FencedFile,
    freed: watch::Receiver<HashSet<AttemptKey>>,
}

impl WorkerSide {
    /// `None`: this process is no worker, but runs the tests.
    pub async fn of_this_process() -> Option<Arc<WorkerSide>> {
        let (name, work_dir) = this_process()?;
        let (free, freed) = watch::channel(HashSet::new());
        std::thread::spawn(move || {
            for line in std::io::stdin().lines() {
                if let Some((key, token)) = line.unwrap().split_once(' ') {
                    let attempt = (key.to_owned(), token.parse().unwrap());
                    free.send_modify(|freed| {
                        freed.insert(attempt);
                    });
                }
            }
        });
        let fence = FencedFile::options().timeout(TIMEOUT).open(work_dir.file()).await.unwrap();
        Some(Arc::new(WorkerSide { name, work_dir, fence, freed }))
    }

    /// Done when the leader has gone: the time to end in good order.
    pub async fn dismissed(&self) {
        let never = self.freed.clone().wait_for(|_| false).await.map(drop);
        never.expect_err("it waits for what never is, so only the end of the channel ends it");
    }

    /// Stands still until it is asked to go on, is killed, or its handler is dropped.
    pub async fn hold(&self, job: &Job) {
        say(AttemptEvent::Holds, job);
        let this = attempt(job);
        // An error: the leader has gone.
        let _ = self.freed.clone().wait_for(|freed| freed.contains(&this)).await;
    }

    /// Raises the fence, and says that the work has begun. The work ends when the answer is dropped.
    pub async fn begin(&self, job: &Job) -> Result<OpenAttempt, JobError> {
        through(job, self.fence.raise(pass(job)).await)?;
        say(AttemptEvent::Begun, job);
        Ok(OpenAttempt { job: job.clone() })
    }

    pub async fn append(&self, job: &Job, key: &str, line: &str) -> Result<Appended, JobError> {
        through(job, self.fence.append(pass(job), key, format!("{line}\n")).await)
    }
}

fn say(what: AttemptEvent, job: &Job) {
    let (key, token) = attempt(job);
    println!("{SAYS}{what:?} {key} {token}");
}

fn through<T>(job: &Job, answer: Result<T, FenceError>) -> Result<T, JobError> {
    if matches!(answer, Err(FenceError::Stale { .. })) {
        say(AttemptEvent::Refused, job);
    }
    Ok(answer?)
}

fn pass(job: &Job) -> KeyToken {
    KeyToken::for_job(job.id(), job.token())
}

/// An attempt that is worked on.
pub struct OpenAttempt {
    job: Job,
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        say(AttemptEvent::Ended, &self.job);
    }
}

/// The side of the test: a process that works.
pub struct WorkerProcess {
    test: String,
    pub name: String,
    child: Child,
    /// `None`: it was asked to end.
    orders: Option<ChildStdin>,
}

impl WorkerProcess {
    /// Starts the test of this name as a process of its own; `told` is called with what it says.
    pub fn start(
        test: &str,
        name: &str,
        work_dir: &WorkDirectory,
        mut told: impl FnMut(ProcessEvent) + Send + 'static,
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(NAME, name)
            .env(ROOM, &work_dir.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if work_dir.clock().exists() {
            assert!(Path::new(FAKETIME).exists(), "`cargo xtask servers` installs {FAKETIME}");
            command
                .env("LD_PRELOAD", FAKETIME)
                .env("FAKETIME_TIMESTAMP_FILE", work_dir.clock())
                .env("FAKETIME_NO_CACHE", "1")
                // The wall clock alone: the boot-time clock is never set.
                .env("DONT_FAKE_MONOTONIC", "1");
        }
        let mut child = command.spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            // A line that was cut off by a kill is of no interest.
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.filter_map(|line| heard(&line)).for_each(&mut told);
        });
        WorkerProcess { test: test.to_owned(), name: name.to_owned(), child, orders: Some(orders) }
    }

    /// The same once more, after its end, with its output unread.
    pub fn again(&self, work_dir: &WorkDirectory) -> Self {
        WorkerProcess::start(&self.test, &self.name, work_dir, drop)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// `kill -9`. When this returns, it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it. When this returns, nothing of it runs.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_child(&self.child);
        let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{} ended by itself: {status:?}", self.name);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// The word to go on. One who is gone does not hear it.
    pub fn let_go(&mut self, (key, token): &AttemptKey) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{key} {token}");
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Has it end in good order.
    pub fn finish(mut self) {
        drop(self.orders.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{} ended with {status}", self.name);
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Also a failed test leaves no process behind, stopped or not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
