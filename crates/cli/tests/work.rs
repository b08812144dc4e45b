//! `fencehold work`: what a command's end means for its job; and whatever happens to `work`, no command lives on beside
//! the next one.
#![cfg(feature = "file")]

use std::collections::BTreeSet;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{
    CommandOutput, DirectoryOwner, RunningProcess, TestDirectory, assert_has, children, eventually, process,
    runs, said,
};

/// Works off what is ready with a shell script.
fn work_off(dir: &TestDirectory, script: &str, options: &str) -> CommandOutput {
    let mut command = dir.command(&format!("work --queue q --until-empty -o jsonl {options} -- sh -c"));
    said(command.arg(script)).ended(0)
}

fn start_work(dir: &TestDirectory, options: &str, script: &str) -> RunningProcess {
    let mut command = dir.command(&format!("work --queue q -o jsonl {options} -- bash -c"));
    RunningProcess::start(command.arg(script))
}

/// How many claims wait for jobs.
fn waiting_claims(dir: &TestDirectory) -> Value {
    dir.json("queue ls")["queues"][0]["waiting_claim_count"].clone()
}

#[test]
fn the_payload_is_on_stdin_and_the_job_in_the_environment() {
    let dir = TestDirectory::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let id = dir.enqueue(r#"{"to": "a"}"#, &["--traceparent", trace]);
    let script = r#"test -z "$FENCEHOLD_HOLD_ID$FENCEHOLD_KEY" || exit 9
        printf '["%s","%s","%s","%s","%s","%s","%s",' "$FENCEHOLD_JOB_ID" "$FENCEHOLD_TOKEN" "$FENCEHOLD_ATTEMPT" \
            "$FENCEHOLD_QUEUE" "$FENCEHOLD_KIND" "$FENCEHOLD_IDEMPOTENCY_KEY" "$TRACEPARENT"; cat; echo ]"#;
    let said = work_off(&dir, script, "");
    let job = dir.job(&id);
    assert_eq!(job["result"], json!([id, "1", "1", "q", "k", id, trace, {"to": "a"}]), "{said:?}");
    assert_has(&said.json_lines()[0], &json!({ "job_id": id, "state": "completed", "exit_code": 0 }));
}

#[test]
fn a_payload_and_a_result_may_be_a_mebibyte_and_an_unread_payload_is_no_trouble() {
    let dir = TestDirectory::new();
    let text = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    std::fs::write(dir.path("big.jsonl"), format!("{text}\n{text}\n")).unwrap();
    let said = dir.fencehold("job enqueue --queue q --kind k --jsonl big.jsonl");
    let ids: Vec<&str> = said.out.lines().collect();
    // The first one's command does not read; the second one's hands back all it read.
    work_off(&dir, "if mkdir once 2>/dev/null; then echo short; else cat; fi", "");
    assert_eq!(dir.job(ids[0])["result"], "short");
    assert_eq!(dir.job(ids[1])["result"].as_str().map(str::len), Some((1 << 20) - 2));
}

#[test]
fn how_the_command_ends_is_what_comes_of_the_job() {
    let dir = TestDirectory::new();
    let completed = dir.enqueue("1", "");
    work_off(&dir, "echo not json", "");
    let job = dir.job(&completed);
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!("not json")));

    let silent = dir.enqueue("1", "");
    work_off(&dir, "true", "");
    assert_eq!(dir.job(&silent)["result"], Value::Null);

    let snoozed = dir.enqueue("1", "");
    work_off(&dir, "echo later; exit 75", "--snooze 1h");
    let job = dir.job(&snoozed);
    assert_has(&job, &json!({ "state": "scheduled", "failure_count": 0, "crash_count": 0 }));
    assert!(job["due_in_ms"].as_u64().unwrap() > 3_500_000, "{job}");
    assert_eq!(job["attempts"][0]["outcome"], "snoozed");

    let failed = dir.enqueue("1", "--retry fixed:1h");
    let said = work_off(&dir, "echo progress >&2; echo the disk is full >&2; exit 3", "");
    let job = dir.job(&failed);
    assert_eq!((&job["state"], &job["failure_count"]), (&json!("scheduled"), &json!(1)));
    assert_eq!(job["attempts"][0]["error"], "exit code 3: progress\nthe disk is full");
    assert!(said.err.contains("the disk is full"), "what commands say is passed on: {said:?}");

    let killed = dir.enqueue("1", "--max-failures 1");
    work_off(&dir, "kill -9 $$", "");
    let job = dir.job(&killed);
    // A failure, no crash: we saw it end.
    assert_has(&job, &json!({ "state": "failed", "failure_count": 1 }));
    assert!(job["attempts"][0]["error"].as_str().unwrap().contains("signal 9"), "{job}");
}

