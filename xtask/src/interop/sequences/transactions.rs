//! Producers with transactional ids, two of which compete for one id, and what tools ask.

use anyhow::Result;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use ottla_wire::messages::describe_producers::{DescribeProducersRequest, TopicRequest};
use ottla_wire::messages::describe_transactions::DescribeTransactionsRequest;
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_wire::messages::list_transactions::ListTransactionsRequest;
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_wire::messages::produce::ProduceResponse;
use ottla_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
};
use ottla_wire::primitives::Reader;
use ottla_wire::random::Random;
use ottla_wire::records::batch::{attributes, batches as batches_of};

use super::play::World;
use super::{Scene, create_topics, wait_until_led};
use crate::interop::refusals::{Ask, Forged, Outcome, Said, produce_body};

const PRODUCERS: usize = 3;
const PARTITIONS: i32 = 2;
/// Longer than any sequence.
const TIMEOUT_MS: i32 = 300_000;
/// The time of every record.
const RECORD_TIME_MS: i64 = 1_700_000_000_000;

/// The producer that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Itself,
    OlderEpoch,
    NewerEpoch,
    /// With the producer id of the next producer.
    Other,
    /// As before its last new epoch or id.
    Former,
}

#[derive(Clone, Copy, Debug)]
pub enum Sequence {
    Next,
    Again,
    Gap,
    Zero,
}

