//! The requests of the matrix. None waits, and none changes what another user's row is about.

use std::ops::RangeInclusive;

use ottla_wire::acl::{ANY, Operation, PatternType, Permission, ResourceType, WILDCARD};
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::*;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::attributes;

use super::users::TOKEN_OWNER;
use crate::interop::refusals::{Ask, Forged};

/// The resources of one user.
pub struct Names {
    pub topic: String,
    pub topic_id: Uuid,
    pub other_topic: String,
    pub other_topic_id: Uuid,
    /// A topic that does not exist.
    pub absent: String,
    /// A topic that cannot exist: creating it on demand has no effect.
    pub impossible: String,
    pub group: String,
    pub transactional_id: String,
    pub now_ms: i64,
}

pub struct Row {
    pub name: &'static str,
    pub api_key: ApiKey,
    /// The first version with this form, and the last.
    from: i16,
    to: i16,
    /// The answer lists things in no certain order.
    pub is_list: bool,
    /// The answer has an id that each broker makes up.
    pub has_new_id: bool,
    encode: fn(&Names, i16, &mut Vec<u8>),
}

impl Row {
    /// Every served version that has this form.
    pub fn versions(&self) -> RangeInclusive<i16> {
        let served = self.api_key.served_versions().expect("the row's API is served");
        served.min.max(self.from)..=served.max.min(self.to)
    }

    pub fn ask(&self, names: &Names, version: i16) -> Ask {
        let mut body = Vec::new();
        (self.encode)(names, version, &mut body);
        Ask::new(self.api_key, version, body)
    }

    fn from(mut self, version: i16) -> Row {
        self.from = version;
        self
    }

    fn to(mut self, version: i16) -> Row {
        self.to = version;
        self
    }

    fn new_id(mut self) -> Row {
        self.has_new_id = true;
        self
    }

    fn list(mut self) -> Row {
        self.is_list = true;
        self
    }
}

macro_rules! row {
    ($name:expr, $api:ident, |$names:ident, $version:ident| {$module:ident::$request:ident $fields:tt}) => {
        row!($name, $api, |$names, $version| $module::$request $fields)
    };
    ($name:expr, $api:ident, |$names:ident, $version:ident| $module:ident::$request:ident {$($field:ident: $value:expr),* $(,)?}) => {
        Row {
            name: $name,
            api_key: ApiKey::$api,
            from: 0,
            to: i16::MAX,
            is_list: false,
            has_new_id: false,
            encode: |$names: &Names, $version: i16, out: &mut Vec<u8>| {
                let _ = (&$names, $version);
                #[allow(clippy::needless_update, reason = "some requests have no other field")]
                let request = $module::$request { $($field: $value,)* ..Default::default() };
                request.encode(out, $version);
            },
        }
    };
}

/// The rows that change nothing that others are about.
pub fn lasting_rows() -> Vec<Row> {
    let parts = [
        produce_rows(),
        topic_rows(),
        group_rows(),
        offset_rows(),
        transaction_rows(),
        setting_rows(),
        cluster_rows(),
        token_rows(),
    ];
    parts.into_iter().flatten().collect()
}

/// The name of a topic, or nothing where it is named by its id.
fn named(is_by_id: bool, names: &Names) -> (&str, Uuid) {
    match is_by_id {
        true => ("", names.topic_id),
        false => (&names.topic, Uuid::ZERO),
    }
}

fn produce(names: &Names, version: i16, out: &mut Vec<u8>, transactional_id: Option<&str>) {
    let batch = Forged::new(names.now_ms).with(|batch| {
        if transactional_id.is_some() {
            batch.attributes |= attributes::TRANSACTIONAL;
            batch.producer_id = 4_000;
            batch.producer_epoch = 0;
            batch.base_sequence = 0;
        }
    });
    let bytes = batch.bytes();
    let (name, topic_id) = named(version >= 13, names);
    let request = produce::ProduceRequest {
        transactional_id,
        acks: 1,
        timeout_ms: 5_000,
        topic_data: vec![produce::TopicProduceData {
            name,
            topic_id,
            partition_data: vec![produce::PartitionProduceData {
                index: 0,
                records: Some(&bytes),
            }],
        }],
    };
    request.encode(out, version);
}

