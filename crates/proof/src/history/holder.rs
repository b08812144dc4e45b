//! Holders: one at a time, under tokens that grow, in an order that explains every answer, for as long as they were promised.
//!
//! A history is linearizable if every call can be given a moment between its sending and its answer, so that the answers
//! follow from the calls in that order. On one key the tokens give that order away: all that was said of a token happened
//! after its grant and before the next one. So the earliest possible moments decide.
//!
//! A job's claim is a lease on the job, and is held to the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{AskedCall, CallResult, FinalState, RecordedCall};

/// All that was seen of one token.
#[derive(Default)]
struct TokenHistory<'a> {
    grants: Vec<&'a RecordedCall>,
    /// Calls whose answer is true only while the token is the newest.
    seen: Vec<&'a RecordedCall>,
    /// What its holder was promised, word for word. Each counts by itself: after a disk that failed, a hold that had run out
    /// may have come back for a while.
    promises: Vec<Promise>,
    /// Calls of its holder whose answer was that the hold is over.
    denied: Vec<&'a RecordedCall>,
    /// When its holder asked to give the key back, unless that was refused.
    gives_back: Vec<&'a RecordedCall>,
}

/// The store's word that a token has the key: certain from when it was given, and counted from before it was asked for.
#[derive(Clone, Copy)]
struct Promise {
    from_ms: u64,
    until_ms: u64,
}

impl<'a> TokenHistory<'a> {
    fn promise(&mut self, call: &RecordedCall, remaining_ms: u64) {
        let from_ms = call.told.as_ref().map_or(u64::MAX, |(told_ms, _)| *told_ms);
        self.promises.push(Promise { from_ms, until_ms: call.sent_ms + remaining_ms });
    }

    fn promised_until_ms(&self) -> u64 {
        self.promises.iter().map(|promise| promise.until_ms).max().unwrap_or(0)
    }

    /// The sending that was carried out, if it is certain that one was: those that follow are answered as it was.
    fn released(&self) -> Option<&'a RecordedCall> {
        let first = self.gives_back.iter().copied().min_by_key(|call| call.sent_ms)?;
        matches!(first.answer(), Some(CallResult::Released)).then_some(first)
    }
}

/// All that was seen of one key.
#[derive(Default)]
struct KeyHistory<'a> {
    reigns: BTreeMap<u64, TokenHistory<'a>>,
    /// What was answered about its holder, in the order of asking: under which token it is held, if it is.
    looks: Vec<(Option<u64>, &'a RecordedCall)>,
    /// Attempts to end whatever hold there is.
    force: Vec<&'a RecordedCall>,
}

impl<'a> KeyHistory<'a> {
    fn at(&mut self, token: u64) -> &mut TokenHistory<'a> {
        self.reigns.entry(token).or_default()
    }

    /// From when on a hold may be over before its time: its holder may have given the key back, or someone used force. What
    /// a call of force was answered says little, because it may have been carried out by an earlier sending of the same call.
    fn may_be_over_ms(&self, token_history: &TokenHistory<'_>) -> u64 {
        let begun_ms = token_history.grants.iter().map(|call| call.sent_ms).min().unwrap_or(0);
        let force = self.force.iter().filter(|call| !call.was_over_before(begun_ms));
        let ends = token_history.gives_back.iter().chain(force).map(|call| call.sent_ms);
        ends.min().unwrap_or(u64::MAX)
    }
}

type KeyHistories<'a> = BTreeMap<String, KeyHistory<'a>>;

pub(super) fn problems(calls: &[RecordedCall], end: Option<&FinalState>) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, story) in &stories(calls) {
        one_holder(key, story, &mut problems);
        in_order(key, &story.reigns, &mut problems);
        promises_are_kept(key, story, &mut problems);
        given_back_is_over(key, &story.reigns, &mut problems);
        let newest = story.reigns.keys().next_back();
        let last = end.and_then(|end| end.keys.get(key));
        if let (Some(newest), Some(last)) = (newest, last)
            && last < newest
        {
            problems
                .push(format!("{key}: token {newest} was given, and at the end the store knows only {last}"));
        }
    }
    problems
}

fn stories(calls: &[RecordedCall]) -> KeyHistories<'_> {
    let mut stories = KeyHistories::new();
    for call in calls {
        let Some((key, own)) = about(call) else { continue };
        let story = stories.entry(key).or_default();
        match (&call.ask, call.answer()) {
            (AskedCall::Revoke { .. }, _) => story.force.push(call),
            (
                _,
                Some(
                    CallResult::Granted { token, remaining_ms }
                    | CallResult::Claimed { token, remaining_ms, .. },
                ),
            ) => {
                let token_history = story.at(*token);
                token_history.grants.push(call);
                token_history.promise(call, *remaining_ms);
            }
            (_, Some(CallResult::Held { token })) => {
                story.at(*token).seen.push(call);
                story.looks.push((Some(*token), call));
            }
            (_, Some(CallResult::Free)) => story.looks.push((None, call)),
            (_, Some(CallResult::Renewed { remaining_ms })) => {
                let token_history = story.at(own);
                token_history.seen.push(call);
                token_history.promise(call, *remaining_ms);
            }
            (_, Some(CallResult::Lost { .. })) => story.at(own).denied.push(call),
            (AskedCall::Release { .. } | AskedCall::Complete { .. }, Some(CallResult::Refused { .. })) => {}
            (AskedCall::Release { .. } | AskedCall::Complete { .. }, _) => {
                story.at(own).gives_back.push(call);
            }
            _ => {}
        }
    }
    for story in stories.values_mut() {
        story.looks.sort_by_key(|(_, call)| call.sent_ms);
        for token_history in story.reigns.values_mut() {
            token_history.seen.extend(token_history.released());
        }
    }
    stories
}

