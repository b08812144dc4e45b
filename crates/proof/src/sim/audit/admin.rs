//! Jobs as they come, are given out, and are decided about from outside.

use fencehold_contract::job::{ClaimJobsRequest, EnqueuedJob, JobAction, NewJob, QueueMode, When};
use fencehold_core::Timestamp;
use fencehold_core::job::{JobId, JobRefusal, JobState};
use fencehold_core::limits::FINISHED_KEPT_MS;

use super::job::{AttemptEnd, AuditedJob, WallMoment};
use super::{Audit, Auditor, HAPPENS_WITHIN_MS, Outage, RequestAndResponse};
use crate::simulated::{MachineRequest, MachineResponse};

/// The kind of jobs that a schedule makes.
pub(in crate::sim) const BEAT: &str = "beat";

/// A unique key that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UniqueJob {
    job: JobId,
    /// What makes another request the same one: queue, kind and payload.
    request: [Box<str>; 3],
    /// Its window does not end before this moment, and not after the other.
    certain_until_ms: u64,
    possible_until_ms: u64,
    /// Its window has ended and so has its job: the store may have forgotten it.
    may_be_free: bool,
}

/// What makes another request the same one.
fn request(job: &NewJob) -> [Box<str>; 3] {
    [job.queue.as_str().into(), job.kind.as_str().into(), job.payload.clone()]
}

impl UniqueJob {
    pub(super) fn restarted(&mut self, gap: &Outage) {
        self.certain_until_ms = gap.earliest_ms(self.certain_until_ms);
        self.possible_until_ms = gap.latest_ms(self.possible_until_ms);
    }
}

