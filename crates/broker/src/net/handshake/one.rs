//! One handshake.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::authentication_counts::Means;
use super::super::mailbox::{Mailbox, NewConnection};
use super::super::tls_session::{Room, TlsFault, TlsPages, TlsRefusal, TlsSession};
use super::super::transport::Transport;
use super::Arrival;
use crate::tls::listener::{PrincipalFault, TlsListener};
use crate::tls::spoken::Spoken;

/// What a client may send before its handshake is done: more than the largest chain of certificates
/// that rustls takes.
const HANDSHAKE_BYTES_MAX: usize = 96 * 1024;

/// How much is read per step.
const STEP_BYTES: usize = 16 * 1024;

/// How long a refused client may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// RFC 8446, 5.1: the first byte of a client that speaks TLS.
const HANDSHAKE_RECORD: u8 = 0x16;

/// What a step has come to.
#[derive(Debug)]
pub(super) enum Progress {
    /// For the socket.
    Waits,
    GoesOn,
    Ends(Ending),
}

/// How a handshake ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    /// The client has gone.
    Gone,
    /// Nothing is answered: an alert would look like a Kafka response of 352 MB, and a Java client
    /// would try to read it.
    Plaintext,
    TooLarge,
    /// An alert has been sent.
    Refused(TlsRefusal),
    /// The client has read it, or had the time to.
    HasLingered,
}

pub(super) struct Handshake {
    connection: NewConnection,
    session: Box<TlsSession>,
    listener: Arc<TlsListener>,
    mailbox: Arc<Mailbox>,
    began: Instant,
    received_bytes: usize,
    is_lingering: bool,
}

impl Handshake {
    pub fn new(arrival: Arrival) -> Result<Handshake, rustls::Error> {
        let session = TlsSession::new(arrival.listener.config())?;
        Ok(Handshake {
            connection: arrival.connection,
            session: Box::new(session),
            listener: arrival.listener,
            mailbox: arrival.mailbox,
            began: Instant::now(),
            received_bytes: 0,
            is_lingering: false,
        })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.connection.socket
    }

    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    pub fn listener(&self) -> &str {
        self.listener.name()
    }

