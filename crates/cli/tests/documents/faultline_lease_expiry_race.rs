//! *Faultline*, the post on a job engine in PostgreSQL and its lease-expiry race: worker A claims a job with a ttl of a second
//! and stalls past it, worker B claims the job again, and A wakes up and still believes that it owns the job. A unique row for each
//! job does not stop A, which writes first; a token that grows with each claim, checked in the transaction that writes, does.
//!
//! | their word | ours | command |
//! |---|---|---|
//! | job, `jobs` table | job | `fencehold job enqueue` |
//! | lease-based claim, `lease_acquired` | claim, `job_claimed` | `fencehold job claim --queue Q --ttl 1s` |
//! | forced TTL expiry, reclaim | the attempt ends as `crashed`, and the job is claimed again | `fencehold job claim --wait 1m` |
//! | `fencing_token` | token | `FENCEHOLD_TOKEN` |
//! | ledger bound to `(job_id, fencing_token)` | effect, recorded once under the token | `fencehold.try_record_effect` |
//! | write gate | fence in your own transaction | `fencehold.fence_job` |
//! | `stale_write_blocked` with `stale_token`, `current_token` | the same event, with `token`, `current_token` | `fencehold event ls -o jsonl` |
//! | `worker_exit`, stale | lost, exit code 76 | `fencehold job complete` |
//! | validity depends on `NOW()` | the database's clock decides | `fencehold doctor` |
//! | barrier | the worker waits for a line | this test; `fencehold race run R06-job` |
//! | does renewal change the guarantee? | no: a renewal keeps its token | `fencehold job renew` |
#![cfg(feature = "postgres")]

use std::process::Stdio;

use fencehold_test_servers::postgres::{Admin, Durable, PostgresServer};
use serde_json::json;

use super::Trace;
use crate::support::{RunningProcess, TestDirectory, path_with_fencehold, said};

/// Claims the job for so long, says so, waits at the barrier, then charges the account. The check and the writes are one
/// transaction.
const WORKER: &str = r#"
vars=$(fencehold job claim --queue payments --ttl "$2" --wait 60s --owner "$1" -o env) || exit
eval "$vars"
echo "{\"event\":\"execution_started\",\"job_id\":\"$FENCEHOLD_JOB_ID\",\"token\":$FENCEHOLD_TOKEN,\"worker\":\"$1\"}"
read -r _
sql() { psql "$DATABASE" -qAtX -v ON_ERROR_STOP=1 -v VERBOSITY=verbose \
    -v job="$FENCEHOLD_JOB_ID" -v hold="$FENCEHOLD_HOLD_ID" -v token="$FENCEHOLD_TOKEN"; }
if [ "$3" = ungated ]; then
    # Nothing but UNIQUE(job_id) between the worker and its writes, until the fence is asked.
    sql <<'END' 2>refusal || true
BEGIN;
INSERT INTO ledger (job_id, fencing_token, cents) VALUES (:'job', :token, 250) RETURNING 'accepted by UNIQUE(job_id)';
UPDATE account SET balance = balance - 250;
SELECT fencehold.fence_job(:'job', :token);
COMMIT;
END
fi
fencehold job renew >renewed 2>&1; echo "{\"event\":\"heartbeat\",\"code\":$?,\"worker\":\"$1\"}"
mine=$(sql <<'END'
BEGIN;
SELECT fencehold.try_record_effect(:'job', :'hold', :token, 'charge', '250') IS NOT NULL AS mine \gset
\if :mine
INSERT INTO ledger (job_id, fencing_token, cents) VALUES (:'job', :token, 250);
UPDATE account SET balance = balance - 250;
\endif
COMMIT;
\echo :mine
END
)
fencehold job complete --result '{"charged":250}' >completed 2>&1
code=$?
case $mine,$code in
    t,0) echo '{"event":"worker_exit","reason":"success"}' ;;
    f,76) echo '{"event":"worker_exit","reason":"stale"}' ;;
    *) echo "{\"event\":\"worker_exit\",\"reason\":\"$mine, $code\"}" ;;
esac
"#;

fn state(database: &Admin) -> [String; 2] {
    let balance = database.value("SELECT balance FROM account");
    let ledger = "SELECT coalesce(string_agg(fencing_token || ': ' || cents, ', '), '') FROM ledger";
    [balance, database.value(ledger)]
}

#[test]
fn a_worker_stalled_past_its_ttl_writes_nothing() {
    let (dir, server) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let (store, database) = (server.url_text("fencehold"), server.admin());
    let fencehold = |words: &str| said(&mut dir.command_on(&store, words)).ended(0);
    fencehold("store migrate");
    database.run(
        "CREATE TABLE account (balance bigint NOT NULL);
         INSERT INTO account VALUES (1000);
         CREATE TABLE ledger (job_id uuid PRIMARY KEY, fencing_token bigint NOT NULL, cents bigint NOT NULL);",
    );
    let job = fencehold("job enqueue --queue payments --kind charge --payload '{\"cents\":250}'").out;
    let job = job.trim();

    let url = store.split('?').next().unwrap();
    let worker = |name: &str, ttl: &str, gate: &str| {
        let mut shell = dir.shell(WORKER);
        shell
            .args(["worker", name, ttl, gate])
            .env("FENCEHOLD_STORE", &store)
            .env("DATABASE", url);
        RunningProcess::start(shell.env("PATH", path_with_fencehold()).stdin(Stdio::piped()))
    };
    let mut trace = Trace::default();

    let mut a = worker("A", "1s", "ungated");
    trace.add(a.json_line());
    // It waits until A's claim has run out: nothing but the database's clock ends it.
    let mut b = worker("B", "60s", "");
    trace.add(b.json_line());
    assert_eq!(state(&database), ["1000", ""]);

    // A wakes up. The row that it writes first is one that UNIQUE(job_id) accepts.
    a.say("go on");
    assert_eq!(a.line(), "accepted by UNIQUE(job_id)");
    trace.add(a.json_line());
    trace.add(a.json_line());
    a.finish();
    assert!(dir.lines("refusal").join("\n").contains("FH001"), "{:?}", dir.lines("refusal"));
    assert_eq!(state(&database), ["1000", ""], "nothing of what A wrote is there");

    b.say("go on");
    trace.add(b.json_line());
    trace.add(b.json_line());
    b.finish();
    assert_eq!(state(&database), ["750", "2: 250"], "charged once, by the one that owns the job");
    trace.is(&[
        json!({ "event": "execution_started", "job_id": job, "token": 1, "worker": "A" }),
        json!({ "event": "execution_started", "job_id": job, "token": 2, "worker": "B" }),
        json!({ "event": "heartbeat", "code": 76, "worker": "A" }),
        json!({ "event": "worker_exit", "reason": "stale" }),
        json!({ "event": "heartbeat", "code": 0, "worker": "B" }),
        json!({ "event": "worker_exit", "reason": "success" }),
    ]);

    let events = fencehold("event ls -o jsonl").json_lines();
    let blocked = |action: &str| json!({ "type": "stale_write_blocked", "action": action, "token": 1, "current_token": 2 });
    Trace::from(events).is(&[
        json!({ "type": "job_enqueued" }),
        json!({ "type": "job_claimed", "token": 1, "owner": "A" }),
        json!({ "type": "job_attempt_ended", "token": 1, "outcome": "crashed" }),
        json!({ "type": "job_claimed", "token": 2, "owner": "B" }),
        blocked("renew"),
        blocked("record_effect"),
        blocked("complete"),
        json!({ "type": "job_attempt_ended", "token": 2, "outcome": "completed" }),
    ]);
}
