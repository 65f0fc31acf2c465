//! What only the metadata log knows: access rules, client quotas, users.

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse, OpData,
};
use ottla_wire::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, ScramCredentialUpsertion,
};
use ottla_wire::messages::create_acls::{AclCreation, CreateAclsRequest, CreateAclsResponse};
use ottla_wire::messages::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};
use ottla_wire::messages::describe_client_quotas::{
    DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};
use ottla_wire::messages::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use ottla_wire::primitives::Reader;

use super::Caller;

const ACLS_VERSION: i16 = 3;
const QUOTAS_VERSION: i16 = 1;
const USERS_VERSION: i16 = 0;

/// The settings with which a broker keeps access rules, and lets the test do everything.
pub const SETTINGS: [(&str, &str); 2] = [
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("super.users", "User:ANONYMOUS"),
];

const USERS: [&str; 2] = ["alice", "bob"];
const TOPIC: i8 = 2;
const LITERAL: i8 = 3;
const READ: i8 = 3;
const WRITE: i8 = 4;
const ALLOW: i8 = 3;
const ANY: i8 = 1;
const SCRAM_SHA_256: i8 = 1;

/// Two of each, with acknowledgement.
pub(super) fn define(broker: &mut impl Caller) {
    define_rules(broker);
    define_quotas(broker);
    define_users(broker);
}

fn define_rules(broker: &mut impl Caller) {
    let creation = |principal, operation| AclCreation {
        resource_type: TOPIC,
        resource_name: super::ORDERS,
        resource_pattern_type: LITERAL,
        principal,
        host: "*",
        operation,
        permission_type: ALLOW,
    };
    let request = CreateAclsRequest {
        creations: vec![creation("User:alice", READ), creation("User:bob", WRITE)],
    };
    let mut body = Vec::new();
    request.encode(&mut body, ACLS_VERSION);
    let answer = broker.answer(ApiKey::CreateAcls, ACLS_VERSION, &body);
    let response = CreateAclsResponse::decode(&mut Reader::new(&answer), ACLS_VERSION).expect("decodes");
    assert!(
        response.results.iter().all(|result| result.error_code == 0),
        "{response:?}"
    );
}

fn define_quotas(broker: &mut impl Caller) {
    let entry = |name, value| AlterClientQuotasRequestEntryData {
        entity: vec![AlterClientQuotasRequestEntityData {
            entity_type: "user",
            entity_name: Some(name),
        }],
        ops: vec![OpData {
            key: "producer_byte_rate",
            value,
            remove: false,
        }],
    };
    let request = AlterClientQuotasRequest {
        entries: vec![entry(USERS[0], 1_000_000.0), entry(USERS[1], 2_000_000.0)],
        validate_only: false,
    };
    let mut body = Vec::new();
    request.encode(&mut body, QUOTAS_VERSION);
    let answer = broker.answer(ApiKey::AlterClientQuotas, QUOTAS_VERSION, &body);
    let response =
        AlterClientQuotasResponse::decode(&mut Reader::new(&answer), QUOTAS_VERSION).expect("decodes");
    assert!(
        response.entries.iter().all(|entry| entry.error_code == 0),
        "{response:?}"
    );
}

fn define_users(broker: &mut impl Caller) {
    let upsertion = |name| ScramCredentialUpsertion {
        name,
        mechanism: SCRAM_SHA_256,
        iterations: 4_096,
        salt: b"salt of the test",
        salted_password: &[7; 32],
    };
    let request = AlterUserScramCredentialsRequest {
        deletions: Vec::new(),
        upsertions: USERS.into_iter().map(upsertion).collect(),
    };
    let mut body = Vec::new();
    request.encode(&mut body, USERS_VERSION);
    let answer = broker.answer(ApiKey::AlterUserScramCredentials, USERS_VERSION, &body);
    let response =
        AlterUserScramCredentialsResponse::decode(&mut Reader::new(&answer), USERS_VERSION).expect("decodes");
    assert!(
        response.results.iter().all(|result| result.error_code == 0),
        "{response:?}"
    );
}

/// Everything of it, one line each, in the order of the lines.
pub fn described(broker: &mut impl Caller) -> Vec<String> {
    let mut lines = rules(broker);
    lines.extend(quotas(broker));
    lines.extend(users(broker));
    lines.sort();
    lines
}

fn rules(broker: &mut impl Caller) -> Vec<String> {
    let request = DescribeAclsRequest {
        resource_type_filter: ANY,
        pattern_type_filter: ANY,
        operation: ANY,
        permission_type: ANY,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, ACLS_VERSION);
    let answer = broker.answer(ApiKey::DescribeAcls, ACLS_VERSION, &body);
    let response = DescribeAclsResponse::decode(&mut Reader::new(&answer), ACLS_VERSION).expect("decodes");
    let mut lines = Vec::new();
    for resource in &response.resources {
        for acl in &resource.acls {
            lines.push(format!("{} {acl:?}", resource.resource_name));
        }
    }
    lines
}

fn quotas(broker: &mut impl Caller) -> Vec<String> {
    let request = DescribeClientQuotasRequest::default();
    let mut body = Vec::new();
    request.encode(&mut body, QUOTAS_VERSION);
    let answer = broker.answer(ApiKey::DescribeClientQuotas, QUOTAS_VERSION, &body);
    let response =
        DescribeClientQuotasResponse::decode(&mut Reader::new(&answer), QUOTAS_VERSION).expect("decodes");
    let entries = response.entries.iter().flatten();
    entries
        .map(|entry| format!("{:?} {:?}", entry.entity, entry.values))
        .collect()
}

fn users(broker: &mut impl Caller) -> Vec<String> {
    let request = DescribeUserScramCredentialsRequest { users: None };
    let mut body = Vec::new();
    request.encode(&mut body, USERS_VERSION);
    let answer = broker.answer(ApiKey::DescribeUserScramCredentials, USERS_VERSION, &body);
    let response = DescribeUserScramCredentialsResponse::decode(&mut Reader::new(&answer), USERS_VERSION)
        .expect("decodes");
    let results = response.results.iter();
    results
        .map(|result| format!("{} {:?}", result.user, result.credential_infos))
        .collect()
}
