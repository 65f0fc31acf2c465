//! The messages that are generated. A schema that is not named here is left out: the protocols
//! between brokers and controllers, share and streams groups, delegation tokens.

use super::{COORDINATOR_RECORDS, MESSAGES, METADATA_RECORDS};

/// Messages of one folder that are generated for one reason; requests and responses together, and
/// keys and values.
pub struct Wanted {
    pub folder: &'static str,
    pub reason: &'static str,
    /// Without `Request`, `Response`, `Record`, `Key` and `Value`.
    pub names: &'static [&'static str],
}

pub const WANTED: &[Wanted] = &[
    Wanted {
        folder: MESSAGES,
        reason: "served by the broker or sent by the client",
        names: &[
            "AlterClientQuotas",
            "AlterConfigs",
            "AlterPartitionReassignments",
            "AlterReplicaLogDirs",
            "AlterUserScramCredentials",
            "ApiVersions",
            "ConsumerGroupDescribe",
            "CreatePartitions",
            "CreateTopics",
            "DeleteGroups",
            "DeleteRecords",
            "DeleteTopics",
            "DescribeAcls",
            "DescribeClientQuotas",
            "DescribeCluster",
            "DescribeConfigs",
            "DescribeGroups",
            "DescribeLogDirs",
            "DescribeProducers",
            "DescribeQuorum",
            "DescribeTopicPartitions",
            "DescribeUserScramCredentials",
            "ElectLeaders",
            "Fetch",
            "FindCoordinator",
            "GetTelemetrySubscriptions",
            "Heartbeat",
            "IncrementalAlterConfigs",
            "InitProducerId",
            "JoinGroup",
            "LeaveGroup",
            "ListConfigResources",
            "ListGroups",
            "ListOffsets",
            "ListPartitionReassignments",
            "Metadata",
            "OffsetCommit",
            "OffsetDelete",
            "OffsetFetch",
            "OffsetForLeaderEpoch",
            "Produce",
            "PushTelemetry",
            "SaslAuthenticate",
            "SaslHandshake",
            "SyncGroup",
            "UpdateFeatures",
        ],
    },
    Wanted {
        folder: MESSAGES,
        reason: "inside other messages: subscriptions and assignments of classic groups",
        names: &["ConsumerProtocolAssignment", "ConsumerProtocolSubscription"],
    },
    Wanted {
        folder: MESSAGES,
        reason: "control records, which records/control.rs reads and writes",
        names: &[
            "EndTxnMarker",
            "KRaftVersionRecord",
            "LeaderChangeMessage",
            "SnapshotFooterRecord",
            "SnapshotHeaderRecord",
            "VotersRecord",
        ],
    },
    Wanted {
        folder: MESSAGES,
        reason: "not served yet: transactions (KIP-98, KIP-890)",
        names: &[
            "AddOffsetsToTxn",
            "AddPartitionsToTxn",
            "DescribeTransactions",
            "EndTxn",
            "ListTransactions",
            "TxnOffsetCommit",
            "WriteTxnMarkers",
        ],
    },
    Wanted {
        folder: MESSAGES,
        reason: "consumer groups (KIP-848)",
        names: &["ConsumerGroupHeartbeat"],
    },
    Wanted {
        folder: MESSAGES,
        reason: "not served yet: access control lists",
        names: &["CreateAcls", "DeleteAcls"],
    },
    Wanted {
        folder: METADATA_RECORDS,
        reason: "a directory of Apache Kafka may hold any of them, and none may be lost",
        names: &[
            "AbortTransaction",
            "AccessControlEntry",
            "BeginTransaction",
            "BrokerRegistrationChange",
            "ClearElr",
            "ClientQuota",
            "Config",
            "DelegationToken",
            "EndTransaction",
            "FeatureLevel",
            "FenceBroker",
            "NoOp",
            "Partition",
            "PartitionChange",
            "ProducerIds",
            "RegisterBroker",
            "RegisterController",
            "RemoveAccessControlEntry",
            "RemoveDelegationToken",
            "RemoveTopic",
            "RemoveUserScramCredential",
            "Topic",
            "UnfenceBroker",
            "UnregisterBroker",
            "UserScramCredential",
            "ZkMigrationState",
        ],
    },
    Wanted {
        folder: COORDINATOR_RECORDS,
        reason: "groups, offsets and transactions in a directory of Apache Kafka",
        names: &[
            "ConsumerGroupCurrentMemberAssignment",
            "ConsumerGroupMemberMetadata",
            "ConsumerGroupMetadata",
            "ConsumerGroupPartitionMetadata",
            "ConsumerGroupRegularExpression",
            "ConsumerGroupTargetAssignmentMember",
            "ConsumerGroupTargetAssignmentMetadata",
            "GroupMetadata",
            "LegacyOffsetCommit",
            "OffsetCommit",
            "TransactionLog",
        ],
    },
];

pub fn is_wanted(folder: &str, name: &str) -> bool {
    WANTED
        .iter()
        .any(|wanted| wanted.folder == folder && wanted.names.contains(&name))
}
