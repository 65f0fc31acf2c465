//! What an HTTP connection is doing, so that one that does nothing can be told from one that is busy.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::server::Patience;

#[derive(Clone, Copy, Debug)]
enum Doing {
    /// It owes us the whole head of a request.
    Waiting {
        since: Instant,
    },
    Answering,
    /// It does not take what it was sent: since when, and what it took meanwhile.
    Sending {
        since: Instant,
        taken_bytes: u64,
    },
}

/// Shared by the connection, its socket and whoever decides who must go.
#[derive(Debug)]
pub struct Pulse {
    doing: Mutex<Doing>,
    /// Its place is needed.
    pub evicted: Notify,
}

impl Pulse {
    pub fn new(now: Instant) -> Pulse {
        Pulse {
            doing: Mutex::new(Doing::Waiting { since: now }),
            evicted: Notify::new(),
        }
    }

    /// A head has arrived.
    pub fn answering(&self) {
        *self.lock() = Doing::Answering;
    }

    /// The answer is on its way; if the socket takes it, the next request is awaited.
    pub fn answered(&self, now: Instant) {
        *self.lock() = Doing::Waiting { since: now };
    }

    /// Since when it has been without a request; `None` while it has one.
    pub fn waiting_since(&self) -> Option<Instant> {
        match *self.lock() {
            Doing::Waiting { since } => Some(since),
            _ => None,
        }
    }

    /// Whether it has kept us waiting for too long.
    pub fn is_over(&self, now: Instant, patience: &Patience) -> bool {
        match *self.lock() {
            Doing::Waiting { since } => now >= since + patience.for_head,
            Doing::Answering => false,
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
        if let Doing::Sending { taken_bytes, .. } = &mut *self.lock() {
            *taken_bytes += bytes as u64;
        }
    }

    /// The socket has everything.
    fn flushed(&self, now: Instant) {
        let mut doing = self.lock();
        if matches!(*doing, Doing::Sending { .. }) {
            *doing = Doing::Waiting { since: now };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that notes whether its peer takes what it is sent.
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
        // Called when every byte was written before.
        ready!(Pin::new(&mut self.socket).poll_flush(context))?;
        self.pulse.flushed(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
