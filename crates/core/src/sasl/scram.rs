//! The broker's side of SCRAM (RFC 5802, RFC 7677, KIP-84): both sides prove that they know the
//! password without sending it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::keys::ScramHash;
use super::scram_message::{ClientFinal, ClientFirst};
use super::{OTHER_IDENTITY, Progress, Rejection, SaslContext};
use crate::config::SaslMechanism;
use crate::image::access::{ScramCredential, ScramKey};

/// One exchange.
pub(super) struct ScramExchange {
    mechanism: SaslMechanism,
    state: ScramState,
}

enum ScramState {
    AwaitsFirst,
    AwaitsProof(Box<Challenge>),
    Over,
}

/// What `server-first` asked for.
struct Challenge {
    user: String,
    /// Whether the user exists; the credential is invented otherwise.
    is_known: bool,
    credential: ScramCredential,
    gs2_header: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

impl ScramExchange {
    pub fn new(mechanism: SaslMechanism) -> ScramExchange {
        ScramExchange {
            mechanism,
            state: ScramState::AwaitsFirst,
        }
    }

    pub fn next(&mut self, token: &[u8], context: &SaslContext<'_>) -> Result<Progress, Rejection> {
        match std::mem::replace(&mut self.state, ScramState::Over) {
            ScramState::AwaitsFirst => {
                let challenge = self.challenge(token, context)?;
                let message = challenge.server_first.clone().into_bytes();
                self.state = ScramState::AwaitsProof(Box::new(challenge));
                Ok(Progress::Challenge(message))
            }
            ScramState::AwaitsProof(challenge) => self.verify(token, *challenge),
            ScramState::Over => Err(Rejection::of_message("a message after the last one")),
        }
    }

    fn challenge(&self, token: &[u8], context: &SaslContext<'_>) -> Result<Challenge, Rejection> {
        let first = ClientFirst::parse(token).map_err(Rejection::of_message)?;
        if first
            .identity
            .as_ref()
            .is_some_and(|identity| *identity != first.user)
        {
            return Err(Rejection::told(OTHER_IDENTITY, "asks to act for another user").by(&first.user));
        }
        // Invented for known users too, or it would take time for unknown ones only.
        let decoy = context.secrets.decoys.credential(self.mechanism, &first.user);
        let stored = self.stored(&first.user, context);
        let is_known = stored.is_some();
        let credential = stored.unwrap_or(decoy);
        let nonce = format!("{}{}", first.nonce, context.secrets.nonces.text());
        let server_first = format!(
            "r={nonce},s={},i={}",
            BASE64.encode(&credential.salt),
            credential.iterations
        );
        Ok(Challenge {
            is_known,
            credential,
            gs2_header: first.gs2_header.to_owned(),
            client_first_bare: first.bare.to_owned(),
            server_first,
            nonce,
            user: first.user,
        })
    }

    fn stored(&self, user: &str, context: &SaslContext<'_>) -> Option<ScramCredential> {
        let key = ScramKey {
            mechanism: self.mechanism.scram_code()?,
            user: user.into(),
        };
        let credential = context.credentials.get(&key)?;
        let is_usable = ScramHash::of(self.mechanism).is_usable(credential);
        is_usable.then(|| credential.clone())
    }

    fn verify(&self, token: &[u8], challenge: Challenge) -> Result<Progress, Rejection> {
        let user = &challenge.user;
        let malformed = |problem| Rejection::of_message(problem).by(user);
        let last = ClientFinal::parse(token).map_err(malformed)?;
        if !last.repeats(&challenge.gs2_header) {
            return Err(malformed("the GS2 header is another one than in client-first"));
        }
        if verify_slices_are_equal(last.nonce.as_bytes(), challenge.nonce.as_bytes()).is_err() {
            return Err(malformed("the nonce is another one than in server-first"));
        }
        let hash = ScramHash::of(self.mechanism);
        let message = format!(
            "{},{},{}",
            challenge.client_first_bare, challenge.server_first, last.without_proof
        );
        let message = message.as_bytes();
        let is_proof = hash.is_proof(&challenge.credential.stored_key, message, &last.proof);
        if !challenge.is_known {
            return Err(malformed("unknown user, or a credential that cannot be used"));
        }
        if !is_proof {
            return Err(malformed("wrong password"));
        }
        let signature = hash.mac(&challenge.credential.server_key, message);
        Ok(Progress::Done {
            answer: format!("v={}", BASE64.encode(signature)).into_bytes(),
            user: challenge.user,
            lives_ms: None,
        })
    }
}
