//! `fencehold job …`: enqueuing, working from scripts, looking, acting; and every bad input with its own message.
#![cfg(feature = "file")]
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod support;

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Room, Running, Said, said};

/// A claim, as a script keeps it.
struct Claim {
    id: String,
    token: u64,
    hold: String,
}

fn claim(room: &Room, options: &[&str]) -> Claim {
    let mut words = vec!["job", "claim", "--queue", "q", "-o", "json"];
    words.extend(options);
    let said = room.fencehold(&words);
    assert_eq!(said.code, 0, "{said:?}");
    let taken = said.json();
    Claim {
        id: taken["id"].as_str().unwrap().to_owned(),
        token: taken["token"].as_u64().unwrap(),
        hold: taken["hold"].as_str().unwrap().to_owned(),
    }
}

/// Speaks for an attempt.
fn speak(room: &Room, words: &[&str], id: &str, token: u64, hold: &str) -> Said {
    said(
        room.command(words)
            .env("FENCEHOLD_JOB_ID", id)
            .env("FENCEHOLD_TOKEN", token.to_string())
            .env("FENCEHOLD_HOLD", hold),
    )
}

impl Claim {
    fn say(&self, room: &Room, words: &[&str]) -> Said {
        speak(room, words, &self.id, self.token, &self.hold)
    }
}

fn with_stdin(room: &Room, words: &[&str], text: &[u8]) -> Said {
    use std::io::Write;
    let mut command = room.command(words);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    running.child.stdin.take().unwrap().write_all(text).unwrap();
    running.finish()
}

#[test]
fn a_script_claims_renews_and_completes_by_what_it_evaluates() {
    let room = Room::new();
    let id = room.enqueue(r#"{"to":"it's $(exit 3)"}"#, &["--label", "a=b"]);
    let binary = env!("CARGO_BIN_EXE_fencehold");
    let script = format!(
        "vars=$({binary} job claim --queue q -o env) || exit; eval \"$vars\"
         {binary} job renew >/dev/null && {binary} job complete --result '[1]' >/dev/null
         echo $? $FENCEHOLD_JOB_ID $FENCEHOLD_TOKEN $FENCEHOLD_ATTEMPT $FENCEHOLD_QUEUE $FENCEHOLD_KIND \"$FENCEHOLD_PAYLOAD\""
    );
    let said = said(Command::new("sh").args(["-c", &script]).env("FENCEHOLD_STORE", room.store()));
    assert_eq!(said.out, format!("0 {id} 1 1 q k {{\"to\":\"it's $(exit 3)\"}}\n"), "{said:?}");
    let job = room.job(&id);
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!([1])));
    assert_eq!(job["payload"]["to"], "it's $(exit 3)");
}

#[test]
fn a_job_fails_is_snoozed_and_is_handed_back() {
    let room = Room::new();
    let id = room.enqueue("1", &["--retry", "fixed:1h", "--max-attempts", "2"]);
    let back = claim(&room, &[]).say(&room, &["job", "hand-back", "-o", "json"]);
    assert_eq!((back.code, &back.json()["state"]), (0, &json!("queued")), "{back:?}");

    let snoozed = claim(&room, &[]).say(&room, &["job", "snooze", "--for", "1h", "-o", "json"]);
    assert_eq!(snoozed.json()["again_in_ms"], 3_600_000, "{snoozed:?}");
    assert_eq!(room.job(&id)["failures"], 0, "neither counts");

    assert_eq!(room.fencehold(&["job", "retry", &id]).code, 0);
    let failed = claim(&room, &[]).say(&room, &["job", "fail", "--error", "no luck", "-o", "json"]);
    assert_eq!(
        (&failed.json()["state"], &failed.json()["again_in_ms"]),
        (&json!("scheduled"), &json!(3_600_000))
    );
    assert_eq!(room.job(&id)["failures"], 1);

    assert_eq!(room.fencehold(&["job", "retry", &id]).code, 0);
    let given_up = claim(&room, &[]).say(&room, &["job", "fail", "--error", "never", "--for-good"]);
    assert!(given_up.out.contains("failed"), "{given_up:?}");
    let waited = room.fencehold(&["job", "wait", &id]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.err.contains(&format!("job {id} is failed: never")), "{waited:?}");
}

