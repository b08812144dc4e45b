//! Working on jobs from a script: claims, and what is said under them.

use serde_json::json;

use super::{claim, speak};
use crate::support::{TestDirectory, assert_has, said};

#[test]
fn a_script_claims_renews_and_completes_by_what_it_evaluates() {
    let dir = TestDirectory::new();
    let id = dir.enqueue(r#"{"to":"it's $(exit 3)"}"#, &["--label", "a=b"]);
    let binary = env!("CARGO_BIN_EXE_fencehold");
    let script = format!(
        "vars=$({binary} job claim --queue q -o env) || exit; eval \"$vars\"
         {binary} job renew >/dev/null && {binary} job complete --result '[1]' >/dev/null
         echo $? $FENCEHOLD_JOB_ID $FENCEHOLD_TOKEN $FENCEHOLD_ATTEMPT $FENCEHOLD_QUEUE $FENCEHOLD_KIND \"$FENCEHOLD_PAYLOAD\""
    );
    let said = said(&mut dir.shell(&script));
    assert_eq!(said.out, format!("0 {id} 1 1 q k {{\"to\":\"it's $(exit 3)\"}}\n"), "{said:?}");
    let job = dir.job(&id);
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!([1])));
    assert_eq!(job["payload"]["to"], "it's $(exit 3)");
}

#[test]
fn a_job_fails_is_snoozed_and_is_handed_back() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "--retry fixed:1h --max-failures 2");
    let back = claim(&dir, "").say(&dir, "job release -o json").ended(0);
    assert_eq!(back.json()["state"], "queued", "{back:?}");

    let snoozed = claim(&dir, "").say(&dir, "job snooze --delay 1h -o json");
    assert_eq!(snoozed.json()["retry_in_ms"], 3_600_000, "{snoozed:?}");
    assert_eq!(dir.job(&id)["failure_count"], 0, "neither counts");

    assert_eq!(dir.fencehold(&["job", "retry", &id]).code, 0);
    let failed = claim(&dir, "").say(&dir, "job fail --error 'no luck' -o json");
    assert_has(&failed.json(), &json!({ "state": "scheduled", "retry_in_ms": 3_600_000 }));
    assert_eq!(dir.job(&id)["failure_count"], 1);

    assert_eq!(dir.fencehold(&["job", "retry", &id]).code, 0);
    let given_up = claim(&dir, "").say(&dir, "job fail --error never --permanent");
    assert!(given_up.out.contains("failed"), "{given_up:?}");
    dir.fails(&["job", "wait", &id], 1, &[&format!("job {id} is failed: never")]);
}

#[test]
fn each_bad_word_about_an_attempt_has_its_own_error() {
    let dir = TestDirectory::new();
    dir.enqueue("1", "");
    dir.enqueue("2", "");
    let (one, other) = (claim(&dir, "--ttl 1h"), claim(&dir, "--ttl 1h"));
    let nobody = "01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55";
    let complete = "job complete";
    for (said, code, says) in [
        (speak(&dir, complete, nobody, 1, &one.hold), 1, "there is no such job"),
        (speak(&dir, complete, &one.id, other.token, &one.hold), 2, "was never given for this job"),
        (speak(&dir, complete, &one.id, one.token, &other.hold), 2, "the hold id is not the one"),
        (speak(&dir, complete, &one.id, 1 << 40, &one.hold), 74, "rewound"),
        (speak(&dir, complete, "nonsense", 1, &one.hold), 2, "FENCEHOLD_JOB_ID: job id \"nonsense\""),
        (speak(&dir, complete, &one.id, 1, "nonsense"), 2, "FENCEHOLD_HOLD_ID"),
        (dir.fencehold("job complete"), 2, "the job is missing"),
        (dir.fencehold(&["job", "complete", &one.id]), 2, "the hold id is missing"),
    ] {
        said.ended(code).says(&[says]);
    }
    assert_eq!(one.say(&dir, complete).code, 0);
    assert_eq!(one.say(&dir, complete).code, 0, "the same word again gets the same answer");
    one.say(&dir, "job renew").ended(76);
    assert_eq!(one.say(&dir, "job fail --error x").code, 76, "the first word stands");
}

#[test]
fn a_hold_id_of_a_job_is_printed_once_and_shown_nowhere_else() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let claim = claim(&dir, "--ttl 1h");
    let mut shown = String::new();
    for words in [
        format!("job get {id} -o json").as_str(),
        "job ls -o jsonl",
        "event ls -o jsonl",
        &format!("explain {id} -o json"),
        "-vvv job renew",
        "-vvv job complete",
        "-vvv job renew",
    ] {
        let said = claim.say(&dir, words);
        shown.extend([said.out, said.err]);
    }
    assert!(shown.contains(&id) && !shown.contains(&claim.hold));
}

