//! Bytes read from a socket and not yet served, and where their memory comes from.
//!
//! A connection between two requests owns no buffer: the event loop reads into one it shares
//! between all its connections, and only what is left of a started request moves into a buffer of
//! its own.

/// The shared read buffer of an event loop: large enough for several full batches, small enough to
/// stay in the L2 cache between the read, the checksum and the write to the log.
pub const SHARED_READ_BYTES: usize = 256 * 1024;

/// Initial size of a buffer for an incomplete request.
const PARTIAL_BYTES_MIN: usize = 4 * 1024;

/// Up to this size an incomplete request gets a buffer for all of it at once, so that it is never
/// moved again. A new buffer consists of untouched zero pages: a client that announces much and
/// sends little occupies address space, not memory.
const WHOLE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The most bytes of free buffers that an event loop keeps for the next large requests, if it has
/// that much memory for them.
const POOL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Returns the size of the buffer that a request of `request_bytes` gets.
///
/// Sizes are rounded so that the next request of about this size can reuse the buffer; sizes too
/// large to be kept are exact.
pub fn buffer_bytes(request_bytes: usize) -> usize {
    match request_bytes {
        0..=PARTIAL_BYTES_MIN => PARTIAL_BYTES_MIN,
        bytes if bytes > POOL_BYTES_MAX => bytes,
        bytes => bytes.next_power_of_two(),
    }
}

/// Free buffers for reuse. All their bytes are initialised, so taking one needs no clearing.
#[derive(Debug)]
pub struct BufferPool {
    bytes_max: usize,
    free: Vec<Vec<u8>>,
    free_bytes: usize,
    taken_since_trim: bool,
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool::new(POOL_BYTES_MAX)
    }
}

impl BufferPool {
    /// - `bytes_max`: the most that free buffers may take here, capped by [`POOL_BYTES_MAX`].
    pub fn new(bytes_max: usize) -> BufferPool {
        BufferPool {
            bytes_max: bytes_max.min(POOL_BYTES_MAX),
            free: Vec::new(),
            free_bytes: 0,
            taken_since_trim: false,
        }
    }

    /// Takes a buffer of at least `bytes_min` bytes, the smallest that fits.
    fn take(&mut self, bytes_min: usize) -> Vec<u8> {
        self.taken_since_trim = true;
        let best = (0..self.free.len())
            // Not a much larger one: the memory is accounted by the size requested.
            .filter(|&index| (bytes_min..2 * bytes_min.max(1)).contains(&self.free[index].len()))
            .min_by_key(|&index| self.free[index].len());
        match best {
            Some(index) => {
                let buffer = self.free.swap_remove(index);
                self.free_bytes -= buffer.len();
                buffer
            }
            None => vec![0; buffer_bytes(bytes_min)],
        }
    }

    fn put(&mut self, buffer: Vec<u8>) {
        if !buffer.is_empty() && self.free_bytes + buffer.len() <= self.bytes_max {
            self.free_bytes += buffer.len();
            self.free.push(buffer);
        }
    }

    /// Frees all buffers if none was taken since the last call.
    pub fn trim(&mut self) {
        if !self.taken_since_trim {
            self.free = Vec::new();
            self.free_bytes = 0;
        }
        self.taken_since_trim = false;
    }

    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}

