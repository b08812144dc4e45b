//! The JSON form of an event: one flat line.

use std::borrow::Borrow;

use fencehold_core::wire::Moment;
use fencehold_core::{Event, Namespace};
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// One event: `{"seq":7,"at":"…","key":"gpu/3","type":"lease_acquired","token":33,…}`. Its namespace is that of the request
/// and is not repeated: one that was read is in the default one until its reader says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatEvent<E>(pub E);

/// The name of the one field of a fact that is a moment: as the rules have it, and in JSON.
const DUE: (&str, &str) = ("due_at_ms", "due_at");

impl<E: Borrow<Event>> Serialize for FlatEvent<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0.borrow();
        // A fact is written as its kind with its fields in it.
        let fact = serde_json::to_value(&event.data).map_err(serde::ser::Error::custom)?;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &event.seq)?;
        line.serialize_entry("at", &Moment { wall_ms: event.at_ms })?;
        line.serialize_entry("key", &event.key)?;
        for (kind, fields) in fact.as_object().into_iter().flatten() {
            line.serialize_entry("type", kind)?;
            for (name, value) in fields.as_object().into_iter().flatten() {
                if value.is_null() {
                    continue;
                }
                match value.as_u64() {
                    Some(wall_ms) if name == DUE.0 => line.serialize_entry(DUE.1, &Moment { wall_ms })?,
                    _ => line.serialize_entry(name, value)?,
                }
            }
        }
        line.end()
    }
}

impl<'de> Deserialize<'de> for FlatEvent<Event> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn taken<T: serde::de::DeserializeOwned, E: serde::de::Error>(
            line: &mut Map<String, Value>,
            name: &'static str,
        ) -> Result<T, E> {
            let value = line.remove(name).ok_or_else(|| E::missing_field(name))?;
            serde_json::from_value(value).map_err(E::custom)
        }

        let mut line = Map::deserialize(deserializer)?;
        let seq = taken(&mut line, "seq")?;
        let at: Moment = taken(&mut line, "at")?;
        let key = taken(&mut line, "key")?;
        let kind: String = taken(&mut line, "type")?;
        if line.contains_key(DUE.1) {
            let due: Moment = taken(&mut line, DUE.1)?;
            line.insert(DUE.0.to_owned(), due.wall_ms.into());
        }
        let fact = Value::Object(Map::from_iter([(kind, Value::Object(line))]));
        let fact = serde_json::from_value(fact).map_err(D::Error::custom)?;
        Ok(FlatEvent(Event::new(seq, at.wall_ms, Namespace::default(), key, fact)))
    }
}

/// The JSON form of a list of events.
pub(crate) struct AsEvents;

impl AsEvents {
    pub(crate) fn serialize<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(events.iter().map(FlatEvent))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
        let events = Vec::<FlatEvent<Event>>::deserialize(deserializer)?;
        Ok(events.into_iter().map(|FlatEvent(event)| event).collect())
    }
}

/// What an event says: the document adds what every event has beside it.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for FlatEvent<Event> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        fencehold_core::EventData::json_schema(generator)
    }
}

#[cfg(feature = "schema")]
fencehold_core::schema_as! { AsEvents = Vec<FlatEvent<Event>> }

#[cfg(test)]
mod tests {
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{EventData, Key, Owner, Token};

    use super::*;

    #[test]
    fn an_event_is_one_flat_line_and_reads_back() {
        let facts = [
            EventData::LeaseEnded {
                token: Token::new(33),
                owner: Owner::new("a").unwrap(),
                task: None,
                outcome: LeaseOutcome::Expired,
                by: None,
                reason: None,
            },
            EventData::ScheduleFired {
                schedule: fencehold_core::job::ScheduleName::new("nightly").unwrap(),
                due_at_ms: 1_794_626_583_120,
            },
        ];
        for fact in facts {
            let event = FlatEvent(Event::new(7, 5, Namespace::default(), Key::new("k").unwrap(), fact));
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains("wall_ms"), "times are moments: {line}");
            assert_eq!(serde_json::from_str::<FlatEvent<Event>>(&line).unwrap(), event, "{line}");
        }
    }
}
