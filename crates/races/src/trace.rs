//! What happened, in the order in which it happened: JSON lines for programs, columns for people.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

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
    not_arranged: OnceLock<String>,
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
        self.add(actor, says.into(), Some(TraceEvent { name, fields }));
    }

    /// The store does not accept something that the schedule needs. What follows from there is no fault of the store's.
    pub(crate) fn cannot_arrange(&self, why: &impl fmt::Display) {
        self.not_arranged.get_or_init(|| why.to_string());
    }

    pub(crate) fn why_not_arranged(&self) -> Option<&str> {
        self.not_arranged.get().map(String::as_str)
    }

    fn add(&self, actor: &str, says: String, event: Option<TraceEvent>) {
        let entry = TraceEntry { actor: actor.to_owned(), says, event };
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(crate) fn entries(&self) -> Vec<TraceEntry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
