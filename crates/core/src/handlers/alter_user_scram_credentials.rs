//! AlterUserScramCredentials, version 0 (KIP-554): sets and removes the SCRAM credentials of users.
//! The client sends salted passwords, never passwords.

use std::collections::BTreeSet;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
};

use crate::controller::scram::{ScramAlteration, ScramChange, ScramResults};
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: AlterUserScramCredentialsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let alterations = alterations(&body);
    let users: BTreeSet<String> = (alterations.iter())
        .map(|alteration| alteration.user.clone())
        .collect();
    let slot = submit(node, move |node, controller| {
        controller.alter_scram_credentials(&alterations, node.clock().timestamp())
    });
    let write = move |_: &Node, results: Result<ScramResults, Refusal>, reply: &mut ReplyBuffer| {
        let results = results.unwrap_or_else(|refusal| {
            let all = users.into_iter();
            all.map(|user| (user, Err(refusal.clone()))).collect()
        });
        AlterUserScramCredentialsResponse {
            results: results
                .iter()
                .map(|(user, result)| answer(user, result))
                .collect(),
            ..Default::default()
        }
        .encode(&mut reply.bytes, version);
    };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

pub(crate) fn deny(
    body: &AlterUserScramCredentialsRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let deletions = body.deletions.iter().map(|deletion| deletion.name);
    let upsertions = body.upsertions.iter().map(|upsertion| upsertion.name);
    let users: BTreeSet<&str> = deletions.chain(upsertions).collect();
    let result = Err(refusal);
    AlterUserScramCredentialsResponse {
        results: users.into_iter().map(|user| answer(user, &result)).collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn alterations(body: &AlterUserScramCredentialsRequest<'_>) -> Vec<ScramAlteration> {
    let deletions = body.deletions.iter().map(|deletion| ScramAlteration {
        user: deletion.name.to_owned(),
        mechanism: deletion.mechanism,
        change: ScramChange::Delete,
    });
    let upsertions = body.upsertions.iter().map(|upsertion| ScramAlteration {
        user: upsertion.name.to_owned(),
        mechanism: upsertion.mechanism,
        change: ScramChange::Set {
            iterations: upsertion.iterations,
            salt: upsertion.salt.into(),
            salted_password: upsertion.salted_password.into(),
        },
    });
    deletions.chain(upsertions).collect()
}

fn answer<'a>(user: &'a str, result: &'a Result<(), Refusal>) -> AlterUserScramCredentialsResult<'a> {
    let refusal = result.as_ref().err();
    AlterUserScramCredentialsResult {
        user,
        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
        error_message: refusal.map(|refusal| &*refusal.message),
    }
}
