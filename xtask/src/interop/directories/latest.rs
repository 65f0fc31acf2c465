//! The meaning of a compacted log: the last value of every key.

use anyhow::{Context, Result, bail, ensure};
use ottla_wire::records::batch::{BatchError, batches};
use ottla_wire::records::compression::{Codec, decompress};
use ottla_wire::records::record::Records;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Last values by key. Keys of `__consumer_offsets` begin with the number of their record type.
pub type Latest = BTreeMap<Vec<u8>, Vec<u8>>;

const RECORD_BYTES_MAX: usize = 64 << 20;

/// Returns the segments of all partitions of `topic`, sorted by partition directory and file name.
pub fn segments(log_directory: &Path, topic: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(log_directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let index = name.strip_prefix(topic).and_then(|rest| rest.strip_prefix('-'));
        if index.is_none_or(|index| index.parse::<u32>().is_err()) {
            continue;
        }
        for file in fs::read_dir(&path)? {
            let file = file?.path();
            if file.extension().is_some_and(|extension| extension == "log") {
                found.push(file);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the last value of every key that is not deleted, over all partitions of a topic.
pub fn latest(log_directory: &Path, topic: &str) -> Result<Latest> {
    let mut latest = Latest::new();
    for segment in segments(log_directory, topic)? {
        read(&segment, &mut |key, value| {
            match value {
                Some(value) => latest.insert(key.to_vec(), value.to_vec()),
                None => latest.remove(key),
            };
        })?;
    }
    Ok(latest)
}

/// Counts what is left to compact: records of closed segments with a newer record of their key in
/// the closed segments of their partition, and partitions without a closed segment. Partitions with
/// transactions do not count: an open transaction stops compaction.
pub fn left_to_compact(log_directory: &Path, topic: &str) -> Result<usize> {
    let mut partitions: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for segment in segments(log_directory, topic)? {
        let partition = segment.parent().context("a partition's directory")?.to_owned();
        partitions.entry(partition).or_default().push(segment);
    }
    let mut left = 0;
    for segments in partitions.values() {
        let (_, closed) = segments.split_last().context("a partition without a segment")?;
        let mut keys = BTreeSet::new();
        let mut newer = usize::from(closed.is_empty());
        let mut has_transactions = false;
        for segment in closed {
            has_transactions |= read(segment, &mut |key, _| {
                newer += usize::from(!keys.insert(key.to_vec()));
            })?;
        }
        if !has_transactions {
            left += newer;
        }
    }
    Ok(left)
}

/// Takes a key and its value, `None` for a tombstone.
type Take<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>);

/// Passes keys and values in log order, except those of transactions: an uncommitted offset is no
/// value yet, and group records are never in a transaction. Returns whether there were
/// transactions.
fn read(segment: &Path, take: Take<'_>) -> Result<bool> {
    read_batches(segment, take).with_context(|| segment.display().to_string())
}

fn read_batches(segment: &Path, take: Take<'_>) -> Result<bool> {
    // A segment that is being replaced is read again in the next check.
    let bytes = match fs::read(segment) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        bytes => bytes?,
    };
    let mut has_transactions = false;
    let mut position = 0;
    for batch in batches(&bytes) {
        let batch = match batch {
            Ok(batch) => batch,
            // The end of a log that was not closed: a part of a batch, or blocks of zeros.
            Err(BatchError::Truncated { .. }) => break,
            Err(_) if bytes[position..].iter().all(|byte| *byte == 0) => break,
            Err(error) => bail!("{error}"),
        };
        position += batch.header.total_bytes();
        if batch.header.is_control() || batch.header.is_transactional() {
            has_transactions = true;
            continue;
        }
        let mut plain = Vec::new();
        let records = match batch.header.compression() {
            Some(Codec::None) => batch.records(),
            Some(codec) => {
                decompress(codec, batch.record_bytes(), RECORD_BYTES_MAX, &mut plain)?;
                Records::new(&batch.header, &plain)
            }
            None => bail!("an unknown codec"),
        };
        for record in records {
            let record = record?;
            take(record.key.context("a record without a key")?, record.value);
        }
    }
    Ok(has_transactions)
}

/// The record type of a key.
pub fn record_type(key: &[u8]) -> i16 {
    key.first_chunk::<2>()
        .map_or(-1, |bytes| i16::from_be_bytes(*bytes))
}

/// Whether a key belongs to this group: after the type all keys have the group's id.
pub fn is_of_group(key: &[u8], group: &str) -> bool {
    let length = u16::try_from(group.len()).expect("a short name").to_be_bytes();
    key.get(2..).is_some_and(|rest| {
        rest.strip_prefix(&length[..])
            .is_some_and(|rest| rest.starts_with(group.as_bytes()))
    })
}

/// The id of the group that a key belongs to.
fn group_of(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.get(2..)?.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

const GROUP_METADATA: i16 = 3;
const MEMBER_METADATA: i16 = 5;

/// Record types of consumer groups (KIP-848), which Ottla serves, so that it expels members whose
/// heartbeats do not come. Those of share and streams groups are only kept.
const SERVED: [i16; 7] = [GROUP_METADATA, 4, MEMBER_METADATA, 6, 7, 8, 16];

/// Checks that all records of groups of newer protocols are unchanged, none was added, and only
/// `deleted` groups are gone. In a consumer group of which a member is gone, records may be changed
/// or gone, except that the group stays and its other members are what they were.
pub fn check_kept(before: &Latest, after: &Latest, deleted: &[&str]) -> Result<()> {
    let is_foreign = |key: &&Vec<u8>| record_type(key) > 2;
    let is_deleted = |key: &&Vec<u8>| deleted.iter().any(|group| is_of_group(key, group));
    ensure!(
        before.keys().any(|key| is_foreign(&key)),
        "there were no records to keep"
    );
    let is_gone = |key: &&Vec<u8>| record_type(key) == MEMBER_METADATA && !after.contains_key(*key);
    let shrunken: BTreeSet<&[u8]> = before
        .keys()
        .filter(is_gone)
        .filter_map(|key| group_of(key))
        .collect();
    for key in before.keys().chain(after.keys()).filter(is_foreign) {
        let expected = before.get(key).filter(|_| !is_deleted(&key));
        let found = after.get(key);
        let is_shrunken = group_of(key).is_some_and(|group| shrunken.contains(group));
        let may_differ = expected.is_some()
            && is_shrunken
            && match record_type(key) {
                GROUP_METADATA => found.is_some(),
                MEMBER_METADATA => found.is_none(),
                other => SERVED.contains(&other),
            };
        ensure!(
            found == expected || may_differ,
            "the record of type {} with key {} was {:?} and is {:?}",
            record_type(key),
            String::from_utf8_lossy(key),
            expected,
            found
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(record_type: i16, group: &str, rest: &str) -> Vec<u8> {
        let length = u16::try_from(group.len()).expect("short").to_be_bytes();
        [
            &record_type.to_be_bytes()[..],
            &length,
            group.as_bytes(),
            rest.as_bytes(),
        ]
        .concat()
    }

    fn before() -> Latest {
        let keys = [
            key(3, "modern", ""),
            key(5, "modern", "a"),
            key(5, "modern", "b"),
            key(6, "modern", ""),
            key(8, "modern", "a"),
            key(8, "modern", "b"),
            key(3, "gone", ""),
            key(11, "share", ""),
            key(5, "other", "c"),
            key(8, "other", "c"),
        ];
        keys.into_iter().map(|key| (key, b"value".to_vec())).collect()
    }

    fn check(change: impl FnOnce(&mut Latest)) -> bool {
        let mut after = before();
        after.remove(&key(3, "gone", ""));
        change(&mut after);
        check_kept(&before(), &after, &["gone"]).is_ok()
    }

    fn set(after: &mut Latest, record_type: i16, group: &str, rest: &str) {
        after.insert(key(record_type, group, rest), b"other".to_vec());
    }

    fn expel(after: &mut Latest) {
        after.remove(&key(5, "modern", "a"));
        after.remove(&key(8, "modern", "a"));
        set(after, 3, "modern", "");
        set(after, 6, "modern", "");
    }

    #[test]
    fn a_silent_member_may_be_expelled_from_a_group_that_is_served() {
        assert!(check(|_| {}));
        assert!(check(expel));
    }

    #[test]
    fn anything_else_that_differs_is_found() {
        let differs = |more: &dyn Fn(&mut Latest)| {
            assert!(!check(more));
            assert!(!check(|after| {
                expel(after);
                more(after);
            }));
        };
        differs(&|after| set(after, 11, "share", ""));
        differs(&|after| drop(after.remove(&key(11, "share", ""))));
        differs(&|after| set(after, 12, "share", "new"));
        differs(&|after| set(after, 3, "gone", ""));
        differs(&|after| set(after, 8, "other", "c"));
        differs(&|after| set(after, 5, "modern", "b"));
        differs(&|after| set(after, 5, "modern", "new"));
        differs(&|after| drop(after.remove(&key(3, "modern", ""))));
        assert!(!check(|after| set(after, 6, "modern", "")), "no member is gone");
    }
}
