//! OAUTHBEARER (RFC 7628, KIP-255): a token that an identity provider has issued is shown to the
//! broker, which verifies it.

use std::io::Read;
use std::path::Path;

use super::SaslStep;
use crate::config::{OauthSettings, TokenSource};

/// Brokers take no larger ones.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// Separates the parts of the message; alone it is the answer to a refusal.
const SEPARATOR: char = '\x01';

/// The client's side of one exchange.
pub struct Oauth {
    state: OauthState,
}

enum OauthState {
    /// The first message, or why there is none.
    Start(Result<String, String>),
    Sent,
    /// The broker has said why it takes no such token, and ends the exchange with its next answer.
    Refused(String),
    Over,
}

impl Oauth {
    /// Takes the token that counts now: a job may have written a new one to its file, or the login
    /// has fetched one.
    pub fn new(settings: &OauthSettings) -> Oauth {
        Oauth {
            state: OauthState::Start(message(settings)),
        }
    }

    pub fn next(&mut self, received: Option<&[u8]>) -> Result<SaslStep, String> {
        let state = std::mem::replace(&mut self.state, OauthState::Over);
        match (state, received) {
            (OauthState::Start(message), None) => {
                let message = message?;
                self.state = OauthState::Sent;
                Ok(SaslStep::Send(message.into_bytes()))
            }
            (OauthState::Sent, Some([])) => Ok(SaslStep::Done),
            // RFC 7628, 3.2.3: a refusal is text in JSON, and acknowledged.
            (OauthState::Sent, Some(problem)) => {
                self.state = OauthState::Refused(super::shown(&String::from_utf8_lossy(problem)));
                Ok(SaslStep::Send(SEPARATOR.to_string().into_bytes()))
            }
            (OauthState::Refused(problem), Some(_)) => Err(refusal(&problem)),
            _ => Err("the broker's OAUTHBEARER answer comes out of turn".to_owned()),
        }
    }
}

/// The error for a token that the broker does not accept, with the broker's text.
pub fn refusal(text: &str) -> String {
    format!("the broker refused the token: {text}")
}

/// No authorization identity: the token's subject acts for itself.
fn message(settings: &OauthSettings) -> Result<String, String> {
    let token = match &settings.source {
        TokenSource::Inline(token) => token.reveal().trim().to_owned(),
        TokenSource::File(path) => read(path)?,
        TokenSource::Server(server) => {
            let token = server.current.get();
            token.ok_or("no token has been fetched")?.reveal().to_owned()
        }
    };
    if token.is_empty() || !token.bytes().all(is_of_token) {
        return Err("the token of OAUTHBEARER is empty, or has characters that no token has".to_owned());
    }
    let mut message = format!("n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}");
    for (name, value) in &settings.extensions {
        message.extend([name, "=", value, "\x01"]);
    }
    message.push(SEPARATOR);
    Ok(message)
}

/// RFC 6750, 2.1: `b64token`.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// Reads a token from a file; the text of an error never has it.
fn read(path: &Path) -> Result<String, String> {
    let fault = |problem: &dyn std::fmt::Display| {
        let path = path.display();
        format!("the token in {path} (sasl.oauthbearer.token.endpoint.url) {problem}")
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| fault(&format_args!("cannot be read: {error}")))?;
    file.take(TOKEN_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| fault(&format_args!("cannot be read: {error}")))?;
    if text.len() as u64 > TOKEN_BYTES_MAX {
        return Err(fault(&format_args!("is longer than {TOKEN_BYTES_MAX} bytes")));
    }
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Password;

    fn settings(source: TokenSource) -> OauthSettings {
        OauthSettings {
            source,
            extensions: Vec::new(),
        }
    }

    fn inline(token: &str) -> OauthSettings {
        settings(TokenSource::Inline(Password::new(token)))
    }

    fn first(settings: &OauthSettings) -> Result<String, String> {
        match Oauth::new(settings).next(None)? {
            SaslStep::Send(message) => Ok(String::from_utf8(message).unwrap()),
            SaslStep::Done => panic!("done too early"),
        }
    }

    #[test]
    fn the_message_is_that_of_kafkas_client() {
        let mut settings = inline(" eyJ.eyJ-_~+/.c2ln== \n");
        assert_eq!(
            first(&settings).unwrap(),
            "n,,\x01auth=Bearer eyJ.eyJ-_~+/.c2ln==\x01\x01"
        );
        settings.extensions = vec![
            ("logicalCluster".to_owned(), "lkc-1".to_owned()),
            ("pool".to_owned(), "p 1".to_owned()),
        ];
        assert_eq!(
            first(&settings).unwrap(),
            "n,,\x01auth=Bearer eyJ.eyJ-_~+/.c2ln==\x01logicalCluster=lkc-1\x01pool=p 1\x01\x01"
        );
    }

    #[test]
    fn an_accepted_token_ends_the_exchange_and_a_refused_one_is_acknowledged() {
        let mut accepted = Oauth::new(&inline("a.b.c"));
        accepted.next(None).unwrap();
        assert_eq!(accepted.next(Some(&[])), Ok(SaslStep::Done));
        assert!(accepted.next(Some(&[])).is_err());

        let mut refused = Oauth::new(&inline("a.b.c"));
        refused.next(None).unwrap();
        let answer = refused.next(Some(b"{\"status\":\"invalid_token\"}"));
        assert_eq!(answer, Ok(SaslStep::Send(vec![1])));
        let error = refused.next(Some(&[])).unwrap_err();
        assert!(error.contains("invalid_token"), "{error}");
        assert!(Oauth::new(&inline("a.b.c")).next(Some(&[])).is_err());
    }

    /// A separator in it would add to the message what the token's owner did not mean.
    #[test]
    fn what_is_no_token_is_not_sent_and_not_shown() {
        for token in ["", " ", "a b", "a.b\x01auth=x", "secret\u{e4}", "a\nb"] {
            let error = first(&inline(token)).unwrap_err();
            assert!(
                error.contains("OAUTHBEARER") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_is_read_at_every_exchange() {
        let path = std::env::temp_dir().join(format!("ottla-client-token-{}", std::process::id()));
        let settings = settings(TokenSource::File(path.clone()));
        let gone = first(&settings).unwrap_err();
        assert!(
            gone.contains("cannot be read") && gone.contains("ottla-client-token"),
            "{gone}"
        );
        for token in ["first.a.b", "second.a.b"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert!(first(&settings).unwrap().contains(token), "{token}");
        }
        std::fs::write(&path, "a".repeat(TOKEN_BYTES_MAX as usize + 1)).unwrap();
        assert!(first(&settings).unwrap_err().contains("longer than 65536"));
        std::fs::remove_file(&path).unwrap();
    }
}
