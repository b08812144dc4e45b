//! *GCS Race Conditions & Generation-Fenced Leases*: workers of a pipeline share a bucket and keep one lease object for each
//! step. A release that reads, compares and then deletes can delete the lease of the next worker; two workers that find an
//! expired lease can both replace it. The cure is a condition on every write: the generation that was read.
//!
//! | their word | ours | command |
//! |---|---|---|
//! | `leases/{stepId}.json` | the object of a key | `--store gs://BUCKET/PREFIX` |
//! | `acquireStepLease` | acquire | `fencehold lease acquire KEY --owner WORKER` |
//! | returns null: another worker has it | held, exit code 75 | the same |
//! | `releaseStepLease` | release; the object stays, so that tokens grow | `fencehold lease release KEY` |
//! | `token`, unique for each acquisition | hold id, a secret | `FENCEHOLD_HOLD_ID` |
//! | `holder` | owner | `fencehold lease get KEY` |
//! | `expiresAt`, judged by the worker's clock | ttl: the same writing was seen for so long | `--ttl` |
//! | generation, `ifGenerationMatch`, 412 | the condition of every write | seen at the storage |
//! | stale delete, a no-op after the fix | lost, exit code 76 | `fencehold lease release KEY` |
//! | reclaim an expired lease | take over, under a larger token | `fencehold lease acquire KEY --wait 1m` |
//! | poll again | wait | `--wait` |
#![cfg(feature = "object")]

use std::process::{Command, Stdio};

use fencehold_test_servers::object::{GcsServer, GcsWrite};
use serde_json::{Value, json};

use super::Trace;
use crate::support::{CommandOutput, RunningProcess, TestDirectory, assert_has, eventually, said};

/// Short enough to be waited out: a worker takes over after 1.25 of it and a second.
const DIES: &str = "--ttl 200ms";
const LIVES: &str = "--ttl 60s";

/// The workers' bucket.
struct Pipeline {
    dir: TestDirectory,
    storage: GcsServer,
}

impl Pipeline {
    fn command(&self, words: &str) -> Command {
        let endpoint = self.storage.endpoint();
        let options = "min_ttl_ms=100&min_write_interval_ms=0&probe=off";
        self.dir
            .command_on(&format!("gs://leases/pipeline?endpoint={endpoint}&{options}"), words)
    }

    fn fencehold(&self, words: &str) -> CommandOutput {
        said(&mut self.command(words))
    }

    fn acquisition(&self, worker: &str, options: &str) -> Command {
        self.command(&format!("lease acquire step-42 --owner {worker} {options} -o json"))
    }

    fn acquire(&self, worker: &str, options: &str) -> Value {
        said(&mut self.acquisition(worker, options)).ended(0).json()
    }

    /// A command of one who was granted the lease.
    fn holder(&self, words: &str, grant: &Value) -> Command {
        let mut command = self.command(words);
        command
            .env("FENCEHOLD_HOLD_ID", grant["hold_id"].as_str().unwrap())
            .env("FENCEHOLD_TOKEN", grant["token"].to_string());
        command
    }

    fn renew(&self, grant: &Value) -> CommandOutput {
        said(&mut self.holder("lease renew step-42", grant))
    }

    fn release(&self, grant: &Value) -> CommandOutput {
        said(&mut self.holder("lease release step-42", grant))
    }

    /// Who holds the step, and under which token.
    fn holds(&self, worker: &str, token: u64) {
        let lease = self.fencehold("lease get step-42 -o json").ended(0).json();
        assert_has(&lease, &json!({ "token": token }));
        assert_has(&lease["holder"], &json!({ "owner": worker }));
    }

    /// What was written to the step's object, or was to be.
    fn writes(&self) -> Vec<GcsWrite> {
        let writes = self.storage.writes().into_iter();
        writes.filter(|write| write.name.contains("step-42")).collect()
    }

    /// How many of these writes the storage has refused.
    fn refused_count(&self) -> usize {
        self.writes().iter().filter(|write| write.status == 412).count()
    }
}

