//! What happened, in the order in which it happened: JSON lines for programs, columns for people.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use fencehold_contract::clock::{Clock as _, SystemClock};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TraceEntry {
    /// Who did it, or to whom it happened.
    pub actor: String,
    /// In a few words.
    pub says: String,
    /// As data; `None`: a step of the schedule that only the picture shows.
    pub event: Option<TraceEvent>,
}

/// One line of the trace. Its fields stay in the order in which they were named.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    name: &'static str,
    fields: Vec<(&'static str, Value)>,
}

impl Serialize for TraceEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 1))?;
        map.serialize_entry("event", self.name)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The fields of an event, in order.
macro_rules! fields {
    ($($name:ident: $value:expr),* $(,)?) => {
        vec![$((stringify!($name), serde_json::json!($value))),*]
    };
}
pub(crate) use fields;

/// The story so far.
#[derive(Default)]
pub(crate) struct Trace {
    entries: Mutex<Vec<TraceEntry>>,
    /// What the store does not accept.
    pub(crate) not_arranged: OnceLock<String>,
    /// When the last term of a lease or a claim began, or may have; 0: it has run out.
    pub(crate) term_began_ms: AtomicU64,
}

impl Trace {
    /// A step of the schedule.
    pub(crate) fn note(&self, actor: &str, says: impl Into<String>) {
        self.add(actor, says.into(), None);
    }

    /// Something that happened, with its event.
    pub(crate) fn event(
        &self,
        actor: &str,
        says: impl Into<String>,
        name: &'static str,
        fields: Vec<(&'static str, Value)>,
    ) {
        match name {
            "lease_acquired" | "lease_resumed" | "lease_renewed" | "answer_lost" => {
                self.term_began_ms.store(SystemClock.now().store_ms, Ordering::Relaxed);
            }
            "lease_expired" => self.term_began_ms.store(0, Ordering::Relaxed),
            _ => {}
        }
        self.add(actor, says.into(), Some(TraceEvent { name, fields }));
    }

    /// The store does not accept something that the schedule needs. What follows from there is no fault of the store's.
    pub(crate) fn cannot_arrange(&self, why: &impl fmt::Display) {
        self.not_arranged.get_or_init(|| why.to_string());
    }

    /// How long ago a lease or a claim was last granted or renewed, in real time; 0: none is live.
    pub(crate) fn term_age_ms(&self) -> u64 {
        let began_ms = self.term_began_ms.load(Ordering::Relaxed);
        if began_ms == 0 { 0 } else { SystemClock.now().store_ms.saturating_sub(began_ms) }
    }

    fn add(&self, actor: &str, says: String, event: Option<TraceEvent>) {
        let entry = TraceEntry { actor: actor.to_owned(), says, event };
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(crate) fn entries(&self) -> Vec<TraceEntry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
