//! TLS over a non-blocking socket.

use std::convert::Infallible;
use std::io::{self, IoSlice};

use mio::net::TcpStream;

use crate::config::TlsSettings;
use crate::error::Error;

/// What all connections of a client share: trust, identity, versions.
#[derive(Debug)]
pub struct TlsConnector {
    never: Infallible,
}

impl TlsConnector {
    /// - Errors: `Config` for key stores that cannot be read.
    pub fn new(_settings: &TlsSettings) -> Result<TlsConnector, Error> {
        Err(Error::Config {
            key: "security.protocol".into(),
            message: "TLS is not available in this build".into(),
        })
    }

    /// `stream` is connected. Nothing is sent before `shake_hands`.
    ///
    /// - Errors: `Tls` for a host that no certificate can be for.
    pub fn open(&self, _host: &str, _stream: TcpStream) -> Result<TlsStream, Error> {
        match self.never {}
    }
}

/// One connection's session and socket.
#[derive(Debug)]
pub struct TlsStream {
    never: Infallible,
}

impl TlsStream {
    pub fn tcp(&mut self) -> &mut TcpStream {
        match self.never {}
    }

    /// Goes on with the handshake as far as the socket lets it; true when it is done.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        match self.never {}
    }

    /// Decrypted bytes; 0 at the end of the stream, `WouldBlock` when the socket has no more.
    pub fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }

    /// Takes at least a byte of `parts` into the session and writes what the socket takes; `WouldBlock` when the session
    /// is full because the socket takes nothing.
    pub fn write_vectored(&mut self, _parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.never {}
    }

    /// Writes what the session still holds; `WouldBlock` when the socket does not take all of it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
}

/// Whether an error of `TlsStream` is one of TLS (a certificate, an alert) and not of the socket under it.
pub fn is_tls_fault(_error: &io::Error) -> bool {
    false
}
