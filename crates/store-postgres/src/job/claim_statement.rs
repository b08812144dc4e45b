//! Taking jobs: one statement, and what it answers.

use std::collections::HashMap;

use fencehold_contract::job::{ClaimJobsRequest, ClaimedJob};
use fencehold_contract::operation::unexpected_response;
use fencehold_contract::stored::{EffectV1, TermsV1};
use fencehold_contract::{Quota, StoreError};
use fencehold_core::job::{JobId, JobKind};
use fencehold_core::ledger::Effect;
use fencehold_core::{Namespace, Token};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::columns::{JobExtra, terms_of};
use super::decide::read;
use crate::ResendPolicy;
use crate::statement::{Call, Parameter, query};
use crate::value::{Json, Uuid128, from_sql, limit_to_sql, to_sql};

/// What `job_claim` returns, by number: a name is looked for among all of them, for every field of every row.
mod column {
    pub(super) const ID: usize = 0;
    pub(super) const TOKEN: usize = 1;
    pub(super) const QUEUE: usize = 2;
    pub(super) const LANE: usize = 3;
    pub(super) const ARRIVAL: usize = 4;
    pub(super) const PRIORITY: usize = 5;
    pub(super) const KIND: usize = 6;
    pub(super) const PAYLOAD: usize = 7;
    pub(super) const ATTEMPT: usize = 8;
    pub(super) const REMAINING_MS: usize = 9;
    pub(super) const TERMS: usize = 10;
    pub(super) const EXTRA: usize = 11;
    pub(super) const URGENT: usize = 12;
    pub(super) const FAILURES: usize = 13;
    pub(super) const CRASHES: usize = 14;
    pub(super) const CHECKPOINT: usize = 15;
    pub(super) const EFFECTS: usize = 16;
}

/// What a claim came to.
pub(super) struct ClaimResult {
    pub(super) now_ms: u64,
    pub(super) became: ClaimEnd,
    pub(super) jobs: Vec<ClaimedJob>,
}

/// How a claim comes to its jobs.
pub(super) enum ClaimRoute<'a> {
    /// Behind those who stand in line.
    AtOnce,
    /// Past those who stand in line and do not take what is there.
    PastTheLine,
    /// From its place in line, unless the caller has gone.
    InLine { sending: Uuid128, gone: &'a dyn Fn() -> bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimEnd {
    Served,
    /// It was served before, and has these jobs.
    Repeated,
    /// The store is closed for so long.
    Closed(u64),
    /// Its ttl is above the longest of the namespace, which is so long.
    TtlTooLong(u64),
    /// Its time in line is up.
    TooLate,
    /// A later sending has taken its place.
    Replaced,
    /// Others stand in line before it, for something that is there.
    Behind,
}

/// What a claim was answered.
struct ClaimRow {
    taken: ClaimResult,
    /// Those of its jobs that had asked others to yield.
    urgent: Vec<JobId>,
    /// The clocks of its queues after this, if there are several.
    clocks: Vec<u64>,
    /// There may be something for those in line.
    stirs: bool,
    /// The last place in each lane at which a job was found.
    found: HashMap<i32, i64>,
}

