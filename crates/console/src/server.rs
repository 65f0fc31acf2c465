//! The console over HTTP: a router for the admin address, below its checks of names and sites.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::asset::{self, Asset};
use crate::events::Events;
use crate::page::Query;
use crate::page::messages::Field;
use crate::site::{Answer, Ask, Site};

/// Nothing is loaded from elsewhere, no script or style is in a page itself, and no page of another
/// site may hold one of these in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A report has its style in itself and does nothing, not even what a page of this address may.
const FRAMED_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Smaller answers are not worth compressing.
const GZIP_BYTES_MIN: usize = 1_024;

/// The longest address of a page; a client id has at most 32 KiB, its page is then not reachable.
const ADDRESS_BYTES_MAX: usize = 8 * 1_024;

#[derive(Clone)]
struct Console {
    site: Arc<Site>,
    events: Arc<Events>,
}

/// Returns the router; every path that is not found elsewhere is answered by it.
pub fn router(site: Arc<Site>) -> Router {
    let events = Events::new(site.clone());
    Router::new()
        .fallback(answer)
        .with_state(Console { site, events })
}

/// Whether a request comes from someone who reads pages, as opposed to a program.
pub fn wants_html(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains(kind))
}

async fn answer(State(console): State<Console>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allowed = [(ALLOW, "GET, HEAD")];
        return (
            StatusCode::METHOD_NOT_ALLOWED,
            allowed,
            "the console only reads\n",
        )
            .into_response();
    }
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if path.len() + query.len() > ADDRESS_BYTES_MAX {
        return (StatusCode::URI_TOO_LONG, "the address is too long\n").into_response();
    }
    let takes_gzip = takes_gzip(request.headers());
    if let Some(asset) = Asset::find(&path) {
        return of_asset(asset, takes_gzip);
    }
    if path == "/events" {
        return of_events(&console.events, &query);
    }
    let wants_json = accepts(request.headers(), "application/json") && !wants_html(request.headers());
    let made = tokio::task::spawn_blocking(move || {
        if let Some(field) = console.site.field(&path, &query) {
            return field.map_or_else(|refused| of_page(refused, takes_gzip), of_field);
        }
        let answer = console.site.answer(Ask {
            path: &path,
            query: &query,
            wants_json,
        });
        of_page(answer, takes_gzip)
    });
    // The page panicked; the log line of the panic says where.
    made.await.unwrap_or_else(|_| {
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            "a bug was hit while this page was made\n",
        )
            .into_response()
    })
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let encodings = headers
        .get(ACCEPT_ENCODING)
        .and_then(|encodings| encodings.to_str().ok());
    encodings.is_some_and(|encodings| {
        let mut all = encodings
            .split(',')
            .map(|encoding| encoding.trim().to_ascii_lowercase());
        all.any(|encoding| encoding.split(';').next() == Some("gzip") && !encoding.ends_with("q=0"))
    })
}

fn of_asset(asset: &'static Asset, takes_gzip: bool) -> Response {
    let kept = [
        (CONTENT_TYPE, asset.content_type),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (VARY, "accept-encoding"),
    ];
    match takes_gzip {
        true => (kept, [(CONTENT_ENCODING, "gzip")], asset.gzip()).into_response(),
        false => (kept, asset.bytes).into_response(),
    }
}

fn of_page(answer: Answer, takes_gzip: bool) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let is_compressed = takes_gzip && answer.body.len() >= GZIP_BYTES_MIN;
    let body = match is_compressed {
        true => asset::gzip(answer.body.as_bytes()),
        false => answer.body.into_bytes(),
    };
    let mut response = (status, [(CONTENT_TYPE, answer.content_type)], body).into_response();
    let headers = response.headers_mut();
    let policy = match answer.is_framed {
        true => FRAMED_POLICY,
        // A document in a sandbox cannot have it: browsers show an error instead.
        false => {
            headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
            POLICY
        }
    };
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (VARY, "accept, accept-encoding"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A file: what a record holds is never a document of this address.
fn of_field(field: Field) -> Response {
    let disposition = format!("attachment; filename=\"{}\"", field.file_name);
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_SECURITY_POLICY, FRAMED_POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, [(CONTENT_DISPOSITION, disposition)], field.bytes).into_response()
}

fn of_events(events: &Arc<Events>, query: &str) -> Response {
    let query = Query::read(query);
    let Some(address) = query.get("page").filter(|address| address.starts_with('/')) else {
        return (StatusCode::BAD_REQUEST, "?page=ADDRESS names the page\n").into_response();
    };
    let Some(pieces) = events.open(address.to_owned()) else {
        let later = [(RETRY_AFTER, "10")];
        let reason = "sixteen viewers have a live page; reload for new values\n";
        return (StatusCode::SERVICE_UNAVAILABLE, later, reason).into_response();
    };
    let kinds = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (kinds, Body::new(Pieces(pieces))).into_response()
}

/// A body that is sent while it is made.
struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (encodings, expected) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.8", true),
            ("gzip;q=0", false),
            ("identity", false),
        ] {
            assert_eq!(
                takes_gzip(&headers(ACCEPT_ENCODING, encodings)),
                expected,
                "{encodings}"
            );
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn programs_get_json_and_browsers_pages() {
        assert!(wants_html(&headers(
            ACCEPT,
            "text/html,application/xhtml+xml,*/*;q=0.8"
        )));
        assert!(!wants_html(&headers(ACCEPT, "*/*")) && !wants_html(&HeaderMap::new()));
    }
}
