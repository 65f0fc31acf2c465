//! How other threads reach an event loop: new connections, and replies that can go on.
//!
//! A loop that is awake sees its mail without being woken, so a batch of wake-ups costs one write
//! to one eventfd.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::connection_counts::ConnectionPermit;
use super::transport::Transport;

/// A connection of an event loop. Tokens are not reused while the loop lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub index: u32,
    pub generation: u32,
}

impl Token {
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_u64(value: u64) -> Token {
        Token {
            index: value as u32,
            generation: (value >> 32) as u32,
        }
    }
}

/// A newly accepted socket.
#[derive(Debug)]
pub struct NewConnection {
    pub socket: TcpStream,
    pub peer: SocketAddr,
    pub connection_id: u64,
    pub listener_name: Arc<str>,
    pub permit: ConnectionPermit,
    pub transport: Transport,
    /// What its handshake took of the time in which a client must be authenticated.
    pub handshake_time: Duration,
}

/// What has arrived since the loop last looked.
#[derive(Debug, Default)]
pub struct Mail {
    pub connections: Vec<NewConnection>,
    pub woken: Vec<Token>,
    pub stop: bool,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.woken.is_empty() && !self.stop
    }
}

#[derive(Debug)]
pub struct Mailbox {
    mail: Mutex<Mail>,
    loop_sleeps: AtomicBool,
    eventfd: OwnedFd,
}

impl Mailbox {
    pub fn new() -> std::io::Result<Mailbox> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox {
            mail: Mutex::default(),
            loop_sleeps: AtomicBool::new(false),
            eventfd,
        })
    }

    pub fn eventfd(&self) -> &OwnedFd {
        &self.eventfd
    }

    /// Delivers all of them, and leaves `connections` empty.
    pub fn connect(&self, connections: &mut Vec<NewConnection>) {
        self.deliver(|mail| mail.connections.append(connections));
    }

    pub fn stop(&self) {
        self.deliver(|mail| mail.stop = true);
    }

    /// Moves the mail into `into`, which is empty.
    pub fn collect(&self, into: &mut Mail) {
        std::mem::swap(&mut *self.lock(), into);
    }

    /// From now on mail is announced through the eventfd. False if there already is mail: the loop
    /// must not sleep.
    pub fn fall_asleep(&self) -> bool {
        // Before the check, or mail that arrives between check and sleep would not be announced.
        self.loop_sleeps.store(true, Ordering::SeqCst);
        let has_no_mail = self.lock().is_empty();
        if !has_no_mail {
            self.wake_up();
        }
        has_no_mail
    }

    /// Notes that the loop is awake and will collect mail before it sleeps.
    pub fn wake_up(&self) {
        self.loop_sleeps.store(false, Ordering::SeqCst);
    }

    fn deliver(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.lock());
        if self.loop_sleeps.swap(false, Ordering::SeqCst) {
            // Fails only when 2^64 - 2 wake-ups are unread; the loop is then awake anyway.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one connection. Several wake-ups count as one until the loop looks.
#[derive(Debug)]
pub struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    token: Token,
    is_queued: AtomicBool,
}

impl ConnectionWaker {
    pub fn new(mailbox: Arc<Mailbox>, token: Token) -> ConnectionWaker {
        ConnectionWaker {
            mailbox,
            token,
            is_queued: AtomicBool::new(false),
        }
    }

    /// Makes later wake-ups count again; called before the connection checks its state.
    pub fn arm(&self) {
        self.is_queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.mailbox.deliver(|mail| mail.woken.push(self.token));
        }
    }
}

/// A connection's waker, made when something first makes the connection wait.
#[derive(Debug)]
pub struct OwnWaker {
    mailbox: Arc<Mailbox>,
    token: Token,
    made: Option<(Arc<ConnectionWaker>, Waker)>,
}

impl OwnWaker {
    pub fn new(mailbox: Arc<Mailbox>, token: Token) -> OwnWaker {
        OwnWaker {
            mailbox,
            token,
            made: None,
        }
    }

    pub fn get(&mut self) -> &Waker {
        let (_, waker) = self.made.get_or_insert_with(|| {
            let own = Arc::new(ConnectionWaker::new(self.mailbox.clone(), self.token));
            (own.clone(), Waker::from(own))
        });
        waker
    }

    /// Makes later wake-ups count again.
    pub fn arm(&self) {
        if let Some((own, _)) = &self.made {
            own.arm();
        }
    }
}
