//! One TLS connection without a socket of its own: what is read is decrypted in a buffer that the
//! event loop shares between its connections, and what is sent is encrypted in another. A session
//! between two requests keeps no buffer.
//!
//! rustls (its unbuffered interface) makes and checks records; this file moves bytes.

mod refusal;

use std::io::IoSliceMut;
use std::net::TcpStream;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};

use super::input::SHARED_READ_BYTES;
use crate::tls::spoken::Spoken;
pub use refusal::TlsRefusal;

/// RFC 8446, 5.1 and 5.2: a record has a head of 5 bytes, at most 2^14 bytes of content, and what
/// encryption adds: at most 2^11 bytes in TLS 1.2.
pub const RECORD_HEAD_BYTES: usize = 5;
pub const RECORD_CONTENT_BYTES_MAX: usize = 16 * 1024;
const RECORD_BYTES_MAX: usize = RECORD_HEAD_BYTES + RECORD_CONTENT_BYTES_MAX + 2 * 1024;

/// What a session may keep of unprocessed input: a handshake message of 64 KiB, the largest that
/// rustls takes, in records, and one more record.
const KEPT_BYTES_MAX: usize = 128 * 1024;

/// How much is encrypted before it is sent. What the socket does not take of it stays with the
/// connection.
pub const SENT_BYTES_MAX: usize = 64 * 1024;

/// What our records add: 22 bytes in TLS 1.3, 29 in TLS 1.2; a key update may precede them.
const RECORD_OVERHEAD_BYTES: usize = 32;
const SENT_OVERHEAD_BYTES: usize = SENT_BYTES_MAX / RECORD_CONTENT_BYTES_MAX * RECORD_OVERHEAD_BYTES + 512;

/// Reads of the socket that yield nothing to hand on (part of a record, a key update) before the
/// connection's turn ends.
const FRUITLESS_READS_MAX: usize = 4;

/// The buffers that an event loop lends to the session being served.
#[derive(Debug, Default)]
pub struct TlsPages {
    /// Records as they were read; decrypted in place.
    input: Vec<u8>,
    /// The plaintext of what is about to be sent.
    pub content: Vec<u8>,
    /// Records about to be sent.
    output: Vec<u8>,
}

impl TlsPages {
    /// Makes the buffers when the first session needs them.
    pub fn prepare(&mut self) {
        if self.input.is_empty() {
            self.input = vec![0; KEPT_BYTES_MAX + SHARED_READ_BYTES + RECORD_BYTES_MAX];
            self.content = vec![0; SENT_BYTES_MAX];
            self.output = vec![0; SENT_BYTES_MAX + SENT_OVERHEAD_BYTES];
        }
    }
}

/// Why a session cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The connection is gone.
    Gone,
    /// The client broke the protocol, or its certificate is not accepted; an alert says so.
    Refused(TlsRefusal),
}

impl TlsFault {
    fn refused(error: &rustls::Error) -> TlsFault {
        TlsFault::Refused(error.into())
    }
}

/// The outcome of a read.
#[derive(Debug)]
pub struct Read {
    /// As from a socket: 0 at the end of the stream, `AGAIN` when nothing is there.
    pub bytes: rustix::io::Result<usize>,
    /// Nothing is left, neither in the socket nor here; the next byte triggers an event.
    pub is_drained: bool,
}

/// Where the outcome of sending stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The socket took everything; this many bytes of plaintext went with it.
    All(usize),
    SocketFull,
}

/// One client's TLS.
pub struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Read and not processed: part of a record, or records with part of a handshake message.
    /// rustls remembers positions in it, so it is given back to every call.
    incoming: Vec<u8>,
    /// Decrypted and not handed on, from `plain_start` on.
    plain: Vec<u8>,
    plain_start: usize,
    /// Encrypted and not taken by the socket, from `outgoing_start` on. Never made twice.
    outgoing: Vec<u8>,
    outgoing_start: usize,
    /// How much plaintext of answers is in `outgoing`.
    outgoing_content_bytes: usize,
    /// After an error rustls must not be called again.
    is_broken: bool,
    /// The peer has said that it sends no more.
    has_peer_closed: bool,
    principal: Option<Arc<str>>,
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSession")
    }
}