fn produce_rows() -> Vec<Row> {
    let row = |name, encode| Row {
        name,
        api_key: ApiKey::Produce,
        from: 0,
        to: i16::MAX,
        is_list: false,
        has_new_id: false,
        encode,
    };
    vec![
        row("Produce", |names, version, out| {
            produce(names, version, out, None)
        }),
        row("Produce, transactional", |names, version, out| {
            produce(names, version, out, Some(&names.transactional_id));
        }),
    ]
}

fn topic_rows() -> Vec<Row> {
    vec![
        row!("Fetch", Fetch, |names, version| fetch::FetchRequest {
            replica_id: -1,
            max_bytes: 1_000,
            session_epoch: -1,
            topics: vec![fetch::FetchTopic {
                topic: named(version >= 13, names).0,
                topic_id: named(version >= 13, names).1,
                partitions: vec![fetch::FetchPartition {
                    current_leader_epoch: -1,
                    partition_max_bytes: 1_000,
                    ..Default::default()
                }],
            }],
        }),
        row!("ListOffsets", ListOffsets, |names, version| {
            list_offsets::ListOffsetsRequest {
                replica_id: -1,
                topics: vec![list_offsets::ListOffsetsTopic {
                    name: &names.topic,
                    partitions: vec![list_offsets::ListOffsetsPartition {
                        current_leader_epoch: -1,
                        timestamp: -1,
                        ..Default::default()
                    }],
                }],
            }
        }),
        row!("Metadata", Metadata, |names, version| metadata::MetadataRequest {
            topics: Some(vec![metadata::MetadataRequestTopic {
                name: Some(&names.topic),
                topic_id: Uuid::ZERO,
            }]),
            include_topic_authorized_operations: version >= 8,
            include_cluster_authorized_operations: (8..=10).contains(&version),
        }),
        row!("Metadata by id", Metadata, |names, version| {
            metadata::MetadataRequest {
                topics: Some(vec![metadata::MetadataRequestTopic {
                    name: None,
                    topic_id: names.topic_id,
                }]),
            }
        })
        .from(12),
        row!("Metadata of all topics", Metadata, |names, version| {
            metadata::MetadataRequest {
                topics: Some(Vec::new()).filter(|_| version == 0),
            }
        })
        .list(),
        row!("Metadata that may create", Metadata, |names, version| {
            metadata::MetadataRequest {
                topics: Some(vec![metadata::MetadataRequestTopic {
                    name: Some(&names.impossible),
                    topic_id: Uuid::ZERO,
                }]),
                allow_auto_topic_creation: true,
            }
        }),
        row!(
            "DescribeTopicPartitions",
            DescribeTopicPartitions,
            |names, version| {
                describe_topic_partitions::DescribeTopicPartitionsRequest {
                    topics: vec![describe_topic_partitions::TopicRequest { name: &names.topic }],
                    response_partition_limit: 10,
                }
            }
        ),
        row!(
            "DescribeTopicPartitions of all",
            DescribeTopicPartitions,
            |names, version| {
                describe_topic_partitions::DescribeTopicPartitionsRequest {
                    response_partition_limit: 10,
                }
            }
        ),
        row!("OffsetForLeaderEpoch", OffsetForLeaderEpoch, |names, version| {
            offset_for_leader_epoch::OffsetForLeaderEpochRequest {
                replica_id: -2,
                topics: vec![offset_for_leader_epoch::OffsetForLeaderTopic {
                    topic: &names.topic,
                    partitions: vec![offset_for_leader_epoch::OffsetForLeaderPartition {
                        current_leader_epoch: -1,
                        ..Default::default()
                    }],
                }],
            }
        }),
        row!("DescribeProducers", DescribeProducers, |names, version| {
            describe_producers::DescribeProducersRequest {
                topics: vec![describe_producers::TopicRequest {
                    name: &names.topic,
                    partition_indexes: vec![0],
                }],
            }
        }),
        row!("DeleteRecords", DeleteRecords, |names, version| {
            delete_records::DeleteRecordsRequest {
                topics: vec![delete_records::DeleteRecordsTopic {
                    name: &names.topic,
                    partitions: vec![delete_records::DeleteRecordsPartition::default()],
                }],
                timeout_ms: 5_000,
            }
        }),
        row!("CreateTopics, only checked", CreateTopics, |names, version| {
            create_topics::CreateTopicsRequest {
                topics: vec![create_topics::CreatableTopic {
                    name: &names.absent,
                    num_partitions: 1,
                    replication_factor: 1,
                    ..Default::default()
                }],
                timeout_ms: 5_000,
                validate_only: true,
            }
        })
        .new_id(),
        row!("CreateTopics that exist", CreateTopics, |names, version| {
            create_topics::CreateTopicsRequest {
                topics: vec![create_topics::CreatableTopic {
                    name: &names.topic,
                    num_partitions: 1,
                    replication_factor: 1,
                    ..Default::default()
                }],
                timeout_ms: 5_000,
                validate_only: true,
            }
        }),
        row!("CreatePartitions", CreatePartitions, |names, version| {
            create_partitions::CreatePartitionsRequest {
                topics: vec![create_partitions::CreatePartitionsTopic {
                    name: &names.topic,
                    count: 2,
                    assignments: None,
                }],
                timeout_ms: 5_000,
                validate_only: true,
            }
        }),
    ]
}

