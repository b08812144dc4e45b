//! Values that JSON has no form of its own for: moments, bytes, and JSON within JSON.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fencehold_core::limits::{BATCH_MAX, JOBS_PER_CALL_MAX};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A moment in wall time. RFC 3339, to the millisecond: `2026-11-15T09:20:00.125Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A broken clock is no reason to fail: beyond the year 9999 it is the last moment there is.
        let since = SignedDuration::from_millis(i64::try_from(self.wall_ms).unwrap_or(i64::MAX));
        let shown = EPOCH.checked_add(since).unwrap_or(DateTime::MAX);
        write!(f, "{}T{}.{:03}Z", shown.date(), shown.strftime("%H:%M:%S"), shown.millisecond())
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wall_ms = match text.parse::<Timestamp>() {
            Ok(moment) => moment.as_millisecond(),
            Err(error) => {
                // The last hours of the year 9999 are moments of the calendar that a `Timestamp` does not reach.
                let civil = text.strip_suffix('Z').and_then(|text| text.parse::<DateTime>().ok());
                let civil = civil.ok_or_else(|| format!("{error}; it looks like 2026-11-15T09:20:00Z"))?;
                i64::try_from(EPOCH.duration_until(civil).as_millis()).unwrap_or(i64::MAX)
            }
        };
        let wall_ms = u64::try_from(wall_ms).map_err(|_| "is before 1970".to_owned())?;
        Ok(Moment { wall_ms })
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|problem| D::Error::custom(format!("not a moment: {problem}")))
    }
}

/// JSON of somebody else's making, carried as it is: a payload, a result, the value of an effect. Text that is no JSON
/// after all travels as a JSON string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(pub Box<str>);

impl Json {
    /// `null`, for when there is nothing better to say.
    pub fn null() -> Self {
        Json("null".into())
    }

    /// Reads a field that is there: `null` is a value like any other, and only a missing field is none.
    pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Json::deserialize(deserializer).map(Some)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Looked at only here, where it matters: nothing is copied on the way from a store to the wire.
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(json) => json.serialize(serializer),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|json| Json(json.into()))
    }
}

/// Bytes, in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64
            .decode(text)
            .map(Bytes)
            .map_err(|error| D::Error::custom(format!("not base64: {error}")))
    }
}

/// Names and values: an object in JSON. It keeps the order in which they came, and what came twice, for the store to
/// judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub Vec<(Box<str>, Box<str>)>);

impl Labels {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    labels.push(entry);
                }
                Ok(Labels(labels))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// The most items of one call, of whatever kind.
const ITEMS_MAX: usize = if BATCH_MAX > JOBS_PER_CALL_MAX { BATCH_MAX } else { JOBS_PER_CALL_MAX };

/// Reads the items of one call, and no more than one call may have: a short text can name millions, each far larger in
/// memory than on the wire.
pub(crate) fn items<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {ITEMS_MAX}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element()? {
                if items.len() == ITEMS_MAX {
                    return Err(A::Error::custom(format!(
                        "more than {ITEMS_MAX} in one call: send less at a time"
                    )));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(Items(PhantomData))
}

/// Reads a document that is an object. What has no field that must be there would else be read from a list, too.
pub(crate) fn from_object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let fields = serde_json::Map::deserialize(deserializer)?;
    T::deserialize(serde_json::Value::Object(fields)).map_err(D::Error::custom)
}

/// The same where there may be none.
pub(crate) fn from_object_if_any<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    let read = |fields| T::deserialize(serde_json::Value::Object(fields)).map_err(D::Error::custom);
    fields.map(read).transpose()
}

#[cfg(feature = "document")]
mod schema {
    use std::borrow::Cow;

    use fencehold_core::limits::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX};
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    macro_rules! schema {
        ($($name:ident = $schema:tt)*) => {
            $(impl JsonSchema for super::$name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn inline_schema() -> bool {
                    true
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            })*
        };
    }

    schema! {
        Moment = { "type": "string", "format": "date-time" }
        Json = {}
        Bytes = { "type": "string", "contentEncoding": "base64", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$" }
        Labels = {
            "type": "object",
            "maxProperties": LABELS_MAX,
            "propertyNames": { "minLength": 1, "maxLength": LABEL_NAME_BYTES_MAX },
            "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_BYTES_MAX }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_it_is_written() {
        for (wall_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_794_626_583_120, "2026-11-14T03:23:03.120Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            let moment = Moment { wall_ms };
            assert_eq!(moment.to_string(), text);
            assert_eq!(text.parse(), Ok(moment));
        }
        assert_eq!("1970-01-01T02:00:00+02:00".parse(), Ok(Moment { wall_ms: 0 }));
        assert!(Moment { wall_ms: u64::MAX }.to_string().starts_with("9999-12-31"));
        for bad in ["", "now", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_is_carried_as_it_is_and_other_text_as_a_string() {
        for (text, written) in [
            (r#"{"b": 1, "a":[1.0]}"#, r#"{"b": 1, "a":[1.0]}"#),
            (" null\n", "null"),
            ("not json", r#""not json""#),
            ("1 2", r#""1 2""#),
            ("", r#""""#),
        ] {
            let json = serde_json::to_string(&Json(text.into())).unwrap();
            assert_eq!(json, written);
            assert_eq!(serde_json::from_str::<Json>(&json).unwrap(), Json(written.into()));
        }
    }

    #[test]
    fn a_call_has_so_many_items_and_no_more() {
        let read = |many: usize| {
            let text = format!("[{}]", vec!["1"; many].join(","));
            items::<_, u8>(&mut serde_json::Deserializer::from_str(&text)).map(|items| items.len())
        };
        assert_eq!((read(0).unwrap(), read(ITEMS_MAX).unwrap()), (0, ITEMS_MAX));
        assert!(read(ITEMS_MAX + 1).unwrap_err().to_string().contains("send less at a time"));
    }

    #[test]
    fn labels_keep_their_order_and_what_came_twice() {
        let labels: Labels = serde_json::from_str(r#"{"b":"1","a":"2","b":"3"}"#).unwrap();
        let names: Vec<&str> = labels.0.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["b", "a", "b"]);
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"b":"1","a":"2","b":"3"}"#);
    }
}