#[test]
fn a_bad_line_costs_the_good_ones_nothing_and_is_named_by_its_number() {
    let room = Room::new();
    let mut text = b"{\"n\":1}\nnot json\n\n2\n\"".to_vec();
    text.extend(vec![b'x'; 1 << 20]);
    text.extend(b"\"\n\xff\n[3]");
    let words = ["job", "enqueue", "--queue", "q", "--kind", "k", "--jsonl", "-"];
    let said = with_stdin(&room, &words, &text);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    for says in [
        "line 2: the payload is not JSON",
        "line 5: the payload has 1048578 bytes; the limit is 1048576",
        "line 6: the payload is not UTF-8",
        "3 of 6 lines were refused",
    ] {
        assert!(said.err.contains(says), "{says}: {}", said.err);
    }
    let payloads: Vec<Value> = said.out.lines().map(|id| room.job(id)["payload"].clone()).collect();
    assert_eq!(payloads, [json!({"n": 1}), json!(2), json!([3])], "in the order of their lines");

    let lines = with_stdin(&room, &[&words[..], &["-o", "jsonl"]].concat(), b"1\n\n2\n");
    let numbers: Vec<Value> = lines
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].clone())
        .collect();
    assert_eq!(numbers, [1, 3]);
}

#[test]
fn many_lines_go_through_in_batches() {
    let room = Room::new();
    let lines: Vec<String> = (0..2_500).map(|nth| nth.to_string()).collect();
    std::fs::write(room.path("jobs.jsonl"), lines.join("\n")).unwrap();
    let said = room.fencehold(&["job", "enqueue", "--queue", "q", "--kind", "k", "--jsonl", "jobs.jsonl"]);
    assert_eq!((said.code, said.out.lines().count()), (0, 2_500), "{}", said.err);
    assert!(said.err.is_empty(), "no bar without a terminal: {said:?}");
    assert_eq!(room.fencehold(&["job", "counts", "-o", "json"]).json()["queued"], 2_500);
}

#[test]
fn the_same_unique_key_is_the_same_job_and_another_payload_names_the_first() {
    let room = Room::new();
    let first = room.enqueue("1", &["--unique", "invoice-42"]);
    let again = room.fencehold(&[
        "job",
        "enqueue",
        "--queue",
        "q",
        "--kind",
        "k",
        "--payload",
        "1",
        "--unique",
        "invoice-42",
        "-o",
        "json",
    ]);
    assert_eq!(again.json(), json!({"id": first, "existed": true}));
    let other = room.fencehold(&[
        "job",
        "enqueue",
        "--queue",
        "q",
        "--kind",
        "k",
        "--payload",
        "2",
        "--unique",
        "invoice-42",
    ]);
    assert_eq!(other.code, 2, "{other:?}");
    let says = format!("the unique key is taken by job {first}, which has another payload");
    assert!(other.err.contains(&says), "{other:?}");
}

#[test]
fn each_bad_word_about_an_attempt_has_its_own_error() {
    let room = Room::new();
    room.enqueue("1", &[]);
    room.enqueue("2", &[]);
    let (one, other) = (claim(&room, &["--ttl", "1h"]), claim(&room, &["--ttl", "1h"]));
    let nobody = "01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55";
    let complete = &["job", "complete"];
    for (said, code, says) in [
        (speak(&room, complete, nobody, 1, &one.hold), 1, "there is no such job"),
        (speak(&room, complete, &one.id, other.token, &one.hold), 2, "was never given for this job"),
        (speak(&room, complete, &one.id, one.token, &other.hold), 2, "the hold id is not the one"),
        (speak(&room, complete, &one.id, 1 << 40, &one.hold), 74, "rewound"),
        (speak(&room, complete, "nonsense", 1, &one.hold), 2, "FENCEHOLD_JOB_ID: job id \"nonsense\""),
        (speak(&room, complete, &one.id, 1, "nonsense"), 2, "FENCEHOLD_HOLD"),
        (room.fencehold(&["job", "complete"]), 2, "the job is missing"),
        (room.fencehold(&["job", "complete", &one.id]), 2, "the hold id is missing"),
    ] {
        assert_eq!(said.code, code, "{says}: {said:?}");
        assert!(said.err.contains(says), "{says}: {said:?}");
    }
    assert_eq!(one.say(&room, complete).code, 0);
    assert_eq!(one.say(&room, complete).code, 0, "the same word again gets the same answer");
    let late = one.say(&room, &["job", "renew"]);
    assert_eq!(late.code, 76, "{late:?}");
    assert_eq!(one.say(&room, &["job", "fail", "--error", "x"]).code, 76, "the first word stands");
}

