//! Life of a produce, 2 of 6. Before: broker/src/net/connection/mod.rs. After: handlers/produce.rs.
//! Life of a fetch, 1 of 6. After: handlers/fetch.rs.
//!
//! From API key to handler: one line per API. The API's name is the file name in
//! `ottla_wire::messages` and in `handlers`. `by` names the measure of a request whose body does
//! not show how much it asks for (`placement.rs`).

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages;
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::produce::ProduceRequest;

use crate::handlers;
use crate::long_answer::handle_elsewhere;
use crate::node::Node;
use crate::pending::Handled;
use crate::placement::Place;
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

macro_rules! table {
    ($($api:ident => $module:ident::$message:ident $(by $entries:ident)?,)*) => {
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
                    Ok(handlers::$module::handle(node, request, body, reply))
                })*
                api_key => Ok(Handled::Close(format!("{api_key} is not served"))),
            }
        }

        #[cfg(test)]
        const ROUTED: &[ApiKey] = &[ApiKey::Produce, $(ApiKey::$api),*];
    };
}

table! {
    AlterClientQuotas => alter_client_quotas::AlterClientQuotasRequest,
    AlterConfigs => alter_configs::AlterConfigsRequest,
    AlterPartitionReassignments => alter_partition_reassignments::AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirs => alter_replica_log_dirs::AlterReplicaLogDirsRequest,
    AlterUserScramCredentials => alter_user_scram_credentials::AlterUserScramCredentialsRequest,
    ApiVersions => api_versions::ApiVersionsRequest,
    CreatePartitions => create_partitions::CreatePartitionsRequest,
    CreateTopics => create_topics::CreateTopicsRequest,
    DeleteGroups => delete_groups::DeleteGroupsRequest,
    DeleteRecords => delete_records::DeleteRecordsRequest,
    DeleteTopics => delete_topics::DeleteTopicsRequest,
    DescribeAcls => describe_acls::DescribeAclsRequest,
    DescribeClientQuotas => describe_client_quotas::DescribeClientQuotasRequest,
    DescribeCluster => describe_cluster::DescribeClusterRequest,
    DescribeConfigs => describe_configs::DescribeConfigsRequest,
    DescribeGroups => describe_groups::DescribeGroupsRequest,
    DescribeLogDirs => describe_log_dirs::DescribeLogDirsRequest,
    DescribeProducers => describe_producers::DescribeProducersRequest,
    DescribeQuorum => describe_quorum::DescribeQuorumRequest,
    DescribeTopicPartitions => describe_topic_partitions::DescribeTopicPartitionsRequest,
    DescribeUserScramCredentials => describe_user_scram_credentials::DescribeUserScramCredentialsRequest,
    ElectLeaders => elect_leaders::ElectLeadersRequest,
    Fetch => fetch::FetchRequest by session_entries,
    FindCoordinator => find_coordinator::FindCoordinatorRequest,
    GetTelemetrySubscriptions => get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest,
    Heartbeat => heartbeat::HeartbeatRequest,
    IncrementalAlterConfigs => incremental_alter_configs::IncrementalAlterConfigsRequest,
    InitProducerId => init_producer_id::InitProducerIdRequest,
    JoinGroup => join_group::JoinGroupRequest,
    LeaveGroup => leave_group::LeaveGroupRequest,
    ListConfigResources => list_config_resources::ListConfigResourcesRequest,
    ListGroups => list_groups::ListGroupsRequest,
    ListOffsets => list_offsets::ListOffsetsRequest,
    ListPartitionReassignments => list_partition_reassignments::ListPartitionReassignmentsRequest,
    Metadata => metadata::MetadataRequest by answer_entries,
    OffsetCommit => offset_commit::OffsetCommitRequest,
    OffsetDelete => offset_delete::OffsetDeleteRequest,
    OffsetFetch => offset_fetch::OffsetFetchRequest by answer_entries,
    OffsetForLeaderEpoch => offset_for_leader_epoch::OffsetForLeaderEpochRequest,
    PushTelemetry => push_telemetry::PushTelemetryRequest,
    SaslAuthenticate => sasl_authenticate::SaslAuthenticateRequest,
    SaslHandshake => sasl_handshake::SaslHandshakeRequest,
    SyncGroup => sync_group::SyncGroupRequest,
    UpdateFeatures => update_features::UpdateFeaturesRequest,
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
}
