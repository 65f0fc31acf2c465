//! The relay's listeners: one for each broker that a client may be told of.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::addresses::RELAY_HOST;

/// Brokers of one cluster; a broker that names more is not one that a laboratory measures.
const DOORS_MAX: usize = 1_024;

/// How long one of several addresses of a name may take to answer, before the next is tried.
const ADDRESS_PROBE: Duration = Duration::from_millis(500);

/// Where clients come in on their way to one broker.
#[derive(Debug)]
pub struct Door {
    pub listener: TcpListener,
    /// `None`: its name is not known here, so connections are closed at once, as the broker's own would fail.
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

    /// The port for this broker; a new listener, watched by `epoll` under `first_token` + its index, if it is a new one.
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

/// The first address that takes connections; the first of all if none does at the moment.
fn resolve(host: &str, port: u16) -> Option<SocketAddr> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().ok()?.collect();
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_PROBE).is_ok();
    match addresses.len() {
        0 | 1 => addresses.first().copied(),
        _ => addresses.iter().find(answers).or(addresses.first()).copied(),
    }
}
