//! Real processes, killed and stopped in the middle of a step. The process is this test binary once more, told by its
//! environment what to do and at which operation of its disk it is to die.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencehold_core::{Key, Namespace, Token};
use futures_channel::oneshot;
use rustix::process::{Pid, Signal, WaitOptions};

use super::super::batch::{BatchWriter, FileRequest};
use super::super::disk::{Disk, FileStat, Folder, Name, RealDisk};
use super::super::folder::FenceFolder;
use super::super::frame::AppendId;
use super::super::journal::Journal;
use super::super::{Appended, FencedFile};
use crate::fence::error::FenceError;
use crate::fence::key_token::KeyToken;
use crate::wake::block_on;

const LINES: usize = 5;
/// Small, so that the journal is written anew in the middle of the story.
const SLACK_BYTES: u64 = 300;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A real disk that ends or stops its own process at a chosen operation; a write is then half done.
struct KillingDisk {
    disk: RealDisk,
    left: u32,
    signal: Signal,
}

impl KillingDisk {
    fn at_last(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    fn end(&self) {
        rustix::process::kill_process(rustix::process::getpid(), self.signal).unwrap();
    }

    fn step(&mut self) -> &mut RealDisk {
        if self.at_last() {
            self.end();
        }
        &mut self.disk
    }
}

impl Disk for KillingDisk {
    fn stat(&mut self, name: Name) -> io::Result<Option<FileStat>> {
        self.step().stat(name)
    }

    fn read(&mut self, name: Name, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.step().read(name, offset, length)
    }

    fn write(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.at_last() {
            self.disk.write(name, offset, &bytes[..bytes.len() / 2])?;
            self.end();
        }
        self.disk.write(name, offset, bytes)
    }

    fn truncate(&mut self, name: Name, length: u64) -> io::Result<()> {
        self.step().truncate(name, length)
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        self.step().sync(name)
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.step().remove(name)
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        self.step().rename(from, to)
    }

