//! The real binary, in a room of its own.

#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]
#![allow(unreachable_pub, reason = "it is a module of a test program")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

/// How long anything may take before the test has failed. Nothing waits this long when all is well.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory with a store in it, gone at the end.
pub struct TestDirectory {
    directory: tempfile::TempDir,
}

impl TestDirectory {
    pub fn new() -> Self {
        TestDirectory { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its store, which the first use creates.
    pub fn store(&self) -> String {
        format!("file:{}?create=true", self.path("leases").display())
    }

    /// A command line that knows nothing but this room.
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencehold"));
        command.args(words).env_clear().current_dir(self.directory.path());
        for kept in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command
            .env("HOME", self.directory.path())
            .env("FENCEHOLD_STORE", self.store())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line to its end.
    pub fn fencehold(&self, words: &[&str]) -> CommandOutput {
        said(&mut self.command(words))
    }

    /// Starts a command line and leaves it running.
    pub fn start(&self, words: &[&str]) -> RunningProcess {
        RunningProcess::start(&mut self.command(words))
    }

    /// The lines of a file in the room; none if it is not there.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Enqueues a job in the queue `q`, and gives its id.
    pub fn enqueue(&self, payload: &str, options: &[&str]) -> String {
        let mut words = vec!["job", "enqueue", "--queue", "q", "--kind", "k", "--payload", payload];
        words.extend(options);
        let said = self.fencehold(&words);
        assert_eq!(said.code, 0, "{said:?}");
        said.out.trim().to_owned()
    }

    /// What `job get -o json` says of a job.
    pub fn job(&self, id: &str) -> serde_json::Value {
        let said = self.fencehold(&["job", "get", id, "-o", "json"]);
        assert_eq!(said.code, 0, "{said:?}");
        said.json()
    }

    /// What happened so far, oldest first.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let said = self.fencehold(&["event", "ls", "-o", "jsonl"]);
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What `lease get -o json` says of a key.
    pub fn lease(&self, key: &str) -> serde_json::Value {
        let said = self.fencehold(&["lease", "get", key, "-o", "json"]);
        assert_eq!(said.code, 0, "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    }
}

/// A command that clap knows: a verb, or a group of them.
pub struct Verb {
    /// Its words, as in `lease acquire`.
    pub name: String,
    pub help: String,
    pub is_group: bool,
}

/// Every command, as the help lists them: each before those below it.
pub fn every_verb(dir: &TestDirectory) -> Vec<Verb> {
    fn add(dir: &TestDirectory, name: &str, all: &mut Vec<Verb>) {
        let said = said(&mut dir.command(name.split(' ').filter(|word| !word.is_empty()).chain(["--help"])));
        assert_eq!(said.code, 0, "{name}: {said:?}");
        let listed = said.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        // A description that takes more lines is indented further.
        let named = |line: &str| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned());
        let below: Vec<String> = listed.filter_map(named).filter(|name| !name.is_empty()).collect();
        all.push(Verb { name: name.to_owned(), is_group: !below.is_empty(), help: said.out });
        for below in below {
            add(dir, format!("{name} {below}").trim(), all);
        }
    }
    let mut all = Vec::new();
    add(dir, "", &mut all);
    assert!(all.iter().any(|verb| verb.name == "lease acquire"), "verbs below verbs are found");
    all
}

/// What a command line said, and how it ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        CommandOutput {
            code: code(output.status),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end, and says what it said.
pub fn said(command: &mut Command) -> CommandOutput {
    let mut running = RunningProcess::start(command);
    running.finish()
}

/// The exit code, or 128 + the signal.
pub fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A process that is killed at the latest when the test is over.
pub struct RunningProcess {
    pub child: Child,
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl RunningProcess {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().map(BufReader::new);
        RunningProcess { child, out }
    }

    /// One that was started elsewhere, whose streams are its own affair.
    pub fn adopt(child: Child) -> Self {
        RunningProcess { child, out: None }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn send(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Stops it. When this returns, nothing of it runs: a signal that was sent may take a while to reach every thread.
    pub fn stop(&self) {
        self.send(Signal::STOP);
        let waited = rustix::process::waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap();
        assert!(waited.is_some_and(|(_, status)| status.stopped()), "it ended by itself");
    }

    /// The next line on stdout.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end. What is left of its stdout and its stderr is read meanwhile.
    pub fn finish(&mut self) -> CommandOutput {
        drop(self.child.stdin.take());
        let mut streams = (self.out.take().unwrap(), self.child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            std::thread::scope(|scope| {
                scope.spawn(|| streams.0.read_to_end(&mut out));
                streams.1.read_to_end(&mut err)
            })
            .unwrap();
            (out, err)
        });
        let status = until("its end", || self.child.try_wait().unwrap());
        let (stdout, stderr) = reader.join().unwrap();
        Output { status, stdout, stderr }.into()
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server on the store of a room, and where it listens.
pub fn serve(dir: &TestDirectory, listen: &str) -> (RunningProcess, String) {
    let store = dir.store();
    let mut command = dir.command(["serve", "--listen", listen, "--store", &store]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "a server that starts");
        if let Some((_, address)) =
            line.trim_end().split_once("http://").filter(|_| line.contains("serving "))
        {
            break address.to_owned();
        }
    };
    // To the end: a full pipe would stop it.
    std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
    (RunningProcess::adopt(child), address)
}

/// Waits until something can be seen. The order of events is never left to this: only their arrival.
pub fn eventually(what: &str, mut seen: impl FnMut() -> bool) {
    until(what, || seen().then_some(()));
}

/// Waits until something can be had.
pub fn until<T>(what: &str, mut come: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(it) = come() {
            return it;
        }
        assert!(began.elapsed() < LIMIT, "never came: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}

/// Whether a process still runs: a zombie does not.
pub fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// The children of a process that have this name.
pub fn children(parent: Pid, name: &str) -> Vec<i32> {
    let parent = parent.as_raw_nonzero().get();
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let named =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(named)
        .collect()
}

/// A number as a process, to be signalled.
pub fn process(pid: i32) -> Pid {
    Pid::from_raw(pid).unwrap()
}

/// A process that serves the directory and plays no other part in a test.
pub struct DirectoryOwner(pub RunningProcess);

impl DirectoryOwner {
    pub fn start(dir: &TestDirectory) -> Self {
        let mut words = dir.command(["run", "--key", "bystander", "--", "sh", "-c", "echo up; read line"]);
        let mut running = RunningProcess::start(words.stdin(Stdio::piped()));
        assert_eq!(running.line(), "up");
        let bystander = DirectoryOwner(running);
        assert_eq!(owner(dir), bystander.0.child.id(), "the first process serves");
        bystander
    }
}

/// Who serves the directory.
pub fn owner(dir: &TestDirectory) -> u32 {
    let status = dir.fencehold(&["store", "status", "-o", "json"]).json();
    u32::try_from(status["owner_pid"].as_u64().unwrap()).unwrap()
}
