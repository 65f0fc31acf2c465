//! The end of a producer: flush, close, and what happens when the sender ends by itself.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Producer, whole_ms};
use crate::driver::Driver;
use crate::error::Error;
use crate::metadata::MetadataCell;
use crate::producer::accumulator::Accumulator;
use crate::producer::callbacks::CallbackQueue;
use crate::producer::commands::Commands;
use crate::producer::incomplete::AllDone;
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
    /// fails with `Closed`, or with `MaybeWritten` because of it where a request was sent. Further
    /// calls wait for the first.
    ///
    /// On the callback thread it returns at once and the close continues in the background.
    ///
    /// - Errors: `Timeout` when something was not done; the fatal error if one has ended the sender
    ///   before.
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        let all_done = self.seal_and_begin_close(limit);
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
        let mut driver = self.lock_driver();
        if let Some(running) = &mut *driver {
            if running.join(left()) {
                *driver = None;
            } else {
                is_done = false;
            }
        }
        drop(driver);
        is_done &= self.join_callbacks(left());
        self.closed(is_done, limit)
    }

    /// Like `close` with delivery.timeout.ms, as a future for any async runtime: by then every
    /// record is acknowledged or given up. It starts with the first poll; dropped before it
    /// completes, the close continues as after dropping the producer.
    ///
    /// It also waits for callbacks, however long they run.
    ///
    /// - Errors: the fatal error if one has ended the sender before.
    ///
    /// ```no_run
    /// # use ottla_client::producer::{Producer, Record};
    /// # async fn example(producer: Producer) -> Result<(), ottla_client::Error> {
    /// drop(producer.send_async(&Record::new("greetings").value(b"goodbye")).await?);
    /// producer.close_async().await
    /// # }
    /// ```
    pub async fn close_async(&self) -> Result<(), Error> {
        let limit = Duration::from_millis(self.config.delivery_timeout_ms);
        let all_done = self.seal_and_begin_close(limit);
        if self.callbacks.is_own_thread() {
            return Ok(());
        }
        all_done.await;
        let ended = self.lock_driver().as_ref().map(Driver::ended);
        if let Some(ended) = ended {
            ended.await;
        }
        self.callbacks.all_run().await;
        self.closed(true, limit)
    }

    /// Accepts no more records, and tells the sender to send the accepted ones and to end.
    fn begin_close(&self, limit: Duration) {
        self.accumulator.close();
        self.commands.close(self.clock.moment().after(limit));
        self.waker.wake();
        self.metadata.close();
    }

    /// Like `begin_close`, where other threads may be sending: what they had accepted by now is
    /// visible to the sender before the command to end.
    fn seal_and_begin_close(&self, limit: Duration) -> AllDone {
        self.accumulator.close();
        let all_done = self.accumulator.incomplete().all_done();
        self.accumulator.seal_all(self.clock.moment());
        self.begin_close(limit);
        all_done
    }

    fn closed(&self, is_done: bool, limit: Duration) -> Result<(), Error> {
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

    fn lock_driver(&self) -> MutexGuard<'_, Option<Driver>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
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
        // By this limit every accepted record is acknowledged or has expired. No other thread is
        // sending, and the sender takes open batches by itself.
        self.begin_close(Duration::from_millis(self.config.delivery_timeout_ms));
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
        self.commands.transactions.end();
        self.accumulator.close();
        self.accumulator
            .fail_all(&error.unwrap_or(Error::Closed), &self.callbacks);
        self.metadata.close();
        self.callbacks.close();
    }
}
