//! `fencehold lease …`, `event …`, `explain`: for scripts and for people.
#![cfg(feature = "file")]

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::support::{CommandOutput, RunningProcess, TestDirectory, assert_has, each, eventually, said};

/// Takes a lease and gives its hold id.
fn acquire(dir: &TestDirectory, key: &str, options: &str) -> (u64, String) {
    let taken = dir.json(&format!("lease acquire {key} {options}"));
    (taken["token"].as_u64().unwrap(), taken["hold_id"].as_str().unwrap().to_owned())
}

fn with_hold(dir: &TestDirectory, words: &str, hold: &str, token: u64) -> CommandOutput {
    let mut command = dir.command(words);
    said(command.env("FENCEHOLD_HOLD_ID", hold).env("FENCEHOLD_TOKEN", token.to_string()))
}

#[test]
fn a_script_takes_keeps_and_gives_back() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", "--ttl 1h --task t --owner me");
    assert_eq!(token, 1);
    assert_has(&dir.lease("k")["holder"], &json!({ "owner": "me", "task": "t" }));

    let renewed = with_hold(&dir, "lease renew k -o json", &hold, token).ended(0).json();
    assert_has(&renewed, &json!({ "token": 1, "remaining_ms": 3_600_000 }));

    // The id from stdin and the token from the flag, this time.
    let mut release = dir.command("lease release k --token 1");
    let mut release = RunningProcess::start(release.stdin(Stdio::piped()));
    release.child.stdin.take().unwrap().write_all(hold.as_bytes()).unwrap();
    assert_eq!(release.finish().code, 0);
    assert!(dir.lease("k")["holder"].is_null());

    // The same request again gets the same answer.
    with_hold(&dir, "lease release k", &hold, token).ended(0);
    with_hold(&dir, "lease renew k", &hold, token).ended(76).says(&["released"]);
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
    let said = said(&mut dir.shell(&script));
    assert_eq!(said.out, "0 it's a $(key) 1\n", "{said:?}");
}

#[test]
fn the_hold_id_is_printed_once_and_shown_nowhere_else() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", "");
    let mut shown = String::new();
    for words in [
        "lease get k -o json",
        "lease ls -o jsonl",
        "lease acquire k",
        "event ls -o jsonl",
        "explain k -o json",
        "-vvv lease renew k",
        "-vvv lease release k",
    ] {
        let said = with_hold(&dir, words, &hold, token);
        shown.extend([said.out, said.err]);
    }
    assert!(!shown.contains(&hold));
}

#[test]
fn a_hold_id_that_is_missing_or_wrong_is_not_repeated() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", "");
    let mut renew = dir.command("lease renew k");
    said(renew.env("FENCEHOLD_TOKEN", "1")).ended(2).says(&["FENCEHOLD_HOLD_ID"]);
    renew.env_remove("FENCEHOLD_TOKEN").env("FENCEHOLD_HOLD_ID", "0".repeat(32));
    said(&mut renew).ended(2).says(&["FENCEHOLD_TOKEN"]);

    let typo = with_hold(&dir, "lease renew k", "feedbeef", 1).ended(2);
    assert!(!typo.err.contains("feedbeef"), "{typo:?}");

    let other = with_hold(&dir, "lease renew k", &"0".repeat(32), 1).ended(2);
    other.says(&["not the one that token 1 was granted to"]);
}

#[test]
fn a_token_that_the_store_never_gave_proves_that_it_was_rewound() {
    let dir = TestDirectory::new();
    let (_, hold) = acquire(&dir, "k", "");
    let renewed = with_hold(&dir, "lease renew k", &hold, 99).ended(74);
    renewed.says(&["rewound", "store advance"]);
    dir.shows("explain k", &["STORE REWOUND"]);

    // Not without --yes.
    dir.fencehold("store advance --by alice").ended(2);
    assert!(!dir.lease("k")["holder"].is_null());
    let advanced = dir.json("store advance --by alice --increment 1000 --yes");
    assert_has(&advanced, &json!({ "ended_count": 1, "closed_for_ms": 30_000 }));
    assert_eq!(dir.lease("k")["token"], 1001);
    dir.fencehold("lease acquire k").ended(69);
}

