//! JSON web tokens (RFC 7519, signed as RFC 7515 says): who the identity provider says that a
//! client is, and until when.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Map, Value};

use super::jwk::{JsonWebKeys, SignatureAlgorithm};
use crate::config::OauthSettings;

/// The longest token. Providers issue some kilobytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// What a valid token says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub user: String,
    /// In seconds of Unix time.
    pub expires: i64,
}

/// Why a token is not accepted, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No key fits; the provider may have published it since the keys were fetched.
    UnknownKey,
    Invalid(&'static str),
}

impl Fault {
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::UnknownKey => "no key of the identity provider fits the token",
            Fault::Invalid(reason) => reason,
        }
    }
}

/// Checks signature and claims.
///
/// - `now`: in seconds of Unix time.
pub(super) fn verify(
    token: &str,
    keys: &JsonWebKeys,
    settings: &OauthSettings,
    now: i64,
) -> Result<Claims, Fault> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Fault::Invalid("the token has more than 64 KiB"));
    }
    let mut parts = token.splitn(4, '.');
    let (Some(header), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::Invalid("the token does not have three parts"));
    };
    let signed = &token[..header.len() + 1 + payload.len()];
    let signature = BASE64
        .decode(signature)
        .map_err(|_| Fault::Invalid("the signature is not base64url"))?;
    check_signature(&object(header)?, keys, signed.as_bytes(), &signature)?;
    // Only now, since anyone can write claims.
    check_claims(&object(payload)?, settings, now).map_err(Fault::Invalid)
}

fn object(part: &str) -> Result<Map<String, Value>, Fault> {
    let bytes = BASE64.decode(part).ok();
    let value = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match value {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(Fault::Invalid(
            "a part of the token is not a JSON object in base64url",
        )),
    }
}

fn check_signature(
    header: &Map<String, Value>,
    keys: &JsonWebKeys,
    signed: &[u8],
    signature: &[u8],
) -> Result<(), Fault> {
    // RFC 7515, 4.1.11: extensions that must be understood; none is.
    if header.contains_key("crit") {
        return Err(Fault::Invalid("the token's header has a critical extension"));
    }
    let name = header
        .get("alg")
        .and_then(Value::as_str)
        .ok_or(Fault::Invalid("the token's header has no algorithm"))?;
    let algorithm = SignatureAlgorithm::from_name(name)
        .ok_or(Fault::Invalid("the token is not signed with RSA, P-256 or P-384"))?;
    let id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) => Some(id.as_str()),
        Some(_) => return Err(Fault::Invalid("the token's key id is not a text")),
    };
    let key = keys.find(id, name, algorithm).ok_or(Fault::UnknownKey)?;
    if !key.is_signature(algorithm, signed, signature) {
        return Err(Fault::Invalid("the token's signature is wrong"));
    }
    Ok(())
}

fn check_claims(
    claims: &Map<String, Value>,
    settings: &OauthSettings,
    now: i64,
) -> Result<Claims, &'static str> {
    let skew = i64::try_from(settings.skew_seconds).unwrap_or(i64::MAX);
    let expires = time(claims, "exp")?.ok_or("the token does not say when it expires")?;
    if now.saturating_sub(skew) >= expires {
        return Err("the token has expired");
    }
    if time(claims, "nbf")?.is_some_and(|from| now.saturating_add(skew) < from) {
        return Err("the token is not valid yet");
    }
    time(claims, "iat")?.ok_or("the token does not say when it was issued")?;
    if let Some(issuer) = &settings.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err("the token is of another issuer");
    }
    if !settings.audiences.is_empty() && !is_for(claims.get("aud"), &settings.audiences) {
        return Err("the token is for another audience");
    }
    check_scope(claims.get(&settings.scope_claim))?;
    match claims.get(&settings.subject_claim) {
        Some(Value::String(user)) if !user.trim().is_empty() => Ok(Claims {
            user: user.trim().to_owned(),
            expires,
        }),
        _ => Err("the token names no user"),
    }
}

/// A `NumericDate`, whose fraction does not count.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, &'static str> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value
        .as_f64()
        .filter(|seconds| (0.0..1e15).contains(seconds))
        .ok_or("a time in the token is no number of seconds")?;
    Ok(Some(seconds as i64))
}

fn is_for(audience: Option<&Value>, expected: &[String]) -> bool {
    let is_expected = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| expected.iter().any(|one| one == text))
    };
    match audience {
        Some(Value::Array(all)) => all.iter().any(is_expected),
        Some(one) => is_expected(one),
        None => false,
    }
}

/// Scopes restrict nothing here, but Kafka refuses a claim of another form.
fn check_scope(scope: Option<&Value>) -> Result<(), &'static str> {
    let is_right = match scope {
        None | Some(Value::String(_)) => true,
        Some(Value::Array(all)) => all.iter().all(Value::is_string),
        Some(_) => false,
    };
    is_right
        .then_some(())
        .ok_or("the token's scope is neither a text nor a list of texts")
}
