//! Looking at jobs, queues and schedules, and acting upon them.

use serde_json::{Value, json};

use super::claim;
use crate::support::TestDirectory;

#[test]
fn jobs_are_found_counted_and_acted_upon_by_what_they_are() {
    let dir = TestDirectory::new();
    let red = dir.enqueue(r#"{"n":1}"#, &["--label", "colour=red", "--priority", "5"]);
    let blue = dir.enqueue(r#"{"n":2}"#, &["--label", "colour=blue", "--delay", "1h"]);
    let ids = |options: &[&str]| -> Vec<String> {
        let said = dir.fencehold(&[&["job", "ls", "-o", "jsonl"], options].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        said.out.lines().map(id).collect()
    };
    assert_eq!(ids(&[]), [red.clone(), blue.clone()]);
    assert_eq!(ids(&["--label", "colour=red"]), std::slice::from_ref(&red));
    assert_eq!(ids(&["--state", "scheduled"]), std::slice::from_ref(&blue));
    assert_eq!(ids(&["--payload-contains", "\"n\":2"]), std::slice::from_ref(&blue));
    assert_eq!(ids(&["--queue", "other"]), [] as [String; 0]);

    let counts = dir.fencehold(&["job", "count", "-o", "json"]).json();
    let expected = json!({
        "queued": 1, "scheduled": 1, "running": 0, "completed": 0,
        "failed": 0, "cancelled": 0, "quarantined": 0, "in_doubt": 0
    });
    assert_eq!(counts, expected);

    let dry = dir
        .fencehold(&["job", "cancel", "--queue", "q", "--dry-run", "-o", "json"])
        .json();
    assert_eq!(dry["results"].as_array().unwrap().len(), 2, "{dry}");
    assert_eq!(dir.job(&red)["state"], "queued", "nothing was done");
    let cancelled = dir.fencehold(&["job", "cancel", "--queue", "q", "--reason", "not needed"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(cancelled.err.contains("2 jobs cancelled"), "{cancelled:?}");
    assert_eq!(dir.job(&blue)["state"], "cancelled");
    assert_eq!(dir.fencehold(&["job", "retry", &red]).code, 0);
    assert_eq!(dir.job(&red)["state"], "queued");

    let held = claim(&dir, &["--ttl", "1h", "--owner", "me"]);
    assert_eq!(held.id, red);
    assert_eq!(ids(&["--owner", "me"]), std::slice::from_ref(&red));
    let refused = dir.fencehold(&["job", "rm", &red]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("me works on it under token"), "{refused:?}");
    let forced = dir.fencehold(&["job", "rm", &red, "--force", "--by", "root"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(dir.fencehold(&["job", "get", &red]).code, 1);
    let events = dir.events();
    let deleted = events.iter().find(|event| event["type"] == "job_deleted").expect("recorded");
    assert_eq!((&deleted["by"], &deleted["forced"]), (&json!("root"), &json!(true)));
}

#[test]
fn waiting_gives_the_result_or_says_what_it_waits_for() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", &[]);
    let timeout = dir.fencehold(&["job", "wait", &id, "--wait", "50ms"]);
    assert_eq!(timeout.code, 75, "{timeout:?}");
    assert!(timeout.err.contains("still queued after 50ms"), "{timeout:?}");
    let unclear = dir.fencehold(&["job", "wait", &id, "--timeout", "1s"]);
    assert!(unclear.code == 2 && unclear.err.contains("--wait"), "it is no bound on the wait: {unclear:?}");
    let mut waiting = dir.start(&["job", "wait", &id]);
    let claim = claim(&dir, &["--ttl", "1h"]);
    assert_eq!(claim.say(&dir, &["job", "complete", "--result", "{\"ok\":true}"]).code, 0);
    let said = waiting.finish();
    assert_eq!((said.code, said.out.as_str()), (0, "{\"ok\":true}\n"), "{said:?}");
}

#[test]
fn queues_are_paused_resumed_and_drained() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", &[]);
    assert_eq!(dir.fencehold(&["queue", "pause", "q"]).code, 0);
    let none = dir.fencehold(&["job", "claim", "--queue", "q"]);
    assert_eq!(none.code, 75, "{none:?}");
    assert!(none.err.contains("no job is ready in q"), "{none:?}");
    let explained = dir.fencehold(&["explain", &id]);
    assert!(explained.out.contains("queue q is paused"), "{explained:?}");
    assert_eq!(dir.fencehold(&["queue", "drain", "q"]).code, 0);
    let refused = dir.fencehold(&["job", "enqueue", "--queue", "q", "--kind", "k", "--payload", "2"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("queue q is being drained"), "{refused:?}");
    let resumed = dir.fencehold(&["queue", "resume", "q", "-o", "json"]).json();
    assert_eq!((&resumed["mode"], &resumed["job_counts"]["queued"]), (&json!("open"), &json!(1)));
    assert_eq!(dir.fencehold(&["queue", "get", "q", "-o", "json"]).json(), resumed);
    let empty = dir.fencehold(&["queue", "get", "none", "-o", "json"]).json();
    assert_eq!((&empty["mode"], &empty["job_counts"]["queued"]), (&json!("open"), &json!(0)), "{empty}");
    assert!(dir.fencehold(&["queue", "ls"]).out.contains("open"));
    assert_eq!(claim(&dir, &[]).id, id);
}

#[test]
fn a_queue_is_removed_once_it_is_empty() {
    let dir = TestDirectory::new();
    dir.enqueue("1", &[]);
    let refused = dir.fencehold(&["queue", "rm", "q"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("queue q is not empty: 1 queued"), "{refused:?}");
    assert!(refused.err.contains("job rm --queue q"), "{refused:?}");
    assert_eq!(dir.fencehold(&["queue", "pause", "empty"]).code, 0);
    let removed = dir.fencehold(&["queue", "rm", "empty", "-o", "json"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, "{}\n"), "{removed:?}");
    let gone = dir.fencehold(&["queue", "rm", "empty"]);
    assert!(gone.code == 1 && gone.err.contains("there is no queue empty"), "{gone:?}");
}

#[test]
fn schedules_are_made_listed_read_and_removed() {
    let dir = TestDirectory::new();
    let words = ["schedule", "set", "nightly", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"];
    let added =
        dir.fencehold(&[&words[..], &["--queue", "q", "--kind", "k", "--payload", "{\"a\":1}"]].concat());
    assert_eq!(added.code, 0, "{added:?}");
    let listed = dir.fencehold(&["schedule", "ls", "-o", "json"]).json();
    let listed = &listed["schedules"][0];
    assert_eq!((&listed["cron"], &listed["payload"]), (&json!("30 2 * * *"), &json!({"a": 1})));
    assert_eq!(&dir.fencehold(&["schedule", "get", "nightly", "-o", "json"]).json(), listed);
    let none = dir.fencehold(&["schedule", "get", "daily"]);
    assert!(none.code == 1 && none.err.contains("there is no schedule daily"), "{none:?}");
    // A year of nights: the one in which the clock jumps over half past two is when it jumps.
    let year = dir
        .fencehold(&["schedule", "next", "nightly", "--count", "366", "-o", "json"])
        .json();
    let locals: Vec<&str> = year["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["local"].as_str().unwrap())
        .collect();
    assert_eq!(locals.len(), 366);
    assert_eq!(locals.iter().filter(|local| local.contains("T03:00:00+02:00")).count(), 1, "{locals:?}");
    assert_eq!(locals.iter().filter(|local| local.contains("T02:30:00")).count(), 365);
    assert_eq!(dir.fencehold(&["schedule", "rm", "nightly"]).code, 0);
    let gone = dir.fencehold(&["schedule", "rm", "nightly"]);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.err.contains("there is no schedule nightly"), "{gone:?}");
}
