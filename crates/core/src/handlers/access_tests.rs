//! Access control of every served API, in every version: without a permission, with exactly the
//! permissions that it needs, and with all but one of them.

use std::collections::BTreeMap;
use std::task::Poll;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::*;
use ottla_wire::primitives::Uuid;

use super::metadata_tests::{Broker, error, poll, read, versions};
use crate::access::acl::{CLUSTER_NAME, Operation, PatternType, Permission, ResourceType};
use crate::dispatch::CONTROLLED;
use crate::image::access::AclImage;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use Operation::{
    All, Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use ResourceType::{Cluster, Group, Topic, TransactionalId};

const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const LINES: [(&str, &str); 2] = [
    ("authorizer.class.name", AUTHORIZER),
    ("super.users", "User:admin"),
];
pub(super) const EXISTING: &str = "existing";
const ABSENT: &str = "nowhere.";

pub(super) struct Names {
    pub(super) topic: &'static str,
    pub(super) topic_id: Uuid,
}

pub(super) type Need = (ResourceType, Operation);

/// What one API needs, and how to send and read it.
struct Row {
    api_key: ApiKey,
    /// A client without the first need is denied with its code; so is one without any other.
    needs: &'static [Need],
    /// From this version on topics are named by id.
    by_id: i16,
    encode: fn(&Names, i16, &mut Vec<u8>),
    /// All error codes of an answer.
    codes: fn(&[u8], i16) -> Vec<i16>,
}

macro_rules! row {
    ($api:ident $needs:expr, $module:ident::$request:ident $body:tt => $response:ident: |$names:ident, $version:ident, $answer:ident| $codes:expr) => {
        row!($api $needs, by_id i16::MAX, $module::$request $body => $response: |$names, $version, $answer| $codes)
    };
    ($api:ident $needs:expr, by_id $by_id:expr, $module:ident::$request:ident {$($field:ident: $value:expr),*} => $response:ident: |$names:ident, $version:ident, $answer:ident| $codes:expr) => {
        Row {
            api_key: ApiKey::$api,
            needs: &$needs,
            by_id: $by_id,
            encode: |$names: &Names, $version: i16, out: &mut Vec<u8>| {
                let _ = (&$names, $version);
                #[allow(clippy::needless_update, reason = "some requests have no other field")]
                let request = $module::$request { $($field: $value,)* ..Default::default() };
                request.encode(out, $version);
            },
            codes: |bytes: &[u8], $version: i16| {
                let $answer = read(bytes, |reader| $module::$response::decode(reader, $version));
                $codes
            },
        }
    };
}

/// A flat list of the error codes of nested lists.
macro_rules! flat {
    ($list:expr => $inner:ident) => {
        $list
            .iter()
            .flat_map(|outer| &outer.$inner)
            .map(|inner| inner.error_code)
            .collect::<Vec<i16>>()
    };
    ($list:expr) => {
        $list.iter().map(|one| one.error_code).collect::<Vec<i16>>()
    };
}

const GROUP: &str = "group";
const TRANSACTIONAL_ID: &str = "transactional";

fn topic_rows() -> Vec<Row> {
    vec![
        row!(Produce [(Topic, Write)], by_id 13, produce::ProduceRequest {
            acks: 1,
            topic_data: vec![produce::TopicProduceData {
                name: if version < 13 { names.topic } else { "" },
                topic_id: if version < 13 { Uuid::ZERO } else { names.topic_id },
                partition_data: vec![produce::PartitionProduceData::default()],
            }]
        } => ProduceResponse: |names, version, answer| flat!(answer.responses => partition_responses)),
        row!(Fetch [(Topic, Read)], by_id 13, fetch::FetchRequest {
            replica_id: -1,
            max_bytes: 1_000,
            session_epoch: -1,
            topics: vec![fetch::FetchTopic {
                topic: if version < 13 { names.topic } else { "" },
                topic_id: if version < 13 { Uuid::ZERO } else { names.topic_id },
                partitions: vec![fetch::FetchPartition::default()],
            }]
        } => FetchResponse: |names, version, answer| flat!(answer.responses => partitions)),
        row!(ListOffsets [(Topic, Describe)], list_offsets::ListOffsetsRequest {
            replica_id: -1,
            topics: vec![list_offsets::ListOffsetsTopic {
                name: names.topic,
                partitions: vec![list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() }],
            }]
        } => ListOffsetsResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(Metadata [(Topic, Describe)], metadata::MetadataRequest {
            topics: Some(vec![metadata::MetadataRequestTopic { name: Some(names.topic), topic_id: Uuid::ZERO }])
        } => MetadataResponse: |names, version, answer| flat!(answer.topics)),
        row!(DescribeTopicPartitions [(Topic, Describe)], describe_topic_partitions::DescribeTopicPartitionsRequest {
            topics: vec![describe_topic_partitions::TopicRequest { name: names.topic }],
            response_partition_limit: 10
        } => DescribeTopicPartitionsResponse: |names, version, answer| flat!(answer.topics)),
        row!(OffsetForLeaderEpoch [(Topic, Describe)], offset_for_leader_epoch::OffsetForLeaderEpochRequest {
            replica_id: -2,
            topics: vec![offset_for_leader_epoch::OffsetForLeaderTopic {
                topic: names.topic,
                partitions: vec![offset_for_leader_epoch::OffsetForLeaderPartition::default()],
            }]
        } => OffsetForLeaderEpochResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(DescribeProducers [(Topic, Read)], describe_producers::DescribeProducersRequest {
            topics: vec![describe_producers::TopicRequest { name: names.topic, partition_indexes: vec![0] }]
        } => DescribeProducersResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(DeleteRecords [(Topic, Delete)], delete_records::DeleteRecordsRequest {
            topics: vec![delete_records::DeleteRecordsTopic {
                name: names.topic,
                partitions: vec![delete_records::DeleteRecordsPartition::default()],
            }]
        } => DeleteRecordsResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(CreateTopics [(Topic, Create)], create_topics::CreateTopicsRequest {
            topics: vec![create_topics::CreatableTopic {
                name: names.topic,
                num_partitions: 1,
                replication_factor: 1,
                ..Default::default()
            }],
            validate_only: true
        } => CreateTopicsResponse: |names, version, answer| flat!(answer.topics)),
        row!(DeleteTopics [(Topic, Delete)], delete_topics::DeleteTopicsRequest {
            topics: match version {
                6.. => vec![delete_topics::DeleteTopicState { name: Some(names.topic), topic_id: Uuid::ZERO }],
                _ => vec![],
            },
            topic_names: match version {
                6.. => vec![],
                _ => vec![names.topic],
            }
        } => DeleteTopicsResponse: |names, version, answer| flat!(answer.responses)),
        row!(CreatePartitions [(Topic, Alter)], create_partitions::CreatePartitionsRequest {
            topics: vec![create_partitions::CreatePartitionsTopic { name: names.topic, count: 2, assignments: None }],
            validate_only: true
        } => CreatePartitionsResponse: |names, version, answer| flat!(answer.results)),
    ]
}

fn group_rows() -> Vec<Row> {
    vec![
        row!(OffsetCommit [(Group, Read), (Topic, Read)], by_id 10, offset_commit::OffsetCommitRequest {
            group_id: GROUP,
            topics: vec![offset_commit::OffsetCommitRequestTopic {
                name: if version < 10 { names.topic } else { "" },
                topic_id: if version < 10 { Uuid::ZERO } else { names.topic_id },
                partitions: vec![offset_commit::OffsetCommitRequestPartition::default()],
            }]
        } => OffsetCommitResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(OffsetFetch [(Group, Describe)], by_id 10, offset_fetch::OffsetFetchRequest {
            group_id: if version < 8 { GROUP } else { "" },
            topics: match version {
                ..8 => Some(vec![offset_fetch::OffsetFetchRequestTopic {
                    name: names.topic,
                    partition_indexes: vec![0],
                }]),
                _ => Some(Vec::new()),
            },
            groups: match version {
                ..8 => vec![],
                _ => vec![offset_fetch::OffsetFetchRequestGroup {
                    group_id: GROUP,
                    topics: Some(vec![offset_fetch::OffsetFetchRequestTopics {
                        name: if version < 10 { names.topic } else { "" },
                        topic_id: if version < 10 { Uuid::ZERO } else { names.topic_id },
                        partition_indexes: vec![0],
                    }]),
                    ..Default::default()
                }],
            }
        } => OffsetFetchResponse: |names, version, answer| {
            let mut codes = vec![answer.error_code];
            codes.extend(flat!(answer.topics => partitions));
            codes.extend(flat!(answer.groups));
            codes
        }),
        row!(FindCoordinator [(Group, Describe)], find_coordinator::FindCoordinatorRequest {
            key: if version < 4 { GROUP } else { "" },
            coordinator_keys: if version < 4 { vec![] } else { vec![GROUP] }
        } => FindCoordinatorResponse: |names, version, answer| {
            let mut codes = flat!(answer.coordinators);
            codes.push(answer.error_code);
            codes
        }),
        row!(JoinGroup [(Group, Read)], join_group::JoinGroupRequest {
            group_id: GROUP,
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: "consumer"
        } => JoinGroupResponse: |names, version, answer| vec![answer.error_code]),
        row!(SyncGroup [(Group, Read)], sync_group::SyncGroupRequest {
            group_id: GROUP,
            protocol_type: Some("consumer").filter(|_| version >= 5),
            protocol_name: Some("range").filter(|_| version >= 5)
        } => SyncGroupResponse: |names, version, answer| vec![answer.error_code]),
        row!(Heartbeat [(Group, Read)], heartbeat::HeartbeatRequest {
            group_id: GROUP
        } => HeartbeatResponse: |names, version, answer| vec![answer.error_code]),
        row!(ConsumerGroupHeartbeat [(Group, Read), (Topic, Describe)], consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
            group_id: GROUP,
            member_id: "m",
            rebalance_timeout_ms: 1_000,
            subscribed_topic_names: Some(vec![names.topic]),
            topic_partitions: Some(Vec::new())
        } => ConsumerGroupHeartbeatResponse: |names, version, answer| vec![answer.error_code]),
        row!(ConsumerGroupDescribe [(Group, Describe)], consumer_group_describe::ConsumerGroupDescribeRequest {
            group_ids: vec![GROUP]
        } => ConsumerGroupDescribeResponse: |names, version, answer| flat!(answer.groups)),
        row!(LeaveGroup [(Group, Read)], leave_group::LeaveGroupRequest {
            group_id: GROUP
        } => LeaveGroupResponse: |names, version, answer| vec![answer.error_code]),
        row!(DescribeGroups [(Group, Describe)], describe_groups::DescribeGroupsRequest {
            groups: vec![GROUP]
        } => DescribeGroupsResponse: |names, version, answer| flat!(answer.groups)),
        row!(DeleteGroups [(Group, Delete)], delete_groups::DeleteGroupsRequest {
            groups_names: vec![GROUP]
        } => DeleteGroupsResponse: |names, version, answer| flat!(answer.results)),
        row!(OffsetDelete [(Group, Delete)], offset_delete::OffsetDeleteRequest {
            group_id: GROUP,
            topics: vec![offset_delete::OffsetDeleteRequestTopic {
                name: names.topic,
                partitions: vec![offset_delete::OffsetDeleteRequestPartition::default()],
            }]
        } => OffsetDeleteResponse: |names, version, answer| {
            let mut codes = flat!(answer.topics => partitions);
            codes.push(answer.error_code);
            codes
        }),
    ]
}

fn setting_rows() -> Vec<Row> {
    vec![
        row!(DescribeConfigs [(Topic, DescribeConfigs), (Cluster, DescribeConfigs), (Group, DescribeConfigs)],
        describe_configs::DescribeConfigsRequest {
            resources: [(2, names.topic), (4, "1"), (8, "1"), (16, "s"), (32, GROUP)]
                .map(|(resource_type, resource_name)| describe_configs::DescribeConfigsResource {
                    resource_type,
                    resource_name,
                    configuration_keys: None,
                })
                .into()
        } => DescribeConfigsResponse: |names, version, answer| flat!(answer.results)),
        row!(AlterConfigs [(Topic, AlterConfigs), (Cluster, AlterConfigs), (Group, AlterConfigs)],
        alter_configs::AlterConfigsRequest {
            resources: [(2, names.topic), (4, "1"), (16, "s"), (32, GROUP)]
                .map(|(resource_type, resource_name)| alter_configs::AlterConfigsResource {
                    resource_type,
                    resource_name,
                    configs: vec![],
                })
                .into(),
            validate_only: true
        } => AlterConfigsResponse: |names, version, answer| flat!(answer.responses)),
        row!(IncrementalAlterConfigs [(Topic, AlterConfigs), (Cluster, AlterConfigs), (Group, AlterConfigs)],
        incremental_alter_configs::IncrementalAlterConfigsRequest {
            resources: [(2, names.topic), (4, "1"), (16, "s"), (32, GROUP)]
                .map(|(resource_type, resource_name)| incremental_alter_configs::AlterConfigsResource {
                    resource_type,
                    resource_name,
                    configs: vec![],
                })
                .into(),
            validate_only: true
        } => IncrementalAlterConfigsResponse: |names, version, answer| flat!(answer.responses)),
        row!(ListConfigResources [(Cluster, DescribeConfigs)], list_config_resources::ListConfigResourcesRequest {
        } => ListConfigResourcesResponse: |names, version, answer| vec![answer.error_code]),
        row!(DescribeClientQuotas [(Cluster, DescribeConfigs)], describe_client_quotas::DescribeClientQuotasRequest {
        } => DescribeClientQuotasResponse: |names, version, answer| vec![answer.error_code]),
        row!(AlterClientQuotas [(Cluster, AlterConfigs)], alter_client_quotas::AlterClientQuotasRequest {
            entries: vec![alter_client_quotas::AlterClientQuotasRequestEntryData {
                entity: vec![alter_client_quotas::AlterClientQuotasRequestEntityData {
                    entity_type: "user",
                    entity_name: Some("bob"),
                }],
                ops: vec![],
            }],
            validate_only: true
        } => AlterClientQuotasResponse: |names, version, answer| flat!(answer.entries)),
    ]
}

fn cluster_rows() -> Vec<Row> {
    vec![
        row!(InitProducerId [(Cluster, IdempotentWrite)], init_producer_id::InitProducerIdRequest {
            transactional_id: None,
            producer_id: -1,
            producer_epoch: -1
        } => InitProducerIdResponse: |names, version, answer| vec![answer.error_code]),
        row!(DescribeAcls [(Cluster, Describe)], describe_acls::DescribeAclsRequest {
            resource_type_filter: 1,
            pattern_type_filter: 1,
            operation: 1,
            permission_type: 1
        } => DescribeAclsResponse: |names, version, answer| vec![answer.error_code]),
        row!(CreateAcls [(Cluster, Alter)], create_acls::CreateAclsRequest {
            creations: vec![create_acls::AclCreation::default(); 2]
        } => CreateAclsResponse: |names, version, answer| flat!(answer.results)),
        row!(DeleteAcls [(Cluster, Alter)], delete_acls::DeleteAclsRequest {
            filters: vec![delete_acls::DeleteAclsFilter::default(); 2]
        } => DeleteAclsResponse: |names, version, answer| flat!(answer.filter_results)),
        row!(DescribeLogDirs [(Cluster, Describe)], describe_log_dirs::DescribeLogDirsRequest {
            topics: None
        } => DescribeLogDirsResponse: |names, version, answer| vec![answer.error_code]),
        row!(DescribeQuorum [(Cluster, Describe)], describe_quorum::DescribeQuorumRequest {
        } => DescribeQuorumResponse: |names, version, answer| vec![answer.error_code]),
        row!(ListPartitionReassignments [(Cluster, Describe)],
        list_partition_reassignments::ListPartitionReassignmentsRequest {
            topics: None
        } => ListPartitionReassignmentsResponse: |names, version, answer| vec![answer.error_code]),
        row!(DescribeUserScramCredentials [(Cluster, Describe)],
        describe_user_scram_credentials::DescribeUserScramCredentialsRequest {
        } => DescribeUserScramCredentialsResponse: |names, version, answer| vec![answer.error_code]),
        row!(AlterUserScramCredentials [(Cluster, Alter)],
        alter_user_scram_credentials::AlterUserScramCredentialsRequest {
            deletions: vec![alter_user_scram_credentials::ScramCredentialDeletion { name: "bob", mechanism: 1 }]
        } => AlterUserScramCredentialsResponse: |names, version, answer| flat!(answer.results)),
        row!(ElectLeaders [(Cluster, Alter)], elect_leaders::ElectLeadersRequest {
            topic_partitions: Some(vec![elect_leaders::TopicPartitions {
                topic: names.topic,
                partitions: vec![0],
            }])
        } => ElectLeadersResponse: |names, version, answer| {
            flat!(answer.replica_election_results => partition_result)
        }),
        row!(AlterPartitionReassignments [(Cluster, Alter)],
        alter_partition_reassignments::AlterPartitionReassignmentsRequest {
            topics: vec![alter_partition_reassignments::ReassignableTopic {
                name: names.topic,
                partitions: vec![alter_partition_reassignments::ReassignablePartition::default()],
            }]
        } => AlterPartitionReassignmentsResponse: |names, version, answer| vec![answer.error_code]),
        row!(AlterReplicaLogDirs [(Cluster, Alter)], alter_replica_log_dirs::AlterReplicaLogDirsRequest {
            dirs: vec![alter_replica_log_dirs::AlterReplicaLogDir {
                path: "/data",
                topics: vec![alter_replica_log_dirs::AlterReplicaLogDirTopic {
                    name: names.topic,
                    partitions: vec![0],
                }],
            }]
        } => AlterReplicaLogDirsResponse: |names, version, answer| flat!(answer.results => partitions)),
        row!(WriteTxnMarkers [(Cluster, ClusterAction)], write_txn_markers::WriteTxnMarkersRequest {
            markers: vec![write_txn_markers::WritableTxnMarker {
                producer_id: 7,
                topics: vec![write_txn_markers::WritableTxnMarkerTopic {
                    name: names.topic,
                    partition_indexes: vec![0],
                }],
                ..Default::default()
            }]
        } => WriteTxnMarkersResponse: |names, version, answer| {
            let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
            topics.flat_map(|topic| &topic.partitions).map(|one| one.error_code).collect()
        }),
        row!(UpdateFeatures [(Cluster, Alter)], update_features::UpdateFeaturesRequest {
        } => UpdateFeaturesResponse: |names, version, answer| vec![answer.error_code]),
    ]
}

/// APIs whose answer has no error code for a denial, or whose needs differ by version; each has a
/// test of its own.
const FILTERED: [ApiKey; 4] = [
    ApiKey::ListGroups,
    ApiKey::DescribeCluster,
    ApiKey::ListTransactions,
    ApiKey::AddPartitionsToTxn,
];

fn transaction_rows() -> Vec<Row> {
    vec![
        row!(AddOffsetsToTxn [(TransactionalId, Write), (Group, Read)],
        add_offsets_to_txn::AddOffsetsToTxnRequest {
            transactional_id: TRANSACTIONAL_ID,
            group_id: GROUP
        } => AddOffsetsToTxnResponse: |names, version, answer| vec![answer.error_code]),
        row!(EndTxn [(TransactionalId, Write)], end_txn::EndTxnRequest {
            transactional_id: TRANSACTIONAL_ID
        } => EndTxnResponse: |names, version, answer| vec![answer.error_code]),
        row!(TxnOffsetCommit [(TransactionalId, Write), (Group, Read), (Topic, Read)],
        txn_offset_commit::TxnOffsetCommitRequest {
            transactional_id: TRANSACTIONAL_ID,
            group_id: GROUP,
            generation_id: -1,
            topics: vec![txn_offset_commit::TxnOffsetCommitRequestTopic {
                name: names.topic,
                partitions: vec![txn_offset_commit::TxnOffsetCommitRequestPartition::default()],
            }]
        } => TxnOffsetCommitResponse: |names, version, answer| flat!(answer.topics => partitions)),
        row!(DescribeTransactions [(TransactionalId, Describe)],
        describe_transactions::DescribeTransactionsRequest {
            transactional_ids: vec![TRANSACTIONAL_ID]
        } => DescribeTransactionsResponse: |names, version, answer| flat!(answer.transaction_states)),
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = topic_rows();
    rows.extend(transaction_rows());
    rows.extend(group_rows());
    rows.extend(setting_rows());
    rows.extend(cluster_rows());
    rows
}

pub(super) fn acl(
    permission: Permission,
    resource_type: ResourceType,
    operation: Operation,
    name: &str,
) -> AclImage {
    AclImage {
        id: Uuid::ZERO,
        resource_type: resource_type.code(),
        resource_name: name.into(),
        pattern_type: PatternType::Literal.code(),
        principal: "User:alice".into(),
        host: "127.0.0.1".into(),
        operation: operation.code(),
        permission_type: permission.code(),
    }
}

pub(super) fn allow((resource_type, operation): Need) -> AclImage {
    acl(Permission::Allow, resource_type, operation, "*")
}

pub(super) fn deny((resource_type, operation): Need) -> AclImage {
    acl(Permission::Deny, resource_type, operation, "*")
}

const EVERYTHING: [Need; 4] = [(Topic, All), (Group, All), (Cluster, All), (TransactionalId, All)];

pub(super) fn set_acls(broker: &Broker, acls: impl IntoIterator<Item = AclImage>) {
    let numbered = (1u128..).zip(acls);
    let acls: BTreeMap<Uuid, AclImage> = numbered
        .map(|(number, acl)| (Uuid(number.to_be_bytes()), acl))
        .collect();
    broker.node.access.follow(&acls);
}

/// A broker with one topic, and a connection of alice, who has no permissions.
pub(super) fn broker_with_topic() -> (Broker, Names) {
    let mut broker = Broker::new(&[LINES[0], LINES[1], ("ottla.durability", "page-cache")]);
    broker.connect_as("User:admin");
    let (error, topic_id) = broker.create(EXISTING, 1, 7);
    assert_eq!(error, ErrorCode::None);
    broker.connect_as("User:alice");
    let names = Names {
        topic: EXISTING,
        topic_id,
    };
    (broker, names)
}

/// Returns the answer; `None` for one that waits for something that will not come: nothing was
/// denied.
fn exchange(broker: &Broker, row: &Row, version: i16, names: &Names) -> Option<Vec<u8>> {
    settled(broker, row.api_key, version, |body| {
        (row.encode)(names, version, body);
    })
}

pub(super) fn settled(
    broker: &Broker,
    api_key: ApiKey,
    version: i16,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    encode(&mut body);
    let mut reply = ReplyBuffer::default();
    match broker.send(api_key, version, &body, &mut reply) {
        Handled::Replied => Some(reply.bytes),
        Handled::Pending(mut pending) => loop {
            if let Poll::Ready(()) = poll(broker, &mut pending, &mut reply) {
                return Some(reply.bytes);
            }
            if broker.settle() == 0 {
                return None;
            }
        },
        _ => panic!("{api_key} {version}: no answer"),
    }
}

fn codes(broker: &Broker, row: &Row, version: i16, names: &Names) -> Vec<ErrorCode> {
    let answer = exchange(broker, row, version, names);
    let codes = answer.map_or(Vec::new(), |answer| (row.codes)(&answer, version));
    codes.into_iter().map(super::metadata_tests::error).collect()
}

fn is_denial(code: &ErrorCode) -> bool {
    ResourceType::ALL
        .iter()
        .any(|resource_type| resource_type.denial() == *code)
}

/// Before version 3 an answer to DescribeLogDirs has no place for the error.
fn has_error(api_key: ApiKey, version: i16) -> bool {
    api_key != ApiKey::DescribeLogDirs || version >= 3
}

#[test]
fn every_served_api_has_a_row_or_is_open() {
    let with_row: Vec<ApiKey> = rows().iter().map(|row| row.api_key).collect();
    for (api_key, access) in CONTROLLED {
        let is_tested = with_row.contains(api_key)
            || FILTERED.contains(api_key)
            // Refused without an authenticated client: its own tests look at its permission.
            || *api_key == ApiKey::CreateDelegationToken;
        assert_eq!(is_tested, *access != "open", "{api_key}");
    }
}

#[test]
fn without_a_permission_every_api_is_denied() {
    let (broker, names) = broker_with_topic();
    for row in rows() {
        for version in versions(row.api_key).filter(|version| has_error(row.api_key, *version)) {
            let codes = codes(&broker, &row, version, &names);
            let expected = row.needs[0].0.denial();
            assert!(codes.contains(&expected), "{} {version}: {codes:?}", row.api_key);
            let is_right = |code: &ErrorCode| *code == ErrorCode::None || is_denial(code);
            assert!(codes.iter().all(is_right), "{} {version}: {codes:?}", row.api_key);
        }
    }
}

#[test]
fn the_permissions_that_an_api_needs_are_enough() {
    for row in rows() {
        let (broker, names) = broker_with_topic();
        // The answer to OffsetFetch and the others about topics of a group tells about each topic.
        let needs = row.needs.iter().copied().chain(needs_of_parts(row.api_key));
        set_acls(&broker, needs.map(allow));
        for version in versions(row.api_key) {
            let codes = codes(&broker, &row, version, &names);
            assert!(
                !codes.iter().any(is_denial),
                "{} {version}: {codes:?}",
                row.api_key
            );
        }
    }
}

/// Needs that show only when a group's coordinator has answered.
fn needs_of_parts(api_key: ApiKey) -> Vec<Need> {
    match api_key {
        ApiKey::OffsetFetch => vec![(Topic, Describe)],
        ApiKey::OffsetDelete => vec![(Topic, Read)],
        _ => Vec::new(),
    }
}

#[test]
fn every_need_can_be_denied_alone() {
    let (broker, names) = broker_with_topic();
    for row in rows() {
        for need in row.needs {
            let all = EVERYTHING.map(allow);
            let mut acls = all.to_vec();
            acls.push(deny(*need));
            // Another permission that does as well.
            match row.api_key {
                ApiKey::CreateTopics => acls.push(deny((Cluster, Create))),
                ApiKey::DeleteTopics => acls.push(deny((Cluster, Delete))),
                ApiKey::InitProducerId => acls.push(deny((Topic, Write))),
                ApiKey::OffsetForLeaderEpoch => acls.push(deny((Cluster, ClusterAction))),
                ApiKey::WriteTxnMarkers => acls.push(deny((Cluster, Alter))),
                _ => {}
            }
            set_acls(&broker, acls);
            for version in versions(row.api_key).filter(|version| has_error(row.api_key, *version)) {
                let codes = codes(&broker, &row, version, &names);
                let expected = need.0.denial();
                assert!(
                    codes.contains(&expected),
                    "{} {version} {need:?}: {codes:?}",
                    row.api_key
                );
            }
        }
    }
}

#[test]
fn a_denial_does_not_tell_whether_the_topic_exists() {
    let (broker, names) = broker_with_topic();
    let absent = Names {
        topic: ABSENT,
        topic_id: names.topic_id,
    };
    for row in rows() {
        for version in versions(row.api_key).filter(|version| *version < row.by_id) {
            let answers = [&names, &absent].map(|names| exchange(&broker, &row, version, names).unwrap());
            let [existing, absent] = answers;
            assert_eq!(
                replaced(&existing, EXISTING, ABSENT),
                absent,
                "{} {version}",
                row.api_key
            );
        }
    }
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while at + from.len() <= bytes.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + from.len()].copy_from_slice(to);
        }
        at += 1;
    }
    bytes
}

#[test]
fn super_users_and_brokers_without_an_authorizer_deny_nothing() {
    let (mut admin, names) = broker_with_topic();
    admin.connect_as("User:admin");
    let open = Broker::new(&[]);
    for broker in [&admin, &open] {
        for row in rows().iter().filter(|row| row.api_key != ApiKey::FindCoordinator) {
            for version in versions(row.api_key) {
                let codes = codes(broker, row, version, &names);
                assert!(
                    !codes.iter().any(is_denial),
                    "{} {version}: {codes:?}",
                    row.api_key
                );
            }
        }
    }
}

#[test]
fn all_topics_are_those_that_the_client_may_describe() {
    let (mut broker, _) = broker_with_topic();
    broker.connect_as("User:admin");
    broker.create("hidden", 1, 7);
    broker.connect_as("User:alice");
    set_acls(&broker, [acl(Permission::Allow, Topic, Read, EXISTING)]);
    for version in versions(ApiKey::Metadata) {
        let request = metadata::MetadataRequest {
            topics: Some(Vec::new()).filter(|_| version == 0),
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::Metadata, version, |body| request.encode(body, version));
        let response = read(&bytes, |reader| {
            metadata::MetadataResponse::decode(reader, version)
        });
        let names: Vec<_> = response.topics.iter().map(|topic| topic.name).collect();
        assert_eq!(names, [Some(EXISTING)], "{version}");
    }
    // The cursor after the first partition would be at the hidden topic.
    let request = describe_topic_partitions::DescribeTopicPartitionsRequest {
        response_partition_limit: 1,
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::DescribeTopicPartitions, 0, |body| request.encode(body, 0));
    let response = read(&bytes, |reader| {
        describe_topic_partitions::DescribeTopicPartitionsResponse::decode(reader, 0)
    });
    assert_eq!(response.topics.len(), 1);
    assert!(response.next_cursor.is_none());
}

#[test]
fn topics_found_by_id_keep_their_name_to_themselves() {
    let (broker, names) = broker_with_topic();
    let request = metadata::MetadataRequest {
        topics: Some(vec![metadata::MetadataRequestTopic {
            name: None,
            topic_id: names.topic_id,
        }]),
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::Metadata, 13, |body| request.encode(body, 13));
    let response = read(&bytes, |reader| metadata::MetadataResponse::decode(reader, 13));
    let topic = &response.topics[0];
    assert_eq!(topic.error_code, ErrorCode::TopicAuthorizationFailed.code());
    assert_eq!((topic.name, topic.topic_id), (None, names.topic_id));
    assert!(topic.partitions.is_empty());

    let delete = |acls: Vec<AclImage>| {
        set_acls(&broker, acls);
        let request = delete_topics::DeleteTopicsRequest {
            topics: vec![delete_topics::DeleteTopicState {
                name: None,
                topic_id: names.topic_id,
            }],
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::DeleteTopics, 6, |body| request.encode(body, 6));
        let response = read(&bytes, |reader| {
            delete_topics::DeleteTopicsResponse::decode(reader, 6)
        });
        let topic = &response.responses[0];
        assert_eq!(topic.error_code, ErrorCode::TopicAuthorizationFailed.code());
        assert_eq!(topic.topic_id, names.topic_id);
        topic.name.map(str::to_owned)
    };
    assert_eq!(delete(Vec::new()), None);
    assert_eq!(delete(vec![allow((Topic, Describe))]), Some(EXISTING.to_owned()));
}

#[test]
fn a_missing_topic_is_created_for_those_who_may_create_it() {
    let (broker, _) = broker_with_topic();
    let ask = |acls: &[Need], name: &str| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let request = metadata::MetadataRequest {
            topics: Some(vec![metadata::MetadataRequestTopic {
                name: Some(name),
                ..Default::default()
            }]),
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::Metadata, 12, |body| request.encode(body, 12));
        let response = read(&bytes, |reader| metadata::MetadataResponse::decode(reader, 12));
        (
            response.topics[0].error_code,
            broker.node.image().topic(name).is_some(),
        )
    };
    let denied = ErrorCode::TopicAuthorizationFailed.code();
    assert_eq!(ask(&[(Topic, Create), (Cluster, Create)], "a"), (denied, false));
    assert_eq!(ask(&[(Topic, Describe)], "a"), (denied, false));
    // That the name is none is told to those who may create it.
    assert_eq!(ask(&[(Topic, Describe)], "a/b"), (denied, false));
    let invalid = ErrorCode::InvalidTopicException.code();
    assert_eq!(
        ask(&[(Topic, Describe), (Topic, Create)], "a/b"),
        (invalid, false)
    );
    assert_eq!(ask(&[(Topic, Describe), (Topic, Create)], "a"), (0, true));
    assert_eq!(ask(&[(Topic, Describe), (Cluster, Create)], "b"), (0, true));
}

#[test]
fn authorized_operations_are_those_of_the_client() {
    let (broker, _) = broker_with_topic();
    set_acls(
        &broker,
        [
            allow((Topic, Read)),
            allow((Cluster, AlterConfigs)),
            allow((Group, Delete)),
        ],
    );
    let request = describe_cluster::DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        ..Default::default()
    };
    let cluster = || {
        let bytes = broker.ask(ApiKey::DescribeCluster, 2, |body| request.encode(body, 2));
        let response = read(&bytes, |reader| {
            describe_cluster::DescribeClusterResponse::decode(reader, 2)
        });
        response.cluster_authorized_operations
    };
    // Without DESCRIBE nothing is told.
    assert_eq!(cluster(), 0);
    set_acls(
        &broker,
        [
            allow((Topic, Read)),
            allow((Cluster, AlterConfigs)),
            allow((Cluster, Describe)),
        ],
    );
    assert_eq!(cluster(), 1 << 8 | 1 << 10 | 1 << 11);
    let request = metadata::MetadataRequest {
        topics: None,
        include_topic_authorized_operations: true,
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::Metadata, 12, |body| request.encode(body, 12));
    let response = read(&bytes, |reader| metadata::MetadataResponse::decode(reader, 12));
    assert_eq!(response.topics[0].topic_authorized_operations, 1 << 3 | 1 << 8);
}