impl Auditor {
    /// One answer about jobs.
    pub(super) fn job_answer(&mut self, now: Timestamp, pair: &RequestAndResponse<'_>) -> Audit {
        let now_ms = now.store_ms;
        match (&pair.asked.question, pair.result) {
            (MachineRequest::Enqueue(jobs), Ok(MachineResponse::Enqueued(answers))) => jobs
                .iter()
                .zip(answers)
                .try_for_each(|(job, answer)| self.enqueued(now, job, answer)),
            (MachineRequest::Claim(request), Ok(MachineResponse::Claimed(claimed))) => {
                if !claimed.jobs.is_empty() {
                    pair.in_time(now_ms, request.wait_ms, "a job was given")?;
                }
                let (given, limit) = (claimed.jobs.len(), request.limit);
                if given > limit {
                    return Err(format!("{given} jobs were given, {limit} were asked for"));
                }
                if claimed.jobs.is_empty() {
                    return self.sent_away(now_ms, pair.asked.arrived_ms, request);
                }
                for job in &claimed.jobs {
                    if let Some(of) = &job.compensates {
                        self.undoes(now_ms, job.id, of.job_id, of.effect.as_str())?;
                    }
                    if job.kind.as_str() == BEAT {
                        let beat = self.jobs.entry(job.id).or_insert_with(|| AuditedJob::new(None));
                        (beat.max_attempts, beat.max_crashes) =
                            (job.options.max_failures, job.options.max_crashes);
                    }
                    if self.given(now_ms, request, job.id, job.token.get(), job.remaining_ms)? {
                        self.known(job.id)?.handed(job)?;
                        if self.open_since_ms.get(job.queue.as_str()) == Some(&None) {
                            return Err(format!("{} is paused, and gave a job out", job.queue));
                        }
                    }
                }
                Ok(())
            }
            (MachineRequest::Claim(request), Ok(MachineResponse::ClaimedUnread(jobs))) => {
                for (id, token, remaining_ms) in jobs {
                    // What the store makes by itself is seen first when it is given out.
                    self.jobs.entry(*id).or_insert_with(|| AuditedJob::new(None));
                    self.given(now_ms, request, *id, token.get(), *remaining_ms)?;
                }
                Ok(())
            }
            (MachineRequest::RenewClaims(attempts), Ok(MachineResponse::RenewedClaims(renewed))) => {
                attempts.iter().zip(&renewed.results).try_for_each(|(attempt, answer)| {
                    let hold = *attempt.hold_id.hash().as_bytes();
                    self.known(attempt.job_id)?.renewed(now_ms, hold, attempt.token.get(), answer)
                })
            }
            (MachineRequest::Report(reports), Ok(MachineResponse::Reported(answers))) => {
                reports.iter().zip(answers).try_for_each(|(report, answer)| {
                    let (id, hold) = (report.attempt.job_id, *report.attempt.hold_id.hash().as_bytes());
                    let token = report.attempt.token.get();
                    self.known(id)?.reported(now_ms, hold, token, &report.report, answer)?;
                    self.undo_has_ended(id);
                    Ok(())
                })
            }
            (MachineRequest::Ledger(entries), Ok(MachineResponse::Ledger(answers))) => {
                entries.iter().zip(answers).try_for_each(|(entry, answer)| {
                    let hold = *entry.attempt.hold_id.hash().as_bytes();
                    let token = entry.attempt.token.get();
                    self.known(entry.attempt.job_id)?
                        .entered(now_ms, hold, token, &entry.entry, answer)
                })
            }
            (MachineRequest::Job(id), Ok(MachineResponse::Job(detail))) => {
                match (self.jobs.get(id), detail) {
                    (Some(job), Some(detail)) => job.seen(now_ms, detail),
                    (Some(job), None) if !self.may_be_pruned(job) => {
                        Err(format!("P6: job {id} was enqueued, and is not there"))
                    }
                    (None, Some(_)) => Err(format!("P6: job {id} is there, and no answer said so")),
                    (_, None) => Ok(()),
                }
            }
            (MachineRequest::Act(request), Ok(MachineResponse::Acted(acted))) => {
                acted.results.iter().try_for_each(|item| {
                    let gone = || self.jobs.get(&item.job_id).is_none_or(|job| self.may_be_pruned(job));
                    if item.result == Err(JobRefusal::JobNotFound) && gone() {
                        return Ok(());
                    }
                    self.known(item.job_id)?.acted(now_ms, &request.action, &item.result)?;
                    self.undo_has_ended(item.job_id);
                    Ok(())
                })
            }
            (MachineRequest::SetQueue(order), Ok(MachineResponse::Queue(_))) => {
                let name = order.queue.as_str().to_owned();
                let since_ms = (order.mode != QueueMode::Paused).then_some(now_ms);
                self.open_since_ms.insert(name, since_ms);
                Ok(())
            }
            (MachineRequest::RemoveQueue(queue, _), Ok(MachineResponse::Removed(removed))) => {
                self.queue_removed(queue.as_str(), *removed)
            }
            // Nothing came of it: a look, a bad request, or one whose later sending took its place.
            (MachineRequest::Schedules, Ok(MachineResponse::Schedules(_)))
            | (MachineRequest::RemoveSchedule(..), Ok(MachineResponse::Removed(_)))
            | (_, Ok(MachineResponse::Other) | Err(_)) => Ok(()),
            (question, result) => Err(format!("{question:?} was answered by {result:?}")),
        }
    }

    fn queue_removed(&mut self, queue: &str, removed: bool) -> Audit {
        let inside = |job: &AuditedJob| job.queue.as_deref() == Some(queue) && !self.may_be_pruned(job);
        if removed && self.jobs.values().any(inside) {
            return Err(format!("P6: {queue} was removed, and has jobs"));
        }
        if removed {
            self.open_since_ms.remove(queue);
        }
        Ok(())
    }

    /// Notes which unique keys the store may have forgotten by now.
    pub(super) fn uniques_end(&mut self, now: Timestamp) {
        for taken in self.uniques.values_mut().filter(|taken| now.store_ms >= taken.certain_until_ms) {
            taken.may_be_free |= self.jobs.get(&taken.job).is_none_or(|job| {
                job.ended.is_some_and(JobState::is_final) || job.may_be_cancelled(now.store_ms)
            });
        }
    }