#[test]
fn an_advance_says_how_long_it_closes_which_namespace_and_can_be_overridden() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", "");
    dir.succeeds("--namespace slow lease acquire k --ttl 24h -o json");
    let closes = ["1d in namespace slow", "30s in namespace default", "1d in any other namespace"];
    dir.shows("store advance --by alice --yes", &closes);
    assert_eq!(dir.fencehold("lease acquire k").code, 69);
    let forced = dir.succeeds("store advance --by alice --yes --reopen");
    forced.prints(&["an old holder may go on for up to 1d"]);
    acquire(&dir, "k", "");
    assert_eq!(dir.fencehold("--namespace slow lease acquire k").code, 0);
}

#[test]
fn a_namespace_is_held_to_the_limits_that_were_set() {
    let dir = TestDirectory::new();
    let view = dir.json("quota set --max-keys 1 --max-ttl 1m");
    assert_has(&view["quota"], &json!({ "max_keys": 1, "max_ttl_ms": 60_000, "max_queues": 10_000 }));
    dir.fails("lease acquire k --ttl 2m", 2, &["the longest in namespace default is 60000 ms"]);
    acquire(&dir, "k", "");
    dir.fails("lease acquire l", 69, &["lease keys of namespace default"]);
    assert!(dir.fencehold("quota get").out.contains("1 of 1"));
    assert_eq!(dir.fencehold("quota set").code, 2, "there is nothing to set");
    assert_eq!(dir.fencehold("--namespace other lease acquire l").code, 0);
}

#[test]
fn any_of_several_keys_will_do() {
    let dir = TestDirectory::new();
    acquire(&dir, "gpu/0", "");
    let taken = dir.json("lease acquire gpu/0 --any-of gpu/1 --any-of gpu/2");
    assert_eq!(taken["key"], "gpu/1");
    acquire(&dir, "gpu/2", "");
    let none = dir.fencehold("lease acquire gpu/0 --any-of gpu/1 --any-of gpu/2");
    assert_eq!((none.code, none.out.as_str()), (75, ""), "{none:?}");
}

#[test]
fn a_lease_whose_hold_id_nobody_could_read_is_given_back() {
    let dir = TestDirectory::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = dir.command("lease acquire k").stdout(full).stderr(Stdio::null()).status();
    assert_eq!(ended.unwrap().code(), Some(1));
    assert!(dir.lease("k")["holder"].is_null());
}

#[test]
fn a_list_can_be_narrowed() {
    let dir = TestDirectory::new();
    for (key, owner, task) in [("a/1", "me", "t1"), ("a/2", "you", "t1"), ("b/1", "me", "t2")] {
        acquire(&dir, key, &format!("--owner {owner} --task {task}"));
    }
    let keys = |options: &str| {
        let listed = dir.json(&format!("lease ls {options}"));
        each(&listed["leases"], "key").join(" ")
    };
    assert_eq!(keys(""), "a/1 a/2 b/1");
    assert_eq!(keys("--prefix a/"), "a/1 a/2");
    assert_eq!(keys("--owner me"), "a/1 b/1");
    assert_eq!(keys("--task t1 --owner you"), "a/2");

    let revoked = dir.json("lease revoke --task t1 --reason cancelled");
    assert_eq!(revoked["results"].as_array().unwrap().len(), 2, "{revoked}");
    assert!(revoked["results"][0]["ok"]["consumed_token"].is_u64(), "{revoked}");
    assert_eq!(keys(""), "b/1");
    assert_eq!(keys("--include-free"), "a/1 a/2 b/1");
    let table = dir.fencehold("lease ls");
    assert_eq!(table.out.lines().count(), 2, "{table:?}");
    assert!(table.out.starts_with("KEY "), "{table:?}");

    assert_eq!(keys("--include-free --namespace other"), "", "another namespace is another world");
}

