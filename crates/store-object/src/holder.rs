//! Taking keys, keeping them, giving them back.

use std::collections::HashMap;

use fencehold_contract::lease_records::acquire;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, HoldRef, ReleasedLease, RenewLeaseBatchResponse, StoreError,
};
use fencehold_core::lease::{Acquire, LeaseCommand, LeaseCommandResult, LeaseRenewal};
use fencehold_core::{Key, Refusal, Token};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::change::{ChangeInput, ChangeResult, ChangeStart, KeyContext, NextStep, ObjectCall};
use super::observations::sooner;
use super::shared::{LIMIT, ObjectStoreInner};

/// How many objects are read or written at once.
pub(super) const AT_ONCE: usize = 16;

impl ObjectCall<'_> {
    pub(super) async fn acquire(
        &self,
        mut request: AcquireLeaseRequest,
        wait_ms: u64,
    ) -> Result<AcquiredLease, StoreError> {
        let entered_ms = self.inner.clock.now().store_ms;
        if request.any_of.len() > 1 && request.hold_id_age_ms > 0 {
            self.find_own(&mut request).await?;
        }
        let mut soonest: Option<(Key, Refusal)> = None;
        for key in &request.any_of {
            let mut context = self.at(key, ObjectStoreInner::limit(request.ttl_ms))?;
            (context.open_by_ms, context.takes) = (entered_ms.saturating_add(wait_ms), true);
            let changed = self.inner.take(&context, &request).await?;
            match changed.reply {
                Ok(LeaseCommandResult::Granted(mut grant)) => {
                    let mut waited_ms = changed.at_ms.saturating_sub(entered_ms);
                    if grant.resumed {
                        waited_ms = 0;
                        let remaining_ms = |seen: &super::observations::ObservedVersion| {
                            seen.remaining_ms(grant.remaining_ms, request.hold_id_age_ms)
                        };
                        grant.remaining_ms = changed.seen.as_ref().map_or(1, remaining_ms);
                    }
                    return Ok(AcquiredLease { key: key.clone(), grant, waited_ms });
                }
                Err(held @ Refusal::Held { .. }) => {
                    if soonest.as_ref().is_none_or(|(_, known)| sooner(&held, known)) {
                        soonest = Some((key.clone(), held));
                    }
                }
                Err(refusal) => return Err(StoreError::refused(key, refusal)),
                Ok(_) => return Err(StoreError::refused(key, Refusal::NotHeld)),
            }
        }
        let Some((key, refusal)) = soonest else {
            return Err(StoreError::Unavailable {
                message: "none of the keys could be looked at".to_owned(),
            });
        };
        if request.preempt_within_ms.is_some() {
            let what = format!("ask the holder of {key} to yield ({refusal})");
            return Err(StoreError::Unsupported { store: self.inner.can.store.to_owned(), message: what });
        }
        Err(StoreError::refused(&key, refusal))
    }

    /// A hold id that was sent before may have been granted any of the keys: on that one it is judged, and on no other.
    async fn find_own(&self, request: &mut AcquireLeaseRequest) -> Result<(), StoreError> {
        let hash = request.hold_id.hash();
        let mut forgetful = None;
        for nth in 0..request.any_of.len() {
            let key = &request.any_of[nth];
            let name = super::object_names::of(self.namespace, key)?;
            let seen = self.inner.look(&name, ObjectStoreInner::limit(request.ttl_ms)).await?;
            let record = self.inner.record_of(key, seen.as_ref())?;
            if record.knows(hash) {
                request.seen_token = request.seen_token.filter(|_| nth == 0);
                request.any_of = vec![request.any_of.swap_remove(nth)];
                return Ok(());
            }
            if record.may_have_forgotten(self.inner.clock.now().store_ms, request.hold_id_age_ms) {
                forgetful.get_or_insert_with(|| key.clone());
            }
        }
        match forgetful {
            Some(key) => Err(StoreError::refused(&key, Refusal::HoldIdUsed { token: None, outcome: None })),
            None => Ok(()),
        }
    }

    pub(super) async fn renew(&self, holds: Vec<HoldRef>) -> Result<RenewLeaseBatchResponse, StoreError> {
        let command = |hold: &HoldRef| LeaseCommand::Renew { hash: hold.hold_id.hash(), token: hold.token };
        let answers = self.each(holds, command).await?;
        let renewal = |(answer, token): (Result<LeaseCommandResult, Refusal>, Token)| match answer? {
            LeaseCommandResult::Renewed(renewal) => Ok::<LeaseRenewal, _>(renewal),
            _ => Err(Refusal::WrongHoldId { token }),
        };
        Ok(RenewLeaseBatchResponse { results: answers.into_iter().map(renewal).collect(), waited_ms: 0 })
    }

    pub(super) async fn release(
        &self,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        let command = |hold: &HoldRef| LeaseCommand::Release { hash: hold.hold_id.hash(), token: hold.token };
        let keys: Vec<Key> = holds.iter().map(|hold| hold.key.clone()).collect();
        let answers = self.each(holds, command).await?;
        let released =
            |((answer, token), key): ((Result<LeaseCommandResult, Refusal>, Token), Key)| match answer? {
                LeaseCommandResult::Released { token } => Ok(ReleasedLease { key, token }),
                _ => Err(Refusal::WrongHoldId { token }),
            };
        Ok(answers.into_iter().zip(keys).map(released).collect())
    }

    /// Ends a grant whose caller has gone (R14): this one and no other, and only if it was not taken up.
    pub(super) async fn give_back(&self, unheard: &HoldRef) -> Result<(), StoreError> {
        let HoldRef { key, hold_id: hold, token } = unheard;
        let hash = hold.hash();
        let context = self.at(key, LIMIT)?;
        self.inner
            .change(&context, ChangeStart::Last, |ChangeInput { record, taken_up, .. }| {
                let own =
                    record.hold.as_ref().is_some_and(|hold| hold.hash == hash) && record.counter == *token;
                if own && !taken_up {
                    NextStep::Ask(LeaseCommand::Abandon { hash })
                } else {
                    NextStep::Answer(Ok(LeaseCommandResult::Nothing))
                }
            })
            .await?;
        Ok(())
    }

    /// Does something about each hold, many at once; one answer for each, in order. The same hold twice is asked for
    /// once: the same request gets the same answer.
    async fn each(
        &self,
        holds: Vec<HoldRef>,
        command: impl Fn(&HoldRef) -> LeaseCommand,
    ) -> Result<Vec<(Result<LeaseCommandResult, Refusal>, Token)>, StoreError> {
        let mut places: HashMap<(Key, [u8; 16], Token), usize> = HashMap::new();
        let mut once: Vec<(Key, LeaseCommand)> = Vec::new();
        let mut order: Vec<(usize, Token)> = Vec::with_capacity(holds.len());
        for hold in &holds {
            let same = (hold.key.clone(), *hold.hold_id.hash().as_bytes(), hold.token);
            let at = *places.entry(same).or_insert_with(|| {
                once.push((hold.key.clone(), command(hold)));
                once.len() - 1
            });
            order.push((at, hold.token));
        }
        let acts = once.into_iter().enumerate().map(|(at, (key, command))| async move {
            Ok::<_, StoreError>((at, self.one(&key, command).await?))
        });
        let mut answers: Vec<_> = stream::iter(acts).buffer_unordered(AT_ONCE).try_collect().await?;
        answers.sort_unstable_by_key(|(at, _)| *at);
        Ok(order.into_iter().map(|(at, token)| (answers[at].1.clone(), token)).collect())
    }

    async fn one(
        &self,
        key: &Key,
        command: LeaseCommand,
    ) -> Result<Result<LeaseCommandResult, Refusal>, StoreError> {
        let mut context = self.at(key, LIMIT)?;
        if let Some(ttl_ms) = self.inner.seen.last(&context.name).and_then(|seen| seen.body.ttl_ms()) {
            context.limit = ObjectStoreInner::limit(ttl_ms);
        }
        let changed = self
            .inner
            .change(&context, ChangeStart::Last, |_| NextStep::Ask(command.clone()))
            .await?;
        Ok(changed.reply)
    }
}

impl ObjectStoreInner {
    async fn take(
        &self,
        context: &KeyContext<'_>,
        request: &AcquireLeaseRequest,
    ) -> Result<ChangeResult, StoreError> {
        let acquire = acquire(request, context.key);
        self.change(context, ChangeStart::Read, |ChangeInput { unsure, .. }| {
            // What was sent may have been granted, and ended since.
            let hold_age_ms = if unsure { acquire.hold_age_ms.max(1) } else { acquire.hold_age_ms };
            NextStep::Ask(LeaseCommand::Acquire(Acquire { hold_age_ms, ..acquire.clone() }))
        })
        .await
    }
}
