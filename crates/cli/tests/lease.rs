//! `fencehold lease …`, `event …`, `explain`: for scripts and for people.
#![cfg(feature = "file")]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{CommandOutput, RunningProcess, TestDirectory, eventually, said};

/// Takes a lease and gives its hold id.
fn acquire(dir: &TestDirectory, key: &str, options: &[&str]) -> (u64, String) {
    let mut words = vec!["lease", "acquire", key, "-o", "json"];
    words.extend(options);
    let taken = dir.fencehold(&words).json();
    (taken["token"].as_u64().unwrap(), taken["hold_id"].as_str().unwrap().to_owned())
}

fn with_hold(dir: &TestDirectory, words: &[&str], hold: &str, token: u64) -> CommandOutput {
    said(
        dir.command(words)
            .env("FENCEHOLD_HOLD_ID", hold)
            .env("FENCEHOLD_TOKEN", token.to_string()),
    )
}

#[test]
fn a_script_takes_keeps_and_gives_back() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", &["--ttl", "1h", "--task", "t", "--owner", "me"]);
    assert_eq!(token, 1);
    let lease = dir.lease("k");
    assert_eq!((&lease["holder"]["owner"], &lease["holder"]["task"]), (&json!("me"), &json!("t")));

    let renewed = with_hold(&dir, &["lease", "renew", "k", "-o", "json"], &hold, token);
    assert_eq!(renewed.code, 0, "{renewed:?}");
    assert_eq!((&renewed.json()["token"], &renewed.json()["remaining_ms"]), (&json!(1), &json!(3_600_000)));

    // The id from stdin and the token from the flag, this time.
    let mut release = dir.command(["lease", "release", "k", "--token", "1"]);
    let mut release = RunningProcess::start(release.stdin(Stdio::piped()));
    release.child.stdin.take().unwrap().write_all(hold.as_bytes()).unwrap();
    assert_eq!(release.finish().code, 0);
    assert!(dir.lease("k")["holder"].is_null());

    let again = with_hold(&dir, &["lease", "release", "k"], &hold, token);
    assert_eq!(again.code, 0, "the same request again gets the same answer: {again:?}");
    let late = with_hold(&dir, &["lease", "renew", "k"], &hold, token);
    assert_eq!(late.code, 76, "{late:?}");
    assert!(late.err.contains("released"), "{late:?}");
}

#[test]
fn a_shell_can_eval_what_acquire_prints() {
    let dir = TestDirectory::new();
    let binary = env!("CARGO_BIN_EXE_fencehold");
    let script = format!(
        "vars=$({binary} lease acquire \"it's a \\$(key)\" -o env) || exit; eval \"$vars\"
         {binary} lease renew \"$FENCEHOLD_KEY\" >/dev/null && {binary} lease release \"$FENCEHOLD_KEY\" >/dev/null
         echo $? \"$FENCEHOLD_KEY\" $FENCEHOLD_TOKEN"
    );
    let said = said(Command::new("sh").args(["-c", &script]).env("FENCEHOLD_STORE", dir.store()));
    assert_eq!(said.out, "0 it's a $(key) 1\n", "{said:?}");
}

#[test]
fn the_hold_id_is_printed_once_and_shown_nowhere_else() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", &[]);
    let mut shown = String::new();
    for words in [
        &["lease", "get", "k", "-o", "json"] as &[&str],
        &["lease", "ls", "-o", "jsonl"],
        &["lease", "acquire", "k"],
        &["event", "ls", "-o", "jsonl"],
        &["explain", "k", "-o", "json"],
        &["-vvv", "lease", "renew", "k"],
        &["-vvv", "lease", "release", "k"],
    ] {
        let said = with_hold(&dir, words, &hold, token);
        shown.push_str(&said.out);
        shown.push_str(&said.err);
    }
    assert!(!shown.contains(&hold));
}

