//! What an HTTP connection is doing, to tell idle and stalled connections from busy ones.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::server::Patience;

#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Waiting for the whole head of a request.
    Waiting {
        since: Instant,
    },
    Answering,
    /// The answer is made while it is sent, and its maker may be quiet for long.
    Streaming,
    /// The peer does not take its answer: since when, and the bytes it has taken meanwhile.
    Sending {
        since: Instant,
        taken_bytes: u64,
    },
}

/// Shared by the connection, its socket and the code that chooses which connection to evict.
#[derive(Debug)]
pub struct Pulse {
    doing: Mutex<Doing>,
    /// Whether the present answer is a stream.
    is_stream: AtomicBool,
    /// Bytes of the present answer that the socket has not taken.
    unsent_bytes: AtomicU64,
    /// Notified when another connection needs the place, or the memory of the answer.
    pub evicted: Notify,
}

impl Pulse {
    pub fn new(now: Instant) -> Pulse {
        Pulse {
            doing: Mutex::new(Doing::Waiting { since: now }),
            is_stream: AtomicBool::new(false),
            unsent_bytes: AtomicU64::new(0),
            evicted: Notify::new(),
        }
    }

    /// Notes that the head of a request has arrived.
    pub fn answering(&self) {
        self.is_stream.store(false, Ordering::Relaxed);
        *self.lock() = Doing::Answering;
    }

    /// Notes that the answer is a stream: it may be quiet, but what is sent must be taken.
    pub fn streaming(&self) {
        self.is_stream.store(true, Ordering::Relaxed);
        *self.lock() = Doing::Streaming;
    }

    /// Notes that the answer is being sent; once the socket has taken it, the next request is
    /// awaited.
    pub fn answered(&self, now: Instant) {
        *self.lock() = Doing::Waiting { since: now };
    }

    /// Notes how long the answer is.
    pub fn holds(&self, bytes: u64) {
        self.unsent_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes.load(Ordering::Relaxed)
    }

    /// Returns since when it has been without a request; `None` while it has one.
    pub fn waiting_since(&self) -> Option<Instant> {
        match *self.lock() {
            Doing::Waiting { since } => Some(since),
            _ => None,
        }
    }

    /// Whether a time limit has been exceeded.
    pub fn is_over(&self, now: Instant, patience: &Patience) -> bool {
        match *self.lock() {
            Doing::Waiting { since } => now >= since + patience.for_head,
            Doing::Answering | Doing::Streaming => false,
            Doing::Sending { since, taken_bytes } => now >= since + patience.for_sending(taken_bytes),
        }
    }

    fn is_stuck(&self, now: Instant) {
        let mut doing = self.lock();
        if !matches!(*doing, Doing::Sending { .. }) {
            *doing = Doing::Sending {
                since: now,
                taken_bytes: 0,
            };
        }
    }

    fn taken(&self, bytes: usize) {
        let rest = self.unsent_bytes().saturating_sub(bytes as u64);
        self.holds(rest);
        if let Doing::Sending { taken_bytes, .. } = &mut *self.lock() {
            *taken_bytes += bytes as u64;
        }
    }

    /// Notes that the socket has taken everything.
    fn flushed(&self, now: Instant) {
        let mut doing = self.lock();
        if matches!(*doing, Doing::Sending { .. }) {
            *doing = match self.is_stream.load(Ordering::Relaxed) {
                true => Doing::Streaming,
                false => Doing::Waiting { since: now },
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that records whether its peer takes what is sent.
pub struct Watched {
    socket: TcpStream,
    pulse: Arc<Pulse>,
}

impl Watched {
    pub fn new(socket: TcpStream, pulse: Arc<Pulse>) -> Watched {
        Watched { socket, pulse }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.pulse.is_stuck(Instant::now()),
            Poll::Ready(Ok(bytes)) => self.pulse.taken(*bytes),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper calls this once all bytes have been written.
        ready!(Pin::new(&mut self.socket).poll_flush(context))?;
        self.pulse.flushed(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stream_may_be_quiet_for_long_but_what_is_sent_must_be_taken() {
        let (now, patience) = (Instant::now(), Patience::default());
        let later = now + Duration::from_secs(3_600);
        let pulse = Pulse::new(now);
        pulse.answering();
        pulse.streaming();
        assert!(!pulse.is_over(later, &patience) && pulse.waiting_since().is_none());
        pulse.is_stuck(later);
        assert!(pulse.is_over(later + patience.for_answer, &patience));
        pulse.flushed(later);
        assert!(!pulse.is_over(later + Duration::from_secs(3_600), &patience));
        // The next request of the connection is an ordinary one.
        pulse.answering();
        pulse.answered(later);
        assert!(pulse.is_over(later + patience.for_head, &patience));
    }
}