#[test]
fn as_many_run_at_once_as_were_asked_for() {
    let dir = TestDirectory::new();
    for nth in 0..4 {
        dir.enqueue(&nth.to_string(), "");
    }
    // Each waits until all four are there: it ends only if they run side by side.
    let script = "touch here-$FENCEHOLD_JOB_ID; while [ $(ls here-* | wc -l) -lt 4 ]; do sleep 0.01; done";
    work_off(&dir, script, "--concurrency 4");
    assert_eq!(dir.json("job count")["completed"], 4);
}

#[test]
fn commands_that_start_side_by_side_inherit_nothing_of_each_other() {
    let dir = TestDirectory::new();
    let ids: Vec<String> = (0..24).map(|nth| dir.enqueue(&nth.to_string(), "")).collect();
    work_off(&dir, "ls /proc/$$/fd", "--concurrency 24 --ttl 1m");
    // What the test itself inherited they all have.
    let opened: BTreeSet<String> = ids.iter().map(|id| dir.job(id)["result"].to_string()).collect();
    assert_eq!(opened.len(), 1, "{opened:?}");
}

/// Runs four stubborn commands at once under one watchdog. Their processes, and that of the watchdog.
fn four_stubborn(dir: &TestDirectory) -> (RunningProcess, Vec<i32>, i32) {
    for nth in 0..4 {
        dir.enqueue(&nth.to_string(), "--max-failures 1 --max-crashes 1");
    }
    let script = "trap '' TERM; echo $$ >>pids; while :; do sleep 0.01; done";
    let work = start_work(dir, "--ttl 3s --concurrency 4", script);
    eventually("all are up", || dir.lines("pids").len() == 4);
    let watchdogs = children(work.pid(), "fh-watchdog");
    assert_eq!(watchdogs.len(), 1, "one serves all");
    (work, dir.lines("pids").iter().map(|pid| pid.parse().unwrap()).collect(), watchdogs[0])
}

#[test]
fn one_watchdog_ends_every_command_when_work_is_killed_and_then_itself() {
    let dir = TestDirectory::new();
    let (mut work, commands, watchdog) = four_stubborn(&dir);
    work.send(Signal::KILL);
    work.finish();
    eventually("all are gone", || commands.iter().all(|pid| !runs(*pid)));
    eventually("the watchdog is gone", || !runs(watchdog));
}

#[test]
fn a_watchdog_that_is_killed_is_replaced_for_every_command() {
    let dir = TestDirectory::new();
    let _bystander = DirectoryOwner::start(&dir);
    let (mut work, commands, watchdog) = four_stubborn(&dir);
    kill_process(process(watchdog), Signal::KILL).unwrap();
    eventually("another is there", || {
        let now = children(work.pid(), "fh-watchdog");
        now.len() == 1 && now[0] != watchdog
    });
    work.send(Signal::KILL);
    work.finish();
    eventually("all are gone", || commands.iter().all(|pid| !runs(*pid)));
}

/// A command with a grandchild, neither of which heeds TERM; each notes that it lives, again and again. The second
/// attempt notes that it has started, lets the others speak if there still are any, and completes.
const STUBBORN: &str = "trap '' TERM
    if [ $FENCEHOLD_ATTEMPT = 2 ]; then echo start 2 >>log; sleep 0.3; echo end 2 >>log; exit; fi
    echo $$ >pids; beat() { while :; do echo beat 1 >>log; sleep 0.005; done; }
    (trap '' TERM; echo $BASHPID >>pids; beat) & beat";

/// Starts a worker on a stubborn command, and a second worker that waits for the job.
fn stubborn(dir: &TestDirectory) -> (RunningProcess, RunningProcess, String) {
    let id = dir.enqueue("1", "");
    let first = start_work(dir, "--ttl 2s --owner first", STUBBORN);
    eventually("both beat", || dir.lines("pids").len() == 2 && dir.lines("log").len() > 10);
    let second = start_work(dir, "--ttl 2s --owner second", STUBBORN);
    eventually("the second waits for a job", || waiting_claims(dir) == 1);
    (first, second, id)
}