fn group_rows() -> Vec<Row> {
    vec![
        row!("FindCoordinator of a group", FindCoordinator, |names, version| {
            find_coordinator::FindCoordinatorRequest {
                key: if version < 4 { &names.group } else { "" },
                coordinator_keys: if version < 4 { vec![] } else { vec![&names.group] },
            }
        }),
        row!(
            "FindCoordinator of a transaction",
            FindCoordinator,
            |names, version| {
                find_coordinator::FindCoordinatorRequest {
                    key: if version < 4 { &names.transactional_id } else { "" },
                    key_type: 1,
                    coordinator_keys: if version < 4 {
                        vec![]
                    } else {
                        vec![&names.transactional_id]
                    },
                }
            }
        )
        .from(1),
        row!("JoinGroup", JoinGroup, |names, version| {
            join_group::JoinGroupRequest {
                group_id: &names.group,
                session_timeout_ms: 10_000,
                rebalance_timeout_ms: 10_000,
                member_id: "stranger",
                protocol_type: "consumer",
                protocols: vec![join_group::JoinGroupRequestProtocol {
                    name: "range",
                    metadata: b"",
                }],
            }
        }),
        row!("SyncGroup", SyncGroup, |names, version| {
            sync_group::SyncGroupRequest {
                group_id: &names.group,
                member_id: "stranger",
                generation_id: 1,
                protocol_type: Some("consumer").filter(|_| version >= 5),
                protocol_name: Some("range").filter(|_| version >= 5),
            }
        }),
        row!("Heartbeat", Heartbeat, |names, version| {
            heartbeat::HeartbeatRequest {
                group_id: &names.group,
                member_id: "stranger",
                generation_id: 1,
            }
        }),
        row!("LeaveGroup", LeaveGroup, |names, version| {
            leave_group::LeaveGroupRequest {
                group_id: &names.group,
                member_id: if version < 3 { "stranger" } else { "" },
                members: match version {
                    ..3 => vec![],
                    _ => vec![leave_group::MemberIdentity {
                        member_id: "stranger",
                        ..Default::default()
                    }],
                },
            }
        }),
        row!(
            "ConsumerGroupHeartbeat",
            ConsumerGroupHeartbeat,
            |names, version| {
                consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
                    group_id: &names.group,
                    member_id: "stranger",
                    member_epoch: 5,
                    rebalance_timeout_ms: 1_000,
                    subscribed_topic_names: Some(vec![&names.topic]),
                    topic_partitions: Some(Vec::new()),
                }
            }
        ),
        row!(
            "ConsumerGroupDescribe",
            ConsumerGroupDescribe,
            |names, version| {
                consumer_group_describe::ConsumerGroupDescribeRequest {
                    group_ids: vec![&names.group],
                    include_authorized_operations: true,
                }
            }
        ),
        row!("DescribeGroups", DescribeGroups, |names, version| {
            describe_groups::DescribeGroupsRequest {
                groups: vec![&names.group],
                include_authorized_operations: version >= 3,
            }
        }),
        row!("ListGroups", ListGroups, |names, version| {
            list_groups::ListGroupsRequest {}
        })
        .list(),
    ]
}

