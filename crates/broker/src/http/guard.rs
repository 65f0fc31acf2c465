//! Access to an HTTP address without a password: open to every process that reaches it, but not to
//! web pages in a browser on this machine.
//!
//! A browser lets a page of any site send requests to addresses like 127.0.0.1. Two checks keep
//! such pages out. **DNS rebinding**: the page's own name is made to resolve to this address, so
//! the browser treats the answers as same-origin. The name is in `Host`, so foreign names are
//! refused with 421 (RFC 9110, 15.5.20). **Cross-site requests**: the page cannot read the answer,
//! but the request is executed. So a change needs a header that a page can send only after a CORS
//! preflight, which this server never grants, and requests that the browser marks as cross-site
//! (`Origin`, `Sec-Fetch-Site`) are refused.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The header required for a change; its value does not matter.
pub const CHANGE_HEADER: HeaderName = HeaderName::from_static("x-ottla-admin");

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Host names under which an address may be asked, besides IP addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<[String]>);

impl Names {
    pub fn new(names: impl IntoIterator<Item = String>) -> Names {
        let names = names.into_iter().map(|name| canonical(&name));
        Names(names.filter(|name| !name.is_empty()).collect())
    }

    /// - `authority`: a host, with or without a port.
    fn contains(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else {
            return false;
        };
        let host = canonical(host);
        // RFC 6761, 6.3: names below localhost are this machine, too.
        let is_local = host == "localhost" || host.ends_with(".localhost");
        is_local || host.parse::<IpAddr>().is_ok() || self.0.contains(&host)
    }
}

fn canonical(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase()
}

/// Returns the host of `host`, `host:port` or `[v6]:port`; `None` for anything else.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_end = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    (is_end && !host.is_empty()).then_some(host)
}

/// What is checked besides the site that a request comes from.
#[derive(Clone, Debug)]
pub struct Guard {
    /// `None`: any name, where other machines use names unknown to the server.
    pub names: Option<Names>,
    /// Whether a change needs [`CHANGE_HEADER`].
    pub changes_are_prepared: bool,
    /// The longest body that a request may announce; handlers that read one limit what actually
    /// arrives.
    pub body_bytes_max: u64,
}

impl Guard {
    fn refusal(&self, request: &Request) -> Option<HttpRefusal> {
        let (method, headers) = (request.method(), request.headers());
        let misdirected = self.names.as_ref().and_then(|names| misdirected(names, request));
        let unprepared = || unprepared(method, headers).filter(|_| self.changes_are_prepared);
        misdirected
            .or_else(|| foreign(method, headers))
            .or_else(unprepared)
            .or_else(|| too_long(headers, self.body_bytes_max))
    }
}

