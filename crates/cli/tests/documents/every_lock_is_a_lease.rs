//! *Every lock is a lease*, a field note: a lock that can outlive its holder is a deadlock to come. So every lock has a ttl that the
//! store enforces, an owner and a task, a heartbeat, and a token that what it protects checks. The bar: `kill -9` anything at
//! any moment, and there is nothing to clean up.
//!
//! | their word | ours | command |
//! |---|---|---|
//! | lock, claim, `claimed_by`, "in progress" flag | lease on a key | `fencehold run --key KEY -- CMD` |
//! | TTL, enforced by the store | ttl | `--ttl`; without one it is 30s |
//! | identity that may renew | owner, and a secret hold id | `--owner` |
//! | task or run that it serves | task | `--task`, `fencehold lease ls --task TASK` |
//! | heartbeat at a third of the ttl | renewal | `run` does it |
//! | fencing token | token | `FENCEHOLD_TOKEN` |
//! | downstream rejects a stale token | fence; the refusal is on record | `POST /v1/leases/report-blocked-write` |
//! | force-release, recorded | revoke, with a name and a reason | `fencehold lease revoke --task TASK --reason WHY` |
//! | supervisor | any process; it finds claims by their task | `fencehold lease ls --task TASK` |
//! | expired against released | how leases ended | `fencehold lease stats` |
//! | failed acquisition as a signal | counted; the caller decides what to do | `fencehold_acquire_contended_total` |
//! | `DELETE FROM locks` | never | |
#![cfg(all(feature = "file", feature = "server"))]

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Trace, http};
use crate::support::{
    CommandOutput, RunningProcess, TestDirectory, assert_has, each, eventually, get_page,
    path_with_fencehold, runs, said, serve, until,
};

/// Long enough for a holder that gets no processor for a while, short enough to be waited out.
const TTL: &str = "--ttl 3s";
const TTL_MS: u64 = 3_000;

/// A command that says that it runs, and runs until it is given a line.
const UNTIL_TOLD: &str = "sh -c 'echo up $$ $FENCEHOLD_TOKEN; read line'";

/// Starts two workers that do not end with it, says so, and waits.
const SUPERVISOR: &str = "for key in crawl/c crawl/d; do
        setsid fencehold run --key $key --owner agent-$key --task run-43 -- \
            sh -c 'echo $$ >pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &
        until [ -s pid ]; do sleep 0.01; done; cat pid; rm pid
    done
    read line";

/// Looks at what the one before it has left, and ends it by force.
const NEXT_SUPERVISOR: &str = "fencehold lease ls --task run-43 -o json &&
    fencehold lease revoke --task run-43 --reason 'its supervisor is gone' --by supervisor-2 >&2";

/// Clients of one server.
struct Locks {
    dir: TestDirectory,
    address: String,
    server: RunningProcess,
}

impl Locks {
    fn start() -> Self {
        let dir = TestDirectory::new();
        let (server, address) = serve(&dir, "127.0.0.1:0");
        Locks { dir, address, server }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = self.dir.command_on(&format!("http://{}", self.address), words);
        command.env("PATH", path_with_fencehold());
        command
    }

    fn fencehold(&self, words: &str) -> CommandOutput {
        said(&mut self.command(words))
    }

    fn json(&self, words: &str) -> Value {
        self.fencehold(&format!("{words} -o json")).ended(0).json()
    }

    /// Starts a holder whose command runs until it is given a line; the command's process, and the token.
    fn hold(&self, words: &str) -> (RunningProcess, i32, u64) {
        let mut command = self.command(&format!("run {words} -- {UNTIL_TOLD}"));
        let mut running = RunningProcess::start(command.stdin(Stdio::piped()));
        let line = running.line();
        let numbers: Vec<&str> = line.strip_prefix("up ").unwrap().split(' ').collect();
        (running, numbers[0].parse().unwrap(), numbers[1].parse().unwrap())
    }

    /// What happened to a key.
    fn trace(&self, key: &str) -> Trace {
        Trace::from(
            self.fencehold(&format!("event ls --prefix {key} -o jsonl"))
                .ended(0)
                .json_lines(),
        )
    }
}

/// What the lease on `crawl/a` protects: it takes no token below the largest that it has seen.
fn write_downstream(locks: &Locks, mark: &mut u64, token: u64) -> bool {
    if token < *mark {
        let refused = json!({ "key": "crawl/a", "token": token, "action": "write" });
        let (status, answer) =
            http(&locks.address, "POST", "/leases/report-blocked-write", &refused.to_string());
        assert_eq!(status, 200, "{answer}");
        return false;
    }
    *mark = token;
    true
}