fn offset_rows() -> Vec<Row> {
    vec![
        row!("OffsetCommit", OffsetCommit, |names, version| {
            offset_commit::OffsetCommitRequest {
                group_id: &names.group,
                generation_id_or_member_epoch: -1,
                retention_time_ms: -1,
                topics: vec![offset_commit::OffsetCommitRequestTopic {
                    name: named(version >= 10, names).0,
                    topic_id: named(version >= 10, names).1,
                    partitions: vec![offset_commit::OffsetCommitRequestPartition::default()],
                }],
            }
        }),
        row!("OffsetFetch", OffsetFetch, |names, version| {
            offset_fetch::OffsetFetchRequest {
                group_id: &names.group,
                topics: Some(vec![offset_fetch::OffsetFetchRequestTopic {
                    name: &names.topic,
                    partition_indexes: vec![0],
                }]),
            }
        })
        .to(7),
        row!("OffsetFetch of several groups", OffsetFetch, |names, version| {
            offset_fetch::OffsetFetchRequest {
                topics: Some(Vec::new()),
                groups: vec![offset_fetch::OffsetFetchRequestGroup {
                    group_id: &names.group,
                    member_epoch: -1,
                    topics: Some(vec![offset_fetch::OffsetFetchRequestTopics {
                        name: named(version >= 10, names).0,
                        topic_id: named(version >= 10, names).1,
                        partition_indexes: vec![0],
                    }]),
                    ..Default::default()
                }],
            }
        })
        .from(8),
        row!("OffsetFetch of all topics", OffsetFetch, |names, version| {
            offset_fetch::OffsetFetchRequest {
                topics: Some(Vec::new()),
                groups: vec![offset_fetch::OffsetFetchRequestGroup {
                    group_id: &names.group,
                    member_epoch: -1,
                    topics: None,
                    ..Default::default()
                }],
            }
        })
        .from(8)
        .list(),
        row!("OffsetDelete", OffsetDelete, |names, version| {
            offset_delete::OffsetDeleteRequest {
                group_id: &names.group,
                topics: vec![offset_delete::OffsetDeleteRequestTopic {
                    name: &names.topic,
                    partitions: vec![offset_delete::OffsetDeleteRequestPartition::default()],
                }],
            }
        }),
    ]
}

fn added_topics(names: &Names) -> Vec<add_partitions_to_txn::AddPartitionsToTxnTopic<'_>> {
    vec![add_partitions_to_txn::AddPartitionsToTxnTopic {
        name: &names.topic,
        partitions: vec![0],
    }]
}

