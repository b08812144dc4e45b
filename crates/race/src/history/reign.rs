//! Holders: one at a time, under tokens that grow, in an order that explains every answer.
//!
//! A history is linearizable if every call can be given a moment between its sending and its answer, so that the answers
//! follow from the calls in that order. On one key the tokens give that order away: all that was said of a token happened
//! after its grant and before the next one. So the earliest possible moments decide.
//!
//! A job's claim is a lease on the job, and is held to the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ask, Call, End, Tell};

/// All that was seen of one token.
#[derive(Default)]
struct Reign<'a> {
    grants: Vec<&'a Call>,
    /// Calls whose answer is true only while the token is the newest.
    seen: Vec<&'a Call>,
    /// Until when its holder was promised the key.
    promised_until_ms: u64,
    /// From when on its holder may have given the key back.
    given_back_ms: Option<u64>,
}

impl Reign<'_> {
    fn promise(&mut self, call: &Call, remaining_ms: u64) {
        self.promised_until_ms = self.promised_until_ms.max(call.sent_ms + remaining_ms);
    }

    fn gives_back(&mut self, call: &Call) {
        self.given_back_ms = Some(self.given_back_ms.map_or(call.sent_ms, |at| at.min(call.sent_ms)));
    }
}

type Reigns<'a> = BTreeMap<String, BTreeMap<u64, Reign<'a>>>;

pub(super) fn problems(calls: &[Call], end: Option<&End>) -> Vec<String> {
    let reigns = reigns(calls);
    let mut problems = Vec::new();
    for (key, tokens) in &reigns {
        one_holder(key, tokens, &mut problems);
        in_order(key, tokens, &mut problems);
        let newest = tokens.keys().next_back();
        let last = end.and_then(|end| end.keys.get(key));
        if let (Some(newest), Some(last)) = (newest, last)
            && last < newest
        {
            problems
                .push(format!("{key}: token {newest} was told, and at the end the store knows only {last}"));
        }
    }
    problems
}

fn reigns(calls: &[Call]) -> Reigns<'_> {
    let mut reigns = Reigns::new();
    for call in calls {
        match (&call.ask, call.answer()) {
            (Ask::Acquire { key }, Some(Tell::Granted { token, remaining_ms })) => {
                let reign = at(&mut reigns, key, *token);
                reign.grants.push(call);
                reign.promise(call, *remaining_ms);
            }
            (Ask::Claim, Some(Tell::Claimed { job, token, remaining_ms })) => {
                let reign = at(&mut reigns, &job_key(job), *token);
                reign.grants.push(call);
                reign.promise(call, *remaining_ms);
            }
            (Ask::Acquire { key } | Ask::Get { key }, Some(Tell::Held { token })) => {
                at(&mut reigns, key, *token).seen.push(call);
            }
            (Ask::Renew { key, token }, Some(Tell::Renewed { remaining_ms })) => {
                let reign = at(&mut reigns, key, *token);
                reign.seen.push(call);
                reign.promise(call, *remaining_ms);
            }
            (Ask::Release { key, token }, _) => at(&mut reigns, key, *token).gives_back(call),
            (Ask::Complete { job, token }, _) => at(&mut reigns, &job_key(job), *token).gives_back(call),
            _ => {}
        }
    }
    reigns
}

fn job_key(job: &str) -> String {
    format!("job {job}")
}

fn at<'r, 'a>(reigns: &'r mut Reigns<'a>, key: &str, token: u64) -> &'r mut Reign<'a> {
    reigns.entry(key.to_owned()).or_default().entry(token).or_default()
}

/// Nobody is granted a key while its holder has a promise that it has not given back.
fn one_holder(key: &str, tokens: &BTreeMap<u64, Reign<'_>>, problems: &mut Vec<String>) {
    // Of all grants of larger tokens, the one that was told first.
    let mut soonest: Option<(u64, u64, &str)> = None;
    for (token, reign) in tokens.iter().rev() {
        let askers: BTreeSet<_> = reign.grants.iter().map(|call| &call.who).collect();
        if askers.len() > 1 {
            problems.push(format!("{key}: token {token} was given to {askers:?}"));
        }
        let until_ms = reign
            .given_back_ms
            .map_or(reign.promised_until_ms, |at| at.min(reign.promised_until_ms));
        if let Some((told_ms, later, who)) = soonest
            && told_ms < until_ms
        {
            problems.push(format!(
                "{key}: {who} had token {later} at {told_ms} ms, while token {token} was promised until {until_ms} ms"
            ));
        }
        let told = reign
            .grants
            .iter()
            .filter_map(|call| Some((call.told.as_ref()?.0, *token, call.who.as_str())));
        soonest = told.chain(soonest).min();
    }
}

/// Whether an order explains all that was seen of a key.
fn in_order(key: &str, tokens: &BTreeMap<u64, Reign<'_>>, problems: &mut Vec<String>) {
    // The earliest moment at which everything before can have happened.
    let mut so_far_ms = 0;
    for (token, reign) in tokens {
        let mut within = |call: &Call, earliest_ms: u64| {
            let moment_ms = earliest_ms.max(call.sent_ms);
            if let Some((answered_ms, tell)) = &call.told
                && *answered_ms < moment_ms
            {
                problems.push(format!(
                    "{key}: no order explains that {} was told {tell:?} of token {token} at {answered_ms} ms: what \
                     comes before was not over until {moment_ms} ms",
                    call.who
                ));
            }
            moment_ms
        };
        // The same grant may be told again; only its first telling is when it happened.
        let first = reign.grants.iter().min_by_key(|call| call.sent_ms);
        let granted_ms = first.map_or(so_far_ms, |call| within(call, so_far_ms));
        let seen = reign.seen.iter().map(|call| within(call, granted_ms)).max();
        so_far_ms = granted_ms.max(seen.unwrap_or(0));
    }
}