impl TlsSession {
    pub fn new(config: Arc<ServerConfig>) -> Result<TlsSession, rustls::Error> {
        Ok(TlsSession {
            connection: UnbufferedServerConnection::new(config)?,
            incoming: Vec::new(),
            plain: Vec::new(),
            plain_start: 0,
            outgoing: Vec::new(),
            outgoing_start: 0,
            outgoing_content_bytes: 0,
            is_broken: false,
            has_peer_closed: false,
            principal: None,
        })
    }

    pub fn connection(&self) -> &UnbufferedServerConnection {
        &self.connection
    }

    /// `None` before the handshake is done.
    pub fn spoken(&self) -> Option<Spoken> {
        let version = self.connection.protocol_version()?;
        let suite = self.connection.negotiated_cipher_suite()?;
        Some(Spoken::new(version, suite.suite()))
    }

    pub fn principal(&self) -> Option<&Arc<str>> {
        self.principal.as_ref()
    }

    pub fn set_principal(&mut self, principal: Option<Arc<str>>) {
        self.principal = principal;
    }

    pub fn input_bytes(&self) -> usize {
        self.incoming.capacity() + self.plain.capacity()
    }

    pub fn readable_bytes(&self) -> usize {
        self.plain.len() - self.plain_start
    }

    pub fn output_bytes(&self) -> usize {
        self.outgoing.capacity()
    }

    pub fn has_unsent(&self) -> bool {
        self.outgoing.len() > self.outgoing_start
    }

    /// Reads plaintext into `into`, from the first slice to the last; one read of the socket in the
    /// usual case.
    ///
    /// - Errors: after `Refused` an alert has been sent.
    pub fn read(
        &mut self,
        socket: &TcpStream,
        pages: &mut TlsPages,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<Read, TlsFault> {
        let mut room = Room::new(into);
        self.hand_on(&mut room);
        for _ in 0..FRUITLESS_READS_MAX {
            if room.is_full() || self.has_peer_closed {
                return Ok(room.filled(false));
            }
            // Plaintext is never longer than its records: what does not fit is of one record at
            // most, the one of which a part was here before.
            let wanted = room
                .left()
                .max(self.missing_bytes())
                .min(SHARED_READ_BYTES + RECORD_BYTES_MAX);
            let read = match self.read_records(socket, pages, wanted, &mut room)? {
                // The end of the stream is reported by a read of its own.
                Ok(0) => return Ok(room.filled(false)),
                Ok(read) => read,
                Err(errno) => return Ok(room.filled_or(errno)),
            };
            let is_drained = read < wanted && self.readable_bytes() == 0 && !self.has_peer_closed;
            if room.filled_bytes > 0 {
                return Ok(room.filled(is_drained));
            }
            if is_drained {
                return Ok(room.filled_or(Errno::AGAIN));
            }
        }
        Ok(room.filled_or(Errno::INTR))
    }

    /// Reads up to `wanted` bytes of records once, and decrypts them; what `room` does not take
    /// stays here.
    pub fn read_records(
        &mut self,
        socket: &TcpStream,
        pages: &mut TlsPages,
        wanted: usize,
        room: &mut Room<'_, '_>,
    ) -> Result<rustix::io::Result<usize>, TlsFault> {
        pages.prepare();
        let kept = self.incoming.len();
        let read = match rustix::io::read(socket, &mut pages.input[kept..kept + wanted]) {
            Ok(0) => return Ok(Ok(0)),
            Ok(read) => read,
            Err(errno) => return Ok(Err(errno)),
        };
        match self.process_input(pages, read, room) {
            Ok(()) => Ok(Ok(read)),
            Err(fault) => {
                // The alert. The connection ends in any case.
                let _ = self.send_unsent(socket);
                Err(fault)
            }
        }
    }

    /// Does with these bytes what is done with bytes of a socket, at most 16 KiB at once; returns
    /// what they decrypt to. For programs that test it with any bytes.
    ///
    /// - Errors: the session has ended; its last words are in [`TlsSession::take_outgoing`].
    pub fn take(&mut self, bytes: &[u8], pages: &mut TlsPages) -> Result<Vec<u8>, TlsFault> {
        pages.prepare();
        let kept = self.incoming.len();
        pages.input[kept..kept + bytes.len()].copy_from_slice(bytes);
        self.process_input(pages, bytes.len(), &mut Room::new(&mut []))?;
        Ok(std::mem::take(&mut self.plain))
    }

    /// Takes what is to be sent.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        let start = std::mem::take(&mut self.outgoing_start);
        std::mem::take(&mut self.outgoing).split_off(start)
    }

