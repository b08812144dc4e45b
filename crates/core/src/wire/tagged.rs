//! The JSON form of a union: an object with its `type` and the fields of that variant, `{"type":"snooze","delay_ms":5000}`.
//!
//! serde's own `tag` reads the whole object into values of its own first, so a payload would no longer stand as it was written.
//! Here the text is looked through once for its type, and then read as that variant.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;

/// The field that names the variant.
const TYPE: &str = "type";

/// An object that is read as the variant that its `type` names.
pub struct Tagged {
    kind: String,
    object: Box<RawValue>,
}

impl Tagged {
    /// Finds the type of an object.
    pub fn of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Type {
            r#type: String,
        }

        let object = Box::<RawValue>::deserialize(deserializer)?;
        if !object.get().starts_with('{') {
            return Err(D::Error::custom("expected an object with a `type`"));
        }
        let Type { r#type: kind } = serde_json::from_str(object.get()).map_err(D::Error::custom)?;
        Ok(Tagged { kind, object })
    }
}

impl<'de> Deserializer<'de> for &'de Tagged {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for &'de Tagged {
    type Error = serde_json::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Self::Error> {
        let kind = StrDeserializer::<serde_json::Error>::new(&self.kind);
        Ok((seed.deserialize(kind)?, self))
    }
}

impl<'de> VariantAccess<'de> for &'de Tagged {
    type Error = serde_json::Error;

    fn unit_variant(self) -> Result<(), Self::Error> {
        Err(serde_json::Error::custom("a variant without a body"))
    }

    /// That is how a variant with a flattened field is read.
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Self::Error> {
        seed.deserialize(Fields(&self.object))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Self::Error> {
        Err(serde_json::Error::custom("a variant without names"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        Fields(&self.object).deserialize_any(visitor)
    }
}

/// The fields of an object but its `type`.
struct Fields<'de>(&'de RawValue);

impl<'de> Deserializer<'de> for Fields<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        serde_json::Deserializer::from_str(self.0.get()).deserialize_map(WithoutType(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Reads an object as if it had no `type`.
struct WithoutType<T>(T);

impl<'de, V: Visitor<'de>> Visitor<'de> for WithoutType<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(WithoutType(map))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutType<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<std::borrow::Cow<'de, str>>()? {
            if key != TYPE {
                return seed.deserialize(serde::de::value::CowStrDeserializer::new(key)).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "that is what `wire!` makes")]
mod tests {
    use super::super::{AsJson, AsOptionalJson};

    crate::wire! {
        /// A union.
        #[serde(tag = "type")]
        #[serde(deny_unknown_fields)]
        pub enum SampleUnion {
            /// With a payload.
            Do {
                /// As it was written.
                #[serde(with = "AsJson")]
                payload: Box<str>,
                /// Some more.
                #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
                more: Option<Box<str>>,
            },
            /// With nothing.
            Stop {},
        }
    }

    #[test]
    fn a_union_is_an_object_with_its_type_wherever_that_stands() {
        let act = SampleUnion::Do {
            payload: r#"{"n": 1.0, "big": 123456789012345678901234567890}"#.into(),
            more: None,
        };
        let written = r#"{"type":"do","payload":{"n": 1.0, "big": 123456789012345678901234567890}}"#;
        assert_eq!(serde_json::to_string(&act).unwrap(), written);
        assert_eq!(serde_json::from_str::<SampleUnion>(written).unwrap(), act);
        let last = r#"{"payload": {"n": 1.0, "big": 123456789012345678901234567890}, "type": "do"}"#;
        assert_eq!(serde_json::from_str::<SampleUnion>(last).unwrap(), act);
        assert_eq!(serde_json::to_string(&SampleUnion::Stop {}).unwrap(), r#"{"type":"stop"}"#);
        assert_eq!(
            serde_json::from_str::<Vec<SampleUnion>>(r#"[{"type":"stop"}]"#).unwrap(),
            [SampleUnion::Stop {}]
        );
    }

    #[test]
    fn what_is_not_known_of_a_union_is_refused() {
        for (bad, says) in [
            (r#"{"payload":1}"#, "missing field `type`"),
            (r#"{"type":"jump"}"#, "unknown variant `jump`, expected `do` or `stop`"),
            (r#"{"type":"stop","payload":1}"#, "unknown field `payload`"),
            (r#"{"type":"do","payload":1,"extra":2}"#, "unknown field `extra`"),
            (r#"{"type":"do"}"#, "missing field `payload`"),
            (r#"{"type":"stop","type":"stop"}"#, "duplicate field `type`"),
            (r#""stop""#, "expected an object with a `type`"),
            (r#"["do"]"#, "expected an object with a `type`"),
        ] {
            let error = serde_json::from_str::<SampleUnion>(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
