//! Ending holds by force, and lifting all counters after the bucket was rewound.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fencehold_contract::lease_records::is_meant;
use fencehold_contract::{
    AdvancedStore, ClosedNamespace, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError,
};
use fencehold_core::lease::{LeaseCommand, LeaseCommandResult, LeaseOutcome, LeaseRecord, Revoked};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{BadInput, Key, Namespace, Owner, Refusal, Token};

use super::body::Floor;
use super::change::{BACKOFF, ChangeInput, ChangeStart, NextStep, ObjectCall};
use super::object_names;
use super::observations::{ObservedVersion, over_after_ms};
use super::shared::LIMIT;

/// How often another advance may come first.
pub(super) const ROUNDS_MAX: u32 = 16;

impl ObjectCall<'_> {
    pub(super) async fn revoke(
        &self,
        request: &RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        if let RevokeTarget::Key { key, only_token } = &request.target {
            let revoked = self.revoke_one(key, *only_token, request).await?;
            let revoked = revoked.map_err(|refusal| StoreError::refused(key, refusal))?;
            return Ok(vec![RevokedLease { key: key.clone(), revoked }]);
        }
        let mut ended = Vec::new();
        let names = self.inner.names(&object_names::folder(self.namespace)).await?;
        for seen in self.inner.look_at(names).await? {
            let key = &seen.body.key;
            let record = self.inner.record_of(key, Some(&seen))?;
            let view = self.inner.view(&seen, &record);
            let live = record.hold.as_ref().filter(|_| view.holder.is_some());
            if !live.is_some_and(|hold| is_meant(&request.target, key, hold)) {
                continue;
            }
            // Only the hold that was chosen: the holder after it was not meant.
            if let Ok(revoked) = self.revoke_one(key, Some(view.token), request).await? {
                ended.push(RevokedLease { key: key.clone(), revoked });
            }
        }
        Ok(ended)
    }

    async fn revoke_one(
        &self,
        key: &Key,
        mut only_token: Option<Token>,
        request: &RevokeLeasesRequest,
    ) -> Result<Result<Revoked, Refusal>, StoreError> {
        let context = self.at(key, LIMIT)?;
        let mut tried: Option<Revoked> = None;
        let changed = self
            .inner
            .change(&context, ChangeStart::Read, |ChangeInput { record, unsure, .. }| {
                if unsure && let Some(done) = tried.take().filter(|tried| was_revoked(record, tried, request))
                {
                    return NextStep::Answer(Ok(LeaseCommandResult::Revoked(done)));
                }
                if let Some(hold) = &record.hold {
                    let (token, owner, task) = (record.counter, hold.owner.clone(), hold.task.clone());
                    let consumed = token.lifted(1).unwrap_or(token);
                    tried = Some(Revoked { token, consumed_token: consumed, owner, task });
                    // Sent again, it is meant for the hold that it was meant for at first.
                    only_token.get_or_insert(token);
                }
                let (by, reason) = (request.by.clone(), request.reason.clone());
                NextStep::Ask(LeaseCommand::Revoke { by, reason, only_token })
            })
            .await?;
        Ok(match changed.reply {
            Ok(LeaseCommandResult::Revoked(revoked)) => Ok(revoked),
            Ok(_) => Err(Refusal::NotHeld),
            Err(refusal) => Err(refusal),
        })
    }

    pub(super) async fn advance(&self, by: &Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        if lift == 0 {
            return Err(BadInput::new("increment", "must be more than 0").into());
        }
        let all = self.inner.look_at(self.inner.names(object_names::LEASES).await?).await?;
        let before = self.inner.look_at_floor(LIMIT).await?;
        let floor = before.as_ref().map_or(Token::NONE, |before| before.body.token);
        let mut spaces: BTreeMap<Namespace, u64> = BTreeMap::new();
        let exhausted = |key: &Key| StoreError::refused(key, Refusal::TokensExhausted);
        for seen in &all {
            let record = self.inner.record_of(&seen.body.key, Some(seen))?;
            record.counter.advanced(lift).ok_or_else(|| exhausted(&seen.body.key))?;
            self.inner
                .note_longest_ttl_ms(seen.body.longest_ttl_ms.max(seen.body.closed_ms.unwrap_or(0)));
            // 0: an earlier version wrote it, and noted none.
            let noted_ms = Some(seen.body.longest_ttl_ms).filter(|ms| *ms > 0).unwrap_or(u64::MAX);
            let own_ms = spaces.entry(seen.body.namespace.clone()).or_default();
            *own_ms = noted_ms.max(*own_ms);
        }
        let lifted = floor.advanced(lift).ok_or_else(|| StoreError::LimitReached {
            message: "the tokens of new keys".to_owned(),
            limit: fencehold_core::limits::TOKEN_MAX,
        })?;
        // New keys first: one that is made while the others are lifted starts above the floor.
        let apart: BTreeMap<_, _> = spaces.into_iter().take(PAGE_MAX).collect();
        let wanted = Floor::new(lifted, self.inner.longest_ttl_ms(), apart);
        let raised = self.raise_floor(before, wanted).await?;
        let closed =
            |(namespace, own_ms)| ClosedNamespace { namespace, closed_for_ms: over_after_ms(own_ms) };
        let mut advanced = AdvancedStore {
            key_count: all.len() as u64,
            ended_count: 0,
            closed_for_ms: over_after_ms(raised.closed_ms),
            namespaces: raised.namespaces.clone().into_iter().map(closed).collect(),
        };
        // Those of one length stay in the order of their names.
        advanced.namespaces.sort_by_key(|closed| Reverse(closed.closed_for_ms));
        for seen in all {
            let call = ObjectCall { namespace: &seen.body.namespace, ..*self };
            let mut context = call.at(&seen.body.key, LIMIT)?;
            context.close_ms = raised.closed_ms_in(&seen.body.namespace);
            let mut held = false;
            self.inner
                .change(&context, ChangeStart::Read, |ChangeInput { record, unsure, .. }| {
                    // One attempt may have ended it already.
                    held |= !unsure && record.hold.is_some();
                    NextStep::Ask(LeaseCommand::Advance { lift, by: by.clone() })
                })
                .await?;
            advanced.ended_count += u64::from(held);
        }
        Ok(advanced)
    }

    /// Writes a floor that takes nothing back from the one before, and returns it.
    async fn raise_floor(
        &self,
        mut before: Option<ObservedVersion<Floor>>,
        mut wanted: Floor,
    ) -> Result<Floor, StoreError> {
        let mut last_why = "another advance came first each time".to_owned();
        let mut backoff = BACKOFF;
        for _ in 0..ROUNDS_MAX {
            // Another advance may have come first, and may have closed the store for longer.
            if let Some(before) = &before {
                self.inner.note_longest_ttl_ms(before.body.closed_ms);
                wanted = wanted.after(&before.body);
            }
            let raised = wanted.to_write(self.inner.nonces.next());
            let version = before.as_ref().map(|before| &before.version);
            if self.write_shared(object_names::FLOOR, version, &raised, &mut last_why).await? {
                self.inner.look_at_floor(LIMIT).await?;
                return Ok(raised);
            }
            backoff.pause().await;
            before = self.inner.look_at_floor(LIMIT).await?;
            // Also what this advance wrote itself, without learning of it.
            if let Some(seen) = before.as_ref().filter(|seen| seen.body.covers(&raised)) {
                return Ok(seen.body.clone());
            }
        }
        Err(never_written(object_names::FLOOR, &last_why))
    }
}

/// What a write says of an object that all share, where others came first each time.
pub(super) fn never_written(name: &str, last_why: &str) -> StoreError {
    let why = format!("{name} could not be written {ROUNDS_MAX} times in a row: {last_why}");
    StoreError::Unavailable { message: why }
}

/// Whether a revocation whose answer was lost is on record.
fn was_revoked(record: &LeaseRecord, tried: &Revoked, request: &RevokeLeasesRequest) -> bool {
    record.endings().iter().any(|ending| {
        ending.token == tried.token
            && ending.outcome == LeaseOutcome::Revoked
            && ending.by.as_ref() == Some(&request.by)
            && ending.reason.as_ref() == Some(&request.reason)
    })
}
