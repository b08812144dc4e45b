//! Putting jobs into queues, and on which terms.

use std::num::NonZeroU32;

use fencehold_core::job::{JobId, Kind, Queue, UniqueKey};
use fencehold_core::retry::Retry;

use crate::{Json, Labels, Moment, Outcome, wire};

wire! {
    /// Jobs to enqueue.
    #[serde(deny_unknown_fields)]
    pub struct EnqueueRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::value::items")]
        pub jobs: Vec<NewJob>,
    }

    /// A job to be.
    #[serde(deny_unknown_fields)]
    pub struct NewJob {
        /// Its id, made for this job alone. Missing: made from the `Idempotency-Key` and the job's place in the request,
        /// or, without one, by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<JobId>,
        /// Where it stands in line.
        #[serde(default)]
        pub queue: Queue,
        /// What it is.
        pub kind: Kind,
        /// What it is about.
        #[serde(default = "Json::null")]
        pub payload: Json,
        /// On which terms it is tried.
        #[serde(default, skip_serializing_if = "Terms::are_usual")]
        pub terms: Terms,
        /// When it is ready.
        #[serde(default, skip_serializing_if = "When::is_now")]
        pub when: When,
        /// What makes it the same as another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unique: Option<Unique>,
        /// For finding it again: names and values.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        pub labels: Labels,
        /// The W3C trace context (`traceparent`) of whoever enqueues it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trace: Option<Box<str>>,
        /// While it waits, ask a running job of its queue that has lower priority to yield within this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_within_ms: Option<u64>,
    }

    /// On which terms a job is tried.
    #[serde(deny_unknown_fields, default)]
    pub struct Terms {
        /// Its rank: higher is claimed first.
        pub priority: i16,
        /// After so many reported failures it has failed for good.
        pub max_attempts: u16,
        /// After so many dead holders it is quarantined.
        pub max_crashes: u16,
        /// The time limit of one attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attempt_ms: Option<NonZeroU32>,
        /// How long it waits after a failure.
        pub retry: Retry,
    }

    /// When a job is ready.
    #[derive(Default)]
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    pub enum When {
        /// At once.
        #[default]
        Now,
        /// At this moment.
        At(Moment),
        /// After this time, by the store's wall clock.
        AfterMs(u64),
    }

    /// What makes a job the same as another.
    #[serde(deny_unknown_fields)]
    pub struct Unique {
        /// Jobs of one namespace with the same key are the same.
        pub key: UniqueKey,
        /// For how long after the first was enqueued; and in any case until it has come to its end.
        pub window_ms: u64,
    }

    /// The answers to an enqueue, in order.
    pub struct EnqueueAnswer {
        /// One for each.
        pub answers: Vec<Outcome<Enqueued>>,
    }

    /// A job that is in its queue.
    pub struct Enqueued {
        /// Its id: that of the first one, where it is the same as another.
        pub id: JobId,
        /// Whether it was there already, by its id or its unique key.
        pub existed: bool,
    }
}

impl Default for Terms {
    fn default() -> Self {
        let fencehold_core::job::Terms { priority, max_attempts, max_crashes, attempt_ms, retry } =
            fencehold_core::job::Terms::default();
        Terms { priority, max_attempts, max_crashes, attempt_ms, retry }
    }
}

impl Terms {
    /// Whether they are those of a job of which nothing else is said: then they need not travel.
    pub(super) fn are_usual(&self) -> bool {
        *self == Terms::default()
    }
}

impl When {
    fn is_now(&self) -> bool {
        matches!(self, When::Now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms that are left out mean these, to every program that ever spoke to a server: they can never change.
    #[test]
    fn the_usual_terms_are_what_they_have_always_been() {
        let usual = serde_json::to_value(Terms::default()).unwrap();
        let retry = serde_json::json!({
            "backoff": "exponential", "base_ms": 1_000, "cap_ms": 3_600_000, "jitter_percent": 20
        });
        let always =
            serde_json::json!({ "priority": 0, "max_attempts": 10, "max_crashes": 5, "retry": retry });
        assert_eq!(usual, always);
        assert!(Terms::default().are_usual());
        assert!(!Terms { priority: 1, ..Terms::default() }.are_usual());
    }
}