/// The producer does not exist: a user who is let in is told so.
fn transaction_rows() -> Vec<Row> {
    vec![
        row!("InitProducerId", InitProducerId, |names, version| {
            init_producer_id::InitProducerIdRequest {
                transactional_id: None,
                producer_id: -1,
                producer_epoch: -1,
                transaction_timeout_ms: 60_000,
            }
        }),
        row!(
            "InitProducerId, transactional",
            InitProducerId,
            |names, version| {
                init_producer_id::InitProducerIdRequest {
                    transactional_id: Some(&names.transactional_id),
                    producer_id: -1,
                    producer_epoch: -1,
                    transaction_timeout_ms: 60_000,
                }
            }
        ),
        row!("AddPartitionsToTxn", AddPartitionsToTxn, |names, version| {
            add_partitions_to_txn::AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: &names.transactional_id,
                v3_and_below_producer_id: 4_000,
                v3_and_below_topics: added_topics(names),
            }
        })
        .to(3),
        row!(
            "AddPartitionsToTxn by brokers",
            AddPartitionsToTxn,
            |names, version| {
                add_partitions_to_txn::AddPartitionsToTxnRequest {
                    transactions: vec![add_partitions_to_txn::AddPartitionsToTxnTransaction {
                        transactional_id: &names.transactional_id,
                        producer_id: 4_000,
                        topics: added_topics(names),
                        ..Default::default()
                    }],
                }
            }
        )
        .from(4),
        row!("AddOffsetsToTxn", AddOffsetsToTxn, |names, version| {
            add_offsets_to_txn::AddOffsetsToTxnRequest {
                transactional_id: &names.transactional_id,
                producer_id: 4_000,
                group_id: &names.group,
            }
        }),
        row!("TxnOffsetCommit", TxnOffsetCommit, |names, version| {
            txn_offset_commit::TxnOffsetCommitRequest {
                transactional_id: &names.transactional_id,
                group_id: &names.group,
                producer_id: 4_000,
                generation_id: -1,
                topics: vec![txn_offset_commit::TxnOffsetCommitRequestTopic {
                    name: &names.topic,
                    partitions: vec![txn_offset_commit::TxnOffsetCommitRequestPartition::default()],
                }],
            }
        }),
        row!("EndTxn", EndTxn, |names, version| end_txn::EndTxnRequest {
            transactional_id: &names.transactional_id,
            producer_id: 4_000,
        }),
        row!("DescribeTransactions", DescribeTransactions, |names, version| {
            describe_transactions::DescribeTransactionsRequest {
                transactional_ids: vec![&names.transactional_id],
            }
        }),
        row!("ListTransactions", ListTransactions, |names, version| {
            list_transactions::ListTransactionsRequest { duration_filter: -1 }
        })
        .list(),
        row!("WriteTxnMarkers", WriteTxnMarkers, |names, version| {
            write_txn_markers::WriteTxnMarkersRequest {
                markers: vec![write_txn_markers::WritableTxnMarker {
                    producer_id: 4_000,
                    topics: vec![write_txn_markers::WritableTxnMarkerTopic {
                        name: &names.absent,
                        partition_indexes: vec![0],
                    }],
                    ..Default::default()
                }],
            }
        }),
    ]
}

fn described<'a>(
    resource_type: i8,
    resource_name: &'a str,
    key: &'a str,
) -> describe_configs::DescribeConfigsResource<'a> {
    describe_configs::DescribeConfigsResource {
        resource_type,
        resource_name,
        configuration_keys: Some(vec![key]),
    }
}

fn altered(resource_type: i8, resource_name: &str) -> Vec<alter_configs::AlterConfigsResource<'_>> {
    vec![alter_configs::AlterConfigsResource {
        resource_type,
        resource_name,
        configs: vec![],
    }]
}

fn altered_in_steps(
    resource_type: i8,
    resource_name: &str,
) -> Vec<incremental_alter_configs::AlterConfigsResource<'_>> {
    vec![incremental_alter_configs::AlterConfigsResource {
        resource_type,
        resource_name,
        configs: vec![],
    }]
}

