//! What came of one item of many: in JSON `{"ok": …}` or `{"error": …}`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::problem::Problem;

/// What came of one item of many: it was carried out, or why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemResult<T> {
    /// It was carried out.
    Ok(T),
    /// Why it was not.
    Error(Box<Problem>),
}

impl<T, R: Into<Problem>> From<Result<T, R>> for ItemResult<T> {
    fn from(result: Result<T, R>) -> Self {
        match result {
            Ok(done) => ItemResult::Ok(done),
            Err(refusal) => ItemResult::Error(Box::new(refusal.into())),
        }
    }
}

impl<T, R: From<Problem>> From<ItemResult<T>> for Result<T, R> {
    fn from(outcome: ItemResult<T>) -> Self {
        match outcome {
            ItemResult::Ok(done) => Ok(done),
            ItemResult::Error(problem) => Err((*problem).into()),
        }
    }
}

/// The JSON form of what came of many items, in order.
pub struct AsResults;

impl AsResults {
    /// Writes a list of outcomes.
    pub fn serialize<S, T, R>(results: &[Result<T, R>], serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        T: Serialize,
        R: Clone + Into<Problem>,
    {
        serializer.collect_seq(
            results
                .iter()
                .map(|result| ItemResult::from(result.as_ref().map_err(Clone::clone))),
        )
    }

    /// Reads a list of outcomes.
    pub fn deserialize<'de, D, T, R>(deserializer: D) -> Result<Vec<Result<T, R>>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
        R: From<Problem>,
    {
        let outcomes = Vec::<ItemResult<T>>::deserialize(deserializer)?;
        Ok(outcomes.into_iter().map(Into::into).collect())
    }
}

/// The success of an item, and what the schema of its result is called.
#[cfg(feature = "schema")]
pub trait ItemOf: schemars::JsonSchema {
    /// The name of the schema.
    const RESULT: &'static str;
}

/// One object with two fields of which one is there: generators make one class of it.
#[cfg(feature = "schema")]
impl<T: ItemOf> schemars::JsonSchema for ItemResult<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::RESULT.into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let ok = generator.subschema_for::<T>();
        let error = generator.subschema_for::<Problem>();
        schemars::json_schema!({
            "description": "What came of one item: `ok`, or why it was not carried out.",
            "type": "object",
            "properties": { "ok": ok, "error": error },
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}

#[cfg(feature = "schema")]
macro_rules! items {
    ($($item:ty = $result:literal),* $(,)?) => {
        $(impl ItemOf for $item {
            const RESULT: &'static str = $result;
        })*
    };
}

#[cfg(feature = "schema")]
items! {
    fencehold_core::lease::LeaseRenewal = "RenewLeaseResult",
    crate::ReleasedLease = "ReleaseLeaseResult",
    crate::RevokedLease = "RevokeLeaseResult",
    crate::job::EnqueuedJob = "EnqueueJobResult",
    fencehold_core::job::AttemptRenewal = "RenewAttemptResult",
    fencehold_core::job::ReportedAttempt = "ReportAttemptResult",
    crate::job::ChangedJob = "ChangeJobResult",
    crate::job::LedgerResponse = "WriteEffectResult",
}
