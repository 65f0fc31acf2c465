//! Producers with ids: one that numbers its batches, and transactions that are committed, aborted
//! and left open.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::BatchOptions;

use super::{Caller, Expected, LEDGER, PAYMENTS, Place, code, find, is_coming, produce_as, values_of};

const INIT_PRODUCER_ID_VERSION: i16 = 4;
/// Before KIP-890: the client names the partitions, and keeps its epoch.
const ADD_PARTITIONS_VERSION: i16 = 3;
const END_TXN_VERSION: i16 = 4;
/// What `transaction.max.timeout.ms` allows by default.
const TRANSACTION_TIMEOUT_MS: i32 = 900_000;
const TRANSACTION: i8 = 1;
/// How often a request is repeated.
const PATIENCE: u32 = 400;

/// The transactional id of all ended transactions.
pub const TILL: &str = "till";
/// Its transaction was open long before the last checkpoint, and still is.
pub const EARLY: &str = "early";
/// Its transaction was the last work of the broker.
pub const LATE: &str = "late";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed,
    Aborted,
    Open,
}

/// A transaction with its acknowledged records.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub end: End,
    pub records: BTreeMap<Place, BTreeMap<i64, String>>,
}

/// A producer with an id.
#[derive(Clone, Debug)]
pub struct Producer {
    pub id: i64,
    transactional_id: Option<&'static str>,
    epoch: i16,
    /// The sequence number of the next batch.
    sequences: BTreeMap<Place, i32>,
}

impl Producer {
    pub fn new(
        broker: &mut impl Caller,
        transactional_id: Option<&'static str>,
    ) -> Result<Producer, ErrorCode> {
        Producer::with_patience(broker, transactional_id, PATIENCE)
    }

    /// The same with at most `patience` requests that find a transaction still ending. Each of them
    /// waits for its end.
    pub fn with_patience(
        broker: &mut impl Caller,
        transactional_id: Option<&'static str>,
        patience: u32,
    ) -> Result<Producer, ErrorCode> {
        let request = InitProducerIdRequest {
            transactional_id,
            transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, INIT_PRODUCER_ID_VERSION);
        repeat(broker, transactional_id, patience, |broker| {
            let answer = broker.answer(ApiKey::InitProducerId, INIT_PRODUCER_ID_VERSION, &body);
            let response =
                InitProducerIdResponse::decode(&mut Reader::new(&answer), INIT_PRODUCER_ID_VERSION)
                    .expect("decodes");
            let producer = Producer {
                id: response.producer_id,
                transactional_id,
                epoch: response.producer_epoch,
                sequences: BTreeMap::new(),
            };
            (code(response.error_code), producer)
        })
    }

    /// Sends the next batch; returns its first offset. After an error the batch is still the next.
    pub fn send(
        &mut self,
        broker: &mut impl Caller,
        place: Place,
        values: &[(String, String)],
    ) -> Result<i64, ErrorCode> {
        let sequence = self.sequences.get(&place).copied().unwrap_or(0);
        let offset = self.send_at(broker, place, values, sequence)?;
        self.sequences.insert(place, sequence + values.len() as i32);
        Ok(offset)
    }

    /// Sends the last batch again, as after a lost answer.
    pub fn repeat(
        &self,
        broker: &mut impl Caller,
        place: Place,
        values: &[(String, String)],
    ) -> Result<i64, ErrorCode> {
        let next = self.sequences.get(&place).copied().unwrap_or(0);
        self.send_at(broker, place, values, next - values.len() as i32)
    }

    fn send_at(
        &self,
        broker: &mut impl Caller,
        place: Place,
        values: &[(String, String)],
        base_sequence: i32,
    ) -> Result<i64, ErrorCode> {
        let options = BatchOptions {
            producer_id: self.id,
            producer_epoch: self.epoch,
            base_sequence,
            is_transactional: self.transactional_id.is_some(),
            ..BatchOptions::default()
        };
        produce_as(broker, place, values, options, self.transactional_id)
    }

