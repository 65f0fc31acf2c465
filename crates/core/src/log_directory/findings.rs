//! Logs the findings of a recovery for the operator. docs/guides/damage.md says what each line
//! means and what to do.

use ottla_log::{Finding, FindingKind, LogError};
use tracing::{error, warn};

use crate::partition::Identity;

/// Logs one finding: the file, the position, and the consequence for the log.
pub(super) fn report(identity: &Identity, finding: &Finding) {
    let (topic, partition, position) = (&*identity.topic, identity.index, finding.position);
    let (file, detail) = (finding.path.display(), &*finding.detail);
    match finding.kind {
        FindingKind::CutEnd => {
            warn!(topic, partition, %file, position, detail, "cut an unfinished end off a log");
        }
        FindingKind::CutBatches => {
            error!(topic, partition, %file, position, detail, "cut a log in front of whole batches");
        }
        FindingKind::Kept => {
            warn!(topic, partition, %file, detail, "kept what was cut off a log");
        }
        FindingKind::NotKept => {
            error!(topic, partition, %file, detail, "did not keep what was cut off a log");
        }
        FindingKind::Damaged => {
            error!(topic, partition, %file, position, detail, "records are damaged, the others are served");
        }
        FindingKind::Lost => {
            error!(topic, partition, %file, position, detail, "records are lost, as accepted");
        }
        FindingKind::Contradiction => {
            warn!(topic, partition, %file, detail, "two files contradict each other");
        }
    }
}

/// Logs that a partition's log was not opened and its files were left untouched.
pub(super) fn report_refusal(identity: &Identity, refusal: &LogError) {
    let (topic, partition) = (&*identity.topic, identity.index);
    let way_out = format!("restore the file, or start with --accept-loss {topic}-{partition}");
    error!(topic, partition, error = %refusal, way_out, "partition refused: its log is damaged");
}
