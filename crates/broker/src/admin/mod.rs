//! The admin address: metrics, the slowest requests and health, over HTTP, away from the event loops.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use ottla_core::node::Node;
use ottla_core::time::{Clock, Moment};
use tokio::sync::oneshot;

use crate::executor::Queues;
use crate::metrics::recorder::Records;
use crate::metrics::tenants::{LOOK_INTERVAL_MS, TenantBooks};
use crate::net::listener::ConnectionCounts;
use crate::net::memory_budget::MemoryBudget;

pub mod debug_requests;
pub mod debug_batches;
pub mod tenants;
pub mod exposition;
pub mod prometheus;
pub mod quotas;

/// What the admin address looks at.
#[derive(Clone)]
pub struct AdminView {
    pub node: Arc<Node>,
    pub records: Records,
    pub connections: Arc<ConnectionCounts>,
    pub queues: Arc<Queues>,
    pub memory: Arc<MemoryBudget>,
    pub tenants: Arc<TenantBooks>,
    pub clock: Arc<dyn Clock>,
    /// When `/metrics` was last read, and how long the event loops had been busy then.
    pub last_scrape: Arc<Mutex<(Moment, u64)>>,
}

/// What a page says.
pub struct PageBody {
    pub content_type: &'static str,
    pub text: String,
}

/// A page of the program around the broker.
#[derive(Clone)]
pub struct Page {
    pub path: &'static str,
    /// Makes the text anew for each request, away from the thread that serves `/health`.
    pub render: Arc<dyn Fn() -> PageBody + Send + Sync>,
}

/// The running HTTP server. Dropping it stops it.
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Admin {
    pub fn start(socket: TcpListener, view: AdminView, pages: Vec<Page>) -> io::Result<Admin> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
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
            .with_state(view.clone());
        for page in pages {
            let render = page.render;
            router = router.route(page.path, get(move || added(render)));
        }
        let thread = std::thread::Builder::new()
            .name("ottla-admin".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else {
                        return;
                    };
                    let serving = axum::serve(socket, router);
                    tokio::select! {
                        _ = serving => {}
                        () = look_at_tenants(&view.tenants) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Admin {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn metrics(State(view): State<AdminView>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        prometheus::render(&view),
    )
}

async fn added(render: Arc<dyn Fn() -> PageBody + Send + Sync>) -> impl IntoResponse {
    match tokio::task::spawn_blocking(move || render()).await {
        Ok(page) => (StatusCode::OK, [(CONTENT_TYPE, page.content_type)], page.text),
        // It panicked; the panic's own line says where.
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(CONTENT_TYPE, "text/plain")],
            "a bug was hit while this page was made\n".to_owned(),
        ),
    }
}

async fn requests(State(view): State<AdminView>) -> impl IntoResponse {
    let totals = view.records.totals(view.clock.moment());
    let now = (view.clock.moment(), view.clock.timestamp());
    (
        [(CONTENT_TYPE, "application/json")],
        debug_requests::render(&totals, now),
    )
}

async fn tenants_page(State(view): State<AdminView>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        tenants::render(&view.tenants),
    )
}

/// Keeps the last hour of the tenants.
async fn look_at_tenants(books: &TenantBooks) {
    let mut interval = tokio::time::interval(Duration::from_millis(LOOK_INTERVAL_MS));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        books.look();
    }
}

async fn quotas_page(State(view): State<AdminView>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], quotas::render(&view.node))
}

async fn batches(State(view): State<AdminView>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        debug_batches::render(&view.node),
    )
}

async fn begin_batches(State(view): State<AdminView>, RawQuery(query): RawQuery) -> impl IntoResponse {
    match debug_batches::begin(&view.node, query.as_deref()) {
        Ok(text) => (StatusCode::OK, text),
        Err(text) => (StatusCode::BAD_REQUEST, text),
    }
}

async fn end_batches(State(view): State<AdminView>) -> impl IntoResponse {
    view.node.batch_times.stop();
    StatusCode::NO_CONTENT
}
