//! What users give and get, as the JSON that stores keep.

use fencehold_core::BadInput;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a value down. `field` names it in the error.
pub(crate) fn written(field: &'static str, value: &(impl Serialize + ?Sized)) -> Result<Box<str>, BadInput> {
    let bad = |error| BadInput::new(field, format!("cannot be written as JSON: {error}"));
    serde_json::to_string(value).map(String::into_boxed_str).map_err(bad)
}

/// Reads a value back. `field` names it in the error.
pub(crate) fn read<T: DeserializeOwned>(field: &'static str, json: &str) -> Result<T, BadInput> {
    serde_json::from_str(json)
        .map_err(|error| BadInput::new(field, format!("does not fit what is expected: {error}")))
}

/// What nothing is written as.
pub(crate) const NOTHING: &str = "null";
