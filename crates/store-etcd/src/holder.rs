//! What a holder does with its hold: renewing it, giving it back; and ending the holds of others by force.

use std::collections::HashMap;

use fencehold_contract::lease_records::is_meant;
use fencehold_contract::{
    HoldRef, ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease,
    StoreError,
};
use fencehold_core::lease::{LeaseCommand, LeaseCommandResult, Revoked};
use fencehold_core::{HoldHash, Key, Refusal, Token};
use futures_util::future::join_all;

use super::EtcdCall;
use super::grpc_client::RequestError;
use super::snapshot::{KEYS_PER_LOOK, KeySnapshot, ReadSet, Snapshot};

/// How many keys are released at the same time.
const ABREAST: usize = 32;

impl EtcdCall<'_> {
    /// Keeps etcd leases alive, and then makes sure that it counted.
    ///
    /// A keep-alive does not pass through consensus: a leader that was deposed and does not know it yet says yes as well.
    /// So it counts only after a linearizable read of the held key at the same raft term that the member knew before it
    /// passed the keep-alive on. That read was confirmed by a quorum under the leader of that term, so no later leader
    /// existed before it, and the keep-alive reached the one whose clock decides. It is timed from before it was sent.
    pub(super) async fn renew(&mut self, holds: &[HoldRef]) -> Result<RenewLeaseBatchResponse, StoreError> {
        let mut keys: Vec<Key> = holds.iter().map(|hold| hold.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        let (mut kept, mut waited_ms) = (Vec::new(), None);
        for some in keys.chunks(KEYS_PER_LOOK) {
            let (sent_at_ms, snapshot) = self.renew_some(some, holds).await?;
            // The earliest sending counts for all: the holder must not believe in more than it has.
            waited_ms.get_or_insert(sent_at_ms.saturating_sub(self.budget.started_ms()));
            kept.push(snapshot);
        }
        let each = || {
            kept.iter()
                .flat_map(|snapshot| snapshot.keys.iter().map(move |at| (snapshot, at)))
        };
        let found: HashMap<&Key, _> = each().map(|(snapshot, at)| (&at.key, (snapshot, at))).collect();
        let mut results = Vec::with_capacity(holds.len());
        for hold in holds {
            let Some((snapshot, at)) = found.get(&hold.key) else { continue };
            let command = LeaseCommand::Renew { hash: hold.hold_id.hash(), token: hold.token };
            results.push(match self.core.decide(snapshot, at, &command).reply {
                Ok(LeaseCommandResult::Renewed(renewal)) => Ok(renewal),
                Ok(_) => Err(Refusal::NotHeld),
                Err(refusal) => {
                    self.core.measures.facts.count_refusal(&refusal);
                    self.core.forget(&self.namespace, &hold.key);
                    Err(refusal)
                }
            });
        }
        for (snapshot, at) in each() {
            self.note_expiry(snapshot, at).await;
        }
        Ok(RenewLeaseBatchResponse { results, waited_ms: waited_ms.unwrap_or(0) })
    }

    /// Keep-alives for the live holds among a few keys, again until they counted: when they were sent, and the keys as they
    /// were seen after that.
    async fn renew_some(&mut self, keys: &[Key], holds: &[HoldRef]) -> Result<(u64, Snapshot), StoreError> {
        let read_set = ReadSet::of(&self.namespace, keys.to_vec());
        let proofs: Vec<(&Key, HoldHash, Token)> = holds
            .iter()
            .filter(|hold| keys.contains(&hold.key))
            .map(|hold| (&hold.key, hold.hold_id.hash(), hold.token))
            .collect();
        // What this handle granted it knows without looking.
        let mut leases: HashMap<Key, i64> = HashMap::new();
        for (key, hash, token) in &proofs {
            let known = self.core.known(&self.namespace, key, *hash, *token);
            let known = known.iter().flat_map(|written| &written.keys);
            leases.extend(known.filter_map(|at| Some((at.key.clone(), at.held?.lease))));
        }
        loop {
            let sent_at_ms = self.budget.now_ms();
            let ids: Vec<i64> = leases.values().copied().collect();
            let looked = async {
                let alive = if ids.is_empty() { Vec::new() } else { self.core.wire.keep_alive(&ids).await? };
                Ok::<_, RequestError>((alive, self.core.look(&read_set).await?))
            };
            let (alive, mut snapshot) = match looked.await {
                Ok(looked) => looked,
                Err(fault) => {
                    self.budget.retry_or_fail(fault).await?;
                    continue;
                }
            };
            let counts = |lease: i64| {
                alive.iter().any(|kept| {
                    let term = kept.header.as_ref().map(|header| header.raft_term);
                    kept.id == lease && kept.ttl > 0 && term == Some(snapshot.term)
                })
            };
            let own = |at: &KeySnapshot| {
                proofs
                    .iter()
                    .any(|(key, hash, token)| **key == at.key && at.is_held_by(*hash, *token))
            };
            let (mut unknown, mut in_vain) = (false, false);
            for at in snapshot.keys.iter().filter(|at| own(at)) {
                let Some(held) = at.live() else { continue };
                if leases.insert(at.key.clone(), held.lease) != Some(held.lease) {
                    // Another handle made this grant: only now is its etcd lease known.
                    unknown = true;
                } else if !counts(held.lease) {
                    in_vain = true;
                }
            }
            if in_vain {
                let why = "a keep-alive did not count: the leader has changed, or is about to end the lease";
                self.budget.retry_or_fail(RequestError::Unreached(why.to_owned())).await?;
            }
            if unknown || in_vain {
                continue;
            }
            for at in snapshot.keys.iter_mut().filter(|at| at.live().is_some()) {
                if let Some(age) = at.within_age() {
                    at.age_left_ms = Some(self.left_ms(age.lease).await?.max(1));
                }
            }
            return Ok((sent_at_ms, snapshot));
        }
    }

    /// How long an etcd lease has left at least.
    pub(super) async fn left_ms(&mut self, lease: i64) -> Result<u64, StoreError> {
        let left_ms = async || match self.core.wire.time_to_live(lease).await {
            Ok(left) => Ok(u64::try_from(left.ttl).unwrap_or(0) * 1000),
            Err(RequestError::LeaseGone) => Ok(0),
            Err(fault) => Err(fault),
        };
        self.budget.retry(left_ms).await
    }

    /// Gives many holds back, a few keys at a time.
    pub(super) async fn release(
        &mut self,
        holds: &[HoldRef],
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        let mut answers = vec![Err(Refusal::NotHeld); holds.len()];
        let (mut ended, mut failure) = (0, None);
        // The same key twice is taken in order; different keys side by side.
        let mut of_key: Vec<(&Key, Vec<usize>)> = Vec::new();
        let mut at: HashMap<&Key, usize> = HashMap::new();
        for (nth, hold) in holds.iter().enumerate() {
            let place = *at.entry(&hold.key).or_insert_with(|| {
                of_key.push((&hold.key, Vec::new()));
                of_key.len() - 1
            });
            of_key[place].1.push(nth);
        }
        for some in of_key.chunks(ABREAST) {
            let abreast = some.iter().map(|(key, nths)| {
                let mut call = self.clone();
                async move {
                    let mut told = Vec::with_capacity(nths.len());
                    for nth in nths {
                        told.push((*nth, call.release_one(key, &holds[*nth]).await));
                    }
                    told
                }
            });
            for (nth, answer) in join_all(abreast).await.into_iter().flatten() {
                match answer {
                    Ok(answer) => {
                        ended += usize::from(answer.is_ok());
                        let released = |token| ReleasedLease { key: holds[nth].key.clone(), token };
                        answers[nth] = answer.map(released);
                    }
                    Err(error) => failure = Some(first_or_unknown(failure, error)),
                }
            }
            if let Some(error) = failure {
                return Err(or_some_were_ended(error, ended));
            }
        }
        Ok(answers)
    }

    async fn release_one(&mut self, key: &Key, hold: &HoldRef) -> Result<Result<Token, Refusal>, StoreError> {
        let hash = hold.hold_id.hash();
        let seen = self.core.known(&self.namespace, key, hash, hold.token);
        self.core.forget(&self.namespace, key);
        let (core, command) = (self.core, LeaseCommand::Release { hash, token: hold.token });
        let (answer, before) = self
            .change(key, seen, |snapshot, at, _| {
                let decision = core.decide(snapshot, at, &command);
                let answer = match decision.reply {
                    Ok(LeaseCommandResult::Released { token }) => Ok(token),
                    Ok(_) => Err(Refusal::NotHeld),
                    Err(refusal) => Err(refusal),
                };
                (decision.record, answer)
            })
            .await?;
        if before.is_held_by(hash, hold.token) {
            self.core.tidy(&before).await;
        }
        if let Err(refusal) = &answer {
            self.core.measures.facts.count_refusal(refusal);
        }
        Ok(answer)
    }

    /// Ends holds by force.
    pub(super) async fn revoke(
        &mut self,
        request: &RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        if let RevokeTarget::Key { key, only_token } = &request.target {
            let revoked = self.revoke_one(key, request, *only_token, |_| true).await?;
            let revoked = revoked.map_err(|refusal| StoreError::refused(key, refusal))?;
            return Ok(vec![RevokedLease { key: key.clone(), revoked }]);
        }
        let meant = |at: &KeySnapshot| {
            let hold = at.record.hold.as_ref();
            hold.is_some_and(|hold| is_meant(&request.target, &at.key, hold))
        };
        let prefix = if let RevokeTarget::Prefix(prefix) = &request.target { prefix.as_str() } else { "" };
        let mut ended = Vec::new();
        let keys = self.all_in(&self.core.names.records(&self.namespace, prefix)).await?;
        for at in self.sights(&keys).await? {
            if !meant(&at) || at.live().is_none() {
                continue;
            }
            // Refused: it ended meanwhile, or went to a holder that is not meant.
            let revoked = self.revoke_one(&at.key, request, None, meant).await;
            if let Ok(revoked) = revoked.map_err(|error| or_some_were_ended(error, ended.len()))? {
                ended.push(RevokedLease { key: at.key, revoked });
            }
        }
        Ok(ended)
    }

    async fn revoke_one(
        &mut self,
        key: &Key,
        request: &RevokeLeasesRequest,
        only_token: Option<Token>,
        meant: impl Fn(&KeySnapshot) -> bool,
    ) -> Result<Result<Revoked, Refusal>, StoreError> {
        let mut only_token = only_token;
        let (core, mut sent): (_, Option<Revoked>) = (self.core, None);
        let (answer, before) = self
            .change(key, None, |snapshot, at, uncertain| {
                // Force is never repeated on a holder that came since: the outcome of what was sent is in the record.
                if let Some(sent) = sent.as_ref().filter(|_| uncertain) {
                    only_token = Some(sent.token);
                    let done = at.record.endings().iter().any(|ending| {
                        ending.token == sent.token
                            && ending.by.as_ref() == Some(&request.by)
                            && ending.reason.as_ref() == Some(&request.reason)
                    });
                    if done {
                        return (None, Ok(sent.clone()));
                    }
                }
                if at.record.hold.is_some() && !meant(at) {
                    return (None, Err(Refusal::NotHeld));
                }
                let (by, reason) = (request.by.clone(), request.reason.clone());
                let decision = core.decide(snapshot, at, &LeaseCommand::Revoke { by, reason, only_token });
                let answer = match decision.reply {
                    Ok(LeaseCommandResult::Revoked(revoked)) => {
                        sent = Some(revoked.clone());
                        Ok(revoked)
                    }
                    Ok(_) => Err(Refusal::NotHeld),
                    Err(refusal) => Err(refusal),
                };
                (decision.record, answer)
            })
            .await?;
        if answer.is_ok() {
            self.core.say_hold_changed(&self.namespace, key).await;
            self.core.tidy(&before).await;
        }
        Ok(answer)
    }
}

