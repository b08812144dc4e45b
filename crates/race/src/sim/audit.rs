//! The auditor: an account of its own of what was promised, kept from questions and answers alone. It knows nothing of
//! the engine's code and holds every answer against the promises.
//!
//! Deliberately weak in one place: after a disk failed or the power went, a lease that had run out may be live again for
//! a ttl (that is promised: trouble may only lengthen), so both answers are right for that time.

use std::collections::BTreeMap;

use fencehold_core::lease::How;
use fencehold_core::{HoldHash, Refusal};
use fencehold_store::StoreError;
use fencehold_store::sim::{Found, Question, Reply};

/// What the auditor knows of one lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    token: u64,
    hold: [u8; 16],
    ttl_ms: u64,
    /// Nobody else may have the key before this moment.
    certain_until_ms: u64,
    /// The lease may be spoken of as live until this moment.
    possible_until_ms: u64,
}

#[derive(Debug, Default)]
struct Key {
    /// The newest token that was given or consumed.
    newest: u64,
    current: Option<Lease>,
    /// How every hold that had a lease ended.
    ended: BTreeMap<[u8; 16], (u64, How)>,
}

/// The account.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    keys: BTreeMap<String, Key>,
    /// Since when, on its clock, the store has been running without a gap.
    pub(super) awake_since_ms: u64,
}

/// A lease ends at most this long after its deadline, while the store runs.
const ENDS_WITHIN_MS: u64 = 1_000;

/// A question that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    /// When it came to the store.
    pub(super) arrived_ms: u64,
}

/// One answer, with the question it belongs to.
pub(super) struct Pair<'a> {
    pub(super) asked: &'a Asked,
    pub(super) result: &'a Result<Reply, StoreError>,
}

type Audit = Result<(), String>;

impl Auditor {
    /// Audits the answers that one step of the store gave. They happened in some order, and the store does not say in
    /// which: one must be possible. Refusals change nothing and are tried first.
    pub(super) fn step(&mut self, now_ms: u64, mut pairs: Vec<Pair<'_>>) -> Audit {
        pairs.sort_by_key(|pair| matches!(pair.result, Ok(Reply::Acquired(_))));
        while !pairs.is_empty() {
            let mut why = String::new();
            let possible = pairs.iter().position(|pair| match self.answer(now_ms, pair) {
                Ok(()) => true,
                Err(problem) => {
                    why = problem;
                    false
                }
            });
            match possible {
                Some(at) => drop(pairs.remove(at)),
                None => return Err(why),
            }
        }
        Ok(())
    }

    /// One answer, if it can be given now; and what follows from it.
    fn answer(&mut self, now_ms: u64, pair: &Pair<'_>) -> Audit {
        match (&pair.asked.question, pair.result) {
            (Question::Acquire(request), Ok(Reply::Acquired(acquired))) => {
                let hold = *request.hold.hash().as_bytes();
                let (token, remaining_ms) = (acquired.grant.token.get(), acquired.grant.remaining_ms);
                let waits_until_ms = pair.asked.arrived_ms + request.wait_ms;
                if request.wait_ms > 0 && pair.asked.arrived_ms < now_ms && now_ms >= waits_until_ms {
                    return Err(format!("token {token} was granted to one whose time in line was up"));
                }
                let key = self.key(acquired.key.as_str());
                if acquired.grant.resumed {
                    return key.resumed(now_ms, hold, token, remaining_ms);
                }
                key.granted(now_ms, hold, token, remaining_ms, request.ttl_ms)
            }
            (Question::Acquire(request), Err(StoreError::Refused { key, refusal })) => {
                let waited = request.wait_ms > 0 && now_ms >= pair.asked.arrived_ms + request.wait_ms;
                // In line, with the store awake to see it.
                let since_ms = self.awake_since_ms.max(pair.asked.arrived_ms);
                let waited_since_ms = waited.then_some(since_ms);
                self.key(key.as_str())
                    .refused(now_ms, request.hold.hash(), refusal, waited_since_ms)
            }
            (Question::Renew(holds), Ok(Reply::Renewed(renewed))) => {
                holds.iter().zip(&renewed.answers).try_for_each(|(hold, answer)| {
                    let key = self.key(hold.key.as_str());
                    let answer = answer.as_ref().map(|renewal| renewal.remaining_ms);
                    key.renewed(now_ms, *hold.hold.hash().as_bytes(), hold.token.get(), answer)
                })
            }
            (Question::Release(holds), Ok(Reply::Released(answers))) => {
                holds.iter().zip(answers).try_for_each(|(hold, answer)| {
                    let key = self.key(hold.key.as_str());
                    key.released(now_ms, *hold.hold.hash().as_bytes(), hold.token.get(), answer.as_ref())
                })
            }
            (Question::Revoke(_), Ok(Reply::Revoked(revoked))) => revoked.iter().try_for_each(|lease| {
                let (token, consumed) = (lease.revoked.token.get(), lease.revoked.consumed.get());
                self.key(lease.key.as_str()).revoked(token, consumed)
            }),
            (Question::Get(name), Ok(Reply::Lease(view))) => {
                let holder = view.as_ref().and_then(|view| view.holder.as_ref());
                let token = holder.and(view.as_ref()).map(|view| view.token.get());
                self.key(name.as_str()).seen(now_ms, token)
            }
            (_, Err(_)) => Ok(()),
            (question, result) => Err(format!("{question:?} was answered by {result:?}")),
        }
    }

