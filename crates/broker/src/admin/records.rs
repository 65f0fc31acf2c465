//! A look into a partition: a few records, decoded, and the time of the record at an offset.
//! Everything here waits for the disk, and is called on threads that may.

use ottla_core::node::Node;
use ottla_log::{Bound, LogReader, Lookup, Read, ReadMode};
use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES, batches};
use ottla_wire::records::compression::{Codec, decompress};
use ottla_wire::records::record::{Record, Records};

/// Bytes that are read for one look, unless the first batch is larger.
const READ_BYTES_MAX: u32 = 1 << 20;

/// Bytes of one batch, as it lies in the log and decompressed.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Bytes of all fields of one look, unless a single one may be longer.
const LOOK_BYTES_MAX: usize = 2 << 20;

/// Records that are compared in one look.
pub const COMPARED_MAX: usize = 10_000;

/// What to look for.
pub struct LookFor<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub from: LookFrom,
    /// A record that is not wanted is not returned.
    pub is_wanted: &'a dyn Fn(&Record<'_>) -> bool,
    pub records_max: usize,
    /// Bytes of a key or a value that are returned.
    pub field_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookFrom {
    /// This many offsets before the end, but not before an offset.
    Tail {
        offsets: i64,
        not_before: i64,
    },
    Offset(i64),
    /// The first record that is not older; milliseconds since 1970.
    Time(i64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub partition_count: usize,
    pub log_start: i64,
    /// The high watermark: consumers read below it.
    pub end: i64,
    /// The first offset that was looked at.
    pub from_offset: i64,
    pub records: Vec<LookedRecord>,
    /// Records that were compared.
    pub looked_at: usize,
    /// The offset behind the last one that was looked at.
    pub next_offset: i64,
    /// Why the list ends before it is full.
    pub note: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedRecord {
    pub offset: i64,
    pub timestamp_ms: i64,
    /// Cut to what was asked for.
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub codec: &'static str,
    pub producer_id: Option<i64>,
}

/// Returns records of one region of the log.
///
/// - Errors: there is no such partition, or it cannot be read; in words.
pub fn look(node: &Node, ask: &LookFor<'_>) -> Result<Look, String> {
    let image = node.image();
    let partition_count = image.topic(ask.topic).map_or(0, |topic| topic.partitions.len());
    drop(image);
    let partition = ask.partition;
    let found = node.storage.partition_by_name(ask.topic, partition);
    let found =
        found.map_err(|_| format!("there is no partition {partition}; the topic has {partition_count}"))?;
    let view = found.view();
    let (start, end) = (view.offsets.start, view.offsets.high_watermark);
    let from = match ask.from {
        LookFrom::Tail { offsets, not_before } => end.saturating_sub(offsets).max(not_before),
        LookFrom::Offset(offset) => offset,
        LookFrom::Time(at_ms) => offset_at(&view.reader, at_ms, view.bound)?.unwrap_or(end),
    };
    let from = from.max(start);
    let mut look = Look {
        partition_count,
        log_start: start,
        end,
        from_offset: from,
        next_offset: from,
        ..Look::default()
    };
    if from >= end {
        return Ok(look);
    }
    let read = view
        .reader
        .read(from, READ_BYTES_MAX, true, view.bound, ReadMode::Blocking);
    let region = match read.map_err(|error| error.to_string())? {
        Read::Region(read) => read.region,
        Read::Empty | Read::WouldBlock => return Ok(look),
    };
    let bytes = usize::try_from(region.bytes).unwrap_or(usize::MAX);
    if bytes > BATCH_BYTES_MAX {
        look.note = Some(format!(
            "the batch at offset {from} has {bytes} bytes, too many to show"
        ));
        return Ok(look);
    }
    let mut buffer = vec![0; bytes];
    let filled = region
        .file
        .read_at(&mut buffer, region.position)
        .map_err(|error| error.to_string())?;
    let mut budget = LOOK_BYTES_MAX.max(ask.field_bytes_max);
    for batch in batches(&buffer[..filled]) {
        // The last one may be cut.
        let Ok(batch) = batch else { break };
        match decode(&batch, from, ask, &mut budget, &mut look) {
            Ok(true) => look.next_offset = look.next_offset.max(batch.header.next_offset()),
            Ok(false) => break,
            Err(note) => {
                look.note = Some(note);
                break;
            }
        }
    }
    Ok(look)
}

/// `None`: every record is older.
fn offset_at(reader: &LogReader, at_ms: i64, bound: Bound) -> Result<Option<i64>, String> {
    let found = reader.offset_for_timestamp(at_ms, bound, ReadMode::Blocking);
    Ok(match found.map_err(|error| error.to_string())? {
        Lookup::Found(found) => Some(found.offset),
        Lookup::Nothing | Lookup::WouldBlock => None,
    })
}

/// Adds the wanted records of a batch; returns whether there is room for more.
///
/// - Errors: why no later one can be added.
fn decode(
    batch: &Batch<'_>,
    from: i64,
    ask: &LookFor<'_>,
    budget: &mut usize,
    look: &mut Look,
) -> Result<bool, String> {
    let header = &batch.header;
    if header.is_control() {
        return Ok(true);
    }
    let codec = header
        .compression()
        .ok_or_else(|| format!("the batch at offset {} has an unknown codec", header.base_offset))?;
    let mut unfolded = Vec::new();
    let bytes = match codec {
        Codec::None => batch.record_bytes(),
        codec => {
            let done = decompress(codec, batch.record_bytes(), BATCH_BYTES_MAX, &mut unfolded);
            done.map_err(|error| format!("the batch at offset {}: {error}", header.base_offset))?;
            &unfolded
        }
    };
    for record in Records::new(header, bytes) {
        let record =
            record.map_err(|error| format!("the batch at offset {}: {error}", header.base_offset))?;
        if record.offset < from {
            continue;
        }
        if look.records.len() >= ask.records_max || look.looked_at >= COMPARED_MAX {
            return Ok(false);
        }
        if (ask.is_wanted)(&record) {
            add(
                looked(&record, header, codec, ask.field_bytes_max),
                budget,
                &mut look.records,
            )?;
        }
        look.looked_at += 1;
        look.next_offset = record.offset + 1;
    }
    Ok(true)
}

fn add(looked: LookedRecord, budget: &mut usize, into: &mut Vec<LookedRecord>) -> Result<(), String> {
    let size = looked.key.as_ref().map_or(0, Vec::len) + looked.value.as_ref().map_or(0, Vec::len);
    if size > *budget {
        return Err(String::from(
            "the next record is too large to be shown with those above; ask for its offset",
        ));
    }
    *budget -= size;
    into.push(looked);
    Ok(())
}

fn looked(record: &Record<'_>, header: &BatchHeader, codec: Codec, bytes_max: usize) -> LookedRecord {
    const HEADERS_MAX: usize = 32;
    let cut = |field: &[u8]| field[..field.len().min(bytes_max)].to_vec();
    let short = |field: &[u8]| field[..field.len().min(1_024)].to_vec();
    let headers = record.headers.iter().take(HEADERS_MAX);
    LookedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.map(cut),
        value: record.value.map(cut),
        key_bytes: record.key.map_or(0, <[u8]>::len),
        value_bytes: record.value.map_or(0, <[u8]>::len),
        headers: headers
            .map(|header| {
                (
                    String::from_utf8_lossy(&short(header.key)).into_owned(),
                    header.value.map(short),
                )
            })
            .collect(),
        codec: codec.name(),
        producer_id: header.has_producer_id().then_some(header.producer_id),
    }
}

/// Why the time of a record is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTime {
    /// It would have to be read from the disk, or cannot be read.
    NotInMemory,
    /// Its producer gave it none.
    NotSet,
}

