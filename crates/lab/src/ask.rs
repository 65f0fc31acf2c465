//! One HTTP exchange with an admin address or a collector.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ottla_wire::text::printable;

const PATIENCE: Duration = Duration::from_secs(10);

/// An admin address or a collector, with the token that it may ask for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// host:port
    address: String,
    token: Option<String>,
}

impl Door {
    /// - Shape: `address` is host:port.
    pub fn new(address: impl Into<String>) -> Door {
        Door {
            address: address.into(),
            token: None,
        }
    }

    /// - Shape: `token` has neither blanks nor control characters.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Door {
        Door { token, ..self }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the body of the answer. A client library would be the largest dependency of this
    /// crate for this one exchange.
    ///
    /// - Errors: nothing answers, a status other than 2xx (with the answer's text), more than
    ///   `bytes_max`.
    pub fn ask(&self, method: &str, target: &str, bytes_max: u64) -> io::Result<String> {
        let address = &self.address;
        let socket_address = address
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::other(format!("{address} has no address")))?;
        let mut socket = TcpStream::connect_timeout(&socket_address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.write_all(self.request(method, target).as_bytes())?;
        let mut answer = String::new();
        let read = socket
            .take(bytes_max.saturating_add(1))
            .read_to_string(&mut answer)?;
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
        if read as u64 > bytes_max {
            return Err(invalid(format!(
                "{method} {target} at {address}: the answer is longer than {bytes_max} bytes"
            )));
        }
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .filter(|(head, _)| head.starts_with("HTTP/"))
            .ok_or_else(|| invalid(format!("{address} speaks no HTTP")))?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            let (status, said) = (printable(status), printable(body.trim()));
            let problem = format!("{method} {target} at {address}: status {status}: {said}");
            return Err(io::Error::other(problem));
        }
        Ok(body.to_owned())
    }

    fn request(&self, method: &str, target: &str) -> String {
        // Version 1.0: the answer is not chunked and ends with the connection.
        let mut request = format!(
            "{method} {target} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n",
            self.address
        );
        // The header by which Ottla distinguishes its own commands from a web page.
        request.push_str("X-Ottla-Admin: 1\r\n");
        if let Some(token) = &self.token {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        request.push_str("\r\n");
        request
    }
}

impl fmt::Display for Door {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)
    }
}

// A token must never appear in a message.
impl fmt::Debug for Door {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Door({})", self.address)
    }
}

/// As [`Door::ask`], without a token.
pub fn ask(address: &str, method: &str, target: &str, bytes_max: u64) -> io::Result<String> {
    Door::new(address).ask(method, target, bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered_by(answer: &'static str, bytes_max: u64) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = socket.read(&mut request).unwrap();
            // The other side may have read enough.
            let _ = socket.write_all(answer.as_bytes());
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let outcome = ask(&address, "GET", "/x", bytes_max);
        assert!(server.join().unwrap().starts_with("GET /x HTTP/1.0\r\n"));
        outcome
    }

    #[test]
    fn a_body_comes_back_and_everything_else_is_an_error_with_its_reason() {
        let answer = "HTTP/1.0 200 OK\r\nA: b\r\n\r\nbody";
        assert_eq!(answered_by(answer, 100).unwrap(), "body");
        let error = answered_by(answer, 20).unwrap_err().to_string();
        assert!(error.contains("longer than 20 bytes"), "{error}");
        let error = answered_by("HTTP/1.1 404 Not Found\r\n\r\nno such path\n", 100)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("status 404: no such path"), "{error}");
        let error = answered_by("\0\0\0\r\n\r\n", 100).unwrap_err().to_string();
        assert!(error.ends_with("speaks no HTTP"), "{error}");
    }

    #[test]
    fn a_token_is_sent_and_never_shown() {
        let door = Door::new("127.0.0.1:9644").with_token(Some("secret".to_owned()));
        let request = door.request("GET", "/x");
        assert!(request.contains("\r\nAuthorization: Bearer secret\r\n"));
        assert!(request.ends_with("\r\n\r\n"));
        assert!(!format!("{door:?} {door}").contains("secret"));
        let bare = Door::new("127.0.0.1:9644").request("GET", "/x");
        assert!(!bare.contains("Authorization"));
    }
}