    /// Jobs whose moment of the wall clock has come.
    pub(super) fn moments_come(&mut self, now: Timestamp) {
        let awake_since_ms = self.awake_since_ms;
        self.jobs.values_mut().for_each(|job| job.moment_comes(now, awake_since_ms));
    }

    /// A claim got nothing: its time is up, and nothing was there for it.
    fn sent_away(&self, now_ms: u64, arrived_ms: u64, request: &ClaimJobsRequest) -> Audit {
        if self.holds_given.contains(request.hold_id.hash().as_bytes()) {
            return Ok(());
        }
        if now_ms < arrived_ms + request.wait_ms {
            let waited_ms = now_ms - arrived_ms;
            return Err(format!(
                "P10: a claim that waits for {} ms was sent away with nothing after {waited_ms} ms",
                request.wait_ms
            ));
        }
        let asks_for = |queue: &String| request.queues.iter().any(|(name, _)| name.as_str() == queue);
        for (id, job) in &self.jobs {
            let Some(queue) = job.queue.as_ref().filter(|queue| asks_for(queue)) else { continue };
            let Some(since_ms) = job.ready_since_ms() else { continue };
            let Some(open_ms) = self.open_since_ms.get(queue).copied().unwrap_or(Some(0)) else { continue };
            let ready_ms = now_ms.saturating_sub(since_ms.max(self.awake_since_ms).max(open_ms));
            if ready_ms > HAPPENS_WITHIN_MS {
                return Err(format!(
                    "P10: a claim got nothing, and job {id} has been ready in {queue} for {ready_ms} ms"
                ));
            }
        }
        Ok(())
    }

    /// Whether it may have come to its end, and been kept for as long as finished jobs are, for all that the store knows of time.
    fn may_be_pruned(&self, job: &AuditedJob) -> bool {
        self.ahead_ms_most >= FINISHED_KEPT_MS && (job.ended.is_some() || job.claim.is_some())
    }

    fn known(&mut self, id: JobId) -> Result<&mut AuditedJob, String> {
        self.jobs
            .get_mut(&id)
            .ok_or_else(|| format!("P6: job {id} is spoken of, and was never enqueued"))
    }

    fn enqueued(&mut self, now: Timestamp, job: &NewJob, answer: &Result<EnqueuedJob, JobRefusal>) -> Audit {
        let unique = job.unique.as_ref().map(|unique| unique.key.as_str().to_owned());
        let taken = unique.as_ref().and_then(|key| self.uniques.get(key)).cloned();
        // Its window, and until its job has come to its end.
        let holds = |taken: &UniqueJob| {
            let first = self.jobs.get(&taken.job);
            let over = first.is_none_or(|first| first.ended.is_some_and(JobState::is_final));
            let may_be_over = first.is_some_and(|first| first.may_be_cancelled(now.store_ms));
            (
                now.store_ms < taken.certain_until_ms || !over && !may_be_over,
                now.store_ms < taken.possible_until_ms || !over,
            )
        };
        let (certainly, possibly) = taken.as_ref().map_or((false, false), holds);
        let certainly = certainly && !taken.as_ref().is_some_and(|taken| taken.may_be_free);
        match answer {
            Ok(EnqueuedJob { job_id: id, existed: false }) if *id == job.id => {
                if self.jobs.contains_key(id) {
                    return Err(format!("P7: job {id} was made twice"));
                }
                if let Some(first) = taken.filter(|_| certainly) {
                    return Err(format!("P7: a unique key is job {}'s, and job {id} was made", first.job));
                }
                let mut made = AuditedJob::new(Some(job.payload.clone()));
                made.max_attempts = job.options.max_failures;
                made.max_crashes = job.options.max_crashes;
                made.queue = Some(job.queue.as_str().to_owned());
                match job.when {
                    When::At { wall_ms } => {
                        made.moment = Some(WallMoment { wall_ms, came: false, since_ms: None });
                    }
                    When::After { delay_ms } => made.waits_until(now.store_ms + delay_ms),
                    When::Now => made.waits_until(now.store_ms),
                }
                made.moment_comes(now, self.awake_since_ms);
                self.jobs.insert(*id, made);
                if let (Some(key), Some(unique)) = (unique, &job.unique) {
                    let until_ms = now.store_ms + unique.window_ms;
                    let taken = UniqueJob {
                        job: *id,
                        request: request(job),
                        certain_until_ms: until_ms,
                        possible_until_ms: until_ms,
                        may_be_free: false,
                    };
                    self.uniques.insert(key, taken);
                }
                Ok(())
            }
            Ok(EnqueuedJob { job_id: id, existed: true }) if *id == job.id => self.known(*id).map(drop),
            Ok(EnqueuedJob { job_id: id, existed: true }) => match taken {
                Some(first) if possibly && first.job == *id && first.request == request(job) => Ok(()),
                _ => Err(format!("P7: job {} was taken for job {id}, which it is not", job.id)),
            },
            Err(JobRefusal::Conflict { job_id: first, .. }) => match taken {
                Some(taken) if possibly && taken.job == *first && taken.request != request(job) => Ok(()),
                _ => Err(format!("P7: job {} was refused for job {first}, without reason", job.id)),
            },
            other => Err(format!("job {} was enqueued, and the answer was {other:?}", job.id)),
        }
    }

