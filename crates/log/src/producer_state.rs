//! The state of each idempotent producer: enough to detect a duplicate or a missing batch (KIP-98).

use std::collections::{BTreeMap, VecDeque};

use ottla_wire::records::batch::{BatchHeader, NO_PRODUCER_EPOCH, NO_SEQUENCE, add_to_sequence};
use ottla_wire::records::crc32c;

use crate::error::AppendError;
use crate::origin::{Origin, Ticket};
use crate::reader::SegmentPosition;

/// A client may have this many batches in flight and still rely on order (KIP-98), so this many may
/// be retried.
const REMEMBERED_BATCHES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RememberedBatch {
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
    timestamp: i64,
}

impl RememberedBatch {
    fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        // Sequence numbers wrap at 2^31.
        i32::try_from(first & 0x7FFF_FFFF).expect("31 bits fit")
    }

    fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ProducerEntry {
    producer_epoch: i16,
    /// Oldest first.
    batches: VecDeque<RememberedBatch>,
    coordinator_epoch: i32,
    last_timestamp: i64,
    transaction_first_offset: Option<i64>,
    /// Tickets that were taken below this offset are withdrawn. Not stored: no ticket outlives the
    /// process.
    tickets_from: i64,
}

impl ProducerEntry {
    fn empty(producer_epoch: i16) -> ProducerEntry {
        ProducerEntry {
            producer_epoch,
            batches: VecDeque::new(),
            coordinator_epoch: -1,
            last_timestamp: -1,
            transaction_first_offset: None,
            tickets_from: 0,
        }
    }

    fn last_sequence(&self) -> i32 {
        self.batches
            .back()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    fn is_in_transaction(&self, producer_epoch: i16) -> bool {
        self.producer_epoch == producer_epoch && self.transaction_first_offset.is_some()
    }

    fn check_epoch(&self, header: &BatchHeader) -> Result<(), AppendError> {
        if header.producer_epoch < self.producer_epoch {
            return Err(AppendError::InvalidProducerEpoch {
                producer_id: header.producer_id,
                known_epoch: self.producer_epoch,
                epoch: header.producer_epoch,
            });
        }
        Ok(())
    }

    fn raise_epoch(&mut self, producer_epoch: i16) {
        if self.producer_epoch != producer_epoch {
            self.batches.clear();
            self.producer_epoch = producer_epoch;
        }
    }
}

/// One producer as reported by DescribeProducers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    /// -1: no open transaction.
    pub transaction_first_offset: i64,
}

/// The decision about a batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Append,
    /// It is already in the log, at these offsets.
    Duplicate {
        base_offset: i64,
        last_offset: i64,
        timestamp: i64,
    },
}

/// The type and coordinator epoch of a transaction marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub committed: bool,
    pub coordinator_epoch: i32,
}

/// A transaction that a marker has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    pub aborted: bool,
}

/// Where a transaction begins in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// `None`: it began before the log was opened, and a snapshot does not tell.
    pub position: Option<SegmentPosition>,
    /// Bytes that had been appended since the log was opened.
    pub appended_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    beginning: Beginning,
    last_offset: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerState {
    entries: BTreeMap<i64, ProducerEntry>,
    /// By first offset.
    open_transactions: BTreeMap<i64, Beginning>,
    /// Transactions that ended at or above the last known high watermark, by first offset.
    ended_transactions: BTreeMap<i64, Ended>,
}

impl ProducerState {
    /// Decides about a data batch. Changes nothing.
    pub fn check(&self, header: &BatchHeader, origin: Origin) -> Result<Verdict, AppendError> {
        let producer_id = header.producer_id;
        let entry = self.entries.get(&producer_id);
        if let Some(entry) = entry {
            // The stale epoch comes first, before sequences and transactions, as in Apache Kafka.
            entry.check_epoch(header)?;
            if origin.has_sequences()
                && header.producer_epoch == entry.producer_epoch
                && let Some(batch) = find_duplicate(entry, header)
            {
                return Ok(Verdict::Duplicate {
                    base_offset: batch.first_offset(),
                    last_offset: batch.last_offset,
                    timestamp: batch.timestamp,
                });
            }
        }
        if header.is_transactional() && !origin.is_verified() {
            check_ticket(entry, header, origin.ticket())?;
        }
        let Some(entry) = entry else {
            return check_first_sequence(header, origin.ticket());
        };
        if origin.has_sequences() {
            check_sequence(entry, header)?;
        }
        if entry.transaction_first_offset.is_some() && !header.is_transactional() {
            return Err(AppendError::InvalidTransactionState { producer_id });
        }
        Ok(Verdict::Append)
    }

