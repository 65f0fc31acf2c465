//! A client's requests on a connection, as far as they decide which answers must be rewritten.

use std::collections::VecDeque;
use std::ops::Range;

use ottla_wire::api_key::ApiKey;

use super::addresses::{self, PortOf};

/// A longer frame is not a frame: this is twice a broker's default limit, and less than the first
/// bytes of TLS or HTTP read as a length.
const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Answers to a fetch or produce up to this size are assembled before they are forwarded; larger
/// ones are forwarded as they arrive.
const SMALL_ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The largest answer with addresses that is assembled: 16 MiB of metadata are some 200,000
/// partitions.
const ADDRESSES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Requests that are remembered; above the number that any client or broker allows on a connection.
const ASKED_MAX: usize = 4_096;

const LENGTH_BYTES: usize = 4;
/// Length, API key, version, correlation id.
const REQUEST_HEAD_BYTES: usize = 4 + 2 + 2 + 4;
/// Length, correlation id.
const ANSWER_HEAD_BYTES: usize = 4 + 4;

/// Why a connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A length that no frame can have.
    Length(i64),
    /// An answer with addresses that cannot be decoded: forwarded, it would lead the client past
    /// the relay.
    Answer(String),
}

/// What is forwarded for a chunk of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// This range of the chunk, unchanged.
    Through(Range<usize>),
    /// This replaces what was held back.
    Instead(Vec<u8>),
}

/// The requests of one connection that wait for an answer the relay must inspect.
#[derive(Debug, Default)]
pub struct Conversation {
    asked: VecDeque<PendingRequest>,
    requests: Cutter<REQUEST_HEAD_BYTES>,
    answers: Cutter<ANSWER_HEAD_BYTES>,
    /// The frame that is being assembled, beginning with its length.
    held: Option<(PendingRequest, Vec<u8>)>,
    /// Nothing is inspected any more: the stream is TLS.
    is_opaque: bool,
    has_begun: bool,
}

#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    correlation_id: i32,
    api_key: ApiKey,
    api_version: i16,
}

impl Conversation {
    /// Whether the client began with a TLS handshake.
    pub fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Notes the requests in `chunk`, which is forwarded unchanged.
    pub fn hear_requests(&mut self, chunk: &[u8]) -> Result<(), Broken> {
        if !self.has_begun && !chunk.is_empty() {
            self.has_begun = true;
            // A TLS record of type handshake; read as a length it would be 369 MB.
            self.is_opaque = chunk[0] == 0x16;
        }
        if self.is_opaque {
            return Ok(());
        }
        let mut rest = chunk;
        while !rest.is_empty() {
            if let Some(head) = self.requests.cut(&mut rest)? {
                let asked = (
                    i16::from_be_bytes([head[4], head[5]]),
                    i16::from_be_bytes([head[6], head[7]]),
                    i32::from_be_bytes([head[8], head[9], head[10], head[11]]),
                );
                self.remember(asked);
            }
        }
        Ok(())
    }

    fn remember(&mut self, (key, api_version, correlation_id): (i16, i16, i32)) {
        let Some(api_key) = ApiKey::from_i16(key) else {
            return;
        };
        if !addresses::may_contain(api_key, api_version) {
            return;
        }
        // A produce with acks=0 is never answered, so the oldest request may be dropped.
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(PendingRequest {
            correlation_id,
            api_key,
            api_version,
        });
    }

    /// Appends to `parts` what is forwarded for `chunk`, with addresses replaced.
    pub fn hear_answers(
        &mut self,
        chunk: &[u8],
        parts: &mut Vec<Part>,
        port_of: &mut PortOf<'_>,
    ) -> Result<(), Broken> {
        if self.is_opaque {
            through(parts, 0..chunk.len());
            return Ok(());
        }
        let mut at = 0;
        while at < chunk.len() {
            if self.held.is_some() {
                at += self.hold(&chunk[at..], parts, port_of)?;
                continue;
            }
            let head_before = self.answers.head_bytes();
            let mut rest = &chunk[at..];
            let head = self.answers.cut(&mut rest)?;
            let end = chunk.len() - rest.len();
            match head {
                Some(head) => {
                    let correlation_id = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                    match self.asked_by(correlation_id) {
                        Some(asked) if self.answers.body_left <= bytes_max(asked.api_key) => {
                            self.held = Some((asked, head.to_vec()));
                            if self.answers.body_left == 0 {
                                self.finish(parts, port_of)?;
                            }
                        }
                        Some(asked) if !addresses::is_small(asked.api_key) => {
                            return Err(Broken::Answer(format!(
                                "an answer to {} of {} bytes",
                                asked.api_key, self.answers.body_left
                            )));
                        }
                        _ if head_before == 0 => through(parts, at..end),
                        _ => parts.push(Part::Instead(head.to_vec())),
                    }
                }
                // The bytes of an incomplete head wait in the cutter.
                None if self.answers.head_bytes() > 0 => {}
                None => through(parts, at..end),
            }
            at = end;
        }
        Ok(())
    }

