//! `fencehold explain KEY`: who holds it, who waits, what happens next?

use fencehold_contract::{
    EndingView, FlatEvent, HolderView, KeyContention, LeaseView, ListContentionRequest, StoreError,
};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, Key};
use serde::Serialize;

use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::Failure;
use crate::follow;
use crate::shell;
use crate::show::utc;
use crate::verb::VerbResult;
use crate::verb::lease::{contention_sentence, details, history};

/// All that can be said of a key.
#[derive(Debug, Serialize)]
struct LeaseExplanation<'a> {
    key: &'a Key,
    state: &'static str,
    /// In one sentence: how it stands.
    summary: String,
    /// In one sentence: what happens next, and when.
    next: String,
    /// What to notice.
    notes: Vec<String>,
    /// How long ago the holder last gave a sign of life.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed_ago_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<&'a LeaseView>,
    /// How others contended for it in the last hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    contention: Option<&'a KeyContention>,
    /// Late writes that were refused, and worse.
    alarms: Vec<FlatEvent<&'a Event>>,
}

pub(super) async fn explain(context: &Context, store: &OpenStore, key: Key) -> VerbResult {
    let lease = store.explained(store.leases.get(&store.call, key.clone())).await?;
    let (alarms, _) = super::alarms(store, &key).await?;
    let contention = contention(store, &key).await?;
    let explanation =
        LeaseExplanation { contention: contention.as_ref(), ..explanation(&key, lease.as_ref(), &alarms) };
    context.output.one(&explanation, |style| {
        let head = super::head(&explanation.summary, &explanation.next, &explanation.notes, style);
        let lease = lease
            .as_ref()
            .map(|lease| format!("\n{}{}", details(lease, style), history(lease).below(style)));
        let contention = contention.as_ref().map(|seen| {
            let text = format!("Contention: {}", contention_sentence(seen));
            style.wrap(&text, 0) + "\n"
        });
        head + &contention.unwrap_or_default()
            + &lease.unwrap_or_default()
            + &follow::table(&alarms).below(style)
    })
}

/// How others contended for the key, where the store can tell.
async fn contention(store: &OpenStore, key: &Key) -> Result<Option<KeyContention>, Failure> {
    let request = ListContentionRequest { key: Some(key.clone()), prefix: None };
    match store.leases.list_contention(&store.call, request).await {
        Ok(list) => Ok(list.keys.into_iter().next()),
        // A server of an earlier version: all else can be explained.
        Err(StoreError::Unsupported { .. } | StoreError::Unusable { .. }) => Ok(None),
        failed => store.explained(std::future::ready(failed)).await.map(|_| None),
    }
}

fn explanation<'a>(key: &'a Key, lease: Option<&'a LeaseView>, alarms: &'a [Event]) -> LeaseExplanation<'a> {
    let blank = LeaseExplanation {
        key,
        state: "never_held",
        summary: format!("{key} was never held here, or so long ago that it was forgotten."),
        next: "The next who asks gets it.".to_owned(),
        notes: Vec::new(),
        renewed_ago_ms: None,
        lease,
        contention: None,
        alarms: alarms.iter().map(FlatEvent).collect(),
    };
    let Some(lease) = lease else { return blank };
    let mut notes = Vec::from_iter(crashes(&lease.endings));
    let (state, summary, next, renewed_ago_ms) = match &lease.holder {
        Some(holder) => {
            let renewed_ago_ms = holder.renewed_ago_ms;
            notes.extend(silence(holder, renewed_ago_ms));
            ("held", held(lease, holder, renewed_ago_ms), after_held(lease, holder), renewed_ago_ms)
        }
        None => ("free", free(lease), after_free(lease), None),
    };
    LeaseExplanation { state, summary, next, notes, renewed_ago_ms, ..blank }
}

fn held(lease: &LeaseView, holder: &HolderView, renewed_ago_ms: Option<u64>) -> String {
    let task = holder.task.as_ref().map(|task| format!(" for task {task}")).unwrap_or_default();
    let renewed = renewed_ago_ms
        .map(|ms| format!("; it was last renewed {} ago", show_ms(ms)))
        .unwrap_or_default();
    format!(
        "{} is held by {}{task} under token {}, for {} so far{renewed}.",
        lease.key,
        holder.owner,
        lease.token,
        show_ms(holder.age_ms)
    )
}

fn after_held(lease: &LeaseView, holder: &HolderView) -> String {
    let left = show_ms(holder.remaining_ms);
    let heir = match lease.waiter_count {
        0 => "the key is free".to_owned(),
        1 => "the one in line gets it".to_owned(),
        waiters => format!("the first of {waiters} in line gets it"),
    };
    let larger = format!("under a token above {}", lease.token);
    if let Some(notice) = &holder.yield_request {
        let latest = show_ms(notice.yield_in_ms.max(holder.remaining_ms));
        return format!(
            "{} (priority {}) has asked for it: the holder can stay for {latest} at most, then {heir}, {larger}.",
            notice.contender, notice.priority
        );
    }
    format!(
        "It stays held for as long as its holder renews. If the holder is gone, the lease ends in {left}, and {heir}, \
         {larger}. To end it now: fencehold lease revoke {} --reason …",
        shell::word(lease.key.as_str())
    )
}

fn free(lease: &LeaseView) -> String {
    let Some(last) = lease.endings.last() else {
        return format!("{} is free.", lease.key);
    };
    let task = last.task.as_ref().map(|task| format!(" for task {task}")).unwrap_or_default();
    let by = last.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = last.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let why = match last.outcome {
        LeaseOutcome::Expired => ": its holder died, stalled or could not reach the store",
        LeaseOutcome::Abandoned => ": it was granted to a caller that had stopped waiting",
        _ => "",
    };
    format!(
        "{} is free. Its last hold, token {}, by {}{task}, was {}{by}{reason} at {}{why}.",
        lease.key,
        last.token,
        last.owner,
        last.outcome,
        utc(last.ended_at_ms)
    )
}

fn after_free(lease: &LeaseView) -> String {
    let larger = format!("under a token above {}", lease.token);
    match lease.waiter_count {
        0 => format!("The next who asks gets it, {larger}."),
        waiters => format!("{waiters} in line: the first is about to get it, {larger}."),
    }
}

/// A holder that renews does so every third of its ttl. One that is silent for two thirds is in trouble.
fn silence(holder: &HolderView, renewed_ago_ms: Option<u64>) -> Option<String> {
    let silent_ms = renewed_ago_ms.filter(|ms| *ms > holder.ttl_ms / 3 * 2)?;
    Some(format!(
        "The holder has been silent for {}, although it should renew every {}: it may be gone, or nothing renews this lease.",
        show_ms(silent_ms),
        show_exact_ms(holder.ttl_ms / 3)
    ))
}

fn crashes(endings: &[EndingView]) -> Option<String> {
    let expired = endings.iter().filter(|ending| ending.outcome == LeaseOutcome::Expired).count();
    (expired > 0).then(|| {
        let all = endings.len();
        format!("{expired} of the last {all} holds expired: their holders died, stalled or lost the store.")
    })
}