    fn key(&mut self, name: &str) -> &mut Key {
        self.keys.entry(name.to_owned()).or_default()
    }

    /// A grant that nobody picked up was given back.
    pub(super) fn abandoned(&mut self, name: &str, hold: HoldHash) {
        let key = self.key(name);
        if key.current.is_some_and(|lease| lease.hold == *hold.as_bytes()) {
            key.end(How::Abandoned);
        }
    }

    /// Whether the lease under this token may have been ended by force: then its holder may believe in it for longer.
    pub(super) fn was_forced(&self, name: &str, token: u64) -> bool {
        let forced = |(ended, how): &(u64, How)| *ended == token && *how == How::Revoked;
        self.keys.get(name).is_some_and(|key| key.ended.values().any(forced))
    }

    /// The store starts anew at this moment of its clock. `stopped_ms` is when it stopped, on the clock before.
    pub(super) fn restarted(&mut self, stopped_ms: u64, now_ms: u64, found: Found) {
        self.awake_since_ms = now_ms;
        if found == Found::SameBoot {
            return;
        }
        for lease in self.keys.values_mut().filter_map(|key| key.current.as_mut()) {
            let anew_ms = now_ms + lease.ttl_ms;
            let judged_at_ms = if found == Found::NewBoot { stopped_ms } else { now_ms };
            let live = judged_at_ms < lease.certain_until_ms;
            let longer =
                |until_ms: u64| if found == Found::NewBoot { anew_ms } else { anew_ms.max(until_ms) };
            lease.possible_until_ms = longer(lease.possible_until_ms);
            lease.certain_until_ms = if live { longer(lease.certain_until_ms) } else { 0 };
        }
    }
}

impl Key {
    fn end(&mut self, how: How) {
        if let Some(lease) = self.current.take() {
            self.ended.insert(lease.hold, (lease.token, how));
        }
    }

    fn granted(&mut self, now_ms: u64, hold: [u8; 16], token: u64, remaining_ms: u64, ttl_ms: u64) -> Audit {
        if let Some(lease) = self.current
            && now_ms < lease.certain_until_ms
        {
            return Err(format!("P1: token {token} was granted while token {} is live", lease.token));
        }
        if token <= self.newest {
            return Err(format!("P2: token {token} was granted after {}", self.newest));
        }
        if let Some((earlier, how)) = self.ended.get(&hold) {
            return Err(format!("P7: a hold that was {how} under token {earlier} was granted token {token}"));
        }
        if self.current.is_some_and(|lease| lease.hold == hold) {
            return Err(format!("P7: a hold that has had its lease was granted token {token}"));
        }
        if remaining_ms != ttl_ms {
            return Err(format!("P4: a grant for {ttl_ms} ms was told {remaining_ms} ms"));
        }
        self.end(How::Expired);
        self.newest = token;
        let until_ms = now_ms + ttl_ms;
        self.current =
            Some(Lease { token, hold, ttl_ms, certain_until_ms: until_ms, possible_until_ms: until_ms });
        Ok(())
    }

    /// The lease of this hold, if it can be live.
    fn possible(&mut self, now_ms: u64, hold: [u8; 16]) -> Option<&mut Lease> {
        self.current
            .as_mut()
            .filter(|lease| lease.hold == hold && now_ms < lease.possible_until_ms)
    }

    fn resumed(&mut self, now_ms: u64, hold: [u8; 16], token: u64, remaining_ms: u64) -> Audit {
        match self.possible(now_ms, hold) {
            Some(lease) if lease.token == token && now_ms + remaining_ms <= lease.possible_until_ms => {
                lease.certain_until_ms = lease.certain_until_ms.max(now_ms + remaining_ms);
                Ok(())
            }
            _ => {
                Err(format!("P7: token {token} was told again with {remaining_ms} ms that it does not have"))
            }
        }
    }

