//! What lies between a socket and the bytes of requests and answers: nothing, or TLS.
//!
//! A connection matches on it in two places: where it reads (`connection/reading.rs`) and where it
//! sends (`connection/sending.rs`).

use std::net::TcpStream;
use std::sync::Arc;

use super::tls_session::TlsSession;
use crate::tls::spoken::Spoken;

/// The transport of one connection.
#[derive(Debug, Default)]
pub enum Transport {
    #[default]
    Plain,
    Tls(Box<TlsSession>),
}

impl Transport {
    /// The principal that the client's certificate tells.
    pub fn principal(&self) -> Option<&Arc<str>> {
        match self {
            Transport::Plain => None,
            Transport::Tls(session) => session.principal(),
        }
    }

    /// What the session speaks; `None` without TLS.
    pub fn spoken(&self) -> Option<Spoken> {
        match self {
            Transport::Plain => None,
            Transport::Tls(session) => session.spoken(),
        }
    }

    /// Memory for bytes that were read and are not handed on.
    pub fn input_bytes(&self) -> usize {
        match self {
            Transport::Plain => 0,
            Transport::Tls(session) => session.input_bytes(),
        }
    }

    /// Decrypted bytes that were not handed on.
    pub fn readable_bytes(&self) -> usize {
        match self {
            Transport::Plain => 0,
            Transport::Tls(session) => session.readable_bytes(),
        }
    }

    /// Memory for bytes that the socket has not taken.
    pub fn output_bytes(&self) -> usize {
        match self {
            Transport::Plain => 0,
            Transport::Tls(session) => session.output_bytes(),
        }
    }

    /// Whether bytes wait for the socket that belong to no answer.
    pub fn has_unsent(&self) -> bool {
        match self {
            Transport::Plain => false,
            Transport::Tls(session) => session.has_unsent(),
        }
    }

    /// Tells the client that the connection ends here, so that it can tell this from an attack that
    /// cuts the stream short.
    pub fn close(&mut self, socket: &TcpStream) {
        if let Transport::Tls(session) = self {
            session.close(socket);
        }
    }
}
