//! Access control lists (KIP-140, KIP-290).

use ottla_wire::acl::ANY;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::create_acls::{AclCreation, CreateAclsRequest, CreateAclsResponse};
use ottla_wire::messages::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};

use super::context::{Context, Destination, Versions, decode_with};
use super::topics::controller_moved;
use super::{Admin, body, resource_error, resource_result};
use crate::error::Error;
use crate::pending::Pending;

/// One ACL. Codes are those of the protocol (KIP-11, KIP-290): a broker may know more of them than
/// this client.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Acl {
    /// 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user.
    pub resource_type: i8,
    /// A name, or the prefix of names; `*` as a literal means all.
    pub resource_name: String,
    /// 3 literal, 4 prefixed.
    pub pattern_type: i8,
    /// With its type: `User:alice`, or `User:*` for everyone.
    pub principal: String,
    /// An address, or `*`.
    pub host: String,
    /// 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action,
    /// 10 describe configs, 11 alter configs, 12 idempotent write.
    pub operation: i8,
    /// 2 deny, 3 allow.
    pub permission_type: i8,
}

impl Acl {
    /// An ACL that allows `principal` an operation on the resource with this name, from every host.
    pub fn allowing(
        principal: impl Into<String>,
        operation: i8,
        resource_type: i8,
        resource_name: impl Into<String>,
    ) -> Acl {
        Acl {
            resource_type,
            resource_name: resource_name.into(),
            pattern_type: 3,
            principal: principal.into(),
            host: "*".to_owned(),
            operation,
            permission_type: 3,
        }
    }
}

impl Admin {
    /// Returns all ACLs.
    ///
    /// - Errors: `SecurityDisabled` from a broker without an authorizer.
    pub fn describe_acls(&self) -> Pending<Vec<Acl>> {
        self.call("describe ACLs", describe)
    }

    /// Creates ACLs; one that exists is a success. Returns a result for each, in the same order.
    pub fn create_acls(&self, acls: Vec<Acl>) -> Pending<Vec<Result<(), Error>>> {
        self.call("create ACLs", |context| create(context, acls))
    }
}

async fn create(context: Context, acls: Vec<Acl>) -> Result<Vec<Result<(), Error>>, Error> {
    let names: Vec<String> = acls.iter().map(|acl| acl.resource_name.clone()).collect();
    let encode = move |version| {
        let creations = acls.iter().map(|acl| AclCreation {
            resource_type: acl.resource_type,
            resource_name: &acl.resource_name,
            resource_pattern_type: acl.pattern_type,
            principal: &acl.principal,
            host: &acl.host,
            operation: acl.operation,
            permission_type: acl.permission_type,
        });
        let request = CreateAclsRequest {
            creations: creations.collect(),
        };
        body(|out| request.encode(out, version))
    };
    let api_key = ApiKey::CreateAcls;
    context
        .ask(
            Destination::Controller,
            api_key,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, CreateAclsResponse::decode)?;
                controller_moved(response.results.iter().map(|result| &result.error_code))?;
                let results = response.results.iter().zip(&names).map(|(result, name)| {
                    let what = || format!("ACL of {name}");
                    resource_result((), result.error_code, result.error_message, what)
                });
                Ok(results.collect())
            },
        )
        .await
}

async fn describe(context: Context) -> Result<Vec<Acl>, Error> {
    let encode = |version| {
        let request = DescribeAclsRequest {
            resource_type_filter: ANY,
            resource_name_filter: None,
            pattern_type_filter: ANY,
            principal_filter: None,
            host_filter: None,
            operation: ANY,
            permission_type: ANY,
        };
        body(|out| request.encode(out, version))
    };
    let api_key = ApiKey::DescribeAcls;
    context
        .ask(Destination::Any, api_key, Versions::ALL, encode, |answer| {
            let response = decode_with(answer, DescribeAclsResponse::decode)?;
            let message = response.error_message;
            if let Some(error) = resource_error(response.error_code, message, || "ACLs".into()) {
                return Err(error);
            }
            let acls = response.resources.iter().flat_map(|resource| {
                resource.acls.iter().map(|acl| Acl {
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.to_owned(),
                    pattern_type: resource.pattern_type,
                    principal: acl.principal.to_owned(),
                    host: acl.host.to_owned(),
                    operation: acl.operation,
                    permission_type: acl.permission_type,
                })
            });
            Ok(acls.collect())
        })
        .await
}
