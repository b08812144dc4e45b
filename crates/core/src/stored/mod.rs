//! What stores keep of leases, jobs and events: types of their own, so that no change of a type in memory changes what is stored.
//!
//! A type has its version in its name. Never add, remove, rename or reorder a field or a variant of one: add a version, and have the store
//! write which one it is. Conversions name every field and every variant. So what is new in a type of the rules does not compile until
//! it is said here what is stored of it. A field or a variant may follow a new name in memory as long as an attribute gives the name that is
//! stored.
//!
//! One definition serves two encodings: bytes, which go by order (`file:`), and text, which goes by name (etcd, PostgreSQL). Object
//! storage keeps moments as ages, and adds that to what is here. What is only a checked text or a number (names, tokens, moments) is
//! stored as it is. Each store holds its own bytes against golden files.
//!
//! Here and not above, because only the crate that owns an enumeration can match all of it.

/// An enumeration that is stored: by its place among all, or by its name.
macro_rules! stored_enum {
    ($(#[$doc:meta])* $stored:ident of $kind:ty { $($(#[$name:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the type that it stands for says what they mean")]
        pub enum $stored { $($(#[$name])* $variant),* }

        impl $stored {
            /// Its number, where it is stored as one.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The one with this number.
            pub fn numbered(number: u8) -> Option<Self> {
                [$($stored::$variant),*].get(usize::from(number)).copied()
            }
        }

        impl From<$kind> for $stored {
            fn from(kind: $kind) -> Self {
                match kind { $(<$kind>::$variant => $stored::$variant),* }
            }
        }

        impl From<$stored> for $kind {
            fn from(stored: $stored) -> Self {
                match stored { $($stored::$variant => <$kind>::$variant),* }
            }
        }
    };
}

/// A struct that is stored: each field by its stored name, then `as` its name in memory where that is another.
macro_rules! stored_struct {
    ($(#[$doc:meta])* $stored:ident of $kind:ident { $($field:ident $(as $in_memory:ident)?: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $stored { $(pub $field: $type),* }

        impl From<$kind> for $stored {
            fn from($kind { $($($in_memory:)? $field),* }: $kind) -> Self {
                $stored { $($field: $field.into()),* }
            }
        }

        impl From<$stored> for $kind {
            fn from($stored { $($field),* }: $stored) -> Self {
                $(let $field = $field.into();)*
                $kind { $($($in_memory:)? $field),* }
            }
        }
    };
}

mod event;
mod job;
mod lease;

pub use event::{AttemptedV1, EventV1, FactV1, OptionalHowV1};
pub use job::{
    AttemptV1, BackoffV1, CancelV1, ClaimV1, DueV1, EffectStateV1, EffectV1, EndedV1, JobV1, NotesV1,
    OnDoubtV1, RetryV1, StateV1, TermsV1, TrailV1, UndoV1, UndoWithV1,
};
pub use lease::{EndingV1, HoldV1, HowV1, LeaseV1, NoticeV1};