macro_rules! setting_rows {
    ($($kind:literal, $resource_type:literal, $key:literal, |$names:ident| $resource:expr;)*) => {
        vec![$(
            row!(concat!("DescribeConfigs of ", $kind), DescribeConfigs, |$names, version| {
                describe_configs::DescribeConfigsRequest {
                    resources: vec![described($resource_type, $resource, $key)],
                }
            }),
            row!(concat!("AlterConfigs of ", $kind), AlterConfigs, |$names, version| {
                alter_configs::AlterConfigsRequest {
                    resources: altered($resource_type, $resource),
                    validate_only: true,
                }
            }),
            row!(concat!("IncrementalAlterConfigs of ", $kind), IncrementalAlterConfigs, |$names, version| {
                incremental_alter_configs::IncrementalAlterConfigsRequest {
                    resources: altered_in_steps($resource_type, $resource),
                    validate_only: true,
                }
            }),
        )*]
    };
}

fn setting_rows() -> Vec<Row> {
    let mut rows = setting_rows! {
        "a topic", 2, "retention.ms", |names| &names.topic;
        "a broker", 4, "log.retention.ms", |names| "1";
        "a logger", 8, "kafka", |names| "1";
        "a telemetry subscription", 16, "interval.ms", |names| "subscription";
        "a group", 32, "consumer.session.timeout.ms", |names| &names.group;
    };
    // Answered to everybody alike, by both.
    rows.retain(|row| row.name != "AlterConfigs of a logger");
    rows.extend([
        row!("ListConfigResources", ListConfigResources, |names, version| {
            list_config_resources::ListConfigResourcesRequest {
                // All but loggers, which Ottla has none of.
                resource_types: if version < 1 { vec![] } else { vec![2, 4, 16, 32] },
            }
        })
        .list(),
        row!("DescribeClientQuotas", DescribeClientQuotas, |names, version| {
            describe_client_quotas::DescribeClientQuotasRequest {}
        }),
        row!("AlterClientQuotas", AlterClientQuotas, |names, version| {
            alter_client_quotas::AlterClientQuotasRequest {
                entries: vec![alter_client_quotas::AlterClientQuotasRequestEntryData {
                    entity: vec![alter_client_quotas::AlterClientQuotasRequestEntityData {
                        entity_type: "user",
                        entity_name: Some("bob"),
                    }],
                    ops: vec![],
                }],
                validate_only: true,
            }
        }),
    ]);
    rows
}