#[test]
fn a_hold_id_that_is_missing_or_wrong_is_not_repeated() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", &[]);
    let missing = said(dir.command(["lease", "renew", "k"]).env("FENCEHOLD_TOKEN", "1"));
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("FENCEHOLD_HOLD_ID"), "{missing:?}");

    let typo = with_hold(&dir, &["lease", "renew", "k"], "feedbeef", 1);
    assert_eq!(typo.code, 2);
    assert!(!typo.err.contains("feedbeef"), "{typo:?}");

    let wrong = with_hold(&dir, &["lease", "renew", "k"], &"0".repeat(32), 1);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("not the one that token 1 was granted to"), "{wrong:?}");

    let no_token = said(dir.command(["lease", "renew", "k"]).env("FENCEHOLD_HOLD_ID", "0".repeat(32)));
    assert_eq!(no_token.code, 2);
    assert!(no_token.err.contains("FENCEHOLD_TOKEN"), "{no_token:?}");
}

#[test]
fn a_token_that_the_store_never_gave_proves_that_it_was_rewound() {
    let dir = TestDirectory::new();
    let (_, hold) = acquire(&dir, "k", &[]);
    let shown = with_hold(&dir, &["lease", "renew", "k"], &hold, 99);
    assert_eq!(shown.code, 74, "{shown:?}");
    assert!(shown.err.contains("rewound") && shown.err.contains("store advance"), "{shown:?}");
    let explained = dir.fencehold(&["explain", "k"]);
    assert!(explained.out.contains("STORE REWOUND"), "{explained:?}");

    let refused = dir.fencehold(&["store", "advance", "--by", "alice"]);
    assert_eq!(refused.code, 2, "not without --yes: {refused:?}");
    assert!(!dir.lease("k")["holder"].is_null());
    let advanced =
        dir.fencehold(&["store", "advance", "--by", "alice", "--increment", "1000", "--yes", "-o", "json"]);
    assert_eq!(advanced.code, 0, "{advanced:?}");
    assert_eq!(
        (&advanced.json()["ended_count"], &advanced.json()["closed_for_ms"]),
        (&json!(1), &json!(30_000))
    );
    assert_eq!(dir.lease("k")["token"], 1001);
    let closed = dir.fencehold(&["lease", "acquire", "k"]);
    assert_eq!(closed.code, 69, "{closed:?}");
}

#[test]
fn an_advance_says_how_long_it_closes_which_namespace_and_can_be_overridden() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", &[]);
    let day = dir.fencehold(&["--namespace", "slow", "lease", "acquire", "k", "--ttl", "24h", "-o", "json"]);
    assert_eq!(day.code, 0, "{day:?}");
    let advanced = dir.fencehold(&["store", "advance", "--by", "alice", "--yes"]);
    assert_eq!(advanced.code, 0, "{advanced:?}");
    for said in ["1d in namespace slow", "30s in namespace default", "1d in any other namespace"] {
        assert!(advanced.out.contains(said), "{said}: {advanced:?}");
    }
    assert_eq!(dir.fencehold(&["lease", "acquire", "k"]).code, 69);
    let forced = dir.fencehold(&["store", "advance", "--by", "alice", "--yes", "--reopen"]);
    assert!(forced.out.contains("an old holder may go on for up to 1d"), "{forced:?}");
    acquire(&dir, "k", &[]);
    assert_eq!(dir.fencehold(&["--namespace", "slow", "lease", "acquire", "k"]).code, 0);
}

#[test]
fn a_namespace_is_held_to_the_limits_that_were_set() {
    let dir = TestDirectory::new();
    let set = ["quota", "set", "--max-keys", "1", "--max-ttl", "1m", "-o", "json"];
    let view = dir.fencehold(&set).json();
    assert_eq!((&view["quota"]["max_keys"], &view["quota"]["max_ttl_ms"]), (&json!(1), &json!(60_000)));
    assert_eq!(view["quota"]["max_queues"], 10_000, "{view}");
    let long = dir.fencehold(&["lease", "acquire", "k", "--ttl", "2m"]);
    assert!(long.code == 2 && long.err.contains("the longest in namespace default is 60000 ms"), "{long:?}");
    acquire(&dir, "k", &[]);
    let full = dir.fencehold(&["lease", "acquire", "l"]);
    assert!(full.code == 69 && full.err.contains("lease keys of namespace default"), "{full:?}");
    assert!(dir.fencehold(&["quota", "get"]).out.contains("1 of 1"));
    assert_eq!(dir.fencehold(&["quota", "set"]).code, 2, "there is nothing to set");
    assert_eq!(dir.fencehold(&["--namespace", "other", "lease", "acquire", "l"]).code, 0);
}

