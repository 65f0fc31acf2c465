//! The collector's HTTP server: paths, limits, and log lines about refused pushes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ottla_broker::http::guard::{self, Guard, Names};
use ottla_broker::http::server::{HttpLimits, HttpServer, Patience};
use ottla_broker::text::printable_json;
use ottla_lab::doctor::history::Collector;
use tokio::sync::{Mutex, Semaphore};

use super::push::{self, Refusal};
use crate::cli::doctor::now_ms;

/// Kafka's telemetry.max.bytes is 1 MiB after compression; a plug-in forwards payloads
/// decompressed.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Requests read concurrently: together at most 256 MiB.
const REQUESTS_MAX: usize = 32;

/// The time in which a whole request must be read and served.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// The head's timeout exceeds a push interval: brokers keep connections open between pushes.
const LIMITS: HttpLimits = HttpLimits {
    connections_max: 256,
    patience: Patience {
        for_head: Duration::from_secs(90),
        for_answer: Duration::from_secs(10),
        answer_bytes_per_second_min: 64 * 1024,
    },
};

const REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct View {
    /// What lines on standard error begin with.
    program: &'static str,
    collector: Arc<Collector>,
    room: Arc<Semaphore>,
    refusals: Arc<Mutex<Refusals>>,
}

/// Refused pushes since the last log line about them.
#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    told: Option<Instant>,
}

/// The running server. Dropping it stops it.
pub struct Server {
    address: SocketAddr,
    _server: HttpServer,
}

impl Server {
    pub fn start(
        program: &'static str,
        socket: TcpListener,
        collector: Arc<Collector>,
    ) -> io::Result<Server> {
        let address = socket.local_addr()?;
        let guard = Guard {
            // Host names are checked only on loopback: other machines may use any name for this
            // one.
            names: address.ip().is_loopback().then(Names::default),
            // Brokers and exporters push without the header that changes otherwise need.
            changes_are_prepared: false,
            body_bytes_max: BODY_BYTES_MAX as u64,
        };
        let router = router(program, collector).layer(middleware::from_fn_with_state(guard, guard::check));
        let server = HttpServer::start("doctor-collect", socket, router, LIMITS, std::future::pending())?;
        Ok(Server {
            address,
            _server: server,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn router(program: &'static str, collector: Arc<Collector>) -> Router {
    let view = View {
        program,
        collector,
        room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        refusals: Arc::default(),
    };
    Router::new()
        .route("/doctor", get(examination))
        .route("/doctor/snapshots", get(snapshots))
        .route("/doctor/promises", get(promises))
        .route("/v1/kafka/push", post(from_plugin))
        .route("/v1/metrics", post(from_exporter))
        .route("/health", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(view.clone(), limited))
        .with_state(view)
}

/// Serves at most `REQUESTS_MAX` requests at a time, each for at most `REQUEST_TIME_MAX`; a sender
/// that gets 503 retries.
async fn limited(State(view): State<View>, request: Request, next: Next) -> Response {
    let Ok(_place) = view.room.try_acquire() else {
        let reason = format!("{REQUESTS_MAX} requests are being served\n");
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    };
    match tokio::time::timeout(REQUEST_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let reason = format!("the request took longer than {} s\n", REQUEST_TIME_MAX.as_secs());
            (StatusCode::REQUEST_TIMEOUT, reason).into_response()
        }
    }
}

async fn from_plugin(State(view): State<View>, headers: HeaderMap, body: Bytes) -> Response {
    match push::from_plugin(&view.collector, &headers, &body, now_ms()) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refuse(&view, refusal).await,
    }
}

async fn from_exporter(State(view): State<View>, headers: HeaderMap, body: Bytes) -> Response {
    match push::from_exporter(&view.collector, &headers, &body, now_ms()) {
        // An ExportMetricsServiceResponse without fields is an empty body.
        Ok(()) => (
            StatusCode::OK,
            [(CONTENT_TYPE, "application/x-protobuf")],
            Vec::new(),
        )
            .into_response(),
        Err(refusal) => refuse(&view, refusal).await,
    }
}

async fn refuse(view: &View, (status, reason): Refusal) -> Response {
    let mut refusals = view.refusals.lock().await;
    refusals.count += 1;
    if refusals
        .told
        .is_none_or(|told| told.elapsed() >= REFUSALS_TOLD_EVERY)
    {
        let clean = crate::cli::doctor::text::clean(&reason);
        eprintln!(
            "{}: {} pushes refused; the last: {clean}",
            view.program, refusals.count
        );
        *refusals = Refusals {
            count: 0,
            told: Some(Instant::now()),
        };
    }
    (status, format!("{reason}\n")).into_response()
}

async fn examination(State(view): State<View>) -> Response {
    as_json(view, |collector| {
        serde_json::to_string(&collector.examine(now_ms()))
    })
    .await
}

async fn snapshots(State(view): State<View>) -> Response {
    as_json(view, |collector| {
        serde_json::to_string(&collector.snapshots(now_ms()))
    })
    .await
}

async fn promises(State(view): State<View>) -> Response {
    as_json(view, |collector| {
        serde_json::to_string(&collector.promises(now_ms()))
    })
    .await
}

/// Renders on another thread: ten thousand verdicts take as long as hundreds of pushes, which must
/// go on meanwhile.
async fn as_json(
    view: View,
    make: impl FnOnce(&Collector) -> serde_json::Result<String> + Send + 'static,
) -> Response {
    let collector = view.collector.clone();
    match tokio::task::spawn_blocking(move || make(&collector)).await {
        Ok(Ok(text)) => {
            let text = printable_json(&text).into_owned();
            ([(CONTENT_TYPE, "application/json")], text).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
