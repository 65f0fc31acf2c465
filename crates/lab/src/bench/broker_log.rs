//! Ottla's own batch times, from its admin address: `/debug/batches`.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use serde::Deserialize;

use crate::ask::Door;
use crate::load::outcome::RecordPlace;

/// The version of the document that this reads.
const VERSION: u32 = 1;

/// 65,536 batches of about 100 bytes each; a larger answer is not from the expected broker.
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// When one batch passed through the broker, in nanoseconds of the broker machine's
/// CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    pub base_offset: i64,
    pub last_offset: i64,
    pub received_nanos: u64,
    pub appended_nanos: u64,
    /// `None`: not visible yet when the log was read.
    pub visible_nanos: Option<u64>,
    /// When it was first part of an answer to a consumer; `None`: not yet.
    pub fetched_nanos: Option<u64>,
}

/// The batch times that a broker recorded.
#[derive(Clone, Debug, Default)]
pub struct BrokerLog {
    /// Ascending by offset.
    partitions: HashMap<(String, i32), Vec<BatchTimes>>,
    /// One batch in this many was recorded.
    pub one_of: u64,
}

#[derive(Deserialize)]
struct Begun {
    reader: u64,
}

#[derive(Deserialize)]
struct Document {
    version: u32,
    one_of: u64,
    partitions: Vec<PartitionDocument>,
}

/// First and last offset; then the times received, appended, visible, fetched.
type BatchRow = (i64, i64, u64, u64, Option<u64>, Option<u64>);

#[derive(Deserialize)]
struct PartitionDocument {
    topic: String,
    partition: i32,
    batches: Vec<BatchRow>,
}

impl BrokerLog {
    /// Asks the broker to record for this long; returns the number under which the record can be
    /// read.
    ///
    /// - Errors: no Ottla answers there.
    pub fn begin(admin: &Door, duration: Duration) -> io::Result<u64> {
        let seconds = duration.as_secs_f64().ceil().max(1.0) as u64;
        let target = format!("/debug/batches?seconds={seconds}");
        let answer = admin.ask("POST", &target, DOCUMENT_BYTES_MAX)?;
        let begun: Result<Begun, serde_json::Error> = serde_json::from_str(&answer);
        let begun = begun.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(begun.reader)
    }

    /// Returns what was recorded since `begin`.
    pub fn read(admin: &Door, reader: u64) -> io::Result<BrokerLog> {
        let target = format!("/debug/batches?reader={reader}");
        BrokerLog::parse(&admin.ask("GET", &target, DOCUMENT_BYTES_MAX)?)
    }

    /// Ends the recording: the broker drops what no other reader needs.
    pub fn end(admin: &Door, reader: u64) -> io::Result<()> {
        let target = format!("/debug/batches?reader={reader}");
        admin.ask("DELETE", &target, DOCUMENT_BYTES_MAX).map(drop)
    }

    /// - Errors: `InvalidData` for a document of another form.
    pub fn parse(document: &str) -> io::Result<BrokerLog> {
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
        let document: Document =
            serde_json::from_str(document).map_err(|error| invalid(format!("/debug/batches: {error}")))?;
        if document.version != VERSION {
            return Err(invalid(format!(
                "/debug/batches has version {}, not {VERSION}: broker and bench are of different versions",
                document.version
            )));
        }
        let partition = |partition: PartitionDocument| {
            let batches = partition.batches.into_iter();
            let times = batches.map(|(base, last, received, appended, visible, fetched)| BatchTimes {
                base_offset: base,
                last_offset: last,
                received_nanos: received,
                appended_nanos: appended,
                visible_nanos: visible,
                fetched_nanos: fetched,
            });
            let mut times: Vec<BatchTimes> = times.collect();
            times.sort_by_key(|batch| batch.base_offset);
            ((partition.topic, partition.partition), times)
        };
        Ok(BrokerLog {
            partitions: document.partitions.into_iter().map(partition).collect(),
            one_of: document.one_of,
        })
    }

    /// Merges the logs of several brokers; a partition is recorded by its leader.
    pub fn add(&mut self, other: BrokerLog) {
        self.one_of = self.one_of.max(other.one_of);
        for (key, batches) in other.partitions {
            let all = self.partitions.entry(key).or_default();
            all.extend(batches);
            all.sort_by_key(|batch| batch.base_offset);
        }
    }

    /// The batch that holds the record at `place`; `None` if it was not recorded.
    pub fn batch(&self, place: &RecordPlace) -> Option<&BatchTimes> {
        let batches = self.partitions.get(&(place.topic.clone(), place.partition))?;
        let after = batches.partition_point(|batch| batch.base_offset <= place.offset);
        let batch = batches.get(after.checked_sub(1)?)?;
        (place.offset <= batch.last_offset).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"version":1,"unit":"x","fields":[],"is_recording":true,"one_of":2,"partitions":[
        {"topic":"t","partition":3,"batches":[[20,29,5,6,null,null],[0,9,1,2,3,4]]}]}"#;

    fn place(partition: i32, offset: i64) -> RecordPlace {
        RecordPlace {
            topic: "t".into(),
            partition,
            offset,
        }
    }

    #[test]
    fn a_record_is_found_in_its_batch_or_not_at_all() {
        let log = BrokerLog::parse(DOCUMENT).unwrap();
        assert_eq!(log.one_of, 2);
        assert_eq!(log.batch(&place(3, 9)).unwrap().fetched_nanos, Some(4));
        assert_eq!(log.batch(&place(3, 25)).unwrap().received_nanos, 5);
        for missing in [place(3, 10), place(3, 30), place(3, -1), place(2, 5)] {
            assert_eq!(log.batch(&missing), None, "{missing:?}");
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let other = DOCUMENT.replace("\"version\":1", "\"version\":2");
        let error = BrokerLog::parse(&other).unwrap_err().to_string();
        assert!(error.contains("version 2, not 1"), "{error}");
        assert!(BrokerLog::parse("ok\n").is_err());
    }
}
