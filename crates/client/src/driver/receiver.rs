//! Splits the received bytes into frames. Memory grows with the bytes received, not with the
//! announced length.

use bytes::Bytes;
use ottla_wire::frame::LENGTH_BYTES;

use super::frame_pool::FramePool;

/// Longer frames are refused. Kafka's fetch.max.bytes is 50 MiB; the bound is below the length that
/// the first bytes of TLS (0x15030300) and HTTP ("HTTP") decode to, so that a wrong port is
/// detected at once.
pub const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The first memory for a frame, whatever length it announces; afterwards it doubles.
const STEP_BYTES: usize = 1024 * 1024;

/// The frame that a connection is in the middle of.
#[derive(Debug, Default)]
pub struct Receiver {
    length: [u8; LENGTH_BYTES],
    /// How many bytes of `length` have arrived.
    length_bytes: usize,
    body: Vec<u8>,
    /// The final length of `body`; `None` while `length` is incomplete.
    wanted_bytes: Option<usize>,
    pool: FramePool,
}

impl Receiver {
    /// The unfinished frame, with room behind it to read into; `None` between frames.
    pub fn open_body(&mut self) -> Option<&mut Vec<u8>> {
        let wanted = self.wanted_bytes?;
        let missing = wanted.checked_sub(self.body.len())?;
        if self.body.capacity() == 0 {
            self.body = self.pool.take(wanted);
        }
        if self.body.len() == self.body.capacity() {
            self.body
                .reserve_exact(missing.min(self.body.len().max(STEP_BYTES)));
        }
        Some(&mut self.body)
    }

    /// Ends the frame if `open_body` was filled, and handles bytes read beyond its end.
    ///
    /// - Errors: as `take`.
    pub fn close_body(&mut self, frames: &mut Vec<Bytes>) -> Result<(), String> {
        match self.wanted_bytes {
            Some(wanted) if self.body.len() >= wanted => {
                let rest = self.body.split_off(wanted);
                self.finish(frames);
                self.take(&rest, frames)
            }
            _ => Ok(()),
        }
    }

    /// Takes received bytes and appends every frame that they complete.
    ///
    /// - Errors: an impossible length, and what it probably is.
    pub fn take(&mut self, mut bytes: &[u8], frames: &mut Vec<Bytes>) -> Result<(), String> {
        while !bytes.is_empty() {
            let Some(wanted) = self.wanted_bytes else {
                bytes = self.take_length(bytes)?;
                if self.wanted_bytes == Some(0) {
                    self.finish(frames);
                }
                continue;
            };
            if self.body.is_empty() && bytes.len() >= wanted {
                // Whole and small (it fits the read buffer): one exact copy.
                frames.push(Bytes::copy_from_slice(&bytes[..wanted]));
                self.pool.note_small();
                bytes = &bytes[wanted..];
                self.wanted_bytes = None;
                continue;
            }
            let piece = bytes.len().min(wanted - self.body.len());
            let body = self.open_body().expect("the length is known");
            body.extend_from_slice(&bytes[..piece]);
            bytes = &bytes[piece..];
            if self.body.len() == wanted {
                self.finish(frames);
            }
        }
        Ok(())
    }

    fn take_length<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let piece = bytes.len().min(LENGTH_BYTES - self.length_bytes);
        self.length[self.length_bytes..][..piece].copy_from_slice(&bytes[..piece]);
        self.length_bytes += piece;
        if self.length_bytes == LENGTH_BYTES {
            self.length_bytes = 0;
            self.wanted_bytes = Some(frame_bytes(self.length)?);
        }
        Ok(&bytes[piece..])
    }

    fn finish(&mut self, frames: &mut Vec<Bytes>) {
        self.wanted_bytes = None;
        frames.push(self.pool.frame(std::mem::take(&mut self.body)));
    }
}

fn frame_bytes(length: [u8; LENGTH_BYTES]) -> Result<usize, String> {
    let announced = i32::from_be_bytes(length);
    match usize::try_from(announced) {
        Ok(bytes) if bytes <= FRAME_BYTES_MAX => Ok(bytes),
        _ => {
            let guess = match length {
                [b'H', b'T', b'T', b'P'] => ": the port speaks HTTP",
                [0x15, 0x03, ..] => ": the port speaks TLS",
                _ => "",
            };
            Err(format!("a frame of {announced} bytes{guess}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bodies: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for body in bodies {
            bytes.extend((body.len() as i32).to_be_bytes());
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let bodies: [&[u8]; 5] = [b"first", b"", b"x", &[7; 300], b"last"];
        let bytes = stream(&bodies);
        for piece in [1, 2, 3, 5, 100, bytes.len()] {
            let mut receiver = Receiver::default();
            let mut frames = Vec::new();
            for piece in bytes.chunks(piece) {
                receiver.take(piece, &mut frames).unwrap();
            }
            assert_eq!(frames, bodies, "pieces of {piece}");
        }
    }

    #[test]
    fn a_body_can_be_read_in_place_with_more_than_its_own_bytes() {
        let bytes = stream(&[&[1; 100], &[2; 50], &[3; 9]]);
        let mut receiver = Receiver::default();
        let mut frames = Vec::new();
        receiver.take(&bytes[..40], &mut frames).unwrap();
        receiver.open_body().unwrap().extend_from_slice(&bytes[40..60]);
        receiver.close_body(&mut frames).unwrap();
        assert!(frames.is_empty());
        receiver.open_body().unwrap().extend_from_slice(&bytes[60..]);
        receiver.close_body(&mut frames).unwrap();
        assert_eq!(frames, [vec![1; 100], vec![2; 50], vec![3; 9]]);
        assert!(receiver.open_body().is_none());
    }

    #[test]
    fn impossible_lengths_are_refused_and_explained() {
        let refused = |length: [u8; 4]| Receiver::default().take(&length, &mut Vec::new()).unwrap_err();
        assert_eq!(refused([0xff; 4]), "a frame of -1 bytes");
        assert_eq!(refused([0x7f, 0xff, 0xff, 0xff]), "a frame of 2147483647 bytes");
        assert!(refused(*b"HTTP").ends_with("the port speaks HTTP"));
        assert!(refused([0x15, 0x03, 0x03, 0x00]).ends_with("the port speaks TLS"));
    }

    #[test]
    fn memory_follows_the_bytes_that_came() {
        let mut receiver = Receiver::default();
        let mut frames = Vec::new();
        let length = (FRAME_BYTES_MAX as i32).to_be_bytes();
        receiver.take(&length, &mut frames).unwrap();
        receiver.take(&[0; 10], &mut frames).unwrap();
        assert!(receiver.open_body().unwrap().capacity() <= STEP_BYTES);
        for _ in 0..STEP_BYTES / 1000 * 3 {
            receiver.take(&[0; 1000], &mut frames).unwrap();
        }
        let body = receiver.open_body().unwrap();
        assert!(body.capacity() <= 2 * body.len());
    }
}
