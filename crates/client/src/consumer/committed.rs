//! Queries for the offsets that a group has committed.

use std::collections::{BTreeMap, BTreeSet};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};
use ottla_wire::primitives::Reader;

use super::commit::is_stale;
use super::group::{GroupEvent, GroupMembership, GroupTicket, Offsets};
use super::group_network::GroupNetwork;
use super::join::malformed;
use super::rebalance::{Generation, MemberState};
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::Reply;
use crate::time::Moment;

/// First versions with `require_stable` (KIP-447) and with several groups (KIP-709).
const REQUIRE_STABLE_VERSION: i16 = 7;
const GROUPS_VERSION: i16 = 8;
/// The first version with member epochs (KIP-848).
const MEMBER_EPOCH_VERSION: i16 = 9;
/// Later versions name topics by id.
const NAMES_MAX_VERSION: i16 = 9;

#[derive(Debug)]
struct Fetch {
    partitions: BTreeSet<TopicPartition>,
    deadline: Moment,
    failures: u32,
    not_before: Option<Moment>,
    is_sent: bool,
}

#[derive(Debug, Default)]
pub struct Fetches {
    /// By ticket.
    open: BTreeMap<u64, Fetch>,
    done: Vec<(u64, Result<Offsets, Error>)>,
}

impl Fetches {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Fails everything; no query is answered any more.
    pub fn end(&mut self, error: &Error) {
        for ticket in std::mem::take(&mut self.open).into_keys() {
            self.done.push((ticket, Err(error.clone())));
        }
    }

    pub fn report(&mut self, events: &mut Vec<GroupEvent>) {
        let event = |(ticket, result)| GroupEvent::OffsetsFetched { ticket, result };
        events.extend(self.done.drain(..).map(event));
    }

    pub fn next_deadline(&self, is_coordinator_known: bool) -> Option<Moment> {
        let of_fetch = |fetch: &Fetch| {
            let retry = fetch
                .not_before
                .filter(|_| is_coordinator_known && !fetch.is_sent);
            retry.map_or(fetch.deadline, |retry| retry.min(fetch.deadline))
        };
        self.open.values().map(of_fetch).min()
    }
}

impl GroupMembership {
    /// Asks the coordinator for committed offsets; retries retriable errors until `deadline`.
    pub fn fetch_offsets(
        &mut self,
        _now: Moment,
        ticket: u64,
        partitions: BTreeSet<TopicPartition>,
        deadline: Moment,
    ) {
        if partitions.is_empty() {
            self.fetches.done.push((ticket, Ok(Offsets::new())));
            return;
        }
        let fetch = Fetch {
            partitions,
            deadline,
            failures: 0,
            not_before: None,
            is_sent: false,
        };
        self.fetches.open.insert(ticket, fetch);
        if self.is_closed || self.is_failed {
            self.fetches.end(&Error::Closed);
        }
    }

    pub(super) fn send_fetches(&mut self, now: Moment, node: Option<NodeId>, network: &mut dyn GroupNetwork) {
        let limit_ms = self.config.default_api_timeout_ms;
        let mut due = Vec::new();
        let mut late = Vec::new();
        for (ticket, fetch) in &mut self.fetches.open {
            if fetch.deadline <= now {
                late.push(*ticket);
            } else if !fetch.is_sent && fetch.not_before.is_none_or(|not_before| not_before <= now) {
                fetch.not_before = None;
                due.push(*ticket);
            }
        }
        for ticket in late {
            self.fetches.open.remove(&ticket);
            let error = Error::Timeout {
                what: "query for committed offsets".into(),
                limit_ms,
                setting: "default.api.timeout.ms",
            };
            self.fetches.done.push((ticket, Err(error)));
        }
        let Some(node) = node else {
            return;
        };
        for ticket in due {
            let version = network.version_within(node, ApiKey::OffsetFetch, 0, NAMES_MAX_VERSION);
            let (Ok(api_version), Some(fetch)) = (&version, self.fetches.open.get_mut(&ticket)) else {
                self.fetches.open.remove(&ticket);
                self.fetches
                    .done
                    .extend(version.err().map(|error| (ticket, Err(error))));
                continue;
            };
            fetch.is_sent = true;
            let member = self
                .membership
                .as_ref()
                .filter(|_| self.state == MemberState::Stable && *api_version >= MEMBER_EPOCH_VERSION)
                .map(|_| &self.generation);
            let body = encode(&self.group_id, member, &fetch.partitions, *api_version);
            let request = self.small_request(ApiKey::OffsetFetch, *api_version, body);
            network.send(now, node, request, GroupTicket::FetchOffsets { ticket });
        }
    }

