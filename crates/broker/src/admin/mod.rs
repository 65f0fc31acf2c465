//! The admin address: metrics, the slowest requests and health, over HTTP, on a thread apart from
//! the event loops.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ottla_core::node::Node;
use ottla_core::time::Clock;
use ottla_wire::text;

use self::connection_rates::ConnectionRates;
use self::gate::Gate;
use self::names::Names as MetricNames;
use crate::executor::Queues;
use crate::http::guard::{self, Guard, Names};
use crate::http::server::{HttpLimits, HttpServer};
use crate::metrics::recorder::Records;
use crate::metrics::tenants::{LOOK_INTERVAL_MS, TenantBooks};
use crate::net::connection_counts::ConnectionCounts;
use crate::net::memory_budget::MemoryBudget;

pub mod debug_requests;
pub mod debug_batches;
pub mod tenants;
pub mod exposition;
pub mod names;
pub mod cluster;
pub mod topics;
pub mod lag;
pub mod connection_rates;
pub mod confluent;
pub mod reporter;
pub mod kminion;
pub mod prometheus;
pub mod quotas;
pub mod partition;
pub mod records;
pub mod tls;
pub mod gate;
pub mod transactions;

const JSON: &str = "application/json";

/// No request of the admin address needs a body.
const BODY_BYTES_MAX: u64 = 64 * 1024;

/// What the admin address reads.
#[derive(Clone)]
pub struct AdminView {
    pub node: Arc<Node>,
    pub records: Records,
    pub connections: Arc<ConnectionCounts>,
    pub rates: Arc<ConnectionRates>,
    pub queues: Arc<Queues>,
    pub memory: Arc<MemoryBudget>,
    pub tenants: Arc<TenantBooks>,
    /// `None` when no listener has TLS.
    pub tls: Option<tls::TlsView>,
    /// Metrics of the embedding program.
    pub added: Arc<[AddedMetrics]>,
    pub clock: Arc<dyn Clock>,
}

/// A rendered page.
pub struct PageBody {
    pub content_type: &'static str,
    pub text: String,
}

/// A page of the embedding program.
#[derive(Clone)]
pub struct Page {
    pub path: &'static str,
    /// Renders the text for each request, away from the thread that serves `/health`.
    pub render: Arc<dyn Fn() -> PageBody + Send + Sync>,
}

/// Writes metrics of the embedding program at the end of `/metrics`.
pub type AddedMetrics = Arc<dyn Fn(&mut exposition::Page) + Send + Sync>;

/// Makes the pages for people: a router that answers every path which the admin address itself does
/// not serve, and `/tenants` for browsers.
pub type Console = Box<dyn FnOnce(&AdminView) -> Router + Send>;

/// What the embedding program adds to the admin address.
#[derive(Default)]
pub struct Added {
    pub pages: Vec<Page>,
    pub console: Option<Console>,
}

/// The running HTTP server. Dropping it stops it.
pub struct Admin {
    address: SocketAddr,
    _server: HttpServer,
}

