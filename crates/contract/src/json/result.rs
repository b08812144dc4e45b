//! What came of one item of many: in JSON `{"ok": …}` or `{"problem": …}`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::problem::Problem;

/// What came of one item of many: it was carried out, or why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// It was carried out.
    Ok(T),
    /// Why it was not.
    Problem(Box<Problem>),
}

impl<T, R: Into<Problem>> From<Result<T, R>> for Outcome<T> {
    fn from(result: Result<T, R>) -> Self {
        match result {
            Ok(done) => Outcome::Ok(done),
            Err(refusal) => Outcome::Problem(Box::new(refusal.into())),
        }
    }
}

impl<T, R: From<Problem>> From<Outcome<T>> for Result<T, R> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Ok(done) => Ok(done),
            Outcome::Problem(problem) => Err((*problem).into()),
        }
    }
}

/// The JSON form of what came of one item.
pub struct AsResult;

impl AsResult {
    /// Writes an outcome.
    pub fn serialize<S, T, R>(result: &Result<T, R>, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        T: Serialize,
        R: Clone + Into<Problem>,
    {
        Outcome::from(result.as_ref().map_err(Clone::clone)).serialize(serializer)
    }

    /// Reads an outcome.
    pub fn deserialize<'de, D, T, R>(deserializer: D) -> Result<Result<T, R>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
        R: From<Problem>,
    {
        Outcome::deserialize(deserializer).map(Into::into)
    }
}

/// The same of many items, in order.
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
                .map(|result| Outcome::from(result.as_ref().map_err(Clone::clone))),
        )
    }

    /// Reads a list of outcomes.
    pub fn deserialize<'de, D, T, R>(deserializer: D) -> Result<Vec<Result<T, R>>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
        R: From<Problem>,
    {
        let outcomes = Vec::<Outcome<T>>::deserialize(deserializer)?;
        Ok(outcomes.into_iter().map(Into::into).collect())
    }
}
