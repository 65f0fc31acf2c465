//! Reuses the memory of large frames: the system's allocator (glibc) returns blocks above 32 MiB to
//! the kernel at once, and every page of the next one would be faulted in and zeroed again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Smaller frames use the allocator.
pub const POOLED_BYTES_MIN: usize = 1024 * 1024;
/// Kept per connection: the application drops one buffer while it still reads another.
const BUFFERS_MAX: usize = 2;
/// After this many frames in a row without a large one, the kept buffers are freed.
const PATIENCE_FRAMES: u32 = 64;

/// The unused buffers of one connection.
#[derive(Clone, Debug, Default)]
pub struct FramePool {
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
    frames_since_large: u32,
}

/// A frame whose buffer returns to the pool when the last slice of it is dropped, on any thread.
struct PooledFrame {
    buffer: Vec<u8>,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn lock(idle: &Mutex<Vec<Vec<u8>>>) -> MutexGuard<'_, Vec<Vec<u8>>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FramePool {
    /// An empty buffer for a frame of this size, possibly without any memory yet.
    ///
    /// - Shape: a buffer that is much larger than the frame is not used for it.
    pub fn take(&mut self, wanted_bytes: usize) -> Vec<u8> {
        if wanted_bytes < POOLED_BYTES_MIN {
            self.note_small();
            return Vec::new();
        }
        self.frames_since_large = 0;
        let mut idle = lock(&self.idle);
        let fitting = idle
            .iter()
            .position(|buffer| buffer.capacity() / 4 <= wanted_bytes);
        fitting.map_or_else(Vec::new, |index| idle.swap_remove(index))
    }

    /// Counts a frame that needed no memory from here.
    pub fn note_small(&mut self) {
        self.frames_since_large = self.frames_since_large.saturating_add(1);
        if self.frames_since_large == PATIENCE_FRAMES {
            lock(&self.idle).clear();
        }
    }

    /// The frame in a filled buffer.
    pub fn frame(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < POOLED_BYTES_MIN {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(PooledFrame {
            buffer,
            idle: Arc::clone(&self.idle),
        })
    }
}

impl AsRef<[u8]> for PooledFrame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledFrame {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut idle = lock(&self.idle);
        // After its connection is gone, a pool is useless.
        if idle.len() < BUFFERS_MAX && Arc::strong_count(&self.idle) > 1 {
            idle.push(buffer);
        }
    }
}

impl fmt::Debug for PooledFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledFrame({} bytes)", self.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &mut FramePool, bytes: usize) -> Bytes {
        let mut buffer = pool.take(bytes);
        buffer.reserve_exact(bytes);
        buffer.resize(bytes, 7);
        pool.frame(buffer)
    }

    #[test]
    fn a_large_frame_reuses_the_memory_of_a_dropped_one() {
        let mut pool = FramePool::default();
        let first = filled(&mut pool, 2 * POOLED_BYTES_MIN);
        let address = first.as_ptr();
        let slice = first.slice(10..20);
        drop(first);
        // A slice still needs it.
        assert_ne!(filled(&mut pool, 2 * POOLED_BYTES_MIN).as_ptr(), address);
        drop(slice);
        let frames = [0; 2].map(|_| filled(&mut pool, 2 * POOLED_BYTES_MIN));
        assert!(frames.iter().any(|frame| frame.as_ptr() == address));
        assert!(frames.iter().all(|frame| frame.len() == 2 * POOLED_BYTES_MIN));
    }

    #[test]
    fn at_most_two_buffers_are_kept_and_not_for_long() {
        let mut pool = FramePool::default();
        let frames = [0; 5].map(|_| filled(&mut pool, POOLED_BYTES_MIN));
        drop(frames);
        assert_eq!(lock(&pool.idle).len(), BUFFERS_MAX);
        for _ in 0..PATIENCE_FRAMES {
            assert_eq!(lock(&pool.idle).len(), BUFFERS_MAX);
            drop(filled(&mut pool, 100));
        }
        assert_eq!(lock(&pool.idle).len(), 0);
    }

    #[test]
    fn small_frames_do_not_hold_large_buffers() {
        let mut pool = FramePool::default();
        drop(filled(&mut pool, 5 * POOLED_BYTES_MIN));
        assert_eq!(pool.take(POOLED_BYTES_MIN).capacity(), 0);
        assert_eq!(pool.take(2 * POOLED_BYTES_MIN).capacity(), 5 * POOLED_BYTES_MIN);
    }
}