#[test]
fn bad_input_is_refused_with_what_is_wrong_and_makes_no_store() {
    let room = Room::new();
    let enqueue = ["job", "enqueue", "--queue", "q", "--kind", "k"];
    let long = "x".repeat(300);
    let bad: &[(&[&str], &str)] = &[
        (&["--payload", "{"], "--payload <JSON>: the payload is not JSON"),
        (&["--payload", "1", "--delay", "-5s"], "a duration cannot be negative"),
        (&["--payload", "1", "--run-at", "10000-01-01T00:00:00Z"], "after the year 9999"),
        (&["--payload", "1", "--run-at", "tomorrow"], "not a moment"),
        (&["--payload", "1", "--max-attempts", "0"], "max_attempts is 0; it takes 1 to 10000"),
        (&["--payload", "1", "--max-crashes", "0"], "max_crashes is 0"),
        (&["--payload", "1", "--time-limit", "0s"], "time limit"),
        (&["--payload", "1", "--retry", "sometimes"], "retry"),
        (&["--payload", "1", "--label", "plain"], "a label is written NAME=VALUE"),
        (&["--payload", "1", "--unique", ""], "unique key must not be empty"),
        (&["--payload", "1", "--jsonl", "-"], "cannot be used with"),
        (&[], "--payload"),
    ];
    for (options, says) in bad {
        let said = room.fencehold(&[&enqueue[..], options].concat());
        assert_eq!(said.code, 2, "{options:?}: {said:?}");
        assert!(said.err.contains(says), "{options:?}: {said:?}");
    }
    let others: &[(&[&str], i32, &str)] = &[
        (&["job", "enqueue", "--queue", &long, "--kind", "k", "--payload", "1"], 2, "the limit is 128"),
        (&["job", "enqueue", "--queue", "fencehold/x", "--kind", "k", "--payload", "1"], 2, "reserved"),
        (&["job", "claim", "--queue", "q=0"], 2, "a weight is a whole number from 1"),
        (&["job", "claim", "--queue", "q", "--ttl", "1ms"], 2, "ttl is 1 ms"),
        (&["job", "get", "7"], 2, "is not 32 hexadecimal digits"),
        (&["job", "ls", "--state", "odd"], 2, "is not one of queued"),
        (&["job", "cancel"], 2, "no jobs are named"),
        (&["schedule", "add", "s", "--cron", "0 25 * * *", "--queue", "q", "--kind", "k"], 2, "hour \"25\""),
        (
            &["schedule", "add", "s", "--cron", "0 0 * *", "--queue", "q", "--kind", "k"],
            2,
            "has 4 fields; it takes five",
        ),
        (
            &["schedule", "next", "--cron", "0 0 * * *", "--zone", "Europe/Berln"],
            2,
            "did you mean Europe/Berlin?",
        ),
        (&["work", "--queue", "q", "--concurrency", "0", "--", "true"], 2, "--concurrency"),
        (&["work", "--queue", "q", "--", "no-such-command"], 127, "no-such-command was not found"),
        (&["work", "--queue", "q", "--grace", "1h", "--", "true"], 2, "too long for a ttl"),
    ];
    for (words, code, says) in others {
        let said = room.fencehold(words);
        assert_eq!(said.code, *code, "{words:?}: {said:?}");
        assert!(said.err.contains(says), "{words:?}: {said:?}");
    }
    assert!(!room.path("leases").exists(), "nothing was made for any of them");
}