#[test]
fn the_life_of_a_lease_object_and_its_two_races() {
    let pipeline = Pipeline { dir: TestDirectory::new(), storage: GcsServer::start() };
    // Storage that ignores conditions would be refused here.
    pipeline.fencehold("store probe").ended(0).prints(&["passed"]);

    one_worker_after_the_other(&pipeline);
    a_stale_release_deletes_nothing(&pipeline);
    one_of_two_reclaims(&pipeline);

    let mut trace = Trace::default();
    for write in pipeline.writes() {
        let body: Value = serde_json::from_str(&write.body).unwrap();
        trace.add(json!({
            "event": "write", "status": write.status, "if_generation_match": write.if_generation_match,
            "generation": write.generation, "token": body["token"], "holder": body["hold"]["owner"],
        }));
    }
    let write = |status: u16, token: u64, holder: Value| json!({ "status": status, "token": token, "holder": holder });
    trace.is(&[
        write(200, 1, json!("worker-1")),
        write(200, 1, json!("worker-1")),
        write(200, 1, Value::Null),
        write(200, 2, json!("worker-a")),
        write(200, 3, json!("worker-b")),
        write(412, 2, Value::Null), // A's release
        write(200, 3, json!("worker-b")),
        write(200, 3, Value::Null),
        write(200, 4, json!("worker-x")),
        write(200, 5, json!("worker-c")),
        write(412, 5, json!("worker-d")), // D's reclaim
        write(200, 5, json!("worker-c")),
        write(200, 5, Value::Null),
        write(200, 6, json!("worker-d")),
    ]);
    for line in &trace.0 {
        assert!(line["if_generation_match"].is_u64(), "a write without a condition: {line}");
        let is_met = line["if_generation_match"] == line["generation"];
        assert_eq!(is_met, line["status"] == 200, "the storage checks it: {line}");
    }

    let lease = pipeline.fencehold("lease get step-42 -o json").ended(0).json();
    let mut endings = Trace::from(lease["endings"].as_array().unwrap().clone());
    endings.0.sort_by_key(|ending| ending["token"].as_u64());
    let ending = |token: u64, owner: &str, outcome: &str| json!({ "token": token, "owner": owner, "outcome": outcome });
    endings.is(&[
        ending(1, "worker-1", "released"),
        ending(2, "worker-a", "expired"),
        ending(3, "worker-b", "released"),
        ending(4, "worker-x", "expired"),
        ending(5, "worker-c", "released"),
    ]);
}

/// Acquired, backed off from, renewed, released.
fn one_worker_after_the_other(pipeline: &Pipeline) {
    let grant = pipeline.acquire("worker-1", LIVES);
    let second = said(&mut pipeline.acquisition("worker-2", LIVES));
    second.ended(75).says(&["held by worker-1 under token 1"]);
    pipeline.renew(&grant).ended(0);
    pipeline.release(&grant).ended(0);
}

/// The first race. A has read its own lease when B takes over, and its release arrives after that.
fn a_stale_release_deletes_nothing(pipeline: &Pipeline) {
    let a = pipeline.acquire("worker-a", DIES);
    let late = pipeline.storage.hold_write("worker-a");
    let mut release = RunningProcess::start(&mut pipeline.holder("lease release step-42", &a));
    late.arrived();
    let b = pipeline.acquire("worker-b", &format!("{LIVES} --wait 60s"));
    assert_eq!(pipeline.refused_count(), 0, "A's release is under way");
    late.let_through();
    release
        .finish()
        .ended(76)
        .says(&["the lease under token 2 is over: it expired", "its token is now 3"]);
    assert_eq!(pipeline.refused_count(), 1, "412 to A");

    pipeline.holds("worker-b", 3);
    let third = said(&mut pipeline.acquisition("worker-c", LIVES));
    third.ended(75).says(&["held by worker-b under token 3"]);
    pipeline.renew(&b).ended(0);
    pipeline.renew(&a).ended(76);
    pipeline.release(&b).ended(0);
}

/// The second race. C and D have both read the lease of one that is gone, and both want to replace it.
fn one_of_two_reclaims(pipeline: &Pipeline) {
    pipeline.acquire("worker-x", DIES);
    let writes = ["worker-c", "worker-d"].map(|worker| pipeline.storage.hold_write(worker));
    let started = ["worker-c", "worker-d"].map(|worker| {
        let mut acquisition = pipeline.acquisition(worker, &format!("{LIVES} --wait 60s"));
        RunningProcess::start(acquisition.stdin(Stdio::null()))
    });
    let [mut c, mut d] = started;
    for write in &writes {
        write.arrived();
    }
    let [write_of_c, write_of_d] = writes;
    write_of_c.let_through();
    let c = c.finish().ended(0).json();
    write_of_d.let_through();
    eventually("D's write was answered", || {
        pipeline.writes().iter().any(|write| write.body.contains("worker-d"))
    });
    assert_eq!(pipeline.refused_count(), 2, "412 to D");

    pipeline.holds("worker-c", 5);
    assert!(!d.is_over(), "D was not granted the lease, and asks again");
    pipeline.renew(&c).ended(0);
    pipeline.release(&c).ended(0);
    assert_has(&d.finish().ended(0).json(), &json!({ "token": 6 }));
    pipeline.holds("worker-d", 6);
}