#[test]
fn settings_of_a_new_topic_are_shown_to_those_who_may_describe_them() {
    let (broker, _) = broker_with_topic();
    let create = |acls: &[Need]| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let request = create_topics::CreateTopicsRequest {
            topics: vec![create_topics::CreatableTopic {
                name: "new",
                num_partitions: 3,
                replication_factor: 1,
                ..Default::default()
            }],
            validate_only: true,
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::CreateTopics, 7, |body| request.encode(body, 7));
        let response = read(&bytes, |reader| {
            create_topics::CreateTopicsResponse::decode(reader, 7)
        });
        let topic = &response.topics[0];
        assert_eq!(topic.error_code, 0);
        (
            topic.topic_config_error_code,
            topic.num_partitions,
            topic.configs.as_ref().map(Vec::is_empty),
        )
    };
    assert_eq!(create(&[(Topic, Create)]), (29, -1, Some(true)));
    assert_eq!(
        create(&[(Cluster, Create), (Topic, DescribeConfigs)]),
        (0, 3, Some(false))
    );
}

#[test]
fn a_transactional_id_needs_its_own_permission() {
    let (broker, _) = broker_with_topic();
    let ask = |acls: &[Need]| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let request = init_producer_id::InitProducerIdRequest {
            transactional_id: Some(TRANSACTIONAL_ID),
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let bytes = broker.ask(ApiKey::InitProducerId, 4, |body| request.encode(body, 4));
        read(&bytes, |reader| {
            init_producer_id::InitProducerIdResponse::decode(reader, 4)
        })
        .error_code
    };
    assert_eq!(
        ask(&[(Cluster, IdempotentWrite)]),
        ErrorCode::TransactionalIdAuthorizationFailed.code()
    );
    // Let in, and then told that a transaction needs a timeout.
    let let_in = ErrorCode::InvalidTransactionTimeout.code();
    assert_eq!(ask(&[(TransactionalId, Write)]), let_in);
}