impl Call<'_> {
    /// Takes what there is, once.
    pub(super) async fn take_jobs(
        &mut self,
        request: &ClaimJobsRequest,
        way: &ClaimRoute<'_>,
    ) -> Result<ClaimResult, StoreError> {
        let (lanes, heads) = self.jobs.memory.borrow().trusted_heads(self.clock.now().store_ms);
        let mut taken = self.take_from(request, way, &lanes, &heads).await?;
        if taken.jobs.is_empty() && taken.became == ClaimEnd::Served && !lanes.is_empty() {
            // Perhaps below.
            taken = self.take_from(request, way, &[], &[]).await?;
        }
        Ok(taken)
    }

    async fn take_from(
        &mut self,
        request: &ClaimJobsRequest,
        way: &ClaimRoute<'_>,
        lanes: &[i32],
        heads: &[i64],
    ) -> Result<ClaimResult, StoreError> {
        let names: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        let weight = |weight: u32| i32::try_from(weight).unwrap_or(i32::MAX);
        let weights: Vec<i32> = request.queues.iter().map(|(_, of)| weight(*of)).collect();
        let (core, namespace) = (self.core, self.namespace());
        let turns = self.jobs.memory.borrow().turns(namespace, &names);
        let (sending, pushes) = match way {
            ClaimRoute::AtOnce => (None, false),
            ClaimRoute::PastTheLine => (None, true),
            ClaimRoute::InLine { sending, .. } => (Some(*sending), false),
        };
        let sent_ms = self.clock.now().store_ms;
        let rows = self
            .run(ResendPolicy::Safe, async |client, _| {
                let sql = core.sql(
                    "SELECT * FROM fencehold.job_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                );
                let asked: [&dyn Parameter; 12] = [
                    &namespace,
                    &names,
                    &weights,
                    &turns,
                    &limit_to_sql(request.limit),
                    &Uuid128::from(request.hold_id.hash()),
                    &request.owner.as_str(),
                    &to_sql(request.ttl_ms),
                    &lanes,
                    &heads,
                    &sending,
                    &pushes,
                ];
                let ClaimRoute::InLine { gone, .. } = way else {
                    return query(client, &sql, &asked).await;
                };
                // Nothing is taken for a caller that is known to have gone.
                let transaction = client.transaction().await?;
                let rows = query(&transaction, &sql, &asked).await?;
                if gone() {
                    transaction.rollback().await?;
                    return Ok(Vec::new());
                }
                transaction.commit().await?;
                Ok(rows)
            })
            .await?;
        let search_ms = self.clock.now().store_ms.saturating_sub(sent_ms);
        let ClaimRow { taken, urgent, clocks, stirs, found } =
            answer(&rows, request).map_err(|why| self.unusable(why))?;
        if stirs {
            self.jobs
                .notification
                .note(&self.about.namespace, request.queues.iter().map(|(queue, _)| queue));
        }
        let given = if taken.became == ClaimEnd::Repeated { 0 } else { taken.jobs.len() };
        {
            let mut memory = self.jobs.memory.borrow_mut();
            memory.note_heads(&found, lanes, self.clock.now().store_ms, search_ms);
            memory.note_turns(namespace, &request.queues, given, &clocks);
        }
        if !urgent.is_empty() {
            let about = self.scope(urgent.clone());
            let withdrawn = self
                .decide(ResendPolicy::Safe, &about, |replay| replay.need_no_room(&urgent))
                .await;
            if let Err(why) = withdrawn {
                // The jobs are claimed, whatever becomes of this: their asker gets them.
                tracing::debug!(%why, "a request for room that is not needed any more could not be withdrawn");
            }
        }
        match taken.became {
            ClaimEnd::Closed(ms) => Err(still_closed(ms)),
            ClaimEnd::TtlTooLong(ms) => Err(ttl_too_long(&self.about.namespace, request, ms)),
            _ => Ok(taken),
        }
    }
}

