//! API versions: a broker's ApiVersions response, and the version to use for each request.

use ottla_wire::api_key::{ApiKey, VersionRange};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::primitives::{DecodeError, Reader};

use crate::error::Error;

/// The client software name that brokers show (KIP-511).
const SOFTWARE_NAME: &str = "ottla-client";

/// The feature that says which protocol transactions have (KIP-890).
const TRANSACTION_VERSION: &str = "transaction.version";

/// One slot per API number of the wire crate.
const SLOTS: usize = 96;

/// The versions that one broker announced.
#[derive(Clone, Debug)]
pub struct ApiVersions {
    /// By API number; empty (max below min) where the broker does not support it.
    ranges: [VersionRange; SLOTS],
    /// Of the finalized features (KIP-584); −1: not named.
    pub features_epoch: i64,
    /// The finalized level of `transaction.version`.
    pub transaction_version: i16,
}

const UNSERVED: VersionRange = VersionRange { min: 0, max: -1 };

/// The meaning of an ApiVersions response.
#[derive(Clone, Debug)]
pub enum Negotiated {
    Known(Box<ApiVersions>),
    /// The broker is older than our request: ask again in this version (KIP-511).
    AskAgain(i16),
}

impl ApiVersions {
    /// - Errors: `UnsupportedVersion`, with `broker_max` −1 when the broker does not support the
    ///   API at all.
    pub fn highest(&self, api_key: ApiKey, needed_min: i16, wanted_max: i16) -> Result<i16, Error> {
        let ours = api_key.known_versions();
        let theirs = usize::try_from(api_key.code())
            .ok()
            .and_then(|slot| self.ranges.get(slot))
            .copied()
            .unwrap_or(UNSERVED);
        let max = ours.max.min(theirs.max).min(wanted_max);
        let min = ours.min.max(theirs.min).max(needed_min);
        if max < min {
            return Err(Error::UnsupportedVersion {
                api: api_key.name(),
                broker_max: theirs.max,
                needed_min: ours.min.max(needed_min),
            });
        }
        Ok(max)
    }

    fn from_response(response: &ApiVersionsResponse<'_>) -> ApiVersions {
        let mut ranges = [UNSERVED; SLOTS];
        for api in &response.api_keys {
            if let Some(range) = usize::try_from(api.api_key)
                .ok()
                .and_then(|slot| ranges.get_mut(slot))
            {
                *range = VersionRange {
                    min: api.min_version,
                    max: api.max_version,
                };
            }
        }
        let finalized = response
            .finalized_features
            .iter()
            .find(|feature| feature.name == TRANSACTION_VERSION);
        ApiVersions {
            ranges,
            features_epoch: response.finalized_features_epoch,
            transaction_version: finalized.map_or(0, |feature| feature.max_version_level),
        }
    }
}

/// The request's body.
pub fn encode_request(version: i16) -> Vec<u8> {
    let mut body = Vec::with_capacity(32);
    ApiVersionsRequest {
        client_software_name: SOFTWARE_NAME,
        client_software_version: env!("CARGO_PKG_VERSION"),
    }
    .encode(&mut body, version);
    body
}

/// Reads the response to a request of `version`.
///
/// - Source: KIP-511: a broker that does not know the version answers in version 0, with
///   UNSUPPORTED_VERSION and, if it is new enough, the supported versions of ApiVersions.
pub fn decode_response(body: &[u8], version: i16) -> Result<Result<Negotiated, ErrorCode>, DecodeError> {
    let error_code = Reader::new(body).i16()?;
    if error_code == ErrorCode::UnsupportedVersion.code() && version > 0 {
        let response = ApiVersionsResponse::decode(&mut Reader::new(body), 0)?;
        let theirs = response
            .api_keys
            .iter()
            .find(|api| api.api_key == ApiKey::ApiVersions.code());
        let next = theirs.map_or(0, |range| range.max_version.clamp(0, version - 1));
        return Ok(Ok(Negotiated::AskAgain(next)));
    }
    if error_code != 0 {
        return Ok(Err(
            ErrorCode::from_i16(error_code).unwrap_or(ErrorCode::UnknownServerError)
        ));
    }
    let response = ApiVersionsResponse::decode(&mut Reader::new(body), version)?;
    Ok(Ok(Negotiated::Known(Box::new(ApiVersions::from_response(
        &response,
    )))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::messages::api_versions::ApiVersion;

    fn response(error_code: i16, api_keys: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse<'static> {
        ApiVersionsResponse {
            error_code,
            api_keys: api_keys
                .iter()
                .map(|(api_key, min_version, max_version)| ApiVersion {
                    api_key: api_key.code(),
                    min_version: *min_version,
                    max_version: *max_version,
                })
                .collect(),
            ..Default::default()
        }
    }

    fn encoded(response: &ApiVersionsResponse<'_>, version: i16) -> Vec<u8> {
        let mut body = Vec::new();
        response.encode(&mut body, version);
        body
    }

    #[test]
    fn the_highest_common_version_is_taken_within_both_bounds() {
        let body = encoded(
            &response(0, &[(ApiKey::Metadata, 0, 7), (ApiKey::Fetch, 4, 99)]),
            3,
        );
        let Ok(Ok(Negotiated::Known(versions))) = decode_response(&body, 3) else {
            panic!("not known");
        };
        assert_eq!(versions.highest(ApiKey::Metadata, 0, i16::MAX), Ok(7));
        assert_eq!(versions.highest(ApiKey::Fetch, 4, 12), Ok(12));
        assert_eq!(
            versions.highest(ApiKey::Fetch, 4, i16::MAX),
            Ok(ApiKey::Fetch.known_versions().max)
        );
        assert_eq!(
            versions.highest(ApiKey::Metadata, 9, i16::MAX),
            Err(Error::UnsupportedVersion {
                api: "Metadata",
                broker_max: 7,
                needed_min: 9
            })
        );
        assert_eq!(
            versions.highest(ApiKey::PushTelemetry, 0, i16::MAX),
            Err(Error::UnsupportedVersion {
                api: "PushTelemetry",
                broker_max: -1,
                needed_min: 0
            })
        );
    }

    #[test]
    fn an_older_broker_is_asked_again_in_a_version_it_speaks() {
        let code = ErrorCode::UnsupportedVersion.code();
        let with_range = encoded(&response(code, &[(ApiKey::ApiVersions, 0, 2)]), 0);
        assert!(matches!(
            decode_response(&with_range, 4),
            Ok(Ok(Negotiated::AskAgain(2)))
        ));
        let without = encoded(&response(code, &[]), 0);
        assert!(matches!(
            decode_response(&without, 4),
            Ok(Ok(Negotiated::AskAgain(0)))
        ));
        // A broker that refuses even version 0 is not asked forever.
        assert!(matches!(
            decode_response(&without, 0),
            Ok(Err(ErrorCode::UnsupportedVersion))
        ));
        // Nor is one that refuses a version and announces it in the same response.
        let boasting = encoded(&response(code, &[(ApiKey::ApiVersions, 0, 4)]), 0);
        assert!(matches!(
            decode_response(&boasting, 4),
            Ok(Ok(Negotiated::AskAgain(3)))
        ));
    }

    #[test]
    fn an_answer_cut_short_is_malformed() {
        let body = encoded(&response(0, &[(ApiKey::Metadata, 0, 7)]), 0);
        for end in 0..body.len() {
            assert!(decode_response(&body[..end], 0).is_err(), "{end} bytes");
        }
    }
}
