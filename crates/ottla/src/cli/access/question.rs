//! What `ottla access explain` is asked: may this principal do that?

use std::net::IpAddr;

use clap::{ArgGroup, Args};
use ottla_broker::access::acl::{CLUSTER_NAME, Operation, ResourceType};
use ottla_console::source::AccessQuestion;

#[derive(Args)]
#[command(group(ArgGroup::new("resource").required(true)))]
pub struct Question {
    /// Who asks, with its type: User:app
    #[arg(long, value_name = "PRINCIPAL", value_parser = AccessQuestion::principal)]
    principal: String,

    /// Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs,
    /// IdempotentWrite, CreateTokens, DescribeTokens or TwoPhaseCommit; upper and lower case do not
    /// matter
    #[arg(long, value_name = "OPERATION", value_parser = AccessQuestion::operation)]
    operation: Operation,

    /// The topic
    #[arg(long, value_name = "NAME", group = "resource")]
    topic: Option<String>,

    /// The consumer group
    #[arg(long, value_name = "NAME", group = "resource")]
    group: Option<String>,

    /// The transactional id
    #[arg(long, value_name = "NAME", group = "resource")]
    transactional_id: Option<String>,

    /// The cluster itself
    #[arg(long, group = "resource")]
    cluster: bool,

    /// The delegation token
    #[arg(long, value_name = "NAME", group = "resource")]
    delegation_token: Option<String>,

    /// The user whose tokens are created or described, e.g. User:app
    #[arg(long, value_name = "PRINCIPAL", group = "resource")]
    user_principal: Option<String>,

    /// The client's address [default: one that no ACL names]
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
}

impl Question {
    pub fn read(self) -> AccessQuestion {
        let named = [
            (ResourceType::Topic, self.topic),
            (ResourceType::Group, self.group),
            (ResourceType::TransactionalId, self.transactional_id),
            (ResourceType::DelegationToken, self.delegation_token),
            (ResourceType::User, self.user_principal),
            (
                ResourceType::Cluster,
                self.cluster.then(|| CLUSTER_NAME.to_owned()),
            ),
        ];
        let mut named = named
            .into_iter()
            .filter_map(|(resource_type, name)| Some((resource_type, name?)));
        let (resource_type, resource) = named.next().expect("clap demands one of them");
        AccessQuestion {
            principal: self.principal,
            host: self.host.map(|host| host.to_canonical()),
            operation: self.operation,
            resource_type,
            resource,
        }
    }
}