/// Clients need their id and the topics; from version 4 on brokers ask.
#[test]
fn partitions_are_added_by_those_who_may_write_to_them() {
    let (broker, names) = broker_with_topic();
    let ask = |version: i16, acls: &[Need]| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let topics = || {
            vec![add_partitions_to_txn::AddPartitionsToTxnTopic {
                name: names.topic,
                partitions: vec![0, 9],
            }]
        };
        let request = match version {
            ..4 => add_partitions_to_txn::AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: TRANSACTIONAL_ID,
                v3_and_below_topics: topics(),
                ..Default::default()
            },
            _ => add_partitions_to_txn::AddPartitionsToTxnRequest {
                transactions: vec![add_partitions_to_txn::AddPartitionsToTxnTransaction {
                    transactional_id: TRANSACTIONAL_ID,
                    topics: topics(),
                    ..Default::default()
                }],
                ..Default::default()
            },
        };
        let bytes = broker.ask(ApiKey::AddPartitionsToTxn, version, |body| {
            request.encode(body, version);
        });
        read(&bytes, |reader| {
            let decoded = add_partitions_to_txn::AddPartitionsToTxnResponse::decode(reader, version);
            decoded.map(|answer| {
                let by_transaction = answer.results_by_transaction.iter();
                let topics = by_transaction.flat_map(|result| &result.topic_results);
                let topics = topics.chain(&answer.results_by_topic_v3_and_below);
                let partitions = topics.flat_map(|topic| &topic.results_by_partition);
                let codes = partitions.map(|partition| partition.partition_error_code);
                let codes = codes.chain((answer.error_code != 0).then_some(answer.error_code));
                codes.map(error).collect::<Vec<ErrorCode>>()
            })
        })
    };
    let unknown = [
        ErrorCode::OperationNotAttempted,
        ErrorCode::UnknownTopicOrPartition,
    ];
    for version in 0..=3 {
        assert_eq!(
            ask(version, &[(Topic, Write)]),
            [ErrorCode::TransactionalIdAuthorizationFailed; 2]
        );
        assert_eq!(
            ask(version, &[(TransactionalId, Write)]),
            [ErrorCode::TopicAuthorizationFailed; 2]
        );
        let both = [(TransactionalId, Write), (Topic, Write)];
        assert_eq!(ask(version, &both), unknown);
    }
    for version in 4..=5 {
        let client = [(TransactionalId, Write), (Topic, Write)];
        assert_eq!(ask(version, &client), [ErrorCode::ClusterAuthorizationFailed]);
        assert_eq!(ask(version, &[(Cluster, ClusterAction)]), unknown);
    }
}

