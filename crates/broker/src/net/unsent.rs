//! How much the kernel queues for a client that does not read: that memory counts as this
//! process's, as it does in a control group.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// By default the kernel queues up to `tcp_wmem`, usually 4 MiB. Bytes that are sent but not
/// acknowledged do not count, so a long fat pipe is filled as before; and 128 KiB last for a
/// hundred microseconds at ten gigabits per second, within which an event loop returns.
pub const UNSENT_BYTES_MAX: libc::c_int = 128 * 1024;

/// Limits the unsent bytes queued for a socket and for those it accepts (`TCP_NOTSENT_LOWAT`,
/// tcp(7)).
pub fn limit_unsent(socket: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = UNSENT_BYTES_MAX;
    // SAFETY: the kernel reads one integer, whose size it is given.
    #[expect(unsafe_code, reason = "TCP_NOTSENT_LOWAT has no safe wrapper")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_accepted_socket_takes_little_that_its_client_does_not_read() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        limit_unsent(listening.as_fd()).unwrap();
        let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listening.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let part = vec![7; 64 * 1024];
        let mut taken = 0;
        while let Ok(bytes) = socket.write(&part) {
            taken += bytes;
        }
        let unsent = rustix::io::ioctl_fionread(&client).unwrap();
        // Bytes in the client's own receive queue do not count.
        let queued = taken as u64 - unsent;
        assert!(queued < 4 * UNSENT_BYTES_MAX as u64, "{queued} of {taken}");
        drop(socket);
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), taken);
    }
}
