//! `/topics/T/P`: one partition: its offsets and files, who writes and reads it, and what holds
//! readers up.

use ottla_lab::numbers::{bytes, count, duration};
use serde_json::{Value, json};

use super::lag::Lag;
use super::{Page, View, draw_pager, lead_of, paged};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, clock, counted, date, encoded, link, name, plain, strong, text};
use crate::source::{
    Group, GroupOffset, OpenTransaction, Part, PartitionDetail, PartitionProducer, Source, Told,
};

/// Producers in the table; there may be more in the JSON.
const PRODUCERS_MAX: usize = 100;

/// `3` of `/topics/orders/3`; `None`: it is no number of a partition.
pub fn index_of(text: &str) -> Option<i32> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// `None`: there is no such partition.
pub fn page(view: &View<'_>, topic: &str, index: i32) -> Option<Page> {
    let detail = match view.source.partition(topic, index) {
        Ok(None) => return None,
        Ok(Some(detail)) => Ok(detail),
        Err(untold) => Err(untold),
    };
    let groups = view.source.groups().unwrap_or_default();
    let readers: Vec<Reader<'_>> = (groups.groups.iter())
        .filter_map(|group| reader(group, topic, index))
        .collect();
    let now_ms = view.source.now_ms();
    let lead = lead_of(&detail, |detail| lead(detail, &readers, now_ms));
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": detail.as_ref().err(),
            "topic": topic,
            "partition": detail.as_ref().ok(),
            "groups": readers.iter().map(|reader| json_of(reader, now_ms)).collect::<Vec<Value>>(),
        })
    });
    let title = format!("{} {index}", name(topic));
    let look = format!("{}?partition={index}", address("messages", topic));
    let mut more = vec![
        link(address("topics", topic), "Its topic"),
        text(" · "),
        link(look, "look at its records"),
    ];
    let since = view.since(Part::Partition(topic, index));
    if !since.is_empty() {
        more.push(text(". "));
        more.extend(since);
    }
    let mut blocks = vec![head(&title, "partition", &lead, &more)];
    if let Ok(detail) = &detail {
        blocks.push(offsets(detail, now_ms));
        blocks.push(groups_block(&readers, view));
        blocks.push(transactions(detail, (topic, index), view.source));
        blocks.push(producers(detail, now_ms));
        blocks.push(segments(detail, view));
    }
    Some(Page {
        title,
        place: "/topics",
        blocks,
        json: document,
    })
}

/// Why there is no page of this partition, as a sentence.
pub fn why_missing(source: &dyn Source, topic: &str, index: &str) -> String {
    let shown = name(topic);
    match source.topic(topic) {
        Ok(Some(detail)) => format!(
            "There is no partition {} of {shown}: it has {}, counted from 0.",
            name(index),
            counted(detail.topic.partitions, "partition")
        ),
        Ok(None) => format!("There is no topic {shown}."),
        Err(untold) => untold.to_string(),
    }
}

/// A group that has committed an offset of the partition.
struct Reader<'a> {
    group: &'a Group,
    offset: &'a GroupOffset,
}

fn reader<'a>(group: &'a Group, topic: &str, index: i32) -> Option<Reader<'a>> {
    let is_it = |offset: &&GroupOffset| offset.partition == index && offset.topic == topic;
    let offset = group.offsets.iter().find(is_it)?;
    Some(Reader { group, offset })
}

fn json_of(reader: &Reader<'_>, now_ms: i64) -> Value {
    json!({
        "group_id": reader.group.group_id,
        "committed": reader.offset.committed,
        "lag_records": reader.offset.lag(),
        "lag_seconds": reader.offset.lag_seconds(now_ms),
        "time_unknown": reader.offset.time_unknown,
        "client_id": holder(reader),
    })
}

fn holder<'a>(reader: &Reader<'a>) -> Option<&'a str> {
    let (members, offset) = (&reader.group.members, reader.offset);
    let holder = members
        .iter()
        .find(|member| member.has(&offset.topic, offset.partition));
    holder.map(|member| member.client_id.as_str())
}

