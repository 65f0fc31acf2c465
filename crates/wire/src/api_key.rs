//! The APIs by number, and the versions that Ottla serves: one table.

use std::fmt;

use crate::messages::*;

/// The versions of an API, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    pub min: i16,
    pub max: i16,
}

impl VersionRange {
    pub fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

macro_rules! api_keys {
    ($($api:ident = $key:literal: $module:ident::$request:ident, $state:ident $($min:literal to $max:literal)?,
       $deviations:literal;)*) => {
        /// An API whose messages this crate knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $($api = $key,)*
        }

        impl ApiKey {
            /// Every known API, ascending.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$api),*];

            pub fn from_i16(key: i16) -> Option<ApiKey> {
                match key {
                    $($key => Some(ApiKey::$api),)*
                    _ => None,
                }
            }

            /// Kafka's name, e.g. `OffsetCommit`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$api => stringify!($api),)*
                }
            }

            /// The versions that this crate can encode and decode.
            pub fn known_versions(self) -> VersionRange {
                match self {
                    $(ApiKey::$api => VersionRange {
                        min: $module::$request::MIN_VERSION,
                        max: $module::$request::MAX_VERSION,
                    },)*
                }
            }

            /// The versions that Ottla serves; `None` if it does not serve the API at all.
            pub fn served_versions(self) -> Option<VersionRange> {
                match self {
                    $(ApiKey::$api => api_keys!(@$state $($min $max)?),)*
                }
            }

            /// The differences from Apache Kafka's answers; empty if there are none.
            pub fn deviations(self) -> &'static str {
                match self {
                    $(ApiKey::$api => $deviations,)*
                }
            }

            /// Whether this version has compact encodings and tagged fields (KIP-482).
            pub fn is_flexible(self, version: i16) -> bool {
                let first = match self {
                    $(ApiKey::$api => $module::$request::FIRST_FLEXIBLE_VERSION,)*
                };
                version >= first
            }
        }
    };
    (@served $min:literal $max:literal) => { Some(VersionRange { min: $min, max: $max }) };
    (@unserved) => { None };
}