    fn refused(
        &mut self,
        now_ms: u64,
        hold: HoldHash,
        refusal: &Refusal,
        waited_since_ms: Option<u64>,
    ) -> Audit {
        match refusal {
            Refusal::Held { token, .. } => {
                let Some(lease) = self.current.filter(|lease| lease.token == token.get()) else {
                    return match waited_since_ms {
                        Some(_) => Ok(()),
                        None => Err(format!("P10: a free key was refused as held under token {token}")),
                    };
                };
                let seen_over_ms = lease.possible_until_ms.max(waited_since_ms.unwrap_or(0)) + ENDS_WITHIN_MS;
                if now_ms < lease.possible_until_ms || (waited_since_ms.is_some() && now_ms <= seen_over_ms) {
                    return Ok(());
                }
                Err(format!(
                    "P4: token {token} is over, and one who asked for the key was told that it is held"
                ))
            }
            Refusal::Ended { how, .. } => {
                let certain = self
                    .current
                    .is_some_and(|lease| lease.hold == *hold.as_bytes() && now_ms < lease.certain_until_ms);
                if certain {
                    return Err("P7: a live hold was told that it has ended".to_owned());
                }
                match (self.ended.get(hold.as_bytes()), how) {
                    (Some((token, known)), Some(how)) if known != how => {
                        Err(format!("P3: token {token} was {known}, and its holder was told {how}"))
                    }
                    _ => Ok(()),
                }
            }
            other => Err(format!("an acquire was refused: {other}")),
        }
    }

    fn renewed(&mut self, now_ms: u64, hold: [u8; 16], token: u64, answer: Result<u64, &Refusal>) -> Audit {
        match answer {
            Ok(remaining_ms) => match self.possible(now_ms, hold) {
                Some(lease) if lease.token == token => {
                    if remaining_ms != lease.ttl_ms {
                        return Err(format!("P3: token {token} was renewed for {remaining_ms} ms"));
                    }
                    lease.certain_until_ms = now_ms + remaining_ms;
                    lease.possible_until_ms = lease.certain_until_ms;
                    Ok(())
                }
                _ => Err(format!("P3: token {token} was renewed although it is over")),
            },
            Err(refusal) => self.lost(now_ms, hold, token, refusal),
        }
    }

    fn released(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        answer: Result<&fencehold_core::Token, &Refusal>,
    ) -> Audit {
        match answer {
            Ok(_) if self.possible(now_ms, hold).is_some_and(|lease| lease.token == token) => {
                self.end(How::Released);
                Ok(())
            }
            // The same release again gets the same answer.
            Ok(_) if self.ended.get(&hold) == Some(&(token, How::Released)) => Ok(()),
            Ok(_) => Err(format!("P5: token {token} was released although it is over")),
            Err(refusal) => self.lost(now_ms, hold, token, refusal),
        }
    }

    /// A holder was told that its hold is over.
    fn lost(&mut self, now_ms: u64, hold: [u8; 16], token: u64, refusal: &Refusal) -> Audit {
        let live = self
            .current
            .filter(|lease| lease.hold == hold && now_ms < lease.certain_until_ms);
        if live.is_some_and(|lease| lease.token == token) {
            return Err(format!("P4: the live holder of token {token} was told: {refusal}"));
        }
        match (refusal, self.ended.get(&hold)) {
            (Refusal::Lost { how: Some(how), .. }, Some((_, known))) if known != how => {
                Err(format!("P3: token {token} was {known}, and its holder was told {how}"))
            }
            (Refusal::Lost { .. }, _) => Ok(()),
            (other, _) => Err(format!("the holder of token {token} was told: {other}")),
        }
    }

    fn revoked(&mut self, token: u64, consumed: u64) -> Audit {
        if self.current.is_none_or(|lease| lease.token != token) {
            return Err(format!("P9: token {token} was revoked, which nobody has"));
        }
        if consumed <= self.newest {
            return Err(format!(
                "P9: force consumed token {consumed}, which is no larger than {}",
                self.newest
            ));
        }
        self.newest = consumed;
        self.end(How::Revoked);
        Ok(())
    }

    fn seen(&self, now_ms: u64, token: Option<u64>) -> Audit {
        let certain = self.current.filter(|lease| now_ms < lease.certain_until_ms);
        let possible = self.current.filter(|lease| now_ms < lease.possible_until_ms);
        match token {
            None => match certain {
                Some(lease) => Err(format!("P6: token {} is live, and nobody was seen", lease.token)),
                None => Ok(()),
            },
            Some(token) if possible.is_some_and(|lease| lease.token == token) => Ok(()),
            Some(token) => Err(format!("P10: token {token} was seen, which is over")),
        }
    }
}
