//! Operations authorized on a resource, as one bit per code of `AclOperation` (KIP-430).

use crate::access::Caller;
use crate::access::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::access::granted::GrantedConfig;
use crate::config::{ConfigResource, ConfigResourceType};
use crate::refusal::Refusal;

/// The value when the client did not ask.
pub(super) const NOT_ASKED: i32 = i32::MIN;

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

const TOPIC_OPERATIONS: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

const CLUSTER_OPERATIONS: i32 =
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE;

const GROUP_OPERATIONS: i32 = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;

/// The type of a broker's loggers, which DescribeConfigs and AlterConfigs know.
const BROKER_LOGGER: i8 = 8;

pub(super) fn topic_operations(caller: &Caller<'_>, topic: &str) -> i32 {
    caller.authorized(TOPIC_OPERATIONS, ResourceType::Topic, topic)
}

pub(super) fn group_operations(caller: &Caller<'_>, group_id: &str) -> i32 {
    caller.authorized(GROUP_OPERATIONS, ResourceType::Group, group_id)
}

/// Returns no operation at all to a client that may not describe the cluster.
pub(super) fn cluster_operations(caller: &Caller<'_>) -> i32 {
    if !caller.may_on_cluster(Operation::Describe) {
        return 0;
    }
    caller.authorized(CLUSTER_OPERATIONS, ResourceType::Cluster, CLUSTER_NAME)
}

/// Returns leave for an operation on the settings of a resource; `None`: there is no such type.
pub(super) fn config_resource(
    caller: &Caller<'_>,
    operation: Operation,
    resource_type: i8,
    name: &str,
) -> Result<Option<GrantedConfig>, Refusal> {
    let name = name.into();
    let granted = match ConfigResourceType::from_code(resource_type) {
        Some(resource_type) => caller
            .config(operation, ConfigResource { resource_type, name })
            .map(Some),
        None if resource_type == BROKER_LOGGER => caller.cluster(operation).map(|_| None),
        None => Ok(None),
    };
    granted.map_err(Refusal::denial)
}
