//! Connections of an HTTP address: few, and each only for as long as it is used.
//!
//! A connection costs a descriptor of the process, and its answer costs memory until it is taken.
//! So their number is limited: when all places are taken, a new connection gets the place of the
//! one that has been idle longest, and waits only while all of them are being answered. A peer that
//! is slow to send a head or to take an answer is disconnected, and where answers that were not
//! taken are together too large, so is the one that leaves the most.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::warn;

use super::pulse::{Pulse, Watched};
use crate::rate_limit::RateLimit;

/// The longest head of a request, including its target.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// All answers that were not taken yet, besides the newest: the doctor's snapshots of 10,000
/// clients have about 100 MB.
const UNSENT_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// How often to check for slow peers.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How long accepting pauses when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pages rendered at the same time, away from the thread that serves connections.
const PAGES_MADE_MAX: usize = 2;

/// Time limits for a peer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the connection, or the end of the previous answer, to the last byte of a request's
    /// head.
    pub for_head: Duration,
    /// Grace period for an answer that the socket does not take at once, and the rate at which it
    /// must be taken after that.
    pub for_answer: Duration,
    pub answer_bytes_per_second_min: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            for_head: Duration::from_secs(10),
            for_answer: Duration::from_secs(10),
            answer_bytes_per_second_min: 64 * 1024,
        }
    }
}

impl Patience {
    pub(super) fn for_sending(&self, taken_bytes: u64) -> Duration {
        self.for_answer + Duration::from_millis(taken_bytes * 1_000 / self.answer_bytes_per_second_min)
    }
}

/// Limits on the number of connections and their duration.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    pub connections_max: usize,
    pub patience: Patience,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            connections_max: 32,
            patience: Patience::default(),
        }
    }
}

/// A running server on a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct HttpServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl HttpServer {
    /// Serves until dropped, and runs `beside` on the same thread.
    pub fn start(
        thread_name: &str,
        socket: TcpListener,
        router: Router,
        limits: HttpLimits,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<HttpServer> {
        socket.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(PAGES_MADE_MAX)
            .enable_io()
            .enable_time()
            .build()?;
        let thread = std::thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else {
                        return;
                    };
                    tokio::select! {
                        () = accept(socket, router, limits) => {}
                        () = beside => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(HttpServer {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Places {
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    pulses: BTreeMap<u64, Arc<Pulse>>,
}

impl Places {
    /// Returns a place as soon as one is free.
    async fn take(self: &Arc<Self>, connections_max: usize) -> ConnectionPlace {
        loop {
            if let Some(place) = self.try_take(connections_max) {
                return place;
            }
            self.freed.notified().await;
        }
    }

    fn try_take(self: &Arc<Self>, connections_max: usize) -> Option<ConnectionPlace> {
        let mut taken = self.lock();
        if taken.pulses.len() >= connections_max {
            let waiting = taken.pulses.iter();
            let waiting = waiting.filter_map(|(number, pulse)| Some((pulse.waiting_since()?, *number)));
            let (_, longest) = waiting.min()?;
            let pulse = taken.pulses.remove(&longest)?;
            pulse.evicted.notify_one();
        }
        let number = taken.next;
        taken.next += 1;
        let pulse = Arc::new(Pulse::new(Instant::now()));
        taken.pulses.insert(number, pulse.clone());
        Some(ConnectionPlace {
            number,
            pulse,
            places: self.clone(),
        })
    }

    /// Makes room for an answer: those who leave most of theirs lose their connections.
    fn make_room(&self, newest: &Pulse, bytes: u64) {
        newest.holds(0);
        let taken = self.lock();
        let mut pulses: Vec<&Arc<Pulse>> = taken.pulses.values().collect();
        pulses.sort_by_key(|pulse| pulse.unsent_bytes());
        let mut unsent: u64 = pulses.iter().map(|pulse| pulse.unsent_bytes()).sum();
        while unsent.saturating_add(bytes) > UNSENT_BYTES_MAX
            && let Some(largest) = pulses.pop().filter(|pulse| pulse.unsent_bytes() > 0)
        {
            unsent -= largest.unsent_bytes();
            largest.holds(0);
            largest.evicted.notify_one();
        }
        newest.holds(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; given back when dropped.
struct ConnectionPlace {
    number: u64,
    pulse: Arc<Pulse>,
    places: Arc<Places>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.lock().pulses.remove(&self.number);
        self.places.freed.notify_one();
    }
}

async fn accept(socket: tokio::net::TcpListener, router: Router, limits: HttpLimits) {
    let places = Arc::new(Places::default());
    let failures = RateLimit::per_second(1);
    loop {
        match socket.accept().await {
            Ok((connection, _)) => {
                let place = places.take(limits.connections_max).await;
                tokio::spawn(serve(connection, place, router.clone(), limits.patience));
                // Lets a connection that has already sent its request become busy before the next
                // one may evict it.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if let Some(suppressed) = failures.pass() {
                    warn!(%error, suppressed, "HTTP connections cannot be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, place: ConnectionPlace, router: Router, patience: Patience) {
    let pulse = place.pulse.clone();
    let pages = TowerToHyperService::new(router);
    let of_requests = pulse.clone();
    let places = place.places.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        of_requests.answering();
        // An answer to HEAD has no body, and ends at once.
        let has_body = request.method() != Method::HEAD;
        let (pulse, answer) = (of_requests.clone(), pages.call(request));
        let places = places.clone();
        async move {
            let answer = answer.await;
            let bytes = answer
                .as_ref()
                .map_or(0, |answer| answer.body().size_hint().lower());
            places.make_room(&pulse, if has_body { bytes } else { 0 });
            match has_body && answer.as_ref().is_ok_and(is_stream) {
                true => pulse.streaming(),
                false => pulse.answered(Instant::now()),
            }
            answer
        }
    });
    let connection = http1::Builder::new()
        .half_close(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Watched::new(socket, pulse.clone())), service);
    tokio::select! {
        // An error is the peer's concern; hyper has answered it if possible.
        _ = connection => {}
        () = pulse.evicted.notified() => {}
        () = slow(&pulse, &patience) => {}
    }
    drop(place);
}

/// Whether the body is made while it is sent, for as long as the peer reads it.
fn is_stream<B>(answer: &Response<B>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == b"text/event-stream")
}

/// Returns when the peer has exceeded a time limit.
async fn slow(pulse: &Pulse, patience: &Patience) {
    while !pulse.is_over(Instant::now(), patience) {
        tokio::time::sleep(LOOK_INTERVAL.min(patience.for_head)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_nobody_takes_make_room_for_the_newest_the_largest_first() {
        let places = Arc::new(Places::default());
        let open: Vec<ConnectionPlace> = (0..4).map(|_| places.try_take(4).expect("free")).collect();
        let mib = |place: usize, mib: u64| places.make_room(&open[place].pulse, mib << 20);
        let unsent = || {
            open.iter()
                .map(|place| place.pulse.unsent_bytes() >> 20)
                .collect::<Vec<_>>()
        };
        mib(0, 30);
        mib(1, 60);
        mib(2, 20);
        assert_eq!(unsent(), [30, 60, 20, 0]);
        mib(3, 40);
        assert_eq!(unsent(), [30, 0, 20, 40]);
        // One answer larger than all may be is sent alone.
        mib(3, 200);
        assert_eq!(unsent(), [0, 0, 0, 200]);
        mib(0, 1);
        assert_eq!(unsent(), [1, 0, 0, 0]);
    }
}
