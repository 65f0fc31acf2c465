//! What a cluster tells of its authorizer.

use std::collections::BTreeSet;

use ottla_broker::ErrorCode;
use ottla_broker::access::{AclImage, Uuid};
use ottla_client::Error;
use ottla_client::admin::{Acl, Admin, ConfigEntries, ConfigEntry, ConfigResource, ConfigResourceKind};

use crate::cli::output::Failure;
use crate::cli::servers::Servers;

/// What a cluster's authorizer goes by, as far as it tells.
#[derive(Clone, Debug, Default)]
pub struct Authorizer {
    /// `None`: there is no authorizer.
    pub acls: Option<Vec<AclImage>>,
    /// `None`: not told. Apache Kafka never tells: the setting is the authorizer's own.
    pub super_users: Option<BTreeSet<String>>,
    /// `allow.everyone.if.no.acl.found`; `None`: not told.
    pub allow_without_acl: Option<bool>,
}

/// Returns the cluster's ACLs; `None` without an authorizer.
pub fn acls(servers: &Servers) -> Result<Option<Vec<AclImage>>, Failure> {
    acls_of(&servers.admin()?).map_err(|error| servers.failure(&error))
}

pub fn authorizer(servers: &Servers) -> Result<Authorizer, Failure> {
    authorizer_of(&servers.admin()?).map_err(|error| servers.failure(&error))
}

pub fn authorizer_of(admin: &Admin) -> Result<Authorizer, Error> {
    let acls = acls_of(admin)?;
    // Settings are more than is needed: a client that may not see them learns what ACLs say.
    let settings = settings(admin).unwrap_or_default();
    Ok(Authorizer {
        acls,
        super_users: told(settings.get("super.users")).map(|value| super_users(&value)),
        allow_without_acl: told(settings.get("allow.everyone.if.no.acl.found")).map(|value| value == "true"),
    })
}

/// As [`acls`].
pub fn acls_of(admin: &Admin) -> Result<Option<Vec<AclImage>>, Error> {
    match admin.describe_acls().wait() {
        Ok(acls) => Ok(Some(acls.iter().zip(1..).map(image).collect())),
        Err(Error::Broker {
            code: ErrorCode::SecurityDisabled,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives the ACL an id of our own: DescribeAcls tells none.
fn image((acl, number): (&Acl, u128)) -> AclImage {
    AclImage {
        id: Uuid(number.to_be_bytes()),
        resource_type: acl.resource_type,
        resource_name: acl.resource_name.as_str().into(),
        pattern_type: acl.pattern_type,
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: acl.operation,
        permission_type: acl.permission_type,
    }
}

/// Returns the settings of one broker.
fn settings(admin: &Admin) -> Option<ConfigEntries> {
    let cluster = admin.describe_cluster().wait().ok()?;
    let (id, _) = cluster.nodes.iter().next()?;
    let resource = ConfigResource::new(ConfigResourceKind::Broker, id.0.to_string());
    let answers = admin.describe_configs(vec![resource]).wait().ok()?;
    answers.into_values().next()?.ok()
}

/// Returns a setting's value, empty if it is not set; `None` if the broker hides it: Apache Kafka
/// does that with settings that it does not know itself.
fn told(entry: Option<&ConfigEntry>) -> Option<String> {
    let entry = entry.filter(|entry| !entry.is_sensitive)?;
    Some(entry.value.clone().unwrap_or_default())
}

fn super_users(value: &str) -> BTreeSet<String> {
    let principals = value.split(';').map(str::trim);
    principals
        .filter(|principal| !principal.is_empty())
        .map(str::to_owned)
        .collect()
}
