//! The admin address, queried by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ottla_broker::Broker;

use super::HANG;

/// An answer as received.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends these bytes and returns what comes back until the connection is closed.
pub fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket.write_all(request).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    read(&answer)
}

pub fn read(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    Answer {
        status: head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// The body of a page.
pub fn get(broker: &Broker, path: &str) -> String {
    let address = broker.admin_address().unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, request.as_bytes());
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}