/// What a connection has read and not yet served; usually nothing.
#[derive(Debug, Default)]
pub struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The size of its buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Moves the unserved bytes out, so that they can be served while the connection is changed.
    pub fn take(&mut self) -> Input {
        std::mem::take(self)
    }

    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Appends the start of a request from the shared buffer; `missing` bytes of it are yet to
    /// come.
    pub fn extend(&mut self, bytes: &[u8], missing: usize, pool: &mut BufferPool) {
        self.make_room(bytes.len() + missing.min(WHOLE_BYTES_MAX), pool);
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Returns where the next bytes of the started request go: at most `missing` bytes.
    ///
    /// Beyond [`WHOLE_BYTES_MAX`] the room grows (by doubling) with the bytes that arrived, not
    /// with those announced.
    pub fn room(&mut self, missing: usize, pool: &mut BufferPool) -> &mut [u8] {
        let arrived = self.end - self.start;
        if self.buffer.len() == self.end {
            self.make_room(missing.min(arrived.max(WHOLE_BYTES_MAX)), pool);
        }
        let room = (self.buffer.len() - self.end).min(missing);
        &mut self.buffer[self.end..self.end + room]
    }

    /// Notes that `bytes` were read into [`Input::room`].
    pub fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Gives the buffer back once everything in it was served.
    pub fn release(&mut self, pool: &mut BufferPool) {
        if self.is_empty() {
            pool.put(std::mem::take(&mut self.buffer));
            (self.start, self.end) = (0, 0);
        }
    }

    fn make_room(&mut self, bytes: usize, pool: &mut BufferPool) {
        if self.buffer.len() - self.end >= bytes {
            return;
        }
        let arrived = self.end - self.start;
        if self.buffer.len() - arrived >= bytes && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
        } else {
            let mut larger = pool.take((arrived + bytes).max(PARTIAL_BYTES_MIN));
            larger[..arrived].copy_from_slice(self.bytes());
            pool.put(std::mem::replace(&mut self.buffer, larger));
        }
        (self.start, self.end) = (0, arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_with_what_arrived_and_not_with_what_was_announced() {
        let mut pool = BufferPool::default();
        let mut input = Input::default();
        input.extend(&[1; 1000], 100 << 20, &mut pool);
        assert!(input.room(100 << 20, &mut pool).len() <= 2 * WHOLE_BYTES_MAX);
        assert!(input.buffer.len() <= 2 * WHOLE_BYTES_MAX);
    }

    #[test]
    fn a_started_request_of_usual_size_is_never_moved() {
        let mut pool = BufferPool::default();
        let mut input = Input::default();
        let missing = 1_000_000;
        input.extend(&[1; 1000], missing, &mut pool);
        let place = input.bytes().as_ptr();
        assert_eq!(input.room(missing, &mut pool).len(), missing);
        input.filled(missing);
        assert_eq!(input.bytes().as_ptr(), place);
    }

    #[test]
    fn a_large_request_is_collected_whole() {
        let mut pool = BufferPool::default();
        let mut input = Input::default();
        let total = 3_000_001;
        input.extend(&[0, 1, 2, 3], total - 4, &mut pool);
        while input.bytes().len() < total {
            let arrived = input.bytes().len();
            let room = input.room(total - arrived, &mut pool);
            let count = room.len().min(7_777);
            for (index, byte) in room[..count].iter_mut().enumerate() {
                *byte = (arrived + index) as u8;
            }
            input.filled(count);
        }
        assert!(
            input
                .bytes()
                .iter()
                .enumerate()
                .all(|(index, byte)| *byte == index as u8)
        );
        input.consume(total);
        input.release(&mut pool);
        assert!(!pool.is_empty());
        assert_eq!(input.buffer.capacity(), 0);
    }

    #[test]
    fn unserved_requests_stay_in_order_when_more_arrives() {
        let mut pool = BufferPool::default();
        let mut input = Input::default();
        input.extend(&[1, 2, 3, 4, 5], 0, &mut pool);
        input.consume(3);
        input.extend(&[6; 4096], 0, &mut pool);
        assert_eq!(&input.bytes()[..3], &[4, 5, 6]);
        assert_eq!(input.bytes().len(), 4098);
    }

    #[test]
    fn a_buffer_has_the_size_that_is_counted_for_it() {
        let mut pool = BufferPool::default();
        pool.put(vec![0; 1 << 20]);
        for bytes in [1, 4_096, 5_000, 65_536, 65_537, 1_000_000, 9_000_001] {
            assert_eq!(
                pool.take(bytes.max(PARTIAL_BYTES_MIN)).len(),
                buffer_bytes(bytes),
                "{bytes}"
            );
        }
    }

    #[test]
    fn the_pool_frees_buffers_that_are_not_taken() {
        let mut pool = BufferPool::default();
        pool.put(vec![0; 8_192]);
        pool.put(vec![0; POOL_BYTES_MAX]);
        assert_eq!(pool.free_bytes, 8_192);
        assert_eq!(pool.take(5_000).len(), 8_192);
        pool.put(vec![0; 8_192]);
        pool.trim();
        assert!(!pool.is_empty());
        pool.trim();
        assert!(pool.is_empty());
    }
}
