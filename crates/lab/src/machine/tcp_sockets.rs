//! This machine's TCP connections, with what the kernel measures of each: what `ss -ti` prints.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// One established connection, as one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// The kernel's id of the socket; no later socket has it.
    pub cookie: u64,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// The shortest round trip of the last minutes.
    pub round_trip_micros: u32,
    /// Smoothed over the last acknowledgements. One that the peer delays counts as long.
    pub smoothed_micros: u32,
    /// The same as the receiver of data measures it; 0: nothing was received in sequence. A pause
    /// of the sender counts as long.
    pub receiver_micros: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
}

const ANSWER_BYTES: usize = 64 << 10;
/// At most this many connections are read: a table as large as that is no broker's.
const SOCKETS_MAX: usize = 100_000;

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
const HEAD_BYTES: usize = 16;
const DIAG_BYTES: usize = 72;
const BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const TCP: u8 = 6;
const INFO: u16 = 2;
const ESTABLISHED: u32 = 1 << 1;
const INET: u8 = 2;
const INET6: u8 = 10;

/// Offsets in the kernel's `struct tcp_info`, whose fields are only ever added to.
const SMOOTHED_AT: usize = 68;
const RECEIVER_AT: usize = 92;
const BYTES_ACKED_AT: usize = 120;
const BYTES_RECEIVED_AT: usize = 128;
const LEAST_AT: usize = 148;

/// Reads the established connections of this network namespace, of all processes.
///
/// - Errors: the kernel does not tell (it lacks `INET_DIAG`, or a container forbids it).
pub fn established() -> io::Result<Vec<TcpSocket>> {
    let mut sockets = Vec::new();
    for family in [INET, INET6] {
        dump(family, &mut sockets)?;
    }
    Ok(sockets)
}

fn dump(family: u8, sockets: &mut Vec<TcpSocket>) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&socket, &request(family), SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let messages = &answer[..length.min(ANSWER_BYTES)];
        if messages.is_empty() || take(messages, sockets)? || sockets.len() >= SOCKETS_MAX {
            return Ok(());
        }
    }
}

fn request(family: u8) -> [u8; HEAD_BYTES + 56] {
    let mut request = [0; HEAD_BYTES + 56];
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    request[HEAD_BYTES] = family;
    request[HEAD_BYTES + 1] = TCP;
    request[HEAD_BYTES + 2] = 1 << (INFO - 1);
    request[HEAD_BYTES + 4..HEAD_BYTES + 8].copy_from_slice(&ESTABLISHED.to_ne_bytes());
    request
}

/// Takes the messages of one answer; returns whether they were the last.
fn take(mut messages: &[u8], sockets: &mut Vec<TcpSocket>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(messages, 0), u16_at(messages, 4)) {
        let length = length as usize;
        let Some(body) = messages.get(HEAD_BYTES..length) else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        match kind {
            TYPE_DONE => return Ok(true),
            TYPE_ERROR => {
                let code = u32_at(body, 0).map_or(0, |code| code.cast_signed());
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            BY_FAMILY => sockets.extend(socket(body)),
            _ => {}
        }
        messages = messages.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// `None`: it has no `tcp_info`, or the kernel has not measured its round trip yet.
fn socket(body: &[u8]) -> Option<TcpSocket> {
    let family = *body.first()?;
    let info = attribute(body.get(DIAG_BYTES..)?, INFO)?;
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let least = u32_at(info, LEAST_AT).filter(|micros| (1..u32::MAX).contains(micros))?;
    Some(TcpSocket {
        cookie: u64_at(body, 44)?,
        local: SocketAddr::new(address(family, body.get(8..24)?)?, port(4)?),
        peer: SocketAddr::new(address(family, body.get(24..40)?)?, port(6)?),
        round_trip_micros: least,
        smoothed_micros: u32_at(info, SMOOTHED_AT)?,
        receiver_micros: u32_at(info, RECEIVER_AT)?,
        bytes_acked: u64_at(info, BYTES_ACKED_AT)?,
        bytes_received: u64_at(info, BYTES_RECEIVED_AT)?,
    })
}

/// An IPv4 address in an IPv6 one counts as the IPv4 address.
fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        INET => Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?)),
        INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
        _ => None,
    }
}

fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        if u16_at(attributes, 2)? == wanted {
            return attributes.get(4..length);
        }
        attributes = attributes.get(aligned(length.max(4))..)?;
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_tells_both_ends_of_a_connection() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 5_000]).unwrap();
        server.read_exact(&mut [0; 5_000]).unwrap();
        server.write_all(&[1; 7]).unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        let all = established().expect("this kernel tells");
        let end = |local: u16, peer: u16| {
            let mut found = all
                .iter()
                .filter(|socket| (socket.local.port(), socket.peer.port()) == (local, peer));
            found.next().copied().expect("the connection")
        };
        let client_port = client.local_addr().unwrap().port();
        let at_server = end(port, client_port);
        assert_eq!(at_server.bytes_received, 5_000);
        assert_eq!(at_server.peer.ip(), IpAddr::from([127, 0, 0, 1]));
        assert!(at_server.round_trip_micros > 0);
        let at_client = end(client_port, port);
        assert_eq!(at_client.bytes_received, 7);
        assert!(at_client.bytes_acked >= 5_000);
        assert_ne!(at_client.cookie, at_server.cookie);
    }

    #[test]
    fn answers_that_are_cut_or_refused_are_errors() {
        let mut sockets = Vec::new();
        let mut message = vec![0; 20];
        message[..4].copy_from_slice(&20_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&TYPE_ERROR.to_ne_bytes());
        message[16..20].copy_from_slice(&(-13_i32).to_ne_bytes());
        let error = take(&message, &mut sockets).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        message[..4].copy_from_slice(&400_u32.to_ne_bytes());
        assert!(take(&message, &mut sockets).is_err());
        message[4..6].copy_from_slice(&TYPE_DONE.to_ne_bytes());
        message[..4].copy_from_slice(&20_u32.to_ne_bytes());
        assert!(take(&message, &mut sockets).unwrap());
        assert!(sockets.is_empty());
        assert_eq!(socket(&[INET; 80]), None);
    }
}
