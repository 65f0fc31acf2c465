//! A look at records, by a consumer without a group.

use std::time::{Duration, Instant};

use ottla_broker::admin::records::COMPARED_MAX;
use ottla_client::Error;
use ottla_client::admin::{Admin, OffsetSpec, TopicPartition};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, ConsumerRecord};
use ottla_console::source::{Peek, PeekFrom, Peeked, PeekedRecord, Told, Untold};

use super::cluster::untold;
use super::topics::offsets;

/// Bytes that are fetched for one look, unless the first batch is larger.
const FETCH_BYTES_MAX: u32 = 1 << 20;

/// How long a look waits for records that the offsets promise: those of aborted transactions and
/// those that compaction removed never come.
const PATIENCE: Duration = Duration::from_secs(3);

pub fn peek(admin: &Admin, config: &Config, ask: &Peek) -> Told<Peeked> {
    let described = admin.describe_topics(vec![ask.topic.clone()]).wait();
    let described = described.map_err(|error| untold(&error))?;
    let Some(Ok(description)) = described.into_values().next() else {
        return Err(Untold(String::from("There is no topic of this name.")));
    };
    let partition_count = description.partitions.len() as i32;
    if !description.partitions.contains_key(&ask.partition) {
        return Err(Untold(format!(
            "There is no partition {}; the topic has {partition_count}.",
            ask.partition
        )));
    }
    let mut peeked = look(admin, config, ask).map_err(|error| untold(&error))?;
    peeked.partition_count = partition_count;
    Ok(peeked)
}

fn look(admin: &Admin, config: &Config, ask: &Peek) -> Result<Peeked, Error> {
    let partition = TopicPartition::new(ask.topic.as_str(), ask.partition);
    let names = [partition.clone()];
    let of = |which| -> Result<i64, Error> {
        let known = offsets(admin, &names, which)?;
        Ok(known.get(&partition).copied().unwrap_or(0))
    };
    let mut peeked = Peeked {
        log_start: of(OffsetSpec::Earliest)?,
        log_end: of(OffsetSpec::Latest)?,
        ..Peeked::default()
    };
    let from = match ask.from {
        PeekFrom::End => peeked.log_end.saturating_sub(ask.tail_offsets()),
        PeekFrom::Since(offset) => offset.max(peeked.log_end.saturating_sub(ask.tail_offsets())),
        PeekFrom::Offset(offset) => offset,
        // Later than every record is −1.
        PeekFrom::Time(at_ms) => match of(OffsetSpec::Timestamp(at_ms))? {
            -1 => peeked.log_end,
            offset => offset,
        },
    };
    peeked.from_offset = from.max(peeked.log_start);
    peeked.next_offset = peeked.from_offset;
    if peeked.next_offset < peeked.log_end {
        read(config, &partition, ask, &mut peeked)?;
    }
    Ok(peeked)
}

/// Adds the records from `next_offset` on.
fn read(config: &Config, partition: &TopicPartition, ask: &Peek, into: &mut Peeked) -> Result<(), Error> {
    let config = config
        .clone()
        .set("fetch.max.bytes", FETCH_BYTES_MAX)
        .set("max.partition.fetch.bytes", FETCH_BYTES_MAX)
        .set("enable.auto.commit", "false");
    let mut consumer = Consumer::new(&config)?;
    consumer.assign([partition.clone()])?;
    consumer.seek(partition, into.next_offset)?;
    let started = Instant::now();
    let mut bytes = 0;
    while into.next_offset < into.log_end && bytes < FETCH_BYTES_MAX as usize {
        let Some(rest) = PATIENCE.checked_sub(started.elapsed()) else {
            into.note = Some(format!(
                "no further record came in {} s: compaction or an aborted transaction may have removed them",
                PATIENCE.as_secs()
            ));
            return Ok(());
        };
        for record in consumer.poll(rest)?.iter() {
            if into.records.len() >= ask.records_max || into.looked_at >= COMPARED_MAX {
                return Ok(());
            }
            let headers = record.headers.iter().map(|header| header.value);
            if ask.filter.wants(record.key, record.value, headers) {
                into.records.push(peeked(&record, ask.field_bytes_max));
            }
            bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            into.looked_at += 1;
            into.next_offset = record.offset + 1;
        }
    }
    Ok(())
}

fn peeked(record: &ConsumerRecord<'_>, field_bytes_max: usize) -> PeekedRecord {
    let cut = |field: &[u8]| field[..field.len().min(field_bytes_max)].to_vec();
    PeekedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.map(cut),
        value: record.value.map(cut),
        key_bytes: record.key.map_or(0, <[u8]>::len),
        value_bytes: record.value.map_or(0, <[u8]>::len),
        headers: record
            .headers
            .iter()
            .map(|header| {
                (
                    String::from_utf8_lossy(header.key).into_owned(),
                    header.value.map(cut),
                )
            })
            .collect(),
        // A consumer sees records, not the batches that they came in.
        codec: None,
        producer_id: None,
    }
}
