//! One connection of a crowd: opens, sends its request repeatedly, reads answers, and may be opened
//! again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use ottla_wire::frame::LENGTH_BYTES;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};

use super::payload;

/// A broker that announces more than this does not answer with Kafka.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub due_nanos: u64,
    pub sent_nanos: u64,
    pub correlation_id: i32,
}

/// A connection, open or not: requests are accepted in both states.
#[derive(Debug, Default)]
pub(super) struct Connection {
    socket: Option<TcpStream>,
    /// The request, with the correlation id of the last one.
    frame: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// The beginning of an incomplete answer.
    input: Vec<u8>,
    pub waiting: VecDeque<Sent>,
    next_correlation_id: i32,
    /// Whether it is in the queue of connections that may send.
    pub is_ready: bool,
    /// Whether it has something to write.
    pub is_touched: bool,
}

impl Connection {
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Begins to connect; what is sent before the other end accepts waits here.
    pub fn open(&mut self, address: SocketAddr, source: Option<IpAddr>, frame: Vec<u8>) -> io::Result<()> {
        self.socket = Some(begin_to_connect(address, source)?);
        self.frame = frame;
        Ok(())
    }

    pub fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    /// Closes it at once and drops what was under way.
    pub fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            // A reset leaves no port behind in TIME_WAIT for a minute: a storm would soon run out
            // of ports.
            let _ = set_socket_linger(&socket, Some(Duration::ZERO));
        }
        self.output.clear();
        self.written = 0;
        self.input.clear();
        self.waiting.clear();
    }

    pub fn push(&mut self, due_nanos: u64, sent_nanos: u64) {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        payload::number(&mut self.frame, correlation_id);
        self.output.extend_from_slice(&self.frame);
        self.waiting.push_back(Sent {
            due_nanos,
            sent_nanos,
            correlation_id,
        });
    }

    /// Writes what the socket accepts; the rest waits until the socket is writable.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(mut socket) = self.socket.as_ref() else {
            return Ok(());
        };
        while self.written < self.output.len() {
            match socket.write(&self.output[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Not connected yet, or the broker does not read.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads everything that has arrived, and passes on each answer with the request that it
    /// belongs to.
    ///
    /// - Errors: the connection has ended, or the bytes are not an answer.
    pub fn read(&mut self, buffer: &mut [u8], mut take: impl FnMut(Sent, &[u8])) -> io::Result<()> {
        loop {
            let Some(mut socket) = self.socket.as_ref() else {
                return Ok(());
            };
            match socket.read(buffer) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the broker closed it")),
                Ok(bytes) => {
                    self.take_in(&buffer[..bytes], &mut take)?;
                    // Less than there is room for: further bytes make the socket readable again.
                    if bytes < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn take_in(&mut self, bytes: &[u8], take: &mut impl FnMut(Sent, &[u8])) -> io::Result<()> {
        if self.input.is_empty() {
            let used = take_answers(&mut self.waiting, bytes, take)?;
            self.input.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        let used = take_answers(&mut self.waiting, &self.input, take)?;
        self.input.drain(..used);
        Ok(())
    }
}

/// Returns the number of bytes in complete answers.
fn take_answers(
    waiting: &mut VecDeque<Sent>,
    bytes: &[u8],
    take: &mut impl FnMut(Sent, &[u8]),
) -> io::Result<usize> {
    let mut used = 0;
    while let Some(length) = bytes[used..].first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > ANSWER_BYTES_MAX {
            let message = format!("{length} is no length of an answer");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        let from = used + LENGTH_BYTES;
        let Some(answer) = bytes.get(from..from + length) else {
            break;
        };
        let Some(sent) = waiting.pop_front() else {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "an answer without a waiting request",
            ));
        };
        take(sent, answer);
        used = from + length;
    }
    Ok(used)
}

fn begin_to_connect(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(source) = source {
        bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(count: i32) -> VecDeque<Sent> {
        let sent = |correlation_id| Sent {
            due_nanos: 0,
            sent_nanos: 0,
            correlation_id,
        };
        (0..count).map(sent).collect()
    }

    /// Returns two answers that were cut after `cut` bytes.
    fn taken(cut: usize, count: i32) -> io::Result<Vec<(i32, Vec<u8>)>> {
        let bytes = [0, 0, 0, 2, b'a', b'b', 0, 0, 0, 1, b'c'];
        let mut connection = Connection {
            waiting: waiting(count),
            ..Connection::default()
        };
        let mut answers = Vec::new();
        let mut take = |sent: Sent, answer: &[u8]| answers.push((sent.correlation_id, answer.to_vec()));
        connection.take_in(&bytes[..cut], &mut take)?;
        connection.take_in(&bytes[cut..], &mut take)?;
        Ok(answers)
    }

    #[test]
    fn answers_may_come_in_pieces() {
        for cut in 0..=11 {
            let expected = [(0, b"ab".to_vec()), (1, b"c".to_vec())];
            assert_eq!(taken(cut, 2).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn an_answer_without_a_waiting_request_ends_the_connection() {
        assert_eq!(taken(0, 1).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
