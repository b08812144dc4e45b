//! A worker ends in good order when its process is told to, and the signals are then what they were before.
//!
//! Signals are the process's, so each case is a process of its own: this file, started again.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

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
    let file = std::env::current_exe().unwrap();
    let mut child = Command::new(file);
    child.args(["--exact", test, "--test-threads=1"]).env(CASE, "1");
    child.output().unwrap().status
}

fn is_alone() -> bool {
    std::env::var_os(CASE).is_some()
}

/// Runs a worker that is sent this signal while a job runs, and again where it does not heed the first.
async fn signalled(signal: i32, heeds: bool) -> (Fencehold, fencehold::JobId, Drained) {
    let fh = Fencehold::connect("memory:").await.unwrap();
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = fh.worker().queue("q", 1).drain_within(Duration::from_secs(3_600)).handle(
        "wait",
        move |job: Job, (): ()| {
            let begun = begun.clone();
            async move {
                begun.send("begun")?;
                assert_eq!(job.stop_asked().await, StopReason::Draining);
                begun.send("asked to stop")?;
                if !heeds {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        },
    );
    let id = fh.queue("q").job("wait", &()).enqueue().await.unwrap().id;
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
        assert_eq!((drained.finished, drained.handed_back), (1, 0));
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
    assert_eq!((drained.finished, drained.handed_back), (0, 1));
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
