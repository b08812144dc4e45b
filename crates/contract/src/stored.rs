//! What stores keep, as it is written: [`fencehold_core::stored`], and the same for what the contract adds to it.
#![allow(missing_docs, reason = "the types that these stand for say what their fields mean")]

use std::borrow::Cow;

pub use fencehold_core::stored::*;

use fencehold_core::Owner;
use fencehold_core::job::{EffectName, JobId, JobKind, QueueName, ScheduleName};
use serde::{Deserialize, Serialize};

use crate::Quota;
use crate::job::{CompensatedEffect, QueueMode, ScheduleSpec};

/// A schedule. Borrowed while it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleV1<'a> {
    pub name: ScheduleName,
    pub cron: Cow<'a, str>,
    pub zone: Cow<'a, str>,
    pub queue: QueueName,
    pub kind: JobKind,
    pub payload: Cow<'a, str>,
    pub terms: TermsV1,
    pub labels: Cow<'a, [(Box<str>, Box<str>)]>,
    pub by: Owner,
}

/// Whose effect a job undoes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoOfV1 {
    pub job: JobId,
    pub effect: EffectName,
}

/// What was set of the limits of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsV1 {
    pub queues: Option<u64>,
    pub keys: Option<u64>,
    pub jobs: Option<u64>,
    pub bytes: Option<u64>,
    pub schedules: Option<u64>,
    pub ttl_ms: Option<u64>,
}

/// The number of what a queue does.
pub const fn queue_mode_number(mode: QueueMode) -> u8 {
    match mode {
        QueueMode::Open => 0,
        QueueMode::Paused => 1,
        QueueMode::Draining => 2,
    }
}

/// What a queue with this number does.
pub const fn queue_mode_numbered(number: u8) -> Option<QueueMode> {
    match number {
        0 => Some(QueueMode::Open),
        1 => Some(QueueMode::Paused),
        2 => Some(QueueMode::Draining),
        _ => None,
    }
}

impl<'a> From<&'a ScheduleSpec> for ScheduleV1<'a> {
    fn from(spec: &'a ScheduleSpec) -> Self {
        let ScheduleSpec { name, cron, time_zone: zone, queue, kind, payload, options: terms, labels, by } =
            spec;
        ScheduleV1 {
            name: name.clone(),
            cron: Cow::Borrowed(cron),
            zone: Cow::Borrowed(zone),
            queue: queue.clone(),
            kind: kind.clone(),
            payload: Cow::Borrowed(payload),
            terms: (*terms).into(),
            labels: Cow::Borrowed(labels),
            by: by.clone(),
        }
    }
}

impl From<ScheduleV1<'_>> for ScheduleSpec {
    fn from(stored: ScheduleV1<'_>) -> Self {
        let ScheduleV1 { name, cron, zone, queue, kind, payload, terms, labels, by } = stored;
        let (cron, zone, payload) = (cron.into_owned(), zone.into_owned(), payload.into());
        let (terms, labels) = (terms.into(), labels.into_owned());
        ScheduleSpec { name, cron, time_zone: zone, queue, kind, payload, options: terms, labels, by }
    }
}

/// Conversions both ways between types whose fields mean the same. Each names all of them, so that a new one does not compile without.
macro_rules! alike {
    ($($Type:ident { $($field:ident),* } = $Stored:ident { $($stored:ident),* };)*) => {$(
        impl From<$Type> for $Stored {
            fn from($Type { $($field),* }: $Type) -> Self {
                $Stored { $($stored: $field),* }
            }
        }

        impl From<$Stored> for $Type {
            fn from($Stored { $($stored),* }: $Stored) -> Self {
                $Type { $($field: $stored),* }
            }
        }
    )*};
}

alike! {
    CompensatedEffect { job_id, effect } = UndoOfV1 { job, effect };
    Quota { max_queues, max_keys, max_jobs, max_bytes, max_schedules, max_ttl_ms }
        = LimitsV1 { queues, keys, jobs, bytes, schedules, ttl_ms };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_what_a_queue_does_are_known() {
        let modes = [QueueMode::Open, QueueMode::Paused, QueueMode::Draining];
        assert_eq!(modes.map(queue_mode_number), [0, 1, 2]);
        assert_eq!(
            [0, 1, 2, 3].map(queue_mode_numbered),
            [Some(modes[0]), Some(modes[1]), Some(modes[2]), None]
        );
    }
}
