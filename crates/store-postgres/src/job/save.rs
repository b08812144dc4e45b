//! What was decided, as JSON, for the database to keep; and what it was decided upon, as far as others may have changed it since.

use std::collections::{HashMap, HashSet};

use fencehold_contract::stored::{EffectStateV1, EffectV1, FactV1, ScheduleV1, TrailV1, queue_mode_number};
use fencehold_core::job::{Claim, CompensationState, Due, JobId, JobNotes, JobOptions};
use fencehold_core::ledger::EffectState;
use fencehold_core::{Event, Token};
use fencehold_engine::{JobBody, JobChange, JobNote, ReplayInput, StoredJob, StoredUnique};
use serde_json::{Value, json};

use super::columns::{JobExtra, PendingSignals, kept_terms, state_number, undo_number};
use crate::value::{Json, Uuid128, hex_of};

/// What a decision was made on, as far as others may have changed it since.
#[derive(Debug)]
pub(super) struct LoadedVersions {
    pub(super) uniques: Vec<StoredUnique>,
    /// How effects stood, by the place of their job and by name.
    pub(super) effects: HashMap<(u64, String), EffectState>,
    /// Whether it was decided what a queue does. Whatever else puts jobs into queues must not set one back that it never
    /// looked at.
    pub(super) sets_queue: bool,
}

impl LoadedVersions {
    pub(super) fn of(brought: &ReplayInput, sets_queue: bool) -> Self {
        let effects = brought.jobs.iter().flat_map(|job| {
            let arrival = job.kept.arrival;
            job.effects
                .iter()
                .map(move |effect| ((arrival, effect.name.to_string()), effect.state))
        });
        LoadedVersions { uniques: brought.uniques.clone(), effects: effects.collect(), sets_queue }
    }
}

/// All that was decided, for the database to keep. `loaded` is what it was decided on.
pub(super) fn changes_to_keep(changes: &[JobChange], events: &[Event], loaded: &LoadedVersions) -> Json {
    // What changed about one job more than once is kept as it stands in the end, at the first of its places; its body first.
    let mut last: HashMap<u64, &StoredJob> = HashMap::new();
    for change in changes {
        if let JobChange::Live(job) | JobChange::Finished(job) = change {
            last.insert(job.arrival, job);
        }
    }
    // Of an effect that changes more than once, only the first change goes by what was there before.
    let mut seen: HashSet<(u64, String)> = HashSet::new();
    let mut with_was = |arrival: u64, name: String, mut change: Value| {
        let at = (arrival, name);
        let was = loaded.effects.get(&at).copied();
        if seen.insert(at) {
            change["was"] = json!(was.map(EffectStateV1::from));
        }
        change
    };
    let mut kept: Vec<Value> = Vec::with_capacity(changes.len() + events.len());
    for change in changes {
        kept.extend(match change {
            JobChange::Body { arrival, id, body } => {
                last.get(arrival).map(|job| body_row(*arrival, *id, body, &job.record.options))
            }
            JobChange::Live(job) | JobChange::Finished(job) => last.remove(&job.arrival).map(place_row),
            JobChange::Term { arrival, token, deadline_ms } => Some(
                json!({"what": "term", "arrival": arrival, "token": token, "deadline_ms": deadline_ms}),
            ),
            JobChange::Drop { arrival } => Some(json!({"what": "drop", "arrival": arrival})),
            JobChange::Note { arrival, what: JobNote::Result, bytes } => std::str::from_utf8(bytes)
                .ok()
                .map(|text| json!({"what": "result", "arrival": arrival, "text": text})),
            JobChange::Note { arrival, what, bytes } => Some(json!({
                "what": "note", "arrival": arrival, "note": u8::from(*what == JobNote::Progress), "hex": hex_of(bytes),
            })),
            JobChange::Effect { arrival, effect } => {
                let change = json!({"what": "effect", "arrival": arrival, "effect": EffectV1::from(effect)});
                Some(with_was(*arrival, effect.name.to_string(), change))
            }
            JobChange::NoEffect { arrival, effect } => {
                let change = json!({"what": "no_effect", "arrival": arrival, "name": effect});
                Some(with_was(*arrival, effect.to_string(), change))
            }
            JobChange::Unique(unique) => Some(unique_row(unique, &loaded.uniques)),
            JobChange::NoUnique { namespace, key } => {
                Some(json!({"what": "no_unique", "namespace": namespace, "key": Uuid128(*key).text()}))
            }
            JobChange::Queue(queue) => loaded.sets_queue.then(|| {
                json!({
                    "what": "queue", "namespace": queue.namespace, "name": queue.name, "mode": queue_mode_number(queue.mode),
                })
            }),
            JobChange::Schedule(schedule) => Some(json!({
                "what": "schedule", "namespace": schedule.namespace, "spec": ScheduleV1::from(&schedule.spec),
                "next_ms": schedule.next_wall_ms, "last_ms": schedule.last_wall_ms,
            })),
            JobChange::NoSchedule { namespace, name } => {
                Some(json!({"what": "no_schedule", "namespace": namespace, "name": name}))
            }
            // The sequence of the database counts tokens; its sweep removes queues.
            JobChange::TokenCeiling { .. } | JobChange::NoQueue { .. } => None,
        });
    }
    kept.extend(events.iter().map(|event| {
        json!({
            "what": "note_event", "namespace": event.namespace, "key": event.key, "fact": FactV1::from(event.data.clone()),
            "at_ms": event.at_ms,
        })
    }));
    Json(Value::Array(kept).to_string())
}

