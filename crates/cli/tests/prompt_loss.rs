//! What another process does to a lease or to a claim reaches `run` and `work` at once, and what they give back is free at once.
//! With a ttl of a day their next renewal is hours away, and so is the end of a lease that is not given back.
#![cfg(all(feature = "file", feature = "server"))]

use rustix::process::Signal;

use crate::support::{DirectoryOwner, RunningProcess, TestDirectory, eventually, serve};

/// A command that says when it is up, and ends when it is asked to.
const HEEDS: &str = "trap 'echo asked >>asked; exit 3' TERM; echo up >>up; while :; do sleep 0.01; done";

/// A way for processes to reach a store.
struct StoreAccess {
    dir: TestDirectory,
    /// What every command line begins with.
    options: String,
    /// Who serves the store, where that is not the holder itself.
    _serves: Option<RunningProcess>,
}

impl StoreAccess {
    /// Starts a verb that runs the command, and waits until that is up.
    fn start(&self, words: &str) -> RunningProcess {
        let mut command = self.dir.command(&format!("{} {words} --ttl 24h", self.options));
        let running = RunningProcess::start(command.args(["--", "bash", "-c", HEEDS]));
        eventually("the command is up", || !self.dir.lines("up").is_empty());
        running
    }

    fn succeeds(&self, words: &str) {
        self.dir.succeeds(&format!("{} {words}", self.options));
    }

    fn assert_asked(&self) {
        assert!(!self.dir.lines("asked").is_empty(), "{:?}", self.options);
    }
}

/// The holder serves the directory itself; another process does; a server stands before it.
fn each_way() -> [StoreAccess; 3] {
    let (alone, beside, behind) = (TestDirectory::new(), TestDirectory::new(), TestDirectory::new());
    let DirectoryOwner(bystander) = DirectoryOwner::start(&beside);
    let (server, address) = serve(&behind, "127.0.0.1:0");
    let options = format!("--store http://{address}");
    [
        StoreAccess { dir: alone, options: String::new(), _serves: None },
        StoreAccess { dir: beside, options: String::new(), _serves: Some(bystander) },
        StoreAccess { dir: behind, options, _serves: Some(server) },
    ]
}

const WORK: &str = "work --queue q --drain-timeout 0s";

#[test]
fn run_hears_of_a_revocation_long_before_its_next_renewal() {
    for way in each_way() {
        let mut run = way.start("run --key k");
        way.succeeds("lease revoke k --reason 'host is gone'");
        run.finish().ended(76).says(&["host is gone"]);
        way.assert_asked();
    }
}

#[test]
fn work_hears_of_a_cancellation_long_before_its_next_renewal() {
    for way in each_way() {
        let id = way.dir.enqueue("1", "");
        let mut work = way.start(WORK);
        way.succeeds(&format!("job cancel {id} --reason 'wrong input'"));
        eventually("the job is cancelled", || way.dir.job(&id)["state"] == "cancelled");
        way.assert_asked();
        work.send(Signal::TERM);
        work.finish().ended(0);
    }
}

#[test]
fn run_gives_its_lease_back_when_its_command_ends() {
    for way in each_way() {
        let mut run = way.start("run --key k");
        run.send(Signal::TERM);
        run.finish().ended(3);
        // A try: it does not wait.
        way.succeeds("lease acquire k --ttl 1m");
    }
}

#[test]
fn work_gives_its_claim_back_when_it_is_ended() {
    for way in each_way() {
        let id = way.dir.enqueue("1", "");
        let mut work = way.start(WORK);
        work.send(Signal::TERM);
        work.finish().ended(0);
        way.assert_asked();
        assert_eq!(way.dir.job(&id)["state"], "queued", "{:?}", way.options);
    }
}
