//! The fenced file, as its users see it.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencehold::blocking::{self, FencedFile, Fencehold};
use fencehold::fence::file::Appended;
use fencehold::fence::{FenceError, KeyToken};
use fencehold::store::ListEventsRequest;
use fencehold::{BlockedAction, EventData, Job, JobError, Key, Namespace, Owner, Token, limits};
use tempfile::TempDir;

fn work_dir() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.log");
    (folder, path)
}

fn pass(key: &str, token: u64) -> KeyToken {
    KeyToken::new(Key::new(key).unwrap(), Token::new(token))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn is_stale<T: std::fmt::Debug>(answer: Result<T, FenceError>) -> bool {
    answer.is_err_and(|error| matches!(error, FenceError::Stale { .. }) && !error.is_retryable())
}

/// R18: the new holder has raised the fence and written nothing yet.
#[test]
fn a_raised_fence_refuses_the_holder_before_who_has_seen_nothing_of_it() {
    let (_folder, path) = work_dir();
    let fh = Fencehold::connect("memory:").unwrap();
    let file = FencedFile::open(&path).unwrap();
    let asleep = fh.lease("reports/daily").acquire().unwrap();
    let old = asleep.key_token();
    asleep.release().unwrap();
    let next = fh.lease("reports/daily").owner("host/7/next").acquire().unwrap();
    file.raise(&next).unwrap();
    for refused in
        [file.append(&old, "late", "late\n").map(drop), file.replace(&old, "late\n"), file.raise(&old)]
    {
        let Err(FenceError::Stale { key, token, highest_token, raised_by, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((key.as_str(), token, highest_token), ("reports/daily", old.token(), next.token()));
        assert_eq!(raised_by, Some(Owner::new("host/7/next").unwrap()));
    }
    assert!(!path.exists(), "nothing was written");
}

/// The file keeps no trace of what it refuses; the store that the holder has its lease from does.
#[test]
fn what_a_late_holder_was_refused_is_recorded_in_its_store() {
    let (_folder, path) = work_dir();
    let fh = Fencehold::connect("memory:").unwrap();
    let file = FencedFile::open(&path).unwrap();
    let late = fh.lease("reports/daily").acquire().unwrap();
    let old = late.key_token();
    late.release().unwrap();
    let next = fh.lease("reports/daily").acquire().unwrap();
    file.raise(&next).unwrap();
    let recorded = || {
        let request = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
        let events = blocking::wait(fh.store().list_events(&fh.call(), request)).unwrap().events;
        let blocked = events.into_iter().filter_map(|event| match event.data {
            EventData::StaleWriteBlocked { token, current_token, action, .. } => {
                Some((event.key.to_string(), token, current_token, action))
            }
            _ => None,
        });
        blocked.collect::<Vec<_>>()
    };
    let refused = ("reports/daily".to_owned(), old.token(), next.token(), BlockedAction::Write);
    assert!(is_stale(file.append(&old, "late", "late\n")));
    assert_eq!(recorded(), vec![refused.clone(); 1]);
    assert!(is_stale(file.replace(&old, "late\n")));
    assert_eq!(recorded(), vec![refused.clone(); 2]);
    assert!(is_stale(file.raise(&old)));
    assert_eq!(recorded(), vec![refused; 3]);
}

/// Without a raise the fence knows no better: the late write gets through, as the documentation says.
#[test]
fn a_fence_knows_only_what_it_was_shown() {
    let (_folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    file.append(pass("k", 33), "a", "33\n").unwrap();
    // Token 34 was granted meanwhile, and not shown.
    assert_eq!(file.append(pass("k", 33), "b", "33 again\n"), Ok(Appended::New));
    file.append(pass("k", 34), "c", "34\n").unwrap();
    assert!(is_stale(file.append(pass("k", 33), "d", "33 once more\n")));
    assert_eq!(read(&path), "33\n33 again\n34\n");
}

#[test]
fn every_key_has_its_own_highest_token_in_one_file() {
    let (_folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    file.append(pass("job/1", 9), "line", "one\n").unwrap();
    file.append(pass("job/2", 1), "line", "two\n").unwrap();
    let elsewhere = pass("job/1", 1).in_namespace(Namespace::new("team-a").unwrap());
    file.append(&elsewhere, "line", "three\n").unwrap();
    assert!(is_stale(file.append(pass("job/1", 8), "other", "late\n")));
    assert_eq!(read(&path), "one\ntwo\nthree\n");
}

#[test]
fn an_append_is_made_once_by_whomever_and_the_first_stands() {
    let (_folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    assert_eq!(file.append(pass("k", 1), "line-1", "first\n"), Ok(Appended::New));
    assert_eq!(file.append(pass("k", 2), "line-1", "second\n"), Ok(Appended::Duplicate));
    drop(file);
    let file = FencedFile::open(&path).unwrap();
    assert_eq!(file.append(pass("k", 3), "line-1", "third\n"), Ok(Appended::Duplicate));
    let repeated = file.append(pass("k", 2), "line-1", "second\n");
    assert!(is_stale(repeated), "a repeat is judged by its token first");
    assert_eq!(read(&path), "first\n");
}

#[test]
fn what_was_replaced_is_whole_keeps_its_permissions_and_is_appended_to() {
    let (_folder, path) = work_dir();
    fs::write(&path, "by hand\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let file = FencedFile::open(&path).unwrap();
    file.append(pass("k", 1), "a", "appended\n").unwrap();
    assert_eq!(read(&path), "by hand\nappended\n");
    file.replace(pass("k", 2), "replaced\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    file.append(pass("k", 2), "b", "and more\n").unwrap();
    assert_eq!(file.append(pass("k", 2), "a", "appended\n"), Ok(Appended::Duplicate));
    assert!(is_stale(file.replace(pass("k", 1), "late\n")));
    assert_eq!(read(&path), "replaced\nand more\n");
    file.replace(pass("k", 2), "").unwrap();
    assert_eq!(read(&path), "");
}

#[test]
fn many_at_once_through_many_handles_write_each_line_once() {
    let (_folder, path) = work_dir();
    let one = FencedFile::open(&path).unwrap();
    let two = FencedFile::open(&path).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let file = if worker % 2 == 0 { one.clone() } else { two.clone() };
            scope.spawn(move || {
                for number in 0..25 {
                    let own = format!("own {worker} {number}\n");
                    file.append(pass("k", 1), &format!("{worker}/{number}"), own).unwrap();
                    file.append(pass("k", 1), &number.to_string(), format!("all {number}\n"))
                        .unwrap();
                }
            });
        }
    });
    let text = read(&path);
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8 * 25 + 25);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 8 * 25 + 25, "each once");
}

#[test]
fn of_two_who_race_the_older_never_writes_after_the_newer() {
    for _ in 0..20 {
        let (_folder, path) = work_dir();
        let (one, two) = (FencedFile::open(&path).unwrap(), FencedFile::open(&path).unwrap());
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for number in 0..10 {
                    if is_stale(one.append(pass("k", 1), &format!("old {number}"), "old\n")) {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                start.wait();
                two.append(pass("k", 2), "new", "new\n").unwrap();
            });
        });
        assert!(read(&path).ends_with("new\n"), "{}", read(&path));
    }
}

/// So that a process that is stopped as soon as it was answered is not in the way.
#[test]
fn whoever_was_answered_holds_the_lock_no_longer() {
    let (_folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    let impatient = fencehold::fence::FencedFile::options().timeout(Duration::ZERO);
    let other = FencedFile::open_with(impatient, &path).unwrap();
    for number in 0..200 {
        file.append(pass("k", 1), &number.to_string(), "line\n").unwrap();
        assert_eq!(other.raise(pass("k", 1)), Ok(()));
        other.replace(pass("k", 1), "").unwrap();
        assert_eq!(file.raise(pass("k", 1)), Ok(()));
    }
}

#[test]
fn a_forgotten_key_begins_anew() {
    let (_folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    let (namespace, key) = (Namespace::default(), Key::new("job/1").unwrap());
    file.raise(pass("job/1", 9)).unwrap();
    assert_eq!(file.mark(&namespace, &key).unwrap().unwrap().token, Token::new(9));
    file.forget(&namespace, &key).unwrap();
    drop(file);
    let file = FencedFile::open(&path).unwrap();
    assert_eq!(file.mark(&namespace, &key), Ok(None));
    file.raise(pass("job/1", 1)).unwrap();
}

#[test]
fn one_file_under_two_names_has_one_fence() {
    let (folder, path) = work_dir();
    fs::write(&path, "").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    FencedFile::open(&link).unwrap().raise(pass("k", 2)).unwrap();
    assert!(is_stale(FencedFile::open(&path).unwrap().raise(pass("k", 1))));
}

#[test]
fn bad_input_is_refused_with_its_field() {
    let (folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    let (beyond, long, large) = (limits::TOKEN_MAX + 1, "i".repeat(513), limits::APPEND_BYTES_MAX + 1);
    for (token, id, bytes, says) in [
        (0, "a", 1, "token is 0, the token of a key that was never held"),
        (beyond, "a", 1, "token is 9007199254740992; the largest there can be is 9007199254740991"),
        (1, "", 1, "idempotency key must not be empty"),
        (1, &long, 1, "idempotency key has 513 bytes; the limit is 512"),
        (1, "a", large, "append has 16777217 bytes; the limit is 16777216"),
    ] {
        let error = file.append(pass("k", token), id, vec![0; bytes]).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
    let unusable = FencedFile::open(folder.path()).unwrap_err().to_string();
    let says = "cannot be fenced: it is not a plain file; it was left untouched";
    assert!(unusable.ends_with(says), "{unusable}");
    let lost = FencedFile::open(folder.path().join("no/such/file")).unwrap_err();
    assert!(matches!(lost, FenceError::Unusable { .. }), "{lost}");
}

#[test]
fn a_journal_that_is_gone_damaged_or_foreign_is_refused_and_left_alone() {
    let (folder, path) = work_dir();
    let journal = folder.path().join("out.log.fence/journal");
    FencedFile::open(&path).unwrap().append(pass("k", 2), "a", "a line\n").unwrap();
    let good = fs::read(&journal).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&journal, bytes).unwrap();
        let error = FencedFile::open(&path).unwrap_err();
        assert!(matches!(error, FenceError::Unusable { .. }) && !error.is_retryable(), "{error}");
        assert_eq!(fs::read(&journal).unwrap(), bytes, "left alone");
        error.to_string()
    };
    for at in 24..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        refused(&damaged);
    }
    let mut newer = good.clone();
    newer[15] = b'9';
    assert!(refused(&newer).contains("another version"));
    assert!(refused(b"dear diary").contains("a foreign file"));
    fs::remove_file(&journal).unwrap();
    let gone = FencedFile::open(&path).unwrap_err().to_string();
    assert!(gone.contains("its journal is gone"), "{gone}");
    fs::write(&journal, &good).unwrap();
    assert!(is_stale(FencedFile::open(&path).unwrap().raise(pass("k", 1))), "put back, it is as before");
}

#[test]
fn the_fence_stays_small_and_its_appends_fast_to_look_up() {
    let (folder, path) = work_dir();
    let file =
        FencedFile::open_with(fencehold::fence::FencedFile::options().remember_appends(100), &path).unwrap();
    let big = vec![b'x'; 64 * 1024];
    for number in 0..100 {
        file.append(pass("k", 1), &number.to_string(), big.clone()).unwrap();
    }
    let journal = fs::metadata(folder.path().join("out.log.fence/journal")).unwrap().len();
    assert!(journal < 2 * 1024 * 1024, "of 6 MiB that were appended, the journal keeps {journal} bytes");
    assert_eq!(file.append(pass("k", 1), "0", "again"), Ok(Appended::Duplicate));
    file.append(pass("k", 1), "one more", "x").unwrap();
    assert_eq!(file.append(pass("k", 1), "0", "again"), Ok(Appended::New), "a hundred and one appends ago");
}

#[test]
fn an_append_that_meets_a_file_changed_from_outside_destroys_nothing() {
    let (folder, path) = work_dir();
    let file = FencedFile::open(&path).unwrap();
    file.append(pass("k", 1), "a", "one\n").unwrap();
    // Rotated away: the next append begins a new file.
    fs::rename(&path, folder.path().join("out.log.1")).unwrap();
    file.append(pass("k", 1), "b", "two\n").unwrap();
    assert_eq!(read(&path), "two\n");
    // Rotated away while the last append was not yet in order: it is made in the new file.
    fs::rename(&path, folder.path().join("out.log.2")).unwrap();
    let lock = folder.path().join("out.log.fence/lock");
    let lock = fs::OpenOptions::new().write(true).open(lock).unwrap();
    lock.write_all_at(&[0; 24], 0).unwrap();
    fs::write(&path, "by hand\n").unwrap();
    file.append(pass("k", 1), "c", "three\n").unwrap();
    assert_eq!(read(&path), "by hand\ntwo\nthree\n");
    assert_eq!(file.append(pass("k", 1), "b", "two\n"), Ok(Appended::Duplicate));
}

#[test]
fn a_fence_whose_folder_was_removed_begins_anew_and_still_locks() {
    let (folder, path) = work_dir();
    let (one, two) = (FencedFile::open(&path).unwrap(), FencedFile::open(&path).unwrap());
    one.raise(pass("k", 9)).unwrap();
    fs::remove_dir_all(folder.path().join("out.log.fence")).unwrap();
    one.raise(pass("k", 2)).unwrap();
    assert!(is_stale(two.raise(pass("k", 1))));
}

#[tokio::test]
async fn async_callers_share_the_steps_and_a_dropped_future_does_no_harm() {
    let (_folder, path) = work_dir();
    let options = fencehold::fence::FencedFile::options().timeout(Duration::from_secs(30));
    let file = options.open(&path).await.unwrap();
    let lines = (0..50).map(|number| {
        let file = file.clone();
        tokio::spawn(
            async move { file.append(pass("k", 1), &number.to_string(), format!("{number}\n")).await },
        )
    });
    for line in lines.collect::<Vec<_>>() {
        assert_eq!(line.await.unwrap(), Ok(Appended::New));
    }
    {
        let mut asked = Box::pin(file.append(pass("k", 1), "left", "left\n"));
        let waker = std::task::Waker::noop();
        let _ = asked.as_mut().poll(&mut std::task::Context::from_waker(waker));
    }
    assert_eq!(file.append(pass("k", 1), "left", "left\n").await, Ok(Appended::Duplicate));
    assert_eq!(read(&path).lines().count(), 51);
}

/// Every attempt of a job has a token of its own, and the line belongs to the effect, not to the attempt.
#[tokio::test]
async fn a_job_that_is_tried_again_writes_its_line_once_and_its_earlier_attempt_no_more() {
    let (_folder, path) = work_dir();
    let file = fencehold::fence::FencedFile::open(&path).await.unwrap();
    let fh = fencehold::Fencehold::connect("memory:").await.unwrap();
    let passes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (of_handler, shown) = (file.clone(), std::sync::Arc::clone(&passes));
    let handler = move |job: Job, order: u64| {
        let (file, shown) = (of_handler.clone(), std::sync::Arc::clone(&shown));
        async move {
            shown.lock().unwrap().push(job.key_token());
            let key = job.idempotency_key("log")?;
            file.append(&job, &key, format!("{order} shipped\n")).await?;
            // The line is there; its record is not.
            if job.attempt() == 1 { Err(JobError::new("stopped in between")) } else { Ok(()) }
        }
    };
    let worker = fh.worker().queue("orders").handle("ship", handler).start().unwrap();
    let soon = fencehold::job::RetryPolicy::fixed(Duration::from_millis(10));
    let job = fh.queue("orders").job("ship", &17_u64).retry(soon).enqueue().await.unwrap();
    fh.jobs().result::<()>(job.job_id, Duration::from_secs(30)).await.unwrap();
    worker.drain().await.unwrap();
    assert_eq!(read(&path), "17 shipped\n");
    let passes = passes.lock().unwrap().clone();
    assert_eq!(passes.len(), 2);
    assert_eq!(passes[0].key().as_str(), format!("job/{}", job.job_id));
    assert!(passes[0].token() < passes[1].token());
    assert!(is_stale(file.append(&passes[0], "more", "too late\n").await));
}
