//! The position of `throttle_time_ms` in an answer (KIP-219): the first field of most, elsewhere in
//! a few.
//!
//! The time is known only after the answer was encoded, so it is patched afterwards, for all APIs.

use crate::api_key::ApiKey;
use crate::primitives::Reader;

const FIELD_BYTES: usize = 4;

/// Raises the throttle time in an encoded answer, without its header, to at least `throttle_ms`.
///
/// - Shape: false if this version has no such field; the client is then muted without being told.
pub fn raise(api_key: ApiKey, api_version: i16, body: &mut [u8], throttle_ms: u32) -> bool {
    let throttle_ms = i32::try_from(throttle_ms).unwrap_or(i32::MAX);
    let place = position(api_key, api_version, body).and_then(|at| body.get_mut(at..at + FIELD_BYTES));
    let Some(place) = place else { return false };
    let told = place
        .iter()
        .fold(0i32, |value, byte| value << 8 | i32::from(*byte));
    place.copy_from_slice(&told.max(throttle_ms).to_be_bytes());
    true
}

fn position(api_key: ApiKey, api_version: i16, body: &[u8]) -> Option<usize> {
    // An unknown version of ApiVersions is answered in version 0 (KIP-511).
    if !api_key.known_versions().contains(api_version) {
        return None;
    }
    let first_version = match api_key {
        // The last field, before an empty tag section of one byte.
        ApiKey::Produce
        | ApiKey::CreateDelegationToken
        | ApiKey::RenewDelegationToken
        | ApiKey::ExpireDelegationToken
        | ApiKey::DescribeDelegationToken => {
            let tag_bytes = usize::from(api_key.is_flexible(api_version));
            return body.len().checked_sub(FIELD_BYTES + tag_bytes);
        }
        ApiKey::ApiVersions => return behind_api_keys(api_version, body),
        // After the error code.
        ApiKey::OffsetDelete => return Some(2),
        ApiKey::DescribeQuorum
        | ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate
        | ApiKey::WriteTxnMarkers => return None,
        ApiKey::FindCoordinator
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::SyncGroup
        | ApiKey::DescribeGroups
        | ApiKey::ListGroups => 1,
        ApiKey::ListOffsets | ApiKey::JoinGroup => 2,
        ApiKey::Metadata | ApiKey::OffsetCommit | ApiKey::OffsetFetch => 3,
        _ => 0,
    };
    (api_version >= first_version && api_key.served_versions().is_some()).then_some(0)
}

