//! What happened: one flat line an event.

use fencehold_core::{Fact, Key};
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::lease::page;
use crate::{Moment, wire};

wire! {
    /// Which events to read.
    #[serde(deny_unknown_fields)]
    pub struct EventsRequest {
        /// Those after this one; missing: from the oldest that is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<u64>,
        /// Only of keys that start with this text; a job's is `job/ID`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prefix: Option<String>,
        /// At most this many.
        #[serde(default = "page")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX)))]
        pub limit: usize,
        /// How long to wait for the first one; more than an hour counts as that.
        #[serde(default)]
        pub wait_ms: u64,
    }

    /// Another caller acted on a hold: its holder renews to learn what happened.
    pub struct HoldChange {
        /// Which key; a job's is `job/ID`. Missing: changes may have been missed, of any hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<Key>,
    }

    /// One page of events.
    pub struct EventPage {
        /// The events, oldest first.
        pub events: Vec<Event>,
        /// The cursor to go on from.
        pub next: u64,
    }
}

/// One event: `{"seq":7,"at":"…","key":"gpu/3","event":"lease_acquired","token":33,…}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number, and the cursor for watching.
    pub seq: u64,
    /// When.
    pub at: Moment,
    /// Which key.
    pub key: Key,
    /// What happened.
    pub fact: Fact,
}

/// The name of the one field of a fact that is a moment: as the rules have it, and on the wire.
const DUE: (&str, &str) = ("due_wall_ms", "due");

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A fact is written as its kind with its fields in it, which suits the stores' own records.
        let fact = serde_json::to_value(&self.fact).map_err(serde::ser::Error::custom)?;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &self.seq)?;
        line.serialize_entry("at", &self.at)?;
        line.serialize_entry("key", &self.key)?;
        for (kind, fields) in fact.as_object().into_iter().flatten() {
            line.serialize_entry("event", kind)?;
            for (name, value) in fields.as_object().into_iter().flatten() {
                match value.as_u64() {
                    Some(wall_ms) if name == DUE.0 => line.serialize_entry(DUE.1, &Moment { wall_ms })?,
                    _ => line.serialize_entry(name, value)?,
                }
            }
        }
        line.end()
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn taken<T: serde::de::DeserializeOwned, E: serde::de::Error>(
            line: &mut Map<String, Value>,
            name: &'static str,
        ) -> Result<T, E> {
            let value = line.remove(name).ok_or_else(|| E::missing_field(name))?;
            serde_json::from_value(value).map_err(E::custom)
        }

        let mut line = Map::deserialize(deserializer)?;
        let (seq, at, key) = (taken(&mut line, "seq")?, taken(&mut line, "at")?, taken(&mut line, "key")?);
        let kind: String = taken(&mut line, "event")?;
        if line.contains_key(DUE.1) {
            let due: Moment = taken(&mut line, DUE.1)?;
            line.insert(DUE.0.to_owned(), due.wall_ms.into());
        }
        let fact = Value::Object(Map::from_iter([(kind, Value::Object(line))]));
        let fact = serde_json::from_value(fact).map_err(D::Error::custom)?;
        Ok(Event { seq, at, key, fact })
    }
}

#[cfg(feature = "document")]
impl schemars::JsonSchema for Event {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let key = generator.subschema_for::<Key>();
        let at = generator.subschema_for::<Moment>();
        schemars::json_schema!({
            "description": "One event; what else it has depends on its kind.",
            "type": "object",
            "properties": {
                "seq": { "type": "integer", "minimum": 0, "description": "Its number, and the cursor for watching." },
                "at": at,
                "key": key,
                "event": { "type": "string", "description": "Its kind, such as lease_acquired." },
            },
            "required": ["seq", "at", "key", "event"],
            "additionalProperties": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::lease::How;
    use fencehold_core::{Owner, Token};

    use super::*;

    #[test]
    fn an_event_is_one_flat_line_and_reads_back() {
        let facts = [
            Fact::LeaseEnded {
                token: Token::new(33),
                owner: Owner::new("a").unwrap(),
                task: None,
                how: How::Expired,
                by: None,
                reason: None,
            },
            Fact::ScheduleFired {
                schedule: fencehold_core::job::ScheduleName::new("nightly").unwrap(),
                due_wall_ms: 1_794_626_583_120,
            },
        ];
        for fact in facts {
            let event = Event { seq: 7, at: Moment { wall_ms: 5 }, key: Key::new("k").unwrap(), fact };
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains("wall_ms"), "times are moments: {line}");
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
        }
    }
}