#[test]
fn writing_to_any_topic_allows_idempotent_producers() {
    let (broker, names) = broker_with_topic();
    let row = cluster_rows()
        .into_iter()
        .find(|row| row.api_key == ApiKey::InitProducerId)
        .unwrap();
    let ask = |acl: AclImage| {
        set_acls(&broker, [acl]);
        codes(&broker, &row, 4, &names)
    };
    let denied = [ErrorCode::ClusterAuthorizationFailed];
    assert_eq!(ask(acl(Permission::Allow, Topic, Read, "t")), denied);
    assert_eq!(ask(acl(Permission::Allow, Topic, Write, "t")), [ErrorCode::None]);
    assert_eq!(
        ask(acl(Permission::Allow, Cluster, IdempotentWrite, CLUSTER_NAME)),
        [ErrorCode::None]
    );
}

#[test]
fn acls_are_created_listed_and_deleted_and_decide_at_once() {
    let (mut broker, names) = broker_with_topic();
    let row = topic_rows()
        .into_iter()
        .find(|row| row.api_key == ApiKey::Metadata)
        .unwrap();
    let is_denied = |broker: &Broker| codes(broker, &row, 12, &names).iter().any(is_denial);
    for version in versions(ApiKey::CreateAcls) {
        assert!(is_denied(&broker));
        broker.connect_as("User:admin");
        let creation = create_acls::AclCreation {
            resource_type: Topic.code(),
            resource_name: "exist",
            resource_pattern_type: PatternType::Prefixed.code(),
            principal: "User:alice",
            host: "*",
            operation: Describe.code(),
            permission_type: Permission::Allow.code(),
        };
        let request = create_acls::CreateAclsRequest {
            creations: vec![
                creation.clone(),
                create_acls::AclCreation {
                    principal: "alice",
                    ..creation
                },
            ],
        };
        let bytes = broker.ask(ApiKey::CreateAcls, version, |body| request.encode(body, version));
        let response = read(&bytes, |reader| {
            create_acls::CreateAclsResponse::decode(reader, version)
        });
        assert_eq!(flat!(response.results), [0, ErrorCode::InvalidRequest.code()]);
        assert_eq!(response.results[0].error_message, None);
        broker.connect_as("User:alice");
        assert!(!is_denied(&broker));
        broker.connect_as("User:admin");
        let request = describe_acls::DescribeAclsRequest {
            resource_type_filter: Topic.code(),
            resource_name_filter: Some(EXISTING),
            pattern_type_filter: 2,
            principal_filter: None,
            host_filter: None,
            operation: 1,
            permission_type: 1,
        };
        let bytes = broker.ask(ApiKey::DescribeAcls, version, |body| {
            request.encode(body, version)
        });
        let response = read(&bytes, |reader| {
            describe_acls::DescribeAclsResponse::decode(reader, version)
        });
        assert_eq!(response.resources.len(), 1);
        assert_eq!(
            (
                response.resources[0].resource_name,
                response.resources[0].pattern_type
            ),
            ("exist", 4)
        );
        assert_eq!(response.resources[0].acls[0].principal, "User:alice");
        let filter = delete_acls::DeleteAclsFilter {
            resource_type_filter: 1,
            pattern_type_filter: 1,
            resource_name_filter: None,
            principal_filter: Some("User:alice"),
            host_filter: None,
            operation: 1,
            permission_type: 1,
        };
        let wrong = delete_acls::DeleteAclsFilter {
            operation: 0,
            ..filter.clone()
        };
        let request = delete_acls::DeleteAclsRequest {
            filters: vec![filter, wrong],
        };
        let bytes = broker.ask(ApiKey::DeleteAcls, version, |body| request.encode(body, version));
        let response = read(&bytes, |reader| {
            delete_acls::DeleteAclsResponse::decode(reader, version)
        });
        assert_eq!(
            flat!(response.filter_results),
            [0, ErrorCode::InvalidRequest.code()]
        );
        assert_eq!(response.filter_results[0].matching_acls[0].resource_name, "exist");
        broker.connect_as("User:alice");
    }
    assert!(is_denied(&broker));
}

