//! The users of the matrix and their permissions, each for resources of its own.

use ottla_wire::acl::{CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, WILDCARD};
use ottla_wire::messages::create_acls::AclCreation;

use Operation::{
    All, Alter, AlterConfigs, ClusterAction, Create, CreateTokens, Delete, Describe, DescribeConfigs,
    IdempotentWrite, Read, Write,
};
use ResourceType::{Cluster, Group, Topic, TransactionalId};

pub type Grant = (ResourceType, Operation);

/// Everything that an API asks for.
const GRANTS: [Grant; 23] = [
    (Topic, Read),
    (Topic, Write),
    (Topic, Create),
    (Topic, Delete),
    (Topic, Alter),
    (Topic, Describe),
    (Topic, DescribeConfigs),
    (Topic, AlterConfigs),
    (Group, Read),
    (Group, Delete),
    (Group, Describe),
    (Group, DescribeConfigs),
    (Group, AlterConfigs),
    (TransactionalId, Write),
    (TransactionalId, Describe),
    (Cluster, Create),
    (Cluster, Alter),
    (Cluster, Describe),
    (Cluster, ClusterAction),
    (Cluster, DescribeConfigs),
    (Cluster, AlterConfigs),
    (Cluster, IdempotentWrite),
    (ResourceType::User, CreateTokens),
];

/// Sets of grants that an API needs together.
const TOGETHER: [&[Grant]; 11] = [
    &[(Group, Read), (Topic, Read)],
    &[(Group, Read), (Topic, Describe)],
    &[(Group, Describe), (Topic, Describe)],
    &[(Group, Delete), (Topic, Read)],
    &[(TransactionalId, Write), (Topic, Write)],
    &[(TransactionalId, Write), (Group, Read)],
    &[(TransactionalId, Write), (Group, Read), (Topic, Read)],
    &[(TransactionalId, Describe), (Topic, Describe)],
    &[(Topic, Create), (Topic, DescribeConfigs)],
    &[(Topic, Create), (Topic, Describe)],
    &[(Cluster, Create), (Topic, Describe)],
];

const EVERYTHING: [Grant; 5] = [
    (Topic, All),
    (Group, All),
    (TransactionalId, All),
    (Cluster, All),
    (ResourceType::User, All),
];

/// The principal that other users ask delegation tokens for.
pub const TOKEN_OWNER: &str = "owner";

/// A principal, called by its permissions.
pub struct User {
    pub name: String,
    allowed: Vec<Grant>,
    denied: Vec<Grant>,
}

/// One without permissions, one with each, with each needed set, with all, and with all but one.
pub fn users() -> Vec<User> {
    let user = |name: String, allowed: &[Grant], denied: &[Grant]| User {
        name,
        allowed: allowed.to_vec(),
        denied: denied.to_vec(),
    };
    let mut users = vec![
        user("nothing".to_owned(), &[], &[]),
        user("everything".to_owned(), &EVERYTHING, &[]),
    ];
    users.extend(GRANTS.map(|grant| user(called(&[grant]), &[grant], &[])));
    users.extend(TOGETHER.map(|grants| user(called(grants), grants, &[])));
    users.extend(GRANTS.map(|grant| user(format!("not-{}", called(&[grant])), &EVERYTHING, &[grant])));
    users
}

fn called(grants: &[Grant]) -> String {
    let names = grants
        .iter()
        .map(|(resource_type, operation)| format!("{}{}", resource_type.name(), operation.name()));
    names.collect::<Vec<_>>().join("-")
}

impl User {
    pub fn topic(&self) -> String {
        format!("{}.topic", self.name)
    }

    /// A topic that exists until it is deleted by its id.
    pub fn other_topic(&self) -> String {
        format!("{}.other", self.name)
    }

    pub fn group(&self) -> String {
        format!("{}.group", self.name)
    }

    pub fn transactional_id(&self) -> String {
        format!("{}.transaction", self.name)
    }

    fn principal(&self) -> String {
        format!("User:{}", self.name)
    }

    pub fn acls(&self) -> Vec<OwnedAcl> {
        let of = |permission: Permission| {
            move |(resource_type, operation): &Grant| {
                let (pattern_type, resource_name) = match resource_type {
                    // All topics of the user, those that do not exist too.
                    Topic => (PatternType::Prefixed, format!("{}.", self.name)),
                    Group => (PatternType::Literal, self.group()),
                    TransactionalId => (PatternType::Literal, self.transactional_id()),
                    ResourceType::User => (PatternType::Literal, format!("User:{TOKEN_OWNER}")),
                    _ => (PatternType::Literal, CLUSTER_NAME.to_owned()),
                };
                OwnedAcl {
                    resource_type: *resource_type,
                    resource_name,
                    pattern_type,
                    principal: self.principal(),
                    operation: *operation,
                    permission,
                }
            }
        };
        let allowed = self.allowed.iter().map(of(Permission::Allow));
        let denied = self.denied.iter().map(of(Permission::Deny));
        allowed.chain(denied).collect()
    }
}

pub struct OwnedAcl {
    resource_type: ResourceType,
    resource_name: String,
    pattern_type: PatternType,
    principal: String,
    operation: Operation,
    permission: Permission,
}

impl OwnedAcl {
    pub fn creation(&self) -> AclCreation<'_> {
        AclCreation {
            resource_type: self.resource_type.code(),
            resource_name: &self.resource_name,
            resource_pattern_type: self.pattern_type.code(),
            principal: &self.principal,
            host: WILDCARD,
            operation: self.operation.code(),
            permission_type: self.permission.code(),
        }
    }
}
