//! Taking a key and standing in line for it.
//!
//! The line is in the database: the process that frees a key grants it to the first waiter, and leaves the response to
//! be picked up. Here a waiter waits for its notification, looks when something is due, and looks now and then all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, CallContext, StoreError};
use fencehold_core::{HoldHash, Key, Refusal, Task};
use fencehold_net::{PendingCall, sleep};
use serde::Deserialize;

use super::fault::StatementError;
use super::response::AcquireRow;
use super::statement::{Call, Parameter, query_one};
use super::value::to_sql;
use super::{PostgresInner, closed};

/// How long an acquisition waits for the locks of others before it looks whether a fence is in its way.
const LOCK_MS: i64 = 500;
/// How soon a waiter asks again for a key with a fence on it.
const FENCED_AGAIN: Duration = Duration::from_millis(250);
/// How often a waiter looks without a notification, and with nothing due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long freeing a grant whose caller has gone is tried: after that, its ttl ends it.
const ABANDON_PATIENCE_MS: u64 = 10_000;
/// How long a waiter stays beyond its time, by its own clock, before it goes by itself.
const OVER_TIME_MS: u64 = 2_000;

/// How often a request was sent.
#[derive(Debug, Default)]
struct SendCount {
    /// It was tried before.
    again: bool,
    /// An earlier sending may have arrived.
    may_be_known: bool,
}