fn lead(detail: &PartitionDetail, readers: &[Reader<'_>], now_ms: i64) -> Vec<Piece> {
    let partition = &detail.partition;
    let records = (partition.high_watermark - partition.log_start).max(0);
    let size = partition.bytes.map(|size| format!(" in {}", bytes(size as f64)));
    let mut pieces = vec![
        text("It holds "),
        strong(format!("{} records", count(records as u64))),
        text(size.unwrap_or_default()),
    ];
    pieces.push(text(match &detail.newest_at_ms {
        Ok(Some(at_ms)) => format!("; the newest is {} old.", age(*at_ms, now_ms)),
        Ok(None) | Err(_) => String::from("."),
    }));
    if let Some(why) = &partition.failure {
        pieces.push(text(" It "));
        pieces.push(strong(why.clone()));
        pieces.push(text("."));
    }
    let held_back = detail
        .last_stable
        .as_ref()
        .map_or(0, |stable| partition.high_watermark - stable);
    if held_back > 0 {
        pieces.push(text(" Readers of committed records are "));
        pieces.push(strong(format!(
            "held back by {} offsets",
            count(held_back as u64)
        )));
        pieces.push(text(": a transaction is open."));
    }
    let behind = readers.iter().filter(|reader| reader.offset.lag() > 0).count();
    pieces.push(text(match readers.len() {
        0 => String::from(" No group has committed an offset of it."),
        1 if behind == 1 => String::from(" One group reads it, and is behind."),
        1 => String::from(" One group reads it, and has read everything."),
        all => format!(" {all} groups read it; {behind} of them are behind."),
    }));
    pieces
}

fn age(at_ms: i64, now_ms: i64) -> String {
    duration((now_ms - at_ms).max(0) as f64 / 1e3)
}

fn when(at_ms: i64) -> String {
    format!("{} {}", date(at_ms), clock(at_ms))
}

fn or_why<T>(told: &Told<T>, shown: impl FnOnce(&T) -> String) -> String {
    told.as_ref().map_or_else(ToString::to_string, shown)
}

fn offsets(detail: &PartitionDetail, now_ms: i64) -> Block {
    let note = "In their order: a consumer reads from the log start up to the high watermark, or up to the last stable offset where it reads committed records only.";
    block("offsets", "Offsets", note, |page| {
        let partition = &detail.partition;
        let offset = |offset: i64| count(offset.max(0) as u64);
        let newest = or_why(&detail.newest_at_ms, |newest| match newest {
            None => String::from("no record has a time"),
            Some(at_ms) => format!("{}, {} ago", when(*at_ms), age(*at_ms, now_ms)),
        });
        let size = partition.bytes.map(|size| bytes(size as f64));
        let rows = [
            ("log start", offset(partition.log_start)),
            (
                "last stable offset",
                or_why(&detail.last_stable, |stable| offset(*stable)),
            ),
            ("high watermark", offset(partition.high_watermark)),
            ("log end", offset(partition.log_end)),
            ("leader epoch", or_why(&detail.leader_epoch, i32::to_string)),
            ("newest record", newest),
            ("size", size.unwrap_or_else(|| String::from("–"))),
            (
                "state",
                partition
                    .failure
                    .clone()
                    .unwrap_or_else(|| String::from("served")),
            ),
        ];
        facts(&rows, page);
    })
}

fn groups_block(readers: &[Reader<'_>], view: &View<'_>) -> Block {
    let note = "Those that have committed an offset of it. Held by: the member that has it now.";
    block("groups", "Groups that read it", note, |page| {
        if readers.is_empty() {
            return nothing("No group has committed an offset of it.", page);
        }
        let now_ms = view.source.now_ms();
        let columns = vec![
            words("group"),
            numbers("lag"),
            numbers("records"),
            numbers("committed"),
            words("held by"),
        ];
        let mut table = Table::new("Groups", columns);
        for reader in readers.iter().take(super::ROWS_MAX) {
            let (group_id, lag) = (&reader.group.group_id, Lag::of_partition(reader.offset, now_ms));
            table.row(vec![
                Cell::from(link(address("groups", group_id), name(group_id))),
                lag.seconds().into(),
                lag.records().into(),
                count(reader.offset.committed.max(0) as u64).into(),
                holder(reader).map_or_else(|| String::from("–"), name).into(),
            ]);
        }
        table.draw(page);
        if let Some(more) = readers
            .len()
            .checked_sub(super::ROWS_MAX)
            .filter(|more| *more > 0)
        {
            nothing(&format!("Not shown: {}.", counted(more, "group")), page);
        }
    })
}

fn transactions(detail: &PartitionDetail, (topic, index): (&str, i32), source: &dyn Source) -> Block {
    let note = "Readers of committed records read no further than the first record of the oldest one.";
    block("transactions", "Open transactions", note, |page| {
        let open: Vec<&PartitionProducer> = match &detail.producers {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(producers) => producers
                .iter()
                .filter(|one| one.transaction_from.is_some())
                .collect(),
        };
        if open.is_empty() {
            return nothing("None is open.", page);
        }
        let known = source.transactions().unwrap_or_default();
        let now_ms = source.now_ms();
        let place = format!("{topic} {index}");
        let of = |producer_id: i64| {
            let is_it =
                |one: &&OpenTransaction| one.producer_id == producer_id && one.partitions.contains(&place);
            known.iter().find(is_it)
        };
        let columns = vec![
            words("transactional id"),
            numbers("producer id"),
            numbers("from offset"),
            words("state"),
            words("open for"),
        ];
        let mut table = Table::new("Open transactions", columns);
        for producer in open.into_iter().take(super::ROWS_MAX) {
            let transaction = of(producer.producer_id);
            let since_ms = transaction.and_then(|transaction| transaction.since_ms);
            let dash = || String::from("–");
            table.row(vec![
                transaction
                    .map_or_else(dash, |one| name(&one.transactional_id))
                    .into(),
                producer.producer_id.to_string().into(),
                producer
                    .transaction_from
                    .map_or_else(dash, |from| count(from.max(0) as u64))
                    .into(),
                transaction.map_or_else(dash, |one| one.state.clone()).into(),
                since_ms
                    .map_or_else(dash, |since_ms| age(since_ms, now_ms))
                    .into(),
            ]);
        }
        table.draw(page);
    })
}

fn producers(detail: &PartitionDetail, now_ms: i64) -> Block {
    let note = "Idempotent and transactional producers that it remembers (producer.id.expiration.ms), to tell a retry from a new batch. Others leave nothing.";
    block("producers", "Producers", note, |page| {
        let producers = match &detail.producers {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(none) if none.is_empty() => return nothing("It remembers none.", page),
            Ok(producers) => producers,
        };
        let columns = vec![
            numbers("producer id"),
            numbers("epoch"),
            numbers("last sequence"),
            words("last batch"),
        ];
        let mut table = Table::new("Producers", columns);
        for producer in producers.iter().take(PRODUCERS_MAX) {
            let last = producer
                .last_at_ms
                .map(|at_ms| format!("{} ago", age(at_ms, now_ms)));
            table.row(vec![
                producer.producer_id.to_string().into(),
                producer.producer_epoch.to_string().into(),
                producer.last_sequence.to_string().into(),
                last.unwrap_or_else(|| String::from("–")).into(),
            ]);
        }
        table.draw(page);
        let more = producers.len().saturating_sub(PRODUCERS_MAX) + detail.producers_cut;
        if more > 0 {
            nothing(&format!("Not shown: {}.", counted(more, "producer")), page);
        }
    })
}

fn segments(detail: &PartitionDetail, view: &View<'_>) -> Block {
    let note = "Newest first; the first one is written to. Retention deletes whole segments, by the newest timestamp in them or by size.";
    block("segments", "Segments on the disk", note, |page| {
        let segments = match &detail.segments {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(segments) => segments,
        };
        let columns = vec![
            numbers("base offset"),
            numbers("size"),
            words("size"),
            words("newest record"),
        ];
        let most = segments
            .iter()
            .map(|segment| segment.bytes)
            .max()
            .unwrap_or(0)
            .max(1);
        let mut table = Table::new("Segments", columns);
        let (shown, text) = paged(segments, view.query, "segments");
        for segment in shown {
            table.row(vec![
                count(segment.base_offset.max(0) as u64).into(),
                bytes(segment.bytes as f64).into(),
                Cell::Bar {
                    share: segment.bytes as f64 / most as f64,
                    is_bad: false,
                },
                segment
                    .newest_at_ms
                    .map_or_else(|| String::from("–"), when)
                    .into(),
            ]);
        }
        table.draw(page);
        draw_pager(&text, view.query, segments.len(), page);
        if detail.segments_cut > 0 {
            nothing(
                &format!("Not shown: {}.", counted(detail.segments_cut, "older segment")),
                page,
            );
        }
    })
}

/// The address of the page of a partition.
pub fn address_of(topic: &str, index: i32) -> String {
    format!("/topics/{}/{index}", encoded(topic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_the_number_of_a_partition() {
        let indexes = ["0", "12", "", "-1", "+1", "1 ", "x", "2147483648", "٣"].map(index_of);
        assert_eq!(indexes[..2], [Some(0), Some(12)]);
        assert!(indexes[2..].iter().all(Option::is_none), "{indexes:?}");
    }
}