impl Admin {
    /// - `names`: the host names under which the address may be asked, besides `localhost` and IP
    ///   addresses.
    pub fn start(
        socket: TcpListener,
        view: AdminView,
        added: Added,
        names: Names,
        gate: Gate,
    ) -> io::Result<Admin> {
        let address = socket.local_addr()?;
        let looked_at = view.clone();
        let server = HttpServer::start(
            "ottla-admin",
            socket,
            router(view, added, names, gate),
            HttpLimits::default(),
            async move { look_around(&looked_at).await },
        )?;
        Ok(Admin {
            address,
            _server: server,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn router(view: AdminView, added: Added, names: Names, gate: Gate) -> Router {
    let console = added.console.map(|make| make(&view));
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/debug/requests", get(requests))
        .route(
            "/debug/batches",
            get(batches).post(begin_batches).delete(end_batches),
        )
        .route("/tenants", get(tenants_page))
        .route("/quotas", get(quotas_page))
        .route("/health", get(|| async { "ok\n" }))
        .route("/ready", get(|| async { "ready\n" }))
        .with_state(view);
    for page in added.pages {
        let render = page.render;
        router = router.route(page.path, get(move || rendered(render)));
    }
    if let Some(console) = console {
        let for_people = middleware::from_fn_with_state(console.clone(), for_people);
        router = router.layer(for_people).fallback_service(console);
    }
    let guard = Guard {
        names: Some(names),
        changes_are_prepared: true,
        body_bytes_max: BODY_BYTES_MAX,
    };
    // The last layer is asked first: pages of other sites do not learn whether there is a token.
    router
        .layer(middleware::from_fn_with_state(gate, gate::check))
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

/// `/tenants` is a document for programs and a page for browsers.
async fn for_people(State(console): State<Router>, request: Request, next: Next) -> Response {
    let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes);
    let is_browser = accept.is_some_and(|accept| accept.starts_with(b"text/html"));
    if !is_browser || request.uri().path() != "/tenants" {
        return next.run(request).await;
    }
    let answered = TowerToHyperService::new(console).call(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// Rendered away from the thread that serves `/health`: with many partitions and groups it takes
/// a while, and it may read records.
async fn metrics(State(view): State<AdminView>, RawQuery(query): RawQuery) -> Response {
    let names = match MetricNames::of_query(query.as_deref()) {
        Ok(names) => names,
        Err(reason) => return (StatusCode::BAD_REQUEST, reason).into_response(),
    };
    let page = move || PageBody {
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        text: prometheus::render(&view, names),
    };
    rendered(Arc::new(page)).await
}

async fn rendered(render: Arc<dyn Fn() -> PageBody + Send + Sync>) -> Response {
    match tokio::task::spawn_blocking(move || render()).await {
        Ok(page) if page.content_type == JSON => json(&page.text),
        Ok(page) => ([(CONTENT_TYPE, page.content_type)], page.text).into_response(),
        // The page panicked; the log line of the panic says where.
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, "text/plain")],
            "a bug was hit while this page was made\n",
        )
            .into_response(),
    }
}

/// A document with names that clients chose, escaped for display in a terminal.
fn json(document: &str) -> Response {
    (
        [(CONTENT_TYPE, JSON)],
        text::printable_json(document).into_owned(),
    )
        .into_response()
}

async fn requests(State(view): State<AdminView>) -> Response {
    let totals = view.records.totals(view.clock.moment());
    let now = (view.clock.moment(), view.clock.timestamp());
    json(&debug_requests::render(&totals, now))
}

async fn tenants_page(State(view): State<AdminView>) -> Response {
    json(&tenants::render(&view.tenants, &view.node.quotas))
}

/// Keeps the history of the tenants over the last hour, and of connections over the last minute.
async fn look_around(view: &AdminView) {
    let mut interval = tokio::time::interval(Duration::from_millis(LOOK_INTERVAL_MS));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        view.tenants.look();
        view.rates.look(&view.connections, view.clock.moment());
    }
}

async fn quotas_page(State(view): State<AdminView>) -> Response {
    json(&quotas::render(&view.node))
}

async fn batches(State(view): State<AdminView>, RawQuery(query): RawQuery) -> Response {
    said(debug_batches::render(&view.node, query.as_deref()))
}

async fn begin_batches(State(view): State<AdminView>, RawQuery(query): RawQuery) -> Response {
    said(debug_batches::begin(&view.node, query.as_deref()))
}

async fn end_batches(State(view): State<AdminView>, RawQuery(query): RawQuery) -> Response {
    said(debug_batches::end(&view.node, query.as_deref()))
}

fn said(document: Result<String, debug_batches::BatchesRefusal>) -> Response {
    match document {
        Ok(document) => json(&document),
        Err((status, reason)) => (status, reason).into_response(),
    }
}
