//! The network path to a client, which the kernel measures for every connection anyway.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::metrics::activity::Path;

/// Offsets in the kernel's `struct tcp_info`, whose fields are only ever added to: `tcpi_rtt`,
/// smoothed over the last acknowledgements, `tcpi_min_rtt`, the minimum of the last minutes, and
/// `tcpi_busy_time`.
const SMOOTHED_AT: usize = 68;
const LEAST_AT: usize = 148;
const BUSY_AT: usize = 168;
const INFO_BYTES: usize = 192;

/// Returns what the kernel knows of a connection's path.
///
/// - Source: TCP_INFO; `None` when the kernel does not report it (not TCP, a kernel of another
///   family).
pub fn path(socket: &TcpStream) -> Option<Path> {
    let mut info = [0; INFO_BYTES];
    let length = tcp_info(socket, &mut info)?;
    let info = info.get(..length)?;
    let at = |position: usize| {
        let bytes = info.get(position..position + 4)?;
        Some(u32::from_ne_bytes(
            bytes.try_into().expect("four bytes were taken"),
        ))
    };
    // Before the first measurement the minimum is all ones.
    let least = at(LEAST_AT).filter(|micros| (1..u32::MAX).contains(micros));
    let smoothed_micros = at(SMOOTHED_AT).filter(|micros| *micros > 0);
    let busy = info.get(BUSY_AT..BUSY_AT + 8);
    Some(Path {
        round_trip_micros: least.or(smoothed_micros)?,
        smoothed_micros: smoothed_micros.unwrap_or(0),
        sending_micros: busy.map_or(0, |bytes| {
            u64::from_ne_bytes(bytes.try_into().expect("eight bytes were taken"))
        }),
    })
}

/// Returns how many bytes the kernel wrote.
#[expect(unsafe_code, reason = "TCP_INFO has no safe wrapper")]
fn tcp_info(socket: &TcpStream, info: &mut [u8; INFO_BYTES]) -> Option<usize> {
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has that many, and reports
    // how many it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn the_kernel_knows_a_loopback_connections_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..3 {
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
            server.write_all(b"pong").unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
        }
        let path = path(&server).unwrap();
        assert!((1..10_000_000).contains(&path.round_trip_micros), "{path:?}");
        assert!(path.smoothed_micros >= path.round_trip_micros, "{path:?}");
    }

    #[test]
    fn a_connection_whose_peer_takes_nothing_is_sending() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 65_536]).is_ok() {}
        while path(&server).unwrap().sending_micros == 0 {
            std::thread::yield_now();
        }
    }
}