    /// Decides about a transaction marker. Changes nothing.
    pub fn check_marker(
        &self,
        header: &BatchHeader,
        marker: Marker,
        origin: Origin,
    ) -> Result<(), AppendError> {
        let producer_id = header.producer_id;
        let Some(entry) = self.entries.get(&producer_id) else {
            return Ok(());
        };
        entry.check_epoch(header)?;
        // KIP-890: the marker of a transaction with an epoch of its own raises it. An equal epoch
        // is a marker that is written again, as long as nothing is open that it could end by
        // mistake; the last epoch cannot be raised.
        let is_late = origin.has_own_epoch()
            && header.producer_epoch == entry.producer_epoch
            && header.producer_epoch != i16::MAX
            && entry.transaction_first_offset.is_some();
        if is_late {
            return Err(AppendError::InvalidProducerEpoch {
                producer_id,
                known_epoch: entry.producer_epoch,
                epoch: header.producer_epoch,
            });
        }
        if marker.coordinator_epoch < entry.coordinator_epoch {
            return Err(AppendError::CoordinatorFenced {
                producer_id,
                known_epoch: entry.coordinator_epoch,
                epoch: marker.coordinator_epoch,
            });
        }
        Ok(())
    }

    pub fn has_open_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        let entry = self.entries.get(&producer_id);
        entry.is_some_and(|entry| entry.is_in_transaction(producer_epoch))
    }

    /// Withdraws the tickets that a producer took before `marker_offset`. Not needed where the
    /// marker raised the epoch, which fences late batches and belongs to the next transaction.
    pub fn withdraw_tickets(&mut self, producer_id: i64, marker_offset: i64) {
        if let Some(entry) = self.entries.get_mut(&producer_id) {
            entry.tickets_from = marker_offset + 1;
        }
    }

    /// Notes a data batch that is in the log, with offsets assigned.
    ///
    /// - `place`: where it is, in case it begins a transaction.
    pub fn note_batch(&mut self, header: &BatchHeader, place: Beginning) {
        let producer_id = header.producer_id;
        let entry = self
            .entries
            .entry(producer_id)
            .or_insert_with(|| ProducerEntry::empty(header.producer_epoch));
        entry.raise_epoch(header.producer_epoch);
        if entry.batches.len() == REMEMBERED_BATCHES {
            entry.batches.pop_front();
        }
        entry.batches.push_back(RememberedBatch {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
        entry.last_timestamp = header.max_timestamp;
        if header.is_transactional() && entry.transaction_first_offset.is_none() {
            entry.transaction_first_offset = Some(header.base_offset);
            self.open_transactions.insert(header.base_offset, place);
        }
    }

    /// Notes a transaction marker that is in the log. `None` if the producer had no open
    /// transaction.
    pub fn note_marker(&mut self, header: &BatchHeader, marker: Marker) -> Option<CompletedTransaction> {
        let producer_id = header.producer_id;
        let entry = self
            .entries
            .entry(producer_id)
            .or_insert_with(|| ProducerEntry::empty(header.producer_epoch));
        entry.raise_epoch(header.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = header.max_timestamp;
        let first_offset = entry.transaction_first_offset.take()?;
        let beginning = self.open_transactions.remove(&first_offset).unwrap_or_default();
        let last_offset = header.last_offset();
        self.ended_transactions.insert(
            first_offset,
            Ended {
                beginning,
                last_offset,
            },
        );
        Some(CompletedTransaction {
            producer_id,
            first_offset,
            last_offset,
            aborted: !marker.committed,
        })
    }

    /// Returns the first offset of a transaction that has not ended below `bound`, and where it is.
    pub fn first_unstable(&self, bound: i64) -> Option<(i64, Beginning)> {
        let open = self.open_transactions.first_key_value();
        let open = open.map(|(first, beginning)| (*first, *beginning));
        let ended = self
            .ended_transactions
            .iter()
            .find(|(_, ended)| ended.last_offset >= bound);
        let ended = ended.map(|(first, ended)| (*first, ended.beginning));
        [open, ended]
            .into_iter()
            .flatten()
            .min_by_key(|(first, _)| *first)
    }

    /// Returns the offset below which every transaction has ended with its end below `bound`.
    pub fn last_stable_offset(&self, bound: i64) -> i64 {
        self.first_unstable(bound)
            .map_or(bound, |(first, _)| first.min(bound))
    }

    /// Returns the last stable offset after `completed` ends, for the transaction index.
    pub fn stable_after(&self, completed: &CompletedTransaction) -> i64 {
        self.open_transactions
            .keys()
            .find(|first| **first != completed.first_offset)
            .copied()
            .unwrap_or(completed.last_offset + 1)
    }

    /// Removes transactions that ended below the high watermark.
    pub fn forget_ended_below(&mut self, high_watermark: i64) {
        self.ended_transactions
            .retain(|_, ended| ended.last_offset >= high_watermark);
    }

    /// Removes producers that wrote nothing for `expiration_ms` and have no open transaction;
    /// returns how many.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| {
            entry.transaction_first_offset.is_some()
                || now_ms.saturating_sub(entry.last_timestamp) < expiration_ms
        });
        before - self.entries.len()
    }

    pub fn has_open_transactions(&self) -> bool {
        !self.open_transactions.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the largest producer id below `limit`.
    pub fn largest_producer_id(&self, limit: i64) -> Option<i64> {
        self.entries.range(..limit).next_back().map(|(id, _)| *id)
    }

    pub fn producers(&self) -> impl Iterator<Item = ActiveProducer> {
        self.entries.iter().map(|(producer_id, entry)| ActiveProducer {
            producer_id: *producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_sequence(),
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            transaction_first_offset: entry.transaction_first_offset.unwrap_or(-1),
        })
    }

    /// Returns the last offset of a producer's last data batch; compaction must keep that batch.
    pub fn last_data_offset(&self, producer_id: i64) -> Option<i64> {
        self.entries
            .get(&producer_id)?
            .batches
            .back()
            .map(|batch| batch.last_offset)
    }

    /// Whether it holds facts at or behind `offset`.
    pub fn reaches(&self, offset: i64) -> bool {
        let last = |entry: &ProducerEntry| entry.batches.back().map_or(-1, |batch| batch.last_offset);
        let mut entries = self.entries.values();
        entries.any(|entry| last(entry).max(entry.transaction_first_offset.unwrap_or(-1)) >= offset)
    }

    /// Whether it can be the state behind `header`, the newest batch of its producer in the log.
    ///
    /// - `has_gaps`: a newer batch may have been compacted away.
    pub fn knows(&self, header: &BatchHeader, has_gaps: bool) -> bool {
        let Some(entry) = self.entries.get(&header.producer_id) else {
            return false;
        };
        let is_open = entry.transaction_first_offset.is_some();
        if header.is_control() {
            return has_gaps || !is_open && entry.producer_epoch >= header.producer_epoch;
        }
        let last_offset = entry.batches.back().map(|batch| batch.last_offset);
        let is_newer = entry.producer_epoch > header.producer_epoch;
        (is_newer && has_gaps || last_offset >= Some(header.last_offset()))
            && (has_gaps || is_open == header.is_transactional())
    }

    /// Restores one older batch of a producer. A snapshot keeps only each producer's last batch;
    /// headers in the log just below it restore the others, so that a client's retry of several
    /// batches is still detected after a restart. Call from newest to oldest.
    pub fn recall_older_batch(&mut self, header: &BatchHeader) {
        let Some(entry) = self.entries.get_mut(&header.producer_id) else {
            return;
        };
        if header.producer_epoch != entry.producer_epoch || entry.batches.len() >= REMEMBERED_BATCHES {
            return;
        }
        let Some(oldest) = entry.batches.front() else {
            return;
        };
        let follows =
            i64::from(add_to_sequence(header.last_sequence(), 1)) == i64::from(oldest.first_sequence());
        if header.last_offset() < oldest.first_offset() && follows {
            entry.batches.push_front(RememberedBatch {
                last_sequence: header.last_sequence(),
                last_offset: header.last_offset(),
                offset_delta: header.last_offset_delta,
                timestamp: header.max_timestamp,
            });
        }
    }
}

