//! What attempts say: renewals and completions in one statement; everything else, by the rules.

use std::collections::HashMap;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, RenewAttemptBatchResponse, Report,
};
use fencehold_contract::operation::{JobRequest, JobResponse, check_word, unexpected_response};
use fencehold_contract::{CompletedJobs, StoreError};
use fencehold_core::job::{AttemptRenewal, JobId, JobRefusal, JobState, ReportedAttempt};
use fencehold_core::{HoldId, Token};

use super::decide::{DecisionScope, within};
use crate::ResendPolicy;
use crate::fenced::FencedAction;
use crate::pool::PoolLane;
use crate::response::{completed, unanswered};
use crate::statement::{Call, Parameter, query};
use crate::value::{Uuid128, from_sql, to_sql};

impl Call<'_> {
    pub(super) async fn renew_claims(
        &mut self,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        let proofs = AttemptColumns::of(attempts.iter());
        self.lane = PoolLane::Renewals;
        let before_ms = self.clock.now().store_ms;
        let core = self.core;
        let asked: [&dyn Parameter; 4] = [&self.namespace(), &proofs.ids, &proofs.hashes, &proofs.tokens];
        let kept: Vec<(i64, i64)> = self
            .run(ResendPolicy::Safe, async |client, lock_ms| {
                query(client, &core.sql(&within(lock_ms, "job_renew($1, $2, $3, $4)")), &asked).await
            })
            .await?;
        let mut kept: HashMap<i64, i64> = kept.into_iter().collect();
        let at_ms = kept.remove(&0);
        // What is renewed is renewed, whatever comes after.
        self.budget.outcome_unknown |= !kept.is_empty();
        if let Some(at_ms) = at_ms {
            // Before the rules refuse what a clock that has jumped has ended.
            self.saw_the_clock(before_ms, at_ms).await?;
        }
        let renewal = |token, remaining_ms| AttemptRenewal {
            token,
            remaining_ms,
            cancel_requested: false,
            yield_request: None,
        };
        let answers: Vec<Option<Result<AttemptRenewal, JobRefusal>>> = (1..)
            .zip(&attempts)
            .map(|(nth, attempt)| {
                kept.get(&nth).map(|left_ms| Ok(renewal(attempt.token, from_sql(*left_ms))))
            })
            .collect();
        let rest = unanswered(&attempts, &answers);
        let mut decided = Vec::new();
        if !rest.is_empty() {
            self.lane = PoolLane::Checks;
            let about = self.scope(rest.iter().map(|attempt| attempt.job_id));
            let JobResponse::Renewed(renewed) = self.by_the_rules(&about, JobRequest::Renew(rest)).await?
            else {
                return Err(unexpected_response());
            };
            decided = renewed.results;
        }
        Ok(RenewAttemptBatchResponse { results: completed(answers, decided)?, waited_ms: 0 })
    }

    pub(super) async fn report(
        &mut self,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, JobRefusal>>, StoreError> {
        let reports: Vec<AttemptReport> = reports.into_iter().map(without_nul).collect();
        let mut spoken: HashMap<JobId, usize> = HashMap::new();
        for report in &reports {
            *spoken.entry(report.attempt.job_id).or_default() += 1;
        }
        // Of a job of which more is said, everything is heard in order.
        let plain: Vec<usize> = (0..reports.len())
            .filter(|nth| {
                let AttemptReport { attempt, report: word } = &reports[*nth];
                let completes = matches!(word, Report::Complete { .. }) && check_word(word).is_ok();
                completes && spoken.get(&attempt.job_id) == Some(&1)
            })
            .collect();
        let ended = |late: bool| ReportedAttempt { state: JobState::Completed, retry_in_ms: None, late };
        let mut answers: Vec<Option<Result<ReportedAttempt, JobRefusal>>> = vec![None; reports.len()];
        for (nth, late) in self.complete(&reports, plain).await? {
            answers[nth] = Some(Ok(ended(late)));
        }
        let done: Vec<bool> = answers.iter().map(Option::is_some).collect();
        let rest = unanswered(&reports, &answers);
        self.budget.outcome_unknown |= rest.len() < reports.len();
        let mut decided = Vec::new();
        if !rest.is_empty() {
            let about = self.scope(rest.iter().map(|report| report.attempt.job_id));
            // A holder may leave notes while it has a transaction open under its own fence.
            let notes = |report: &AttemptReport| {
                matches!(report.report, Report::Checkpoint { .. } | Report::Progress { .. })
            };
            // The result that is kept shows whether it is the same completion again.
            let says_completed = |report: &AttemptReport| matches!(report.report, Report::Complete { .. });
            let (notes, ends) = (rest.iter().any(says_completed), !rest.iter().all(notes));
            let about = DecisionScope { notes, ends, ..about };
            let JobResponse::Reported(reported) = self.by_the_rules(&about, JobRequest::Report(rest)).await?
            else {
                return Err(unexpected_response());
            };
            decided = reported;
        }
        let mut answers = completed(answers, decided)?;
        for (nth, answer) in answers.iter_mut().enumerate() {
            if let Err(JobRefusal::WrongJob { token, job_id: job @ None }) = answer {
                // An attempt that reports after this one was at work when this one reported.
                let later = (nth..reports.len()).filter(|later| done[*later]);
                *job = later
                    .map(|later| &reports[later].attempt)
                    .find(|attempt| attempt.token == *token)
                    .map(|attempt| attempt.job_id);
            }
        }
        Ok(answers)
    }

    /// Completes what can be completed in one statement of the reports with these numbers, each about another job. Says which that
    /// were, and whether it was late.
    async fn complete(
        &mut self,
        reports: &[AttemptReport],
        mut plain: Vec<usize>,
    ) -> Result<Vec<(usize, bool)>, StoreError> {
        if plain.is_empty() {
            return Ok(Vec::new());
        }
        // The order in which they are locked.
        plain.sort_unstable_by_key(|nth| reports[*nth].attempt.job_id);
        let proofs = AttemptColumns::of(plain.iter().map(|nth| &reports[*nth].attempt));
        let results: Vec<Option<&str>> = plain
            .iter()
            .map(|nth| match &reports[*nth].report {
                Report::Complete { result } => result.as_deref(),
                _ => None,
            })
            .collect();
        // Most have none to tell.
        let results = results.iter().any(Option::is_some).then_some(results);
        let drops = self.jobs.completed == CompletedJobs::Drop;
        let jobs: Vec<JobId> = plain.iter().map(|nth| reports[*nth].attempt.job_id).collect();
        let (core, namespace) = (self.core, self.namespace());
        let told: Vec<(Option<Uuid128>, bool)> = self
            .run_past_fences(ResendPolicy::Safe, FencedAction::Jobs(&jobs), async |client, lock_ms| {
                let sql = core.sql(&within(lock_ms, "job_complete_batch($1, $2, $3, $4, $5, $6)"));
                let asked: [&dyn Parameter; 6] =
                    [&namespace, &proofs.ids, &proofs.hashes, &proofs.tokens, &results, &drops];
                query(client, &sql, &asked).await
            })
            .await?;
        if let [(None, late)] = told[..] {
            return Ok(plain.into_iter().map(|nth| (nth, late)).collect());
        }
        let told: HashMap<Uuid128, bool> =
            told.into_iter().filter_map(|(id, late)| Some((id?, late))).collect();
        let of = |nth: usize| told.get(&reports[nth].attempt.job_id.into()).map(|late| (nth, *late));
        Ok(plain.into_iter().filter_map(of).collect())
    }

    pub(super) async fn ledger(
        &mut self,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<JobResponse, StoreError> {
        let about = self.scope(entries.iter().map(|entry| entry.attempt.job_id));
        self.by_the_rules(&about, JobRequest::WriteEffects(entries)).await
    }

    /// Has the rules decide, and names the jobs of tokens that were shown for others.
    pub(super) async fn by_the_rules(
        &mut self,
        about: &DecisionScope,
        ask: JobRequest,
    ) -> Result<JobResponse, StoreError> {
        let mut answer = self
            .decide(ResendPolicy::Safe, about, |replay| replay.ask(&self.about.namespace, ask.clone()))
            .await??;
        for refusal in refusals(&mut answer) {
            if let JobRefusal::WrongJob { token, job_id: job } = refusal
                && job.is_none()
            {
                *job = self.job_under(*token).await;
            }
        }
        Ok(answer)
    }

    /// The job of the caller's namespace that is worked on under a token. Only for the words of a refusal, which is an answer
    /// without it too.
    async fn job_under(&mut self, token: Token) -> Option<JobId> {
        let sql = "SELECT fencehold.job_under($1, $2)";
        let found: Result<Option<Uuid128>, _> =
            self.value(sql, &[&self.namespace(), &to_sql(token.get())]).await;
        found.ok().flatten().map(JobId::from)
    }
}

/// Every refusal in an answer to attempts.
fn refusals(answer: &mut JobResponse) -> Vec<&mut JobRefusal> {
    fn of<T>(answers: &mut [Result<T, JobRefusal>]) -> Vec<&mut JobRefusal> {
        answers.iter_mut().filter_map(|answer| answer.as_mut().err()).collect()
    }
    match answer {
        JobResponse::Renewed(renewed) => of(&mut renewed.results),
        JobResponse::Reported(answers) => of(answers),
        JobResponse::WrittenEffects(answers) => of(answers),
        _ => Vec::new(),
    }
}

/// The database keeps no character of code zero in texts.
fn without_nul(mut report: AttemptReport) -> AttemptReport {
    if let Report::Fail { error, .. } = &mut report.report
        && error.contains('\0')
    {
        *error = error.replace('\0', "\u{fffd}");
    }
    report
}

/// By what attempts speak for themselves, column by column.
struct AttemptColumns {
    ids: Vec<Uuid128>,
    hashes: Vec<Uuid128>,
    tokens: Vec<i64>,
}

impl AttemptColumns {
    fn of<'a>(attempts: impl Iterator<Item = &'a AttemptRef>) -> Self {
        let mut proofs = AttemptColumns { ids: Vec::new(), hashes: Vec::new(), tokens: Vec::new() };
        // Those that were claimed together have one hold id.
        let mut last: Option<(HoldId, Uuid128)> = None;
        for attempt in attempts {
            let hash = match last {
                Some((hold, hash)) if hold == attempt.hold_id => hash,
                _ => attempt.hold_id.hash().into(),
            };
            last = Some((attempt.hold_id, hash));
            proofs.ids.push(attempt.job_id.into());
            proofs.hashes.push(hash);
            proofs.tokens.push(to_sql(attempt.token.get()));
        }
        proofs
    }
}
