//! DescribeClientQuotas, versions 0 and 1 (KIP-546).

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_client_quotas::{
    DescribeClientQuotasRequest, DescribeClientQuotasResponse, EntityData, EntryData, ValueData,
};

use crate::image::access::ClientQuotaEntity;
use crate::node::Node;
use crate::pending::Handled;
use crate::quota::limits::{CLIENT_ID, IP, USER};
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_SPECIFIED: i8 = 2;

/// The condition for one entity type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match<'a> {
    /// `None`: the default entity of its type.
    Name(Option<&'a str>),
    Any,
}

type Filter<'a> = BTreeMap<&'a str, Match<'a>>;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DescribeClientQuotasRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let filter = filter(&body);
    let response = match &filter {
        Err(refusal) => DescribeClientQuotasResponse {
            error_code: refusal.code.code(),
            error_message: Some(&refusal.message),
            entries: None,
            ..Default::default()
        },
        Ok(filter) => {
            let found = image
                .client_quotas
                .iter()
                .filter(|(entity, _)| matches(entity, filter, body.strict));
            let entries = found.map(|(entity, values)| EntryData {
                entity: entity
                    .iter()
                    .map(|(entity_type, name)| EntityData {
                        entity_type,
                        entity_name: name.as_deref(),
                    })
                    .collect(),
                values: values
                    .iter()
                    .map(|(key, &value)| ValueData { key, value })
                    .collect(),
            });
            DescribeClientQuotasResponse {
                error_message: None,
                entries: Some(entries.collect()),
                ..Default::default()
            }
        }
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

pub(crate) fn deny(
    _: &DescribeClientQuotasRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    DescribeClientQuotasResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        entries: None,
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn filter<'a>(body: &DescribeClientQuotasRequest<'a>) -> Result<Filter<'a>, Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    let mut filter = Filter::new();
    for component in &body.components {
        let entity_type = component.entity_type;
        if !matches!(entity_type, IP | USER | CLIENT_ID) {
            let message = format!("Unsupported entity type {entity_type}");
            return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
        }
        let wanted = match (component.match_type, component.r#match) {
            (MATCH_EXACT, Some(name)) => Match::Name(Some(name)),
            (MATCH_DEFAULT, None) => Match::Name(None),
            (MATCH_SPECIFIED, None) => Match::Any,
            (MATCH_EXACT..=MATCH_SPECIFIED, _) => {
                return invalid(format!(
                    "match type {} and its match contradict each other",
                    component.match_type
                ));
            }
            (other, _) => return invalid(format!("Unknown match type {other}")),
        };
        if filter.insert(entity_type, wanted).is_some() {
            return invalid(format!(
                "Entity type {entity_type} cannot appear more than once in the filter."
            ));
        }
    }
    if filter.contains_key(IP) && filter.len() > 1 {
        return invalid("ip goes neither with user nor with client-id".to_owned());
    }
    Ok(filter)
}

/// Whether an entity matches the filter.
///
/// - `strict`: the entity must have no types beyond those of the filter.
fn matches(entity: &ClientQuotaEntity, filter: &Filter<'_>, strict: bool) -> bool {
    if strict && entity.len() != filter.len() {
        return false;
    }
    filter.iter().all(|(wanted_type, wanted)| {
        entity.iter().any(|(entity_type, name)| {
            &**entity_type == *wanted_type && matches!(wanted, Match::Any) || {
                &**entity_type == *wanted_type && *wanted == Match::Name(name.as_deref())
            }
        })
    })
}
