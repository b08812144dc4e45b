//! Several operations in one request, each as if it had come alone.
//!
//! An operation of a batch names itself by its `type` and has its request as it would stand in a body of its own. What came of it
//! carries the same `type`, so that each result has a schema of its own. Only what holders, producers and workers do at once is
//! batched: nothing that waits, lists or renews, and no force.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};

use fencehold_core::Key;
use fencehold_core::job::JobId;
use fencehold_core::wire::{AsJson, AsOptionalJson};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ALL, EnqueueJobBatchRequest, HoldBatchRequest, OperationSpec, ReportAttemptBatchRequest};
use super::{WriteEffectBatchRequest, http_requests, http_types};
use crate::job::{AttemptLedgerEntry, AttemptReport, BeginOperationRequest, ClaimJobsRequest, NewJob};
use crate::problem::Problem;
use crate::{AcquireLeaseRequest, BlockedWrite, HoldRef};

/// Most operations of one batch.
pub const BATCH_OPERATIONS_MAX: usize = 256;

http_requests! {
    /// Operations that share a request. Those on the same key or job are carried out in order, the others side by side.
    pub struct BatchRequest {
        /// One result for each, in order.
        #[schemars(length(min = 1, max = BATCH_OPERATIONS_MAX))]
        pub operations: Vec<BatchOperation>,
    }
}

http_types! {
    /// What came of each operation, in order.
    pub struct BatchResponse {
        /// One for each.
        pub results: Vec<BatchResult>,
    }
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchOperation {
    /// Which one.
    #[serde(rename = "type")]
    pub operation: BatchedOperation,
    /// Its request, as JSON.
    #[serde(with = "AsJson")]
    pub request: Box<str>,
}

/// What came of one operation of a batch: `ok`, or why it was not carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchResult {
    /// Which operation it was.
    #[serde(rename = "type")]
    pub operation: BatchedOperation,
    /// Its response, as JSON.
    #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
    pub ok: Option<Box<str>>,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<Problem>>,
}

/// An operation that may be in a batch, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BatchedOperation(&'static str);

impl BatchedOperation {
    /// This operation; `None`: it comes alone.
    pub fn of(spec: &OperationSpec) -> Option<Self> {
        spec.batched.then_some(BatchedOperation(spec.name))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl<'de> Deserialize<'de> for BatchedOperation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let found = ALL.iter().find(|spec| spec.name == name);
        let batched = found.and_then(BatchedOperation::of);
        batched.ok_or_else(|| D::Error::custom(format!("{name:?} is no operation that may be in a batch")))
    }
}

/// What an operation is about, as far as it tells two apart: a key or a job. It has a hash of it: where two things have the same, their
/// operations are only kept in order for no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subject(u64);

impl Subject {
    fn of(named: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        named.hash(&mut hasher);
        Subject(hasher.finish())
    }

    fn key(key: &Key) -> Self {
        Subject::of(key.as_str())
    }

    /// A job without an id is about to be made: nothing else can name it.
    fn job(id: JobId) -> Option<Self> {
        (!id.is_nil()).then(|| Subject::of(id))
    }
}

pub(super) fn keys_of_acquire(request: &AcquireLeaseRequest) -> Vec<Subject> {
    request.any_of.iter().map(Subject::key).collect()
}

pub(super) fn key_of_hold(hold: &HoldRef) -> Vec<Subject> {
    vec![Subject::key(&hold.key)]
}

pub(super) fn keys_of_holds(request: &HoldBatchRequest) -> Vec<Subject> {
    request.holds.iter().map(|hold| Subject::key(&hold.key)).collect()
}

pub(super) fn key_of_write(write: &BlockedWrite) -> Vec<Subject> {
    vec![Subject::key(&write.key)]
}

pub(super) fn id_of_job(job: &NewJob) -> Vec<Subject> {
    Subject::job(job.id).into_iter().collect()
}

pub(super) fn ids_of_jobs(request: &EnqueueJobBatchRequest) -> Vec<Subject> {
    request.jobs.iter().filter_map(|job| Subject::job(job.id)).collect()
}

/// Which jobs it gets is not known before.
pub(super) fn none_of_claim(_: &ClaimJobsRequest) -> Vec<Subject> {
    Vec::new()
}

pub(super) fn job_of_report(report: &AttemptReport) -> Vec<Subject> {
    Subject::job(report.attempt.job_id).into_iter().collect()
}

pub(super) fn jobs_of_reports(request: &ReportAttemptBatchRequest) -> Vec<Subject> {
    request.reports.iter().flat_map(job_of_report).collect()
}

pub(super) fn job_of_entry(entry: &AttemptLedgerEntry) -> Vec<Subject> {
    Subject::job(entry.attempt.job_id).into_iter().collect()
}

pub(super) fn jobs_of_entries(request: &WriteEffectBatchRequest) -> Vec<Subject> {
    request.entries.iter().flat_map(job_of_entry).collect()
}

pub(super) fn job_of_operation(request: &BeginOperationRequest) -> Vec<Subject> {
    Subject::job(request.job_id).into_iter().collect()
}

/// Unions of what each operation has, under its name.
#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{BatchOperation, BatchResult, Problem};
    use crate::http::{HttpOperation, Visitor, every};

    struct Variants<'g> {
        generator: &'g mut SchemaGenerator,
        variant: fn(&mut SchemaGenerator, &str, Schema, Schema) -> Schema,
        all: Vec<Schema>,
    }

    impl Visitor for Variants<'_> {
        fn visit<O: HttpOperation>(&mut self) {
            if O::SPEC.batched {
                let request = self.generator.subschema_for::<O::Request>();
                let response = self.generator.subschema_for::<O::Response>();
                let variant = (self.variant)(self.generator, O::SPEC.name, request, response);
                self.all.push(variant);
            }
        }
    }

    fn union(
        generator: &mut SchemaGenerator,
        description: &str,
        variant: fn(&mut SchemaGenerator, &str, Schema, Schema) -> Schema,
    ) -> Schema {
        let mut variants = Variants { generator, variant, all: Vec::new() };
        every(&mut variants);
        json_schema!({ "description": description, "oneOf": variants.all })
    }

    impl JsonSchema for BatchOperation {
        fn schema_name() -> Cow<'static, str> {
            "BatchOperation".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            union(generator, "One operation of a batch.", |_, name, request, _| {
                json_schema!({
                    "type": "object",
                    "properties": { "type": { "type": "string", "const": name }, "request": request },
                    "required": ["type", "request"],
                    "additionalProperties": false,
                })
            })
        }
    }

    impl JsonSchema for BatchResult {
        fn schema_name() -> Cow<'static, str> {
            "BatchResult".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let description =
                "What came of one operation of a batch: `ok`, or `error` if it was not carried out.";
            union(generator, description, |generator, name, _, response| {
                let problem = generator.subschema_for::<Problem>();
                json_schema!({
                    "type": "object",
                    "properties": {
                        "type": { "type": "string", "const": name },
                        "ok": response,
                        "error": problem,
                    },
                    "required": ["type"],
                    "minProperties": 2,
                    "maxProperties": 2,
                })
            })
        }
    }
}
