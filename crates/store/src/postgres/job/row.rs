//! Jobs as they travel to the database and back: what is loaded as JSON, what is kept as JSON, and 128 bits as a `uuid`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fencehold_core::job::{
    Attempt, Cancel, Claim, Due, Ended, JobId, Kind, Notes, Queue, Record, State, Terms, Trail, Undo,
    UniqueKey,
};
use fencehold_core::lease::Notice;
use fencehold_core::ledger::{Effect, EffectState};
use fencehold_core::limits::TRAIL_MAX;
use fencehold_core::{Event, HoldHash, Namespace, Owner, Stamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::engine::{About, Body, Brought, BroughtJob, JobChange, KeptJob, KeptSchedule, KeptUnique, Note};
use crate::job::{QueueMode, ScheduleSpec, UndoOf};

/// 128 bits, as a `uuid` of the database: a job's id, a hash, a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bits(pub(super) [u8; 16]);

impl From<JobId> for Bits {
    fn from(id: JobId) -> Self {
        Bits(*id.as_bytes())
    }
}

impl From<HoldHash> for Bits {
    fn from(hash: HoldHash) -> Self {
        Bits(*hash.as_bytes())
    }
}

impl Bits {
    /// As the database writes it.
    pub(super) fn text(self) -> String {
        JobId::from_bytes(self.0).to_string()
    }
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Bits(raw.try_into()?))
    }

    accepts!(UUID);
}

impl ToSql for Bits {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

/// JSON as text, as a `jsonb` of the database.
#[derive(Clone, Debug)]
pub(super) struct Json(pub(super) String);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        match raw.split_first() {
            Some((1, text)) => Ok(Json(std::str::from_utf8(text)?.to_owned())),
            _ => Err("jsonb of an unknown version".into()),
        }
    }

    accepts!(JSONB);
}

impl ToSql for Json {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSONB);
    to_sql_checked!();
}

/// A number for the database, where no larger one can be meant.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What a job has beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extra {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unique: Option<UniqueKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) yield_within_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo_of: Option<UndoOf>,
}

impl Extra {
    /// As it is kept; `None`: there is nothing to keep.
    pub(super) fn kept(&self) -> Option<Json> {
        (*self != Extra::default())
            .then(|| serde_json::to_string(self).ok().map(Json))
            .flatten()
    }
}

/// The terms as they are kept beside the lane, which has the priority; `None`: the usual ones.
pub(super) fn kept_terms(terms: &Terms) -> Option<Json> {
    let usual = Terms { priority: terms.priority, ..Terms::default() };
    (*terms != usual).then(|| serde_json::to_string(terms).ok().map(Json)).flatten()
}

/// The terms of a job of this priority.
pub(super) fn terms_of(kept: Option<Terms>, priority: i16) -> Terms {
    Terms { priority, ..kept.unwrap_or_default() }
}

/// The row that comes before the jobs.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    pub(super) now_ms: u64,
    pub(super) newest: u64,
    pub(super) closed_ms: u64,
    pub(super) queues: Option<Vec<QueueRow>>,
    pub(super) uniques: Option<Vec<UniqueRow>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueRow {
    pub(super) namespace: Namespace,
    pub(super) name: Queue,
    pub(super) mode: u8,
}

#[derive(Debug, Deserialize)]
pub(super) struct UniqueRow {
    key: JobId,
    job: JobId,
    payload: JobId,
    until_ms: u64,
}

