//! AlterClientQuotas, versions 0 and 1 (KIP-546): sets and removes quotas of users, client ids and
//! addresses.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntryData, AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData, AlterClientQuotasResponseEntryData,
};

use crate::controller::client_quotas::QuotaAlteration;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: AlterClientQuotasRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let alterations: Vec<QuotaAlteration> = body.entries.iter().map(alteration).collect();
    let entities: Vec<_> = alterations
        .iter()
        .map(|alteration| alteration.entity.clone())
        .collect();
    let validate_only = body.validate_only;
    let slot = submit(node, move |node, controller| {
        controller.alter_client_quotas(&alterations, validate_only, node.clock().timestamp())
    });
    let write =
        move |_: &Node, results: Result<Vec<Result<(), Refusal>>, Refusal>, reply: &mut ReplyBuffer| {
            let results = results.unwrap_or_else(|refusal| vec![Err(refusal); entities.len()]);
            let entries = entities.iter().zip(&results);
            AlterClientQuotasResponse {
                entries: entries.map(|(entity, result)| entry(entity, result)).collect(),
                ..Default::default()
            }
            .encode(&mut reply.bytes, version);
        };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

pub(crate) fn deny(
    body: &AlterClientQuotasRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let entities: Vec<_> = (body.entries.iter().map(alteration))
        .map(|alteration| alteration.entity)
        .collect();
    let result = Err(refusal);
    AlterClientQuotasResponse {
        entries: entities.iter().map(|entity| entry(entity, &result)).collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn alteration(entry: &AlterClientQuotasRequestEntryData<'_>) -> QuotaAlteration {
    let entity = entry.entity.iter();
    let operations = entry.ops.iter();
    QuotaAlteration {
        entity: entity
            .map(|part| (part.entity_type.to_owned(), part.entity_name.map(str::to_owned)))
            .collect(),
        operations: operations
            .map(|operation| {
                (
                    operation.key.to_owned(),
                    (!operation.remove).then_some(operation.value),
                )
            })
            .collect(),
    }
}

fn entry<'a>(
    entity: &'a [(String, Option<String>)],
    result: &'a Result<(), Refusal>,
) -> AlterClientQuotasResponseEntryData<'a> {
    let refusal = result.as_ref().err();
    AlterClientQuotasResponseEntryData {
        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
        error_message: refusal.map(|refusal| &*refusal.message),
        entity: entity
            .iter()
            .map(|(entity_type, entity_name)| AlterClientQuotasResponseEntityData {
                entity_type,
                entity_name: entity_name.as_deref(),
            })
            .collect(),
    }
}
