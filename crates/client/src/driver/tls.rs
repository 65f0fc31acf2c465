//! TLS over a non-blocking socket: writes are encrypted at once, reads are decrypted record by
//! record.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::trust;
use crate::config::TlsSettings;
use crate::error::Error;

/// Bytes per read of the socket. rustls itself would read 4 KiB per system call; a large fetch
/// should need few calls.
const ENCRYPTED_BYTES: usize = 128 * 1024;
/// How much is encrypted ahead of the socket. A batch's memory is free again once it is encrypted.
const WRITE_AHEAD_BYTES: usize = 256 * 1024;

/// Opens TLS on connected sockets; the settings are read once.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    has_identity: bool,
}

impl TlsConnector {
    /// - Errors: `Config`, naming the setting.
    pub fn new(settings: &TlsSettings) -> Result<TlsConnector, Error> {
        Ok(TlsConnector {
            config: trust::client_config(settings)?,
            has_identity: settings.identity.is_some(),
        })
    }

    /// Opens TLS on a socket connected to `host`, the name that the certificate must have. Sends
    /// nothing before `shake_hands`.
    ///
    /// - Errors: `Tls` for a host name that no certificate can have.
    pub fn open(&self, host: &str, socket: TcpStream) -> Result<TlsStream, Error> {
        let fault = |reason: String| Error::Tls {
            address: host.into(),
            reason: reason.into(),
        };
        // A certificate contains neither the zone of a link-local address nor the final dot of an
        // absolute name.
        let name = host.split('%').next().unwrap_or_default().trim_end_matches('.');
        let server_name = ServerName::try_from(name)
            .map_err(|_| fault("this is not a valid name for a certificate".to_owned()))?
            .to_owned();
        let mut connection = ClientConnection::new(Arc::clone(&self.config), server_name)
            .map_err(|error| fault(trust::explain(&error, self.has_identity)))?;
        connection.set_buffer_limit(Some(WRITE_AHEAD_BYTES));
        Ok(TlsStream {
            socket,
            connection,
            encrypted: vec![0; ENCRYPTED_BYTES].into(),
            start: 0,
            end: 0,
            has_answered: false,
            has_data: false,
            has_identity: self.has_identity,
        })
    }
}

/// A socket with TLS on it; call `shake_hands` first.
pub struct TlsStream {
    socket: TcpStream,
    connection: ClientConnection,
    /// Received bytes that are not decrypted yet: `start..end`.
    encrypted: Box<[u8]>,
    start: usize,
    end: usize,
    /// Whether the peer has sent anything at all.
    has_answered: bool,
    /// Whether the peer has sent anything after the handshake: by then it has accepted the
    /// certificates.
    has_data: bool,
    has_identity: bool,
}

impl TlsStream {
    pub fn tcp(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Continues the handshake as far as the socket allows; true when it is done.
    ///
    /// - Errors: of the socket, or of TLS itself (`is_tls_fault`).
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        loop {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.take_in() {
                Ok(true) => {}
                Ok(false) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, self.cut_short())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(io::Error::new(error.kind(), self.cut_short()));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn cut_short(&self) -> &'static str {
        match self.has_answered {
            true => "closed by the broker during the TLS handshake",
            // Apache Kafka takes the first bytes of TLS for a request of 369 MB and closes.
            false => {
                "closed by the broker at the first bytes of TLS: the port may be one without TLS (security.protocol)"
            }
        }
    }

    /// Reads decrypted bytes into `buffer`; 0 at the end of the stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = {
            let chunk = self.chunk()?;
            let count = chunk.len().min(buffer.len());
            buffer[..count].copy_from_slice(&chunk[..count]);
            count
        };
        self.connection.reader().consume(count);
        Ok(count)
    }

    /// Appends decrypted bytes to `body`, up to its capacity.
    pub fn read_into(&mut self, body: &mut Vec<u8>) -> io::Result<usize> {
        let mut total = 0;
        while body.len() < body.capacity() {
            let room = body.capacity() - body.len();
            let chunk = match self.chunk() {
                Ok(chunk) => chunk,
                // Return what is there; the next call returns the error.
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            };
            let count = chunk.len().min(room);
            if count == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..count]);
            self.connection.reader().consume(count);
            total += count;
        }
        Ok(total)
    }

    /// Encrypts a prefix of `parts` and sends it. `WouldBlock` while earlier bytes wait for the
    /// socket.
    pub fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let count = self.connection.writer().write_vectored(parts)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends what is already encrypted.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }

    /// The next decrypted bytes; empty at the end of the stream.
    fn chunk(&mut self) -> io::Result<&[u8]> {
        loop {
            // Called twice because of the borrow checker: a returned borrow would last for the
            // whole loop.
            match self.connection.reader().fill_buf() {
                Ok(_) => {
                    self.has_data = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Apache Kafka sometimes closes without a close_notify; a truncated frame is
                // detected by its length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(&[]),
                Err(error) => return Err(error),
            }
            if !self.take_in()? {
                return Ok(&[]);
            }
        }
        self.connection.reader().into_first_chunk()
    }

    /// Takes in encrypted bytes, from the socket when none are left; false when nothing more will
    /// come.
    fn take_in(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.end = match self.socket.read(&mut self.encrypted) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) => return Ok(false),
                other => other?,
            };
            self.has_answered |= self.end > 0;
        }
        let mut rest = &self.encrypted[self.start..self.end];
        let before = rest.len();
        self.connection.read_tls(&mut rest)?;
        self.start += before - rest.len();
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // Sends the alert, so that the peer learns the reason; a failure here changes
                // nothing.
                let _ = self.connection.write_tls(&mut self.socket);
                let reason = trust::explain(&error, self.has_identity);
                // Corruption in the middle of a connection counts as a broken connection: another
                // attempt may well succeed.
                return Err(match self.has_data {
                    true => io::Error::new(io::ErrorKind::InvalidData, reason),
                    false => io::Error::new(io::ErrorKind::InvalidData, TlsFailure(reason)),
                });
            }
        };
        if state.tls_bytes_to_write() > 0 && !self.connection.is_handshaking() {
            // A key update must be confirmed. What the socket does not accept now goes out with the
            // next request.
            match self.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The TLS error inside an `io::Error`.
#[derive(Debug)]
struct TlsFailure(String);

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsFailure {}

/// Whether an error of `TlsStream` comes from TLS (a certificate, an alert) and not from the socket
/// under it.
pub fn is_tls_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|reason| reason.is::<TlsFailure>())
}
