//! A disk that is full or read-only, a directory of another user: the error names the directory and what to do, nothing
//! that was acknowledged is lost, and when the trouble is over the store goes on.
//!
//! The disks are real, small, and mounted where only these tests can see them: in a mount namespace of their own.
#![cfg(feature = "file")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{CommandOutput, RunningProcess, TestDirectory, Words, said};

const FULL: &str = "its disk is full: free some space";

/// A small disk, seen only by the commands that are sent into its namespace.
struct SmallDisk {
    dir: TestDirectory,
    /// Keeps the namespace alive, and with it the mount.
    keeper: RunningProcess,
}

impl SmallDisk {
    fn of_kib(kib: u32) -> Self {
        let dir = TestDirectory::new();
        std::fs::create_dir(dir.path("disk")).unwrap();
        let mount = format!("mount -t tmpfs -o size={kib}k none disk && echo mounted && read -r _");
        let mut keeper = Command::new("unshare");
        keeper.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]);
        let mut keeper = RunningProcess::start(keeper.current_dir(dir.path("")).stdin(Stdio::piped()));
        assert_eq!(
            keeper.line(),
            "mounted",
            "this test mounts a small disk, which takes user namespaces or root: {:?}",
            keeper.finish()
        );
        SmallDisk { dir, keeper }
    }

    /// The disk as this process sees it, which is not in its namespace.
    fn path(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.child.id()));
        root.join(self.dir.path("disk").strip_prefix("/").unwrap()).join(name)
    }

    fn command(&self, program: &str, words: impl Words) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.keeper.child.id().to_string())
            .arg(format!("--wdns={}", self.dir.path("").display()))
            .arg(program)
            .args(words.words())
            .env("FENCEHOLD_STORE", format!("file:{}?create=true", self.name()))
            .env("HOME", self.dir.path(""))
            .stdin(Stdio::null());
        command
    }

    /// The store's directory, as the commands know it.
    fn name(&self) -> String {
        self.dir.path("disk/leases").display().to_string()
    }

    fn fencehold(&self, words: impl Words) -> CommandOutput {
        said(&mut self.command(env!("CARGO_BIN_EXE_fencehold"), words))
    }

    fn fill(&self) {
        let ballast = std::fs::File::create(self.path("ballast")).unwrap();
        // In small pieces, to the last page.
        while std::io::Write::write_all(&mut &ballast, &[7; 4096]).is_ok() {}
    }

    fn make_room_for_a_few(&self) {
        let ballast = std::fs::OpenOptions::new().write(true).open(self.path("ballast")).unwrap();
        let bytes = ballast.metadata().unwrap().len();
        ballast.set_len(bytes - (96 << 10)).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.path("ballast")).unwrap();
    }

    fn remount(&self, options: &str) {
        let directory = self.dir.path("disk");
        let words = format!("-o remount,{options} {}", directory.display());
        said(&mut self.command("mount", &words)).ended(0);
    }

    fn token(&self, key: &str) -> u64 {
        let lease = self.fencehold(&format!("lease get {key} -o json")).ended(0).json();
        assert!(lease["holder"].is_object(), "{key} is held: {lease}");
        lease["token"].as_u64().unwrap()
    }

    fn take(&self, key: &str) -> CommandOutput {
        self.fencehold(&format!("lease acquire {key} --ttl 1h -o json"))
    }
}

#[test]
fn a_full_disk_is_said_and_when_it_has_room_again_nothing_is_missing() {
    let disk = SmallDisk::of_kib(768);
    assert_eq!(disk.take("kept").code, 0);
    disk.fill();
    for words in ["lease acquire more --ttl 1h", "run --key more -- touch ran"] {
        let said = disk.fencehold(words).ended(69).says(&[&disk.name(), FULL]);
        assert_eq!(said.err.matches("unavailable").count(), 1, "said once: {said:?}");
    }
    assert!(!disk.dir.path("ran").exists(), "what has no lease is not run");
    disk.free();
    assert_eq!(disk.token("kept"), 1);
    assert_eq!(disk.take("kept").code, 75, "it is still held");
    assert_eq!(disk.take("more").json()["token"], 1, "what was refused was not done");
}

/// The disk fills up under an owner, between one acknowledgement and the next.
#[test]
fn a_disk_that_fills_up_under_its_owner_loses_nothing_that_was_acknowledged() {
    let disk = SmallDisk::of_kib(768);
    let words = "run --key owner --ttl 1h -- sh -c 'echo runs; read -r _'";
    let mut holder = disk.command(env!("CARGO_BIN_EXE_fencehold"), words);
    let mut holder = RunningProcess::start(holder.stdin(Stdio::piped()));
    assert_eq!(holder.line(), "runs");
    disk.fill();
    disk.make_room_for_a_few();
    let mut acknowledged = Vec::new();
    let refused = loop {
        let key = format!("k/{}", acknowledged.len());
        let said = disk.take(&key);
        if said.code != 0 {
            break said;
        }
        acknowledged.push((key, said.json()["token"].as_u64().unwrap()));
        assert!(acknowledged.len() < 500, "the disk does not fill up");
    };
    refused.ended(69).says(&[&disk.name(), FULL]);
    assert!(!acknowledged.is_empty());
    disk.free();
    for (key, token) in &acknowledged {
        assert_eq!(disk.token(key), *token, "{key}");
        assert_eq!(disk.take(key).code, 75, "{key} is still held");
    }
    assert_eq!(disk.token("owner"), 1);
    assert_eq!(disk.take("later").code, 0);
    holder.say("");
    // The holder noticed nothing.
    holder.finish().ended(0);
}

#[test]
fn a_read_only_file_system_is_said_and_left_alone() {
    let disk = SmallDisk::of_kib(768);
    assert_eq!(disk.take("kept").code, 0);
    disk.remount("ro");
    let said = disk.fencehold("run --key k -- touch ran").ended(74);
    said.says(&[&disk.name(), "its file system is read-only: remount it for writing"]);
    assert!(!disk.dir.path("ran").exists());
    disk.remount("rw");
    assert_eq!(disk.token("kept"), 1);
}

/// Root may write everywhere, so another user asks.
#[test]
fn a_directory_that_this_user_may_not_write_is_said_and_left_alone() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold("run --key k -- true").code, 0);
    let inside = dir.path("leases");
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(&inside).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let before = names();
    let mut command = dir.command("run --key k -- true");
    if rustix::process::geteuid().is_root() {
        command = as_nobody(&dir, &command);
    } else {
        set_mode(&inside, 0o500);
    }
    let said = said(&mut command);
    set_mode(&inside, 0o700);
    said.ended(74).says(&[inside.to_str().unwrap(), "or name another directory"]);
    assert_eq!(before, names(), "nothing was touched");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The same command, by a user who may look into the directory and no more. The program is copied to where it can be read.
fn as_nobody(dir: &TestDirectory, command: &Command) -> Command {
    let program = dir.path("fencehold");
    std::fs::copy(command.get_program(), &program).unwrap();
    set_mode(&dir.path(""), 0o755);
    set_mode(&dir.path("leases"), 0o755);
    let mut other = Command::new("setpriv");
    other
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program)
        .args(command.get_args())
        .current_dir(dir.path(""))
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null());
    other
}