/// Lets permitted requests through; a layer of the router.
pub async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let refusal = guard.refusal(&request);
    let mut response = match refusal {
        Some((status, reason)) => (status, format!("{reason}\n")).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

type HttpRefusal = (StatusCode, &'static str);

/// Refuses a host name that is not this server's.
fn misdirected(names: &Names, request: &Request) -> Option<HttpRefusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let in_target = request.uri().authority().map(|authority| authority.as_str());
    let (host, is_more) = (hosts.next(), hosts.next().is_some());
    // RFC 9112, 3.2: exactly one; HTTP/1.0 clients may omit it.
    if is_more || (host.is_none() && request.version() != Version::HTTP_10) {
        return Some((StatusCode::BAD_REQUEST, "one Host header is needed"));
    }
    let is_ours = |authority: &str| names.contains(authority);
    let is_host_ours = host.is_none_or(|host| host.to_str().is_ok_and(is_ours));
    if is_host_ours && in_target.is_none_or(is_ours) {
        return None;
    }
    Some((
        StatusCode::MISDIRECTED_REQUEST,
        "this address is not served under the name in Host; ottla.admin.hosts adds names",
    ))
}

/// Refuses requests that a browser marks as coming from another site.
fn foreign(method: &Method, headers: &HeaderMap) -> Option<HttpRefusal> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_reading = matches!(*method, Method::GET | Method::HEAD);
    // Following a link from another site shows the page to the user; the linking site cannot read
    // it.
    let is_followed = is_reading && text(&SEC_FETCH_MODE) == Some("navigate");
    let is_site_foreign = text(&SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let is_origin_foreign = text(&ORIGIN).is_some_and(|origin| {
        let own = text(&HOST).unwrap_or_default();
        origin.strip_prefix("http://") != Some(own)
    });
    let is_foreign = (is_site_foreign && !is_followed) || is_origin_foreign;
    is_foreign.then_some((StatusCode::FORBIDDEN, "not for pages of other sites"))
}

/// Refuses a change without the header that a page cannot send without a preflight.
fn unprepared(method: &Method, headers: &HeaderMap) -> Option<HttpRefusal> {
    let is_change = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    (is_change && !headers.contains_key(CHANGE_HEADER)).then_some((
        StatusCode::FORBIDDEN,
        "a change needs the header X-Ottla-Admin: 1",
    ))
}

fn too_long(headers: &HeaderMap, body_bytes_max: u64) -> Option<HttpRefusal> {
    let announced = headers.get(CONTENT_LENGTH)?;
    let is_fine = |length: &str| length.parse::<u64>().is_ok_and(|length| length <= body_bytes_max);
    (!announced.to_str().is_ok_and(is_fine))
        .then_some((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_own_names_are_accepted() {
        let names = Names::new(["Kafka.Example.".to_owned(), String::new()]);
        for ours in [
            "127.0.0.1:9644",
            "[::1]:9644",
            "[::1]",
            "10.0.0.7",
            "localhost",
            "LOCALHOST:1",
            "localhost.:1",
            "console.localhost",
            "kafka.example:9644",
            "KAFKA.example.",
        ] {
            assert!(names.contains(ours), "{ours}");
        }
        for not_ours in [
            "evil.example",
            "evil.example:9644",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "kafka.example.evil",
            "evil-kafka.example",
            "127.0.0.1:x",
            "127.0.0.1:9644:1",
            "[::1",
            "::1:9644",
            "",
            ":9644",
            "a@127.0.0.1",
            "0x7f.1",
            "[::1]x",
            "localhost@evil",
        ] {
            assert!(!names.contains(not_ours), "{not_ours}");
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn pages_of_other_sites_neither_read_nor_change() {
        let own = ("host", "127.0.0.1:9644");
        let check = |method: Method, more: &[(&str, &str)], is_foreign: bool| {
            let headers = headers(&[&[own], more].concat());
            assert_eq!(
                foreign(&method, &headers).is_some(),
                is_foreign,
                "{method} {more:?}"
            );
        };
        check(Method::GET, &[], false);
        check(
            Method::POST,
            &[
                ("origin", "http://127.0.0.1:9644"),
                ("sec-fetch-site", "same-origin"),
            ],
            false,
        );
        check(
            Method::GET,
            &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
            false,
        );
        check(
            Method::GET,
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
            false,
        );
        check(
            Method::GET,
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
            true,
        );
        check(Method::GET, &[("sec-fetch-site", "same-site")], true);
        check(
            Method::POST,
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
            true,
        );
        for origin in [
            "http://evil.example",
            "null",
            "https://127.0.0.1:9644",
            "http://127.0.0.1:80",
            "http://127.0.0.1",
        ] {
            check(Method::POST, &[("origin", origin)], true);
            check(Method::GET, &[("origin", origin)], true);
        }
    }

    #[test]
    fn a_change_needs_its_header() {
        for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
            assert!(unprepared(&method, &headers(&[])).is_some());
            assert!(unprepared(&method, &headers(&[("X-Ottla-Admin", "1")])).is_none());
        }
        assert!(unprepared(&Method::GET, &headers(&[])).is_none());
    }
}