#[test]
fn a_script_leaves_a_checkpoint_and_the_next_one_goes_on_from_it() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let first = claim(&dir, "--checkpoint-file state");
    assert_eq!(std::fs::read(dir.path("state")).unwrap(), b"", "there is none yet");
    let bytes = [0, 0xff, b'\n'];
    std::fs::write(dir.path("state"), bytes).unwrap();
    let stored = first.say(&dir, &["job", "checkpoint", "--file", "state", "-o", "json"]);
    assert_eq!((stored.code, &stored.json()["state"]), (0, &json!("running")), "{stored:?}");
    assert_eq!(first.say(&dir, &["job", "progress", "--note", "row 3 of 9"]).code, 0);
    let job = dir.job(&id);
    assert_eq!((&job["checkpoint"], &job["progress"]), (&json!("AP8K"), &json!("row 3 of 9")), "{job}");
    assert_eq!(first.say(&dir, &["job", "progress", "--note", " {\"row\":4}"]).code, 0);
    assert_eq!(dir.job(&id)["progress"], json!({"row": 4}));
    assert_eq!(first.say(&dir, &["job", "release"]).code, 0);

    let second = claim(&dir, "--checkpoint-file state-2");
    assert_eq!(std::fs::read(dir.path("state-2")).unwrap(), bytes);
    let late = first.say(&dir, &["job", "checkpoint", "--text", "late"]);
    assert_eq!(late.code, 76, "{late:?}");
    assert_eq!(second.say(&dir, &["job", "checkpoint", "--text", "-x"]).code, 0);
    assert_eq!(dir.job(&id)["checkpoint"], "LXg=");
    let mut command = dir.command("job checkpoint --file -");
    command
        .env("FENCEHOLD_JOB_ID", &second.id)
        .env("FENCEHOLD_TOKEN", second.token.to_string());
    std::fs::write(dir.path("stdin"), "from stdin").unwrap();
    let stdin = || std::fs::File::open(dir.path("stdin")).unwrap();
    let piped = said(command.env("FENCEHOLD_HOLD_ID", &second.hold).stdin(stdin()));
    assert_eq!(piped.code, 0, "{piped:?}");
    assert_eq!(dir.job(&id)["checkpoint"], "ZnJvbSBzdGRpbg==");
    let unproved = said(command.env_remove("FENCEHOLD_HOLD_ID").stdin(stdin()));
    assert_eq!(unproved.code, 2, "{unproved:?}");
    assert!(unproved.err.contains("the hold id is missing, and stdin is the checkpoint"), "{unproved:?}");
    assert_eq!(second.say(&dir, &["job", "release"]).code, 0);

    let third = dir.fencehold(&["job", "claim", "--queue", "q", "--checkpoint-file", "no/where"]);
    assert_eq!(third.code, 1, "{third:?}");
    assert!(third.err.contains(&format!("Job {id} was given back to its queue")), "{third:?}");
    assert_eq!(dir.job(&id)["state"], "queued");
}

#[test]
fn a_checkpoint_or_a_note_that_is_missing_or_too_long_is_refused_and_the_one_before_stays() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let claim = claim(&dir, "--ttl 1h");
    assert_eq!(claim.say(&dir, &["job", "checkpoint", "--text", "before"]).code, 0);
    std::fs::write(dir.path("long"), vec![b'x'; (256 << 10) + 1]).unwrap();
    let long = "x".repeat(5_000);
    for (words, says) in [
        (&["checkpoint", "--file", "long"] as &[&str], "--file long: it has more than 262144 bytes"),
        (&["checkpoint", "--file", "nowhere"], "--file nowhere: No such file"),
        (&["checkpoint", "--file", "long", "--text", "x"], "cannot be used with"),
        (&["checkpoint"], "--file <FILE>|--text <TEXT>"),
        (&["progress", "--note", &long], "the limit is 4096"),
        (&["progress"], "--note <TEXT>"),
    ] {
        let said = claim.say(&dir, &[&["job"], words].concat());
        assert_eq!(said.code, 2, "{words:?}: {said:?}");
        assert!(said.err.contains(says), "{words:?}: {said:?}");
    }
    assert_eq!(dir.job(&id)["checkpoint"], "YmVmb3Jl");
}
