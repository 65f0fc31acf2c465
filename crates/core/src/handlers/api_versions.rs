//! ApiVersions, versions 0 to 4 (KIP-35, KIP-511, KIP-584): the APIs this broker serves and the
//! feature levels in force.
//!
//! An unknown version is answered at version 0 with UNSUPPORTED_VERSION and the whole table, so
//! that the client can retry (KIP-511); see `handle_unknown_version`.

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use crate::image::features::KEPT_FEATURES;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

/// Up to version 3 a feature whose range begins at 0 breaks clients that do not expect it
/// (KAFKA-17011).
const FIRST_VERSION_WITH_ZERO_MINIMUM: i16 = 4;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: ApiVersionsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let is_named = |text: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    };
    // KIP-511: names of client software become metric labels, so they are restricted.
    if request.api_version >= 3
        && !(is_named(body.client_software_name) && is_named(body.client_software_version))
    {
        let refusal = ApiVersionsResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        };
        refusal.encode(&mut reply.bytes, request.api_version);
        return Handled::Replied;
    }
    if request.api_version >= 3 {
        let identity = &request.connection.identity;
        identity.set_software(body.client_software_name, body.client_software_version);
    }
    let image = node.image();
    let shows_zero = request.api_version >= FIRST_VERSION_WITH_ZERO_MINIMUM;
    let supported_features = KEPT_FEATURES
        .iter()
        .filter(|feature| shows_zero || feature.min > 0)
        .map(|feature| SupportedFeatureKey {
            name: feature.name,
            min_version: feature.min,
            max_version: feature.max,
        });
    let finalized_features = image
        .features
        .levels
        .iter()
        .map(|(name, level)| FinalizedFeatureKey {
            name,
            max_version_level: *level,
            min_version_level: *level,
        });
    let response = ApiVersionsResponse {
        api_keys: table(node),
        supported_features: supported_features.collect(),
        finalized_features_epoch: image.provenance.last_offset,
        finalized_features: finalized_features.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

/// Answers an unknown version of ApiVersions; response header and body are version 0.
pub(crate) fn handle_unknown_version(node: &Node, reply: &mut ReplyBuffer) {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: table(node),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, 0);
}

fn table(node: &Node) -> Vec<ApiVersion> {
    let announced = |api_key: &ApiKey| {
        // KIP-714: a client that does not see these APIs pushes nothing, as it should where there
        // is no receiver.
        let is_telemetry = matches!(api_key, ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry);
        if is_telemetry && !node.telemetry.has_receiver() {
            return None;
        }
        let versions = api_key.announced_versions()?;
        Some(ApiVersion {
            api_key: api_key.code(),
            min_version: versions.min,
            max_version: versions.max,
        })
    };
    ApiKey::ALL.iter().filter_map(announced).collect()
}
