//! What was answered to an actor, as it goes into the trace.

use crate::protocol::{LeaseCall, LeaseReply, RaceCall as _};
use crate::trace::{Trace, fields};

/// Writes down what was answered to an actor.
pub(crate) fn record(trace: &Trace, who: &str, act: &LeaseCall, told: &LeaseReply) {
    let (key, call) = (act.key().as_str(), act.message());
    let shown = act.lease().map_or(0, |lease| lease.token);
    let blocked = |current: u64, says: &str, reason: &str| {
        let fields =
            fields!(key: key, stale_token: shown, current_token: current, attempted: call, reason: reason);
        let says = format!("{call} under token {shown} refused: {says}");
        trace.event(who, says, "stale_write_blocked", fields);
    };
    match told {
        LeaseReply::Granted(lease) => {
            let event = if lease.resumed { "lease_resumed" } else { "lease_acquired" };
            let fields = fields!(key: key, token: lease.token, owner: lease.owner.as_str(), remaining_ms: lease.remaining_ms,);
            trace.event(who, format!("has it: token {}", lease.token), event, fields);
        }
        LeaseReply::Renewed { remaining_ms } => {
            let fields = fields!(key: key, token: shown, remaining_ms: remaining_ms);
            trace.event(who, format!("renewed token {shown}"), "lease_renewed", fields);
        }
        LeaseReply::Released => {
            let fields = fields!(key: key, token: shown);
            trace.event(who, format!("released token {shown}"), "lease_released", fields);
        }
        LeaseReply::Revoked { consumed } => {
            let fields = fields!(key: key, consumed_token: consumed, by: who);
            trace.event(who, "revoked it by force", "lease_revoked", fields);
        }
        LeaseReply::Completed => {
            let fields = fields!(key: key, token: shown);
            trace.event(who, format!("completed under token {shown}"), "completed", fields);
        }
        LeaseReply::Held { owner } => {
            let fields = fields!(key: key, asked_by: who, held_by: owner);
            trace.event(who, format!("refused: held by {owner}"), "acquire_refused", fields);
        }
        LeaseReply::Lost { how, current } => {
            let reason = match how {
                _ if *current > shown => "superseded".to_owned(),
                Some(how) => how.to_string(),
                None => "over".to_owned(),
            };
            blocked(*current, &reason, &reason);
        }
        LeaseReply::Stale { current } => blocked(*current, &format!("{current} was seen"), "superseded"),
        LeaseReply::Ended { how } => {
            let how = how.map_or_else(|| "ended".to_owned(), |how| how.to_string());
            let fields = fields!(key: key, asked_by: who, ended: how);
            trace.event(who, format!("refused: that hold was {how}"), "acquire_refused", fields);
        }
        LeaseReply::Unheard => {
            trace.event(who, "hears nothing", "answer_lost", fields!(key: key, call: call));
        }
        LeaseReply::Rewound { current } => {
            let says = format!("{call} under token {shown} refused: the store was rewound");
            let fields = fields!(key: key, shown_token: shown, current_token: current, attempted: call);
            trace.event(who, says, "store_rewound", fields);
        }
        LeaseReply::Swept => trace.note(who, "has swept"),
        LeaseReply::Looked => trace.note(who, "has seen it; the store sweeps by itself"),
        LeaseReply::Other(what) => {
            trace.event(who, format!("{call}: {what}"), "refused", fields!(key: key, call: call, why: what));
        }
    }
}