    /// A job was given out: fresh (true), or the same claim again.
    fn given(
        &mut self,
        now_ms: u64,
        request: &ClaimJobsRequest,
        id: JobId,
        token: u64,
        remaining_ms: u64,
    ) -> Result<bool, String> {
        let hold = *request.hold_id.hash().as_bytes();
        let newest = self.newest_claim;
        let job = self.known(id)?;
        if job
            .claim
            .as_ref()
            .is_some_and(|claim| claim.token == token && claim.hold == hold)
        {
            return job.claim_resumed(now_ms, token, remaining_ms).map(|()| false);
        }
        if token <= newest {
            return Err(format!("P2: token {token} was given to a job after {newest}"));
        }
        job.claimed(now_ms, hold, token, remaining_ms, request.ttl_ms)?;
        self.newest_claim = token;
        self.holds_given.insert(hold);
        Ok(true)
    }

    /// A job was given out that undoes an effect of another.
    fn undoes(&mut self, now_ms: u64, id: JobId, of: JobId, effect: &str) -> Audit {
        let known = self.jobs.get(&id).is_some_and(|job| job.undoes.is_some());
        if known {
            return Ok(());
        }
        let parent = self.known(of)?;
        parent.undoes_next(now_ms, effect)?;
        let terms = (parent.max_attempts, parent.max_crashes);
        let undo = self.jobs.entry(id).or_insert_with(|| AuditedJob::new(None));
        (undo.max_attempts, undo.max_crashes) = terms;
        undo.undoes = Some((of, effect.to_owned()));
        Ok(())
    }

