//! ListOffsets, versions 1 to 11: offsets by position (earliest, latest) and by time.
//!
//! - 2 (KIP-98) isolation level; 4 (KIP-320) leader epochs; 7 (KIP-734) max timestamp; 8 (KIP-405)
//!   earliest local; 9 (KIP-1005) latest tiered: there is no tiered storage, so its answer is
//!   "none".
//!
//! A search by time may have to read the device or decompress a large batch; the whole request then
//! moves to the cold-read pool.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_log::{Lookup, ReadError, ReadMode};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::fetch::read::IsolationLevel;
use crate::node::Node;
use crate::partition::Partition;
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::services::{ColdRead, Payer, Services};
use crate::slot::Slot;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const FIRST_VERSION_WITH_EPOCHS: i16 = 4;

/// Returns the version that introduced a special timestamp.
fn first_version_with(timestamp: i64) -> i16 {
    match timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        _ => 1,
    }
}

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: ListOffsetsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let isolation_level = IsolationLevel::from_wire(body.isolation_level).ok();
    let topics = body
        .topics
        .iter()
        .map(|topic| {
            let checked = caller.topic(Operation::Describe, topic.name);
            let with_log = |asked: &ListOffsetsPartition| AskedOffsets {
                partition: checked.and_then(|granted| node.partition_by_name(granted, asked.partition_index)),
                wanted: asked.clone(),
            };
            let partitions = topic.partitions.iter().map(with_log).collect();
            (topic.name.to_string(), partitions)
        })
        .collect();
    let search = Search {
        api_version: request.api_version,
        isolation_level,
        topics,
    };
    if search.count_by_time() <= TIME_SEARCHES_MAX
        && let Some(found) = search.run(ReadMode::Resident)
    {
        encode(&found, request.api_version, reply);
        return Handled::Replied;
    }
    Handled::Pending(Box::new(PendingLookup {
        stage: SearchStage::Waiting(search),
        payer: Payer::Tenant(request.connection.tenant),
        api_version: request.api_version,
    }))
}

/// At most this many searches by time run on an event loop, since each may decompress half a
/// megabyte (`log/src/stored_batch.rs`); a request with more runs elsewhere.
const TIME_SEARCHES_MAX: usize = 8;

/// Estimate of what one partition's search reads: two index pages and a page of batch headers.
const SEARCH_BYTES: u64 = 3 * 4096;

type FoundOffsets = Vec<(String, Vec<ListOffsetsPartitionResponse>)>;

struct AskedOffsets {
    wanted: ListOffsetsPartition,
    partition: Result<Arc<Partition>, ErrorCode>,
}

#[derive(Default)]
struct Search {
    api_version: i16,
    /// `None`: the request's isolation level is invalid.
    isolation_level: Option<IsolationLevel>,
    topics: Vec<(String, Vec<AskedOffsets>)>,
}

impl Search {
    fn count_by_time(&self) -> usize {
        let asked = self.topics.iter().flat_map(|(_, partitions)| partitions);
        asked
            .filter(|asked| asked.wanted.timestamp >= 0 || asked.wanted.timestamp == MAX_TIMESTAMP)
            .count()
    }

    /// Searches all partitions; `None`: the device must be read, and `mode` forbids it.
    fn run(&self, mode: ReadMode) -> Option<FoundOffsets> {
        let find_all = |(topic, partitions): &(String, Vec<AskedOffsets>)| {
            let found: Option<Vec<_>> = partitions.iter().map(|asked| self.find(asked, mode)).collect();
            Some((topic.clone(), found?))
        };
        self.topics.iter().map(find_all).collect()
    }

    fn find(&self, asked: &AskedOffsets, mode: ReadMode) -> Option<ListOffsetsPartitionResponse> {
        let wanted = &asked.wanted;
        let answer = asked.partition.as_ref().map_err(|code| *code);
        let answer = answer.and_then(|partition| {
            // Deleted since the request was received.
            if partition.is_deleted() {
                return Err(ErrorCode::UnknownTopicOrPartition);
            }
            partition.check_leader_epoch(wanted.current_leader_epoch)?;
            self.find_in(partition, wanted.timestamp, mode)
        });
        let none = ListOffsetsPartitionResponse {
            partition_index: wanted.partition_index,
            timestamp: -1,
            offset: -1,
            leader_epoch: -1,
            ..Default::default()
        };
        Some(match answer {
            Ok(SearchPlace::Found {
                timestamp,
                offset,
                leader_epoch,
            }) => ListOffsetsPartitionResponse {
                timestamp,
                offset,
                leader_epoch: if self.api_version >= FIRST_VERSION_WITH_EPOCHS {
                    leader_epoch
                } else {
                    none.leader_epoch
                },
                ..none
            },
            Ok(SearchPlace::Nowhere) => none,
            Ok(SearchPlace::WouldBlock) => return None,
            Err(error) => ListOffsetsPartitionResponse {
                error_code: error.code(),
                ..none
            },
        })
    }

