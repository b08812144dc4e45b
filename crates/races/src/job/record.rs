//! What was answered about the job, as it goes into the trace.

use fencehold_core::Key;

use super::{JobCall, JobReply};
use crate::protocol::RaceCall as _;
use crate::trace::{Trace, fields};

/// Writes down what was answered.
pub(super) fn record(trace: &Trace, key: &Key, who: &str, act: &JobCall, told: &JobReply) {
    let (key, call) = (key.as_str(), act.message());
    let shown = act.claim().map_or(0, |claim| claim.token);
    let blocked = |current: u64, reason: String| {
        let says = format!("{call} under token {shown} refused: {reason}");
        let fields =
            fields!(key: key, stale_token: shown, current_token: current, attempted: call, reason: reason);
        trace.event(who, says, "stale_write_blocked", fields);
    };
    match told {
        JobReply::Claimed(claim) => {
            let (token, owner) = (claim.token, claim.owner.as_str());
            let fields = fields!(key: key, token: token, owner: owner);
            trace.event(who, format!("has it: token {token}"), "lease_acquired", fields);
            trace.event(who, "sets to work", "execution_started", fields!(key: key, token: token));
        }
        JobReply::Nothing => {
            trace.event(who, "finds nothing to do", "claim_empty", fields!(asked_by: who));
        }
        JobReply::Renewed { cancel_requested } => {
            let says = if *cancel_requested { "renewed, and told to stop" } else { "renewed" };
            let fields = fields!(key: key, token: shown, cancel_requested: cancel_requested);
            trace.event(who, format!("{says}: token {shown}"), "lease_renewed", fields);
        }
        JobReply::Stands { state, late } => {
            let late_word = if *late { ", late" } else { "" };
            let fields = fields!(key: key, call: call, token: shown, state: state.to_string(), late: late);
            trace.event(who, format!("{call}: the job is {state}{late_word}"), "job_stands", fields);
        }
        JobReply::Go | JobReply::Recorded | JobReply::InDoubt => {
            let (effect, event, says) = match (act, told) {
                (JobCall::Announce(_, effect, _), JobReply::Go) => {
                    (*effect, "effect_announced", "is announced")
                }
                (JobCall::Record(_, effect), _) => (*effect, "effect_recorded", "is recorded"),
                (JobCall::Announce(_, effect, _), JobReply::Recorded) => {
                    (*effect, "effect_found", "was recorded before")
                }
                (JobCall::Announce(_, effect, _), _) => {
                    (*effect, "effect_in_doubt", "is in doubt: a person must look")
                }
                _ => ("", "effect", "is answered"),
            };
            let fields = fields!(key: key, token: shown, effect: effect);
            trace.event(who, format!("{effect} {says}"), event, fields);
        }
        JobReply::Stale { current } => blocked(*current, "superseded".to_owned()),
        JobReply::Over { how } => blocked(shown, how.to_string()),
        JobReply::Finished { state } => {
            let fields = fields!(key: key, call: call, token: shown, state: state.to_string());
            trace.event(who, format!("{call} refused: the job is {state}"), "refused", fields);
        }
        JobReply::Unheard => {
            trace.event(who, "hears nothing", "answer_lost", fields!(key: key, call: call));
        }
        JobReply::Swept => trace.note(who, "has swept"),
        JobReply::Looked => trace.note(who, "has seen it; the store sweeps by itself"),
        JobReply::Other(what) => {
            trace.event(who, format!("{call}: {what}"), "refused", fields!(key: key, call: call, why: what));
        }
    }
}
