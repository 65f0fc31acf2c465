//! Consumers: their rules read lag, polls and fetches.

use crate::doctor::diagnosis::{Diagnosis, Verdict};
use crate::doctor::snapshot::Snapshot;

/// Judges one consumer.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    Diagnosis {
        client_id: snapshot.client.client_id.clone(),
        instance_id: snapshot.client.instance_id.clone(),
        role: snapshot.client.role,
        verdict: Verdict::NotEnoughData,
        summary: "no rule for consumers has judged this yet".to_owned(),
        ..Diagnosis::default()
    }
}
