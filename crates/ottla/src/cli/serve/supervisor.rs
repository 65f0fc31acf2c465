//! What `serve` and the process that started it tell each other: sd_notify(3) to a service manager,
//! and the end of standard input from a test.

use std::io::{ErrorKind, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Signal, getpid, kill_process};
use tracing::warn;

/// The environment variable in which a service manager names its socket: a path, or `@` and a name
/// in the abstract namespace.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// A change of state, as sd_notify(3) names it.
#[derive(Clone, Copy)]
pub enum State {
    Ready,
    Stopping,
}

/// Tells the service manager, if there is one. A failure is logged: the manager then ends its wait
/// by its own timeout.
pub fn notify(state: State) {
    let Some(name) = std::env::var_os(SOCKET_VARIABLE) else {
        return;
    };
    let text: &[u8] = match state {
        State::Ready => b"READY=1",
        State::Stopping => b"STOPPING=1",
    };
    if let Err(error) = send(name.as_bytes(), text) {
        warn!(%error, socket = %name.display(), "cannot notify the service manager");
    }
}

fn send(name: &[u8], text: &[u8]) -> std::io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text, &address).map(drop)
}

/// Waits on a thread of its own for the end of standard input, then signals this process as a
/// supervisor would. The kernel closes the pipe of a process that was killed, which signals nothing
/// by itself.
pub fn stop_with_stdin() -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(|| {
            read_to_the_end(std::io::stdin().lock());
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                warn!(%error, "cannot stop at the end of standard input");
            }
        })
        .map(drop)
}

/// A read error counts as the end: no later read would tell that the other side is gone.
fn read_to_the_end(mut input: impl Read) {
    let mut ignored = [0; 512];
    loop {
        match input.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
