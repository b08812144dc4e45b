//! The JSON forms of fields that JSON has no form of its own for. Frames carry such fields as they are.

mod result;

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fencehold_core::Key;
use fencehold_core::job::{JobId, QueueName};
use fencehold_core::limits::{BATCH_MAX, JOBS_PER_CALL_MAX};
use serde::de::value::StringDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::http::http_types;

#[cfg(feature = "schema")]
pub use result::ItemOf;
pub use result::{AsResults, ItemResult};

/// Names and values.
pub(crate) type Labels = Vec<(Box<str>, Box<str>)>;

/// Bytes, in base64.
pub struct AsBase64;

impl AsBase64 {
    /// Writes base64.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    /// Reads base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64
            .decode(text)
            .map_err(|error| D::Error::custom(format!("not base64: {error}")))
    }
}

/// Names and values: an object in JSON. It keeps the order in which they came, and what came twice, for the store to
/// judge.
pub struct AsLabels;

impl AsLabels {
    /// Writes an object.
    pub fn serialize<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(labels.len()))?;
        for (name, value) in labels {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }

    /// Reads an object.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
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
                Ok(labels)
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// The queues of a claim, each with its weight: objects in JSON.
pub struct AsWeighted;

/// A queue with its weight in a claim.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueWeight {
    /// Which queue.
    queue: QueueName,
    /// Its share among the others that have jobs.
    #[serde(default = "one::<u32>")]
    weight: u32,
}

impl AsWeighted {
    /// Writes a list of objects.
    pub fn serialize<S: Serializer>(queues: &[(QueueName, u32)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            queues
                .iter()
                .map(|(queue, weight)| QueueWeight { queue: queue.clone(), weight: *weight }),
        )
    }

    /// Reads a list of objects.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(QueueName, u32)>, D::Error> {
        let queues = Vec::<QueueWeight>::deserialize(deserializer)?;
        Ok(queues
            .into_iter()
            .map(|QueueWeight { queue, weight }| (queue, weight))
            .collect())
    }
}

/// The id of a job that is to be: missing or `null` where the server is to make one.
pub struct AsNewId;

impl AsNewId {
    /// Writes an id.
    pub fn serialize<S: Serializer>(id: &JobId, serializer: S) -> Result<S::Ok, S::Error> {
        id.serialize(serializer)
    }

    /// Reads an id, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JobId, D::Error> {
        match Option::<JobId>::deserialize(deserializer)? {
            // Taken for no id, a request that is sent again would make a second job.
            Some(id) if id.is_nil() => Err(D::Error::custom("the nil UUID is no id: give another, or none")),
            Some(id) => Ok(id),
            None => Ok(JobId::nil()),
        }
    }
}

/// The keys of an acquisition: `key`, or `any_of` several.
pub struct AsKeys;

http_types! {
    struct JsonKeys {
        /// The key to take.
        key: Option<Key> = None,
        /// Or several, of which to take the first that is free. Exactly one of `key` and `any_of` is given.
        #[schemars(length(min = 1, max = fencehold_core::limits::KEYS_PER_ACQUIRE_MAX))]
        any_of: Option<Vec<Key>> = None,
    }
}

impl AsKeys {
    /// Writes one key, or a list.
    pub fn serialize<S: Serializer>(keys: &[Key], serializer: S) -> Result<S::Ok, S::Error> {
        let json = match keys {
            [key] => JsonKeys { key: Some(key.clone()), any_of: None },
            keys => JsonKeys { key: None, any_of: Some(keys.to_vec()) },
        };
        json.serialize(serializer)
    }

    /// Reads exactly one of them.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Key>, D::Error> {
        match JsonKeys::deserialize(deserializer)? {
            JsonKeys { key: Some(key), any_of: None } => Ok(vec![key]),
            JsonKeys { key: None, any_of: Some(keys) } => Ok(keys),
            JsonKeys { key: None, any_of: None } => {
                Err(D::Error::custom("missing `key`, or `any_of` several"))
            }
            JsonKeys { .. } => Err(D::Error::custom("give `key` or `any_of`, not both")),
        }
    }
}