/// The job was completed by the second, and nothing of the first attempt came after the start of the second.
fn assert_one_after_the_other(dir: &TestDirectory, mut second: RunningProcess, id: &str) {
    let line = second.json_line();
    assert_eq!((&line["attempt"], &line["state"]), (&json!(2), &json!("completed")), "{line}");
    let log = dir.lines("log");
    let start = log
        .iter()
        .position(|line| line == "start 2")
        .expect("the second attempt started");
    assert_eq!(log[start + 1..], ["end 2"], "beats of the first beside the second");
    assert!(dir.lines("pids").iter().all(|pid| !runs(pid.parse().unwrap())));
    let job = dir.job(id);
    assert_eq!((&job["crash_count"], &job["failure_count"]), (&json!(1), &json!(0)), "{job}");
    second.send(Signal::TERM);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn when_work_is_killed_its_command_is_gone_before_the_job_starts_again() {
    let dir = TestDirectory::new();
    let (mut first, second, id) = stubborn(&dir);
    first.send(Signal::KILL);
    first.finish();
    assert_one_after_the_other(&dir, second, &id);
}

#[test]
fn when_work_is_stopped_its_command_is_gone_before_the_job_starts_again_and_it_says_nothing_of_it() {
    let dir = TestDirectory::new();
    // Another process serves the directory: one that is stopped in the middle of a write would keep it from everybody.
    let _bystander = DirectoryOwner::start(&dir);
    let (mut first, second, id) = stubborn(&dir);
    first.send(Signal::STOP);
    assert_one_after_the_other(&dir, second, &id);
    first.send(Signal::CONT);
    let line = first.json_line();
    assert_eq!((&line["outcome"], &line["attempt"]), (&json!("lost"), &json!(1)), "{line}");
    first.send(Signal::TERM);
    first.finish().ended(0);
    assert_eq!(dir.job(&id)["state"], "completed");
}

#[test]
fn a_claim_is_renewed_for_as_long_as_the_command_runs() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let mut work = start_work(&dir, "--ttl 9s", "echo up >up; while [ ! -e go ]; do sleep 0.01; done");
    eventually("the command is up", || !dir.lines("up").is_empty());
    // More than a ttl of store time has passed: the claim is the same one.
    let age = || dir.job(&id)["runner"]["age_ms"].as_u64();
    eventually("it is old", || age().is_none_or(|age_ms| age_ms > 11_000));
    assert_eq!(dir.job(&id)["token"], 1);
    std::fs::write(dir.path("go"), "").unwrap();
    let line = work.json_line();
    assert_eq!((&line["state"], &line["token"]), (&json!("completed"), &json!(1)), "{line}");
}

#[test]
fn a_signal_lets_the_command_finish_and_claims_no_more() {
    let dir = TestDirectory::new();
    let first = dir.enqueue("1", "");
    let script = "echo up >>up; while [ ! -e go ]; do sleep 0.01; done; echo done";
    let mut work = start_work(&dir, "--drain-timeout 1h", script);
    eventually("the command is up", || !dir.lines("up").is_empty());
    let second = dir.enqueue("2", "");
    work.send(Signal::TERM);
    eventually("no claim waits for jobs", || waiting_claims(&dir) == 0);
    std::fs::write(dir.path("go"), "").unwrap();
    work.finish().ended(0);
    assert_has(&dir.job(&first), &json!({ "state": "completed", "result": "done" }));
    assert_has(&dir.job(&second), &json!({ "state": "queued", "attempt_count": 0 }));
}