    /// Processes what was kept and the `read` bytes that stand behind its place in the pages.
    ///
    /// - Errors: an alert is left to be sent.
    fn process_input(
        &mut self,
        pages: &mut TlsPages,
        read: usize,
        room: &mut Room<'_, '_>,
    ) -> Result<(), TlsFault> {
        let kept = self.incoming.len();
        let records = &mut pages.input[..kept + read];
        records[..kept].copy_from_slice(&self.incoming);
        let plain = &mut self.plain;
        let (processed, result) = process(
            &mut self.connection,
            records,
            &mut self.outgoing,
            &mut self.has_peer_closed,
            |content| plain.extend_from_slice(room.fill(content)),
        );
        let rest = &mut records[processed..];
        let kept = result.and_then(|()| self.keep(rest));
        if kept.is_err() {
            self.make_alert(rest);
        }
        kept
    }

    /// Whether the next record is in the socket as a whole, or never will be: reading it leaves no
    /// part of a record in this process's memory.
    pub fn has_whole_record(&self, socket: &TcpStream) -> bool {
        let mut head = [0; RECORD_HEAD_BYTES];
        if !self.incoming.is_empty() || self.readable_bytes() > 0 {
            return true;
        }
        let Ok((seen, _)) = rustix::net::recv(socket, &mut head[..], RecvFlags::PEEK) else {
            return true;
        };
        if seen < head.len() {
            return seen == 0;
        }
        let record_bytes = head.len() + usize::from(u16::from_be_bytes([head[3], head[4]]));
        let there = rustix::io::ioctl_fionread(socket).unwrap_or(u64::MAX);
        // A socket with a small buffer may never hold the whole record.
        let buffer_bytes = rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap_or(0);
        there >= record_bytes as u64 || buffer_bytes < 4 * RECORD_BYTES_MAX
    }

