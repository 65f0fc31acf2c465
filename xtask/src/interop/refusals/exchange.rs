//! One request on a connection of its own, and its outcome.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::RequestHeader;
use ottla_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_wire::messages::sasl_handshake::SaslHandshakeRequest;

/// An encoded request without its length.
#[derive(Clone, Debug)]
pub struct Ask {
    pub api_key: ApiKey,
    pub version: i16,
    pub frame: Vec<u8>,
}

const CORRELATION_ID: i32 = 7;

impl Ask {
    pub fn new(api_key: ApiKey, version: i16, body: impl AsRef<[u8]>) -> Ask {
        Ask::of("liar", api_key, version, body)
    }

    /// The same by the client of that id.
    pub fn of(client_id: &str, api_key: ApiKey, version: i16, body: impl AsRef<[u8]>) -> Ask {
        let mut frame = Vec::new();
        let header = RequestHeader {
            api_key,
            api_version: version,
            correlation_id: CORRELATION_ID,
            client_id: Some(client_id),
        };
        header.encode(&mut frame);
        frame.extend_from_slice(body.as_ref());
        Ask {
            api_key,
            version,
            frame,
        }
    }
}

/// A broker's reaction to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response without its length: header and body.
    Answer(Vec<u8>),
    Closed,
    /// This request was not answered, but the next one was.
    Silence,
    /// Neither an answer nor an end of the connection, for this request and the next one.
    Hangs,
}

pub struct Wire {
    stream: TcpStream,
    port: u16,
    patience: Duration,
    /// Name and password, if it authenticates by PLAIN.
    login: Option<(String, String)>,
}

impl Wire {
    /// - `patience`: timeout of an answer.
    pub fn connect(port: u16, patience: Duration) -> Result<Wire> {
        Wire::open(port, patience, None)
    }

    /// The same, authenticated by PLAIN, as is every connection that replaces it.
    pub fn connect_as(port: u16, patience: Duration, name: &str, password: &str) -> Result<Wire> {
        Wire::open(port, patience, Some((name.to_owned(), password.to_owned())))
    }

    fn open(port: u16, patience: Duration, login: Option<(String, String)>) -> Result<Wire> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let mut wire = Wire {
            stream,
            port,
            patience,
            login,
        };
        wire.log_in()?;
        Ok(wire)
    }

    fn log_in(&mut self) -> Result<()> {
        let Some((name, password)) = &self.login else {
            return Ok(());
        };
        let (mut handshake, mut token) = (Vec::new(), Vec::new());
        SaslHandshakeRequest { mechanism: "PLAIN" }.encode(&mut handshake, 1);
        let auth_bytes = format!("\0{name}\0{password}").into_bytes();
        SaslAuthenticateRequest {
            auth_bytes: &auth_bytes,
        }
        .encode(&mut token, 0);
        for ask in [
            Ask::new(ApiKey::SaslHandshake, 1, handshake),
            Ask::new(ApiKey::SaslAuthenticate, 0, token),
        ] {
            self.stream.write_all(&framed(&ask.frame))?;
            let Outcome::Answer(frame) = self.frame()? else {
                bail!("{} was not answered", ask.api_key);
            };
            // After the correlation id comes the error code.
            ensure!(frame[4..].starts_with(&[0; 2]), "{}: {frame:02x?}", ask.api_key);
        }
        Ok(())
    }

    /// Sends the request, followed by one that every broker answers: so an unanswered request is
    /// recognised by the order of answers.
    pub fn ask(&mut self, ask: &Ask) -> Result<Outcome> {
        let mut bytes = framed(&ask.frame);
        bytes.extend_from_slice(&SENTINEL);
        // The broker may close the connection before it has read everything.
        let _ = self.stream.write_all(&bytes);
        let outcome = match self.frame()? {
            Outcome::Answer(frame) if frame.starts_with(&SENTINEL_ID.to_be_bytes()) => {
                return Ok(Outcome::Silence);
            }
            outcome => outcome,
        };
        let is_open = matches!(outcome, Outcome::Answer(_)) && matches!(self.frame()?, Outcome::Answer(_));
        if !is_open {
            *self = Wire::open(self.port, self.patience, self.login.clone())?;
        }
        Ok(outcome)
    }

    fn frame(&mut self) -> Result<Outcome> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(Outcome::Hangs);
            }
            Err(_) => return Ok(Outcome::Closed),
        }
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut frame).context("a response was cut")?;
        Ok(Outcome::Answer(frame))
    }
}

const SENTINEL_ID: i32 = 0x00AB_CDEF;

/// Length 10, then ApiVersions (18) version 0 with a null client id.
const SENTINEL: [u8; 14] = {
    let [a, b, c, d] = SENTINEL_ID.to_be_bytes();
    [0, 0, 0, 10, 0, 18, 0, 0, a, b, c, d, 0xff, 0xff]
};

fn framed(frame: &[u8]) -> Vec<u8> {
    let length = i32::try_from(frame.len()).expect("a case is shorter than 2 GiB");
    [&length.to_be_bytes()[..], frame].concat()
}
