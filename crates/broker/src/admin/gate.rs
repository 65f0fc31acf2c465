//! The token of the admin address. Together with `http/guard.rs`, which keeps out web pages, this
//! decides whether a request is served (decision 16).
//!
//! A request has the token as a bearer token (RFC 6750), or as the password of any user (RFC 7617),
//! which browsers ask for by themselves. Whether a process lives and is ready is no secret.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ottla_core::config::NodeConfig;

use crate::random_bytes;

/// The file that holds the token where `ottla.admin.token.file` names no other, in the first log
/// directory.
pub const TOKEN_FILE: &str = "ottla.admin.token";

/// 128 bits in base64.
const TOKEN_BYTES_MIN: usize = 22;
/// A header has room for more, but a longer file is not a token.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Random bytes of a token made here, written in hexadecimal.
const RANDOM_BYTES: usize = 32;

/// Served without a token.
const OPEN: [&str; 2] = ["/health", "/ready"];

const REFUSAL: &str = "this needs the token of the admin address: --admin-token-file FILE, or the header \
                       Authorization: Bearer TOKEN. The broker's ottla.admin.token.file names the file; its default \
                       is ottla.admin.token in the first of log.dirs\n";

/// Lets requests in.
#[derive(Clone, Default)]
pub struct Gate {
    /// `None`: every request.
    token: Option<Arc<[u8]>>,
}

// A token must never appear in a log line.
impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gate = formatter.debug_struct("Gate");
        gate.field("is_locked", &self.is_locked()).finish()
    }
}

impl Gate {
    /// A gate that lets every request in.
    pub fn open() -> Gate {
        Gate::default()
    }

    /// The gate of a broker that serves its admin address at `address`; `None`: [`Gate::made`],
    /// once the log directory is there.
    ///
    /// - Errors: the token cannot be read, or is readable for everyone; an address that other
    ///   machines reach has no token.
    pub fn of(config: &NodeConfig, address: IpAddr) -> Result<Option<Gate>, String> {
        // The operator names the place where the broker keeps a token of its own: before the first
        // start of a container there is no place to put one.
        let own = config.log_directories[0].join(TOKEN_FILE);
        if let Some(file) = config.admin_token_file.as_ref().filter(|file| **file != own) {
            return Gate::of_token_file(file).map(Some);
        }
        // On a machine with several users loopback is no authentication.
        if config.authorizer.is_some() || config.admin_token_file.is_some() {
            return Ok(None);
        }
        if address.to_canonical().is_loopback() || config.admin_is_insecure {
            return Ok(Some(Gate::open()));
        }
        Err(format!(
            "ottla.admin.listener: {address} is reachable from other machines, which needs ottla.admin.token.file \
             (or ottla.admin.insecure=true, if everyone who reaches it may use it)"
        ))
    }

    /// A gate that lets in what has the token in this file.
    ///
    /// - Errors: the token cannot be read, or is readable for everyone.
    pub fn of_token_file(file: &Path) -> Result<Gate, String> {
        let token = read(file).map_err(|problem| of_file(file, &problem))?;
        Ok(Gate::with(&token))
    }

    /// The gate of a broker with an authorizer and no token of its operator's, or whose operator
    /// names the broker's own file: the token is made at the first start and kept in the log
    /// directory.
    pub fn made(config: &NodeConfig) -> Result<Gate, String> {
        let file = config.log_directories[0].join(TOKEN_FILE);
        let token = read_or_make(&file).map_err(|problem| of_file(&file, &problem))?;
        Ok(Gate::with(&token))
    }

    fn with(token: &str) -> Gate {
        Gate {
            token: Some(token.as_bytes().into()),
        }
    }

    /// Whether requests need a token.
    pub fn is_locked(&self) -> bool {
        self.token.is_some()
    }

    /// Whether a request with this path and these headers is let in.
    pub fn permits(&self, path: &str, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        if OPEN.contains(&path) {
            return true;
        }
        let mut credentials = headers.get_all(AUTHORIZATION).iter();
        let (Some(credentials), None) = (credentials.next(), credentials.next()) else {
            return false;
        };
        shown(credentials.as_bytes()).is_some_and(|shown| verify_slices_are_equal(&shown, token).is_ok())
    }
}

/// Returns the token that is shown; `None`: the credentials are of another kind.
fn shown(credentials: &[u8]) -> Option<Vec<u8>> {
    let blank = credentials.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = credentials.split_at(blank);
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = BASE64.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Lets permitted requests through; a layer of the router.
pub async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if gate.permits(request.uri().path(), request.headers()) {
        return next.run(request).await;
    }
    let mut response = (StatusCode::UNAUTHORIZED, REFUSAL).into_response();
    for scheme in ["Bearer realm=\"ottla\"", "Basic realm=\"ottla\""] {
        let value = HeaderValue::from_static(scheme);
        response.headers_mut().append(WWW_AUTHENTICATE, value);
    }
    response
}

fn of_file(file: &Path, problem: &str) -> String {
    format!("the token of the admin address, {}: {problem}", file.display())
}

/// - Errors: the file cannot be read, others may read it, or it holds no token.
fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    token_in(file)
}

fn token_in(file: File) -> Result<String, String> {
    let mode = file.metadata().map_err(|error| error.to_string())?.mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(format!(
            "its mode is {mode:03o}: every user of this machine has access to it; chmod o= removes that"
        ));
    }
    let mut text = String::new();
    let limit = TOKEN_BYTES_MAX as u64 + 2;
    file.take(limit)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let token = text.trim_ascii();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token has no blanks, and no characters other than those of ASCII".to_owned());
    }
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err(format!(
            "a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters (at least 128 bits), as of `openssl rand -hex 32`"
        ));
    }
    Ok(token.to_owned())
}

