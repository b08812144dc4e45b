//! Jobs: what was acknowledged is kept, an effect has one value, and what is done is not done again.

use std::collections::BTreeMap;

use super::{AskedCall, CallResult, FinalState, RecordedCall};

/// All that was said of one job.
#[derive(Default)]
struct JobHistory<'a> {
    enqueued: bool,
    claims: Vec<&'a RecordedCall>,
    completions: Vec<(u64, &'a RecordedCall)>,
    values: Vec<&'a str>,
}

pub(super) fn problems(calls: &[RecordedCall], end: Option<&FinalState>) -> Vec<String> {
    let mut stories: BTreeMap<&str, JobHistory<'_>> = BTreeMap::new();
    for call in calls {
        match (&call.ask, call.answer()) {
            (AskedCall::Enqueue { job }, Some(CallResult::Enqueued)) => {
                stories.entry(job).or_default().enqueued = true;
            }
            (AskedCall::Claim, Some(CallResult::Claimed { job, .. })) => {
                stories.entry(job).or_default().claims.push(call);
            }
            (AskedCall::Record { job, .. }, Some(CallResult::Recorded { value })) => {
                stories.entry(job).or_default().values.push(value);
            }
            (AskedCall::Complete { job, token }, Some(CallResult::Completed)) => {
                stories.entry(job).or_default().completions.push((*token, call));
            }
            _ => {}
        }
    }
    let mut problems = Vec::new();
    for (job, story) in stories {
        of_one(job, &story, end, &mut problems);
    }
    problems
}

fn of_one(job: &str, story: &JobHistory<'_>, end: Option<&FinalState>, problems: &mut Vec<String>) {
    let mut values = story.values.clone();
    let standing = end.and_then(|end| end.jobs.get(job));
    values.extend(standing.and_then(|(_, value)| value.as_deref()));
    values.sort_unstable();
    values.dedup();
    if values.len() > 1 {
        problems.push(format!("job {job}: one effect was recorded with several values: {values:?}"));
    }
    let tokens: Vec<u64> = story.completions.iter().map(|(token, _)| *token).collect();
    if tokens.iter().any(|token| *token != tokens[0]) {
        problems.push(format!("job {job}: it was completed under several tokens: {tokens:?}"));
    }
    let done_ms = story
        .completions
        .iter()
        .filter_map(|(_, call)| Some(call.told.as_ref()?.0))
        .min();
    if let Some(done_ms) = done_ms {
        for claim in story.claims.iter().filter(|claim| claim.sent_ms > done_ms) {
            problems.push(format!(
                "job {job}: {} claimed it at {} ms, but it was completed at {done_ms} ms",
                claim.who, claim.sent_ms
            ));
        }
    }
    match (end, standing) {
        (None, _) | (_, Some((true, _))) => {}
        (Some(_), None) if !story.enqueued => {}
        (Some(_), None) => problems.push(format!("job {job}: it was acknowledged, and is lost")),
        (Some(_), Some((false, _))) if done_ms.is_some() => {
            problems.push(format!("job {job}: its completion was acknowledged, and is lost"));
        }
        (Some(_), Some((false, _))) => problems.push(format!("job {job}: it is stuck")),
    }
}