/// Beside leases of other runs: `run-4` and `run-420` are none of `run-42`'s.
#[test]
fn a_supervisor_finds_and_ends_what_its_descendants_hold_and_nothing_else() {
    let dir = TestDirectory::new();
    let tasks = ["run-42", "run-42/train", "run-42/train/eval", "run-4", "run-420", "run_42/train"];
    for (nth, task) in tasks.iter().enumerate() {
        acquire(&dir, &format!("k/{nth}"), &format!("--owner me --task {task}"));
    }
    acquire(&dir, "k/none", "");
    let listed = |words: &str, field: &str| {
        let listed = dir.json(words);
        each(&listed[field], "key").join(" ")
    };
    assert_eq!(listed("lease ls --task-prefix run-42", "leases"), "k/0 k/1 k/2");
    assert_eq!(listed("lease ls --task-prefix run-42/train", "leases"), "k/1 k/2");
    assert_eq!(listed("lease ls --task-prefix run-42 --task run-42/train", "leases"), "k/1");
    assert_eq!(listed("lease ls --task-prefix run", "leases"), "");
    assert_eq!(listed("event ls --task-prefix run-42", "events"), "k/0 k/1 k/2");

    let ended = dir.json("lease revoke --task-prefix run-42/train --reason cancelled");
    assert_eq!(ended["results"].as_array().unwrap().len(), 2, "{ended}");
    assert_eq!(listed("lease ls", "leases"), "k/0 k/3 k/4 k/5 k/none");
    assert_eq!(listed("event ls --task-prefix run-42/train", "events"), "k/1 k/2 k/1 k/2");
    for bad in
        ["k/0 --task-prefix t", "--task t --task-prefix t", "--task-prefix t --token 1", "--task-prefix ''"]
    {
        dir.fencehold(&format!("lease revoke {bad} --reason r")).ended(2);
    }
    assert_eq!(listed("lease ls", "leases"), "k/0 k/3 k/4 k/5 k/none");
}

/// Both ways to watch, from the past into what happens.
#[test]
fn a_supervisor_watches_what_its_descendants_take() {
    let dir = TestDirectory::new();
    acquire(&dir, "before/own", "--task run-42");
    acquire(&dir, "before/other", "--task run-420");
    let mut events = dir.start("event watch --task-prefix run-42 -o jsonl");
    assert_eq!(events.json_line()["key"], "before/own");
    let mut watch = dir.start("lease watch --task-prefix run-42 -o jsonl");
    // `lease watch` begins now, whenever that is: something happens until it has seen it.
    let watcher = std::thread::spawn(move || watch.json_line());
    let mut taken = 0;
    eventually("the watcher has seen something", || {
        if !watcher.is_finished() {
            acquire(&dir, &format!("other/{taken}"), "--task run-420/a");
            acquire(&dir, &format!("own/{taken}"), "--task run-42/a");
            taken += 1;
        }
        watcher.is_finished()
    });
    let line = watcher.join().unwrap();
    assert!(line["key"].as_str().unwrap().starts_with("own/") && line["task"] == "run-42/a", "{line}");
    for nth in 0..taken {
        assert_eq!(events.json_line()["key"], format!("own/{nth}"), "each of its own, once, in order");
    }
}

#[test]
fn force_leaves_a_trace() {
    let dir = TestDirectory::new();
    acquire(&dir, "k", "");
    // A token that was never given.
    dir.fencehold("lease revoke k --reason r --token 7").ended(74);
    dir.succeeds("lease revoke k --reason stuck --by alice --token 1");
    let lease = dir.lease("k");
    assert_eq!(lease["token"], 2, "a token is used up");
    let ending = json!({ "outcome": "revoked", "by": "alice", "reason": "stuck" });
    assert_has(&lease["endings"][0], &ending);

    dir.fails("lease revoke k --reason stuck", 1, &["is not held"]);
    for bad in [
        "k",
        "--reason r",
        "k --task t --reason r",
        "--prefix '' --reason r",
        "--task t --token 1 --reason r",
        "k --reason ''",
    ] {
        dir.fencehold(&format!("lease revoke {bad}")).ended(2);
    }
}

