//! Life of a produce, 2 of 6. Before: broker/src/net/connection/mod.rs. After: handlers/produce.rs.
//! Life of a fetch, 1 of 6. After: handlers/fetch.rs.
//!
//! From API key to handler: one line per API. The API's name is the file name in
//! `ottla_wire::messages` and in `handlers`. `by` names the measure of a request whose body does
//! not show how much it asks for (`placement.rs`).
//!
//! The last word of a row is its access control (`access/mod.rs`). `cluster`: dispatch asks for an
//! operation on the cluster, and the module's `deny` answers. `asks`: the handler gets the caller,
//! and asks about each topic or group. `open`: nothing is asked.

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages;
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::produce::ProduceRequest;

use crate::access::acl::Operation;
use crate::handlers;
use crate::long_answer::handle_elsewhere;
use crate::node::Node;
use crate::pending::Handled;
use crate::placement::Place;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

impl Node {
    /// Serves one request: the reply is written to `reply` now, or comes later.
    ///
    /// - Errors: `Handled::Close` if no reply can be written.
    pub fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        self.handle_at(Place::EventLoop, request, reply)
    }

    /// As `handle`, on a thread that may take long over it.
    pub fn handle_whole(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        self.handle_at(Place::LongAnswerThread, request, reply)
    }

    fn handle_at(&self, place: Place, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        let (api_key, version) = (request.api_key, request.api_version);
        let served = api_key.served_versions();
        if !served.is_some_and(|served| served.contains(version)) {
            if api_key == ApiKey::ApiVersions {
                handlers::api_versions::handle_unknown_version(self, reply);
                return Handled::Replied;
            }
            return Handled::Close(format!("{api_key} version {version} is not served"));
        }
        if !place.may_decode(request) {
            return handle_elsewhere(request, 0);
        }
        match dispatch(self, place, request, reply) {
            Ok(handled) => handled,
            Err(error) => Handled::Close(format!("{api_key} version {version}: {error}")),
        }
    }
}

/// Calls a handler as its row says.
macro_rules! serve {
    (open $module:ident, $node:ident, $request:ident, $body:ident, $reply:ident) => {
        handlers::$module::handle($node, $request, $body, $reply)
    };
    (asks $module:ident, $node:ident, $request:ident, $body:ident, $reply:ident) => {{
        let caller = $node.access.caller($request);
        handlers::$module::handle($node, $request, caller, $body, $reply)
    }};
    (cluster $operation:ident $module:ident, $node:ident, $request:ident, $body:ident, $reply:ident) => {
        match $node.access.caller($request).cluster(Operation::$operation) {
            Ok(_) => handlers::$module::handle($node, $request, $body, $reply),
            Err(code) => {
                let refusal = Refusal::denial(code);
                handlers::$module::deny(&$body, refusal, $request.api_version, $reply);
                Handled::Replied
            }
        }
    };
}

macro_rules! table {
    ($($api:ident => $module:ident::$message:ident $(by $entries:ident)?, $access:ident $($operation:ident)?;)*) => {
        /// Serves one request whose API version is known to be served.
        ///
        /// - Errors: the body cannot be decoded; the request has had no effect.
        fn dispatch(
            node: &Node,
            place: Place,
            request: &Request<'_>,
            reply: &mut ReplyBuffer,
        ) -> Result<Handled, DecodeError> {
            match request.api_key {
                // Decoded as it is served: record bytes stay where they are.
                ApiKey::Produce => {
                    let body = ProduceRequest::decode(request.body, request.api_version)?;
                    if let Some(entries) = place.exceeded_by(|| body.partition_count as u64) {
                        return Ok(handle_elsewhere(request, entries));
                    }
                    let unfolding = place.unfolding(request.body.len());
                    if body.has_transactional_batch {
                        return handlers::transactional_produce::handle(node, request, body, unfolding, reply);
                    }
                    handlers::produce::handle(node, request, body, unfolding, reply)
                }
                $(ApiKey::$api => {
                    let mut reader = Reader::new(request.body);
                    let body = messages::$module::$message::decode(&mut reader, request.api_version)?;
                    // Bytes after the message are ignored, as Apache Kafka does: librdkafka 2.16
                    // sends three of them with Metadata version 13.
                    $(
                        let entries = || handlers::$module::$entries(node, request, &body);
                        if let Some(entries) = place.exceeded_by(entries) {
                            return Ok(handle_elsewhere(request, entries));
                        }
                    )?
                    Ok(serve!($access $($operation)? $module, node, request, body, reply))
                })*
            }
        }

        #[cfg(test)]
        const ROUTED: &[ApiKey] = &[ApiKey::Produce, $(ApiKey::$api),*];

        /// How access is controlled, as in the rows.
        #[cfg(test)]
        pub(crate) const CONTROLLED: &[(ApiKey, &str)] =
            &[(ApiKey::Produce, "asks"), $((ApiKey::$api, stringify!($access))),*];
    };
}

