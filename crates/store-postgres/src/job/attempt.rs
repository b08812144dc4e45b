//! What attempts say: renewals and completions in one statement; everything else, by the rules.

use std::collections::HashMap;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, LedgerResponse, RenewAttemptBatchResponse, Report,
};
use fencehold_contract::operation::{JobRequest, JobResponse, check_word};
use fencehold_contract::{CallContext, CompletedJobs, StoreError};
use fencehold_core::job::{AttemptRenewal, JobId, JobRefusal, JobState, ReportedAttempt};
use fencehold_core::{HoldId, Token};
use tokio_postgres::types::Type;

use super::decide::{DecisionScope, within};
use super::value::{Uuid128, from_sql, to_sql};
use crate::budget::StatementBudget;
use crate::fenced::FencedAction;
use crate::pool::PoolLane;
use crate::{PostgresInner, ResendPolicy};

impl PostgresInner {
    pub(super) async fn renew_claims(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        let proofs = AttemptColumns::of(attempts.iter());
        budget.lane = PoolLane::Renewals;
        let before_ms = self.clock.now().store_ms;
        let sql = self.sql(&within(PostgresInner::lock_ms(budget), "job_renew($1, $2, $3, $4)"));
        let mut kept = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let namespace = call.namespace.as_str();
                let rows = client
                    .query_typed(
                        &sql,
                        &[
                            (&namespace, Type::TEXT),
                            (&proofs.ids, Type::UUID_ARRAY),
                            (&proofs.hashes, Type::UUID_ARRAY),
                            (&proofs.tokens, Type::INT8_ARRAY),
                        ],
                    )
                    .await?;
                let told = |row: &tokio_postgres::Row| (from_sql(row.get(0)), from_sql(row.get(1)));
                Ok(rows.iter().map(told).collect::<HashMap<u64, u64>>())
            })
            .await?;
        let at_ms = kept.remove(&0);
        // What is renewed is renewed, whatever comes after.
        budget.outcome_unknown |= !kept.is_empty();
        if let Some(at_ms) = at_ms {
            // Before the rules refuse what a clock that has jumped has ended.
            self.saw_the_clock(budget, before_ms, to_sql(at_ms)).await?;
        }
        let renewal = |token, remaining_ms| AttemptRenewal {
            token,
            remaining_ms,
            cancel_requested: false,
            yield_request: None,
        };
        let mut answers: Vec<Option<Result<AttemptRenewal, JobRefusal>>> = (1..)
            .zip(&attempts)
            .map(|(nth, attempt)| kept.get(&nth).map(|left_ms| Ok(renewal(attempt.token, *left_ms))))
            .collect();
        let left: Vec<usize> = (0..attempts.len()).filter(|nth| answers[*nth].is_none()).collect();
        if !left.is_empty() {
            budget.lane = PoolLane::Checks;
            let rest: Vec<AttemptRef> = left.iter().map(|nth| attempts[*nth].clone()).collect();
            let about =
                DecisionScope::jobs(&call.namespace, rest.iter().map(|attempt| attempt.job_id).collect());
            let JobResponse::Renewed(decided) =
                self.by_the_rules(budget, call, &about, JobRequest::Renew(rest)).await?
            else {
                return Err(fencehold_contract::operation::unexpected_response());
            };
            for (nth, answer) in left.into_iter().zip(decided.results) {
                answers[nth] = Some(answer);
            }
        }
        let answers = answers
            .into_iter()
            .map(|answer| answer.unwrap_or(Err(JobRefusal::JobNotFound)))
            .collect();
        Ok(RenewAttemptBatchResponse { results: answers, waited_ms: 0 })
    }

    pub(super) async fn report(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
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
        let completed = |late: bool| ReportedAttempt { state: JobState::Completed, retry_in_ms: None, late };
        let mut answers: Vec<Option<Result<ReportedAttempt, JobRefusal>>> = vec![None; reports.len()];
        for (nth, late) in self.complete(budget, call, &reports, plain).await? {
            answers[nth] = Some(Ok(completed(late)));
        }
        let done: Vec<bool> = answers.iter().map(Option::is_some).collect();
        let left: Vec<usize> = (0..reports.len()).filter(|nth| !done[*nth]).collect();
        budget.outcome_unknown |= left.len() < reports.len();
        if !left.is_empty() {
            let rest: Vec<AttemptReport> = left.iter().map(|nth| reports[*nth].clone()).collect();
            let about = DecisionScope::jobs(
                &call.namespace,
                rest.iter().map(|report| report.attempt.job_id).collect(),
            );
            // A holder may leave notes while it has a transaction open under its own fence.
            let notes = |report: &AttemptReport| {
                matches!(report.report, Report::Checkpoint { .. } | Report::Progress { .. })
            };
            let about = if rest.iter().all(notes) { about } else { about.ending() };
            // The result that is kept shows whether it is the same completion again.
            let says_completed = |report: &AttemptReport| matches!(report.report, Report::Complete { .. });
            let about = if rest.iter().any(says_completed) { about.with_notes() } else { about };
            let JobResponse::Reported(decided) =
                self.by_the_rules(budget, call, &about, JobRequest::Report(rest)).await?
            else {
                return Err(fencehold_contract::operation::unexpected_response());
            };
            for (nth, mut answer) in left.into_iter().zip(decided) {
                if let Err(JobRefusal::WrongJob { token, job_id: job @ None }) = &mut answer {
                    // An attempt that reports after this one was at work when this one reported.
                    let later = (nth..reports.len()).filter(|later| done[*later]);
                    *job = later
                        .map(|later| &reports[later].attempt)
                        .find(|attempt| attempt.token == *token)
                        .map(|attempt| attempt.job_id);
                }
                answers[nth] = Some(answer);
            }
        }
        Ok(answers
            .into_iter()
            .map(|answer| answer.unwrap_or(Err(JobRefusal::JobNotFound)))
            .collect())
    }

    /// Completes what can be completed in one statement of the reports with these numbers, each about another job. Says which that
    /// were, and whether it was late.
    async fn complete(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
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
        let sql =
            self.sql(&within(PostgresInner::lock_ms(budget), "job_complete_batch($1, $2, $3, $4, $5, $6)"));
        let rows = self
            .run_past_fences(budget, ResendPolicy::Safe, FencedAction::Jobs(&jobs), async |client| {
                let namespace = call.namespace.as_str();
                client
                    .query_typed(
                        &sql,
                        &[
                            (&namespace, Type::TEXT),
                            (&proofs.ids, Type::UUID_ARRAY),
                            (&proofs.hashes, Type::UUID_ARRAY),
                            (&proofs.tokens, Type::INT8_ARRAY),
                            (&results, Type::TEXT_ARRAY),
                            (&drops, Type::BOOL),
                        ],
                    )
                    .await
            })
            .await?;
        let told: Vec<(Option<Uuid128>, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        if let [(None, late)] = told[..] {
            return Ok(plain.into_iter().map(|nth| (nth, late)).collect());
        }
        let told: HashMap<Uuid128, bool> =
            told.into_iter().filter_map(|(id, late)| Some((id?, late))).collect();
        let of = |nth: usize| told.get(&reports[nth].attempt.job_id.into()).map(|late| (nth, *late));
        Ok(plain.into_iter().filter_map(of).collect())
    }

    pub(super) async fn ledger(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, JobRefusal>>, StoreError> {
        let about =
            DecisionScope::jobs(&call.namespace, entries.iter().map(|entry| entry.attempt.job_id).collect());
        match self
            .by_the_rules(budget, call, &about, JobRequest::WriteEffects(entries))
            .await?
        {
            JobResponse::WrittenEffects(answers) => Ok(answers),
            _ => Err(fencehold_contract::operation::unexpected_response()),
        }
    }

    /// Has the rules decide, and names the jobs of tokens that were shown for others.
    pub(super) async fn by_the_rules(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        about: &DecisionScope,
        ask: JobRequest,
    ) -> Result<JobResponse, StoreError> {
        let mut answer = self
            .decide(budget, ResendPolicy::Safe, about, |replay| replay.ask(&call.namespace, ask.clone()))
            .await??;
        for refusal in refusals(&mut answer) {
            if let JobRefusal::WrongJob { token, job_id: job } = refusal
                && job.is_none()
            {
                *job = self.job_under(budget, call, *token).await;
            }
        }
        Ok(answer)
    }

    /// The job of the caller's namespace that is worked on under a token. Only for the words of a refusal, which is an answer
    /// without it too.
    async fn job_under(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        token: Token,
    ) -> Option<JobId> {
        let (namespace, token) = (call.namespace.as_str(), to_sql(token.get()));
        let found = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql = self.sql("SELECT fencehold.job_under($1, $2)");
                let asked: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&namespace, Type::TEXT), (&token, Type::INT8)];
                let rows = client.query_typed(&sql, &asked).await?;
                let found: Option<Uuid128> = rows.first().and_then(|row| row.get(0));
                Ok(found.map(|id| JobId::from_bytes(id.0)))
            })
            .await;
        found.ok().flatten()
    }
}

/// Every refusal in an answer to attempts.
fn refusals(answer: &mut JobResponse) -> Vec<&mut JobRefusal> {
    match answer {
        JobResponse::Renewed(renewed) => {
            renewed.results.iter_mut().filter_map(|answer| answer.as_mut().err()).collect()
        }
        JobResponse::Reported(answers) => {
            answers.iter_mut().filter_map(|answer| answer.as_mut().err()).collect()
        }
        JobResponse::WrittenEffects(answers) => {
            answers.iter_mut().filter_map(|answer| answer.as_mut().err()).collect()
        }
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