fn find_duplicate<'a>(entry: &'a ProducerEntry, header: &BatchHeader) -> Option<&'a RememberedBatch> {
    let last_sequence = header.last_sequence();
    entry
        .batches
        .iter()
        .find(|batch| batch.first_sequence() == header.base_sequence && batch.last_sequence == last_sequence)
}

/// KIP-890: a batch that would begin a transaction must have been admitted, and no marker of its
/// producer may have been written since.
fn check_ticket(
    entry: Option<&ProducerEntry>,
    header: &BatchHeader,
    ticket: Option<Ticket>,
) -> Result<(), AppendError> {
    if entry.is_some_and(|entry| entry.is_in_transaction(header.producer_epoch)) {
        return Ok(());
    }
    let tickets_from = entry.map_or(0, |entry| entry.tickets_from);
    match ticket {
        Some(ticket) if ticket.log_end >= tickets_from => Ok(()),
        _ => Err(AppendError::InvalidTransactionState {
            producer_id: header.producer_id,
        }),
    }
}

/// A producer without history here may begin anywhere, because retention may have removed what it
/// wrote (KIP-360), unless its ticket says otherwise.
fn check_first_sequence(header: &BatchHeader, ticket: Option<Ticket>) -> Result<Verdict, AppendError> {
    if header.base_sequence > 0 && ticket.is_some_and(|ticket| ticket.begins_at_zero) {
        return Err(AppendError::OutOfOrderSequence {
            producer_id: header.producer_id,
            last_sequence: NO_SEQUENCE,
            base_sequence: header.base_sequence,
        });
    }
    Ok(Verdict::Append)
}