impl UniqueRow {
    pub(super) fn kept(&self, namespace: &Namespace) -> KeptUnique {
        KeptUnique {
            namespace: namespace.clone(),
            key: *self.key.as_bytes(),
            job: self.job,
            payload: *self.payload.as_bytes(),
            until_wall_ms: self.until_ms,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ScheduleRow {
    pub(super) namespace: Namespace,
    pub(super) spec: ScheduleSpec,
    pub(super) next_ms: Option<u64>,
    pub(super) last_ms: Option<u64>,
}

impl ScheduleRow {
    pub(super) fn kept(self) -> KeptSchedule {
        let ScheduleRow { namespace, spec, next_ms, last_ms } = self;
        KeptSchedule { namespace, spec, next_wall_ms: next_ms, last_wall_ms: last_ms }
    }
}

/// A job as it is loaded.
#[derive(Debug, Deserialize)]
pub(super) struct JobRow {
    arrival: u64,
    pub(super) id: JobId,
    pub(super) namespace: Namespace,
    pub(super) queue: Queue,
    pub(super) mode: u8,
    priority: i16,
    kind: Kind,
    payload: Box<str>,
    enqueued_ms: u64,
    terms: Option<Terms>,
    extra: Option<Extra>,
    state: u8,
    due_ms: Option<u64>,
    token: Token,
    since_ms: u64,
    deadline_ms: Option<u64>,
    claim: Option<ClaimRow>,
    last: Option<LastRow>,
    failures: u16,
    crashes: u16,
    undo: u8,
    trail: Option<Trail>,
    has_result: bool,
    result: Option<Box<str>>,
    notes: Option<HashMap<u8, Option<String>>>,
    effects: Option<Vec<Effect>>,
    victim: Option<JobId>,
}

#[derive(Debug, Deserialize)]
struct ClaimRow {
    hash: JobId,
    owner: Owner,
    ttl_ms: u64,
    since_ms: u64,
    asked: Option<Asked>,
}

/// The attempt that completed a job in one step.
#[derive(Debug, Deserialize)]
struct LastRow {
    token: Token,
    hash: JobId,
    owner: Owner,
    began_ms: u64,
    ended_ms: u64,
    late: bool,
}

/// What is asked of the holder of a claim.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<Box<Cancel>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notice: Option<Box<Notice>>,
}

const UNDO: [Undo; 4] = [Undo::Nothing, Undo::UnderWay, Undo::Done, Undo::Stopped];

impl JobRow {
    pub(super) fn brought(self) -> BroughtJob {
        let extra = self.extra.unwrap_or_default();
        let effects = self.effects.unwrap_or_default();
        let kept_notes = self.notes.unwrap_or_default();
        let trail = with_last(self.trail, self.last);
        let claim = self.claim.map(|claim| {
            let (cancel, notice) = claim.asked.map_or((None, None), |asked| (asked.cancel, asked.notice));
            let hash = HoldHash::from_bytes(*claim.hash.as_bytes());
            let since = stamp(claim.since_ms);
            Box::new(Claim { hash, owner: claim.owner, ttl_ms: claim.ttl_ms, since, cancel, notice })
        });
        let record = Record {
            state: state_of(self.state),
            due: self.due_ms.map_or(Due::Now, Due::Store),
            token: self.token,
            failures: self.failures,
            crashes: self.crashes,
            terms: terms_of(self.terms, self.priority),
            undo: UNDO.get(usize::from(self.undo)).copied().unwrap_or_default(),
            notes: Notes {
                checkpoint: kept_notes.contains_key(&0),
                progress: kept_notes.contains_key(&1),
                result: self.has_result,
                effects: u16::try_from(effects.len()).unwrap_or(u16::MAX),
            },
            since_wall_ms: self.since_ms,
            claim,
            trail,
        };
        let about = About {
            bytes: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            yield_within_ms: u32::try_from(extra.yield_within_ms.unwrap_or(0)).unwrap_or(u32::MAX),
            undoes: extra.undo_of.is_some(),
        };
        let note = |what: Note, hex: Option<String>| hex.map(|hex| (what, Arc::from(bytes_of(&hex))));
        let mut notes: Vec<(Note, Arc<[u8]>)> = Vec::new();
        for (what, hex) in kept_notes {
            notes.extend(note(if what == 0 { Note::Checkpoint } else { Note::Progress }, hex));
        }
        notes.extend(self.result.map(|text| (Note::Result, Arc::from(text.into_boxed_bytes()))));
        let body = Body {
            namespace: self.namespace,
            queue: self.queue,
            kind: self.kind,
            payload: self.payload,
            labels: extra.labels,
            trace: extra.trace,
            unique: extra.unique,
            yield_within_ms: extra.yield_within_ms,
            enqueued_wall_ms: self.enqueued_ms,
            undo_of: extra.undo_of,
        };
        let kept = KeptJob {
            arrival: self.arrival,
            id: self.id,
            queue: 0,
            record,
            deadline_ms: self.deadline_ms.unwrap_or(0),
            about,
            reopened: false,
            renewed: false,
        };
        BroughtJob { kept, body: Arc::new(body), notes, effects, victim: self.victim }
    }
}

/// The attempts that ended, with the one that is noted apart.
fn with_last(trail: Option<Trail>, last: Option<LastRow>) -> Option<Box<Trail>> {
    let Some(last) = last else { return trail.map(Box::new) };
    let mut trail = trail.unwrap_or_default();
    while trail.attempts.len() >= TRAIL_MAX {
        trail.attempts.remove(0);
        trail.forgotten = trail.forgotten.saturating_add(1);
    }
    trail.attempts.push(Attempt {
        token: last.token,
        hash: HoldHash::from_bytes(*last.hash.as_bytes()),
        owner: last.owner,
        since: stamp(last.began_ms),
        ended: stamp(last.ended_ms),
        how: if last.late { Ended::CompletedLate } else { Ended::Completed },
        error: None,
    });
    Some(Box::new(trail))
}

/// Store time here is wall time.
pub(super) fn stamp(ms: u64) -> Stamp {
    Stamp { store_ms: ms, wall_ms: ms }
}

fn state_of(tag: u8) -> State {
    State::ALL.get(usize::from(tag)).copied().unwrap_or(State::Indeterminate)
}

fn tag_of(state: State) -> usize {
    State::ALL.iter().position(|other| *other == state).unwrap_or(7)
}

pub(super) fn mode_of(tag: u8) -> QueueMode {
    match tag {
        1 => QueueMode::Paused,
        2 => QueueMode::Draining,
        _ => QueueMode::Open,
    }
}

fn mode_tag(mode: QueueMode) -> u8 {
    match mode {
        QueueMode::Open => 0,
        QueueMode::Paused => 1,
        QueueMode::Draining => 2,
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
            .unwrap_or(0)
    };
    hex.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn hex_of(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What a decision was made on, as far as others may have changed it since.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) uniques: Vec<KeptUnique>,
    /// How effects stood, by the place of their job and by name.
    pub(super) effects: HashMap<(u64, String), EffectState>,
    /// Whether it was decided what a queue does. Whatever else puts jobs into queues must not set one back that it never
    /// looked at.
    pub(super) sets_queue: bool,
}

impl Loaded {
    pub(super) fn of(brought: &Brought, sets_queue: bool) -> Self {
        let effects = brought.jobs.iter().flat_map(|job| {
            let arrival = job.kept.arrival;
            job.effects
                .iter()
                .map(move |effect| ((arrival, effect.name.to_string()), effect.state))
        });
        Loaded { uniques: brought.uniques.clone(), effects: effects.collect(), sets_queue }
    }
}

/// All that was decided, for the database to keep. `loaded` is what it was decided on.
pub(super) fn changes_to_keep(changes: &[JobChange], events: &[Event], loaded: &Loaded) -> Json {
    // What changed about one job more than once is kept as it stands in the end, at the first of its places; its body first.
    let mut last: HashMap<u64, &KeptJob> = HashMap::new();
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
            change["was"] = json!(was);
        }
        change
    };
    let mut kept: Vec<Value> = Vec::with_capacity(changes.len() + events.len());
    for change in changes {
        kept.extend(match change {
            JobChange::Body { arrival, id, body } => {
                last.get(arrival).map(|job| body_row(*arrival, *id, body, &job.record.terms))
            }
            JobChange::Live(job) | JobChange::Finished(job) => last.remove(&job.arrival).map(place_row),
            JobChange::Term { arrival, token, deadline_ms } => Some(
                json!({"what": "term", "arrival": arrival, "token": token, "deadline_ms": deadline_ms}),
            ),
            JobChange::Drop { arrival } => Some(json!({"what": "drop", "arrival": arrival})),
            JobChange::Note { arrival, what: Note::Result, bytes } => std::str::from_utf8(bytes)
                .ok()
                .map(|text| json!({"what": "result", "arrival": arrival, "text": text})),
            JobChange::Note { arrival, what, bytes } => Some(json!({
                "what": "note", "arrival": arrival, "note": u8::from(*what == Note::Progress), "hex": hex_of(bytes),
            })),
            JobChange::Effect { arrival, effect } => {
                let change = json!({"what": "effect", "arrival": arrival, "effect": effect});
                Some(with_was(*arrival, effect.name.to_string(), change))
            }
            JobChange::NoEffect { arrival, effect } => {
                let change = json!({"what": "no_effect", "arrival": arrival, "name": effect});
                Some(with_was(*arrival, effect.to_string(), change))
            }
            JobChange::Unique(unique) => Some(unique_row(unique, &loaded.uniques)),
            JobChange::NoUnique { namespace, key } => {
                Some(json!({"what": "no_unique", "namespace": namespace, "key": Bits(*key).text()}))
            }
            JobChange::Queue(queue) => loaded.sets_queue.then(|| {
                json!({
                    "what": "queue", "namespace": queue.namespace, "name": queue.name, "mode": mode_tag(queue.mode),
                })
            }),
            JobChange::Schedule(schedule) => Some(json!({
                "what": "schedule", "namespace": schedule.namespace, "spec": schedule.spec,
                "next_ms": schedule.next_wall_ms, "last_ms": schedule.last_wall_ms,
            })),
            JobChange::NoSchedule { namespace, name } => {
                Some(json!({"what": "no_schedule", "namespace": namespace, "name": name}))
            }
            // The sequence of the database counts tokens.
            JobChange::TokenCeiling { .. } => None,
        });
    }
    kept.extend(events.iter().map(|event| {
        json!({
            "what": "note_event", "namespace": event.namespace, "key": event.key, "fact": event.fact,
            "at_ms": event.at_wall_ms,
        })
    }));
    Json(Value::Array(kept).to_string())
}