fn cluster_rows() -> Vec<Row> {
    vec![
        row!("DescribeCluster", DescribeCluster, |names, version| {
            describe_cluster::DescribeClusterRequest {
                include_cluster_authorized_operations: true,
            }
        }),
        row!("DescribeAcls", DescribeAcls, |names, version| {
            describe_acls::DescribeAclsRequest {
                resource_type_filter: ANY,
                principal_filter: Some("User:nobody"),
                pattern_type_filter: ANY,
                operation: ANY,
                permission_type: ANY,
            }
        }),
        row!("CreateAcls", CreateAcls, |names, version| {
            create_acls::CreateAclsRequest {
                creations: vec![
                    create_acls::AclCreation {
                        resource_type: ResourceType::Topic.code(),
                        resource_pattern_type: PatternType::Literal.code(),
                        // A topic without a name: nothing is created.
                        resource_name: "",
                        principal: "User:nobody",
                        host: WILDCARD,
                        operation: Operation::Read.code(),
                        permission_type: Permission::Allow.code(),
                    };
                    2
                ],
            }
        }),
        row!("DeleteAcls", DeleteAcls, |names, version| {
            delete_acls::DeleteAclsRequest {
                filters: vec![
                    delete_acls::DeleteAclsFilter {
                        resource_type_filter: ANY,
                        principal_filter: Some("User:nobody"),
                        pattern_type_filter: ANY,
                        operation: ANY,
                        permission_type: ANY,
                        ..Default::default()
                    };
                    2
                ],
            }
        }),
        row!("DescribeLogDirs", DescribeLogDirs, |names, version| {
            describe_log_dirs::DescribeLogDirsRequest {
                topics: Some(vec![describe_log_dirs::DescribableLogDirTopic {
                    topic: &names.topic,
                    partitions: vec![0],
                }]),
            }
        }),
        row!("DescribeQuorum", DescribeQuorum, |names, version| {
            describe_quorum::DescribeQuorumRequest {
                topics: vec![describe_quorum::DescribeQuorumRequestTopicData {
                    topic_name: "__cluster_metadata",
                    partitions: vec![describe_quorum::DescribeQuorumRequestPartitionData::default()],
                }],
            }
        }),
        row!(
            "ListPartitionReassignments",
            ListPartitionReassignments,
            |names, version| {
                list_partition_reassignments::ListPartitionReassignmentsRequest {
                    topics: None,
                    timeout_ms: 5_000,
                }
            }
        ),
        row!(
            "DescribeUserScramCredentials",
            DescribeUserScramCredentials,
            |names, version| {
                describe_user_scram_credentials::DescribeUserScramCredentialsRequest {
                    users: Some(vec![describe_user_scram_credentials::UserName { name: "bob" }]),
                }
            }
        ),
        row!(
            "AlterUserScramCredentials",
            AlterUserScramCredentials,
            |names, version| {
                alter_user_scram_credentials::AlterUserScramCredentialsRequest {
                    deletions: vec![alter_user_scram_credentials::ScramCredentialDeletion {
                        name: "bob",
                        mechanism: 1,
                    }],
                }
            }
        ),
        row!("ElectLeaders", ElectLeaders, |names, version| {
            elect_leaders::ElectLeadersRequest {
                topic_partitions: Some(vec![elect_leaders::TopicPartitions {
                    topic: &names.topic,
                    partitions: vec![0],
                }]),
                timeout_ms: 5_000,
            }
        }),
        row!(
            "AlterPartitionReassignments",
            AlterPartitionReassignments,
            |names, version| {
                alter_partition_reassignments::AlterPartitionReassignmentsRequest {
                    topics: vec![alter_partition_reassignments::ReassignableTopic {
                        name: &names.topic,
                        partitions: vec![alter_partition_reassignments::ReassignablePartition {
                            partition_index: 0,
                            replicas: None,
                        }],
                    }],
                    timeout_ms: 5_000,
                    allow_replication_factor_change: true,
                }
            }
        ),
        row!("AlterReplicaLogDirs", AlterReplicaLogDirs, |names, version| {
            alter_replica_log_dirs::AlterReplicaLogDirsRequest {
                dirs: vec![alter_replica_log_dirs::AlterReplicaLogDir {
                    path: "/nowhere",
                    topics: vec![alter_replica_log_dirs::AlterReplicaLogDirTopic {
                        name: &names.topic,
                        partitions: vec![0],
                    }],
                }],
            }
        }),
        row!("UpdateFeatures", UpdateFeatures, |names, version| {
            update_features::UpdateFeaturesRequest {
                timeout_ms: 5_000,
                feature_updates: vec![update_features::FeatureUpdateKey {
                    feature: "unheard.of",
                    max_version_level: 1,
                    ..Default::default()
                }],
            }
        }),
        row!("SaslHandshake", SaslHandshake, |names, version| {
            sasl_handshake::SaslHandshakeRequest { mechanism: "PLAIN" }
        }),
    ]
}

/// The row of a delegation token for the user itself.
pub const OWN_TOKEN: &str = "CreateDelegationToken";