/// The circuit breaker of a worker is its operator's to see.
#[cfg(all(feature = "remote", feature = "server"))]
#[test]
fn a_worker_says_that_its_circuit_breaker_opened_and_closed() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let (mut server, address) = crate::support::serve(&dir, "127.0.0.1:0");
    // The store is opened within that time, on a busy machine too.
    let options = format!("--store http://{address} --timeout 2s");
    let mut command = dir.command(&format!("work --queue q --until-empty {options} -- sh -c"));
    command.arg("echo up >up; while [ ! -e go ]; do sleep 0.01; done");
    let err = std::fs::File::create(dir.path("err")).unwrap();
    let work = command.stdout(std::process::Stdio::null()).stderr(err).spawn().unwrap();
    let mut work = RunningProcess::adopt(work);
    eventually("the command is up", || !dir.lines("up").is_empty());
    server.send(Signal::KILL);
    eventually("the server is gone", || server.is_over());
    // Its report is sent again and again.
    std::fs::write(dir.path("go"), "").unwrap();
    let says = |words: &str| dir.lines("err").join(" ").contains(words);
    eventually("the breaker is open", || says("circuit breaker open (opening 1 in a row;"));
    let (_server, _) = crate::support::serve(&dir, &address);
    eventually("no job is left", || work.is_over());
    assert!(says("circuit breaker closed: the store answers again"), "{:?}", dir.lines("err"));
    assert_eq!(dir.job(&id)["state"], "completed");
}

/// What it has to say of the signal has to wait; the command does not.
#[test]
fn a_reader_that_does_not_read_keeps_no_signal_from_being_heard() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let script =
        "head -c 300000 /dev/zero | tr '\\0' x >&2; touch up; while [ ! -e go ]; do sleep 0.01; done";
    let mut work = start_work(&dir, "--drain-timeout 1h --concurrency 2", script);
    eventually("the command has said what it has to", || dir.path("up").exists());
    eventually("it waits for another job", || waiting_claims(&dir) == 1);
    work.send(Signal::TERM);
    eventually("no claim waits for jobs", || waiting_claims(&dir) == 0);
    std::fs::write(dir.path("go"), "").unwrap();
    eventually("the job is done", || dir.job(&id)["state"] == "completed");
    let said = work.finish().ended(0);
    assert!(said.err.contains("no more jobs are claimed; 1 go on"), "{:?}", said.err.get(300_000..));
}

#[test]
fn after_the_drain_commands_are_ended_and_their_jobs_handed_back() {
    for (drain, second) in [("0s", false), ("1h", true)] {
        let dir = TestDirectory::new();
        let id = dir.enqueue("1", "");
        let script = "trap 'echo told >>log; exit 0' TERM; echo $$ >up; while :; do sleep 0.01; done";
        let mut work = start_work(&dir, &format!("--drain-timeout {drain}"), script);
        eventually("the command is up", || !dir.lines("up").is_empty());
        work.send(Signal::INT);
        if second {
            // Two at once may arrive as one: again, until it has heard.
            eventually("it ends", || {
                work.send(Signal::INT);
                work.is_over()
            });
        }
        work.finish().ended(0);
        assert_eq!(dir.lines("log"), ["told"]);
        let job = dir.job(&id);
        assert_has(&job, &json!({ "state": "queued", "failure_count": 0, "crash_count": 0 }));
        assert_eq!(job["attempts"][0]["outcome"], "released", "its exit code 0 is not believed");
    }
}

#[test]
fn cancelling_a_job_ends_its_command() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let script = "trap '' TERM; echo $$ >pid; while :; do sleep 0.01; done";
    let mut work = start_work(&dir, "--ttl 6s", script);
    eventually("the command is up", || !dir.lines("pid").is_empty());
    let pid = dir.lines("pid")[0].parse().unwrap();
    assert_eq!(dir.fencehold(&["job", "cancel", &id, "--reason", "wrong input"]).code, 0);
    let line = work.json_line();
    assert_eq!(line["state"], "cancelled", "{line}");
    assert!(!runs(pid), "KILL comes after TERM");
    assert_eq!(dir.job(&id)["state"], "cancelled");
}

#[test]
fn a_command_over_its_time_limit_is_ended_and_that_is_a_failure() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "--attempt-timeout 4s --max-failures 1");
    let script = "trap '' TERM; echo $$ >pid; while :; do sleep 0.01; done";
    // With a grace of its own the limit would leave no time to begin.
    let mut work = start_work(&dir, "--ttl 20s --grace 5s", script);
    let line = work.json_line();
    assert_eq!(line["outcome"], "lost", "{line}");
    assert!(!runs(dir.lines("pid")[0].parse().unwrap()));
    eventually("the job has failed", || dir.job(&id)["state"] == "failed");
    assert_has(&dir.job(&id), &json!({ "failure_count": 1, "crash_count": 0 }));
}