#[test]
fn jobs_are_found_counted_and_acted_upon_by_what_they_are() {
    let room = Room::new();
    let red = room.enqueue(r#"{"n":1}"#, &["--label", "colour=red", "--priority", "5"]);
    let blue = room.enqueue(r#"{"n":2}"#, &["--label", "colour=blue", "--delay", "1h"]);
    let ids = |options: &[&str]| -> Vec<String> {
        let said = room.fencehold(&[&["job", "ls", "-o", "jsonl"], options].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        said.out.lines().map(id).collect()
    };
    assert_eq!(ids(&[]), [red.clone(), blue.clone()]);
    assert_eq!(ids(&["--label", "colour=red"]), std::slice::from_ref(&red));
    assert_eq!(ids(&["--state", "scheduled"]), std::slice::from_ref(&blue));
    assert_eq!(ids(&["--contains", "\"n\":2"]), std::slice::from_ref(&blue));
    assert_eq!(ids(&["--queue", "other"]), [] as [String; 0]);

    let counts = room.fencehold(&["job", "counts", "-o", "json"]).json();
    let expected = json!({
        "queued": 1, "scheduled": 1, "running": 0, "completed": 0,
        "failed": 0, "cancelled": 0, "quarantined": 0, "indeterminate": 0
    });
    assert_eq!(counts, expected);

    let dry = room
        .fencehold(&["job", "cancel", "--queue", "q", "--dry-run", "-o", "json"])
        .json();
    assert_eq!(dry.as_array().unwrap().len(), 2, "{dry}");
    assert_eq!(room.job(&red)["state"], "queued", "nothing was done");
    let cancelled = room.fencehold(&["job", "cancel", "--queue", "q", "--reason", "not needed"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(cancelled.err.contains("2 jobs cancelled"), "{cancelled:?}");
    assert_eq!(room.job(&blue)["state"], "cancelled");
    assert_eq!(room.fencehold(&["job", "retry", &red]).code, 0);
    assert_eq!(room.job(&red)["state"], "queued");

    let held = claim(&room, &["--ttl", "1h", "--owner", "me"]);
    assert_eq!(held.id, red);
    assert_eq!(ids(&["--owner", "me"]), std::slice::from_ref(&red));
    let refused = room.fencehold(&["job", "delete", &red]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("me works on it under token"), "{refused:?}");
    let forced = room.fencehold(&["job", "delete", &red, "--force", "--by", "root"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(room.fencehold(&["job", "get", &red]).code, 1);
    let events = room.events();
    let deleted = events.iter().find(|event| event["event"] == "job_deleted").expect("recorded");
    assert_eq!((&deleted["by"], &deleted["forced"]), (&json!("root"), &json!(true)));
}

#[test]
fn waiting_gives_the_result_or_says_what_it_waits_for() {
    let room = Room::new();
    let id = room.enqueue("1", &[]);
    let timeout = room.fencehold(&["job", "wait", &id, "--timeout", "50ms"]);
    assert_eq!(timeout.code, 75, "{timeout:?}");
    assert!(timeout.err.contains("still queued after 50ms"), "{timeout:?}");
    let mut waiting = room.start(&["job", "wait", &id]);
    let claim = claim(&room, &["--ttl", "1h"]);
    assert_eq!(claim.say(&room, &["job", "complete", "--result", "{\"ok\":true}"]).code, 0);
    let said = waiting.finish();
    assert_eq!((said.code, said.out.as_str()), (0, "{\"ok\":true}\n"), "{said:?}");
}

#[test]
fn queues_are_paused_resumed_and_drained() {
    let room = Room::new();
    let id = room.enqueue("1", &[]);
    assert_eq!(room.fencehold(&["queue", "pause", "q"]).code, 0);
    let none = room.fencehold(&["job", "claim", "--queue", "q"]);
    assert_eq!(none.code, 75, "{none:?}");
    assert!(none.err.contains("no job is ready in q"), "{none:?}");
    let explained = room.fencehold(&["explain", &id]);
    assert!(explained.out.contains("queue q is paused"), "{explained:?}");
    assert_eq!(room.fencehold(&["queue", "drain", "q"]).code, 0);
    let refused = room.fencehold(&["job", "enqueue", "--queue", "q", "--kind", "k", "--payload", "2"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.err.contains("queue q is being drained"), "{refused:?}");
    let resumed = room.fencehold(&["queue", "resume", "q", "-o", "json"]).json();
    assert_eq!((&resumed["mode"], &resumed["counts"]["queued"]), (&json!("open"), &json!(1)));
    assert!(room.fencehold(&["queue", "ls"]).out.contains("open"));
    assert_eq!(claim(&room, &[]).id, id);
}

#[test]
fn schedules_are_made_listed_read_and_removed() {
    let room = Room::new();
    let words = ["schedule", "add", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin"];
    let added =
        room.fencehold(&[&words[..], &["--queue", "q", "--kind", "k", "--payload", "{\"a\":1}"]].concat());
    assert_eq!(added.code, 0, "{added:?}");
    let listed = room.fencehold(&["schedule", "ls", "-o", "json"]).json();
    assert_eq!((&listed[0]["cron"], &listed[0]["payload"]), (&json!("30 2 * * *"), &json!({"a": 1})));
    // A year of nights: the one in which the clock jumps over half past two is when it jumps.
    let year = room
        .fencehold(&["schedule", "next", "nightly", "--count", "366", "-o", "json"])
        .json();
    let locals: Vec<&str> = year
        .as_array()
        .unwrap()
        .iter()
        .map(|firing| firing["local"].as_str().unwrap())
        .collect();
    assert_eq!(locals.len(), 366);
    assert_eq!(locals.iter().filter(|local| local.contains("T03:00:00+02:00")).count(), 1, "{locals:?}");
    assert_eq!(locals.iter().filter(|local| local.contains("T02:30:00")).count(), 365);
    assert_eq!(room.fencehold(&["schedule", "rm", "nightly"]).code, 0);
    let gone = room.fencehold(&["schedule", "rm", "nightly"]);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.err.contains("there is no schedule nightly"), "{gone:?}");
}

#[test]
fn a_hold_id_of_a_job_is_printed_once_and_shown_nowhere_else() {
    let room = Room::new();
    let id = room.enqueue("1", &[]);
    let claim = claim(&room, &["--ttl", "1h"]);
    let mut shown = String::new();
    for words in [
        &["job", "get", &id, "-o", "json"] as &[&str],
        &["job", "ls", "-o", "jsonl"],
        &["events", "-o", "jsonl"],
        &["explain", &id, "-o", "json"],
        &["-vvv", "job", "renew"],
        &["-vvv", "job", "complete"],
        &["-vvv", "job", "renew"],
    ] {
        let said = claim.say(&room, words);
        shown.extend([said.out, said.err]);
    }
    assert!(shown.contains(&id) && !shown.contains(&claim.hold));
}

#[test]
fn explain_tells_attempt_by_attempt_and_what_happens_next() {
    let room = Room::new();
    let id = room.enqueue("1", &["--retry", "fixed:1h"]);
    let waiting = room.fencehold(&["explain", &id]);
    assert!(
        waiting.out.contains("is queued since") && waiting.out.contains("nobody waits for jobs"),
        "{waiting:?}"
    );

    let first = claim(&room, &["--ttl", "1h", "--owner", "first"]);
    let running = room.fencehold(&["explain", &format!("job/{id}")]);
    assert!(running.out.contains("first works on it under token 1, attempt 1"), "{running:?}");
    assert!(running.out.contains("the claim ends in"), "{running:?}");

    assert_eq!(first.say(&room, &["job", "fail", "--error", "the printer\nis on fire"]).code, 0);
    let failed = room.fencehold(&["explain", &id, "-o", "json"]).json();
    assert_eq!(failed["state"], "scheduled");
    assert!(failed["next"].as_str().unwrap().contains("since it failed; then it is claimed"), "{failed}");
    let attempt = &failed["job"]["ended_attempts"][0];
    assert_eq!(
        (&attempt["token"], &attempt["owner"], &attempt["how"]),
        (&json!(1), &json!("first"), &json!("failed"))
    );
    let table = room.fencehold(&["explain", &id]).out;
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("1 ") && line.contains("failed") && line.ends_with("is on fire")),
        "{table}"
    );
}

/// What the library does, in this process: two attempts that announce the same effect and die.
fn leave_an_open_intent(room: &Room, id: &str) {
    use std::sync::Arc;

    use fencehold_core::job::{EffectName, Queue};
    use fencehold_core::ledger::OnDoubt;
    use fencehold_core::{HoldId, Namespace, Owner};
    use fencehold_store::clock::SystemClock;
    use fencehold_store::job::{AttemptRef, ClaimRequest, LedgerAct, LedgerAnswer, LedgerEntry};
    use fencehold_store::{Call, open};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(&room.store().parse().unwrap(), Arc::new(SystemClock)).unwrap();
        let (jobs, call) = (store.jobs().unwrap(), Call::new(Namespace::default()));
        for (attempt, expected) in [(1, LedgerAnswer::Go), (2, LedgerAnswer::InDoubt)] {
            let hold = HoldId::from_random([attempt; 16]);
            let request = ClaimRequest {
                queues: vec![(Queue::new("q").unwrap(), 1)],
                limit: 1,
                hold,
                owner: Owner::new(format!("attempt-{attempt}")).unwrap(),
                ttl_ms: 300,
                wait_ms: 60_000,
                waited_before_ms: 0,
            };
            let claimed = jobs.claim(&call, request).await.unwrap();
            let job = &claimed.jobs[0];
            assert_eq!(job.id.to_string(), id);
            let attempt = AttemptRef { job: job.id, hold, token: job.token };
            let act = LedgerAct::Begin { effect: EffectName::new("charge").unwrap(), policy: OnDoubt::Ask };
            let answers = jobs.ledger(&call, vec![LedgerEntry { attempt, act }]).await.unwrap();
            assert_eq!(answers[0], Ok(expected));
        }
        store.close().await;
    });
}

#[test]
fn an_effect_in_doubt_stops_its_job_until_a_person_says_what_happened() {
    for (outcome, value) in [
        (&["--happened", "{\"receipt\":7}"] as &[&str], json!({"receipt": 7})),
        (&["--did-not-happen"], Value::Null),
    ] {
        let room = Room::new();
        let id = room.enqueue("1", &[]);
        leave_an_open_intent(&room, &id);
        assert_eq!(room.job(&id)["state"], "indeterminate");
        let listed = room.fencehold(&["reconcile", "-o", "json"]).json();
        assert_eq!(
            (&listed[0]["what"], &listed[0]["effect"], &listed[0]["job"]),
            (&json!("open_intent"), &json!("charge"), &json!(id))
        );
        let table = room.fencehold(&["reconcile"]);
        assert!(table.out.contains("open intent") && table.err.contains("reconcile --help"), "{table:?}");
        let explained = room.fencehold(&["explain", &id]);
        assert!(
            explained
                .out
                .contains(&format!("fencehold reconcile {id} charge --happened JSON")),
            "{explained:?}"
        );
        let waited = room.fencehold(&["job", "wait", &id]);
        assert_eq!(waited.code, 1, "nobody waits for a job that waits for a person: {waited:?}");

        let said = room.fencehold(&[&["reconcile", &id, "charge", "--by", "ada"], outcome].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let job = room.job(&id);
        assert!(matches!(job["state"].as_str(), Some("queued" | "scheduled")), "it goes on: {job}");
        assert_eq!(
            job["effects"]
                .as_array()
                .and_then(|effects| effects.first())
                .map_or(Value::Null, |effect| effect["value"].clone()),
            value
        );
        let again = room.fencehold(&[&["reconcile", &id, "charge"], outcome].concat());
        assert_ne!(again.code, 0, "there is no doubt any more: {again:?}");
        let unclear = room.fencehold(&["reconcile", &id, "charge"]);
        assert_eq!(unclear.code, 2, "{unclear:?}");
    }
}
