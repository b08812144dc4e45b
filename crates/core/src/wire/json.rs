//! JSON of a caller's own making: a payload, a result, the value of an effect. It is text in memory and in a frame, and
//! stands in a JSON document as it is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The JSON form of a field of JSON text. Text that is no JSON after all travels as a JSON string.
pub struct AsJson;

impl AsJson {
    /// Writes JSON as it is.
    pub fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        // Validated only here, where it matters: nothing is copied on the way from a store to the wire.
        match serde_json::from_str::<&RawValue>(text) {
            Ok(json) => json.serialize(serializer),
            Err(_) => serializer.serialize_str(text),
        }
    }

    /// Reads JSON as it is.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Into::into)
    }
}

/// The same where there may be none. `null` is a value like any other: only a missing field is none.
pub struct AsOptionalJson;

impl AsOptionalJson {
    /// Writes JSON, if there is any.
    pub fn serialize<S: Serializer>(text: &Option<Box<str>>, serializer: S) -> Result<S::Ok, S::Error> {
        match text {
            Some(text) => AsJson::serialize(text, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a field that is there.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
        AsJson::deserialize(deserializer).map(Some)
    }
}

/// `null`, for a payload that is missing.
pub fn null() -> Box<str> {
    "null".into()
}

inline_schema!(AsJson, "Json", {});
#[cfg(feature = "schema")]
crate::schema_as! { AsOptionalJson = Option<AsJson> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_carried_as_it_is_and_other_text_as_a_string() {
        for (text, written) in [
            (r#"{"b": 1, "a":[1.0]}"#, r#"{"b": 1, "a":[1.0]}"#),
            (" null\n", "null"),
            ("not json", r#""not json""#),
            ("1 2", r#""1 2""#),
            ("", r#""""#),
        ] {
            let mut json = Vec::new();
            AsJson::serialize(text, &mut serde_json::Serializer::new(&mut json)).unwrap();
            assert_eq!(std::str::from_utf8(&json), Ok(written));
            let read = AsJson::deserialize(&mut serde_json::Deserializer::from_slice(&json)).unwrap();
            assert_eq!(&*read, written);
        }
    }
}
