//! The relay's listeners: one for each broker that a client may learn about.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::addresses::RELAY_HOST;

/// The most brokers of one cluster; a laboratory does not measure clusters that name more.
const DOORS_MAX: usize = 1_024;

/// How long one of several addresses of a name may take to answer before the next is tried.
const ADDRESS_PROBE: Duration = Duration::from_millis(500);

/// The listener through which clients reach one broker.
#[derive(Debug)]
pub struct Door {
    pub listener: TcpListener,
    /// `None`: its name cannot be resolved here, so connections are closed at once, as a connection
    /// to the broker would fail.
    pub broker: Option<SocketAddr>,
}

/// All doors of a relay.
#[derive(Debug, Default)]
pub struct Doors {
    doors: Vec<Door>,
    ports: HashMap<(String, u16), u16>,
}

impl Doors {
    pub fn get(&self, index: usize) -> Option<&Door> {
        self.doors.get(index)
    }

    /// Returns the port for this broker; a new listener is watched by `epoll` under `first_token` +
    /// its index.
    pub fn port_of(&mut self, host: &str, port: u16, epoll: &OwnedFd, first_token: u64) -> io::Result<u16> {
        if let Some(port) = self.ports.get(&(host.to_owned(), port)) {
            return Ok(*port);
        }
        if self.doors.len() == DOORS_MAX {
            return Err(io::Error::other(format!("more than {DOORS_MAX} brokers")));
        }
        let listener = TcpListener::bind((RELAY_HOST, 0))?;
        listener.set_nonblocking(true)?;
        let token = first_token + self.doors.len() as u64;
        epoll::add(
            epoll,
            &listener,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )?;
        let own_port = listener.local_addr()?.port();
        self.doors.push(Door {
            listener,
            broker: resolve(host, port),
        });
        self.ports.insert((host.to_owned(), port), own_port);
        Ok(own_port)
    }
}

/// The first address that accepts connections; the first of all if none does at the moment.
fn resolve(host: &str, port: u16) -> Option<SocketAddr> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().ok()?.collect();
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_PROBE).is_ok();
    match addresses.len() {
        0 | 1 => addresses.first().copied(),
        _ => addresses.iter().find(answers).or(addresses.first()).copied(),
    }
}