#[test]
fn any_of_several_keys_will_do() {
    let dir = TestDirectory::new();
    acquire(&dir, "gpu/0", &[]);
    let taken =
        dir.fencehold(&["lease", "acquire", "gpu/0", "--any-of", "gpu/1", "--any-of", "gpu/2", "-o", "json"]);
    assert_eq!(taken.json()["key"], "gpu/1");
    acquire(&dir, "gpu/2", &[]);
    let none = dir.fencehold(&["lease", "acquire", "gpu/0", "--any-of", "gpu/1", "--any-of", "gpu/2"]);
    assert_eq!((none.code, none.out.as_str()), (75, ""), "{none:?}");
}

#[test]
fn a_lease_whose_hold_id_nobody_could_read_is_given_back() {
    let dir = TestDirectory::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = dir
        .command(["lease", "acquire", "k"])
        .stdout(full)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(dir.lease("k")["holder"].is_null());
}

#[test]
fn a_list_can_be_narrowed() {
    let dir = TestDirectory::new();
    for (key, owner, task) in [("a/1", "me", "t1"), ("a/2", "you", "t1"), ("b/1", "me", "t2")] {
        acquire(&dir, key, &["--owner", owner, "--task", task]);
    }
    let keys = |words: &[&str]| {
        let mut line = vec!["lease", "ls", "-o", "json"];
        line.extend(words);
        let leases = dir.fencehold(&line).json();
        leases["leases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lease| lease["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["a/1", "a/2", "b/1"]);
    assert_eq!(keys(&["--prefix", "a/"]), ["a/1", "a/2"]);
    assert_eq!(keys(&["--owner", "me"]), ["a/1", "b/1"]);
    assert_eq!(keys(&["--task", "t1", "--owner", "you"]), ["a/2"]);

    let revoked = dir.fencehold(&["lease", "revoke", "--task", "t1", "--reason", "cancelled", "-o", "json"]);
    assert_eq!(revoked.json()["results"].as_array().unwrap().len(), 2, "{revoked:?}");
    assert!(revoked.json()["results"][0]["ok"]["consumed_token"].is_u64(), "{revoked:?}");
    assert_eq!(keys(&[]), ["b/1"]);
    assert_eq!(keys(&["--include-free"]), ["a/1", "a/2", "b/1"]);
    let table = dir.fencehold(&["lease", "ls"]);
    assert_eq!(table.out.lines().count(), 2, "{table:?}");
    assert!(table.out.starts_with("KEY "), "{table:?}");

    let other = dir.fencehold(&["--namespace", "other", "lease", "ls", "--include-free", "-o", "json"]);
    assert_eq!(other.json(), json!({ "leases": [] }), "another namespace is another world");
}

#[test]
fn force_leaves_a_trace() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", &[]);
    let other = dir.fencehold(&["lease", "revoke", "k", "--reason", "r", "--token", "7"]);
    assert_eq!(other.code, 74, "a token that was never given: {other:?}");
    let revoked =
        dir.fencehold(&["lease", "revoke", "k", "--reason", "stuck", "--by", "alice", "--token", "1"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    let lease = dir.lease("k");
    assert_eq!(lease["token"], 2, "a token is used up");
    let ending = &lease["endings"][0];
    assert_eq!(
        (&ending["outcome"], &ending["by"], &ending["reason"]),
        (&json!("revoked"), &json!("alice"), &json!("stuck"))
    );

    let again = dir.fencehold(&["lease", "revoke", "k", "--reason", "stuck"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains("is not held"));
    for bad in [
        &["lease", "revoke", "k"] as &[&str],
        &["lease", "revoke", "--reason", "r"],
        &["lease", "revoke", "k", "--task", "t", "--reason", "r"],
        &["lease", "revoke", "--prefix", "", "--reason", "r"],
        &["lease", "revoke", "--task", "t", "--token", "1", "--reason", "r"],
        &["lease", "revoke", "k", "--reason", ""],
    ] {
        assert_eq!(dir.fencehold(bad).code, 2, "{bad:?}");
    }
}

#[test]
fn what_happens_can_be_followed() {
    let dir = TestDirectory::new();
    acquire(&dir, "before/1", &[]);
    // A bystander that serves the directory, so that both watchers are there when something happens.
    let mut watch = dir.start(&["lease", "watch", "a/", "-o", "jsonl"]);
    let mut events = dir.start(&["event", "watch", "-o", "jsonl"]);
    let first: serde_json::Value = serde_json::from_str(&events.line()).unwrap();
    assert_eq!((&first["type"], &first["key"]), (&json!("lease_acquired"), &json!("before/1")));

    // `lease watch` begins now, whenever that is: something happens until it has seen it.
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&seen);
    let watcher = std::thread::spawn(move || {
        let line: serde_json::Value = serde_json::from_str(&watch.line()).unwrap();
        told.store(true, std::sync::atomic::Ordering::SeqCst);
        line
    });
    let mut taken = 0;
    eventually("the watcher has seen something", || {
        if !seen.load(std::sync::atomic::Ordering::SeqCst) {
            acquire(&dir, &format!("other/{taken}"), &[]);
            acquire(&dir, &format!("a/{taken}"), &[]);
            taken += 1;
        }
        seen.load(std::sync::atomic::Ordering::SeqCst)
    });
    let line = watcher.join().unwrap();
    assert_eq!(line["type"], "lease_acquired");
    assert!(line["key"].as_str().unwrap().starts_with("a/"), "{line}");
    for nth in 0..taken {
        for key in ["other", "a"] {
            let line: serde_json::Value = serde_json::from_str(&events.line()).unwrap();
            assert_eq!(line["key"], format!("{key}/{nth}"), "everything, once, in order");
        }
    }
}

#[test]
fn events_are_numbered_and_can_be_read_from_a_place() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", &[]);
    with_hold(&dir, &["lease", "release", "k"], &hold, token);
    let page = dir.fencehold(&["event", "ls", "-o", "json"]).json();
    let all = page["events"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(page["next_cursor"], all[1]["seq"].to_string(), "{page}");
    assert_eq!((&all[1]["type"], &all[1]["outcome"]), (&json!("lease_ended"), &json!("released")));
    let first = all[0]["seq"].to_string();
    let rest = dir.fencehold(&["event", "ls", "--cursor", &first, "-o", "jsonl"]);
    assert_eq!(rest.out.lines().count(), 1, "{rest:?}");
    let ahead = dir.fencehold(&["event", "ls", "--cursor", "99999"]);
    assert_eq!(ahead.code, 2, "{ahead:?}");
    let table = dir.fencehold(&["event", "ls", "--prefix", "k"]);
    assert!(table.out.lines().nth(2).unwrap().contains("released"), "{table:?}");
}

#[test]
fn explain_tells_held_free_expired_and_never_held_apart() {
    let dir = TestDirectory::new();
    let never = dir.fencehold(&["explain", "k"]);
    assert!(never.out.starts_with("k was never held"), "{never:?}");

    acquire(&dir, "k", &["--owner", "me", "--task", "run-42", "--ttl", "100ms"]);
    // It is not renewed, and no caller needs to ask for it.
    eventually("it has run out", || dir.lease("k")["holder"].is_null());
    let expired = dir.fencehold(&["explain", "k"]);
    for told in
        ["k is free", "token 1", "by me", "run-42", "was expired", "died, stalled", "1 of the last 1 holds"]
    {
        assert!(expired.out.contains(told), "{told}: {expired:?}");
    }

    acquire(&dir, "k", &["--owner", "it's me", "--ttl", "1h"]);
    let mut waiting = dir.start(&["lease", "acquire", "k", "--wait", "60s"]);
    eventually("a waiter stands in line", || dir.lease("k")["waiter_count"] == 1);
    let held = dir.fencehold(&["explain", "k", "-o", "json"]).json();
    assert_eq!(held["state"], "held");
    for (field, told) in [
        ("summary", "k is held by it's me under token 2"),
        ("summary", "it was last renewed"),
        ("next", "the one in line gets it, under a token above 2"),
        ("next", "fencehold lease revoke k --reason"),
    ] {
        assert!(held[field].as_str().unwrap().contains(told), "{told}: {held}");
    }
    assert!(held["renewed_ago_ms"].as_u64().unwrap() < 60_000);
    waiting.child.kill().unwrap();
}

#[test]
fn a_lost_store_is_refused_until_a_backup_is_put_back_which_repeats_no_token() {
    let dir = TestDirectory::new();
    let backup = dir.path("backup").display().to_string();
    let (first, _) = acquire(&dir, "k", &["--ttl", "1h"]);
    assert_eq!(dir.fencehold(&["store", "backup", &backup]).code, 0);
    let restore = || dir.fencehold(&["store", "restore", &backup, "--by", "me"]);
    assert_eq!(restore().code, 74, "there is a store already");
    let directory = dir.path("leases").display().to_string();
    std::fs::remove_file(format!("{directory}/fencehold.db")).unwrap();
    let lost = dir.fencehold(&["lease", "ls"]);
    assert!(lost.code == 74 && lost.err.contains("store restore"), "{lost:?}");
    // One that was killed has left this, and another one is at work in it.
    let aside = std::path::Path::new(&directory).join("fencehold.restoring");
    std::fs::create_dir(&aside).unwrap();
    std::fs::write(aside.join("fencehold.db"), "half of a copy").unwrap();
    let other = std::fs::File::open(&aside).unwrap();
    other.lock().unwrap();
    let busy = restore();
    assert!(busy.code == 74 && busy.err.contains("another process is at work on"), "{busy:?}");
    assert!(aside.join("fencehold.db").exists(), "that is the other's");
    other.unlock().unwrap();
    let restored = restore();
    assert_eq!(restored.code, 0, "{restored:?}");
    let lease = dir.lease("k");
    assert!(lease["token"].as_u64().unwrap() > first && lease["holder"].is_null(), "{lease}");
    assert!(!aside.exists(), "nothing is left of the way there");
}

/// Each command owns the directory for a moment. Without the tables of jobs, one that reads a row of them fails.
#[test]
fn commands_about_leases_read_no_row_of_a_job() {
    let dir = TestDirectory::new();
    let job = dir.enqueue("{}", &[]);
    let database = dir.path("leases").join("fencehold.db");
    let rename = |from: &str, to: &str| {
        let connection = rusqlite::Connection::open(&database).unwrap();
        for table in ["queues", "jobs", "job_live", "job_finished", "uniques", "schedules", "job_aside"] {
            let sql = format!("ALTER TABLE {from}{table} RENAME TO {to}{table}");
            connection.execute_batch(&sql).unwrap();
        }
    };
    rename("", "away_");
    let ran = dir.fencehold(&["run", "--key", "k", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (token, hold) = acquire(&dir, "k", &["--ttl", "1h"]);
    for verb in ["renew", "release"] {
        let said = with_hold(&dir, &["lease", verb, "k"], &hold, token);
        assert_eq!(said.code, 0, "{verb}: {said:?}");
    }
    for words in [["lease", "ls"].as_slice(), &["lease", "get", "k"]] {
        let said = dir.fencehold(words);
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
    }
    let said = dir.fencehold(&["job", "get", &job]);
    assert!(said.code != 0 && said.err.contains("no such table"), "{said:?}");
    rename("away_", "");
    assert_eq!(dir.job(&job)["state"], "queued");
}
