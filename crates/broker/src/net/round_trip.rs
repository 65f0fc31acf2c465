//! The network round trip to a client, which the kernel measures for every connection anyway.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Offsets in the kernel's `struct tcp_info`, whose fields are only ever added to: `tcpi_rtt`,
/// smoothed over the last acknowledgements, and `tcpi_min_rtt`, the minimum of the last minutes.
const SMOOTHED_AT: usize = 68;
const LEAST_AT: usize = 148;
const INFO_BYTES: usize = 192;

/// Returns the round trip of a connection in microseconds. It is the minimum, because the smoothed
/// value contains the forty milliseconds by which an idle peer delays its acknowledgement.
///
/// - Source: TCP_INFO; `None` when the kernel does not report it (not TCP, a kernel of another
///   family).
pub fn round_trip_micros(socket: &TcpStream) -> Option<u32> {
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
    least.or_else(|| at(SMOOTHED_AT).filter(|micros| *micros > 0))
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
        let micros = round_trip_micros(&server).unwrap();
        assert!((1..10_000_000).contains(&micros), "{micros}");
    }
}
