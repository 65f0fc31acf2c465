//! The first producer id that is certainly new, where the metadata log no longer says it.
//!
//! Partitions remember producers by id and epoch. If an id were given out again, the first batches
//! of its new owner would look like retries of the old owner's, and would be acknowledged without
//! being appended.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use ottla_log::LogError;
use ottla_log::directory::partition_directory;
use ottla_log::disk::Disk;
use ottla_log::inspection::{Inspected, inspect, largest_producer_id};
use ottla_wire::coordinator_records::transaction_log::{TransactionLogKey, TransactionLogValue};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::record::Record;
use tracing::warn;

use super::PRODUCER_ID_BLOCK;
use super::metadata_log::METADATA_DIRECTORY;
use crate::log_directory::LogDirectory;

/// The transaction coordinator's log: its records name ids that no batch may have.
const TRANSACTION_LOG: &str = "__transaction_state";

/// Ids are also known to clients that have written nothing yet, to batches that retention has
/// removed, and to damaged batches. This many more are skipped for them, out of 2^63.
const SKIPPED: i64 = 1_000 * PRODUCER_ID_BLOCK;

/// A client may write batches with an id that it has made up. Larger ones than this are never given
/// out, so they need not be skipped.
const PLAUSIBLE_BELOW: i64 = 1 << 62;

/// Returns an id above all that the partitions' logs name, and not below `next_known`; `None` if
/// there is no partition and no known id. Reads the headers of all batches.
///
/// - `next_known`: of the newest record that is left; -1 without one.
pub(super) fn find(
    disk: &dyn Disk,
    log_directory: &LogDirectory,
    next_known: i64,
) -> Result<Option<i64>, LogError> {
    let metadata_log = BTreeSet::from([METADATA_DIRECTORY.to_owned()]);
    let partitions = log_directory.unknown_directories(&metadata_log)?;
    if partitions.is_empty() && next_known < 0 {
        return Ok(None);
    }
    let mut largest: Option<i64> = None;
    for partition in partitions {
        let directory = partition_directory(log_directory.path(), &partition.topic, partition.partition);
        let found = largest_producer_id(disk, &directory, PLAUSIBLE_BELOW).and_then(|largest| {
            let is_transaction_log = partition.topic == TRANSACTION_LOG;
            let named = if is_transaction_log {
                named_producer_id(disk, &directory)?
            } else {
                None
            };
            Ok(largest.max(named))
        });
        match found {
            Ok(found) => largest = largest.max(found),
            // The opening of the partition decides about it.
            Err(error) => {
                let directory = directory.display();
                warn!(%directory, %error, "cannot look for producer ids");
            }
        }
    }
    let next_unseen = largest.map_or(0, |id| id + 1);
    let floor = next_unseen.max(next_known).saturating_add(SKIPPED);
    Ok(Some(floor / PRODUCER_ID_BLOCK * PRODUCER_ID_BLOCK))
}

/// Returns the largest producer id in the records of a partition of the transaction log.
fn named_producer_id(disk: &dyn Disk, directory: &Path) -> Result<Option<i64>, LogError> {
    let mut largest = None;
    inspect(disk, directory, 0, |inspected| {
        if let Inspected::Batch { batch, .. } = inspected {
            largest = largest.max(largest_named(&batch));
        }
        Ok::<_, LogError>(ControlFlow::Continue(()))
    })?;
    Ok(largest)
}

fn largest_named(batch: &Batch<'_>) -> Option<i64> {
    if batch.header.is_control() {
        return None;
    }
    let records = batch.records().map_while(Result::ok);
    records.filter_map(|record| producer_id_of(&record)).max()
}

fn producer_id_of(record: &Record<'_>) -> Option<i64> {
    let kind = Reader::new(record.key?).i16().ok()?;
    if kind != TransactionLogKey::RECORD_TYPE {
        return None;
    }
    let value = TransactionLogValue::decode_value(record.value?).ok()?;
    let ids = [
        value.producer_id,
        value.previous_producer_id,
        value.next_producer_id,
    ];
    ids.into_iter()
        .filter(|id| (0..PLAUSIBLE_BELOW).contains(id))
        .max()
}

#[cfg(test)]
mod tests {
    use ottla_log::disk::memory::MemoryDisk;
    use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

    use super::*;
    use crate::config::RecoveryConfig;

    fn floor(files: &[(&str, Vec<u8>)], next_known: i64) -> Option<i64> {
        let disk = MemoryDisk::new(1);
        disk.create_directories(Path::new("data")).unwrap();
        for (directory, bytes) in files {
            let directory = Path::new("data").join(directory);
            disk.create_directories(&directory).unwrap();
            disk.write_file(&directory.join("00000000000000000000.log"), bytes);
        }
        let directory =
            LogDirectory::read(disk.shared(), Path::new("data"), RecoveryConfig::default()).unwrap();
        find(&disk, &directory, next_known).unwrap()
    }

    fn batch(producer_id: i64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchOptions::default()
        });
        builder.append(17, Some(key), Some(value), &[]);
        builder.finish()
    }

    fn transaction(producer_id: i64, previous_producer_id: i64) -> Vec<u8> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let transactional_id = "payments";
        TransactionLogKey { transactional_id }.encode_key(&mut key);
        let log_value = TransactionLogValue {
            producer_id,
            previous_producer_id,
            ..TransactionLogValue::default()
        };
        log_value.encode_value(&mut value, 1);
        batch(-1, &key, &value)
    }

    #[test]
    fn ids_continue_above_batches_transactions_and_what_is_known() {
        let orders = ("orders-0", batch(4_321, b"k", b"v"));
        assert_eq!(floor(&[], -1), None);
        assert_eq!(floor(&[], 7_000), Some(1_007_000));
        assert_eq!(floor(&[("orders-0", Vec::new())], -1), Some(1_000_000));
        assert_eq!(floor(std::slice::from_ref(&orders), -1), Some(1_004_000));
        assert_eq!(floor(std::slice::from_ref(&orders), 9_000), Some(1_009_000));
        let named = ("__transaction_state-3", transaction(5_000, 8_999));
        let made_up = ("made-up-0", batch(i64::MAX, b"k", b"v"));
        assert_eq!(floor(&[orders, named, made_up], 6_000), Some(1_009_000));
    }

    #[test]
    fn a_log_that_cannot_be_read_leaves_the_others_to_be_read() {
        let damaged = ("a-0", vec![1; 500]);
        let orders = ("orders-0", batch(4_321, b"k", b"v"));
        assert_eq!(floor(&[damaged, orders], -1), Some(1_004_000));
    }
}
