//! TCP sockets with this client's options, and the kernel's statistics of them.

use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketType};

use crate::config::ClientConfig;

/// Starts to connect; the socket becomes writable when the attempt has succeeded or failed (see
/// `connected`).
///
/// - Shape: TCP_NODELAY and keep-alive on, as Kafka's client sets them. Buffer sizes are set before
///   connect, because the window that TCP announces depends on them.
pub fn connect(address: SocketAddr, config: &ClientConfig) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    if let Some(bytes) = config.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from_std(std::net::TcpStream::from(socket)))
}

/// Whether a connection attempt has succeeded; `None` while it is in progress.
pub fn connected(stream: &TcpStream) -> Option<io::Result<()>> {
    match stream.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Some(Err(error)),
    }
    match stream.peer_addr() {
        Ok(_) => Some(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
        Err(error) => Some(Err(error)),
    }
}

/// The kernel's smoothed round trip time in nanoseconds; `None` where the kernel has none or does
/// not expose it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "getsockopt(TCP_INFO) has no safe wrapper")]
pub fn round_trip_nanos(stream: &TcpStream) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while `stream` lives, and the kernel writes at most `length`
    // bytes into `info`.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if status != 0 {
        return None;
    }
    // SAFETY: all zeroes is a valid tcp_info, and the kernel has written a prefix of it.
    let info = unsafe { info.assume_init() };
    (info.tcpi_rtt > 0).then(|| u64::from(info.tcpi_rtt) * 1000)
}

/// The kernel's smoothed round trip time in nanoseconds; `None` where the kernel has none or does
/// not expose it.
#[cfg(not(target_os = "linux"))]
pub fn round_trip_nanos(_stream: &TcpStream) -> Option<u64> {
    None
}
