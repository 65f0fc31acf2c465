//! OAUTHBEARER (RFC 7628, KIP-255): the client sends a token that an identity provider has signed.

use super::web_token::{self, Claims};
use super::{OTHER_IDENTITY, Progress, Rejection, SaslContext};
use crate::config::OauthSettings;

/// The answer to a token that is not accepted (RFC 7628, 3.2.2): the client must send [`KVSEP`]
/// before it is told that it has failed.
const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";

/// Between the parts of a message.
const KVSEP: char = '\u{1}';

/// The longest message: a token, and extensions (KIP-342).
const MESSAGE_BYTES_MAX: usize = 80 * 1024;

/// One exchange.
#[derive(Default)]
pub(super) enum OauthExchange {
    #[default]
    AwaitsToken,
    /// The client was told that its token is invalid, for this reason.
    AwaitsEnd(&'static str),
    Over,
}

impl OauthExchange {
    pub fn next(
        &mut self,
        message: &[u8],
        settings: &OauthSettings,
        context: &SaslContext<'_>,
    ) -> Result<Progress, Rejection> {
        match std::mem::replace(self, OauthExchange::Over) {
            OauthExchange::AwaitsToken => match check(message, settings, context)? {
                Ok(claims) => Ok(Progress::Done {
                    answer: Vec::new(),
                    lives_ms: Some(lives_ms(&claims, context)),
                    user: claims.user,
                }),
                Err(reason) => {
                    *self = OauthExchange::AwaitsEnd(reason);
                    Ok(Progress::Challenge(INVALID_TOKEN.as_bytes().to_vec()))
                }
            },
            // Whatever the client sends: it has failed.
            OauthExchange::AwaitsEnd(reason) => Err(Rejection::told(INVALID_TOKEN, reason)),
            OauthExchange::Over => Err(Rejection::of_message("a message after the last one")),
        }
    }
}

/// - Errors: the outer one is about the message, the inner one about its token.
fn check(
    message: &[u8],
    settings: &OauthSettings,
    context: &SaslContext<'_>,
) -> Result<Result<Claims, &'static str>, Rejection> {
    let (identity, token) = parse(message).map_err(Rejection::of_message)?;
    let Some(keys) = context.token_keys.of(&settings.keys_url) else {
        return Ok(Err("the keys of the identity provider are not known yet"));
    };
    let now = context.wall_clock.0.div_euclid(1_000);
    match web_token::verify(token, &keys, settings, now) {
        Ok(claims) => {
            if identity.is_some_and(|identity| identity != claims.user) {
                let rejection = Rejection::told(OTHER_IDENTITY, "asks to act for another user");
                return Err(rejection.by(&claims.user));
            }
            Ok(Ok(claims))
        }
        Err(fault) => {
            if fault == web_token::Fault::UnknownKey {
                context.token_keys.miss();
            }
            Ok(Err(fault.reason()))
        }
    }
}

/// How long the token authenticates its client. Within the clocks' difference it may have expired:
/// then the client must come back at once.
fn lives_ms(claims: &Claims, context: &SaslContext<'_>) -> u64 {
    let left = claims.expires.saturating_mul(1_000) - context.wall_clock.0;
    u64::try_from(left).unwrap_or(0).max(1)
}

/// `n,[a=<identity>],<kvsep>auth=Bearer <token><kvsep>[<key>=<value><kvsep>...]<kvsep>`; returns
/// the identity and the token.
fn parse(message: &[u8]) -> Result<(Option<String>, &str), &'static str> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err("the message has more than 80 KiB");
    }
    let text = std::str::from_utf8(message).map_err(|_| "the message is not UTF-8")?;
    let malformed = "the message is not one of OAUTHBEARER";
    let mut fields = text.splitn(3, ',');
    let (Some("n"), Some(identity), Some(pairs)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(malformed);
    };
    let identity = match identity.strip_prefix("a=") {
        Some(name) => Some(super::scram_message::name(name)?),
        None if identity.is_empty() => None,
        None => return Err(malformed),
    };
    let pairs = pairs
        .strip_prefix(KVSEP)
        .and_then(|pairs| pairs.strip_suffix(KVSEP))
        .and_then(|pairs| pairs.strip_suffix(KVSEP))
        .ok_or(malformed)?;
    let mut token = None;
    for pair in pairs.split(KVSEP) {
        let (key, value) = pair.split_once('=').ok_or(malformed)?;
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(malformed);
        }
        // KIP-342: extensions are ignored, as by Kafka unless a class of its own takes them.
        if key == "auth" && token.replace(value).is_some() {
            return Err("the message has two tokens");
        }
    }
    let (scheme, token) = token.and_then(|auth| auth.split_once(' ')).ok_or(malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err("the message has no bearer token");
    }
    Ok((identity, token.trim()))
}