/// The first timestamp of the batch that holds `offset`: the time of that record, if it is the
/// first one, and at most a batch too early otherwise. Does not wait for the device, which a list
/// of many groups must not do.
pub fn timestamp_at(node: &Node, topic: &str, partition: i32, offset: i64) -> Result<i64, NoTime> {
    let (header, offset) = header_at(node, topic, partition, offset).ok_or(NoTime::NotInMemory)?;
    let timestamp_ms = match header.base_offset == offset {
        true => header.base_timestamp,
        // Within the batch: the records' times lie between the first and the largest.
        false => within(&header, offset),
    };
    (timestamp_ms > 0).then_some(timestamp_ms).ok_or(NoTime::NotSet)
}

/// The header of the batch that holds `offset` or the first offset behind it, with that offset.
fn header_at(node: &Node, topic: &str, partition: i32, offset: i64) -> Option<(BatchHeader, i64)> {
    let found = node.storage.partition_by_name(topic, partition).ok()?;
    let view = found.view();
    let offset = offset.max(view.offsets.start);
    let bound: Bound = view.bound;
    let read = view
        .reader
        .read(offset, HEADER_BYTES as u32, true, bound, ReadMode::Resident)
        .ok()?;
    let Read::Region(read) = read else { return None };
    let mut bytes = [0; HEADER_BYTES];
    let filled = read
        .region
        .file
        .read_at_resident(&mut bytes, read.region.position)
        .ok()?;
    Some((BatchHeader::parse(&bytes[..filled]).ok()?, offset))
}

/// The time of a record inside its batch, as if records came at even distances.
fn within(header: &BatchHeader, offset: i64) -> i64 {
    let span = (header.max_timestamp - header.base_timestamp).max(0);
    let records = i64::from(header.last_offset_delta).max(1);
    header.base_timestamp + span * (offset - header.base_offset).clamp(0, records) / records
}
