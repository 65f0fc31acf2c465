//! Cases that the doctor exported: a JSON array of snapshots, as `/doctor/snapshots` returns.

use serde_json::Value;

use super::super::snapshot::Snapshot;
use super::ReplayError;

/// Whether the object is a snapshot rather than a fixture.
pub(super) fn is_snapshot(value: &Value) -> bool {
    value.get("client").is_some_and(Value::is_object)
}

/// Reads an array of snapshots, a single one, or `{"snapshots": […]}`.
///
/// - Errors: a field of the wrong type, with its line.
pub fn read(text: &str) -> Result<Vec<Snapshot>, ReplayError> {
    #[derive(serde::Deserialize)]
    struct Wrapped {
        snapshots: Vec<Snapshot>,
    }
    let text = text.trim();
    let error = |error: serde_json::Error| ReplayError::of_json(&error);
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(error);
    }
    let value: Value = serde_json::from_str(text).map_err(error)?;
    if is_snapshot(&value) {
        return Ok(vec![serde_json::from_str(text).map_err(error)?]);
    }
    let wrapped: Wrapped = serde_json::from_str(text).map_err(error)?;
    Ok(wrapped.snapshots)
}