fn body_row(arrival: u64, id: JobId, body: &Body, terms: &Terms) -> Value {
    let extra = Extra {
        labels: body.labels.clone(),
        trace: body.trace.clone(),
        unique: body.unique.clone(),
        yield_within_ms: body.yield_within_ms,
        undo_of: body.undo_of.clone(),
    };
    let extra = (extra != Extra::default()).then_some(extra);
    let usual = Terms { priority: terms.priority, ..Terms::default() };
    json!({
        "what": "body", "arrival": arrival, "id": id, "namespace": body.namespace, "queue": body.queue,
        "priority": terms.priority, "enqueued_ms": body.enqueued_wall_ms, "kind": body.kind,
        "payload": body.payload, "terms": (*terms != usual).then_some(terms), "extra": extra,
    })
}

fn place_row(job: &KeptJob) -> Value {
    let record = &job.record;
    let claim = record.claim.as_ref().map(|claim| {
        let Claim { hash, owner, ttl_ms, since, cancel, notice } = claim.as_ref();
        let asked = (cancel.is_some() || notice.is_some())
            .then(|| Asked { cancel: cancel.clone(), notice: notice.clone() });
        json!({
            "hash": Bits::from(*hash).text(), "owner": owner, "ttl_ms": ttl_ms, "since_ms": since.store_ms, "asked": asked,
        })
    });
    let due_ms = match record.due {
        Due::Now => None,
        Due::Store(at_ms) | Due::Wall(at_ms) => Some(at_ms),
    };
    let undo = UNDO.iter().position(|undo| *undo == record.undo).unwrap_or(0);
    let ended = record.attempt_count().saturating_sub(u32::from(record.claim.is_some()));
    // A job that was never tried has no past; one that an operator took in hand has.
    let past = (record.token > Token::NONE || record.state.is_final() || record.notes != Notes::default()).then(|| {
        json!({
            "token": record.token, "failures": record.failures, "crashes": record.crashes, "attempts": ended,
            "undo": undo, "since_ms": record.since_wall_ms, "trail": record.trail,
        })
    });
    let settled = matches!(record.undo, Undo::Nothing | Undo::Done);
    json!({
        "what": "place", "arrival": job.arrival, "id": job.id, "state": tag_of(record.state),
        "token": record.token, "since_ms": record.since_wall_ms, "due_ms": due_ms, "deadline_ms": job.deadline_ms,
        "claim": claim, "past": past, "keeps": !(record.state.is_final() && settled),
    })
}

fn unique_row(unique: &KeptUnique, loaded: &[KeptUnique]) -> Value {
    let was = loaded
        .iter()
        .find(|loaded| loaded.namespace == unique.namespace && loaded.key == unique.key)
        .map(|loaded| loaded.job);
    json!({
        "what": "unique", "namespace": unique.namespace, "key": Bits(unique.key).text(), "job": unique.job,
        "payload": Bits(unique.payload).text(), "until_ms": unique.until_wall_ms, "was": was,
    })
}