#[test]
fn without_an_authorizer_acls_can_be_neither_seen_nor_changed() {
    let broker = Broker::new(&[]);
    let names = Names {
        topic: EXISTING,
        topic_id: Uuid::ZERO,
    };
    let is_about_acls = |row: &Row| {
        matches!(
            row.api_key,
            ApiKey::DescribeAcls | ApiKey::CreateAcls | ApiKey::DeleteAcls
        )
    };
    for row in cluster_rows().into_iter().filter(is_about_acls) {
        for version in versions(row.api_key) {
            let codes = codes(&broker, &row, version, &names);
            assert!(!codes.is_empty());
            assert!(
                codes.iter().all(|code| *code == ErrorCode::SecurityDisabled),
                "{}",
                row.api_key
            );
        }
    }
}

#[test]
fn denials_are_counted_and_filtered_lists_are_not() {
    let (broker, names) = broker_with_topic();
    let count = |broker: &Broker, wanted: &str| {
        let counts = broker.node.access.denials().unwrap();
        counts
            .into_iter()
            .find(|(resource_type, _)| *resource_type == wanted)
            .unwrap()
            .1
    };
    let before = count(&broker, "Topic");
    let metadata = &topic_rows()[3];
    codes(&broker, metadata, 12, &names);
    assert_eq!(count(&broker, "Topic"), before + 1);
    let all = metadata::MetadataRequest {
        topics: None,
        ..Default::default()
    };
    broker.ask(ApiKey::Metadata, 12, |body| all.encode(body, 12));
    assert_eq!(count(&broker, "Topic"), before + 1);
    assert_eq!(count(&broker, "Group"), 0);
    assert!(Broker::new(&[]).node.access.denials().is_none());
}

