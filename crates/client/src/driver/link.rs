//! One connection's socket: its unwritten frames and its partly read frame.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use mio::net::TcpStream;

use crate::network::io::{Address, Frame};
use crate::time::Moment;

use super::receiver::Receiver;
use super::socket;
use super::tls::TlsStream;

/// Parts in one system call; the kernel's limit is 1,024, and most requests have fewer than this.
const PARTS_PER_WRITE: usize = 64;
/// Fairness: what one connection may read before the others get their turn.
const READ_TURN_BYTES: usize = 4 * 1024 * 1024;

/// How bytes are sent: in plaintext or over TLS.
#[derive(Debug)]
pub enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// The connection's progress.
#[derive(Debug)]
pub enum LinkStage {
    Resolving,
    /// `others`: addresses of the same host to try when this one fails
    /// (client.dns.lookup=use_all_dns_ips).
    Connecting {
        stream: TcpStream,
        address: SocketAddr,
        others: VecDeque<SocketAddr>,
    },
    /// TCP is connected, TLS is not yet.
    Shaking(Box<TlsStream>),
    Open(Transport),
}

/// A connection as the driver sees it.
#[derive(Debug)]
pub struct Link {
    pub address: Address,
    pub stage: LinkStage,
    /// When the round trip time was last read.
    pub round_trip_at: Option<Moment>,
    receiver: Receiver,
    unsent: VecDeque<Bytes>,
}

/// How a read turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The kernel's buffer is empty: an event will follow when there is more.
    Yes,
    /// The turn is used up; no event will announce the rest.
    No,
}

impl Transport {
    pub fn stream(&mut self) -> &mut TcpStream {
        match self {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => stream.tcp(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.read(buffer),
            Transport::Tls(stream) => stream.read(buffer),
        }
    }

    /// Appends to `body`; without TLS directly from the kernel, without zeroing the memory first.
    fn read_into(&mut self, body: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => socket::read_into(stream, body),
            Transport::Tls(stream) => stream.read_into(body),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.write_vectored(parts),
            Transport::Tls(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(_) => Ok(()),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}

impl Link {
    pub fn new(address: Address) -> Link {
        Link {
            address,
            stage: LinkStage::Resolving,
            round_trip_at: None,
            receiver: Receiver::default(),
            unsent: VecDeque::new(),
        }
    }

    pub fn queue(&mut self, frame: Frame) {
        self.unsent
            .extend(frame.parts.into_iter().filter(|part| !part.is_empty()));
    }

    /// Whether an open connection has frames that the kernel has not accepted.
    pub fn has_unsent(&self) -> bool {
        match &self.stage {
            LinkStage::Open(Transport::Tls(stream)) => !self.unsent.is_empty() || stream.has_unsent(),
            LinkStage::Open(Transport::Plain(_)) => !self.unsent.is_empty(),
            _ => false,
        }
    }

    /// Writes queued frames until the kernel accepts no more. Each part is dropped as soon as it is
    /// written.
    pub fn write(&mut self) -> io::Result<()> {
        let LinkStage::Open(transport) = &mut self.stage else {
            return Ok(());
        };
        match write_all(transport, &mut self.unsent) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// Reads available bytes and appends whole frames. Small frames are copied from `scratch`;
    /// `is_closing`: read to the end, because the end of the stream has already been announced.
    ///
    /// - Errors: why the connection ended; the frames before that are appended.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        is_closing: bool,
        frames: &mut Vec<Bytes>,
    ) -> Result<Drained, ReadEnd> {
        let LinkStage::Open(transport) = &mut self.stage else {
            return Ok(Drained::Yes);
        };
        let mut read_bytes = 0;
        while read_bytes < READ_TURN_BYTES {
            let (result, room, in_place) = match self.receiver.open_body() {
                Some(body) => {
                    let room = body.capacity() - body.len();
                    (transport.read_into(body), room, true)
                }
                None => (transport.read(scratch), scratch.len(), false),
            };
            let count = match result {
                Ok(0) => return Err(ReadEnd::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Drained::Yes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ReadEnd::Broken(error)),
            };
            read_bytes += count;
            let cut = match in_place {
                true => self.receiver.close_body(frames),
                false => self.receiver.take(&scratch[..count], frames),
            };
            cut.map_err(ReadEnd::Malformed)?;
            // A short read means that the kernel's buffer is empty, so a new event will announce
            // more bytes; on Windows none does before a read has found nothing.
            if cfg!(unix) && count < room && !is_closing && matches!(transport, Transport::Plain(_)) {
                return Ok(Drained::Yes);
            }
        }
        Ok(Drained::No)
    }
}

/// Why a connection ended while reading.
#[derive(Debug)]
pub enum ReadEnd {
    Closed,
    Broken(io::Error),
    Malformed(String),
}

fn write_all(transport: &mut Transport, unsent: &mut VecDeque<Bytes>) -> io::Result<()> {
    transport.flush()?;
    while !unsent.is_empty() {
        let mut parts = [IoSlice::new(&[]); PARTS_PER_WRITE];
        let mut count = 0;
        for (slot, part) in parts.iter_mut().zip(unsent.iter()) {
            *slot = IoSlice::new(part);
            count += 1;
        }
        match transport.write_vectored(&parts[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => forget(unsent, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops `written` bytes from the front.
fn forget(unsent: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(front) = unsent.front_mut() {
        if written < front.len() {
            front.advance(written);
            return;
        }
        written -= front.len();
        unsent.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_dropped_as_they_are_written() {
        let mut unsent: VecDeque<Bytes> = [&b"abc"[..], b"de", b"f"].map(Bytes::from_static).into();
        forget(&mut unsent, 2);
        assert_eq!(unsent, [&b"c"[..], b"de", b"f"]);
        forget(&mut unsent, 3);
        assert_eq!(unsent, [&b"f"[..]]);
        forget(&mut unsent, 1);
        assert!(unsent.is_empty());
    }
}