impl ApiKey {
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The versions that an ApiVersions response announces.
    ///
    /// - Source: KAFKA-18659. librdkafka interprets a missing Produce version 0 as no support for
    ///   compression.
    pub fn announced_versions(self) -> Option<VersionRange> {
        let served = self.served_versions()?;
        Some(if self == ApiKey::Produce {
            VersionRange { min: 0, ..served }
        } else {
            served
        })
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

// API = key: request, versions served, deviations from Apache Kafka.
api_keys! {
    Produce = 0: produce::ProduceRequest, served 3 to 13, "ApiVersions announces version 0 and up, like Apache Kafka (KAFKA-18659); versions 0 to 2 are refused";
    Fetch = 1: fetch::FetchRequest, served 4 to 18, "";
    ListOffsets = 2: list_offsets::ListOffsetsRequest, served 1 to 11, "";
    Metadata = 3: metadata::MetadataRequest, served 0 to 13, "if the request creates a topic, the answer waits for the creation (one sync) and contains the topic; Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION and the client retries";
    OffsetCommit = 8: offset_commit::OffsetCommitRequest, served 2 to 10, "";
    OffsetFetch = 9: offset_fetch::OffsetFetchRequest, served 1 to 10, "a request by topic name does not return offsets of a deleted topic with the same name either";
    FindCoordinator = 10: find_coordinator::FindCoordinatorRequest, served 0 to 6, "the answer waits until the coordinator is loaded; there is no coordinator for share groups, which is answered with an error";
    JoinGroup = 11: join_group::JoinGroupRequest, served 0 to 9, "refused: duplicate protocol names, metadata larger than a quarter of max.message.bytes; assigning a member id writes no record";
    Heartbeat = 12: heartbeat::HeartbeatRequest, served 0 to 4, "";
    LeaveGroup = 13: leave_group::LeaveGroupRequest, served 0 to 5, "";
    SyncGroup = 14: sync_group::SyncGroupRequest, served 0 to 5, "";
    DescribeGroups = 15: describe_groups::DescribeGroupsRequest, served 0 to 6, "";
    ListGroups = 16: list_groups::ListGroupsRequest, served 0 to 5, "";
    SaslHandshake = 17: sasl_handshake::SaslHandshakeRequest, served 0 to 1, "";
    ApiVersions = 18: api_versions::ApiVersionsRequest, served 0 to 4, "";
    CreateTopics = 19: create_topics::CreateTopicsRequest, served 2 to 7, "";
    DeleteTopics = 20: delete_topics::DeleteTopicsRequest, served 1 to 6, "";
    DeleteRecords = 21: delete_records::DeleteRecordsRequest, served 0 to 2, "";
    InitProducerId = 22: init_producer_id::InitProducerIdRequest, served 0 to 5, "waits until the predecessor's transaction has been aborted, instead of CONCURRENT_TRANSACTIONS";
    OffsetForLeaderEpoch = 23: offset_for_leader_epoch::OffsetForLeaderEpochRequest, served 2 to 4, "";
    AddPartitionsToTxn = 24: add_partitions_to_txn::AddPartitionsToTxnRequest, served 0 to 5, "waits up to 5 s for the end of the previous transaction, instead of CONCURRENT_TRANSACTIONS";
    AddOffsetsToTxn = 25: add_offsets_to_txn::AddOffsetsToTxnRequest, served 0 to 4, "waits as AddPartitionsToTxn";
    EndTxn = 26: end_txn::EndTxnRequest, served 0 to 5, "repeated while markers are written: answered with the decision, instead of CONCURRENT_TRANSACTIONS; a commit with nothing to commit within 1 s after the last transaction: CONCURRENT_TRANSACTIONS, instead of INVALID_TXN_STATE";
    WriteTxnMarkers = 27: write_txn_markers::WriteTxnMarkersRequest, served 1 to 2, "";
    TxnOffsetCommit = 28: txn_offset_commit::TxnOffsetCommitRequest, served 0 to 5, "waits as AddPartitionsToTxn";
    DescribeAcls = 29: describe_acls::DescribeAclsRequest, served 1 to 3, "";
    CreateAcls = 30: create_acls::CreateAclsRequest, served 1 to 3, "";
    DeleteAcls = 31: delete_acls::DeleteAclsRequest, served 1 to 3, "";
    DescribeConfigs = 32: describe_configs::DescribeConfigsRequest, served 1 to 4, "there are no loggers: one is refused with INVALID_REQUEST";
    AlterConfigs = 33: alter_configs::AlterConfigsRequest, served 0 to 2, "";
    AlterReplicaLogDirs = 34: alter_replica_log_dirs::AlterReplicaLogDirsRequest, served 1 to 2, "";
    DescribeLogDirs = 35: describe_log_dirs::DescribeLogDirsRequest, served 1 to 5, "";
    SaslAuthenticate = 36: sasl_authenticate::SaslAuthenticateRequest, served 0 to 2, "during authentication any other request closes the connection without an answer; an unknown user of SCRAM gets a challenge like a known one";
    CreatePartitions = 37: create_partitions::CreatePartitionsRequest, served 0 to 3, "";
    CreateDelegationToken = 38: create_delegation_token::CreateDelegationTokenRequest, served 1 to 3, "tokens cannot be switched on: `delegation.token.secret.key` is not served";
    RenewDelegationToken = 39: renew_delegation_token::RenewDelegationTokenRequest, served 1 to 2, "tokens cannot be switched on: `delegation.token.secret.key` is not served";
    ExpireDelegationToken = 40: expire_delegation_token::ExpireDelegationTokenRequest, served 1 to 2, "tokens cannot be switched on: `delegation.token.secret.key` is not served";
    DescribeDelegationToken = 41: describe_delegation_token::DescribeDelegationTokenRequest, served 1 to 3, "tokens cannot be switched on: `delegation.token.secret.key` is not served";
    DeleteGroups = 42: delete_groups::DeleteGroupsRequest, served 0 to 2, "an empty share group is refused with UNSUPPORTED_VERSION: its state is kept for Apache Kafka";
    ElectLeaders = 43: elect_leaders::ElectLeadersRequest, served 0 to 2, "";
    IncrementalAlterConfigs = 44: incremental_alter_configs::IncrementalAlterConfigsRequest, served 0 to 1, "there are no loggers: one is refused with INVALID_REQUEST";
    AlterPartitionReassignments = 45: alter_partition_reassignments::AlterPartitionReassignmentsRequest, served 0 to 1, "";
    ListPartitionReassignments = 46: list_partition_reassignments::ListPartitionReassignmentsRequest, served 0 to 0, "";
    OffsetDelete = 47: offset_delete::OffsetDeleteRequest, served 0 to 0, "for a streams group with members every topic counts as subscribed (docs/guides/directories.md)";
    DescribeClientQuotas = 48: describe_client_quotas::DescribeClientQuotasRequest, served 0 to 1, "";
    AlterClientQuotas = 49: alter_client_quotas::AlterClientQuotasRequest, served 0 to 1, "an ip entity must be a numeric address: host names are not resolved";
    DescribeUserScramCredentials = 50: describe_user_scram_credentials::DescribeUserScramCredentialsRequest, served 0 to 0, "";
    AlterUserScramCredentials = 51: alter_user_scram_credentials::AlterUserScramCredentialsRequest, served 0 to 0, "";
    DescribeQuorum = 55: describe_quorum::DescribeQuorumRequest, served 0 to 2, "";
    UpdateFeatures = 57: update_features::UpdateFeaturesRequest, served 0 to 2, "metadata.version must be at least 23 (4.0-IV1); share and streams groups are not served at any level";
    DescribeCluster = 60: describe_cluster::DescribeClusterRequest, served 0 to 2, "";
    DescribeProducers = 61: describe_producers::DescribeProducersRequest, served 0 to 0, "";
    DescribeTransactions = 65: describe_transactions::DescribeTransactionsRequest, served 0 to 0, "";
    ListTransactions = 66: list_transactions::ListTransactionsRequest, served 0 to 2, "a duration filter passes transactions that are not complete, and no idle id";
    ConsumerGroupHeartbeat = 68: consumer_group_heartbeat::ConsumerGroupHeartbeatRequest, served 0 to 1, "while partitions change hands the answer asks for the next one sooner than group.consumer.heartbeat.interval.ms; racks are ignored";
    ConsumerGroupDescribe = 69: consumer_group_describe::ConsumerGroupDescribeRequest, served 0 to 1, "";
    GetTelemetrySubscriptions = 71: get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest, served 0 to 0, "a subscription to all metrics is sent as the empty prefix, which every client understands, not as `*`; if no subscription matches, `ottla.telemetry.default.interval.ms` applies";
    PushTelemetry = 72: push_telemetry::PushTelemetryRequest, served 0 to 0, "TELEMETRY_TOO_LARGE also if a push decompresses to more than eight times telemetry.max.bytes; THROTTLING_QUOTA_EXCEEDED also while too many pushes wait to be read; null metrics count as empty";
    ListConfigResources = 74: list_config_resources::ListConfigResourcesRequest, served 0 to 1, "no loggers";
    DescribeTopicPartitions = 75: describe_topic_partitions::DescribeTopicPartitionsRequest, served 0 to 0, "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_survives_a_round_trip() {
        for api_key in ApiKey::ALL {
            assert_eq!(ApiKey::from_i16(api_key.code()), Some(*api_key));
        }
        assert_eq!(ApiKey::from_i16(-1), None);
        assert_eq!(ApiKey::from_i16(i16::MAX), None);
    }

    #[test]
    fn we_serve_only_versions_we_can_decode() {
        for api_key in ApiKey::ALL {
            let known = api_key.known_versions();
            if let Some(served) = api_key.served_versions() {
                assert!(served.min <= served.max, "{api_key}");
                assert!(
                    known.contains(served.min) && known.contains(served.max),
                    "{api_key}"
                );
            }
        }
    }

    #[test]
    fn produce_is_announced_from_version_zero() {
        let announced = ApiKey::Produce.announced_versions();
        assert_eq!(announced.map(|versions| versions.min), Some(0));
        assert_eq!(
            ApiKey::Fetch.announced_versions(),
            ApiKey::Fetch.served_versions()
        );
    }
}