impl Call<'_> {
    pub(super) async fn acquire(
        &mut self,
        request: &AcquireLeaseRequest,
        caller: &PendingCall,
    ) -> Result<AcquiredLease, StoreError> {
        self.begin_nothing_outdated()?;
        let acquired = self.take(request, caller).await;
        match &acquired {
            Ok(_) => self.hear_of_holds(),
            Err(error) => {
                let waited = request.wait_ms > 0;
                self.contention.acquire_failed(&self.about.namespace, request, error, waited);
            }
        }
        acquired
    }

    async fn take(
        &mut self,
        request: &AcquireLeaseRequest,
        caller: &PendingCall,
    ) -> Result<AcquiredLease, StoreError> {
        let hash = request.hold_id.hash();
        let mut sending = SendCount::default();
        loop {
            let (mut id, mut due_in_ms) = match self.ask_for(request, &mut sending).await? {
                AcquireRow::Ok(acquired) => return Ok(acquired),
                AcquireRow::Err(error) => return Err(error),
                AcquireRow::Waiting { id, due_in_ms, in_line } => {
                    for (key, waiter_count) in in_line {
                        self.contention.waits(&self.about.namespace, &key, waiter_count);
                    }
                    (id, due_in_ms)
                }
            };
            sending.may_be_known = true;
            let listener = self.listen(&format!("w{id}"));
            loop {
                // Nothing is due at first: what came before the ear was there is looked for.
                let until_due = LOOK_EVERY.min(Duration::from_millis(due_in_ms));
                let stop = tokio::select! {
                    () = listener.heard() => None,
                    () = sleep(until_due) => None,
                    () = caller.gone() => Some(caller_gone()),
                    () = self.closing.wait() => Some(closed()),
                };
                if let Some(stop) = stop {
                    return Err(self.leave_with(stop, request, id).await);
                }
                match self.look_after(hash, id).await {
                    Ok(Some(AcquireRow::Ok(acquired))) => return Ok(acquired),
                    Ok(Some(AcquireRow::Err(error))) => return Err(error),
                    Ok(Some(AcquireRow::Waiting { id: same, due_in_ms: next, .. })) => {
                        // A moment more than due: the database's clock and this one's timer count differently.
                        (id, due_in_ms) = (same, next.saturating_add(1));
                        if self.budget.elapsed_ms() > request.wait_ms.saturating_add(OVER_TIME_MS) {
                            return self.overdue(request, id).await;
                        }
                    }
                    // Fallen out of line, because nothing was heard of this process for long: it stands anew. It may have been granted a
                    // key before.
                    Ok(None) => {
                        self.budget.outcome_unknown = true;
                        break;
                    }
                    Err(error) => return Err(self.leave_with(error, request, id).await),
                }
            }
        }
    }

    /// Asks for the keys. While a holder's transaction has a fence on one, that one is held, whatever its deadline: the
    /// others are tried, and one who waits asks again.
    async fn ask_for(
        &mut self,
        request: &AcquireLeaseRequest,
        sending: &mut SendCount,
    ) -> Result<AcquireRow, StoreError> {
        let hash = request.hold_id.hash();
        loop {
            match self.send_ask(request, sending).await? {
                Ok(said) => return Ok(said),
                Err(why) => {
                    let keys: Vec<&str> = request.any_of.iter().map(Key::as_str).collect();
                    let fenced = self.fenced(&keys, hash).await?;
                    let Some(first) = fenced.first() else {
                        self.budget.retry_or_fail(StatementError::Locked(why)).await?;
                        continue;
                    };
                    let held = AcquireRow::Err(StoreError::refused(&first.key, first.refusal.clone()));
                    // A hold id that knows the fenced key is granted no other.
                    let others = request.any_of.iter().filter(|key| fenced.iter().all(|f| f.key != **key));
                    let others: Vec<Key> = others.cloned().collect();
                    if !others.is_empty() && fenced.iter().all(|fenced| !fenced.own) {
                        let seen_token =
                            request.seen_token.filter(|_| others.first() == request.any_of.first());
                        let rest =
                            AcquireLeaseRequest { any_of: others, wait_ms: 0, seen_token, ..request.clone() };
                        match self.send_ask(&rest, sending).await? {
                            Ok(AcquireRow::Err(StoreError::Refused {
                                refusal: Refusal::Held { .. },
                                ..
                            }))
                            | Err(_) => {}
                            Ok(said) => return Ok(said),
                        }
                    }
                    if self.budget.elapsed_ms() >= request.wait_ms {
                        return Ok(held);
                    }
                    sleep(FENCED_AGAIN).await;
                }
            }
        }
    }

    /// Sends the request, again where its outcome is not known: the hold id shows what has become of it. `Err` inside:
    /// another session had a key locked for longer than usual.
    async fn send_ask(
        &mut self,
        request: &AcquireLeaseRequest,
        sending: &mut SendCount,
    ) -> Result<Result<AcquireRow, String>, StoreError> {
        loop {
            let party = if request.wait_ms > 0 { Some(self.party().await?) } else { None };
            // A repeat has waited already, has less time to wait, and is older if the one before may have arrived.
            let so_far_ms = if sending.again { self.budget.elapsed_ms() } else { 0 };
            sending.again = true;
            let hold_age_ms = if sending.may_be_known {
                request.hold_id_age_ms.saturating_add(so_far_ms).max(1)
            } else {
                request.hold_id_age_ms
            };
            let wait_ms = request.wait_ms.saturating_sub(so_far_ms);
            let waited_before_ms = request.waited_before_ms.saturating_add(so_far_ms);
            let keys: Vec<&str> = request.any_of.iter().map(Key::as_str).collect();
            let sql = self.sql(
                "SELECT fencehold.lease_acquire($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)::text",
            );
            let hash = request.hold_id.hash();
            let answered = self
                .send(async |client| {
                    let asked: [&dyn Parameter; 15] = [
                        &self.namespace(),
                        &keys,
                        &hash.as_bytes().as_slice(),
                        &to_sql(hold_age_ms),
                        &request.owner.as_str(),
                        &request.task.as_ref().map(Task::as_str),
                        &to_sql(request.ttl_ms),
                        &request.max_age_ms.map(to_sql),
                        &to_sql(wait_ms),
                        &to_sql(waited_before_ms),
                        &request.priority,
                        &request.preempt_within_ms.map(to_sql),
                        &request.seen_token.map(|token| to_sql(token.get())),
                        &party,
                        &LOCK_MS,
                    ];
                    query_one::<(String,)>(client, &sql, &asked).await
                })
                .await;
            match answered {
                Ok((text,)) => return self.read(&text).map(Ok),
                Err(StatementError::Locked(why)) => return Ok(Err(why)),
                Err(fault) => {
                    sending.may_be_known |= matches!(fault, StatementError::Unclear(_));
                    self.budget.retry_or_fail(fault).await?;
                }
            }
        }
    }

    /// What has become of one that waits. `None`: it is not known any more.
    async fn look_after(&mut self, hash: HoldHash, id: i64) -> Result<Option<AcquireRow>, StoreError> {
        let sql = self.sql("SELECT fencehold.lease_look($1, $2, $3)::text");
        loop {
            let looked = self
                .send(async |client| {
                    let asked: [&dyn Parameter; 3] = [&id, &hash.as_bytes().as_slice(), &LOCK_MS];
                    query_one::<(Option<String>,)>(client, &sql, &asked).await
                })
                .await;
            match looked {
                Ok((text,)) => return text.map(|text| self.read(&text)).transpose(),
                // A fence is on one of its keys: it stays in line.
                Err(StatementError::Locked(_)) if !self.budget.is_over() => {
                    let due_in_ms = LOCK_MS.unsigned_abs();
                    return Ok(Some(AcquireRow::Waiting { id, due_in_ms, in_line: BTreeMap::new() }));
                }
                Err(fault) => self.budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// Its own time is up, though not by the database's clock, which may have been set back.
    async fn overdue(&mut self, request: &AcquireLeaseRequest, id: i64) -> Result<AcquiredLease, StoreError> {
        self.leave(request, id).await;
        let again = AcquireLeaseRequest { wait_ms: 0, ..request.clone() };
        match self.ask_for(&again, &mut SendCount { again: true, may_be_known: true }).await? {
            AcquireRow::Ok(acquired) => Ok(acquired),
            AcquireRow::Err(error) => Err(error),
            AcquireRow::Waiting { .. } => {
                Err(self.budget.unanswered("it stands in line although it did not ask to"))
            }
        }
    }

    /// Leaves the line for this error. It says that nothing was done only if nothing is left of the request.
    async fn leave_with(&self, error: StoreError, request: &AcquireLeaseRequest, id: i64) -> StoreError {
        if self.leave(request, id).await { error } else { error.or_unknown() }
    }

    /// Leaves the line, and gives back what was granted meanwhile. False: it may stand there still, or hold a key.
    async fn leave(&self, request: &AcquireLeaseRequest, id: i64) -> bool {
        let sql = "SELECT fencehold.lease_leave($1, $2, $3)::text";
        let hash = request.hold_id.hash();
        let asked: [&dyn Parameter; 3] = [&id, &hash.as_bytes().as_slice(), &LOCK_MS];
        let mut call = self.core.call(self.about, ABANDON_PATIENCE_MS, 0);
        // If that fails, it falls out of line when nothing is heard of it.
        match call.value::<Option<String>>(sql, &asked).await {
            Ok(None) => true,
            Ok(Some(text)) => match self.read(&text) {
                Ok(AcquireRow::Ok(acquired)) if !acquired.grant.resumed => {
                    self.give_back(self.about, &acquired.key, hash).await
                }
                Ok(AcquireRow::Err(_)) => true,
                _ => false,
            },
            Err(_) => false,
        }
    }
}

impl PostgresInner {
    /// Frees a key that was granted to a caller that had already gone, unless the same request was sent again and has it. False: it could not
    /// be done.
    pub(super) async fn give_back(&self, about: &CallContext, key: &Key, hash: HoldHash) -> bool {
        let sql = "SELECT fencehold.lease_abandon($1, $2, $3, $4)";
        let asked: [&dyn Parameter; 4] =
            [&about.namespace.as_str(), &key.as_str(), &hash.as_bytes().as_slice(), &LOCK_MS];
        let freed = self.call(about, ABANDON_PATIENCE_MS, 0).execute(sql, &asked).await;
        if let Err(error) = &freed {
            tracing::warn!(%key, %error, "a grant whose caller has gone could not be freed; it runs out by itself");
        }
        freed.is_ok()
    }

    /// Reads an answer of the database's functions.
    pub(super) fn read<T: for<'a> Deserialize<'a>>(&self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| {
            self.unusable(format!("its answer is not understood: {error}; see `fencehold store status`"))
        })
    }
}

/// No caller hears this.
pub(super) fn caller_gone() -> StoreError {
    StoreError::Unavailable { message: "the caller has gone".to_owned() }
}
