//! One document from a web server: a few hundred bytes once an hour.

use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The largest answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// For the whole exchange: a server that sends a byte now and then would pass any limit for one
/// read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the body of an answer with the status 200.
pub(super) fn get(url: &str) -> Result<String, String> {
    get_within(url, TIMEOUT)
}

fn get_within(url: &str, timeout: Duration) -> Result<String, String> {
    let agent: Agent = Agent::config_builder()
        .tls_config(tls(url))
        .http_status_as_error(false)
        // The settings name the server that is trusted.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_global(Some(timeout))
        .build()
        .new_agent();
    let failed = |error: ureq::Error| format!("cannot be fetched: {error}");
    let answer = agent
        .get(url)
        .header("Accept", "application/json")
        .call()
        .map_err(failed)?;
    if answer.status() != 200 {
        return Err(format!("answers {}", answer.status()));
    }
    let body = answer.into_body().into_with_config().limit(ANSWER_BYTES_MAX);
    body.read_to_string().map_err(failed)
}

/// A server whose certificate the system trusts; SSL_CERT_FILE names others than the system's.
fn tls(url: &str) -> TlsConfig {
    let builder = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    if !url.starts_with("https://") {
        return builder.build();
    }
    let found = rustls_native_certs::load_native_certs().certs;
    let roots = found.iter().map(|root| Certificate::from_der(root).to_owned());
    builder.root_certs(RootCerts::from(roots)).build()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes; returns what `get` makes of it, and the request.
    fn answered(bytes: &[u8]) -> (Result<String, String>, String) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys?a=b", server.local_addr().unwrap());
        let bytes = bytes.to_vec();
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                socket.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let _ = socket.write_all(&bytes);
            String::from_utf8(request).unwrap()
        });
        (get(&url), serving.join().unwrap())
    }

    #[test]
    fn a_document_comes_whole_or_with_an_error_that_says_why_not() {
        let (body, request) = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(body.as_deref(), Ok("hi"));
        assert!(request.starts_with("GET /keys?a=b HTTP/1.1\r\n"), "{request}");
        let (body, _) = answered(b"HTTP/1.0 200 OK\r\n\r\nto the end");
        assert_eq!(body.as_deref(), Ok("to the end"));
        let (body, _) = answered(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
        );
        assert_eq!(body.as_deref(), Ok("abcd"));
        let large = vec![b'x'; 1 + usize::try_from(ANSWER_BYTES_MAX).unwrap()];
        let endless = [b"HTTP/1.0 200 OK\r\n\r\n", &large[..]].concat();
        for bytes in [
            // Cut short, which TLS without a close_notify would not notice.
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi",
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            b"",
            &endless,
        ] {
            let problem = answered(bytes).0.unwrap_err();
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            assert!(
                problem.contains("answers ") || problem.contains("cannot be fetched: "),
                "{shown}: {problem}"
            );
        }
    }

    #[test]
    fn an_exchange_ends_at_its_limit_however_the_bytes_come() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let dribbling = std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            // Ends when the client has closed the connection.
            while socket.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let problem = get_within(&url, Duration::from_millis(100)).unwrap_err();
        assert!(problem.contains("timeout"), "{problem}");
        dribbling.join().unwrap();
    }
}