    /// Takes partitions of `payments` into the transaction.
    pub fn add(&self, broker: &mut impl Caller, partitions: &[i32]) -> Result<(), ErrorCode> {
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.transactional_id.unwrap_or_default(),
            v3_and_below_producer_id: self.id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: PAYMENTS,
                partitions: partitions.to_vec(),
            }],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, ADD_PARTITIONS_VERSION);
        repeat(broker, self.transactional_id, PATIENCE, |broker| {
            let answer = broker.answer(ApiKey::AddPartitionsToTxn, ADD_PARTITIONS_VERSION, &body);
            let response =
                AddPartitionsToTxnResponse::decode(&mut Reader::new(&answer), ADD_PARTITIONS_VERSION)
                    .expect("decodes");
            let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
            let errors = results.iter().map(|result| code(result.partition_error_code));
            let mut errors = errors.filter(|error| *error != ErrorCode::None);
            (errors.next().unwrap_or(ErrorCode::None), ())
        })
    }

    pub fn end(&self, broker: &mut impl Caller, committed: bool) -> Result<(), ErrorCode> {
        let request = EndTxnRequest {
            transactional_id: self.transactional_id.unwrap_or_default(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            committed,
        };
        let mut body = Vec::new();
        request.encode(&mut body, END_TXN_VERSION);
        repeat(broker, self.transactional_id, PATIENCE, |broker| {
            let answer = broker.answer(ApiKey::EndTxn, END_TXN_VERSION, &body);
            let response =
                EndTxnResponse::decode(&mut Reader::new(&answer), END_TXN_VERSION).expect("decodes");
            (code(response.error_code), ())
        })
    }
}

/// Repeats a request while the coordinator is coming, or still writes the markers of the last
/// transaction.
fn repeat<C: Caller, T>(
    broker: &mut C,
    transactional_id: Option<&str>,
    mut patience: u32,
    mut request: impl FnMut(&mut C) -> (ErrorCode, T),
) -> Result<T, ErrorCode> {
    let mut last = ErrorCode::CoordinatorNotAvailable;
    for _ in 0..PATIENCE {
        match request(broker) {
            (ErrorCode::None, answer) => return Ok(answer),
            (error, _) if is_coming(error) || error == ErrorCode::ConcurrentTransactions => {
                last = error;
                if error == ErrorCode::ConcurrentTransactions {
                    patience -= 1;
                }
                if patience == 0 {
                    break;
                }
                if let Some(transactional_id) = transactional_id {
                    find(broker, transactional_id, TRANSACTION);
                }
                broker.pause();
            }
            (error, _) => return Err(error),
        }
    }
    Err(last)
}

/// All producers of the filling.
pub(super) struct Producers {
    ledger: Producer,
    till: Producer,
    early: Producer,
}

impl Producers {
    pub fn start(broker: &mut impl Caller, expected: &mut Expected) -> Producers {
        let mut start = |transactional_id| {
            let producer = Producer::new(broker, transactional_id).expect("producer ids are given out");
            expected.producer_ids.insert(producer.id);
            producer
        };
        Producers {
            ledger: start(None),
            till: start(Some(TILL)),
            early: start(Some(EARLY)),
        }
    }

    pub fn write(&mut self, broker: &mut impl Caller, round: usize, expected: &mut Expected) {
        let values = values_of(round);
        let offset = self
            .ledger
            .send(broker, (LEDGER, 0), &values)
            .expect("intact partitions take records");
        note(expected, (LEDGER, 0), offset, &values);
        expected.ledger = Some(self.ledger.clone());
        expected.last_of_ledger = (values, offset);
        match round % 6 {
            0 | 4 => transact(broker, &mut self.till, round, End::Committed, &[0, 1], expected),
            2 => transact(broker, &mut self.till, round, End::Aborted, &[0, 1], expected),
            _ => {}
        }
        if round == 5 {
            transact(broker, &mut self.till, round, End::Committed, &[2], expected);
        } else if round == 30 {
            transact(broker, &mut self.early, round, End::Open, &[2], expected);
        }
    }

    pub fn leave_open(&self, broker: &mut impl Caller, expected: &mut Expected) {
        let mut late = Producer::new(broker, Some(LATE)).expect("producer ids are given out");
        expected.producer_ids.insert(late.id);
        transact(broker, &mut late, 63, End::Open, &[0, 1], expected);
    }
}

fn transact(
    broker: &mut impl Caller,
    producer: &mut Producer,
    round: usize,
    end: End,
    partitions: &[i32],
    expected: &mut Expected,
) {
    producer.add(broker, partitions).expect("partitions are taken");
    let mut transaction = Transaction {
        end,
        records: BTreeMap::new(),
    };
    for index in partitions {
        let place = (PAYMENTS, *index);
        let values = values_of(round + *index as usize);
        let offset = producer
            .send(broker, place, &values)
            .expect("intact partitions take records");
        note(expected, place, offset, &values);
        transaction
            .records
            .insert(place, lines(offset, &values).collect());
    }
    if end != End::Open {
        producer
            .end(broker, end == End::Committed)
            .expect("a transaction ends");
    }
    expected.transactions.push(transaction);
}

fn note(expected: &mut Expected, place: Place, offset: i64, values: &[(String, String)]) {
    let records = expected.records.entry(place).or_default();
    records.extend(lines(offset, values));
}

fn lines(offset: i64, values: &[(String, String)]) -> impl Iterator<Item = (i64, String)> {
    (offset..).zip(values.iter().map(|(key, value)| format!("{key}={value}")))
}
