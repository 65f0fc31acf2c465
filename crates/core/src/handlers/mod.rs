//! The request handlers: one file per API, named like it.

mod admitted;
mod altered;
mod authorized;
mod group_calls;
mod token_calls;
mod transaction_calls;
pub(crate) mod add_offsets_to_txn;
pub(crate) mod add_partitions_to_txn;
pub(crate) mod alter_client_quotas;
pub(crate) mod alter_configs;
pub(crate) mod alter_partition_reassignments;
pub(crate) mod alter_replica_log_dirs;
pub(crate) mod alter_user_scram_credentials;
pub(crate) mod api_versions;
pub(crate) mod consumer_group_describe;
pub(crate) mod consumer_group_heartbeat;
pub(crate) mod create_acls;
pub(crate) mod create_delegation_token;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_acls;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_acls;
pub(crate) mod describe_client_quotas;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_delegation_token;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_quorum;
pub(crate) mod describe_topic_partitions;
pub(crate) mod describe_transactions;
pub(crate) mod describe_user_scram_credentials;
pub(crate) mod elect_leaders;
pub(crate) mod end_txn;
pub(crate) mod expire_delegation_token;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod get_telemetry_subscriptions;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_config_resources;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod list_partition_reassignments;
pub(crate) mod list_transactions;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
pub(crate) mod push_telemetry;
pub(crate) mod renew_delegation_token;
pub(crate) mod sasl_authenticate;
pub(crate) mod sasl_handshake;
pub(crate) mod sync_group;
pub(crate) mod transactional_produce;
pub(crate) mod txn_offset_commit;
pub(crate) mod update_features;
pub(crate) mod write_txn_markers;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod cold_fetch_tests;
#[cfg(test)]
mod denial_tests;
#[cfg(test)]
pub(crate) mod metadata_tests;
#[cfg(test)]
mod tool_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod transaction_tests;
#[cfg(test)]
pub(crate) mod transaction_flow_tests;

use crate::request::Request;
use crate::time::Moment;

/// A change takes one sync. A limit of 0, meaning "do not wait", is raised to this, because the
/// real result serves the client better.
const WAIT_MS_MIN: u64 = 1_000;

/// The deadline for the answer to a request with a time limit.
fn deadline(request: &Request<'_>, timeout_ms: i32) -> Moment {
    request
        .received
        .after_ms(u64::try_from(timeout_ms).unwrap_or(0).max(WAIT_MS_MIN))
}