fn body_row(arrival: u64, id: JobId, body: &JobBody, terms: &JobOptions) -> Value {
    let extra = JobExtra {
        labels: body.labels.clone(),
        trace: body.trace.clone(),
        unique: body.unique.clone(),
        yield_within_ms: body.yield_within_ms,
        undo_of: body.undo_of.clone().map(Into::into),
    };
    json!({
        "what": "body", "arrival": arrival, "id": id, "namespace": body.namespace, "queue": body.queue,
        "priority": terms.priority, "enqueued_ms": body.enqueued_wall_ms, "kind": body.kind,
        "payload": body.payload, "terms": kept_terms(terms), "extra": extra.kept(),
    })
}

fn place_row(job: &StoredJob) -> Value {
    let record = &job.record;
    let claim = record.claim.as_ref().map(|claim| {
        let Claim { hash, owner, ttl_ms, since, cancel, yield_request: notice } = claim.as_ref();
        let asked = (cancel.is_some() || notice.is_some())
            .then(|| PendingSignals {
                cancel: cancel.as_deref().map(|cancel| cancel.clone().into()),
                notice: notice.as_deref().map(|notice| notice.clone().into()),
            });
        json!({
            "hash": Uuid128::from(*hash).text(), "owner": owner, "ttl_ms": ttl_ms, "since_ms": since.store_ms, "asked": asked,
        })
    });
    let due_ms = match record.due {
        Due::Now => None,
        Due::Store(at_ms) | Due::Wall(at_ms) => Some(at_ms),
    };
    let trail = record.trail.as_deref().map(|trail| TrailV1::from(trail.clone()));
    let ended = record.attempt_count().saturating_sub(u32::from(record.claim.is_some()));
    // A job that was never tried has no past; one that an operator took in hand has.
    let past = (record.token > Token::NONE || record.state.is_final() || record.notes != JobNotes::default()).then(|| {
        json!({
            "token": record.token, "failures": record.failure_count, "crashes": record.crash_count, "attempts": ended,
            "undo": undo_number(record.compensation_state), "since_ms": record.since_wall_ms, "trail": trail,
        })
    });
    let settled = matches!(record.compensation_state, CompensationState::None | CompensationState::Done);
    json!({
        "what": "place", "arrival": job.arrival, "id": job.id, "state": state_number(record.state),
        "token": record.token, "since_ms": record.since_wall_ms, "due_ms": due_ms, "deadline_ms": job.deadline_ms,
        "claim": claim, "past": past, "keeps": !(record.state.is_final() && settled),
    })
}

fn unique_row(unique: &StoredUnique, loaded: &[StoredUnique]) -> Value {
    let was = loaded
        .iter()
        .find(|loaded| loaded.namespace == unique.namespace && loaded.key == unique.key)
        .map(|loaded| loaded.job);
    json!({
        "what": "unique", "namespace": unique.namespace, "key": Uuid128(unique.key).text(), "job": unique.job,
        "payload": Uuid128(unique.payload).text(), "until_ms": unique.until_ms, "was": was,
    })
}
