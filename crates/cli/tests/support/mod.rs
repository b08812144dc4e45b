//! The real binary, in a room of its own.

#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]
#![allow(unreachable_pub, reason = "it is a module of a test program")]

pub mod terminal;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fencehold_test_servers::object::{ACCOUNT, ACCOUNT_KEY};
use rustix::process::{Pid, Signal, WaitOptions};
use serde_json::Value;

/// How long anything may take before the test has failed. Nothing waits this long when all is well.
const LIMIT: Duration = Duration::from_secs(120);

/// The words of a command line.
pub trait Words {
    fn words(self) -> Vec<OsString>;
}

/// As in a shell, but that single quotes stand around a whole word.
impl Words for &str {
    fn words(self) -> Vec<OsString> {
        let parts = self.split('\'').enumerate();
        let words = parts.flat_map(|(nth, part)| match nth % 2 {
            0 => part.split_whitespace().map(Into::into).collect(),
            _ => vec![part.into()],
        });
        words.collect()
    }
}

impl Words for &String {
    fn words(self) -> Vec<OsString> {
        self.as_str().words()
    }
}

impl<W: AsRef<OsStr>> Words for &[W] {
    fn words(self) -> Vec<OsString> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<W: AsRef<OsStr>, const N: usize> Words for &[W; N] {
    fn words(self) -> Vec<OsString> {
        self.as_slice().words()
    }
}

impl<W: AsRef<OsStr>> Words for &Vec<W> {
    fn words(self) -> Vec<OsString> {
        self.as_slice().words()
    }
}

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
    pub fn command(&self, words: impl Words) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencehold"));
        command.args(words.words()).env_clear().current_dir(self.directory.path());
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

    /// A command line on a store elsewhere, with the credentials that the servers for tests know.
    pub fn command_on(&self, store: &str, words: impl Words) -> Command {
        let mut command = self.command(words);
        command.env("FENCEHOLD_STORE", store).envs([
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AZURE_STORAGE_ACCOUNT", ACCOUNT),
            ("AZURE_STORAGE_KEY", ACCOUNT_KEY),
        ]);
        command
    }

    /// A script for a shell that knows the store.
    pub fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", script])
            .current_dir(self.directory.path())
            .env("FENCEHOLD_STORE", self.store());
        shell
    }

    /// Runs a command line to its end.
    pub fn fencehold(&self, words: impl Words) -> CommandOutput {
        said(&mut self.command(words))
    }

    /// Runs a command line that succeeds.
    #[track_caller]
    pub fn succeeds(&self, words: impl Words) -> CommandOutput {
        self.fencehold(words).ended(0)
    }

    /// What a command line that succeeds shows as JSON.
    #[track_caller]
    pub fn json(&self, words: impl Words) -> Value {
        said(self.command(words).args(["-o", "json"])).ended(0).json()
    }

    /// Runs a command line that succeeds and prints all of this.
    #[track_caller]
    pub fn shows(&self, words: impl Words, parts: &[&str]) -> CommandOutput {
        self.succeeds(words).prints(parts)
    }

    /// Runs a command line that ends with this exit code and says all of this on stderr.
    #[track_caller]
    pub fn fails(&self, words: impl Words, code: i32, says: &[&str]) -> CommandOutput {
        self.fencehold(words).ended(code).says(says)
    }

    /// Starts a command line and leaves it running.
    pub fn start(&self, words: impl Words) -> RunningProcess {
        RunningProcess::start(&mut self.command(words))
    }

    /// The lines of a file in the room; none if it is not there.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Enqueues a job in the queue `q`, and gives its id.
    pub fn enqueue(&self, payload: &str, options: impl Words) -> String {
        let mut command = self.command("job enqueue --queue q --kind k --payload");
        said(command.arg(payload).args(options.words())).ended(0).out.trim().to_owned()
    }

    /// What `job get -o json` says of a job.
    pub fn job(&self, id: &str) -> Value {
        self.json(&["job", "get", id])
    }

    /// What happened so far, oldest first.
    pub fn events(&self) -> Vec<Value> {
        self.succeeds("event ls -o jsonl").json_lines()
    }

    /// What `lease get -o json` says of a key.
    pub fn lease(&self, key: &str) -> Value {
        self.json(&["lease", "get", key])
    }
}

