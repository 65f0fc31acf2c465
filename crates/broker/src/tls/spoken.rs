//! What a TLS session speaks: its version and its cipher suite.

use std::fmt;

use rustls::{CipherSuite, ProtocolVersion};

use super::config::name_of;

/// Version and cipher suite of an established session. `Display`: `TLSv1.3 TLS_AES_128_GCM_SHA256`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spoken {
    is_newest: bool,
    suite: u16,
}

impl Spoken {
    pub fn new(version: ProtocolVersion, suite: CipherSuite) -> Spoken {
        Spoken {
            is_newest: version == ProtocolVersion::TLSv1_3,
            suite: suite.into(),
        }
    }

    /// As Java names it; older versions than these are not served.
    pub fn version(self) -> &'static str {
        if self.is_newest { "TLSv1.3" } else { "TLSv1.2" }
    }

    /// By the name in the registry of IANA.
    pub fn cipher(self) -> String {
        name_of(self.suite.into())
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.version(), self.cipher())
    }
}