#[test]
fn what_happens_can_be_followed() {
    let dir = TestDirectory::new();
    acquire(&dir, "before/1", "");
    // A bystander that serves the directory, so that both watchers are there when something happens.
    let mut watch = dir.start("lease watch a/ -o jsonl");
    let mut events = dir.start("event watch -o jsonl");
    let first = events.json_line();
    assert_eq!((&first["type"], &first["key"]), (&json!("lease_acquired"), &json!("before/1")));

    // `lease watch` begins now, whenever that is: something happens until it has seen it.
    let watcher = std::thread::spawn(move || watch.json_line());
    let mut taken = 0;
    eventually("the watcher has seen something", || {
        if !watcher.is_finished() {
            acquire(&dir, &format!("other/{taken}"), "");
            acquire(&dir, &format!("a/{taken}"), "");
            taken += 1;
        }
        watcher.is_finished()
    });
    let line = watcher.join().unwrap();
    assert_eq!(line["type"], "lease_acquired");
    assert!(line["key"].as_str().unwrap().starts_with("a/"), "{line}");
    for nth in 0..taken {
        for key in ["other", "a"] {
            let line = events.json_line();
            assert_eq!(line["key"], format!("{key}/{nth}"), "everything, once, in order");
        }
    }
}

#[test]
fn events_are_numbered_and_can_be_read_from_a_place() {
    let dir = TestDirectory::new();
    let (token, hold) = acquire(&dir, "k", "");
    with_hold(&dir, "lease release k", &hold, token);
    let page = dir.json("event ls");
    let all = page["events"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(page["next_cursor"], all[1]["seq"].to_string(), "{page}");
    assert_eq!((&all[1]["type"], &all[1]["outcome"]), (&json!("lease_ended"), &json!("released")));
    let first = all[0]["seq"].to_string();
    let rest = dir.fencehold(&["event", "ls", "--cursor", &first, "-o", "jsonl"]);
    assert_eq!(rest.out.lines().count(), 1, "{rest:?}");
    dir.fencehold("event ls --cursor 99999").ended(2);
    let table = dir.fencehold("event ls --prefix k");
    assert!(table.out.lines().nth(2).unwrap().contains("released"), "{table:?}");
}

#[test]
fn explain_tells_held_free_expired_and_never_held_apart() {
    let dir = TestDirectory::new();
    let never = dir.fencehold("explain k");
    assert!(never.out.starts_with("k was never held"), "{never:?}");

    acquire(&dir, "k", "--owner me --task run-42 --ttl 100ms");
    // It is not renewed, and no caller needs to ask for it.
    eventually("it has run out", || dir.lease("k")["holder"].is_null());
    let told = ["k is free", "token 1", "by me", "run-42", "was expired", "died, stalled"];
    dir.shows("explain k", &told).prints(&["1 of the last 1 holds"]);

    dir.succeeds(&["lease", "acquire", "k", "--owner", "it's me", "--ttl", "1h"]);
    let mut waiting = dir.start("lease acquire k --wait 60s");
    eventually("a waiter stands in line", || dir.lease("k")["waiter_count"] == 1);
    let held = dir.json("explain k");
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

/// Those who are refused see it, and so does everybody else: while the process that owns the directory lives.
#[test]
fn contended_keys_are_listed_and_explained() {
    let dir = TestDirectory::new();
    dir.shows("lease ls --contended", &[]).says(&["no key was contended for"]);
    let mut holder = dir.start("run --key busy --owner holder -- sleep 60");
    eventually("the key is held", || dir.lease("busy")["holder"]["owner"] == "holder");
    dir.succeeds("lease acquire quiet --ttl 1h");
    for owner in ["ann", "bob"] {
        dir.fails(&format!("lease acquire busy --task t7 --owner {owner}"), 75, &["holder"]);
    }
    let mut waiting = dir.start("lease acquire busy --wait 60s");
    eventually("the line is on record", || {
        dir.json("lease ls --contended")["keys"][0]["max_waiter_count"] == 1
    });
    let listed = dir.json("lease ls --contended");
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(1), "{listed}");
    let busy = &listed["keys"][0];
    assert_has(busy, &json!({ "key": "busy", "refused_count": 2, "max_waiter_count": 1 }));
    assert_has(&busy["last_refused"], &json!({ "owner": "bob", "task": "t7" }));
    assert_eq!(dir.json("lease ls --contended --prefix q")["keys"], json!([]));
    dir.shows("lease ls --contended", &["KEY", "REFUSED", "LINE", "busy", "bob", "t7"]);
    dir.shows(
        "explain busy",
        &["Contention: refused 2 times since", "last to bob for task t7", "longest line had 1"],
    );
    assert_eq!(dir.json("explain busy")["contention"], *busy);
    assert!(dir.json("explain quiet")["contention"].is_null(), "it was never refused");
    dir.fails("lease ls --contended --owner ann", 2, &["cannot be used with"]);
    waiting.child.kill().unwrap();
    holder.child.kill().unwrap();
}

#[test]
fn a_lost_store_is_refused_until_a_backup_is_put_back_which_repeats_no_token() {
    let dir = TestDirectory::new();
    let backup = dir.path("backup").display().to_string();
    let (first, _) = acquire(&dir, "k", "--ttl 1h");
    assert_eq!(dir.fencehold(&["store", "backup", &backup]).code, 0);
    let restore = || dir.fencehold(&["store", "restore", &backup, "--by", "me"]);
    assert_eq!(restore().code, 74, "there is a store already");
    let directory = dir.path("leases").display().to_string();
    std::fs::remove_file(format!("{directory}/fencehold.db")).unwrap();
    dir.fails("lease ls", 74, &["store restore"]);
    // One that was killed has left this, and another one is at work in it.
    let aside = std::path::Path::new(&directory).join("fencehold.restoring");
    std::fs::create_dir(&aside).unwrap();
    std::fs::write(aside.join("fencehold.db"), "half of a copy").unwrap();
    let other = std::fs::File::open(&aside).unwrap();
    other.lock().unwrap();
    restore().ended(74).says(&["another process is at work on"]);
    assert!(aside.join("fencehold.db").exists(), "that is the other's");
    other.unlock().unwrap();
    restore().ended(0);
    let lease = dir.lease("k");
    assert!(lease["token"].as_u64().unwrap() > first && lease["holder"].is_null(), "{lease}");
    assert!(!aside.exists(), "nothing is left of the way there");
}

/// Each command owns the directory for a moment. Without the tables of jobs, one that reads a row of them fails.
#[test]
fn commands_about_leases_read_no_row_of_a_job() {
    let dir = TestDirectory::new();
    let job = dir.enqueue("{}", "");
    let database = dir.path("leases").join("fencehold.db");
    let rename = |from: &str, to: &str| {
        let connection = rusqlite::Connection::open(&database).unwrap();
        for table in ["queues", "jobs", "job_live", "job_finished", "uniques", "schedules", "job_aside"] {
            let sql = format!("ALTER TABLE {from}{table} RENAME TO {to}{table}");
            connection.execute_batch(&sql).unwrap();
        }
    };
    rename("", "away_");
    dir.succeeds("run --key k -- true");
    let (token, hold) = acquire(&dir, "k", "--ttl 1h");
    for words in ["lease renew k", "lease release k", "lease ls", "lease get k"] {
        with_hold(&dir, words, &hold, token).ended(0);
    }
    let said = dir.fencehold(&["job", "get", &job]).says(&["no such table"]);
    assert_ne!(said.code, 0, "{said:?}");
    rename("away_", "");
    assert_eq!(dir.job(&job)["state"], "queued");
}
