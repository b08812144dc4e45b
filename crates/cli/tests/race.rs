//! `fencehold race`: what it prints, and its exit code.
#![cfg(all(feature = "file", feature = "race"))]

use crate::support::{TestDirectory, serve};

#[test]
fn a_race_that_holds_shows_trace_picture_promise_and_verdict() {
    let said = TestDirectory::new().fencehold(&["race", "run", "r06"]);
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        r#"{"event":"lease_expired","key":"job/7","token":1,"forced":true}"#,
        r#"{"event":"worker_exit","owner":"B","reason":"success"}"#,
        "complete … on its way",
        "At stake:   P5 Check and write are one act",
        "Verdict:    the promise held",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

#[test]
fn the_naive_twin_shows_its_damage_and_exits_with_1() {
    let dir = TestDirectory::new();
    let said = dir.fencehold(&["race", "run", "R06", "--naive"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("Verdict:    broken: the result of the holder stands"), "{}", said.out);
    assert_eq!(dir.fencehold(&["race", "run", "--all", "--naive"]).code, 1);
    let none = dir.fencehold(&["race", "run", "R20", "--naive"]);
    assert_eq!((none.code, none.out.as_str()), (2, ""), "{none:?}");
}

#[test]
fn a_race_that_the_store_cannot_show_is_not_taken_for_held() {
    let dir = TestDirectory::new();
    let said = dir.fencehold(&["race", "run", "R23", "--store", "memory:"]);
    assert_eq!(said.code, 77, "{said:?}");
    assert!(said.out.contains("Verdict:    not applicable: it cannot be restarted"), "{}", said.out);
    let all = dir.fencehold(&["race", "run", "--all", "--store", "memory:", "-o", "jsonl"]);
    assert_eq!(all.code, 0, "the others held: {all:?}");
    assert!(all.out.contains("not_applicable"), "{}", all.out);
}

#[test]
fn every_race_holds_on_the_store_that_was_named_and_nothing_is_left_there() {
    let dir = TestDirectory::new();
    let place = dir.path("races");
    let url = format!("file:{}", place.display());
    let said = dir.fencehold(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.lines().count() > 20 && !said.out.contains("broken"), "{}", said.out);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
}

/// A store whose time cannot be moved here: what runs out is waited for, what cannot be shown is said, nothing stays behind.
#[cfg(all(feature = "remote", feature = "server"))]
#[test]
fn races_run_on_a_server_that_is_in_use_and_leave_no_job_there() {
    let dir = TestDirectory::new();
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let url = format!("http://{address}");
    let said = dir.fencehold(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdict = |id: &str| {
        let line = lines.iter().find(|line| line["id"] == id).unwrap();
        line["verdict"].as_str().unwrap().to_owned()
    };
    for id in ["R01", "R02", "R06", "R06-job", "R08-job", "R17", "R31", "R40"] {
        assert_eq!(verdict(id), "held", "{id}: {}", said.out);
    }
    for id in ["R03", "R13", "R20", "R23-job", "R43"] {
        assert_eq!(verdict(id), "not_applicable", "{id}: {}", said.out);
    }
    let left = dir.fencehold(&["job", "ls", "--store", &url, "-o", "jsonl"]);
    let undo = |line: &str| line.contains("undo-");
    assert!(left.out.lines().all(undo), "only undo jobs, which are done, are left to be pruned: {left:?}");
}

#[test]
fn what_is_no_race_or_no_store_is_bad_usage() {
    let dir = TestDirectory::new();
    for words in [
        &["race", "run", "R99"] as &[&str],
        &["race", "run", "R06", "--repeat", "0"],
        &["race", "run", "R06", "--store", "redis://h"],
        &["race"],
    ] {
        let said = dir.fencehold(words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?}: {said:?}");
    }
    let said = dir.fencehold(&["race", "run", "R06", "--store", "file:/proc/no"]);
    assert_eq!(said.code, 74, "{said:?}");
}