/// ApiVersions: an error code, then per API its key and two versions, then the throttle time.
fn behind_api_keys(api_version: i16, body: &[u8]) -> Option<usize> {
    const ERROR_CODE_BYTES: usize = 2;
    const API_BYTES: usize = 2 + 2 + 2;
    if api_version < 1 {
        return None;
    }
    let is_flexible = ApiKey::ApiVersions.is_flexible(api_version);
    let mut reader = Reader::new(body.get(ERROR_CODE_BYTES..)?);
    let count = if is_flexible {
        reader.uvarint().ok()?.checked_sub(1)? as usize
    } else {
        usize::try_from(reader.i32().ok()?).ok()?
    };
    let counted = body.len() - reader.remaining();
    Some(counted + count * (API_BYTES + usize::from(is_flexible)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::*;

    const TOLD: i32 = 0x0a0b_0c0d;

    /// Encodes an answer with and without a throttle time, and checks that `raise` turns the second
    /// into the first.
    macro_rules! check {
        ($($api:ident: $module:ident::$response:ident $({ $($field:ident: $value:expr),* })?),* $(,)?) => {{
            let mut checked = Vec::new();
            $({
                let api_key = ApiKey::$api;
                let served = api_key.served_versions().unwrap();
                for version in served.min..=served.max {
                    let encode = |throttle_time_ms| {
                        let mut body = Vec::new();
                        $module::$response {
                            throttle_time_ms,
                            $($($field: $value,)*)?
                            ..Default::default()
                        }
                        .encode(&mut body, version);
                        body
                    };
                    let (expected, mut body) = (encode(TOLD), encode(0));
                    let has_field = expected != body;
                    assert_eq!(raise(api_key, version, &mut body, TOLD as u32), has_field, "{api_key} {version}");
                    assert_eq!(body, expected, "{api_key} {version}");
                    assert_eq!(raise(api_key, version, &mut body, 5), has_field);
                    assert_eq!(body, expected, "{api_key} {version} lowered it");
                }
                checked.push(api_key);
            })*
            checked
        }};
    }

    #[test]
    fn every_served_answer_is_patched_where_its_schema_says() {
        let api_keys = || vec![api_versions::ApiVersion::default(); 300];
        let responses = || vec![produce::TopicProduceResponse::default(); 3];
        let mut checked = check!(
            Produce: produce::ProduceResponse { responses: responses() },
            Fetch: fetch::FetchResponse,
            ListOffsets: list_offsets::ListOffsetsResponse,
            Metadata: metadata::MetadataResponse,
            OffsetCommit: offset_commit::OffsetCommitResponse,
            OffsetFetch: offset_fetch::OffsetFetchResponse,
            FindCoordinator: find_coordinator::FindCoordinatorResponse,
            JoinGroup: join_group::JoinGroupResponse,
            Heartbeat: heartbeat::HeartbeatResponse,
            LeaveGroup: leave_group::LeaveGroupResponse,
            SyncGroup: sync_group::SyncGroupResponse,
            DescribeGroups: describe_groups::DescribeGroupsResponse,
            ListGroups: list_groups::ListGroupsResponse,
            ApiVersions: api_versions::ApiVersionsResponse { api_keys: api_keys() },
            CreateTopics: create_topics::CreateTopicsResponse,
            DeleteTopics: delete_topics::DeleteTopicsResponse,
            DeleteRecords: delete_records::DeleteRecordsResponse,
            InitProducerId: init_producer_id::InitProducerIdResponse,
            OffsetForLeaderEpoch: offset_for_leader_epoch::OffsetForLeaderEpochResponse,
            DescribeAcls: describe_acls::DescribeAclsResponse,
            CreateAcls: create_acls::CreateAclsResponse,
            DeleteAcls: delete_acls::DeleteAclsResponse,
            DescribeConfigs: describe_configs::DescribeConfigsResponse,
            AlterConfigs: alter_configs::AlterConfigsResponse,
            AlterReplicaLogDirs: alter_replica_log_dirs::AlterReplicaLogDirsResponse,
            DescribeLogDirs: describe_log_dirs::DescribeLogDirsResponse,
            CreatePartitions: create_partitions::CreatePartitionsResponse,
            CreateDelegationToken: create_delegation_token::CreateDelegationTokenResponse,
            RenewDelegationToken: renew_delegation_token::RenewDelegationTokenResponse,
            ExpireDelegationToken: expire_delegation_token::ExpireDelegationTokenResponse,
            DescribeDelegationToken: describe_delegation_token::DescribeDelegationTokenResponse,
            DeleteGroups: delete_groups::DeleteGroupsResponse,
            ElectLeaders: elect_leaders::ElectLeadersResponse,
            IncrementalAlterConfigs: incremental_alter_configs::IncrementalAlterConfigsResponse,
            AlterPartitionReassignments:
                alter_partition_reassignments::AlterPartitionReassignmentsResponse,
            ListPartitionReassignments:
                list_partition_reassignments::ListPartitionReassignmentsResponse,
            OffsetDelete: offset_delete::OffsetDeleteResponse,
            DescribeClientQuotas: describe_client_quotas::DescribeClientQuotasResponse,
            AlterClientQuotas: alter_client_quotas::AlterClientQuotasResponse,
            DescribeUserScramCredentials:
                describe_user_scram_credentials::DescribeUserScramCredentialsResponse,
            AlterUserScramCredentials:
                alter_user_scram_credentials::AlterUserScramCredentialsResponse,
            UpdateFeatures: update_features::UpdateFeaturesResponse,
            DescribeCluster: describe_cluster::DescribeClusterResponse,
            DescribeProducers: describe_producers::DescribeProducersResponse,
            AddPartitionsToTxn: add_partitions_to_txn::AddPartitionsToTxnResponse,
            AddOffsetsToTxn: add_offsets_to_txn::AddOffsetsToTxnResponse,
            EndTxn: end_txn::EndTxnResponse,
            TxnOffsetCommit: txn_offset_commit::TxnOffsetCommitResponse,
            DescribeTransactions: describe_transactions::DescribeTransactionsResponse,
            ListTransactions: list_transactions::ListTransactionsResponse,
            ConsumerGroupHeartbeat: consumer_group_heartbeat::ConsumerGroupHeartbeatResponse,
            ConsumerGroupDescribe: consumer_group_describe::ConsumerGroupDescribeResponse,
            GetTelemetrySubscriptions: get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse,
            PushTelemetry: push_telemetry::PushTelemetryResponse,
            ListConfigResources: list_config_resources::ListConfigResourcesResponse,
            DescribeTopicPartitions: describe_topic_partitions::DescribeTopicPartitionsResponse,
        );
        // The only answers without the field.
        checked.extend([
            ApiKey::DescribeQuorum,
            ApiKey::SaslHandshake,
            ApiKey::SaslAuthenticate,
            ApiKey::WriteTxnMarkers,
        ]);
        checked.sort();
        let served: Vec<ApiKey> = ApiKey::ALL
            .iter()
            .copied()
            .filter(|api_key| api_key.served_versions().is_some())
            .collect();
        assert_eq!(checked, served);
    }

    #[test]
    fn an_answer_without_the_field_is_not_changed() {
        for (api_key, version) in [
            (ApiKey::ApiVersions, 99),
            (ApiKey::DescribeQuorum, 0),
            (ApiKey::WriteTxnMarkers, 1),
            (ApiKey::Metadata, 2),
            (ApiKey::Fetch, 12),
            (ApiKey::Produce, 9),
            (ApiKey::ApiVersions, 3),
        ] {
            let mut body = [0, 1, 2];
            assert!(!raise(api_key, version, &mut body, 7), "{api_key} {version}");
            assert_eq!(body, [0, 1, 2]);
        }
    }
}
