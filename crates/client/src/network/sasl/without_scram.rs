//! In place of scram.rs in a build without the cargo feature `tls`, whose library has the hashes.

use std::num::NonZeroU32;

use super::SaslStep;
use crate::config::{Password, SaslMechanism, SaslSettings};
use crate::error::{Error, Feature};

pub const NONCE_BYTES: usize = 18;

/// No mechanism of this build uses it.
pub fn nonce() -> [u8; NONCE_BYTES] {
    [0; NONCE_BYTES]
}

pub fn salted_password(
    _mechanism: SaslMechanism,
    _password: &Password,
    _salt: &[u8],
    _rounds: NonZeroU32,
) -> Result<Vec<u8>, Error> {
    Err(Error::missing_feature(Feature::Tls, "SCRAM"))
}

/// The configuration refuses SCRAM; settings that were built without it fail here.
pub struct Scram;

impl Scram {
    pub fn new(_settings: &SaslSettings, _nonce: [u8; NONCE_BYTES]) -> Scram {
        Scram
    }

    pub fn next(&mut self, _challenge: Option<&[u8]>) -> Result<SaslStep, String> {
        Err(Feature::Tls.missing())
    }
}
