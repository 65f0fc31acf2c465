//! Access rights and limits: quotas, SCRAM credentials, ACLs and delegation tokens.
//!
//! All of them are kept and written back, so that a directory loses nothing while this broker uses
//! it.

use std::sync::Arc;

use ottla_wire::primitives::Uuid;

/// An entity as pairs of type (`user`, `client-id`, `ip`) and name; no name means the default of
/// that type. Sorted by type.
pub type ClientQuotaEntity = Vec<(Arc<str>, Option<Arc<str>>)>;

/// A user and one mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScramKey {
    pub mechanism: i8,
    pub user: Arc<str>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    pub salt: Box<[u8]>,
    pub stored_key: Box<[u8]>,
    pub server_key: Box<[u8]>,
    pub iterations: i32,
}

// Keys must never appear in a log line.
impl std::fmt::Debug for ScramCredential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ScramCredential")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclImage {
    pub id: Uuid,
    pub resource_type: i8,
    pub resource_name: Arc<str>,
    pub pattern_type: i8,
    pub principal: Arc<str>,
    pub host: Arc<str>,
    pub operation: i8,
    pub permission_type: i8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationTokenImage {
    pub owner: Arc<str>,
    pub requester: Arc<str>,
    pub renewers: Vec<Arc<str>>,
    pub issue_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub expiration_timestamp_ms: i64,
    pub token_id: Arc<str>,
}