fn check_sequence(entry: &ProducerEntry, header: &BatchHeader) -> Result<(), AppendError> {
    let last_sequence = if header.producer_epoch == entry.producer_epoch {
        entry.last_sequence()
    } else if entry.producer_epoch == NO_PRODUCER_EPOCH {
        return Ok(());
    } else {
        // A new epoch begins at sequence 0.
        NO_SEQUENCE
    };
    let expected = if last_sequence == i32::MAX {
        0
    } else {
        last_sequence + 1
    };
    if header.base_sequence == expected {
        Ok(())
    } else {
        Err(AppendError::OutOfOrderSequence {
            producer_id: header.producer_id,
            last_sequence,
            base_sequence: header.base_sequence,
        })
    }
}

/// Version 2, CRC 4, count 4.
const SNAPSHOT_HEADER_BYTES: usize = 2 + 4 + 4;
/// Producer id 8, epoch 2, last sequence 4, last offset 8, offset delta 4, timestamp 8, coordinator
/// epoch 4, first offset of the open transaction 8.
const SNAPSHOT_ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
const SNAPSHOT_VERSION: i16 = 1;
/// The checksum covers the bytes after it.
const SNAPSHOT_CRC_END: usize = 2 + 4;

impl ProducerState {
    /// Encodes the `.snapshot` file.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEADER_BYTES + self.entries.len() * SNAPSHOT_ENTRY_BYTES);
        bytes.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let count = i32::try_from(self.entries.len()).expect("fewer than 2^31 producers");
        bytes.extend_from_slice(&count.to_be_bytes());
        for (producer_id, entry) in &self.entries {
            let last = entry.batches.back();
            bytes.extend_from_slice(&producer_id.to_be_bytes());
            bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
            bytes.extend_from_slice(&entry.last_sequence().to_be_bytes());
            bytes.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset).to_be_bytes());
            bytes.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
            bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
            bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            bytes.extend_from_slice(&entry.transaction_first_offset.unwrap_or(-1).to_be_bytes());
        }
        let checksum = crc32c::checksum(&bytes[SNAPSHOT_CRC_END..]);
        bytes[2..SNAPSHOT_CRC_END].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes a `.snapshot` file; `Err` says what is wrong with it.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<ProducerState, String> {
        if bytes.len() < SNAPSHOT_HEADER_BYTES {
            return Err(format!("{} bytes are too few", bytes.len()));
        }
        let mut fields = Fields(bytes);
        let version = i16::from_be_bytes(fields.take());
        if version != SNAPSHOT_VERSION {
            return Err(format!("version {version} is not {SNAPSHOT_VERSION}"));
        }
        let expected = u32::from_be_bytes(fields.take());
        let actual = crc32c::checksum(&bytes[SNAPSHOT_CRC_END..]);
        if expected != actual {
            return Err(format!("checksum is {actual:#010x}, file says {expected:#010x}"));
        }
        let count = i32::from_be_bytes(fields.take());
        if usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(SNAPSHOT_ENTRY_BYTES))
            != Some(fields.0.len())
        {
            return Err(format!("{count} entries do not fill {} bytes", fields.0.len()));
        }
        let mut state = ProducerState::default();
        for _ in 0..count {
            state.decode_entry(&mut fields);
        }
        Ok(state)
    }

    fn decode_entry(&mut self, fields: &mut Fields<'_>) {
        let producer_id = i64::from_be_bytes(fields.take());
        let mut entry = ProducerEntry::empty(i16::from_be_bytes(fields.take()));
        let last_sequence = i32::from_be_bytes(fields.take());
        let last_offset = i64::from_be_bytes(fields.take());
        let offset_delta = i32::from_be_bytes(fields.take());
        entry.last_timestamp = i64::from_be_bytes(fields.take());
        entry.coordinator_epoch = i32::from_be_bytes(fields.take());
        let transaction_first_offset = i64::from_be_bytes(fields.take());
        if last_offset >= 0 {
            let timestamp = entry.last_timestamp;
            entry.batches.push_back(RememberedBatch {
                last_sequence,
                last_offset,
                offset_delta,
                timestamp,
            });
        }
        if transaction_first_offset >= 0 {
            entry.transaction_first_offset = Some(transaction_first_offset);
            self.open_transactions
                .insert(transaction_first_offset, Beginning::default());
        }
        self.entries.insert(producer_id, entry);
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().expect("the length was checked");
        self.0 = rest;
        *field
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::records::batch::attributes;

    const CLIENT: Origin = Origin::Client(None);
    const HERE: Beginning = Beginning {
        position: None,
        appended_bytes: 0,
    };

    fn batch(producer_epoch: i16, base_sequence: i32, record_count: i32, base_offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            batch_length: 100,
            leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: 0,
            last_offset_delta: record_count - 1,
            base_timestamp: 1000,
            max_timestamp: 1000,
            producer_id: 7,
            producer_epoch,
            base_sequence,
            record_count,
        }
    }

    fn transactional(mut header: BatchHeader) -> BatchHeader {
        header.attributes |= attributes::TRANSACTIONAL;
        header
    }

    #[test]
    fn a_duplicate_batch_gets_its_first_offsets_up_to_five_batches_later() {
        let mut state = ProducerState::default();
        for index in 0..6 {
            state.note_batch(&batch(0, index * 2, 2, i64::from(index) * 2), HERE);
        }
        let verdict = state.check(&batch(0, 2, 2, 99), CLIENT).expect("within five");
        assert_eq!(
            verdict,
            Verdict::Duplicate {
                base_offset: 2,
                last_offset: 3,
                timestamp: 1000
            }
        );
        assert!(matches!(
            state.check(&batch(0, 0, 2, 99), CLIENT),
            Err(AppendError::OutOfOrderSequence { .. })
        ));
    }

    #[test]
    fn a_gap_is_refused_and_the_next_sequence_accepted() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(0, 0, 3, 0), HERE);
        assert!(matches!(
            state.check(&batch(0, 4, 1, 3), CLIENT),
            Err(AppendError::OutOfOrderSequence {
                last_sequence: 2,
                base_sequence: 4,
                ..
            })
        ));
        assert_eq!(
            state.check(&batch(0, 3, 1, 3), CLIENT).expect("next"),
            Verdict::Append
        );
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(0, i32::MAX - 1, 2, 0), HERE);
        assert_eq!(
            state.check(&batch(0, 0, 1, 2), CLIENT).expect("wrapped"),
            Verdict::Append
        );
        let across = batch(0, i32::MAX, 3, 0);
        let mut state = ProducerState::default();
        state.note_batch(&across, HERE);
        assert!(matches!(
            state.check(&across, CLIENT),
            Ok(Verdict::Duplicate { .. })
        ));
        assert_eq!(
            state.check(&batch(0, 2, 1, 3), CLIENT).expect("after the wrap"),
            Verdict::Append
        );
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old_one() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(3, 0, 1, 0), HERE);
        assert!(matches!(
            state.check(&batch(4, 5, 1, 1), CLIENT),
            Err(AppendError::OutOfOrderSequence { .. })
        ));
        assert_eq!(
            state.check(&batch(4, 0, 1, 1), CLIENT).expect("new epoch"),
            Verdict::Append
        );
        state.note_batch(&batch(4, 0, 1, 1), HERE);
        assert!(matches!(
            state.check(&batch(3, 1, 1, 2), CLIENT),
            Err(AppendError::InvalidProducerEpoch {
                known_epoch: 4,
                epoch: 3,
                ..
            })
        ));
    }

    #[test]
    fn an_unknown_producer_may_begin_anywhere() {
        assert_eq!(
            ProducerState::default()
                .check(&batch(0, 77, 1, 0), CLIENT)
                .expect("unknown"),
            Verdict::Append
        );
    }

    #[test]
    fn the_last_stable_offset_waits_for_open_transactions_and_for_the_watermark() {
        let mut state = ProducerState::default();
        state.note_batch(&transactional(batch(0, 0, 5, 10)), HERE);
        assert_eq!(state.last_stable_offset(100), 10);
        let marker = Marker {
            committed: false,
            coordinator_epoch: 2,
        };
        let completed = state.note_marker(&batch(0, -1, 1, 15), marker).expect("was open");
        assert_eq!(
            (completed.first_offset, completed.last_offset, completed.aborted),
            (10, 15, true)
        );
        assert_eq!(state.last_stable_offset(12), 10);
        assert_eq!(state.last_stable_offset(15), 10);
        assert_eq!(state.last_stable_offset(16), 16);
        state.forget_ended_below(16);
        assert_eq!(state.last_stable_offset(16), 16);
        assert!(matches!(
            state.check_marker(
                &batch(0, -1, 1, 16),
                Marker {
                    committed: true,
                    coordinator_epoch: 1
                },
                Origin::Broker
            ),
            Err(AppendError::CoordinatorFenced {
                known_epoch: 2,
                epoch: 1,
                ..
            })
        ));
    }

    #[test]
    fn a_snapshot_restores_the_last_batch_and_the_open_transaction() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(1, 0, 2, 0), HERE);
        state.note_batch(&transactional(batch(1, 2, 2, 2)), HERE);
        let bytes = state.encode_snapshot();
        assert_eq!(bytes.len(), 10 + 46);
        let mut loaded = ProducerState::decode_snapshot(&bytes).expect("own bytes");
        assert_eq!(loaded.last_stable_offset(50), 2);
        assert!(matches!(
            loaded.check(&batch(1, 2, 2, 9), CLIENT),
            Ok(Verdict::Duplicate { base_offset: 2, .. })
        ));
        assert!(loaded.check(&batch(1, 0, 2, 9), CLIENT).is_err());
        loaded.recall_older_batch(&batch(1, 0, 2, 0));
        assert!(matches!(
            loaded.check(&batch(1, 0, 2, 9), CLIENT),
            Ok(Verdict::Duplicate { base_offset: 0, .. })
        ));
    }

    #[test]
    fn a_snapshot_of_no_producers_is_one() {
        let none = ProducerState::default();
        assert_eq!(ProducerState::decode_snapshot(&none.encode_snapshot()), Ok(none));
    }

    #[test]
    fn only_the_same_batch_again_is_a_duplicate() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(0, 0, 2, 0), HERE);
        for (base_sequence, record_count) in [(0, 3), (0, 1), (1, 1)] {
            let other = state.check(&batch(0, base_sequence, record_count, 2), CLIENT);
            assert!(
                matches!(other, Err(AppendError::OutOfOrderSequence { .. })),
                "{base_sequence}, {record_count}: {other:?}"
            );
        }
    }

    /// The state after one batch of epoch 1, sequences 4 and 5 at the offsets 14 and 15.
    fn of_a_snapshot() -> ProducerState {
        let mut state = ProducerState::default();
        state.note_batch(&batch(1, 4, 2, 14), HERE);
        state
    }

    #[test]
    fn only_batches_that_precede_what_is_remembered_are_recalled() {
        let is_recalled = |state: &mut ProducerState, older: BatchHeader| {
            let before = state.clone();
            state.recall_older_batch(&older);
            *state != before
        };
        assert!(is_recalled(&mut of_a_snapshot(), batch(1, 2, 2, 12)));
        let wrong = [
            ("of another epoch", batch(0, 2, 2, 12)),
            ("with a gap behind it", batch(1, 1, 2, 12)),
            ("that begins where the other does", batch(1, 4, 2, 12)),
            ("behind the other", batch(1, 2, 2, 16)),
        ];
        for (what, older) in wrong {
            assert!(!is_recalled(&mut of_a_snapshot(), older), "{what}");
        }
        let mut state = of_a_snapshot();
        for back in 1..5 {
            assert!(is_recalled(
                &mut state,
                batch(1, 4 - back, 1, 14 - i64::from(back))
            ));
        }
        assert!(!is_recalled(&mut state, batch(1, i32::MAX, 1, 9)), "the sixth");
    }

    #[test]
    fn a_state_reaches_the_offset_of_its_last_fact() {
        let mut state = of_a_snapshot();
        assert!(state.reaches(15) && !state.reaches(16));
        state.note_batch(&transactional(batch(2, 0, 1, 16)), HERE);
        let marker = Marker {
            committed: true,
            coordinator_epoch: 0,
        };
        assert!(state.reaches(16) && !state.reaches(17));
        // The marker's epoch removes what is known of the batches.
        state.note_marker(&batch(3, -1, 1, 17), marker);
        assert!(!state.reaches(0));
        assert!(!ProducerState::default().reaches(0));
    }

    #[test]
    fn a_state_knows_the_newest_batch_of_the_log_it_belongs_to() {
        let state = of_a_snapshot();
        let knows = |state: &ProducerState, header, has_gaps| state.knows(&header, has_gaps);
        for has_gaps in [false, true] {
            assert!(knows(&state, batch(1, 4, 2, 14), has_gaps));
            assert!(!knows(&state, batch(1, 6, 2, 16), has_gaps), "one that is newer");
            assert!(!knows(&ProducerState::default(), batch(1, 4, 2, 14), has_gaps));
        }
        // A marker with a newer epoch, which a compaction has removed from the log.
        let mut ended = of_a_snapshot();
        let marker = Marker {
            committed: true,
            coordinator_epoch: 0,
        };
        ended.note_marker(&batch(2, -1, 1, 16), marker);
        assert!(knows(&ended, batch(1, 4, 2, 14), true));
        assert!(!knows(&ended, batch(1, 4, 2, 14), false));
        assert!(!knows(&ended, batch(2, 0, 2, 17), true), "of the marker's epoch");
        assert!(!knows(&ended, batch(3, 0, 2, 17), true), "of a newer epoch");
    }

    #[test]
    fn a_transaction_that_ended_below_the_high_watermark_is_forgotten() {
        let mut state = ProducerState::default();
        state.note_batch(&transactional(batch(0, 0, 5, 10)), HERE);
        let marker = Marker {
            committed: true,
            coordinator_epoch: 0,
        };
        state.note_marker(&batch(0, -1, 1, 15), marker);
        state.forget_ended_below(15);
        assert_eq!(state.ended_transactions.len(), 1);
        state.forget_ended_below(16);
        assert_eq!(state.ended_transactions.len(), 0);
    }

    #[test]
    fn damage_to_any_byte_of_a_snapshot_is_detected() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(1, 0, 2, 0), HERE);
        let bytes = state.encode_snapshot();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x40;
            assert!(ProducerState::decode_snapshot(&damaged).is_err(), "byte {index}");
            assert!(
                ProducerState::decode_snapshot(&bytes[..index]).is_err(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn idle_producers_expire_unless_a_transaction_is_open() {
        let mut state = ProducerState::default();
        state.note_batch(&batch(0, 0, 1, 0), HERE);
        assert_eq!(state.expire(1_500, 1_000), 0);
        assert_eq!(state.expire(2_000, 1_000), 1);
        state.note_batch(&transactional(batch(0, 0, 1, 1)), HERE);
        assert_eq!(state.expire(9_000, 1_000), 0);
    }
}
