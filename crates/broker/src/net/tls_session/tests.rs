//! What a session does with sockets that hold records in parts.

use std::io::Write;
use std::net::TcpListener;

use super::*;
use crate::tls::config::TlsSettings;
use crate::tls::testing::{Authority, Files, settings};

fn session() -> TlsSession {
    let files = Files::new();
    let path = files.write("a.pem", Authority::named("ca").sign("a", |_| {}).pem());
    let lines = [
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", path.as_str()),
    ];
    let settings = TlsSettings::read(settings(&lines), false).unwrap();
    TlsSession::new(settings.load().unwrap().config).unwrap()
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Waits until `bytes` have come.
fn until_there(socket: &TcpStream, bytes: usize) {
    let mut seen = vec![0; bytes];
    let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
    assert_eq!(rustix::net::recv(socket, &mut seen[..], flags).unwrap().0, bytes);
}

#[test]
fn a_record_is_whole_once_all_its_bytes_are_in_the_socket() {
    let session = session();
    let (mut client, server) = sockets();
    let record = [&[0x17, 3, 3, 1, 0][..], &[9; 256]].concat();
    client.write_all(&record[..4]).unwrap();
    until_there(&server, 4);
    assert!(!session.has_whole_record(&server), "its length is not known");
    client.write_all(&record[4..260]).unwrap();
    until_there(&server, 260);
    assert!(!session.has_whole_record(&server));
    client.write_all(&record[260..]).unwrap();
    until_there(&server, 261);
    assert!(session.has_whole_record(&server));
}

#[test]
fn a_record_that_can_never_be_whole_is_read_in_parts() {
    let session = session();
    let (mut client, server) = sockets();
    rustix::net::sockopt::set_socket_recv_buffer_size(&server, 4_096).unwrap();
    client.write_all(&[0x17, 3, 3, 0x40, 0, 1]).unwrap();
    until_there(&server, 6);
    assert!(
        session.has_whole_record(&server),
        "the socket's buffer may be too small for it"
    );
    let (client, server) = sockets();
    drop(client);
    // Returns at the end of the stream.
    assert_eq!(
        rustix::net::recv(&server, &mut [0][..], RecvFlags::PEEK)
            .unwrap()
            .0,
        0
    );
    assert!(
        session.has_whole_record(&server),
        "the end of the stream is to be read"
    );
}

#[test]
fn content_fills_slices_one_after_the_other() {
    let (mut first, mut second) = ([0; 3], [0; 2]);
    let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let mut room = Room::new(&mut slices);
    assert_eq!(room.fill(b"ab"), b"");
    assert_eq!((room.left(), room.is_full()), (3, false));
    assert_eq!(room.fill(b"cdefg"), b"fg");
    assert!(room.is_full());
    assert_eq!(room.fill(b"h"), b"h");
    assert_eq!((&first[..], &second[..]), (&b"abc"[..], &b"de"[..]));
}