/// Reads what a claim was answered: see `job_claim` for the rows that are no jobs.
fn answer(rows: &[Row], request: &ClaimJobsRequest) -> Result<ClaimRow, String> {
    let mut taken = ClaimResult { now_ms: 0, became: ClaimEnd::Served, jobs: Vec::new() };
    let (mut urgent, mut clocks, mut found) = (Vec::new(), Vec::new(), HashMap::new());
    let mut stirs = false;
    for row in rows {
        if let Some(id) = row.get::<_, Option<Uuid128>>(column::ID) {
            let job = claimed(row, id.into(), request)?;
            urgent.extend(row.get::<_, bool>(column::URGENT).then_some(job.id));
            let last: &mut i64 = found.entry(row.get(column::LANE)).or_default();
            *last = (*last).max(row.get(column::ARRIVAL));
            taken.jobs.push(job);
        } else if let Some(now_ms) = row.get::<_, Option<i64>>(column::TOKEN) {
            taken.now_ms = from_sql(now_ms);
            taken.became = match row.get::<_, i32>(column::QUEUE) {
                1 => ClaimEnd::Repeated,
                -1 => ClaimEnd::Closed(from_sql(row.get(column::REMAINING_MS))),
                -2 => ClaimEnd::TooLate,
                -3 => ClaimEnd::Replaced,
                -4 => ClaimEnd::Behind,
                -5 => ClaimEnd::TtlTooLong(from_sql(row.get(column::REMAINING_MS))),
                said => {
                    stirs |= said == 2;
                    taken.became
                }
            };
        } else {
            clocks.push(from_sql(row.get(column::REMAINING_MS)));
        }
    }
    // In the order in which they were taken, which is that of their turns.
    taken.jobs.sort_by_key(|job| job.token);
    Ok(ClaimRow { taken, urgent, clocks, stirs, found })
}

/// A row of a claim.
fn claimed(row: &Row, id: JobId, request: &ClaimJobsRequest) -> Result<ClaimedJob, String> {
    let nth: Option<i32> = row.get(column::QUEUE);
    let named = nth
        .and_then(|nth| usize::try_from(nth - 1).ok())
        .and_then(|nth| request.queues.get(nth));
    let (queue, _) = named.ok_or("a claimed job is in none of the queues that were named")?;
    let terms: Option<TermsV1> = json_of(row, column::TERMS, "job's terms")?;
    let extra: JobExtra = json_of(row, column::EXTRA, "job")?.unwrap_or_default();
    let effects: Option<Vec<EffectV1<'_>>> = json_of(row, column::EFFECTS, "job's effects")?;
    let mut effects: Vec<Effect> = effects.into_iter().flatten().map(Effect::from).collect();
    effects.sort_by_key(|effect| effect.position);
    let small = |number: i32| u16::try_from(number).unwrap_or(u16::MAX);
    Ok(ClaimedJob {
        id,
        queue: queue.clone(),
        kind: JobKind::new(row.get::<_, &str>(column::KIND)).map_err(|bad| bad.to_string())?,
        payload: row.get::<_, String>(column::PAYLOAD).into(),
        token: Token::new(from_sql(row.get(column::TOKEN))),
        attempt: u32::try_from(row.get::<_, i64>(column::ATTEMPT)).unwrap_or(u32::MAX),
        remaining_ms: from_sql(row.get(column::REMAINING_MS)),
        options: terms_of(terms, row.get(column::PRIORITY)),
        failure_count: small(row.get(column::FAILURES)),
        crash_count: small(row.get(column::CRASHES)),
        labels: extra.labels,
        traceparent: extra.trace,
        checkpoint: row.get(column::CHECKPOINT),
        effects,
        compensates: extra.undo_of.map(Into::into),
    })
}

/// What a column has as JSON.
fn json_of<T: DeserializeOwned>(row: &Row, column: usize, what: &str) -> Result<Option<T>, String> {
    let kept: Option<Json> = row.get(column);
    kept.map(|json| read(what, &json.0)).transpose()
}

fn still_closed(for_ms: u64) -> StoreError {
    let why = format!("after `store advance` nobody is granted anything for another {for_ms} ms");
    StoreError::Unavailable { message: why }
}

fn ttl_too_long(namespace: &Namespace, request: &ClaimJobsRequest, longest_ms: u64) -> StoreError {
    let limits = Quota { max_ttl_ms: Some(longest_ms), ..Quota::default() };
    match limits.check_ttl(namespace, request.ttl_ms) {
        Err(bad) => bad.into(),
        Ok(()) => unexpected_response(),
    }
}
