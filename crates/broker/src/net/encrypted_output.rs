//! Sends replies over TLS: what `Output::flush` does for a plain socket.
//!
//! Up to 64 KiB of replies are gathered and encrypted at a time, ranges of files as far as they are
//! in memory; small replies share a record. They stay in the output until the socket has taken all
//! of their records, so positions in the stream are those of the plaintext.

use std::net::TcpStream;

use ottla_log::disk::FileRegion;

use super::cold_region::{ColdPath, ColdRegion, Loaded};
use super::output::{Flushed, Output, OutputError, Segment, SparePages};
use super::tls_session::{Sent, TlsFault, TlsPages, TlsSession};

impl Output {
    /// Like `Output::flush`, over TLS.
    pub fn flush_encrypted(
        &mut self,
        session: &mut TlsSession,
        socket: &TcpStream,
        (pages, spare): (&mut TlsPages, &mut SparePages),
        is_over: impl Fn() -> bool,
        mut fetch_cold: impl FnMut(FileRegion, ColdPath) -> ColdRegion,
    ) -> Result<Flushed, OutputError> {
        pages.prepare();
        let mut has_sent = false;
        loop {
            if session.has_unsent() {
                match session.send_unsent(socket).map_err(lost)? {
                    Sent::All(bytes) => self.has_taken(bytes, spare),
                    Sent::SocketFull => return Ok(Flushed::SocketFull),
                }
                has_sent = true;
            }
            self.drop_sent(spare);
            if self.is_empty() {
                return Ok(Flushed::All);
            }
            if has_sent && is_over() {
                return Ok(Flushed::Cut);
            }
            let gathered = self.gather(&mut pages.content);
            if gathered == 0 {
                if !self.load_first(&mut fetch_cold)? {
                    return Ok(Flushed::Cold);
                }
                continue;
            }
            match session.send_content(socket, pages, gathered).map_err(lost)? {
                Sent::All(bytes) => self.has_taken(bytes, spare),
                Sent::SocketFull => return Ok(Flushed::SocketFull),
            }
            has_sent = true;
        }
    }

    /// Copies the front of the replies, as far as it is in memory; returns how much.
    fn gather(&self, page: &mut [u8]) -> usize {
        let mut filled = 0;
        let mut from = self.front_sent;
        for segment in &self.segments {
            let room = &mut page[filled..];
            let (copied, all) = match segment {
                Segment::Bytes(bytes) => {
                    let left = &bytes[from..];
                    let count = left.len().min(room.len());
                    room[..count].copy_from_slice(&left[..count]);
                    (count, left.len() as u64)
                }
                Segment::Region(region) => {
                    let wanted = usize::try_from(region.bytes).map_or(room.len(), |all| all.min(room.len()));
                    // What is not resident is left to the pool, and an error is found there again.
                    let read = region.file.read_at_resident(&mut room[..wanted], region.position);
                    (read.unwrap_or(0), region.bytes)
                }
                Segment::Cold(_) => break,
            };
            filled += copied;
            if (copied as u64) < all {
                break;
            }
            from = 0;
        }
        filled
    }

    /// Has the range of a file at the front read from the device; false while that goes on.
    fn load_first(
        &mut self,
        fetch_cold: &mut impl FnMut(FileRegion, ColdPath) -> ColdRegion,
    ) -> Result<bool, OutputError> {
        match self.segments.front_mut() {
            Some(Segment::Region(region)) => {
                // Where it is kept for others too; into memory of this connection if it does not
                // stay.
                let path = match region.file.is_sendable() && self.loaded_at != Some(self.sent) {
                    true => ColdPath::Load,
                    false => ColdPath::Copy,
                };
                let cold = fetch_cold(region.clone(), path);
                self.replace_first(Segment::Cold(cold));
            }
            Some(Segment::Cold(cold)) => match cold.take() {
                None => return Ok(false),
                Some(Err(error)) => return Err(OutputError::File(error)),
                Some(Ok(Loaded::Resident(region))) => {
                    self.loaded_at = Some(self.sent);
                    self.replace_first(Segment::Region(region));
                }
                Some(Ok(Loaded::Bytes(bytes, rest))) => self.replace_cold(bytes, rest),
            },
            Some(Segment::Bytes(_)) | None => unreachable!("bytes are gathered from the front"),
        }
        Ok(true)
    }

    /// Removes `bytes` from the front: the socket has taken all of their records.
    fn has_taken(&mut self, bytes: usize, spare: &mut SparePages) {
        self.sent += bytes as u64;
        let mut left = bytes;
        while left > 0 {
            left -= match self.segments.front_mut() {
                Some(Segment::Bytes(content)) => {
                    let count = (content.len() - self.front_sent).min(left);
                    self.front_sent += count;
                    count
                }
                Some(Segment::Region(region)) => {
                    let count = usize::try_from(region.bytes).map_or(left, |all| all.min(left));
                    region.position += count as u64;
                    region.bytes -= count as u64;
                    count
                }
                Some(Segment::Cold(_)) | None => unreachable!("what was encrypted is at the front"),
            };
            self.drop_sent(spare);
        }
    }
}

fn lost(fault: TlsFault) -> OutputError {
    let reason = match fault {
        TlsFault::Gone => std::io::ErrorKind::ConnectionReset.into(),
        TlsFault::Refused(refusal) => std::io::Error::other(refusal.text),
    };
    OutputError::Socket(reason)
}
