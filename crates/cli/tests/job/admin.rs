//! Looking at jobs, queues and schedules, and acting upon them.

use serde_json::{Value, json};

use super::claim;
use crate::support::{TestDirectory, assert_has, each};

#[test]
fn jobs_are_found_counted_and_acted_upon_by_what_they_are() {
    let dir = TestDirectory::new();
    let red = dir.enqueue(r#"{"n":1}"#, &["--label", "colour=red", "--priority", "5"]);
    let blue = dir.enqueue(r#"{"n":2}"#, &["--label", "colour=blue", "--delay", "1h"]);
    let ids = |options: &str| {
        let jobs = dir.succeeds(&format!("job ls -o jsonl {options}")).json_lines();
        each(&Value::Array(jobs), "id").join(" ")
    };
    assert_eq!(ids(""), format!("{red} {blue}"));
    assert_eq!(ids("--label colour=red"), red);
    assert_eq!(ids("--state scheduled"), blue);
    assert_eq!(ids("--payload-contains \"n\":2"), blue);
    assert_eq!(ids("--queue other"), "");

    let expected = json!({
        "queued": 1, "scheduled": 1, "running": 0, "completed": 0,
        "failed": 0, "cancelled": 0, "quarantined": 0, "in_doubt": 0
    });
    assert_eq!(dir.json("job count"), expected);

    let dry = dir.json("job cancel --queue q --dry-run");
    assert_eq!(dry["results"].as_array().unwrap().len(), 2, "{dry}");
    assert_eq!(dir.job(&red)["state"], "queued", "nothing was done");
    dir.succeeds("job cancel --queue q --reason 'not needed'")
        .says(&["2 jobs cancelled"]);
    assert_eq!(dir.job(&blue)["state"], "cancelled");
    assert_eq!(dir.fencehold(&["job", "retry", &red]).code, 0);
    assert_eq!(dir.job(&red)["state"], "queued");

    let held = claim(&dir, "--ttl 1h --owner me");
    assert_eq!(held.id, red);
    assert_eq!(ids("--owner me"), red);
    dir.fails(&["job", "rm", &red], 75, &["me works on it under token"]);
    dir.succeeds(&["job", "rm", &red, "--force", "--by", "root"]);
    assert_eq!(dir.fencehold(&["job", "get", &red]).code, 1);
    let events = dir.events();
    let deleted = events.iter().find(|event| event["type"] == "job_deleted").expect("recorded");
    assert_eq!((&deleted["by"], &deleted["forced"]), (&json!("root"), &json!(true)));
}

#[test]
fn waiting_gives_the_result_or_says_what_it_waits_for() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    dir.fails(&format!("job wait {id} --wait 50ms"), 75, &["still queued after 50ms"]);
    // It is no bound on the wait.
    dir.fails(&["job", "wait", &id, "--timeout", "1s"], 2, &["--wait"]);
    let mut waiting = dir.start(&["job", "wait", &id]);
    let claim = claim(&dir, "--ttl 1h");
    assert_eq!(claim.say(&dir, "job complete --result {\"ok\":true}").code, 0);
    let said = waiting.finish();
    assert_eq!((said.code, said.out.as_str()), (0, "{\"ok\":true}\n"), "{said:?}");
}

#[test]
fn queues_are_paused_resumed_and_drained() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    assert_eq!(dir.fencehold("queue pause q").code, 0);
    dir.fails("job claim --queue q", 75, &["no job is ready in q"]);
    let explained = dir.fencehold(&["explain", &id]);
    assert!(explained.out.contains("queue q is paused"), "{explained:?}");
    assert_eq!(dir.fencehold("queue drain q").code, 0);
    dir.fails("job enqueue --queue q --kind k --payload 2", 75, &["queue q is being drained"]);
    let resumed = dir.json("queue resume q");
    assert_eq!((&resumed["mode"], &resumed["job_counts"]["queued"]), (&json!("open"), &json!(1)));
    assert_eq!(dir.json("queue get q"), resumed);
    let empty = dir.json("queue get none");
    assert_eq!((&empty["mode"], &empty["job_counts"]["queued"]), (&json!("open"), &json!(0)), "{empty}");
    assert!(dir.fencehold("queue ls").out.contains("open"));
    assert_eq!(claim(&dir, "").id, id);
}

#[test]
fn a_queue_is_removed_once_it_is_empty() {
    let dir = TestDirectory::new();
    dir.enqueue("1", "");
    dir.fails("queue rm q", 75, &["queue q is not empty: 1 queued", "job rm --queue q"]);
    assert_eq!(dir.fencehold("queue pause empty").code, 0);
    let removed = dir.fencehold("queue rm empty -o json");
    assert_eq!((removed.code, removed.out.as_str()), (0, "{}\n"), "{removed:?}");
    dir.fails("queue rm empty", 1, &["there is no queue empty"]);
}

#[test]
fn schedules_are_made_listed_read_and_removed() {
    let dir = TestDirectory::new();
    let set = "schedule set nightly --cron '30 2 * * *' --time-zone Europe/Berlin --queue q --kind k";
    dir.succeeds(&format!("{set} --payload {{\"a\":1}}"));
    let nightly = dir.json("schedule get nightly");
    assert_has(&nightly, &json!({ "cron": "30 2 * * *", "payload": { "a": 1 } }));
    assert_eq!(dir.json("schedule ls")["schedules"], json!([nightly]));
    dir.fails("schedule get daily", 1, &["there is no schedule daily"]);
    // A year of nights: the one in which the clock jumps over half past two is when it jumps.
    let year = dir.json("schedule next nightly --count 366");
    let locals = each(&year["runs"], "local");
    assert_eq!(locals.len(), 366);
    assert_eq!(locals.iter().filter(|local| local.contains("T03:00:00+02:00")).count(), 1, "{locals:?}");
    assert_eq!(locals.iter().filter(|local| local.contains("T02:30:00")).count(), 365);
    assert_eq!(dir.fencehold("schedule rm nightly").code, 0);
    dir.fails("schedule rm nightly", 1, &["there is no schedule nightly"]);
}