    fn find_in(
        &self,
        partition: &Partition,
        timestamp: i64,
        mode: ReadMode,
    ) -> Result<SearchPlace, ErrorCode> {
        if self.api_version < first_version_with(timestamp) {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let view = partition.view();
        let offsets = view.offsets;
        let bound = match self.isolation_level.ok_or(ErrorCode::InvalidRequest)? {
            IsolationLevel::ReadCommitted => view.stable,
            IsolationLevel::ReadUncommitted => view.bound,
        };
        let at = |offset| {
            Ok(SearchPlace::Found {
                timestamp: -1,
                offset,
                leader_epoch: partition.epoch_at(offset),
            })
        };
        match timestamp {
            LATEST => at(bound.offset),
            EARLIEST | EARLIEST_LOCAL => at(offsets.start),
            LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(SearchPlace::Nowhere),
            MAX_TIMESTAMP => place(partition, view.reader.offset_for_max_timestamp(bound, mode)),
            0.. => place(
                partition,
                view.reader.offset_for_timestamp(timestamp, bound, mode),
            ),
            _ => Err(ErrorCode::UnsupportedVersion),
        }
    }
}

enum SearchPlace {
    Found {
        timestamp: i64,
        offset: i64,
        leader_epoch: i32,
    },
    Nowhere,
    WouldBlock,
}

fn place(partition: &Partition, found: Result<Lookup, ReadError>) -> Result<SearchPlace, ErrorCode> {
    match found {
        Ok(Lookup::Found(found)) => Ok(SearchPlace::Found {
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        }),
        Ok(Lookup::Nothing) => Ok(SearchPlace::Nowhere),
        Ok(Lookup::WouldBlock) => Ok(SearchPlace::WouldBlock),
        Err(error) => Err(partition.read_failed(&error)),
    }
}

fn encode(found: &FoundOffsets, api_version: i16, reply: &mut ReplyBuffer) {
    let topics = found
        .iter()
        .map(|(name, partitions)| ListOffsetsTopicResponse {
            name,
            partitions: partitions.clone(),
        })
        .collect();
    let response = ListOffsetsResponse {
        topics,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, api_version);
}

struct PendingLookup {
    stage: SearchStage,
    payer: Payer,
    api_version: i16,
}

enum SearchStage {
    /// Earlier replies of the connection are not sent yet.
    Waiting(Search),
    Searching(Arc<Slot<FoundOffsets>>),
}

impl Search {
    fn start(self, services: &Services, payer: Payer) -> Arc<Slot<FoundOffsets>> {
        let slot = Arc::new(Slot::default());
        let job_slot = slot.clone();
        let partitions: usize = self.topics.iter().map(|(_, partitions)| partitions.len()).sum();
        let bytes = partitions as u64 * SEARCH_BYTES;
        let job = move |_: &Services| {
            let found = self.run(ReadMode::Blocking);
            job_slot.fill(found.expect("a blocking read never asks to be repeated"));
            bytes
        };
        services.executor().cold_read(ColdRead {
            payer,
            bytes,
            job: Box::new(job),
        });
        slot
    }
}

impl PendingReply for PendingLookup {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        if let SearchStage::Waiting(search) = &mut self.stage {
            let search = std::mem::take(search);
            self.stage = SearchStage::Searching(search.start(node.services(), self.payer));
        }
        let SearchStage::Searching(slot) = &self.stage else {
            unreachable!("the search was begun above")
        };
        let Some(found) = slot.take_or_register(waker) else {
            return Poll::Pending;
        };
        encode(&found, self.api_version, reply);
        Poll::Ready(())
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::ColdRead
    }
}
