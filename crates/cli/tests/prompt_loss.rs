//! What another process does to a lease or to a claim reaches `run` and `work` at once, and what they give back is free at once.
//! With a ttl of a day their next renewal is hours away, and so is the end of a lease that is not given back.
#![cfg(all(feature = "file", feature = "server"))]

use rustix::process::Signal;

use crate::support::{CommandOutput, DirectoryOwner, RunningProcess, TestDirectory, eventually, serve};

/// A command that says when it is up, and ends when it is asked to.
const HEEDS: &str = "trap 'echo asked >>asked; exit 3' TERM; echo up >>up; while :; do sleep 0.01; done";

/// A way for processes to reach a store.
struct StoreAccess {
    dir: TestDirectory,
    /// What every command line begins with.
    words: Vec<String>,
    /// Who serves the store, where that is not the holder itself.
    _serves: Option<RunningProcess>,
}

impl StoreAccess {
    fn command<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        self.words.iter().map(String::as_str).chain(words.iter().copied()).collect()
    }

    fn start(&self, words: &[&str]) -> RunningProcess {
        let running = self.dir.start(&self.command(words));
        eventually("the command is up", || !self.dir.lines("up").is_empty());
        running
    }

    fn fencehold(&self, words: &[&str]) -> CommandOutput {
        let said = self.dir.fencehold(&self.command(words));
        assert_eq!(said.code, 0, "{said:?}");
        said
    }
}

/// The holder serves the directory itself; another process does; a server stands before it.
fn each_way() -> [StoreAccess; 3] {
    let (alone, beside, behind) = (TestDirectory::new(), TestDirectory::new(), TestDirectory::new());
    let DirectoryOwner(bystander) = DirectoryOwner::start(&beside);
    let (server, address) = serve(&behind, "127.0.0.1:0");
    let words = vec!["--store".to_owned(), format!("http://{address}")];
    [
        StoreAccess { dir: alone, words: Vec::new(), _serves: None },
        StoreAccess { dir: beside, words: Vec::new(), _serves: Some(bystander) },
        StoreAccess { dir: behind, words, _serves: Some(server) },
    ]
}

#[test]
fn run_hears_of_a_revocation_long_before_its_next_renewal() {
    for way in each_way() {
        let mut run = way.start(&["run", "--key", "k", "--ttl", "24h", "--", "bash", "-c", HEEDS]);
        way.fencehold(&["lease", "revoke", "k", "--reason", "host is gone"]);
        let said = run.finish();
        assert_eq!(said.code, 76, "{:?}: {said:?}", way.words);
        assert!(said.err.contains("host is gone"), "{:?}: {said:?}", way.words);
        assert!(!way.dir.lines("asked").is_empty(), "{:?}", way.words);
    }
}

#[test]
fn work_hears_of_a_cancellation_long_before_its_next_renewal() {
    for way in each_way() {
        let id = way.dir.enqueue("1", &[]);
        let mut work = way.start(&[
            "work",
            "--queue",
            "q",
            "--ttl",
            "24h",
            "--drain-timeout",
            "0s",
            "--",
            "bash",
            "-c",
            HEEDS,
        ]);
        way.fencehold(&["job", "cancel", &id, "--reason", "wrong input"]);
        eventually("the job is cancelled", || way.dir.job(&id)["state"] == "cancelled");
        assert!(!way.dir.lines("asked").is_empty(), "{:?}", way.words);
        work.send(Signal::TERM);
        assert_eq!(work.finish().code, 0, "{:?}", way.words);
    }
}

#[test]
fn run_gives_its_lease_back_when_its_command_ends() {
    for way in each_way() {
        let mut run = way.start(&["run", "--key", "k", "--ttl", "24h", "--", "bash", "-c", HEEDS]);
        run.send(Signal::TERM);
        assert_eq!(run.finish().code, 3, "{:?}", way.words);
        // A try: it does not wait.
        way.fencehold(&["lease", "acquire", "k", "--ttl", "1m"]);
    }
}

#[test]
fn work_gives_its_claim_back_when_it_is_ended() {
    for way in each_way() {
        let id = way.dir.enqueue("1", &[]);
        let mut work = way.start(&[
            "work",
            "--queue",
            "q",
            "--ttl",
            "24h",
            "--drain-timeout",
            "0s",
            "--",
            "bash",
            "-c",
            HEEDS,
        ]);
        work.send(Signal::TERM);
        assert_eq!(work.finish().code, 0, "{:?}", way.words);
        assert!(!way.dir.lines("asked").is_empty(), "{:?}", way.words);
        assert_eq!(way.dir.job(&id)["state"], "queued", "{:?}", way.words);
    }
}
