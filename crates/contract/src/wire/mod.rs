//! The contract over HTTP: what its requests and answers are on the wire, and back.
//!
//! Both directions stand in one line for one type, so that the server and the remote store cannot disagree. What the wire
//! calls by another name is a moment (`since` for `since_wall_ms`) or JSON (`payload`).

mod job;
mod lease;
mod problem;

use std::num::NonZeroU32;

use fencehold_api::{Bytes, Json, Labels, Moment, Outcome};
use fencehold_core::job::{EffectName, Ended, JobId, Kind, Queue, ScheduleName, State, Undo, UniqueKey};
use fencehold_core::lease::{How, Notice};
use fencehold_core::ledger::{EffectState, OnDoubt};
use fencehold_core::retry::Retry;
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason, Task, Token};

pub use problem::store_error;

/// To the other side of the wire.
pub trait Across<T> {
    /// The same thing, as the other side has it.
    fn across(self) -> T;
}

/// What is the same on both sides.
macro_rules! same {
    ($($kind:ty)*) => {
        $(impl Across<$kind> for $kind {
            fn across(self) -> $kind {
                self
            }
        })*
    };
}

same! {
    () bool u16 u32 u64 i16 usize NonZeroU32 String Box<str>
    HoldId Key Namespace Owner Reason Task Token
    EffectName Ended JobId Kind Queue ScheduleName State Undo UniqueKey
    How Notice EffectState OnDoubt Retry
}

impl<Here: Across<There>, There> Across<Vec<There>> for Vec<Here> {
    fn across(self) -> Vec<There> {
        self.into_iter().map(Across::across).collect()
    }
}

impl<Here: Across<There>, There> Across<Option<There>> for Option<Here> {
    fn across(self) -> Option<There> {
        self.map(Across::across)
    }
}

impl<Here: Across<There>, There> Across<Box<There>> for Box<Here> {
    fn across(self) -> Box<There> {
        Box::new((*self).across())
    }
}

impl Across<Moment> for u64 {
    fn across(self) -> Moment {
        Moment { wall_ms: self }
    }
}

impl Across<u64> for Moment {
    fn across(self) -> u64 {
        self.wall_ms
    }
}

impl Across<Json> for Box<str> {
    fn across(self) -> Json {
        Json(self)
    }
}

impl Across<Box<str>> for Json {
    fn across(self) -> Box<str> {
        self.0
    }
}

impl Across<Bytes> for Vec<u8> {
    fn across(self) -> Bytes {
        Bytes(self)
    }
}

impl Across<Vec<u8>> for Bytes {
    fn across(self) -> Vec<u8> {
        self.0
    }
}

impl Across<Labels> for Vec<(Box<str>, Box<str>)> {
    fn across(self) -> Labels {
        Labels(self)
    }
}

impl Across<Vec<(Box<str>, Box<str>)>> for Labels {
    fn across(self) -> Vec<(Box<str>, Box<str>)> {
        self.0
    }
}

/// The answers to items: carried out, or why not. Both kinds of refusals travel as problems.
macro_rules! outcome {
    ($($refusal:ty)*) => {
        $(impl<Here: Across<There>, There> Across<Outcome<There>> for Result<Here, $refusal> {
            fn across(self) -> Outcome<There> {
                match self {
                    Ok(done) => Outcome::Ok(done.across()),
                    Err(refusal) => Outcome::Problem(Box::new(refusal.across())),
                }
            }
        }

        impl<Here: Across<There>, There> Across<Result<There, $refusal>> for Outcome<Here> {
            fn across(self) -> Result<There, $refusal> {
                match self {
                    Outcome::Ok(done) => Ok(done.across()),
                    Outcome::Problem(problem) => Err((*problem).across()),
                }
            }
        })*
    };
}

outcome! { fencehold_core::Refusal fencehold_core::job::Refusal }

/// Structs that have the same fields on both sides, but for the names after the semicolon.
macro_rules! mirror {
    ($($wire:path = $own:path { $($field:ident)* $(; $($there:ident = $here:ident)*)? })*) => {
        $(impl Across<$own> for $wire {
            fn across(self) -> $own {
                $own { $($field: self.$field.across(),)* $($($here: self.$there.across(),)*)? }
            }
        }

        impl Across<$wire> for $own {
            fn across(self) -> $wire {
                $wire { $($field: self.$field.across(),)* $($($there: self.$here.across(),)*)? }
            }
        })*
    };
}

/// Enums of bare names that are the same on both sides.
macro_rules! mirror_names {
    ($($wire:path = $own:path { $($name:ident)* })*) => {
        $(impl Across<$own> for $wire {
            fn across(self) -> $own {
                match self { $(Self::$name => <$own>::$name,)* }
            }
        }

        impl Across<$wire> for $own {
            fn across(self) -> $wire {
                match self { $(Self::$name => <$wire>::$name,)* }
            }
        })*
    };
}

use {mirror, mirror_names};
