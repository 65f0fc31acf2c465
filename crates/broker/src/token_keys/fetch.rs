//! One document from a web server: HTTP/1.1, over TLS if the URL says so. A few hundred bytes once
//! an hour need no more than this.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The largest answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// For connecting to one address, and then for the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the body of an answer with the status 200.
pub(super) fn get(url: &str) -> Result<String, String> {
    let (scheme, rest) = url.split_once("://").ok_or("is no URL")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let (host, port) = host_and_port(authority, scheme == "https")?;
    let socket = connect(host, port)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    );
    let answer = match scheme {
        "https" => exchange(&mut tls(host, socket)?, &request),
        _ => exchange(&mut { socket }, &request),
    }?;
    body(&answer)
}

fn host_and_port(authority: &str, is_https: bool) -> Result<(&str, u16), String> {
    let default = if is_https { 443 } else { 80 };
    let malformed = || format!("{authority} is not host:port");
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(malformed)?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((host, port.parse().map_err(|_| malformed())?)),
            None => Ok((host, default)),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Ok((host, port.parse().map_err(|_| malformed())?)),
        None => Ok((authority, default)),
    }
}

/// A socket with a limit for everything together: a server that sends a byte now and then would
/// pass any limit for one read.
struct Bounded {
    socket: TcpStream,
    until: Instant,
}

impl Bounded {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        let late = || {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not complete within {TIMEOUT:?}"),
            )
        };
        Some(rest)
            .filter(|rest| !rest.is_zero())
            .ok_or_else(late)
            .map(Some)
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.rest()?)?;
        self.socket.read(buffer)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.rest()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn connect(host: &str, port: u16) -> Result<Bounded, String> {
    let failed = |error: io::Error| format!("{host}:{port} cannot be reached: {error}");
    let mut last = io::Error::other("no address");
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(socket) => {
                return Ok(Bounded {
                    socket,
                    until: Instant::now() + TIMEOUT,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// TLS with a server whose certificate the system trusts.
fn tls(host: &str, socket: Bounded) -> Result<StreamOwned<ClientConnection, Bounded>, String> {
    let mut roots = RootCertStore::empty();
    // SSL_CERT_FILE names others than the system's.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(connection, socket))
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> Result<Vec<u8>, String> {
    let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.flush());
    sent.map_err(|error| format!("cannot be asked: {error}"))?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer);
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(format!("answers badly: {error}")),
        Ok(_) => {}
    }
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err("answers more than a megabyte".to_owned());
    }
    Ok(answer)
}

/// The body of an answer whose length is checked: without a close_notify, TLS would not notice that
/// it was cut short.
fn body(answer: &[u8]) -> Result<String, String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or("answers without an end of the headers")?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "answers with headers that are not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("answers {status:?}"));
    }
    let header = |name: &str| {
        let mut lines = head.split("\r\n").skip(1);
        lines.find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    };
    let rest = &answer[end + 4..];
    let bytes = match header("transfer-encoding") {
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => unchunked(rest)?,
        Some(coding) => return Err(format!("answers in the transfer coding {coding}")),
        None => match header("content-length").map(str::parse::<usize>) {
            Some(Ok(length)) if length <= rest.len() => rest[..length].to_vec(),
            Some(_) => return Err("answers less than it says".to_owned()),
            None => rest.to_vec(),
        },
    };
    String::from_utf8(bytes).map_err(|_| "answers what is not UTF-8".to_owned())
}

/// RFC 9112, 7.1.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n");
        let line = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        let (Some(end), Some(line)) = (end, line) else {
            return Err("answers with a broken chunk".to_owned());
        };
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| "answers with a broken chunk")?;
        let chunk = rest
            .get(end + 2..)
            .and_then(|rest| rest.get(..size.checked_add(2)?));
        let chunk = match size {
            0 => return Ok(bytes),
            _ => chunk.ok_or("answers with a broken chunk")?,
        };
        bytes.extend_from_slice(&chunk[..size]);
        rest = &rest[end + 2 + chunk.len()..];
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes; returns what `get` makes of it, and the request.
    fn answered(bytes: &'static [u8]) -> (Result<String, String>, String) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys?a=b", server.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                socket.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            socket.write_all(bytes).unwrap();
            String::from_utf8(request).unwrap()
        });
        (get(&url), serving.join().unwrap())
    }

    #[test]
    fn a_document_comes_whole_or_with_an_error_that_says_why_not() {
        let (body, request) = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(body.as_deref(), Ok("hi"));
        assert!(
            request.starts_with("GET /keys?a=b HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{request}"
        );
        let (body, _) = answered(b"HTTP/1.0 200 OK\r\n\r\nto the end");
        assert_eq!(body.as_deref(), Ok("to the end"));
        let (body, _) = answered(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
        );
        assert_eq!(body.as_deref(), Ok("abcd"));
        for (bytes, part) in [
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"[..],
                "less than it says",
            ),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
            (b"HTTP/1.1 200 OK\r\n", "end of the headers"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab",
                "broken chunk",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
                "broken chunk",
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "gzip"),
            (b"", "end of the headers"),
        ] {
            let problem = answered(bytes).0.unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn an_exchange_ends_at_its_limit_however_the_bytes_come() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut bounded = Bounded {
            socket: TcpStream::connect(server.local_addr().unwrap()).unwrap(),
            until: Instant::now() + TIMEOUT,
        };
        let (mut peer, _) = server.accept().unwrap();
        peer.write_all(b"ab").unwrap();
        assert_eq!(bounded.read(&mut [0]).unwrap(), 1);
        bounded.until = Instant::now();
        // Another byte is there, and the time is over.
        let error = bounded.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(bounded.write(b"x").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_server_is_named_as_in_urls() {
        assert_eq!(host_and_port("a.example", true), Ok(("a.example", 443)));
        assert_eq!(host_and_port("a.example:81", false), Ok(("a.example", 81)));
        assert_eq!(host_and_port("[::1]:81", false), Ok(("::1", 81)));
        assert_eq!(host_and_port("[::1]", false), Ok(("::1", 80)));
        assert!(host_and_port("a:b", false).is_err());
        assert!(
            get("http://127.0.0.1:1/")
                .unwrap_err()
                .contains("cannot be reached")
        );
    }
}