    /// Encrypts the first `bytes` of the pages' content and sends it, after what was left unsent.
    ///
    /// - Errors: only if the client is gone, or has sent so much that its keys are used up.
    pub fn send_content(
        &mut self,
        socket: &TcpStream,
        pages: &mut TlsPages,
        bytes: usize,
    ) -> Result<Sent, TlsFault> {
        assert!(
            !self.has_unsent(),
            "called when the socket has taken everything before"
        );
        let TlsPages { content, output, .. } = pages;
        let made = self.encrypt(&content[..bytes], output)?;
        self.outgoing_content_bytes = bytes;
        if self.has_unsent() {
            // A key update or an answer to one goes first.
            self.outgoing.extend_from_slice(&output[..made]);
            return self.send_unsent(socket);
        }
        let mut sent = 0;
        while sent < made {
            match rustix::net::send(socket, &output[sent..made], SendFlags::NOSIGNAL) {
                Ok(taken) => sent += taken,
                Err(Errno::AGAIN) => {
                    self.outgoing.extend_from_slice(&output[sent..made]);
                    return Ok(Sent::SocketFull);
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(TlsFault::Gone),
            }
        }
        Ok(Sent::All(std::mem::take(&mut self.outgoing_content_bytes)))
    }

    /// Sends what was left unsent.
    pub fn send_unsent(&mut self, socket: &TcpStream) -> Result<Sent, TlsFault> {
        while self.has_unsent() {
            let unsent = &self.outgoing[self.outgoing_start..];
            match rustix::net::send(socket, unsent, SendFlags::NOSIGNAL) {
                Ok(taken) => self.outgoing_start += taken,
                Err(Errno::AGAIN) => return Ok(Sent::SocketFull),
                Err(Errno::INTR) => {}
                Err(_) => return Err(TlsFault::Gone),
            }
        }
        self.outgoing = Vec::new();
        self.outgoing_start = 0;
        Ok(Sent::All(std::mem::take(&mut self.outgoing_content_bytes)))
    }

    /// Says close_notify, if the stream ends at the end of a record.
    pub fn close(&mut self, socket: &TcpStream) {
        if self.is_broken || self.has_unsent() {
            return;
        }
        let mut alert = [0; 64];
        let status = self.connection.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state
            && let Ok(bytes) = traffic.queue_close_notify(&mut alert)
        {
            // The connection ends in any case.
            let _ = rustix::net::send(socket, &alert[..bytes], SendFlags::NOSIGNAL);
        }
    }

    /// Hands on what was decrypted before.
    fn hand_on(&mut self, room: &mut Room<'_, '_>) {
        if self.plain.is_empty() {
            return;
        }
        let waiting = &self.plain[self.plain_start..];
        let rest = room.fill(waiting).len();
        self.plain_start = self.plain.len() - rest;
        if rest == 0 {
            self.plain = Vec::new();
            self.plain_start = 0;
        }
    }

    /// How many bytes the record lacks that has begun.
    fn missing_bytes(&self) -> usize {
        // A handshake message in parts is in front of the record; its length is then unknown here.
        match self.incoming.get(3..RECORD_HEAD_BYTES) {
            Some(length) => {
                let record = RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
                record
                    .saturating_sub(self.incoming.len())
                    .clamp(1, RECORD_BYTES_MAX)
            }
            None => RECORD_HEAD_BYTES - self.incoming.len(),
        }
    }

    /// Keeps what could not be processed yet.
    fn keep(&mut self, rest: &[u8]) -> Result<(), TlsFault> {
        if rest.len() > KEPT_BYTES_MAX {
            let text = "a handshake message in too many records";
            return Err(TlsFault::Refused(TlsRefusal::protocol(text)));
        }
        if rest.is_empty() {
            self.incoming = Vec::new();
            return Ok(());
        }
        self.incoming.clear();
        self.incoming.extend_from_slice(rest);
        Ok(())
    }

    /// Encrypts `content` into `output`; returns how many bytes it made.
    fn encrypt(&mut self, content: &[u8], output: &mut [u8]) -> Result<usize, TlsFault> {
        // The unprocessed bytes are given again, because rustls remembers positions in them.
        let plain = &mut self.plain;
        let (processed, result) = process(
            &mut self.connection,
            &mut self.incoming,
            &mut self.outgoing,
            &mut self.has_peer_closed,
            |content| plain.extend_from_slice(content),
        );
        self.incoming.drain(..processed);
        self.is_broken = true;
        result?;
        let status = self.connection.process_tls_records(&mut self.incoming);
        let made = match status.state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                traffic.encrypt(content, output).map_err(|error| match error {
                    EncryptError::EncryptExhausted => {
                        TlsFault::Refused(TlsRefusal::protocol("the session's keys are used up"))
                    }
                    EncryptError::InsufficientSize(_) => unreachable!("the page has room for every overhead"),
                })?
            }
            Ok(_) => return Err(TlsFault::Gone),
            Err(error) => return Err(TlsFault::refused(&error)),
        };
        self.is_broken = false;
        Ok(made)
    }

    /// Puts the alert that rustls has made of an error behind what is to be sent.
    fn make_alert(&mut self, rest: &mut [u8]) {
        self.is_broken = true;
        // What is to be sent comes before anything is processed again.
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.connection.process_tls_records(rest).state
        {
            encode(&mut data, &mut self.outgoing);
        }
    }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    let start = outgoing.len();
    let needed = match data.encode(&mut []) {
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return,
        Err(EncodeError::InsufficientSize(error)) => error.required_size,
    };
    outgoing.resize(start + needed, 0);
    let made = data.encode(&mut outgoing[start..]).unwrap_or(0);
    outgoing.truncate(start + made);
}

