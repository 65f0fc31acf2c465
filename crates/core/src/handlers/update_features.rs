//! UpdateFeatures, versions 0 to 2 (KIP-584): changes finalized levels, all of a request or none.
//! 0: upgrades only. 1: upgrade types, and validateOnly (KIP-778). 2: KIP-1022, one result for all.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use super::deadline;
use crate::controller::features::{FeatureUpdate, UpgradeType};
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

const FIRST_VERSION_WITH_UPGRADE_TYPES: i16 = 1;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: UpdateFeaturesRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let deadline = deadline(request, body.timeout_ms);
    let updates: Vec<FeatureUpdate> = (body.feature_updates.iter())
        .map(|update| feature_update(update, version))
        .collect();
    let names: Vec<String> = updates.iter().map(|update| update.name.clone()).collect();
    let validate_only = body.validate_only;
    let slot = submit(node, move |node, controller| {
        controller.update_features(&updates, validate_only, node.clock().timestamp())
    });
    let write = move |_: &Node, result: Result<Result<(), Refusal>, Refusal>, reply: &mut ReplyBuffer| {
        let refusal = result.and_then(|decided| decided).err();
        let results = names.iter().filter(|_| refusal.is_none());
        UpdateFeaturesResponse {
            error_code: refusal
                .as_ref()
                .map_or(ErrorCode::None, |refusal| refusal.code)
                .code(),
            error_message: refusal.as_ref().map(|refusal| &*refusal.message),
            results: results
                .map(|feature| UpdatableFeatureResult {
                    feature,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
        .encode(&mut reply.bytes, version);
    };
    Handled::Pending(ControllerReply::boxed(slot, Some(deadline), write))
}

pub(crate) fn deny(_: &UpdateFeaturesRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    UpdateFeaturesResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn feature_update(update: &FeatureUpdateKey<'_>, version: i16) -> FeatureUpdate {
    let upgrade_type = match (version, update.upgrade_type) {
        // Apache Kafka 4.3 ignores allowDowngrade.
        (..FIRST_VERSION_WITH_UPGRADE_TYPES, _) | (_, 1) => UpgradeType::Upgrade,
        (_, 2) => UpgradeType::SafeDowngrade,
        (_, 3) => UpgradeType::UnsafeDowngrade,
        _ => UpgradeType::Unknown,
    };
    FeatureUpdate {
        name: update.feature.to_owned(),
        level: update.max_version_level,
        upgrade_type,
    }
}