#[derive(Clone, Debug)]
pub enum Step {
    Init {
        producer: usize,
        version: i16,
        expected: Option<Who>,
    },
    AddPartitions {
        producer: usize,
        who: Who,
        partitions: Vec<i32>,
    },
    AddOffsets {
        producer: usize,
        who: Who,
    },
    Produce {
        producer: usize,
        who: Who,
        version: i16,
        partition: i32,
        sequence: Sequence,
    },
    CommitOffsets {
        producer: usize,
        who: Who,
        version: i16,
        generation: i32,
        member_id: &'static str,
    },
    End {
        producer: usize,
        who: Who,
        version: i16,
        is_commit: bool,
    },
    Describe {
        producer: usize,
    },
    List {
        states: Vec<&'static str>,
    },
    Producers,
    Latest {
        isolation_level: i8,
    },
    Read,
    OffsetFetch {
        require_stable: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Identity {
    producer_id: i64,
    producer_epoch: i16,
}

#[derive(Clone, Debug)]
struct Producer {
    transactional_id: String,
    now: Identity,
    former: Identity,
    /// The next sequence by partition.
    next: [i32; PARTITIONS as usize],
}

pub struct TransactionWorld {
    name: String,
    topic: String,
    producers: Vec<Producer>,
    /// Producer ids in the order in which the broker told them.
    ids: Vec<i64>,
}

impl World for TransactionWorld {
    const NAME: &'static str = "transactions";
    type Step = Step;

    fn sequence(random: &mut Random) -> Vec<Step> {
        let is_new_client = random.below(2) > 0;
        let mixed_percent = [0, 30][random.below(2) as usize];
        let wrong_percent = [5, 25][random.below(2) as usize];
        let mut steps = Vec::new();
        for producer in [0, 2] {
            steps.push(Step::Init {
                producer,
                version: 5,
                expected: None,
            });
        }
        for _ in 0..14 + random.below(24) {
            let is_new = is_new_client != (random.below(100) < mixed_percent);
            let is_wrong = random.below(100) < wrong_percent;
            // The first and the last producer do most.
            let producer = [0, 0, 0, 2, 2, 1][random.below(6) as usize];
            steps.extend(client_steps(random, producer, is_new, is_wrong));
            if random.below(4) == 0 {
                steps.push(tool_step(random));
            }
        }
        steps.extend([Step::Read, Step::Producers]);
        steps
    }

    fn new(name: &str, _scene: &Scene, ports: [u16; 2]) -> Result<TransactionWorld> {
        // Once for both: the other one's topic is there then.
        for port in ports {
            if !super::is_led(port, name, PARTITIONS)? {
                create_topics(port, &[(name, PARTITIONS)])?;
                wait_until_led(port, name, PARTITIONS)?;
            }
        }
        let producer = |id: &str| Producer {
            transactional_id: format!("{name}-{id}"),
            now: NONE,
            former: NONE,
            next: [0; PARTITIONS as usize],
        };
        Ok(TransactionWorld {
            name: name.to_owned(),
            topic: name.to_owned(),
            producers: vec![producer("a"), producer("a"), producer("b")],
            ids: Vec::new(),
        })
    }

    fn lanes() -> usize {
        PRODUCERS + 1
    }

    fn lane(step: &Step) -> usize {
        match step {
            Step::Init { producer, .. }
            | Step::AddPartitions { producer, .. }
            | Step::AddOffsets { producer, .. }
            | Step::Produce { producer, .. }
            | Step::CommitOffsets { producer, .. }
            | Step::End { producer, .. } => *producer,
            _ => PRODUCERS,
        }
    }

    fn may_wait(_: &Step) -> bool {
        false
    }

    fn ask(&self, step: &Step) -> Ask {
        let mut body = Vec::new();
        let (api_key, version) = match TransactionWorld::lane(step) {
            PRODUCERS => self.encode_of_tools(step, &mut body),
            producer => self.encode(&self.producers[producer], step, &mut body),
        };
        Ask::new(api_key, version, body)
    }

    fn learn(&mut self, step: &Step, frame: &[u8]) -> Result<()> {
        let mut reader = Reader::new(frame);
        match step {
            Step::Init {
                producer, version, ..
            } => {
                decode_response_header(&mut reader, ApiKey::InitProducerId, *version)?;
                let response = InitProducerIdResponse::decode(&mut reader, *version)?;
                if response.error_code == 0 {
                    self.become_known(*producer, response.producer_id, response.producer_epoch);
                }
            }
            Step::End {
                producer, version, ..
            } => {
                decode_response_header(&mut reader, ApiKey::EndTxn, *version)?;
                let response = EndTxnResponse::decode(&mut reader, *version)?;
                if response.error_code == 0 && *version >= 5 {
                    self.become_known(*producer, response.producer_id, response.producer_epoch);
                }
            }
            Step::Produce {
                producer,
                who: Who::Itself,
                version,
                partition,
                sequence: Sequence::Next | Sequence::Zero,
            } => {
                decode_response_header(&mut reader, ApiKey::Produce, *version)?;
                let response = ProduceResponse::decode(&mut reader, *version)?;
                if response.responses[0].partition_responses[0].error_code == 0 {
                    self.producers[*producer].next[*partition as usize] += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Apache Kafka answers CONCURRENT_TRANSACTIONS while it ends the previous transaction, where
    /// Ottla's answer waits.
    fn is_early(&self, step: &Step, frame: &[u8]) -> Result<bool> {
        Ok(self.code(step, frame)? == Some(ErrorCode::ConcurrentTransactions))
    }

    /// Apache Kafka writes markers behind its answer.
    fn settling(&self, step: &Step) -> Option<Ask> {
        match step {
            Step::Init { producer, .. } | Step::End { producer, .. } => {
                Some(self.ask(&Step::Describe { producer: *producer }))
            }
            _ => None,
        }
    }

    fn is_settled(&self, _before: &str, now: &str) -> bool {
        !now.contains("Prepare")
    }

    fn names(&self) -> Vec<(String, String)> {
        let ids = self.ids.iter().enumerate();
        ids.map(|(at, id)| (format!("producer_id: {id},"), format!("producer_id: <p{at}>,")))
            .collect()
    }

    fn excerpt(&self, step: &Step, ask: &Ask, outcome: &Outcome) -> Result<String> {
        match (step, outcome) {
            (Step::Read, Outcome::Answer(frame)) => read(frame),
            _ => Ok(Said::of(ask, outcome.clone()).verbose),
        }
    }
}

const NONE: Identity = Identity {
    producer_id: -1,
    producer_epoch: -1,
};

const STRANGER: Identity = Identity {
    producer_id: 1_000_000_000,
    producer_epoch: 0,
};

impl TransactionWorld {
    fn become_known(&mut self, producer: usize, producer_id: i64, producer_epoch: i16) {
        let now = Identity {
            producer_id,
            producer_epoch,
        };
        if !self.ids.contains(&producer_id) {
            self.ids.push(producer_id);
        }
        let producer = &mut self.producers[producer];
        if producer.now != now {
            producer.former = producer.now;
            producer.now = now;
            producer.next = [0; PARTITIONS as usize];
        }
    }

    fn code(&self, step: &Step, frame: &[u8]) -> Result<Option<ErrorCode>> {
        let mut reader = Reader::new(frame);
        let code = match step {
            Step::Init { version, .. } => {
                decode_response_header(&mut reader, ApiKey::InitProducerId, *version)?;
                InitProducerIdResponse::decode(&mut reader, *version)?.error_code
            }
            Step::AddPartitions { .. } => {
                decode_response_header(&mut reader, ApiKey::AddPartitionsToTxn, 3)?;
                let response = AddPartitionsToTxnResponse::decode(&mut reader, 3)?;
                response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            }
            Step::AddOffsets { .. } => {
                decode_response_header(&mut reader, ApiKey::AddOffsetsToTxn, 3)?;
                AddOffsetsToTxnResponse::decode(&mut reader, 3)?.error_code
            }
            Step::Produce { version, .. } => {
                decode_response_header(&mut reader, ApiKey::Produce, *version)?;
                let response = ProduceResponse::decode(&mut reader, *version)?;
                response.responses[0].partition_responses[0].error_code
            }
            Step::CommitOffsets { version, .. } => {
                decode_response_header(&mut reader, ApiKey::TxnOffsetCommit, *version)?;
                let response = TxnOffsetCommitResponse::decode(&mut reader, *version)?;
                response.topics[0].partitions[0].error_code
            }
            Step::End { version, .. } => {
                decode_response_header(&mut reader, ApiKey::EndTxn, *version)?;
                EndTxnResponse::decode(&mut reader, *version)?.error_code
            }
            _ => return Ok(None),
        };
        Ok(ErrorCode::from_i16(code))
    }

    fn identity(&self, producer: usize, who: Who) -> Identity {
        let state = &self.producers[producer];
        match who {
            Who::Itself => state.now,
            Who::OlderEpoch => Identity {
                producer_epoch: state.now.producer_epoch - 1,
                ..state.now
            },
            Who::NewerEpoch => Identity {
                producer_epoch: state.now.producer_epoch + 1,
                ..state.now
            },
            Who::Other => Identity {
                producer_id: self.producers[(producer + 1) % PRODUCERS].now.producer_id,
                ..state.now
            },
            Who::Former => state.former,
        }
    }

    fn encode(&self, state: &Producer, step: &Step, out: &mut Vec<u8>) -> (ApiKey, i16) {
        let transactional_id = state.transactional_id.as_str();
        let group_id = self.name.as_str();
        match step {
            Step::Init {
                producer,
                version,
                expected,
            } => {
                let expected = expected.map_or(NONE, |who| self.identity(*producer, who));
                let request = InitProducerIdRequest {
                    transactional_id: Some(transactional_id),
                    transaction_timeout_ms: TIMEOUT_MS,
                    producer_id: expected.producer_id,
                    producer_epoch: expected.producer_epoch,
                };
                request.encode(out, *version);
                (ApiKey::InitProducerId, *version)
            }
            Step::AddPartitions {
                producer,
                who,
                partitions,
            } => {
                let identity = self.identity(*producer, *who);
                let request = AddPartitionsToTxnRequest {
                    v3_and_below_transactional_id: transactional_id,
                    v3_and_below_producer_id: identity.producer_id,
                    v3_and_below_producer_epoch: identity.producer_epoch,
                    v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                        name: &self.topic,
                        partitions: partitions.clone(),
                    }],
                    ..AddPartitionsToTxnRequest::default()
                };
                request.encode(out, 3);
                (ApiKey::AddPartitionsToTxn, 3)
            }
            Step::AddOffsets { producer, who } => {
                let identity = self.identity(*producer, *who);
                let request = AddOffsetsToTxnRequest {
                    transactional_id,
                    producer_id: identity.producer_id,
                    producer_epoch: identity.producer_epoch,
                    group_id,
                };
                request.encode(out, 3);
                (ApiKey::AddOffsetsToTxn, 3)
            }
            Step::Produce {
                producer,
                who,
                version,
                partition,
                sequence,
            } => {
                let next = state.next[*partition as usize];
                let base_sequence = match sequence {
                    Sequence::Next => next,
                    Sequence::Again => (next - 1).max(0),
                    Sequence::Gap => next + 2,
                    Sequence::Zero => 0,
                };
                let mut identity = self.identity(*producer, *who);
                if identity.producer_id < 0 {
                    // Ottla refuses a transactional batch without one, see `refusals`.
                    identity = STRANGER;
                }
                let records = batch(identity, base_sequence);
                let body = produce_body(Some(transactional_id), -1, &self.topic, *partition, &records);
                out.extend_from_slice(body.as_ref());
                (ApiKey::Produce, *version)
            }
            Step::CommitOffsets {
                producer,
                who,
                version,
                generation,
                member_id,
            } => {
                let identity = self.identity(*producer, *who);
                let request = TxnOffsetCommitRequest {
                    transactional_id,
                    group_id,
                    producer_id: identity.producer_id,
                    producer_epoch: identity.producer_epoch,
                    generation_id: *generation,
                    member_id,
                    topics: vec![TxnOffsetCommitRequestTopic {
                        name: &self.topic,
                        partitions: vec![TxnOffsetCommitRequestPartition {
                            partition_index: 0,
                            committed_offset: i64::from(identity.producer_epoch),
                            ..TxnOffsetCommitRequestPartition::default()
                        }],
                    }],
                    ..TxnOffsetCommitRequest::default()
                };
                request.encode(out, *version);
                (ApiKey::TxnOffsetCommit, *version)
            }
            Step::End {
                producer,
                who,
                version,
                is_commit,
            } => {
                let identity = self.identity(*producer, *who);
                let request = EndTxnRequest {
                    transactional_id,
                    producer_id: identity.producer_id,
                    producer_epoch: identity.producer_epoch,
                    committed: *is_commit,
                };
                request.encode(out, *version);
                (ApiKey::EndTxn, *version)
            }
            tools => unreachable!("{tools:?} is not a producer's"),
        }
    }

    fn encode_of_tools(&self, step: &Step, out: &mut Vec<u8>) -> (ApiKey, i16) {
        let topic = self.topic.as_str();
        match step {
            Step::Describe { producer } => {
                let request = DescribeTransactionsRequest {
                    transactional_ids: vec![&self.producers[*producer].transactional_id],
                };
                request.encode(out, 0);
                (ApiKey::DescribeTransactions, 0)
            }
            Step::List { states } => {
                let pattern = format!("{}.*", self.name);
                let request = ListTransactionsRequest {
                    state_filters: states.clone(),
                    transactional_id_pattern: Some(&pattern),
                    ..ListTransactionsRequest::default()
                };
                request.encode(out, 2);
                (ApiKey::ListTransactions, 2)
            }
            Step::Producers => {
                let request = DescribeProducersRequest {
                    topics: vec![TopicRequest {
                        name: topic,
                        partition_indexes: (0..PARTITIONS).collect(),
                    }],
                };
                request.encode(out, 0);
                (ApiKey::DescribeProducers, 0)
            }
            Step::Latest { isolation_level } => {
                let partition = |partition_index| ListOffsetsPartition {
                    partition_index,
                    current_leader_epoch: -1,
                    timestamp: -1,
                };
                let request = ListOffsetsRequest {
                    replica_id: -1,
                    isolation_level: *isolation_level,
                    topics: vec![ListOffsetsTopic {
                        name: topic,
                        partitions: (0..PARTITIONS).map(partition).collect(),
                    }],
                    ..ListOffsetsRequest::default()
                };
                request.encode(out, 7);
                (ApiKey::ListOffsets, 7)
            }
            Step::Read => {
                let partition = |partition| FetchPartition {
                    partition,
                    current_leader_epoch: -1,
                    partition_max_bytes: i32::MAX,
                    ..FetchPartition::default()
                };
                let request = FetchRequest {
                    replica_id: -1,
                    max_bytes: i32::MAX,
                    isolation_level: 1,
                    session_epoch: -1,
                    topics: vec![FetchTopic {
                        topic,
                        partitions: (0..PARTITIONS).map(partition).collect(),
                        ..FetchTopic::default()
                    }],
                    ..FetchRequest::default()
                };
                request.encode(out, 11);
                (ApiKey::Fetch, 11)
            }
            Step::OffsetFetch { require_stable } => {
                let request = OffsetFetchRequest {
                    groups: vec![OffsetFetchRequestGroup {
                        group_id: &self.name,
                        topics: Some(vec![OffsetFetchRequestTopics {
                            name: topic,
                            partition_indexes: vec![0, 1],
                            ..OffsetFetchRequestTopics::default()
                        }]),
                        ..OffsetFetchRequestGroup::default()
                    }],
                    require_stable: *require_stable,
                    ..OffsetFetchRequest::default()
                };
                request.encode(out, 8);
                (ApiKey::OffsetFetch, 8)
            }
            producers => unreachable!("{producers:?} is not a tool's"),
        }
    }
}

/// What a consumer gets, without times: markers have that of the broker.
fn read(frame: &[u8]) -> Result<String> {
    let mut reader = Reader::new(frame);
    decode_response_header(&mut reader, ApiKey::Fetch, 11)?;
    let response = FetchResponse::decode(&mut reader, 11)?;
    let mut text = String::new();
    for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
        let mut batches = Vec::new();
        for batch in batches_of(partition.records.unwrap_or_default()) {
            let header = batch?.header;
            batches.push(format!(
                "{}..={} producer_id: {}, epoch {}, sequence {}, attributes {}",
                header.base_offset,
                header.last_offset(),
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.attributes,
            ));
        }
        text.push_str(&format!(
            "partition {}: error_code: {}, {} {}, {:?}, {batches:?}; ",
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.aborted_transactions,
        ));
    }
    Ok(text)
}

/// One transactional record.
fn batch(identity: Identity, base_sequence: i32) -> Vec<u8> {
    let batch = Forged::new(RECORD_TIME_MS).with(|batch| {
        batch.records.truncate(1);
        batch.record_count = 1;
        batch.last_offset_delta = 0;
        batch.base_timestamp = RECORD_TIME_MS;
        batch.producer_id = identity.producer_id;
        batch.producer_epoch = identity.producer_epoch;
        batch.base_sequence = base_sequence;
        batch.attributes |= attributes::TRANSACTIONAL;
    });
    batch.bytes()
}

fn wrong(random: &mut Random) -> Who {
    [Who::OlderEpoch, Who::NewerEpoch, Who::Other, Who::Former][random.below(4) as usize]
}

/// What a client does next: old ones add partitions and groups before they use them.
fn client_steps(random: &mut Random, producer: usize, is_new: bool, is_wrong: bool) -> Vec<Step> {
    let who = if is_wrong { wrong(random) } else { Who::Itself };
    let partition = random.below(PARTITIONS as u64) as i32;
    let sequence = match random.below(if is_wrong { 6 } else { 12 }) {
        0 => Sequence::Again,
        1 => Sequence::Gap,
        2 => Sequence::Zero,
        _ => Sequence::Next,
    };
    let produce = Step::Produce {
        producer,
        who,
        version: if is_new {
            12
        } else {
            11 - 2 * random.below(2) as i16
        },
        partition,
        sequence,
    };
    let add = Step::AddPartitions {
        producer,
        who,
        partitions: match random.below(8) {
            0 => vec![0, 1],
            1 if is_wrong => vec![partition, 77],
            _ => vec![partition],
        },
    };
    let (generation, member_id) = match random.below(8) {
        0 => (3, "stranger"),
        1 => (-1, "stranger"),
        _ => (-1, ""),
    };
    let commit = Step::CommitOffsets {
        producer,
        who,
        version: if is_new { 5 } else { 3 + random.below(2) as i16 },
        generation,
        member_id,
    };
    match random.below(20) {
        0..=6 if is_new || is_wrong => vec![produce],
        0..=6 => vec![add, produce],
        7 => vec![add],
        8..=10 if is_new || is_wrong => vec![commit],
        8..=10 => vec![Step::AddOffsets { producer, who }, commit],
        11..=16 => vec![Step::End {
            producer,
            who,
            version: if is_new { 5 } else { 3 + random.below(2) as i16 },
            is_commit: random.below(2) > 0,
        }],
        17 => {
            // The answer was lost: the same again, as before the new epoch.
            let who = if is_new { Who::Former } else { Who::Itself };
            vec![Step::End {
                producer,
                who,
                version: if is_new { 5 } else { 4 },
                is_commit: random.below(2) > 0,
            }]
        }
        18 => vec![Step::Init {
            producer,
            version: 4 + random.below(2) as i16,
            expected: None,
        }],
        _ => {
            // The only one with its id, without an open transaction: Apache Kafka ends that also if
            // it then refuses the request.
            let producer = 2;
            let version = if is_new { 5 } else { 4 };
            vec![
                Step::End {
                    producer,
                    who: Who::Itself,
                    version,
                    is_commit: false,
                },
                Step::Init {
                    producer,
                    version,
                    expected: Some(who),
                },
            ]
        }
    }
}

fn tool_step(random: &mut Random) -> Step {
    match random.below(7) {
        0 => Step::Describe {
            producer: 2 * random.below(2) as usize,
        },
        1 => Step::List {
            states: [vec![], vec!["Ongoing"], vec!["CompleteAbort", "Nonsense"]][random.below(3) as usize]
                .clone(),
        },
        2 => Step::Producers,
        3 | 4 => Step::Latest {
            isolation_level: random.below(2) as i8,
        },
        5 => Step::OffsetFetch {
            require_stable: random.below(2) > 0,
        },
        _ => Step::Read,
    }
}