    pub fn is_resumed(&self) -> bool {
        self.session.connection().handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    pub fn spoken(&self) -> Option<Spoken> {
        self.session.spoken()
    }

    /// Notes that it failed by the client's fault.
    pub fn failed(&self) {
        self.connection.permit.not_authenticated(Means::Tls);
    }

    pub fn is_lingering(&self) -> bool {
        self.is_lingering
    }

    /// The connection with its session, and the event loop that is to serve it.
    pub fn into_parts(mut self) -> (NewConnection, Arc<Mailbox>) {
        if !self.listener.has_sasl() {
            self.connection.permit.authenticated(Means::Tls);
        }
        let connection = NewConnection {
            transport: Transport::Tls(self.session),
            handshake_time: self.began.elapsed(),
            ..self.connection
        };
        (connection, self.mailbox)
    }

    /// Does what the socket allows, at most one read.
    pub fn step(&mut self, pages: &mut TlsPages) -> Progress {
        if self.is_lingering {
            return self.discard();
        }
        match self.session.send_unsent(&self.connection.socket) {
            Ok(_) => {}
            Err(_) => return Progress::Ends(Ending::Gone),
        }
        if self.received_bytes == 0
            && let Some(progress) = self.look_at_first_byte()
        {
            return progress;
        }
        let socket = &self.connection.socket;
        let read = self
            .session
            .read_records(socket, pages, STEP_BYTES, &mut Room::new(&mut []));
        match read {
            Err(TlsFault::Gone) | Ok(Ok(0)) => Progress::Ends(Ending::Gone),
            Err(TlsFault::Refused(refusal)) => Progress::Ends(Ending::Refused(refusal)),
            Ok(Ok(read)) => {
                self.received_bytes += read;
                self.go_on()
            }
            Ok(Err(Errno::AGAIN)) => Progress::Waits,
            Ok(Err(Errno::INTR)) => Progress::GoesOn,
            Ok(Err(_)) => Progress::Ends(Ending::Gone),
        }
    }

    /// Returns how the step ends unless it is TLS that the client begins to speak.
    fn look_at_first_byte(&self) -> Option<Progress> {
        let mut first = [0];
        let peeked = rustix::net::recv(
            &self.connection.socket,
            &mut first[..],
            rustix::net::RecvFlags::PEEK,
        );
        match peeked {
            Ok((1, _)) if first[0] == HANDSHAKE_RECORD => None,
            Ok((1, _)) => Some(Progress::Ends(Ending::Plaintext)),
            Ok(_) => Some(Progress::Ends(Ending::Gone)),
            Err(Errno::AGAIN) => Some(Progress::Waits),
            Err(Errno::INTR) => Some(Progress::GoesOn),
            Err(_) => Some(Progress::Ends(Ending::Gone)),
        }
    }

    /// After a read.
    fn go_on(&mut self) -> Progress {
        if self.session.send_unsent(&self.connection.socket).is_err() {
            return Progress::Ends(Ending::Gone);
        }
        if self.session.connection().is_handshaking() {
            return match self.received_bytes {
                bytes if bytes > HANDSHAKE_BYTES_MAX => Progress::Ends(Ending::TooLarge),
                // Also after a short read: the end of the stream may have come with the bytes, and
                // then there is no event for it.
                _ => Progress::GoesOn,
            };
        }
        match self
            .listener
            .principal(self.session.connection().peer_certificates())
        {
            Ok(principal) => {
                self.session.set_principal(principal);
                Progress::Ends(Ending::Done)
            }
            Err(fault) => {
                self.session.close(&self.connection.socket);
                let text = match fault {
                    PrincipalFault::Unreadable => "the client's certificate cannot be read".to_owned(),
                    PrincipalFault::NoRule(subject) => {
                        format!("no rule of ssl.principal.mapping.rules applies to {subject}")
                    }
                };
                Progress::Ends(Ending::Refused(TlsRefusal::new("principal", text)))
            }
        }
    }

    /// Waits for a refused client to close, so that it reads the alert: bytes of it that are not
    /// read would make the end of the connection a reset, which removes the alert from the client's
    /// buffer. Returns until when to wait.
    pub fn linger(&mut self) -> Instant {
        self.is_lingering = true;
        // A client that is gone is seen by the next read.
        let _ = rustix::net::shutdown(&self.connection.socket, rustix::net::Shutdown::Write);
        Instant::now() + LINGER
    }

    fn discard(&mut self) -> Progress {
        let mut page = [0; 4096];
        match rustix::io::read(&self.connection.socket, &mut page) {
            Ok(0) => Progress::Ends(Ending::HasLingered),
            Ok(_) | Err(Errno::INTR) => Progress::GoesOn,
            Err(Errno::AGAIN) => Progress::Waits,
            Err(_) => Progress::Ends(Ending::HasLingered),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener};

    use ottla_core::config::ConnectionLimits;
    use ottla_core::connection_limits::LiveConnectionLimits;
    use ottla_log::disk::os::Descriptors;

    use super::super::super::connection_counts::ConnectionCounts;
    use super::*;
    use crate::clock::SystemClock;
    use crate::tls::config::TlsSettings;
    use crate::tls::testing::{Authority, settings};

    fn listener() -> TlsListener {
        let own = Authority::named("authority").sign("broker", |_| {});
        let lines = [
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.key", own.key.serialize_pem()),
            ("ssl.keystore.certificate.chain", own.certificate.pem()),
        ];
        let lines: Vec<(&str, &str)> = lines.iter().map(|(key, value)| (*key, value.as_str())).collect();
        TlsListener::open(TlsSettings::read(settings(&lines), false).unwrap()).unwrap()
    }

    fn arrival(socket: TcpStream, peer: SocketAddr) -> Arrival {
        let limits = Arc::new(LiveConnectionLimits::new(ConnectionLimits::none()));
        let clock = Arc::new(SystemClock::default());
        let counts = Arc::new(ConnectionCounts::new(
            limits,
            Descriptors::with_limit(1_000),
            clock,
        ));
        let descriptor = counts.descriptor().unwrap();
        let permit = counts.permit(&"SSL".into(), peer.ip(), descriptor, true).unwrap();
        Arrival {
            connection: NewConnection {
                socket,
                peer,
                connection_id: 0,
                listener_name: "SSL".into(),
                permit,
                transport: Transport::default(),
                handshake_time: Duration::ZERO,
            },
            listener: Arc::new(listener()),
            mailbox: Arc::new(Mailbox::new().unwrap()),
        }
    }

    /// For bytes and an end that come together there is one event: both are seen without another.
    #[test]
    fn an_end_that_comes_with_the_last_bytes_is_seen() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let (socket, peer) = listening.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut handshake = Handshake::new(arrival(socket, peer)).unwrap();
        let mut pages = TlsPages::default();
        assert!(matches!(handshake.step(&mut pages), Progress::Waits));
        // A record that announces more than comes.
        client.write_all(&[0x16, 3, 1, 0, 100, 1]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        while rustix::io::ioctl_fionread(&handshake.connection.socket).unwrap() < 6 {
            std::thread::yield_now();
        }
        let steps = std::iter::repeat_with(|| handshake.step(&mut pages));
        let last = steps.take(10).find(|step| !matches!(step, Progress::GoesOn));
        assert!(matches!(last, Some(Progress::Ends(Ending::Gone))), "{last:?}");
    }
}