#[test]
fn what_a_command_leaves_behind_is_ended_before_its_job_is_done() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let script = "sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' >/dev/null 2>&1 & echo $! >pid";
    work_off(&dir, script, "--ttl 6s");
    assert_eq!(dir.job(&id)["state"], "completed");
    assert!(!runs(dir.lines("pid")[0].parse().unwrap()));
}

/// The kernel says whether a process is left of a group: /proc is looked through only where one is.
#[test]
fn nobody_looks_through_all_processes_where_a_command_leaves_none_behind() {
    let said_of = |script: &str| {
        let dir = TestDirectory::new();
        dir.enqueue("1", "");
        let mut command = dir.command("work --queue q --until-empty --ttl 6s -- sh -c");
        said(command.arg(script).env("FENCEHOLD_LOG", "debug")).ended(0).err
    };
    let looked = "looking through /proc";
    let quiet = said_of("true");
    assert!(!quiet.contains(looked), "{quiet}");
    let left = said_of("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' >/dev/null 2>&1 &");
    assert!(left.contains(looked), "{left}");
}

/// Counts to 20 from where an earlier attempt left off, and logs each step. The first attempt does not come past 7.
fn counting(at_seven: &str) -> String {
    format!(
        r#"n=$(cat "$FENCEHOLD_CHECKPOINT_FILE"); : "${{n:=0}}"
        while [ "$n" -lt 20 ]; do
            n=$((n + 1)); echo "$FENCEHOLD_ATTEMPT $n" >>log
            echo "$n" >"$FENCEHOLD_CHECKPOINT_FILE.new"
            mv "$FENCEHOLD_CHECKPOINT_FILE.new" "$FENCEHOLD_CHECKPOINT_FILE"
            if [ "$FENCEHOLD_ATTEMPT $n" = "1 7" ]; then {at_seven}; fi
        done; echo "$n""#
    )
}

/// The first attempt made the steps to 7, and the second one the others.
fn assert_counted_once(dir: &TestDirectory, id: &str) {
    let steps = (1..=20).map(|n| format!("{} {n}", if n <= 7 { 1 } else { 2 }));
    assert_eq!(dir.lines("log"), steps.collect::<Vec<_>>());
    let job = dir.job(id);
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!(20)), "{job}");
    assert_eq!(job["checkpoint"], "MjAK", "the last one was stored before the job was reported: {job}");
}

/// On the store itself, and through a server on it.
fn directly_and_through_a_server(test: impl Fn(&TestDirectory, &str)) {
    let dir = TestDirectory::new();
    test(&dir, "");
    #[cfg(feature = "server")]
    {
        let dir = TestDirectory::new();
        let (_server, address) = crate::support::serve(&dir, "127.0.0.1:0");
        test(&dir, &format!("--store http://{address}"));
    }
}

#[test]
fn when_work_is_killed_the_next_attempt_goes_on_from_the_last_checkpoint() {
    directly_and_through_a_server(|dir, store| {
        let id = dir.enqueue("1", "");
        let script = counting("while :; do sleep 0.01; done");
        let options = format!("--ttl 2s {store}");
        let mut first = start_work(dir, &options, &script);
        // The command still runs: what it leaves is stored without waiting for its end.
        eventually("the seventh is stored", || dir.job(&id)["checkpoint"] == "Nwo=");
        first.send(Signal::KILL);
        first.finish();
        let mut second = start_work(dir, &options, &script);
        let line: Value = serde_json::from_str(&second.line()).unwrap();
        assert_eq!((&line["attempt"], &line["state"]), (&json!(2), &json!("completed")), "{line}");
        assert_counted_once(dir, &id);
    });
}

#[test]
fn when_a_command_is_killed_the_next_attempt_goes_on_from_its_last_checkpoint() {
    directly_and_through_a_server(|dir, store| {
        let id = dir.enqueue("1", "--retry fixed:1ms");
        let mut work = start_work(dir, store, &counting("kill -9 $$"));
        let first: Value = serde_json::from_str(&work.line()).unwrap();
        assert_eq!((&first["outcome"], &first["exit_code"]), (&json!("failed"), &json!(137)), "{first}");
        let second: Value = serde_json::from_str(&work.line()).unwrap();
        assert_eq!((&second["attempt"], &second["state"]), (&json!(2), &json!("completed")), "{second}");
        assert_counted_once(dir, &id);
    });
}

