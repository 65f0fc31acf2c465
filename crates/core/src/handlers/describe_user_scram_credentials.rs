//! DescribeUserScramCredentials, version 0 (KIP-554): the users and their mechanisms, never a key.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};

use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DescribeUserScramCredentialsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let mut stored = BTreeMap::<&str, Vec<CredentialInfo>>::new();
    for (key, credential) in &*image.scram_credentials {
        let info = CredentialInfo {
            mechanism: key.mechanism,
            iterations: credential.iterations,
        };
        stored.entry(&key.user).or_default().push(info);
    }
    // How often each user was asked for; an empty list means all users.
    let mut asked = BTreeMap::<&str, usize>::new();
    match body.users.filter(|users| !users.is_empty()) {
        Some(users) => users
            .iter()
            .for_each(|user| *asked.entry(user.name).or_default() += 1),
        None => asked.extend(stored.keys().map(|user| (*user, 1))),
    }
    let results = asked.into_iter().map(|(user, times)| match stored.remove(user) {
        _ if times > 1 => refused(
            user,
            ErrorCode::DuplicateResource,
            "asked for twice in one request",
        ),
        None => refused(user, ErrorCode::ResourceNotFound, "has no credential"),
        Some(credential_infos) => DescribeUserScramCredentialsResult {
            user,
            error_message: None,
            credential_infos,
            ..Default::default()
        },
    });
    let response = DescribeUserScramCredentialsResponse {
        error_message: None,
        results: results.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

/// As Apache Kafka: the error stands in the answer and for each user asked for, without the names.
pub(crate) fn deny(
    body: &DescribeUserScramCredentialsRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let users = body.users.iter().flatten();
    DescribeUserScramCredentialsResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        results: users
            .map(|_| refused("", refusal.code, &refusal.message))
            .collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn refused<'a>(user: &'a str, error: ErrorCode, message: &'a str) -> DescribeUserScramCredentialsResult<'a> {
    DescribeUserScramCredentialsResult {
        user,
        error_code: error.code(),
        error_message: Some(message),
        ..Default::default()
    }
}