    /// An undo job has come to its end, and with it the effect that it undoes.
    fn undo_has_ended(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.ended == Some(JobState::Completed)) else {
            return;
        };
        let Some((of, effect)) = job.undoes.clone() else { return };
        if let Some(entry) = self.jobs.get_mut(&of).and_then(|job| job.effects.get_mut(&effect)) {
            entry.undone = true;
        }
    }

    /// Jobs that were handed to a caller that had gone went back.
    pub(in crate::sim) fn abandoned_jobs(&mut self, now_ms: u64, jobs: &[JobId]) {
        for id in jobs {
            if let Some(job) = self.jobs.get_mut(id) {
                job.ends_claim(AttemptEnd::Silenced, now_ms);
            }
        }
    }

    /// After everything has ended: no job is left that could still be worked on, and everything that was to be undone is.
    pub(in crate::sim) fn nothing_is_left(&self) -> Audit {
        for (id, job) in &self.jobs {
            let quarantined = job.crashes + 1 >= job.max_crashes;
            if job.ended.is_none() && !job.cancel_asked && !quarantined {
                return Err(format!("P10: job {id} has not come to its end"));
            }
            if !matches!(job.ended, Some(JobState::Failed | JobState::Cancelled)) {
                continue;
            }
            let stopped = self.jobs.values().any(|undo| {
                undo.undoes.as_ref().is_some_and(|(of, _)| of == id)
                    && undo.ended != Some(JobState::Completed)
            });
            let left = job
                .effects
                .iter()
                .find(|(_, entry)| entry.value.is_some() && entry.can_be_undone && !entry.undone);
            if let Some((name, _)) = left.filter(|_| !stopped) {
                return Err(format!("P8: job {id} is over, and its effect {name} was not undone"));
            }
        }
        Ok(())
    }
}

impl AuditedJob {
    /// Someone decided about the job from outside.
    fn acted(&mut self, now_ms: u64, action: &JobAction, outcome: &Result<JobState, JobRefusal>) -> Audit {
        match (action, outcome) {
            (JobAction::Cancel { force: now, .. }, Ok(JobState::Cancelled)) => {
                if let Some(ended) =
                    self.ended.filter(|state| state.is_final() && *state != JobState::Cancelled)
                {
                    return Err(format!("P9: a job that is {ended} was cancelled"));
                }
                if let Some(live) = self.live(now_ms).filter(|_| !now) {
                    return Err(format!("P9: a job was cancelled under the live token {}", live.token));
                }
                self.cancel_asked = true;
                self.ends_claim(AttemptEnd::Silenced, now_ms);
                self.ended = Some(JobState::Cancelled);
                Ok(())
            }
            (JobAction::Cancel { .. }, Ok(JobState::Running)) => {
                let running = self
                    .claim
                    .as_ref()
                    .is_some_and(|claim| claim.said.is_none() && now_ms < claim.span.possible_until_ms);
                if !running {
                    return Err(
                        "P9: a job is to be called off at its next renewal, and no attempt is running"
                            .to_owned(),
                    );
                }
                self.cancel_asked = true;
                Ok(())
            }
            (JobAction::Cancel { .. }, Err(JobRefusal::Finished { state })) if self.ended == Some(*state) => {
                Ok(())
            }
            (JobAction::Complete { .. }, Ok(state @ JobState::Completed))
            | (JobAction::Fail { .. }, Ok(state @ JobState::Failed)) => {
                let stands = match state {
                    JobState::Completed => self.ended == Some(JobState::Completed),
                    _ => self.ended.is_some_and(JobState::is_final),
                };
                if stands {
                    return Err(format!("P7: a job that is {:?} was {state} by force", self.ended));
                }
                self.ends_claim(AttemptEnd::Silenced, now_ms);
                self.ended = Some(*state);
                Ok(())
            }
            (JobAction::Retry, Ok(JobState::Queued)) => {
                if let Some(live) = self.live(now_ms) {
                    return Err(format!("P1: a job was started over under the live token {}", live.token));
                }
                if self.ended == Some(JobState::Completed) {
                    return Err("P7: a completed job was started over".to_owned());
                }
                if let Some(claim) = &mut self.claim {
                    claim.said.get_or_insert((AttemptEnd::Silenced, now_ms));
                }
                self.was_retried = true;
                (self.ended, self.cancel_asked, self.failures, self.crashes) = (None, false, 0, 0);
                self.waits_until(0);
                self.moment = None;
                Ok(())
            }
            (JobAction::Retry | JobAction::Complete { .. } | JobAction::Fail { .. }, Err(_)) => Ok(()),
            (action, outcome) => Err(format!("{action:?} came to {outcome:?}")),
        }
    }
}