/// A command that is asked to end has time to leave a last one.
#[test]
fn a_checkpoint_that_a_command_leaves_when_it_is_asked_to_end_is_stored() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let script = r#"new="$FENCEHOLD_CHECKPOINT_FILE.new"
        trap 'echo stopped >"$new"; mv "$new" "$FENCEHOLD_CHECKPOINT_FILE"; exit 1' TERM
        echo up >up; while :; do sleep 0.01; done"#;
    let mut work = start_work(&dir, "--drain-timeout 0s", script);
    eventually("the command is up", || !dir.lines("up").is_empty());
    work.send(Signal::TERM);
    assert_eq!(work.finish().code, 0);
    let job = dir.job(&id);
    assert_eq!((&job["state"], &job["checkpoint"]), (&json!("queued"), &json!("c3RvcHBlZAo=")), "{job}");
}

#[test]
fn a_checkpoint_that_may_be_half_of_one_or_is_too_long_is_not_taken_and_work_says_so() {
    for (script, says) in [
        (r#"rm "$FENCEHOLD_CHECKPOINT_FILE"; echo half >"$FENCEHOLD_CHECKPOINT_FILE""#, "in place"),
        (
            r#"head -c 262145 /dev/zero >"$FENCEHOLD_CHECKPOINT_FILE.new"
            mv "$FENCEHOLD_CHECKPOINT_FILE.new" "$FENCEHOLD_CHECKPOINT_FILE""#,
            "more than 262144 bytes",
        ),
    ] {
        let dir = TestDirectory::new();
        let id = dir.enqueue("1", "");
        let said = work_off(&dir, script, "");
        assert!(said.err.contains(&id) && said.err.contains(says), "{said:?}");
        let job = dir.job(&id);
        assert_eq!((&job["state"], &job["checkpoint"]), (&json!("completed"), &Value::Null), "{job}");
    }
}

#[test]
fn what_a_killed_worker_left_of_checkpoints_is_removed_by_the_next_one() {
    let dir = TestDirectory::new();
    std::fs::create_dir(dir.path("tmp")).unwrap();
    let left = || std::fs::read_dir(dir.path("tmp")).unwrap().count();
    let start = |script| {
        let mut work = dir.command("work --queue q --ttl 2s -- sh -c");
        RunningProcess::start(work.arg(script).env("TMPDIR", dir.path("tmp")))
    };
    dir.enqueue("1", "");
    let mut killed = start("touch up; exec sleep 1000");
    eventually("the command is up", || dir.path("up").exists());
    assert_eq!(left(), 1);
    killed.send(Signal::KILL);
    killed.finish();
    assert_eq!(left(), 1, "nothing has removed it");
    let mut next = start("ls -A \"$TMPDIR\" | wc -l >count");
    next.line();
    assert_eq!(dir.lines("count"), ["1"], "only its own");
    next.send(Signal::TERM);
    assert_eq!(next.finish().code, 0);
    assert_eq!(left(), 0);
}

#[test]
fn where_no_file_can_be_made_only_a_job_that_has_a_checkpoint_is_given_back() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let start = |script| {
        let mut work = dir.command("work --queue q -o jsonl -- sh -c");
        RunningProcess::start(work.arg(script).env("TMPDIR", dir.path("nowhere")))
    };
    let mut work = start("test -z \"${FENCEHOLD_CHECKPOINT_FILE+set}\"");
    work.line();
    work.send(Signal::TERM);
    let ended = work.finish();
    assert!(ended.err.contains("commands cannot leave checkpoints"), "{ended:?}");
    assert_eq!(dir.job(&id)["state"], "completed");

    dir.enqueue("2", "");
    let claimed = dir.fencehold(&["job", "claim", "--queue", "q", "-o", "json"]).json();
    for words in ["job checkpoint --text 7", "job release"] {
        let mut command = dir.command(words);
        command.env("FENCEHOLD_JOB_ID", claimed["id"].as_str().unwrap());
        command.env("FENCEHOLD_HOLD_ID", claimed["hold_id"].as_str().unwrap());
        assert_eq!(said(command.env("FENCEHOLD_TOKEN", claimed["token"].to_string())).code, 0);
    }
    let mut work = start("true");
    let line: Value = serde_json::from_str(&work.line()).unwrap();
    assert_eq!(line["outcome"], "released", "{line}");
    work.send(Signal::TERM);
    let ended = work.finish();
    assert!(ended.err.contains("the file with its checkpoint cannot be made"), "{ended:?}");
}
