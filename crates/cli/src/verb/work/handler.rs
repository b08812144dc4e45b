//! The handler of every job: one run of the command, from its start until nothing of it is left.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fencehold::{Job, JobError, LeaseState, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::checkpoint_file::{CheckpointFile, CheckpointFiles};
use super::command::{CommandResult, run};
use super::job_line::JobLines;
use super::outcome;
use crate::failure::Failure;
use crate::process::{LeaseStatus, Watchdog, boot_ms, most_grace_ms};

/// How long a job is kept whose command could not be started here, so that it does not come back at once: the first time,
/// and at most.
const UNSTARTED_FIRST: Duration = Duration::from_millis(100);
const UNSTARTED_MAX: Duration = Duration::from_secs(5);

pub(super) struct CommandHandler {
    /// The command and its arguments.
    pub(super) words: Vec<OsString>,
    /// What a command gets between TERM and KILL.
    pub(super) grace_ms: u64,
    pub(super) watchdog: Watchdog,
    /// For how long a job is put off whose command asks for that.
    pub(super) snooze: Duration,
    pub(super) lines: Arc<JobLines>,
    pub(super) unstarted: StartFailures,
    pub(super) checkpoints: CheckpointFiles,
    /// It was said that commands get no file for their checkpoints.
    pub(super) is_without_files: AtomicBool,
}

/// How many commands in a row could not be started, of whichever job: what is missing, all of them need.
#[derive(Debug, Default)]
pub(super) struct StartFailures(AtomicU32);

impl StartFailures {
    /// One more was not started. How long to wait: twice as long each time.
    fn pause(&self) -> Duration {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        UNSTARTED_FIRST.saturating_mul(1 << before.min(16)).min(UNSTARTED_MAX)
    }

    /// One was started.
    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl CommandHandler {
    /// Runs the command for a job. It blocks: a command is not dropped, but ended.
    pub(super) fn handle(&self, job: &Job, payload: &str) -> Result<Outcome, JobError> {
        Handle::current().block_on(self.attempt(job, payload))
    }

    async fn attempt(&self, job: &Job, payload: &str) -> Result<Outcome, JobError> {
        let (claim, now_ms) = (job.watch().snapshot(), boot_ms());
        // A job whose time limit is shorter than the ttl leaves a shorter grace too. With the whole one it would never begin.
        let left_ms = claim.deadline_ms.saturating_sub(now_ms);
        let grace_ms = self.grace_ms.min(most_grace_ms(left_ms));
        if now_ms.saturating_add(grace_ms) >= claim.lost_at_ms {
            // Too late to begin: another worker has more time for it.
            return Ok(Outcome::release());
        }
        let (tell, lease_status) = watch::channel(LeaseStatus::of(&claim));
        let told_to_end = Cell::new(false);
        let run_with = async |file: Option<&CheckpointFile>| {
            let (over, ended) = watch::channel(false);
            let running = async {
                let ran = run(self, job, payload, file, grace_ms, lease_status).await;
                over.send_replace(true);
                ran
            };
            match file {
                // What the command left at its end is stored before its job is reported.
                Some(file) => tokio::join!(running, file.follow(job, &self.lines, ended)).0,
                None => running.await,
            }
        };
        let ran = match self.checkpoint_file(job) {
            Ok(file) => tokio::select! {
                ran = run_with(file.as_ref()) => ran,
                never = follow(job, tell, &told_to_end) => match never {},
            },
            Err(failure) => Err(failure),
        };
        match ran {
            Ok(ran) => {
                self.unstarted.end();
                self.outcome(job, &ran, told_to_end.get())
            }
            Err(failure) => {
                // It is not the job's fault that nothing could be started here.
                if let Failure::Said { what, .. } = &failure {
                    self.lines.note(&format!("job {}: {what}; it is released", job.id()));
                }
                tokio::select! {
                    () = tokio::time::sleep(self.unstarted.pause()) => {}
                    _ = job.stop_requested() => {}
                }
                Ok(Outcome::release())
            }
        }
    }

    /// The file for the command's checkpoints. None: there can be none here, and the job has none to go on from.
    fn checkpoint_file(&self, job: &Job) -> Result<Option<CheckpointFile>, Failure> {
        let last = job.last_checkpoint();
        match self.checkpoints.create(last) {
            Ok(file) => Ok(Some(file)),
            Err(error) if last.is_none() => {
                if !self.is_without_files.swap(true, Ordering::Relaxed) {
                    self.lines.note(&format!(
                        "commands cannot leave checkpoints: no file can be made for them in {}: {error}",
                        std::env::temp_dir().display()
                    ));
                }
                Ok(None)
            }
            Err(error) => {
                Err(Failure::failed(format!("the file with its checkpoint cannot be made: {error}")))
            }
        }
    }

    fn outcome(&self, job: &Job, ran: &CommandResult, told_to_end: bool) -> Result<Outcome, JobError> {
        let (id, token, finish) = (job.id(), job.token(), &ran.finish);
        self.lines.ended(job, finish.code);
        if !finish.left.is_empty() {
            let pids: Vec<String> = finish.left.iter().map(ToString::to_string).collect();
            self.lines.note(&format!(
                "job {id}: processes of its command cannot be ended ({}), so its claim is left to run out",
                pids.join(", ")
            ));
            return Ok(Outcome::let_expire());
        }
        if finish.lost {
            let why = job.watch().snapshot().lost.map(|why| format!(" ({why})")).unwrap_or_default();
            self.lines.note(&format!(
                "job {id}: the claim under token {token} was lost{why}, and its command ended"
            ));
            return Ok(Outcome::let_expire());
        }
        match finish.code {
            // A command that was asked to end is not believed when it says that it is done.
            Some(code) if !told_to_end && !finish.unwatched => {
                outcome::outcome(code, &ran.stdout, ran.stderr_end.bytes(), self.snooze)
            }
            _ => Ok(Outcome::release()),
        }
    }
}

/// Follows the claim for the command: every new deadline, its end, and whether the command is still wanted. One that was asked
/// to end hears only that its claim was taken away, which leaves it less time.
async fn follow(job: &Job, tell: watch::Sender<LeaseStatus>, told_to_end: &Cell<bool>) -> Infallible {
    let mut claim = job.watch();
    let unwanted = async {
        tokio::select! {
            true = job.cancelled() => {}
            Some(_) = job.yield_requested() => {}
            () = job.drain_timed_out() => {}
        }
    };
    tokio::pin!(unwanted);
    loop {
        tokio::select! {
            () = &mut unwanted, if !told_to_end.get() => {
                told_to_end.set(true);
                tell.send_replace(LeaseStatus::Unwanted { kill_at_ms: claim.snapshot().lost_at_ms });
            }
            Some(snapshot) = claim.changed() => {
                let lease_status = LeaseStatus::of(&snapshot);
                if lease_status == LeaseStatus::Taken || !told_to_end.get() {
                    tell.send_replace(lease_status);
                }
                if snapshot.state == LeaseState::Lost {
                    return std::future::pending().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_cannot_be_started_slows_the_next_one_down_until_one_is() {
        let unstarted = StartFailures::default();
        let ms = |pause: Duration| pause.as_millis();
        let pauses: Vec<u128> = (0..7).map(|_| ms(unstarted.pause())).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000]);
        assert!((0..100).all(|_| unstarted.pause() == UNSTARTED_MAX));
        unstarted.end();
        assert_eq!(unstarted.pause(), UNSTARTED_FIRST);
    }
}