/// As [`read`], of a file that is made if it is not there.
fn read_or_make(path: &Path) -> Result<String, String> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path).map_err(|error| error.to_string())?;
            read(path)
        }
        Err(error) => Err(error.to_string()),
        Ok(file) => token_in(file),
    }
}

/// Makes a token. The file has its name only when it is whole: a start that was interrupted leaves
/// none that the next would refuse.
fn make(path: &Path) -> io::Result<()> {
    let mut random = [0; RANDOM_BYTES];
    random_bytes::fill(&mut random);
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut unfinished = PathBuf::from(path);
    unfinished.add_extension("tmp");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The mode counts from the first byte on: the file is new.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::broker::TemporaryDirectory;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn gate() -> Gate {
        Gate::with(TOKEN)
    }

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let values = values
            .iter()
            .map(|value| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name, value);
        }
        headers
    }

    fn permits(values: &[&[u8]]) -> bool {
        gate().permits("/metrics", &headers(values))
    }

    fn basic(pair: &str) -> Vec<u8> {
        format!("Basic {}", BASE64.encode(pair)).into_bytes()
    }

    #[test]
    fn a_token_comes_as_a_bearer_or_as_a_password() {
        let bearer = format!("Bearer {TOKEN}");
        assert!(permits(&[bearer.as_bytes()]));
        assert!(permits(&[format!("bearer   {TOKEN}").as_bytes()]));
        assert!(permits(&[&basic(&format!("anyone:{TOKEN}"))]));
        assert!(permits(&[&basic(&format!(":{TOKEN}"))]));
        assert!(Gate::open().permits("/metrics", &headers(&[])));
    }

    #[test]
    fn everything_else_is_kept_out() {
        let bearer = format!("Bearer {TOKEN}");
        let longer = format!("Bearer {TOKEN}0");
        let shorter = format!("Bearer {}", &TOKEN[1..]);
        let other = format!("Bearer {}", TOKEN.replace('f', "e"));
        let upper = format!("Bearer {}", TOKEN.to_uppercase());
        for value in [
            &b""[..],
            b"Bearer",
            b"Bearer ",
            b"Basic ",
            b"Basic !!!",
            b"Basic Og==",
            b"Bearer \xff\xfe",
            b"Negotiate 0123456789abcdef0123456789abcdef",
            TOKEN.as_bytes(),
            longer.as_bytes(),
            shorter.as_bytes(),
            other.as_bytes(),
            upper.as_bytes(),
            &basic(TOKEN),
            &basic(&format!("{TOKEN}:")),
            &basic(&format!("a:b:{TOKEN}")),
        ] {
            assert!(!permits(&[value]), "{:?}", String::from_utf8_lossy(value));
        }
        assert!(!permits(&[]));
        assert!(!permits(&[bearer.as_bytes(), bearer.as_bytes()]), "two headers");
    }

    #[test]
    fn only_health_is_open() {
        for path in ["/health", "/ready"] {
            assert!(gate().permits(path, &headers(&[])), "{path}");
        }
        for path in [
            "/",
            "/metrics",
            "/health/",
            "//health",
            "/HEALTH",
            "/health/../metrics",
            "/metrics/health",
            "/debug/batches",
            "/nowhere",
        ] {
            assert!(!gate().permits(path, &headers(&[])), "{path}");
        }
    }

    #[test]
    fn a_token_never_appears_in_debug_output() {
        assert_eq!(format!("{:?}", gate()), "Gate { is_locked: true }");
    }

    fn written(directory: &TemporaryDirectory, text: &[u8], mode: u32) -> PathBuf {
        let path = directory.path().join("token");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_file_that_is_no_secret_or_holds_no_token_is_refused() {
        let directory = TemporaryDirectory::create().unwrap();
        for mode in [0o600, 0o400, 0o640] {
            let path = written(&directory, format!("{TOKEN}\n").as_bytes(), mode);
            assert_eq!(read(&path).as_deref(), Ok(TOKEN), "{mode:o}");
            std::fs::remove_file(path).unwrap();
        }
        for mode in [0o644, 0o604, 0o602, 0o777] {
            let path = written(&directory, TOKEN.as_bytes(), mode);
            assert!(read(&path).unwrap_err().contains(&format!("{mode:o}")));
            std::fs::remove_file(path).unwrap();
        }
        let long = [b'a'; TOKEN_BYTES_MAX + 1];
        for text in [
            &b""[..],
            b"\n",
            b"short",
            b"012345678901234567890",
            b"0123456789abcdef 0123456789abcdef",
            b"0123456789abcdef\n0123456789abcdef",
            b"0123456789abcdef0123456789\xff",
            &long,
        ] {
            let path = written(&directory, text, 0o600);
            assert!(read(&path).is_err(), "{:?}", String::from_utf8_lossy(text));
            std::fs::remove_file(path).unwrap();
        }
        assert!(read(&directory.path().join("missing")).is_err());
    }

    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let directory = TemporaryDirectory::create().unwrap();
        let path = directory.path().join(TOKEN_FILE);
        // Left behind by a start that was interrupted.
        std::fs::write(path.with_added_extension("tmp"), "0123").unwrap();
        let token = read_or_make(&path).unwrap();
        assert_eq!(token.len(), 2 * RANDOM_BYTES);
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(read_or_make(&path), Ok(token.clone()));
        let elsewhere = TemporaryDirectory::create().unwrap();
        assert_ne!(read_or_make(&elsewhere.path().join(TOKEN_FILE)), Ok(token));
    }
}