table! {
    AddOffsetsToTxn => add_offsets_to_txn::AddOffsetsToTxnRequest, asks;
    AddPartitionsToTxn => add_partitions_to_txn::AddPartitionsToTxnRequest, asks;
    AlterClientQuotas => alter_client_quotas::AlterClientQuotasRequest, cluster AlterConfigs;
    AlterConfigs => alter_configs::AlterConfigsRequest, asks;
    AlterPartitionReassignments => alter_partition_reassignments::AlterPartitionReassignmentsRequest, cluster Alter;
    AlterReplicaLogDirs => alter_replica_log_dirs::AlterReplicaLogDirsRequest, cluster Alter;
    AlterUserScramCredentials => alter_user_scram_credentials::AlterUserScramCredentialsRequest, cluster Alter;
    ApiVersions => api_versions::ApiVersionsRequest, open;
    ConsumerGroupDescribe => consumer_group_describe::ConsumerGroupDescribeRequest, asks;
    ConsumerGroupHeartbeat => consumer_group_heartbeat::ConsumerGroupHeartbeatRequest, asks;
    CreateAcls => create_acls::CreateAclsRequest, cluster Alter;
    CreateDelegationToken => create_delegation_token::CreateDelegationTokenRequest, asks;
    CreatePartitions => create_partitions::CreatePartitionsRequest, asks;
    CreateTopics => create_topics::CreateTopicsRequest, asks;
    DeleteAcls => delete_acls::DeleteAclsRequest, cluster Alter;
    DeleteGroups => delete_groups::DeleteGroupsRequest, asks;
    DeleteRecords => delete_records::DeleteRecordsRequest, asks;
    DeleteTopics => delete_topics::DeleteTopicsRequest, asks;
    DescribeAcls => describe_acls::DescribeAclsRequest, cluster Describe;
    DescribeClientQuotas => describe_client_quotas::DescribeClientQuotasRequest, cluster DescribeConfigs;
    DescribeCluster => describe_cluster::DescribeClusterRequest, asks;
    DescribeConfigs => describe_configs::DescribeConfigsRequest, asks;
    DescribeDelegationToken => describe_delegation_token::DescribeDelegationTokenRequest, open;
    DescribeGroups => describe_groups::DescribeGroupsRequest, asks;
    DescribeLogDirs => describe_log_dirs::DescribeLogDirsRequest, cluster Describe;
    DescribeProducers => describe_producers::DescribeProducersRequest, asks;
    DescribeQuorum => describe_quorum::DescribeQuorumRequest, cluster Describe;
    DescribeTopicPartitions => describe_topic_partitions::DescribeTopicPartitionsRequest, asks;
    DescribeTransactions => describe_transactions::DescribeTransactionsRequest, asks;
    DescribeUserScramCredentials => describe_user_scram_credentials::DescribeUserScramCredentialsRequest, cluster Describe;
    ElectLeaders => elect_leaders::ElectLeadersRequest, cluster Alter;
    EndTxn => end_txn::EndTxnRequest, asks;
    ExpireDelegationToken => expire_delegation_token::ExpireDelegationTokenRequest, open;
    Fetch => fetch::FetchRequest by session_entries, asks;
    FindCoordinator => find_coordinator::FindCoordinatorRequest, asks;
    GetTelemetrySubscriptions => get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest, open;
    Heartbeat => heartbeat::HeartbeatRequest, asks;
    IncrementalAlterConfigs => incremental_alter_configs::IncrementalAlterConfigsRequest, asks;
    InitProducerId => init_producer_id::InitProducerIdRequest, asks;
    JoinGroup => join_group::JoinGroupRequest, asks;
    LeaveGroup => leave_group::LeaveGroupRequest, asks;
    ListConfigResources => list_config_resources::ListConfigResourcesRequest, cluster DescribeConfigs;
    ListGroups => list_groups::ListGroupsRequest, asks;
    ListOffsets => list_offsets::ListOffsetsRequest, asks;
    ListPartitionReassignments => list_partition_reassignments::ListPartitionReassignmentsRequest, cluster Describe;
    ListTransactions => list_transactions::ListTransactionsRequest, asks;
    Metadata => metadata::MetadataRequest by answer_entries, asks;
    OffsetCommit => offset_commit::OffsetCommitRequest, asks;
    OffsetDelete => offset_delete::OffsetDeleteRequest, asks;
    OffsetFetch => offset_fetch::OffsetFetchRequest by answer_entries, asks;
    OffsetForLeaderEpoch => offset_for_leader_epoch::OffsetForLeaderEpochRequest, asks;
    PushTelemetry => push_telemetry::PushTelemetryRequest, open;
    RenewDelegationToken => renew_delegation_token::RenewDelegationTokenRequest, open;
    SaslAuthenticate => sasl_authenticate::SaslAuthenticateRequest, open;
    SaslHandshake => sasl_handshake::SaslHandshakeRequest, open;
    SyncGroup => sync_group::SyncGroupRequest, asks;
    TxnOffsetCommit => txn_offset_commit::TxnOffsetCommitRequest, asks;
    UpdateFeatures => update_features::UpdateFeaturesRequest, cluster Alter;
    WriteTxnMarkers => write_txn_markers::WriteTxnMarkersRequest, asks;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_api_has_a_handler_and_every_handler_is_served() {
        for api_key in ApiKey::ALL {
            assert_eq!(
                api_key.served_versions().is_some(),
                ROUTED.contains(api_key),
                "{api_key}"
            );
        }
    }

    #[test]
    fn only_authentication_telemetry_and_absent_tokens_are_open_to_everyone() {
        let open = CONTROLLED.iter().filter(|(_, access)| *access == "open");
        let open: Vec<ApiKey> = open.map(|(api_key, _)| *api_key).collect();
        let expected = [
            ApiKey::ApiVersions,
            ApiKey::DescribeDelegationToken,
            ApiKey::ExpireDelegationToken,
            ApiKey::GetTelemetrySubscriptions,
            ApiKey::PushTelemetry,
            ApiKey::RenewDelegationToken,
            ApiKey::SaslAuthenticate,
            ApiKey::SaslHandshake,
        ];
        assert_eq!(open, expected);
    }
}