/// 'Nothing was done' is true of one key; of those before it, it is not.
fn or_some_were_ended(error: StoreError, ended: usize) -> StoreError {
    match error {
        StoreError::Unavailable { message: why } if ended > 0 => {
            StoreError::OutcomeUnknown { message: format!("{ended} were ended before this: {why}") }
        }
        error => error,
    }
}

/// The error of several keys: the first one, unless of another key it is not known whether something was done.
fn first_or_unknown(first: Option<StoreError>, next: StoreError) -> StoreError {
    first
        .filter(|_| !matches!(next, StoreError::OutcomeUnknown { .. }))
        .unwrap_or(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_keys_nothing_was_done_is_said_only_if_it_is_true_of_each() {
        let away = |why: &str| StoreError::Unavailable { message: why.to_owned() };
        let lost = StoreError::OutcomeUnknown { message: "lost".to_owned() };
        assert_eq!(first_or_unknown(Some(away("one")), away("two")), away("one"));
        assert_eq!(first_or_unknown(Some(away("one")), lost.clone()), lost);
        assert_eq!(first_or_unknown(Some(lost.clone()), away("two")), lost);
        assert_eq!(or_some_were_ended(away("one"), 0), away("one"));
        let why = "2 were ended before this: one".to_owned();
        assert_eq!(or_some_were_ended(away("one"), 2), StoreError::OutcomeUnknown { message: why });
    }
}