#[test]
fn a_fetch_that_waits_gets_nothing_after_its_permission_was_withdrawn() {
    let (broker, names) = broker_with_topic();
    let request = fetch::FetchRequest {
        replica_id: -1,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1_000,
        session_epoch: -1,
        topics: vec![fetch::FetchTopic {
            topic: names.topic,
            partitions: vec![fetch::FetchPartition::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 12);
    let end = |acls_while_it_waits: Vec<AclImage>| {
        set_acls(&broker, [allow((Topic, Read))]);
        let mut reply = ReplyBuffer::default();
        let Handled::Pending(mut pending) = broker.send(ApiKey::Fetch, 12, &body, &mut reply) else {
            panic!("there is nothing to read");
        };
        assert!(poll(&broker, &mut pending, &mut reply).is_pending());
        set_acls(&broker, acls_while_it_waits);
        broker.advance_ms(500);
        assert!(poll(&broker, &mut pending, &mut reply).is_ready());
        let response = read(&reply.bytes, |reader| fetch::FetchResponse::decode(reader, 12));
        flat!(response.responses => partitions)
    };
    assert_eq!(end(vec![allow((Topic, Read))]), [0]);
    assert_eq!(end(Vec::new()), [ErrorCode::TopicAuthorizationFailed.code()]);
}

/// Commits an offset of the topic for each group.
fn commit(broker: &Broker, groups: &[&str]) {
    let search = find_coordinator::FindCoordinatorRequest {
        coordinator_keys: groups.to_vec(),
        ..Default::default()
    };
    settled(broker, ApiKey::FindCoordinator, 4, |body| search.encode(body, 4)).unwrap();
    for group_id in groups {
        let request = offset_commit::OffsetCommitRequest {
            group_id,
            topics: vec![offset_commit::OffsetCommitRequestTopic {
                name: EXISTING,
                partitions: vec![offset_commit::OffsetCommitRequestPartition::default()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let bytes = settled(broker, ApiKey::OffsetCommit, 8, |body| request.encode(body, 8)).unwrap();
        let response = read(&bytes, |reader| {
            offset_commit::OffsetCommitResponse::decode(reader, 8)
        });
        assert_eq!(flat!(response.topics => partitions), [0]);
    }
}

#[test]
fn groups_and_their_offsets_are_shown_to_those_who_may_describe_them() {
    let (mut broker, _) = broker_with_topic();
    broker.connect_as("User:admin");
    commit(&broker, &[GROUP, "hidden"]);
    broker.connect_as("User:alice");
    let listed = |acls: Vec<AclImage>| {
        set_acls(&broker, acls);
        let request = list_groups::ListGroupsRequest::default();
        let bytes = settled(&broker, ApiKey::ListGroups, 4, |body| request.encode(body, 4)).unwrap();
        let response = read(&bytes, |reader| {
            list_groups::ListGroupsResponse::decode(reader, 4)
        });
        let mut names: Vec<String> = response
            .groups
            .iter()
            .map(|group| group.group_id.to_owned())
            .collect();
        names.sort();
        (response.error_code, names)
    };
    assert_eq!(listed(Vec::new()), (0, Vec::new()));
    assert_eq!(
        listed(vec![acl(Permission::Allow, Group, Read, GROUP)]),
        (0, vec![GROUP.to_owned()])
    );
    let both = (0, vec![GROUP.to_owned(), "hidden".to_owned()]);
    assert_eq!(listed(vec![allow((Group, Describe))]), both);
    assert_eq!(listed(vec![allow((Cluster, Describe))]), both);

    let offsets = |acls: &[Need], topics: Option<Vec<offset_fetch::OffsetFetchRequestTopic<'static>>>| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let request = offset_fetch::OffsetFetchRequest {
            group_id: GROUP,
            topics,
            ..Default::default()
        };
        let bytes = settled(&broker, ApiKey::OffsetFetch, 7, |body| request.encode(body, 7)).unwrap();
        let response = read(&bytes, |reader| {
            offset_fetch::OffsetFetchResponse::decode(reader, 7)
        });
        assert_eq!(response.error_code, 0);
        flat!(response.topics => partitions)
    };
    let named = || {
        Some(vec![offset_fetch::OffsetFetchRequestTopic {
            name: EXISTING,
            partition_indexes: vec![0],
        }])
    };
    assert_eq!(offsets(&[(Group, Describe)], None), [0i16; 0]);
    assert_eq!(offsets(&[(Group, Describe), (Topic, Describe)], None), [0]);
    assert_eq!(
        offsets(&[(Group, Describe)], named()),
        [ErrorCode::TopicAuthorizationFailed.code()]
    );
    assert_eq!(offsets(&[(Group, Describe), (Topic, Describe)], named()), [0]);

    let deleted = |acls: &[Need]| {
        set_acls(&broker, acls.iter().copied().map(allow));
        let request = offset_delete::OffsetDeleteRequest {
            group_id: GROUP,
            topics: vec![offset_delete::OffsetDeleteRequestTopic {
                name: EXISTING,
                partitions: vec![offset_delete::OffsetDeleteRequestPartition::default()],
            }],
        };
        let bytes = settled(&broker, ApiKey::OffsetDelete, 0, |body| request.encode(body, 0)).unwrap();
        let response = read(&bytes, |reader| {
            offset_delete::OffsetDeleteResponse::decode(reader, 0)
        });
        assert_eq!(response.error_code, 0);
        flat!(response.topics => partitions)
    };
    assert_eq!(
        deleted(&[(Group, Delete)]),
        [ErrorCode::TopicAuthorizationFailed.code()]
    );
    assert_eq!(deleted(&[(Group, Delete), (Topic, Read)]), [0]);

    set_acls(&broker, [allow((Group, Describe)), allow((Group, Delete))]);
    let request = describe_groups::DescribeGroupsRequest {
        groups: vec!["hidden"],
        include_authorized_operations: true,
    };
    let bytes = settled(&broker, ApiKey::DescribeGroups, 5, |body| request.encode(body, 5)).unwrap();
    let response = read(&bytes, |reader| {
        describe_groups::DescribeGroupsResponse::decode(reader, 5)
    });
    assert_eq!(response.groups[0].authorized_operations, 1 << 6 | 1 << 8);
}

#[test]
fn nothing_is_prepared_for_a_group_that_is_denied() {
    let (broker, names) = broker_with_topic();
    let rows = group_rows();
    let row = rows
        .iter()
        .find(|row| row.api_key == ApiKey::FindCoordinator)
        .unwrap();
    codes(&broker, row, 4, &names);
    assert!(broker.node.image().topic("__consumer_offsets").is_none());
    set_acls(&broker, [allow((Group, Describe))]);
    codes(&broker, row, 4, &names);
    assert!(broker.node.image().topic("__consumer_offsets").is_some());
}

/// A broker with another topic, whose id is returned, too.
fn broker_with_two_topics() -> (Broker, Names, Uuid) {
    let (mut broker, names) = broker_with_topic();
    broker.connect_as("User:admin");
    let (error, other_id) = broker.create("other", 1, 7);
    assert_eq!(error, ErrorCode::None);
    broker.connect_as("User:alice");
    (broker, names, other_id)
}

/// Later requests of a session name no partition, and are decided about like the first.
#[test]
fn a_fetch_session_follows_what_is_granted_and_withdrawn() {
    let (broker, names, other_id) = broker_with_two_topics();
    let read_topic = |name| acl(Permission::Allow, Topic, Read, name);
    let both = || [read_topic(names.topic), read_topic("other")];
    for version in [12, 13] {
        let topic = |name, topic_id| fetch::FetchTopic {
            topic: if version < 13 { name } else { "" },
            topic_id: if version < 13 { Uuid::ZERO } else { topic_id },
            partitions: vec![fetch::FetchPartition {
                partition_max_bytes: 1_000,
                ..Default::default()
            }],
        };
        let forgotten = |name| fetch::ForgottenTopic {
            topic: if version < 13 { name } else { "" },
            topic_id: if version < 13 { Uuid::ZERO } else { other_id },
            partitions: vec![0],
        };
        let ask = |(session_id, session_epoch), topics, forgotten_topics_data| {
            let request = fetch::FetchRequest {
                replica_id: -1,
                max_bytes: 1_000,
                session_id,
                session_epoch,
                topics,
                forgotten_topics_data,
                ..Default::default()
            };
            let bytes = settled(&broker, ApiKey::Fetch, version, |body| {
                request.encode(body, version);
            });
            let bytes = bytes.unwrap();
            let response = read(&bytes, |reader| fetch::FetchResponse::decode(reader, version));
            assert_eq!(response.error_code, 0);
            let codes = flat!(response.responses => partitions);
            (response.session_id, codes)
        };
        let denied = ErrorCode::TopicAuthorizationFailed.code();
        set_acls(&broker, both());
        let topics = vec![topic(names.topic, names.topic_id), topic("other", other_id)];
        let (session, codes) = ask((0, 0), topics, Vec::new());
        assert_eq!(codes, [0, 0], "{version}");
        set_acls(&broker, [read_topic(names.topic)]);
        for epoch in 1..3 {
            let (_, codes) = ask((session, epoch), Vec::new(), Vec::new());
            assert_eq!(codes, [denied], "{version} {epoch}");
        }
        set_acls(&broker, both());
        let (_, codes) = ask((session, 3), Vec::new(), Vec::new());
        assert!(!codes.contains(&denied), "{version}");
        set_acls(&broker, []);
        let (_, codes) = ask((session, 4), Vec::new(), vec![forgotten("other")]);
        assert_eq!(codes, [denied], "{version}: one is forgotten, the other denied");
    }
}

#[test]
fn an_expression_finds_only_topics_that_the_member_may_describe() {
    let (mut broker, names, other_id) = broker_with_two_topics();
    broker.connect_as("User:admin");
    commit(&broker, &["other-group"]);
    broker.connect_as("User:alice");
    let assigned = |group_id: &str| {
        let request = consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
            group_id,
            member_id: "member",
            rebalance_timeout_ms: 1_000,
            subscribed_topic_regex: Some("existing|other"),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        let bytes = settled(&broker, ApiKey::ConsumerGroupHeartbeat, 1, |body| {
            request.encode(body, 1);
        });
        let bytes = bytes.unwrap();
        let response = read(&bytes, |reader| {
            consumer_group_heartbeat::ConsumerGroupHeartbeatResponse::decode(reader, 1)
        });
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        let assignment = response
            .assignment
            .map_or(Vec::new(), |found| found.topic_partitions);
        let mut topics: Vec<Uuid> = assignment.iter().map(|topic| topic.topic_id).collect();
        topics.sort();
        topics
    };
    let describe = |name| acl(Permission::Allow, Topic, Describe, name);
    set_acls(&broker, [allow((Group, Read)), describe(names.topic)]);
    assert_eq!(assigned("one"), [names.topic_id]);
    set_acls(&broker, [allow((Group, Read))]);
    assert_eq!(assigned("none"), []);
    set_acls(&broker, [allow((Group, Read)), allow((Topic, Describe))]);
    let mut both = [names.topic_id, other_id];
    both.sort();
    assert_eq!(assigned("both"), both);
}
