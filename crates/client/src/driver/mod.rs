//! The thread that runs a machine: sockets, name resolution, TLS, sleeping and waking. All I/O of
//! the client is here.

mod waker;
pub(crate) mod timers;
mod resolver;
mod frame_pool;
mod receiver;
mod socket;
#[cfg(feature = "tls")]
mod stores;
#[cfg(feature = "tls")]
mod trust;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
#[cfg(feature = "oauth")]
mod login;
#[cfg(not(feature = "oauth"))]
#[path = "without_login.rs"]
mod login;
mod link;
mod engine;

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::events;
use crate::metrics::NetworkMetrics;
use crate::network::io::{Machine, Wake};
use crate::time::{Clock, SystemClock};

use self::engine::{Engine, WAKER_TOKEN};
use self::timers::Timers;
use self::waker::DriverWaker;

/// A running driver; its thread ends when the machine is finished.
#[derive(Debug)]
pub struct Driver {
    thread: Option<JoinHandle<()>>,
    ended: Arc<Ended>,
}

/// Called on the driver's thread at its very end; `Some` is why it ended before the machine was
/// finished.
type AtEnd = Box<dyn FnOnce(Option<Error>) + Send>;

/// Created before the machine, so that the machine's shared parts can hold the waker.
pub struct DriverSetup {
    engine: Engine,
    at_end: Vec<AtEnd>,
}

/// Set by the thread when it ends, by return or by panic.
#[derive(Debug, Default)]
struct Ended {
    state: Mutex<EndState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EndState {
    is_ended: bool,
    wakers: Vec<Waker>,
}

impl Ended {
    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DriverSetup {
    /// Waits for the first token where a server gives them (OAUTHBEARER).
    ///
    /// - Errors: `Config` for unreadable key stores; `Disconnected` when the system has no more
    ///   descriptors; `Authentication` when the server gives no token.
    pub fn new(config: &Arc<ClientConfig>, metrics: &Arc<NetworkMetrics>) -> Result<DriverSetup, Error> {
        for warning in &config.warnings {
            events::configuration(&config.client_id, warning);
        }
        let no_descriptors = |error: std::io::Error| Error::Disconnected {
            address: "the system's poll".into(),
            reason: error.to_string().into(),
        };
        let poll = mio::Poll::new().map_err(no_descriptors)?;
        let waker = mio::Waker::new(poll.registry(), WAKER_TOKEN).map_err(no_descriptors)?;
        let engine = Engine::new(
            Arc::clone(config),
            Arc::clone(metrics),
            Arc::new(SystemClock::default()),
            poll,
            Arc::new(DriverWaker::new(waker)),
        )?;
        Ok(DriverSetup {
            engine,
            at_end: Vec::new(),
        })
    }

    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(self.engine.waker()) as Arc<dyn Wake>
    }

    /// The clock behind the machine's moments.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(self.engine.clock())
    }

    /// Time limits for futures that wait for the machine.
    pub(crate) fn timers(&self) -> Arc<Timers> {
        Arc::clone(self.engine.timers())
    }

    /// Calls `hook` when the thread ends: after the machine has finished (`None`), or because it
    /// panicked or the operating system failed (`IllegalState` with the text). The hook must
    /// release everything that waits for the machine, which is dropped before.
    pub fn at_end(&mut self, hook: impl FnOnce(Option<Error>) + Send + 'static) {
        self.at_end.push(Box::new(hook));
    }

    /// Starts the thread; `name` is its name, e.g. `ottla-producer`.
    ///
    /// - Errors: `IllegalState` when the operating system refuses the thread.
    pub fn start(self, name: &str, machine: Box<dyn Machine>) -> Result<Driver, Error> {
        let ended = Arc::new(Ended::default());
        let signal = EndSignal(Arc::clone(&ended));
        let (engine, at_end) = (self.engine, self.at_end);
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || run(engine, machine, at_end, signal))
            .map_err(|error| Error::IllegalState {
                message: format!("no thread for {name}: {error}").into(),
            })?;
        Ok(Driver {
            thread: Some(thread),
            ended,
        })
    }
}

fn run(mut engine: Engine, mut machine: Box<dyn Machine>, at_end: Vec<AtEnd>, signal: EndSignal) {
    // Unwind safe: neither engine nor machine is used after a panic; both are dropped.
    let outcome = panic::catch_unwind(AssertUnwindSafe(move || {
        let result = engine.run(&mut *machine);
        // Sockets close, and the machine's pending tickets fail, before `at_end` runs.
        drop(machine);
        result
    }));
    let error = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("the client's thread ended: {error}")),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no text");
            Some(format!("the client's thread panicked: {text}"))
        }
    };
    let error = error.map(|message| Error::IllegalState {
        message: message.into(),
    });
    for hook in at_end {
        hook(error.clone());
    }
    drop(signal);
}

/// Signals that the thread has ended even if a hook panics.
struct EndSignal(Arc<Ended>);

impl Drop for EndSignal {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_ended = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Driver {
    /// Waits for the thread to end; false when it did not within `limit`.
    pub fn join(&mut self, limit: Duration) -> bool {
        let (state, _) = self
            .ended
            .changed
            .wait_timeout_while(self.ended.lock(), limit, |state| !state.is_ended)
            .unwrap_or_else(PoisonError::into_inner);
        if !state.is_ended {
            return false;
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            // A hook's panic has already been printed by the panic hook.
            let _ = thread.join();
        }
        true
    }

    /// Whether the thread has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.lock().is_ended
    }

    /// Completes when the thread has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let ended = Arc::clone(&self.ended);
        poll_fn(move |context| {
            let mut state = ended.lock();
            if state.is_ended {
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !state.wakers.iter().any(|known| known.will_wake(waker)) {
                state.wakers.push(waker.clone());
            }
            Poll::Pending
        })
    }
}

impl fmt::Debug for DriverSetup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DriverSetup")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
#[cfg(feature = "tls")]
mod tls_tests;
