//! `fencehold explain KEY`: who holds it, who waits, what happens next?

use std::fmt::Write as _;

use fencehold_contract::{EndingView, HolderView, LeaseView};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, Key};
use serde::Serialize;

use crate::context::{Context, Store};
use crate::duration::{show_exact_ms, show_ms};
use crate::follow::{self, Line};
use crate::shell;
use crate::show::{Colour, Palette, utc};
use crate::verb::lease::{details, history};
use crate::verb::{DONE, Outcome};

/// All that can be said of a key.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    key: &'a Key,
    state: &'static str,
    /// In one sentence: how it stands.
    says: String,
    /// In one sentence: what happens next, and when.
    next: String,
    /// What to notice.
    remarks: Vec<String>,
    /// How long ago the holder last gave a sign of life.
    last_beat_ms_ago: Option<u64>,
    lease: Option<&'a LeaseView>,
    /// Late writes that were refused, and worse.
    alarms: Vec<Line<'a>>,
}

pub(super) async fn explain(context: &Context, store: &Store, key: Key) -> Outcome {
    let lease = store
        .leases
        .get(&store.call, key.clone())
        .await
        .map_err(|error| store.explain(error))?;
    let alarms = super::alarms(store, &key).await?;
    let explanation = explanation(&key, lease.as_ref(), &alarms);
    context
        .output
        .one(&explanation, |palette| text(&explanation, &alarms, palette))?;
    Ok(DONE)
}

fn explanation<'a>(key: &'a Key, lease: Option<&'a LeaseView>, alarms: &'a [Event]) -> Explanation<'a> {
    let blank = Explanation {
        key,
        state: "never_held",
        says: format!("{key} was never held here, or so long ago that it was forgotten."),
        next: "The next who asks gets it.".to_owned(),
        remarks: Vec::new(),
        last_beat_ms_ago: None,
        lease,
        alarms: alarms.iter().map(Line::from).collect(),
    };
    let Some(lease) = lease else { return blank };
    let mut remarks = Vec::new();
    remarks.extend(crashes(&lease.endings));
    let (state, says, next, last_beat_ms_ago) = match &lease.holder {
        Some(holder) => {
            let beat_ms_ago = holder.renewed_ago_ms;
            remarks.extend(silence(holder, beat_ms_ago));
            ("held", held(lease, holder, beat_ms_ago), after_held(lease, holder), beat_ms_ago)
        }
        None => ("free", free(lease), after_free(lease), None),
    };
    Explanation { state, says, next, remarks, last_beat_ms_ago, ..blank }
}

fn held(lease: &LeaseView, holder: &HolderView, beat_ms_ago: Option<u64>) -> String {
    let task = holder.task.as_ref().map(|task| format!(" for task {task}")).unwrap_or_default();
    let beat = beat_ms_ago
        .map(|ms| format!("; its last beat was {} ago", show_ms(ms)))
        .unwrap_or_default();
    format!(
        "{} is held by {}{task} under token {}, for {} so far{beat}.",
        lease.key,
        holder.owner,
        lease.token,
        show_ms(holder.age_ms)
    )
}

fn after_held(lease: &LeaseView, holder: &HolderView) -> String {
    let left = show_ms(holder.remaining_ms);
    let heir = match lease.waiter_count {
        0 => "the key is free for whoever asks".to_owned(),
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
        LeaseOutcome::Abandoned => ": it was granted to somebody who had stopped waiting",
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
fn silence(holder: &HolderView, beat_ms_ago: Option<u64>) -> Option<String> {
    let silent_ms = beat_ms_ago.filter(|ms| *ms > holder.ttl_ms / 3 * 2)?;
    Some(format!(
        "The holder has been silent for {}, although it should beat every {}: it may be gone, or nobody renews this lease.",
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

fn text(explanation: &Explanation<'_>, alarms: &[Event], palette: Palette) -> String {
    let mut text =
        format!("{}\n\nNext: {}\n", palette.paint(&explanation.says, Colour::Strong), explanation.next);
    for remark in &explanation.remarks {
        let _ = writeln!(text, "Note: {}", palette.paint(remark, Colour::Warning));
    }
    if let Some(lease) = explanation.lease {
        let _ = write!(text, "\n{}", details(lease, palette));
        let history = history(lease);
        if !history.is_empty() {
            let _ = write!(text, "\n{}", history.render(palette));
        }
    }
    if !alarms.is_empty() {
        let _ = write!(text, "\n{}", follow::table(alarms).render(palette));
    }
    text
}
