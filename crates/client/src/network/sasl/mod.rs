//! SASL mechanisms: the content of SaslAuthenticate, step by step.
//!
//! No randomness of its own: the caller that starts an exchange provides the nonce, so that a test
//! can replay one.

#[cfg(feature = "tls")]
mod scram;
#[cfg(not(feature = "tls"))]
#[path = "without_scram.rs"]
mod scram;

mod oauth;

pub use scram::{NONCE_BYTES, nonce, salted_password};

use crate::config::{SaslMechanism, SaslSettings};
use crate::error::Error;

use self::oauth::Oauth;
use self::scram::Scram;

/// A mechanism's next step.
#[derive(Debug, PartialEq)]
pub enum SaslStep {
    Send(Vec<u8>),
    /// The broker has accepted the client's proof and, where the mechanism has one, given its own.
    Done,
}

/// One exchange; a new one for every connection and every re-authentication.
pub struct Sasl {
    mechanism: SaslMechanism,
    steps: Steps,
}

enum Steps {
    /// RFC 4616: the password itself, in one message.
    Plain {
        message: Option<Vec<u8>>,
    },
    Scram(Box<Scram>),
    Oauth(Oauth),
}

impl Sasl {
    pub fn new(settings: &SaslSettings, nonce: [u8; NONCE_BYTES]) -> Sasl {
        let steps = match settings.mechanism {
            SaslMechanism::Plain => {
                let (username, password) = (&settings.username, settings.password.reveal());
                // No authorization identity: the authenticated user acts for itself.
                let message = format!("\0{username}\0{password}");
                Steps::Plain {
                    message: Some(message.into_bytes()),
                }
            }
            SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                Steps::Scram(Box::new(Scram::new(settings, nonce)))
            }
            SaslMechanism::OauthBearer => {
                let oauth = settings.oauth.as_ref();
                Steps::Oauth(Oauth::new(oauth.expect("read together with the mechanism")))
            }
        };
        Sasl {
            mechanism: settings.mechanism,
            steps,
        }
    }

    /// The name used in SaslHandshake.
    pub fn mechanism(&self) -> &'static str {
        self.mechanism.name()
    }

    /// - `received`: the broker's last message; `None` at the start.
    /// - Errors: `Authentication` when the broker violates the mechanism or does not prove that it
    ///   knows the password (SCRAM); nothing more may be sent then.
    pub fn next(&mut self, received: Option<&[u8]>) -> Result<SaslStep, Error> {
        let step = match &mut self.steps {
            Steps::Plain { message } => match (message.take(), received) {
                (Some(message), None) => Ok(SaslStep::Send(message)),
                (None, Some([])) => Ok(SaslStep::Done),
                _ => Err("the broker answered PLAIN with a challenge, which it never has".to_owned()),
            },
            Steps::Scram(scram) => scram.next(received),
            Steps::Oauth(oauth) => oauth.next(received),
        };
        step.map_err(|reason| Error::Authentication {
            address: "".into(),
            reason: reason.into(),
        })
    }

    /// What the broker's text for a failed authentication means with this mechanism.
    pub fn refusal(&self, text: String) -> String {
        match self.steps {
            // Brokers repeat the JSON of RFC 7628 here, which does not say what it is about.
            Steps::Oauth(_) => oauth::refusal(&text),
            Steps::Plain { .. } | Steps::Scram(_) => text,
        }
    }
}

impl std::fmt::Debug for Sasl {
    /// Without the steps, which hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.mechanism())
    }
}

/// The broker's text, in a form that is safe for a log line.
pub fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Password;

    #[test]
    fn plain_is_one_message_and_an_empty_answer() {
        let settings = SaslSettings {
            mechanism: SaslMechanism::Plain,
            username: "tim".into(),
            password: Password::new("tanstaaftanstaaf"),
            oauth: None,
        };
        let mut plain = Sasl::new(&settings, [0; NONCE_BYTES]);
        let message = b"\0tim\0tanstaaftanstaaf".to_vec();
        assert!(!format!("{plain:?}").contains("tanstaaf"));
        assert_eq!(plain.next(None), Ok(SaslStep::Send(message)));
        assert_eq!(plain.next(Some(&[])), Ok(SaslStep::Done));
        assert!(Sasl::new(&settings, [0; NONCE_BYTES]).next(Some(&[])).is_err());
    }
}