/// Which key or job a call is about, and under which token its caller speaks.
fn about(call: &RecordedCall) -> Option<(String, u64)> {
    match (&call.ask, call.answer()) {
        (AskedCall::Acquire { key } | AskedCall::Get { key } | AskedCall::Revoke { key }, _) => {
            Some((key.clone(), 0))
        }
        (AskedCall::Renew { key, token } | AskedCall::Release { key, token }, _) => {
            Some((key.clone(), *token))
        }
        (AskedCall::Record { job, token } | AskedCall::Complete { job, token }, _) => {
            Some((job_key(job), *token))
        }
        (AskedCall::Claim, Some(CallResult::Claimed { job, .. })) => Some((job_key(job), 0)),
        (AskedCall::Claim | AskedCall::Enqueue { .. }, _) => None,
    }
}

fn job_key(job: &str) -> String {
    format!("job {job}")
}

/// No one is granted a key while its holder has a promise that it has not given back.
fn one_holder(key: &str, story: &KeyHistory<'_>, problems: &mut Vec<String>) {
    // Of all grants of larger tokens, the one that was answered first.
    let mut soonest: Option<(u64, u64, &str)> = None;
    for (token, token_history) in story.reigns.iter().rev() {
        let askers: BTreeSet<_> = token_history.grants.iter().map(|call| &call.who).collect();
        if askers.len() > 1 {
            problems.push(format!("{key}: token {token} was given to {askers:?}"));
        }
        let until_ms = token_history.promised_until_ms().min(story.may_be_over_ms(token_history));
        if let Some((told_ms, later, who)) = soonest
            && told_ms < until_ms
        {
            problems.push(format!(
                "{key}: {who} had token {later} at {told_ms} ms, while token {token} was promised until {until_ms} ms"
            ));
        }
        let told = token_history
            .grants
            .iter()
            .filter_map(|call| Some((call.told.as_ref()?.0, *token, call.who.as_str())));
        soonest = told.chain(soonest).min();
    }
}

/// Whether an order explains all that was seen of a key.
fn in_order(key: &str, tokens: &BTreeMap<u64, TokenHistory<'_>>, problems: &mut Vec<String>) {
    // The earliest moment at which everything before can have happened.
    let mut so_far_ms = 0;
    for (token, token_history) in tokens {
        let mut within = |call: &RecordedCall, earliest_ms: u64| {
            let moment_ms = earliest_ms.max(call.sent_ms);
            if let Some((answered_ms, tell)) = &call.told
                && *answered_ms < moment_ms
            {
                problems.push(format!(
                    "{key}: no order explains that {} was answered {tell:?} of token {token} at {answered_ms} ms: what \
                     comes before was not over until {moment_ms} ms",
                    call.who
                ));
            }
            moment_ms
        };
        // The same grant may be answered again; only the first answer is when it happened.
        let first = token_history.grants.iter().min_by_key(|call| call.sent_ms);
        let granted_ms = first.map_or(so_far_ms, |call| within(call, so_far_ms));
        let seen = token_history.seen.iter().map(|call| within(call, granted_ms)).max();
        so_far_ms = granted_ms.max(seen.unwrap_or(0));
    }
}

/// As long as its holder has a promise, no answer says that the key is free or another's, and the holder is not sent away.
/// Only what lies wholly within a promise counts: else it may have happened before or after.
fn promises_are_kept(key: &str, story: &KeyHistory<'_>, problems: &mut Vec<String>) {
    for (token, token_history) in &story.reigns {
        let over_ms = story.may_be_over_ms(token_history);
        let within = |call: &RecordedCall| {
            let (told_ms, _) = call.told.as_ref()?;
            let holds = |promise: &&Promise| {
                promise.from_ms < call.sent_ms && *told_ms < promise.until_ms.min(over_ms)
            };
            token_history.promises.iter().find(holds)
        };
        let first_ms = token_history
            .promises
            .iter()
            .map(|promise| promise.from_ms)
            .min()
            .unwrap_or(u64::MAX);
        let from = story.looks.partition_point(|(_, call)| call.sent_ms <= first_ms);
        let looks = story.looks[from..]
            .iter()
            .take_while(|(_, call)| call.sent_ms < token_history.promised_until_ms())
            // Tokens that are too old are a matter of order.
            .filter(|(held, _)| held.is_none_or(|held| held > *token))
            .map(|(_, call)| *call);
        for call in token_history.denied.iter().copied().chain(looks) {
            if let (Some(promise), Some((told_ms, tell))) = (within(call), &call.told) {
                problems.push(format!(
                    "{key}: {} asked at {} ms and was answered {tell:?} at {told_ms} ms, while token {token} was promised \
                     from {} to {} ms",
                    call.who, call.sent_ms, promise.from_ms, promise.until_ms
                ));
            }
        }
    }
}

/// A key that was given back is not held under the same token afterwards.
fn given_back_is_over(key: &str, tokens: &BTreeMap<u64, TokenHistory<'_>>, problems: &mut Vec<String>) {
    for (token, token_history) in tokens {
        let Some((released_ms, _)) = token_history.released().and_then(|call| call.told.as_ref()) else {
            continue;
        };
        let later = |call: &&&RecordedCall| call.sent_ms > *released_ms;
        for call in token_history.grants.iter().chain(&token_history.seen).filter(later) {
            problems.push(format!(
                "{key}: {} was answered {:?} of token {token}, asked at {} ms, but it was given back at {released_ms} ms",
                call.who,
                call.answer(),
                call.sent_ms
            ));
        }
    }
}
