//! An operator ends a job in place of its worker, and settles an operation whose holder died.

use std::process::Command;

use serde_json::{Value, json};

use super::claim;
use crate::support::{TestDirectory, assert_has, eventually, said, serve};

#[test]
fn a_job_is_completed_or_failed_in_place_of_its_worker() {
    for (verb, state) in [("complete", "completed"), ("fail", "failed")] {
        let dir = TestDirectory::new();
        let id = dir.enqueue("1", "");
        let held = claim(&dir, "--ttl 1h --owner me");
        let forced = dir.json(&format!("job {verb} {id} --force --reason seen --by ada"));
        assert_eq!(forced["results"], json!([{ "ok": { "job_id": id, "state": state } }]));
        held.say(&dir, "job complete").ended(76);
        let again = dir.fencehold(&format!("job {verb} {id} --force --reason seen"));
        assert!(again.code != 0 && again.err.contains(state), "{again:?}");
        let events = dir.events();
        let event = events
            .iter()
            .find(|event| event["type"] == "job_ended_by_force")
            .expect("recorded");
        assert_has(event, &json!({ "by": "ada", "reason": "seen", "state": state }));
        dir.shows(&format!("explain {id}"), &[&format!("{state} by ada: seen")]);
    }
}

#[test]
fn force_wants_a_job_and_a_reason_and_no_proof() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    for words in [
        format!("job complete {id} --force"),
        "job complete --force --reason seen".to_owned(),
        format!("job complete {id} --reason seen"),
        format!("job complete {id} --force --reason seen --token 7"),
        format!("job fail {id} --force --reason seen --error e"),
    ] {
        dir.fencehold(&words).ended(2);
    }
    assert_eq!(dir.job(&id)["state"], "queued");
}

/// P8: the holder of an operation died. It is listed, explained, and settled by the command that the explanation names.
#[test]
fn an_operation_in_doubt_is_listed_explained_and_settled() {
    for happened in [true, false] {
        let dir = TestDirectory::new();
        let (_server, address) = serve(&dir, "127.0.0.1:0");
        let begin = |hold: u8| -> Value {
            let request = json!({
                "idempotency_key": "order-42", "idempotency_window_ms": 60_000, "owner": "shop", "ttl_ms": 100,
                "hold_id": format!("{hold:032x}"), "in_doubt_policy": "manual",
            });
            let mut curl = Command::new("curl");
            curl.args(["-sSH", "content-type: application/json", "-d", &request.to_string()])
                .arg(format!("http://{address}/v1/operations/begin"));
            said(&mut curl).json()["operation"].clone()
        };
        let first = begin(1);
        let id = first["job"]["id"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
        let listed = || dir.json("effect ls")["effects"].clone();
        eventually("a dead holder that is noticed", || listed() != json!([]));
        assert_eq!(listed()[0]["effect"], "operation", "{}", listed());
        let explained = dir.json(&format!("explain {id}"));
        let resolve = format!("effect resolve {id} operation");
        assert!(explained["next"].to_string().contains(&resolve), "{explained}");
        let how = if happened { "--happened {\"receipt\":7}" } else { "--did-not-happen" };
        dir.succeeds(&format!("{resolve} {how}"));
        assert_eq!(listed(), json!([]));
        let after = begin(2);
        if happened {
            assert_has(&after, &json!({ "type": "completed", "result": { "receipt": 7 } }));
        } else {
            assert_eq!((&after["type"], &after["job"]["attempt"]), (&json!("started"), &json!(2)), "{after}");
        }
    }
}