fn token_rows() -> Vec<Row> {
    vec![
        row!(OWN_TOKEN, CreateDelegationToken, |names, version| {
            create_delegation_token::CreateDelegationTokenRequest { max_lifetime_ms: -1 }
        }),
        row!(
            "CreateDelegationToken for another principal",
            CreateDelegationToken,
            |names, version| {
                create_delegation_token::CreateDelegationTokenRequest {
                    owner_principal_type: Some("User"),
                    owner_principal_name: Some(TOKEN_OWNER),
                    max_lifetime_ms: -1,
                }
            }
        )
        .from(3),
        row!(
            "CreateDelegationToken with a renewer that is no user",
            CreateDelegationToken,
            |names, version| {
                create_delegation_token::CreateDelegationTokenRequest {
                    owner_principal_type: Some("User"),
                    owner_principal_name: Some(TOKEN_OWNER),
                    renewers: vec![create_delegation_token::CreatableRenewers {
                        principal_type: "Group",
                        principal_name: "carol",
                    }],
                    max_lifetime_ms: -1,
                }
            }
        )
        .from(3),
        row!("RenewDelegationToken", RenewDelegationToken, |names, version| {
            renew_delegation_token::RenewDelegationTokenRequest {
                hmac: b"token",
                renew_period_ms: -1,
            }
        }),
        row!(
            "ExpireDelegationToken",
            ExpireDelegationToken,
            |names, version| {
                expire_delegation_token::ExpireDelegationTokenRequest {
                    hmac: b"token",
                    expiry_time_period_ms: -1,
                }
            }
        ),
        row!(
            "DescribeDelegationToken",
            DescribeDelegationToken,
            |names, version| { describe_delegation_token::DescribeDelegationTokenRequest { owners: None } }
        ),
    ]
}

/// The rows that delete topics and groups.
pub fn deletion_rows() -> Vec<Row> {
    vec![
        row!("DeleteGroups", DeleteGroups, |names, version| {
            delete_groups::DeleteGroupsRequest {
                groups_names: vec![&names.group],
            }
        }),
        row!("DeleteTopics that are absent", DeleteTopics, |names, version| {
            delete_topics::DeleteTopicsRequest {
                topics: match version {
                    ..6 => vec![],
                    _ => vec![delete_topics::DeleteTopicState {
                        name: Some(&names.absent),
                        topic_id: Uuid::ZERO,
                    }],
                },
                topic_names: if version < 6 { vec![&names.absent] } else { vec![] },
                timeout_ms: 5_000,
            }
        }),
        row!("DeleteTopics", DeleteTopics, |names, version| {
            delete_topics::DeleteTopicsRequest {
                topics: match version {
                    ..6 => vec![],
                    _ => vec![delete_topics::DeleteTopicState {
                        name: Some(&names.topic),
                        topic_id: Uuid::ZERO,
                    }],
                },
                topic_names: if version < 6 { vec![&names.topic] } else { vec![] },
                timeout_ms: 5_000,
            }
        }),
        row!("DeleteTopics by id", DeleteTopics, |names, version| {
            delete_topics::DeleteTopicsRequest {
                topics: vec![delete_topics::DeleteTopicState {
                    name: None,
                    topic_id: names.other_topic_id,
                }],
                timeout_ms: 5_000,
            }
        })
        .from(6),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// APIs that ask for no permission.
    const OPEN: [ApiKey; 4] = [
        ApiKey::ApiVersions,
        ApiKey::GetTelemetrySubscriptions,
        ApiKey::PushTelemetry,
        ApiKey::SaslAuthenticate,
    ];

    #[test]
    fn every_served_api_has_a_row_that_can_be_sent_in_each_of_its_versions() {
        let names = Names {
            topic: "topic".to_owned(),
            topic_id: Uuid([1; 16]),
            other_topic: "other".to_owned(),
            other_topic_id: Uuid([2; 16]),
            absent: "absent".to_owned(),
            impossible: "impossible".to_owned(),
            group: "group".to_owned(),
            transactional_id: "transaction".to_owned(),
            now_ms: 1_000,
        };
        let rows: Vec<Row> = lasting_rows().into_iter().chain(deletion_rows()).collect();
        for row in &rows {
            for version in row.versions() {
                row.ask(&names, version);
            }
        }
        let asked: BTreeSet<ApiKey> = rows.iter().map(|row| row.api_key).collect();
        let served = ApiKey::ALL.iter().copied();
        let served: BTreeSet<ApiKey> = served
            .filter(|api_key| api_key.served_versions().is_some() && !OPEN.contains(api_key))
            .collect();
        assert_eq!(asked, served);
        let row_names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
        assert_eq!(row_names.len(), rows.len());
    }
}