#[test]
fn kill_the_holder_the_supervisor_and_the_server_and_clean_nothing_up() {
    let mut locks = Locks::start();
    let (mut steady, _, steady_token) =
        locks.hold(&format!("--key crawl/steady --owner agent-s --task run-41 {TTL}"));
    the_holder_and_the_supervisor_are_killed(&locks);

    // One long job is many renewals of a short lease.
    let steady_lease = until("older than its ttl", || {
        let lease = locks.json("lease get crawl/steady");
        (lease["holder"]["age_ms"].as_u64()? > TTL_MS).then_some(lease)
    });
    assert_has(&steady_lease, &json!({ "token": steady_token }));
    steady.say("enough");
    steady.finish().ended(0);

    the_server_is_killed(&mut locks);
    let stats = locks.json("lease stats --since 1h");
    let counts = json!({ "released_count": 4, "expired_count": 2, "revoked_count": 2, "complete": true });
    assert_has(&stats, &counts);
    assert_eq!(locks.json("lease ls")["leases"], json!([]), "nothing is held");

    let acquired =
        |owner: &str, token: u64| json!({ "type": "lease_acquired", "owner": owner, "token": token });
    let ended = |owner: &str, token: u64, outcome: &str| json!({ "type": "lease_ended", "owner": owner, "token": token, "outcome": outcome });
    locks
        .trace("crawl/steady")
        .is(&[acquired("agent-s", 1), ended("agent-s", 1, "released")]);
    locks.trace("crawl/a").is(&[
        acquired("agent-a", 1),
        ended("agent-a", 1, "expired"),
        acquired("agent-b", 2),
        json!({ "type": "stale_write_blocked", "token": 1, "current_token": 2 }),
        ended("agent-b", 2, "released"),
    ]);
    locks.trace("supervisor").is(&[
        acquired("supervisor-1", 1),
        ended("supervisor-1", 1, "expired"),
        acquired("supervisor-2", 2),
        ended("supervisor-2", 2, "released"),
    ]);
    for key in ["crawl/c", "crawl/d"] {
        let owner = format!("agent-{key}");
        let by = json!({ "outcome": "revoked", "by": "supervisor-2", "reason": "its supervisor is gone" });
        let mut trace = locks.trace(key);
        // It learns of it when it wants to renew, and stops.
        let blocked =
            json!({ "type": "stale_write_blocked", "token": 1, "current_token": 2, "outcome": "revoked" });
        let refused = trace.0.split_off(2);
        assert!(!refused.is_empty(), "it was never refused: {:?}", trace.0);
        trace.is(&[acquired(&owner, 1), ended(&owner, 1, "revoked")]);
        assert_has(&trace.0[1], &by);
        for line in &refused {
            assert_has(line, &blocked);
        }
        assert_eq!(locks.json(&format!("lease get {key}"))["token"], 2, "force consumes a token");
    }
    locks
        .trace("crawl/h")
        .is(&[acquired("agent-h", 1), ended("agent-h", 1, "released")]);
}

fn the_holder_and_the_supervisor_are_killed(locks: &Locks) {
    let (mut a, a_command, a_token) =
        locks.hold(&format!("--key crawl/a --owner agent-a --task run-42 {TTL}"));
    let mut supervisor =
        locks.command(&format!("run --key supervisor --owner supervisor-1 {TTL} -- bash -c"));
    let mut supervisor = RunningProcess::start(supervisor.arg(SUPERVISOR).stdin(Stdio::piped()));
    let children: Vec<i32> = (0..2).map(|_| supervisor.line().parse().unwrap()).collect();

    // Who, and for what.
    let held = locks.json("lease ls --task run-42")["leases"].clone();
    assert_has(&held[0]["holder"], &json!({ "owner": "agent-a", "task": "run-42" }));
    assert_eq!(each(&locks.json("lease ls --task run-43")["leases"], "key"), ["crawl/c", "crawl/d"]);
    // One that is refused learns who has it, and is counted.
    locks.fencehold("lease acquire crawl/a").ended(75).says(&["agent-a", "run-42"]);
    let metrics = get_page(&locks.address, "/metrics");
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fencehold_acquire_contended_total "));
    assert_ne!(counted, Some("0"), "{metrics}");

    let mut next = locks.command("run --key supervisor --owner supervisor-2 --wait 60s -- bash -c");
    let mut next = RunningProcess::start(&mut *next.arg(NEXT_SUPERVISOR));
    let b = format!("run --key crawl/a --owner agent-b --task run-42 --wait 60s -- {UNTIL_TOLD}");
    let mut b = RunningProcess::start(locks.command(&b).stdin(Stdio::piped()));
    for key in ["supervisor", "crawl/a"] {
        eventually("in line", || locks.json(&format!("lease get {key}"))["waiter_count"] == 1);
    }
    for killed in [&mut a, &mut supervisor] {
        killed.send(Signal::KILL);
        killed.finish();
    }

    // The ttl does the rest.
    let mut mark = 0;
    assert!(write_downstream(locks, &mut mark, a_token));
    let line = b.line();
    assert!(!runs(a_command), "what A had started is gone before B starts");
    let b_token = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(write_downstream(locks, &mut mark, b_token));
    assert!(!write_downstream(locks, &mut mark, a_token), "what A had sent arrives after that");
    b.say("enough");
    b.finish().ended(0);

    let seen = next.finish().ended(0).json();
    assert_eq!(each(&seen["leases"], "key"), ["crawl/c", "crawl/d"], "claims of one that is gone");
    for child in children {
        eventually("their work is ended", || !runs(child));
    }
}

/// A holder outlives the server, and finds its lease as it was.
fn the_server_is_killed(locks: &mut Locks) {
    let (mut h, _, token) = locks.hold("--key crawl/h --owner agent-h --task run-44 --ttl 30s");
    locks.server.send(Signal::KILL);
    locks.server.child.wait().unwrap();
    let (server, address) = serve(&locks.dir, &locks.address);
    assert_eq!(address, locks.address);
    locks.server = server;
    let lease = locks.json("lease get crawl/h");
    assert_has(&lease, &json!({ "token": token }));
    assert_has(&lease["holder"], &json!({ "owner": "agent-h", "task": "run-44" }));
    locks.fencehold("lease acquire crawl/h").ended(75);
    h.say("enough");
    h.finish().ended(0);
}