enum Step {
    GoOn,
    Done,
    Failed(TlsFault),
}

/// Processes whole records at the front of `records`; plaintext goes to `take`, what rustls wants
/// to send to `outgoing`. Returns how many bytes are no longer needed, also after an error.
fn process(
    connection: &mut UnbufferedServerConnection,
    records: &mut [u8],
    outgoing: &mut Vec<u8>,
    has_peer_closed: &mut bool,
    mut take: impl FnMut(&[u8]),
) -> (usize, Result<(), TlsFault>) {
    let mut processed = 0;
    loop {
        let UnbufferedStatus { mut discard, state } =
            connection.process_tls_records(&mut records[processed..]);
        let step = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    discard += record.discard;
                    take(record.payload);
                }
                Step::GoOn
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, outgoing);
                Step::GoOn
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Step::GoOn
            }
            Ok(ConnectionState::PeerClosed) => {
                *has_peer_closed = true;
                Step::GoOn
            }
            Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake) => Step::Done,
            Ok(ConnectionState::Closed) => {
                *has_peer_closed = true;
                Step::Done
            }
            Ok(_) => {
                let text = "early data, which is not offered";
                Step::Failed(TlsFault::Refused(TlsRefusal::protocol(text)))
            }
            Err(error) => Step::Failed(TlsFault::refused(&error)),
        };
        processed += discard;
        match step {
            Step::GoOn => {}
            Step::Done => return (processed, Ok(())),
            Step::Failed(fault) => return (processed, Err(fault)),
        }
    }
}

/// The part of a reader's buffers that is not filled.
pub struct Room<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    index: usize,
    /// Of the slice at `index`.
    filled: usize,
    filled_bytes: usize,
}

impl<'a, 'b> Room<'a, 'b> {
    pub fn new(slices: &'a mut [IoSliceMut<'b>]) -> Room<'a, 'b> {
        Room {
            slices,
            index: 0,
            filled: 0,
            filled_bytes: 0,
        }
    }

    fn left(&self) -> usize {
        let all: usize = self.slices.iter().map(|slice| slice.len()).sum();
        all - self.filled_bytes
    }

    fn is_full(&self) -> bool {
        self.left() == 0
    }

    /// Takes what fits, and returns the rest.
    fn fill<'c>(&mut self, mut content: &'c [u8]) -> &'c [u8] {
        while !content.is_empty()
            && let Some(slice) = self.slices.get_mut(self.index)
        {
            let room = &mut slice[self.filled..];
            let count = room.len().min(content.len());
            room[..count].copy_from_slice(&content[..count]);
            content = &content[count..];
            self.filled += count;
            self.filled_bytes += count;
            if self.filled == slice.len() {
                self.index += 1;
                self.filled = 0;
            }
        }
        content
    }

    fn filled(&self, is_drained: bool) -> Read {
        Read {
            bytes: Ok(self.filled_bytes),
            is_drained,
        }
    }

    /// What was filled, or else this error. After `AGAIN` nothing is left.
    fn filled_or(&self, errno: Errno) -> Read {
        match self.filled_bytes {
            0 => Read {
                bytes: Err(errno),
                is_drained: errno == Errno::AGAIN,
            },
            _ => self.filled(errno == Errno::AGAIN),
        }
    }
}

#[cfg(test)]
mod tests;
