//! Resolves host names, each on a thread of its own: the system's resolver blocks.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::network::io::{Address, ConnectionId, Wake};

/// The result of a lookup.
pub type Resolved = (ConnectionId, io::Result<Vec<SocketAddr>>);

/// Starts lookups and keeps the answers until the driver takes them.
#[derive(Debug)]
pub struct Resolver {
    answers: Arc<Mutex<Vec<Resolved>>>,
    waker: Arc<dyn Wake>,
}

impl Resolver {
    pub fn new(waker: Arc<dyn Wake>) -> Resolver {
        Resolver {
            answers: Arc::default(),
            waker,
        }
    }

    /// Starts a lookup; the answer comes by `take`, at once for a numeric address.
    pub fn ask(&self, connection: ConnectionId, address: &Address) {
        let host = address.host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = host.parse::<IpAddr>() {
            return self.answer((connection, Ok(vec![SocketAddr::new(ip, address.port)])));
        }
        let (answers, waker) = (Arc::clone(&self.answers), Arc::clone(&self.waker));
        let address = address.clone();
        let spawned = thread::Builder::new()
            .name("ottla-resolver".into())
            .spawn(move || {
                let found = (&*address.host, address.port).to_socket_addrs();
                lock(&answers).push((connection, found.map(Iterator::collect)));
                waker.wake();
            });
        if let Err(error) = spawned {
            self.answer((connection, Err(error)));
        }
    }

    pub fn take(&self) -> Vec<Resolved> {
        std::mem::take(&mut *lock(&self.answers))
    }

    fn answer(&self, resolved: Resolved) {
        lock(&self.answers).push(resolved);
        self.waker.wake();
    }
}

fn lock(answers: &Mutex<Vec<Resolved>>) -> std::sync::MutexGuard<'_, Vec<Resolved>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}
