//! The pages over HTTP, under the same checks as the admin address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use ottla_broker::admin::gate::{self, Gate};
use ottla_broker::http::guard::{self, Guard, Names};
use ottla_broker::http::server::{HttpLimits, HttpServer};
use ottla_console::server::router;
use ottla_console::site::Site;

use crate::cli::output::Failure;

/// No request for a page has a body.
const BODY_BYTES_MAX: u64 = 0;

/// An address that is listened on, and who may ask there.
pub struct Bound {
    socket: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

impl Bound {
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Records are for this machine, and for those who have the token.
    pub fn shows_records(&self) -> bool {
        self.is_loopback() || self.gate.is_locked()
    }
}

/// Listens on an address.
///
/// - Errors: it is taken, the token cannot be read, or other machines reach the address and there
///   is no token.
pub fn bind(listen: &str, token_file: Option<&Path>) -> Result<Bound, Failure> {
    let gate = token_file.map(Gate::of_token_file).transpose();
    let gate = gate.map_err(Failure::unanswered)?.unwrap_or_else(Gate::open);
    let of_address = |error: io::Error| Failure::unanswered(format!("{listen}: {error}"));
    let socket = TcpListener::bind(listen).map_err(of_address)?;
    let address = socket.local_addr().map_err(of_address)?;
    let bound = Bound {
        socket,
        address,
        gate,
    };
    if !bound.is_loopback() && !bound.gate.is_locked() {
        return Err(Failure::usage(format!(
            "--listen {listen} is reachable from other machines, which needs --token-file FILE"
        )));
    }
    Ok(bound)
}

/// The running server. Dropping it stops it.
pub struct Server {
    address: SocketAddr,
    _server: HttpServer,
}

impl Server {
    pub fn start(bound: Bound, site: Arc<Site>) -> io::Result<Server> {
        let guard = Guard {
            // Host names are checked only on loopback: other machines may use any name for this
            // one.
            names: bound.is_loopback().then(Names::default),
            changes_are_prepared: true,
            body_bytes_max: BODY_BYTES_MAX,
        };
        let health = Router::new().route("/health", get(|| async { "ok\n" }));
        let router = health
            .merge(router(site))
            .layer(middleware::from_fn_with_state(bound.gate, gate::check))
            .layer(middleware::from_fn_with_state(guard, guard::check));
        let limits = HttpLimits::default();
        let server = HttpServer::start("console", bound.socket, router, limits, std::future::pending())?;
        Ok(Server {
            address: bound.address,
            _server: server,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        let refusal = bind("0.0.0.0:0", None).map(drop).unwrap_err();
        assert_eq!(refusal.status, 2);
        assert!(refusal.text.contains("--token-file"), "{}", refusal.text);
        assert!(bind("127.0.0.1:0", None).is_ok());
        let missing = Path::new("/nowhere/token");
        let refusal = bind("127.0.0.1:0", Some(missing)).map(drop).unwrap_err();
        assert!(refusal.text.contains("/nowhere/token"), "{}", refusal.text);
    }

    /// Behind a token they were refused, too.
    #[test]
    fn records_are_shown_on_loopback_and_behind_a_token() {
        let token = std::env::temp_dir().join(format!("ottla-console-token-{}", std::process::id()));
        std::fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(bind("127.0.0.1:0", None).unwrap().shows_records());
        assert!(bind("0.0.0.0:0", Some(&token)).unwrap().shows_records());
        std::fs::remove_file(token).unwrap();
    }
}
