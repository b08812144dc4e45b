//! What travels as a text: checked texts, and enumerations with a word for each variant.

use std::fmt;

use serde::Deserializer;
use serde::de::Visitor;

use crate::error::BadInput;

/// An enumeration with a word for each variant. It travels by its variants' names in `snake_case`.
macro_rules! worded {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// Every one, in the order of their tags.
            pub const ALL: [$name; [$($word),*].len()] = [$($name::$variant),*];

            const fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

/// What a type has that is fully said by its text: it is shown, sent and read as that text.
macro_rules! said_by_its_text {
    ($name:ident, $parse:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::BadInput;
            fn from_str(text: &str) -> Result<Self, $crate::BadInput> {
                Self::$parse(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::wire::read_text(deserializer, |text| Self::$parse(text))
            }
        }
    };
}

/// Reads something that is written as a text, without a copy of that text in between.
pub(crate) fn read_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    make: impl FnOnce(&str) -> Result<T, BadInput>,
) -> Result<T, D::Error> {
    struct Text<F>(F);

    impl<T, F: FnOnce(&str) -> Result<T, BadInput>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(make))
}