/// Where programs are looked for, the real binary first.
pub fn path_with_fencehold() -> std::ffi::OsString {
    let ours = std::path::Path::new(env!("CARGO_BIN_EXE_fencehold")).parent().unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(ours.to_owned()).chain(std::env::split_paths(&others))).unwrap()
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
        let said = dir.succeeds(&format!("{name} --help"));
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
    /// The command line with its environment.
    #[expect(dead_code, reason = "it is shown where a test fails")]
    command: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Each line of stdout.
    pub fn json_lines(&self) -> Vec<Value> {
        let parsed = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.out.lines().map(parsed).collect()
    }

    /// It must have ended with this exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// All of this must be on stderr.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not on stderr: {self:?}");
        }
        self
    }

    /// All of this must be on stdout.
    #[track_caller]
    pub fn prints(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is not on stdout: {self:?}");
        }
        self
    }
}

/// The one element of a list that has this value in this field.
pub fn found<'a>(list: &'a Value, field: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    let found = list.as_array().unwrap().iter().find(|element| element[field] == value);
    found.unwrap_or_else(|| panic!("no element has the {field} {value}: {list}"))
}

/// This field of every element of a list.
pub fn each<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let elements = list.as_array().unwrap().iter();
    elements.map(|element| element[field].as_str().unwrap()).collect()
}

/// An object must have these fields, beside others.
#[track_caller]
pub fn assert_has(seen: &Value, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(&seen[name], value, "{name} of {seen}");
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
    command: String,
    pub child: Child,
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl RunningProcess {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().map(BufReader::new);
        RunningProcess { command: format!("{command:?}"), child, out }
    }

    /// One that was started elsewhere, whose streams are its own affair.
    pub fn adopt(child: Child) -> Self {
        RunningProcess { command: String::new(), child, out: None }
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

    /// The next line on stdout, which is JSON.
    pub fn json_line(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
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
        let (out, err) = reader.join().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let command = self.command.clone();
        CommandOutput { command, code: code(status), out: text(out), err: text(err) }
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
    serve_with(dir.command(&format!("serve --listen {listen} --store {}", dir.store())))
}

/// The same by this command.
pub fn serve_with(mut command: Command) -> (RunningProcess, String) {
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

/// What a server sends to a reader of a page.
pub fn get_page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains(" 200 OK\r\n"), "{path}: {response}");
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
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
    // Each thread has those that it started.
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let list: String = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .collect();
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
        let mut words = dir.command("run --key bystander -- sh -c 'echo up; read line'");
        let mut running = RunningProcess::start(words.stdin(Stdio::piped()));
        assert_eq!(running.line(), "up");
        let bystander = DirectoryOwner(running);
        assert_eq!(owner(dir), bystander.id(), "the first process serves");
        bystander
    }

    pub fn id(&self) -> u32 {
        self.0.child.id()
    }

    pub fn kill(mut self) {
        self.0.child.kill().unwrap();
        self.0.finish();
    }
}

/// The gates of a store's directory.
pub struct Gates(PathBuf);

impl Gates {
    pub fn of(dir: &TestDirectory) -> Self {
        let gates = Gates(dir.path("leases/gates"));
        fs::create_dir(&gates.0).unwrap();
        gates
    }

    pub fn close(&self, name: &str) {
        fs::write(self.0.join(format!("{name}.closed")), "").unwrap();
    }

    pub fn open(&self, name: &str) {
        fs::remove_file(self.0.join(format!("{name}.closed"))).unwrap();
    }

    /// Which process stands at a closed gate.
    pub fn reached(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.0.join(format!("{name}.reached"))).ok()?.parse().ok()
    }
}

/// Who serves the directory.
pub fn owner(dir: &TestDirectory) -> u32 {
    let status = dir.json("store status");
    u32::try_from(status["owner_pid"].as_u64().unwrap()).unwrap()
}