    pub(super) fn offsets_answered(&mut self, now: Moment, ticket: u64, reply: &Reply<GroupTicket>) {
        let result = match &reply.result {
            Err(error) => Err(error.clone()),
            Ok(body) => decode(&self.group_id, body, reply.api_version),
        };
        if let Err(Error::Broker {
            code: ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator,
            ..
        }) = &result
        {
            self.coordinator.forget(now, true);
        }
        let Some(failures) = self.fetches.open.get(&ticket).map(|fetch| fetch.failures) else {
            return;
        };
        let retry_at = self.backoff_after(now, failures);
        match (result, self.fetches.open.get_mut(&ticket)) {
            (Err(error), Some(fetch)) if error.is_retriable() || is_stale(&error) => {
                fetch.is_sent = false;
                fetch.failures = failures.saturating_add(1);
                fetch.not_before = Some(retry_at);
            }
            (result, _) => {
                self.fetches.open.remove(&ticket);
                self.fetches.done.push((ticket, result));
            }
        }
    }
}

/// - `member`: with `group.protocol=consumer` a broker checks the epoch.
fn encode(
    group_id: &str,
    member: Option<&Generation>,
    partitions: &BTreeSet<TopicPartition>,
    version: i16,
) -> Vec<u8> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics
            .entry(&partition.topic)
            .or_default()
            .push(partition.partition);
    }
    let mut message = OffsetFetchRequest {
        // Wait for the offsets of open transactions, whatever the isolation level, as Kafka does.
        require_stable: version >= REQUIRE_STABLE_VERSION,
        ..OffsetFetchRequest::default()
    };
    if version >= GROUPS_VERSION {
        let topics = topics
            .into_iter()
            .map(|(name, partition_indexes)| OffsetFetchRequestTopics {
                name,
                partition_indexes,
                ..OffsetFetchRequestTopics::default()
            });
        message.groups = vec![OffsetFetchRequestGroup {
            group_id,
            member_id: member.map(|member| &*member.member_id),
            member_epoch: member.map_or(-1, |member| member.id),
            topics: Some(topics.collect()),
        }];
    } else {
        let topics = topics
            .into_iter()
            .map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                name,
                partition_indexes,
            });
        message.group_id = group_id;
        message.topics = Some(topics.collect());
    }
    let mut body = Vec::new();
    message.encode(&mut body, version);
    body
}

/// One partition of a response of any version.
struct CommittedAnswer<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&'a str>,
    error_code: i16,
}

fn decode(group_id: &str, body: &[u8], version: i16) -> Result<Offsets, Error> {
    let response = OffsetFetchResponse::decode(&mut Reader::new(body), version)
        .map_err(|error| malformed("OffsetFetch", &error))?;
    let mut answers = Vec::new();
    let mut error_code = response.error_code;
    for topic in &response.topics {
        answers.extend(topic.partitions.iter().map(|partition| CommittedAnswer {
            topic: topic.name,
            partition: partition.partition_index,
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.metadata,
            error_code: partition.error_code,
        }));
    }
    if version >= GROUPS_VERSION {
        let found = response.groups.iter().find(|group| group.group_id == group_id);
        let group =
            found.ok_or_else(|| malformed("OffsetFetch", &format!("no group {group_id} in the answer")))?;
        error_code = group.error_code;
        for topic in &group.topics {
            answers.extend(topic.partitions.iter().map(|partition| CommittedAnswer {
                topic: topic.name,
                partition: partition.partition_index,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
            }));
        }
    }
    if let Some(error) = Error::from_code(error_code, || group_id.into()) {
        return Err(error);
    }
    offsets(&answers)
}

fn offsets(answers: &[CommittedAnswer<'_>]) -> Result<Offsets, Error> {
    let mut offsets = Offsets::new();
    let mut unstable = None;
    let mut unauthorized: BTreeSet<&str> = BTreeSet::new();
    for answer in answers {
        let name = || format!("{}-{}", answer.topic, answer.partition).into();
        match ErrorCode::from_i16(answer.error_code) {
            Some(ErrorCode::None) if answer.offset >= 0 => {
                let offset = OffsetAndMetadata {
                    offset: answer.offset,
                    leader_epoch: Some(answer.leader_epoch).filter(|epoch| *epoch >= 0),
                    metadata: answer.metadata.unwrap_or_default().into(),
                };
                offsets.insert(TopicPartition::new(answer.topic, answer.partition), offset);
            }
            Some(ErrorCode::None) => {}
            Some(ErrorCode::TopicAuthorizationFailed) => {
                unauthorized.insert(answer.topic);
            }
            Some(code @ ErrorCode::UnstableOffsetCommit) => {
                unstable
                    .get_or_insert_with(|| Error::broker(code, Into::<std::sync::Arc<str>>::into(name())));
            }
            _ => return Err(Error::from_code(answer.error_code, name).unwrap_or(Error::Closed)),
        }
    }
    if !unauthorized.is_empty() {
        let topics: Vec<&str> = unauthorized.into_iter().collect();
        return Err(Error::broker(
            ErrorCode::TopicAuthorizationFailed,
            topics.join(", "),
        ));
    }
    match unstable {
        Some(error) => Err(error),
        None => Ok(offsets),
    }
}
