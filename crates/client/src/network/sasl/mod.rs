//! How a client proves who it is: what goes into SaslAuthenticate, step by step.

use crate::config::{SaslMechanism, SaslSettings};
use crate::error::Error;

/// One exchange; made anew for every connection and every re-authentication.
#[derive(Debug)]
pub struct Sasl {
    settings: SaslSettings,
    has_sent: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum SaslStep {
    Send(Vec<u8>),
    Done,
}

impl Sasl {
    /// `host`: the broker's, as it was connected to.
    pub fn new(settings: &SaslSettings, _host: &str) -> Sasl {
        Sasl {
            settings: settings.clone(),
            has_sent: false,
        }
    }

    /// As SaslHandshake names it.
    pub fn mechanism(&self) -> &'static str {
        self.settings.mechanism.name()
    }

    /// `received`: the broker's last message; `None` at the start.
    ///
    /// - Errors: `Authentication` when the broker does not prove that it knows the password (SCRAM).
    pub fn next(&mut self, _received: Option<&[u8]>) -> Result<SaslStep, Error> {
        if self.settings.mechanism != SaslMechanism::Plain {
            return Err(Error::Authentication {
                address: "".into(),
                reason: format!("{} is not available in this build", self.mechanism()).into(),
            });
        }
        if std::mem::replace(&mut self.has_sent, true) {
            return Ok(SaslStep::Done);
        }
        // RFC 4616: no authorization identity, then the user and the password.
        let (username, password) = (&self.settings.username, self.settings.password.reveal());
        Ok(SaslStep::Send(format!("\0{username}\0{password}").into_bytes()))
    }
}