    fn sync_folder(&mut self, folder: Folder) -> io::Result<()> {
        self.step().sync_folder(folder)
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn pass(name: &str, token: u64) -> KeyToken {
    KeyToken::new(key(name), Token::new(token))
}

fn line(name: &str, number: usize) -> String {
    format!("{name} {number} {}\n", "x".repeat(number * 40))
}

/// Appends the lines of these keys, one step each, as a process that may have done so before.
fn append_all(writer: &mut BatchWriter<KillingDisk>, names: &[&str], token: u64) {
    for number in 0..LINES {
        for name in names {
            let pass = pass(name, token);
            let made = AppendId::new(&pass.namespace, &pass.key, &number.to_string());
            let (answer, mut answered) = oneshot::channel();
            let bytes = line(name, number).into();
            writer.carry_out(vec![FileRequest::Append { pass, made, bytes, answer }]);
            let answer = answered.try_recv().unwrap().expect("everybody is answered");
            assert!(matches!(answer, Ok(Appended::New | Appended::Duplicate)), "{answer:?}");
        }
    }
}

/// The other process. Does nothing when it is run as one of the tests.
#[test]
fn the_other_process() {
    let Ok(path) = std::env::var("FENCE_TEST_FILE") else { return };
    let word = |name: &str| std::env::var(name).unwrap();
    let signal = if word("FENCE_TEST_SIGNAL") == "stop" { Signal::STOP } else { Signal::KILL };
    let folder = FenceFolder::open(Path::new(&path), TIMEOUT).unwrap();
    let disk = KillingDisk { disk: folder.disk(), left: word("FENCE_TEST_AT").parse().unwrap(), signal };
    let mut writer = BatchWriter::new(folder, Journal::new(disk, 1_000, SLACK_BYTES));
    let names = word("FENCE_TEST_KEYS");
    append_all(&mut writer, &names.split(' ').collect::<Vec<_>>(), 1);
}

fn start(path: &Path, at: u32, signal: &str, keys: &str) -> Child {
    let mut other = Command::new(std::env::current_exe().unwrap());
    other
        .args(["--exact", "fence::file::tests::kill::the_other_process"])
        .env("FENCE_TEST_FILE", path)
        .env("FENCE_TEST_AT", at.to_string())
        .env("FENCE_TEST_SIGNAL", signal)
        .env("FENCE_TEST_KEYS", keys)
        .stdout(Stdio::null());
    other.spawn().unwrap()
}

/// One that is stopped well inside its first append: past the lock, before the answer.
fn start_and_stop(path: &Path) -> (Child, Pid) {
    let other = start(path, 12, "stop", "job/1");
    let pid = Pid::from_child(&other);
    let stopped = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    stopped.expect("it stops");
    (other, pid)
}

/// Whether it was killed; if not, it came to its end.
fn was_killed(mut other: Child) -> bool {
    let status = other.wait().unwrap();
    assert!(status.success() || status.signal() == Some(Signal::KILL.as_raw()), "{status}");
    !status.success()
}

fn assert_each_line_once(path: &Path, names: &[&str]) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut found: Vec<&str> = text.split_inclusive('\n').collect();
    let lines = names.iter().flat_map(|name| (0..LINES).map(|number| line(name, number)));
    let mut expected: Vec<String> = lines.collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn killed_at_every_operation_each_line_is_there_once() {
    let mut kills = 0;
    for at in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.log");
        let killed = was_killed(start(&path, at, "kill", "job/1"));
        // The next holder takes over, and does all of it again.
        let file = block_on(FencedFile::open(&path)).unwrap();
        block_on(file.raise(pass("job/1", 2))).unwrap();
        for number in 0..LINES {
            let appended =
                block_on(file.append(pass("job/1", 2), &number.to_string(), line("job/1", number)));
            assert!(killed || appended == Ok(Appended::Duplicate), "killed at {at}: {appended:?}");
        }
        assert_each_line_once(&path, &["job/1"]);
        let stale = block_on(file.append(pass("job/1", 1), "late", "too late\n"));
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 60, "the story has more operations than {kills}");
}

#[test]
fn several_at_once_that_are_killed_and_come_back_write_each_line_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.log");
    let names = ["job/1", "job/2", "job/3", "job/4"];
    let kills = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (name, first) in names.iter().zip([7, 23, 41, 55]) {
            let (path, kills) = (&path, &kills);
            scope.spawn(move || {
                // All write the lines of `shared`, too.
                let (keys, mut at) = (format!("shared {name}"), first);
                while was_killed(start(path, at, "kill", &keys)) {
                    at += 17;
                    kills.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let kills = kills.into_inner();
    assert!(kills >= 4, "only {kills} were killed");
    assert_each_line_once(&path, &["shared", "job/1", "job/2", "job/3", "job/4"]);
}

#[test]
fn one_who_is_stopped_in_the_middle_is_named_and_goes_on_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.log");
    let file = block_on(FencedFile::options().timeout(Duration::ZERO).open(&path)).unwrap();
    let (mut other, pid) = start_and_stop(&path);
    let busy = block_on(file.raise(pass("job/1", 2))).unwrap_err();
    assert!(matches!(busy, FenceError::Busy { pid: Some(pid), .. } if pid == other.id()), "{busy:?}");
    assert!(busy.is_retryable());

    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert!(other.wait().unwrap().success());
    block_on(file.raise(pass("job/1", 2))).unwrap();
    assert_each_line_once(&path, &["job/1"]);
}

#[test]
fn one_who_is_killed_while_it_is_stopped_lets_go_of_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.log");
    let (mut other, _) = start_and_stop(&path);
    other.kill().unwrap();
    other.wait().unwrap();
    let file = block_on(FencedFile::options().timeout(Duration::ZERO).open(&path)).unwrap();
    block_on(file.raise(pass("job/1", 2))).unwrap();
    let mark = block_on(file.mark(&Namespace::default(), &key("job/1"))).unwrap().unwrap();
    assert_eq!(mark.token, Token::new(2));
}
