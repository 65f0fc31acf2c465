//! `bootstrap.checkpoint`: the options of `kafka-storage format`, as the first records of an empty
//! metadata log.
//!
//! Feature levels, and SCRAM credentials from `--add-scram`. Once the metadata log names a metadata
//! version, the file is obsolete.

use std::path::Path;
use std::sync::Arc;

use ottla_log::checkpoint::read_file;
use ottla_log::disk::Disk;
use ottla_wire::records::batch::batches;

use super::ControllerError;
use crate::config::StaticConfig;
use crate::image::MetadataImage;
use crate::image::features::FeaturesImage;
use crate::image::record::RecordList;
use crate::image::replay::Replay;

pub(super) const BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// The options that the directory was formatted with.
#[derive(Clone, Debug)]
pub(super) struct Bootstrap {
    pub records: RecordList,
    pub features: Arc<FeaturesImage>,
}

impl Bootstrap {
    /// Reads the file; `None`: the directory was not formatted by Apache Kafka.
    ///
    /// - Errors: a damaged file, or levels that are not supported. Substituting other levels would
    ///   not be what the operator asked for.
    pub fn read(
        disk: &dyn Disk,
        metadata_directory: &Path,
        static_config: Arc<StaticConfig>,
    ) -> Result<Option<Bootstrap>, ControllerError> {
        let path = metadata_directory.join(BOOTSTRAP_FILE);
        let Some(bytes) = read_file(disk, &path)? else {
            return Ok(None);
        };
        let refuse = |problem: String| ControllerError::Directory {
            path: path.clone(),
            problem,
        };
        let damaged = |what: &str| {
            refuse(format!(
                "{what}: no broker has used the directory yet: empty it, and format it again"
            ))
        };
        let mut replay = Replay::new(Arc::new(MetadataImage::empty(static_config)));
        let applied = replay.apply_batches(&bytes);
        let features = replay.image().features.clone();
        // Checked first: an unreadable record may be due to an unsupported level.
        if let Some(unkept) = features.unkept() {
            return Err(refuse(format!(
                "asks for {unkept}; {}",
                unkept.way_out_before_first_start()
            )));
        }
        applied.map_err(|error| damaged(&format!("cannot be read ({error})")))?;
        if features.metadata_version() == 0 {
            return Err(damaged("names no metadata.version"));
        }
        let records = records_of(&bytes);
        Ok(Some(Bootstrap { records, features }))
    }
}

/// Returns the data records of batches that were already replayed.
fn records_of(bytes: &[u8]) -> RecordList {
    let values = batches(bytes)
        .filter_map(Result::ok)
        .filter(|batch| !batch.header.is_control())
        .flat_map(|batch| batch.records())
        .filter_map(Result::ok)
        .filter_map(|record| record.value.map(<[u8]>::to_vec));
    RecordList {
        values: values.collect(),
    }
}
