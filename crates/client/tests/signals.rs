//! A worker ends in good order when its process is asked to, and the signals are then what they were before.
//!
//! Signals are the process's, so each case is a process of its own: this file, started again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use fencehold::job::JobState;
use fencehold::{Drained, Fencehold, Job, StopReason};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::raise;
use tokio::sync::mpsc;

const CASE: &str = "FENCEHOLD_SIGNAL_CASE";

/// Starts one test of this file in a process of its own.
fn alone(test: &str) -> ExitStatus {
    let test = format!("signals::{test}");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &test, "--test-threads=1"]).env(CASE, "1");
    child.output().unwrap().status
}

fn is_alone() -> bool {
    std::env::var_os(CASE).is_some()
}

/// Runs a worker that is sent this signal while a job runs, and again where it does not heed the first.
async fn signalled(signal: i32, heeds: bool) -> (Fencehold, fencehold::JobId, Drained) {
    let fh = Fencehold::connect("memory:").await.unwrap();
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = fh.worker().queue("q").drain_timeout(Duration::from_secs(3_600)).handle(
        "wait",
        move |job: Job, (): ()| {
            let begun = begun.clone();
            async move {
                begun.send("begun")?;
                assert_eq!(job.stop_requested().await, StopReason::Draining);
                begun.send("asked to stop")?;
                if !heeds {
                    std::future::pending::<()>().await;
                }
                Ok::<_, fencehold::JobError>(())
            }
        },
    );
    let id = fh.queue("q").job("wait", &()).enqueue().await.unwrap().job_id;
    let run = tokio::spawn(worker.run());
    assert_eq!(beginnings.recv().await, Some("begun"));
    raise(signal).unwrap();
    assert_eq!(beginnings.recv().await, Some("asked to stop"));
    if !heeds {
        raise(signal).unwrap();
    }
    let drained = run.await.unwrap().unwrap();
    (fh, id, drained)
}

#[tokio::test]
async fn what_runs_when_the_signal_comes_may_end() {
    if !is_alone() {
        assert!(alone("what_runs_when_the_signal_comes_may_end").success());
        return;
    }
    for signal in [SIGTERM, SIGINT] {
        let (fh, id, drained) = signalled(signal, true).await;
        assert_eq!((drained.finished, drained.released), (1, 0));
        assert_eq!(fh.jobs().get(id).await.unwrap().job.state, JobState::Completed);
    }
}

#[tokio::test]
async fn a_second_signal_cuts_the_wait_short() {
    if !is_alone() {
        assert!(alone("a_second_signal_cuts_the_wait_short").success());
        return;
    }
    let (fh, id, drained) = signalled(SIGTERM, false).await;
    assert_eq!((drained.finished, drained.released), (0, 1));
    assert_eq!(fh.jobs().get(id).await.unwrap().job.state, JobState::Queued);
}

#[tokio::test]
async fn afterwards_the_signal_ends_the_process_again() {
    if !is_alone() {
        assert_eq!(alone("afterwards_the_signal_ends_the_process_again").signal(), Some(SIGTERM));
        return;
    }
    signalled(SIGTERM, true).await;
    raise(SIGTERM).unwrap();
}

#[tokio::test]
async fn afterwards_the_applications_own_handler_is_there_again() {
    if !is_alone() {
        let ended = alone("afterwards_the_applications_own_handler_is_there_again");
        assert!(ended.success(), "{ended:?}");
        return;
    }
    let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counts = std::sync::Arc::clone(&heard);
    let count = move || {
        counts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    };
    // SAFETY: counting may be done in a signal handler.
    #[allow(unsafe_code, reason = "an application that has its own handler")]
    unsafe { signal_hook::low_level::register(SIGTERM, count) }.unwrap();
    let heard = || heard.load(std::sync::atomic::Ordering::SeqCst);
    for nth in 1..=3 {
        signalled(SIGTERM, true).await;
        assert_eq!(heard(), 2 * nth - 1, "it hears what the worker hears");
        raise(SIGTERM).unwrap();
        assert_eq!(heard(), 2 * nth);
    }
}

/// A guard that is dropped as the process ends is given back: no one waits for its ttl.
#[test]
fn a_guard_that_is_dropped_at_the_end_of_the_process_is_given_back() {
    const STORE: &str = "FENCEHOLD_EXIT_STORE";
    let acquire = |store: &str| {
        fencehold::blocking::Fencehold::connect(store).and_then(|fh| {
            let lease = fh.lease("k").ttl(Duration::from_secs(3_600)).try_acquire()?;
            Ok((fh, lease))
        })
    };
    if let Ok(store) = std::env::var(STORE) {
        let (fh, lease) = acquire(&store).unwrap();
        drop((lease, fh));
        std::process::exit(0);
    }
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}?create=true", directory.path().join("s").display());
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let test = "signals::a_guard_that_is_dropped_at_the_end_of_the_process_is_given_back";
        child.args(["--exact", test, "--test-threads=1"]).env(STORE, &store);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (_fh, lease) = acquire(&store).unwrap();
        lease.release().unwrap();
    }
}
