//! The end of a producer: flush, close, and what happens when the sender ends by itself.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Producer, whole_ms};
use crate::error::Error;
use crate::metadata::MetadataCell;
use crate::producer::accumulator::Accumulator;
use crate::producer::callbacks::CallbackQueue;
use crate::producer::commands::Commands;
use crate::wait;

/// After the limit given to `close`: time for the sender to fail the remaining records.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

impl Producer {
    /// Sends everything buffered without lingering and waits until all of it is acknowledged or
    /// given up and its callbacks have run. Does not wait for records that other threads send
    /// meanwhile.
    ///
    /// - Errors: `IllegalState` on the callback thread, where it would wait for itself.
    pub fn flush(&self) -> Result<(), Error> {
        wait::block_on(self.flush_async())
    }

    /// Like `flush`, for at most `limit`.
    ///
    /// - Errors: `Timeout`; the records stay on their way.
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), Error> {
        let deadline = wait::deadline_after(limit);
        match wait::block_on_until(self.flush_async(), deadline, None) {
            Some(result) => result,
            None => Err(Error::Timeout {
                what: format!(
                    "flush: {} batches, {} callbacks",
                    self.accumulator.incomplete_batches(),
                    self.callbacks.backlog()
                )
                .into(),
                limit_ms: whole_ms(limit),
                setting: "the limit of flush",
            }),
        }
    }

    /// Like `flush`, as a future. It starts with the first poll.
    pub async fn flush_async(&self) -> Result<(), Error> {
        if self.callbacks.is_own_thread() {
            return Err(Error::IllegalState {
                message: "flush on the callback thread would wait for the callback that calls it".into(),
            });
        }
        let started = self.clock.moment();
        let all_done = self.accumulator.incomplete().all_done();
        self.accumulator.seal_all(started);
        self.waker.wake();
        all_done.await;
        self.callbacks.all_run().await;
        self.metrics.flushed(self.clock.moment().nanos_since(started));
        Ok(())
    }

    /// Accepts no more records, waits until the accepted ones are acknowledged or given up and
    /// their callbacks have run, and closes the connections. Whatever is not done after `limit`
    /// fails with `Closed`. Further calls wait for the first.
    ///
    /// On the callback thread it returns at once and the close continues in the background.
    ///
    /// - Errors: `Timeout` when something was not done; the fatal error if one has ended the sender
    ///   before.
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        let now = self.clock.moment();
        self.accumulator.close();
        let all_done = self.accumulator.incomplete().all_done();
        self.accumulator.seal_all(now);
        self.commands.close(now.after(limit));
        self.waker.wake();
        self.metadata.close();
        if self.callbacks.is_own_thread() {
            return Ok(());
        }
        let deadline = wait::deadline_after(limit);
        let mut is_done = wait::block_on_until(all_done, deadline, None).is_some();
        let left = || {
            let left = deadline.map_or(limit, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            left.saturating_add(CLOSE_GRACE)
        };
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *driver {
            if running.join(left()) {
                *driver = None;
            } else {
                is_done = false;
            }
        }
        drop(driver);
        is_done &= self.join_callbacks(left());
        if is_done && !self.accumulator.incomplete().is_cut_short() {
            return Ok(());
        }
        if let Some(error) = self.commands.fatal() {
            return Err(error.clone());
        }
        Err(Error::Timeout {
            what: "close of the producer".into(),
            limit_ms: whole_ms(limit),
            setting: "the limit of close",
        })
    }

    fn join_callbacks(&self, limit: Duration) -> bool {
        let deadline = wait::deadline_after(limit);
        if wait::block_on_until(self.callbacks.all_run(), deadline, None).is_none() {
            return false;
        }
        let mut thread = self
            .callback_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.callbacks.is_closed()
            && let Some(thread) = thread.take()
        {
            // Panics of callbacks are caught where they run.
            let _ = thread.join();
        }
        true
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // On return every record is decided. To wait less, call `close` before dropping.
        let _ = self.close(Duration::from_millis(self.config.delivery_timeout_ms));
    }
}

/// Decides everything that remains when the driver's thread ends, so that no caller waits for it.
pub(super) struct Leftovers {
    pub(super) metadata: Arc<MetadataCell>,
    pub(super) accumulator: Arc<Accumulator>,
    pub(super) commands: Arc<Commands>,
    pub(super) callbacks: Arc<CallbackQueue>,
}

impl Leftovers {
    pub(super) fn clear(self, error: Option<Error>) {
        if let Some(error) = &error {
            self.commands.set_fatal(error.clone());
        }
        self.accumulator.close();
        self.accumulator
            .fail_all(&error.unwrap_or(Error::Closed), &self.callbacks);
        self.metadata.close();
        self.callbacks.close();
    }
}
