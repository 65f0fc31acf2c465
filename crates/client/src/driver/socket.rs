//! TCP sockets with this client's options, and the kernel's statistics of them.

use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;
use socket2::{Domain, SockRef, Socket, Type};

use crate::config::ClientConfig;

/// Starts to connect; the socket becomes writable when the attempt has succeeded or failed (see
/// `connected`).
///
/// - Shape: TCP_NODELAY and keep-alive on, as Kafka's client sets them. Buffer sizes are set before
///   connect, because the window that TCP announces depends on them.
pub fn connect(address: SocketAddr, config: &ClientConfig) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    if let Some(bytes) = config.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// Whether connect has begun and not failed: EINPROGRESS, on Windows WSAEWOULDBLOCK.
fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    let begun = error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(not(unix))]
    let begun = error.kind() == io::ErrorKind::WouldBlock;
    begun
}

/// Appends to `body` within its capacity, without zeroing the memory first.
///
/// - Shape: through `try_io`, so that on Windows mio notices when there is nothing to read.
#[expect(unsafe_code, reason = "the length of memory that the kernel has filled")]
pub fn read_into(stream: &TcpStream, body: &mut Vec<u8>) -> io::Result<usize> {
    let spare = body.spare_capacity_mut();
    let count = stream.try_io(|| SockRef::from(stream).recv(spare))?;
    let length = body.len() + count;
    assert!(
        length <= body.capacity(),
        "the kernel fills at most what it is given"
    );
    // SAFETY: recv has initialised the first `count` bytes behind the old length.
    unsafe { body.set_len(length) };
    Ok(count)
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
