//! What travels has one definition and two forms, both derived from it.
//!
//! The *JSON form* is for HTTP and for people: fields have defaults, may be missing, and are refused where they are not
//! known, as the attributes of the type say. The *frame form* is for the socket of a `file:` store: every field in order,
//! nothing else. [`wire!`](macro@crate::wire) makes both from one type; a format says by `is_human_readable` which one it takes.

/// A form of a field is described as this type is.
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! schema_as {
    ($($form:ident = $described:ty),*) => {
        $(impl schemars::JsonSchema for $form {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$described>::schema_name()
            }

            fn inline_schema() -> bool {
                <$described>::inline_schema()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$described>::json_schema(generator)
            }
        })*
    };
}

/// A type that is described wherever it is used, by this JSON Schema.
macro_rules! inline_schema {
    ($type:ident, $name:expr, $schema:tt) => {
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

#[macro_use]
mod text;

mod json;
mod moment;
mod tagged;

pub use json::{AsJson, AsOptionalJson, null};
pub use moment::{AsMoment, AsOptionalMoment, Moment};
#[doc(hidden)]
pub use tagged::Tagged;
pub(crate) use text::read_text;

/// Makes types that travel: with a JSON form after their `serde` and `schemars` attributes, and a frame form of their fields
/// in order. Of a field, attributes follow its documentation: `serde` first. A field `= None` may be missing in JSON, and is left out
/// where there is none. An enumeration with `#[serde(tag = "type")]` after its documentation is a union: in JSON an object with its
/// `type`; its variants are written with braces.
///
/// Call `serialize` and `deserialize` through their traits (`Deserialize::deserialize(…)`), or through a format. Functions of
/// the same names on the type itself are `serde`'s, and always take the JSON form: postcard would read wrong bytes with them.
/// (They cannot be hidden: in a type of another name, errors would name that one.)
#[macro_export]
macro_rules! wire {
    () => {};
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:expr])*
                $(#[serde $serde:tt])*
                $(#[schemars $schemars:tt])*
                pub $field:ident: $kind:ty $(= $none:ident)?
            ),* $(,)?
        }
        $($rest:tt)*
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(remote = "Self")]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[doc = $doc])*
                $(#[serde $serde])*
                $(#[serde(default, skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), $none)])?
                $(#[cfg_attr(feature = "schema", schemars $schemars)])*
                pub $field: $kind,
            )*
        }

        $crate::wire_frame! { $name { $($field: $kind),* } }

        $crate::wire! { $($rest)* }
    };
    (
        $(#[doc = $enum_doc:expr])*
        #[serde(tag = "type")]
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(
                $(#[doc = $doc:expr])*
                $variant:ident {
                    $(
                        $(#[doc = $field_doc:expr])*
                        $(#[serde $serde:tt])*
                        $(#[schemars $schemars:tt])*
                        $field:ident: $kind:ty $(= $none:ident)?
                    ),* $(,)?
                }
            ),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $enum_doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
        $(#[$meta])*
        pub enum $name {
            $(
                $(#[doc = $doc])*
                $variant {
                    $(
                        $(#[doc = $field_doc])*
                        $(#[serde $serde])*
                        $(#[serde(default, skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), $none)])?
                        $(#[cfg_attr(feature = "schema", schemars $schemars)])*
                        $field: $kind,
                    )*
                },
            )*
        }

        const _: () = {
            type Whole = $name;

            #[derive(serde::Serialize, serde::Deserialize)]
            #[serde(remote = "Whole")]
            enum Frame {
                $($variant { $($field: $kind,)* },)*
            }

            #[derive(serde::Deserialize)]
            #[serde(remote = "Whole", rename_all = "snake_case")]
            $(#[$meta])*
            enum Read {
                $($variant { $($(#[serde $serde])* $(#[serde(default)] #[cfg_attr(any(), $none)])? $field: $kind,)* },)*
            }

            impl $name {
                fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let tagged = $crate::wire::Tagged::of(deserializer)?;
                    Read::deserialize(&tagged).map_err(serde::de::Error::custom)
                }
            }

            $crate::wire_forms!($name);
        };

        $crate::wire! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(
                $(#[doc = $doc:expr])*
                $(#[default $($default:tt)?])?
                $variant:ident
                $(($inner:ty))?
                $({
                    $(
                        $(#[doc = $field_doc:expr])*
                        $(#[serde $serde:tt])*
                        $(#[schemars $schemars:tt])*
                        $field:ident: $kind:ty $(= $none:ident)?
                    ),* $(,)?
                })?
            ),* $(,)?
        }
        $($rest:tt)*
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(remote = "Self", rename_all = "snake_case")]
        $(#[$meta])*
        pub enum $name {
            $(
                $(#[doc = $doc])*
                $(#[default $($default)?])?
                $variant
                $(($inner))?
                $({
                    $(
                        $(#[doc = $field_doc])*
                        $(#[serde $serde])*
                        $(#[serde(default, skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), $none)])?
                        $(#[cfg_attr(feature = "schema", schemars $schemars)])*
                        $field: $kind,
                    )*
                })?,
            )*
        }

        const _: () = {
            type Whole = $name;

            #[derive(serde::Serialize, serde::Deserialize)]
            #[serde(remote = "Whole")]
            enum Frame {
                $($variant $(($inner))? $({ $($field: $kind,)* })?,)*
            }

            $crate::wire_forms!($name);
        };

        $crate::wire! { $($rest)* }
    };
}

/// The frame form of a struct: these fields, in order. Its JSON form is what its own `serialize` and `deserialize` make of it.
#[doc(hidden)]
#[macro_export]
macro_rules! wire_frame {
    ($name:ident { $($field:ident: $kind:ty),* }) => {
        const _: () = {
            type Whole = $name;

            #[derive(serde::Serialize, serde::Deserialize)]
            #[serde(remote = "Whole")]
            struct Frame {
                $($field: $kind,)*
            }

            $crate::wire_forms!($name);
        };
    };
}

/// The two forms of one type: the format chooses.
#[doc(hidden)]
#[macro_export]
macro_rules! wire_forms {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    $name::serialize(self, serializer)
                } else {
                    Frame::serialize(self, serializer)
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    $name::deserialize(deserializer)
                } else {
                    Frame::deserialize(deserializer)
                }
            }
        }
    };
}