/// A cursor: a text that a caller passes back and does not look into.
pub struct AsCursor;

impl AsCursor {
    /// Writes a text.
    pub fn serialize<S: Serializer>(cursor: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(cursor)
    }

    /// Reads a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not a cursor")))
    }
}

/// A form that is a text, where there may be none.
macro_rules! optional {
    ($($Optional:ident: $value:ty as $Form:ident;)*) => {$(
        /// The same where there may be none.
        pub struct $Optional;

        impl $Optional {
            /// Writes a text, if there is one.
            pub fn serialize<S: Serializer>(value: &Option<$value>, serializer: S) -> Result<S::Ok, S::Error> {
                match value {
                    Some(value) => $Form::serialize(value, serializer),
                    None => serializer.serialize_none(),
                }
            }

            /// Reads a text, if there is one.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$value>, D::Error> {
                let text = Option::<String>::deserialize(deserializer)?;
                text.map(|text| $Form::deserialize(StringDeserializer::new(text))).transpose()
            }
        }
    )*};
}

optional! {
    AsOptionalBase64: Vec<u8> as AsBase64;
    AsOptionalCursor: u64 as AsCursor;
}

/// How many rows a page has unless the request says otherwise.
pub(crate) const fn page() -> usize {
    100
}

pub(crate) fn one<T: From<u8>>() -> T {
    T::from(1)
}

pub(crate) fn utc() -> String {
    "UTC".to_owned()
}

pub(crate) const fn advance_by() -> u64 {
    fencehold_core::limits::ADVANCE_BY
}

/// Whether a value need not travel: it is the one that counts where nothing is said.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use fencehold_core::limits::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX};
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use fencehold_core::job::JobId;

    use super::{
        AsBase64, AsCursor, AsKeys, AsLabels, AsNewId, AsOptionalBase64, AsOptionalCursor, AsWeighted,
        QueueWeight,
    };

    macro_rules! schema {
        ($($form:ident $name:literal = $schema:tt)*) => {
            $(impl JsonSchema for $form {
                fn schema_name() -> Cow<'static, str> {
                    $name.into()
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
        AsBase64 "Bytes" = { "type": "string", "contentEncoding": "base64", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$" }
        AsLabels "Labels" = {
            "type": "object",
            "maxProperties": LABELS_MAX,
            "propertyNames": { "minLength": 1, "maxLength": LABEL_NAME_BYTES_MAX },
            "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_BYTES_MAX }
        }
        AsCursor "Cursor" = { "type": "string", "pattern": "^[0-9]{1,20}$" }
    }

    fencehold_core::schema_as! { AsKeys = super::JsonKeys, AsOptionalCursor = Option<AsCursor>, AsNewId = Option<JobId>, AsOptionalBase64 = Option<AsBase64>, AsWeighted = Vec<QueueWeight> }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::JobOptions;

    use super::*;

    /// Terms that are left out mean these, to every program that ever spoke to a server: they can never change.
    #[test]
    fn the_usual_terms_are_what_they_have_always_been() {
        let usual = serde_json::to_value(JobOptions::default()).unwrap();
        let retry = serde_json::json!({
            "backoff": "exponential", "base_delay_ms": 1_000, "max_delay_ms": 3_600_000, "jitter_percent": 20
        });
        let always =
            serde_json::json!({ "priority": 0, "max_failures": 10, "max_crashes": 5, "retry": retry });
        assert_eq!(usual, always);
        assert!(is_default(&JobOptions::default()));
        assert!(!is_default(&JobOptions { priority: 1, ..JobOptions::default() }));
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
        let text = r#"{"b":"1","a":"2","b":"3"}"#;
        let labels = AsLabels::deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap();
        let names: Vec<&str> = labels.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["b", "a", "b"]);
        let mut written = Vec::new();
        AsLabels::serialize(&labels, &mut serde_json::Serializer::new(&mut written)).unwrap();
        assert_eq!(std::str::from_utf8(&written), Ok(text));
    }
}