    /// Takes bytes of the answer that is being assembled; returns how many.
    fn hold(
        &mut self,
        chunk: &[u8],
        parts: &mut Vec<Part>,
        port_of: &mut PortOf<'_>,
    ) -> Result<usize, Broken> {
        let bytes = chunk.len().min(self.answers.body_left);
        if let Some((_, held)) = &mut self.held {
            held.extend_from_slice(&chunk[..bytes]);
        }
        self.answers.body_left -= bytes;
        if self.answers.body_left == 0 {
            self.finish(parts, port_of)?;
        }
        Ok(bytes)
    }

    fn finish(&mut self, parts: &mut Vec<Part>, port_of: &mut PortOf<'_>) -> Result<(), Broken> {
        let Some((asked, frame)) = self.held.take() else {
            return Ok(());
        };
        let (api_key, version) = (asked.api_key, asked.api_version);
        let rewritten = addresses::rewrite(api_key, version, &frame[LENGTH_BYTES..], port_of)
            .map_err(|error| Broken::Answer(format!("an answer to {api_key} version {version}: {error}")))?;
        parts.push(Part::Instead(match rewritten {
            None => frame,
            Some(body) => {
                let length = i32::try_from(body.len()).map_err(|_| Broken::Length(body.len() as i64))?;
                [&length.to_be_bytes(), &body[..]].concat()
            }
        }));
        Ok(())
    }

    /// Brokers answer in order: earlier requests without an answer will never get one.
    fn asked_by(&mut self, correlation_id: i32) -> Option<PendingRequest> {
        let place = self
            .asked
            .iter()
            .position(|asked| asked.correlation_id == correlation_id)?;
        self.asked.drain(..=place).next_back()
    }
}

fn through(parts: &mut Vec<Part>, range: Range<usize>) {
    match parts.last_mut() {
        Some(Part::Through(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(Part::Through(range)),
    }
}

fn bytes_max(api_key: ApiKey) -> usize {
    if addresses::is_small(api_key) {
        SMALL_ANSWER_BYTES_MAX
    } else {
        ADDRESSES_BYTES_MAX
    }
}

/// Finds the heads of frames in a stream that arrives in chunks.
#[derive(Debug)]
struct Cutter<const HEAD: usize> {
    head: [u8; HEAD],
    filled: usize,
    /// Of the frame whose head was found.
    body_left: usize,
}

impl<const HEAD: usize> Default for Cutter<HEAD> {
    fn default() -> Cutter<HEAD> {
        Cutter {
            head: [0; HEAD],
            filled: 0,
            body_left: 0,
        }
    }
}

impl<const HEAD: usize> Cutter<HEAD> {
    /// The number of bytes of an incomplete head.
    fn head_bytes(&self) -> usize {
        self.filled
    }

    /// Takes bytes off `chunk`: the rest of a body, or those up to the end of the next head, which
    /// is returned when complete.
    fn cut(&mut self, chunk: &mut &[u8]) -> Result<Option<[u8; HEAD]>, Broken> {
        if self.body_left > 0 {
            let bytes = self.body_left.min(chunk.len());
            self.body_left -= bytes;
            *chunk = &chunk[bytes..];
            return Ok(None);
        }
        let bytes = (HEAD - self.filled).min(chunk.len());
        self.head[self.filled..self.filled + bytes].copy_from_slice(&chunk[..bytes]);
        self.filled += bytes;
        *chunk = &chunk[bytes..];
        if self.filled >= LENGTH_BYTES {
            let length = i32::from_be_bytes([self.head[0], self.head[1], self.head[2], self.head[3]]);
            let body = usize::try_from(length).unwrap_or(usize::MAX);
            if !(HEAD - LENGTH_BYTES..=FRAME_BYTES_MAX).contains(&body) {
                return Err(Broken::Length(length.into()));
            }
            if self.filled == HEAD {
                self.filled = 0;
                self.body_left = body - (HEAD - LENGTH_BYTES);
                return Ok(Some(self.head));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
