//! The end of a consumer: close, drop, and leaving the group.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use super::exchange::Command;
use super::front::{Consumer, Source};
use super::group::Offsets;
use crate::error::Error;
use crate::time::Moment;

/// How long the machine may take after `Drop` to leave the group; `Drop` does not wait for it.
const FAREWELL_MS: u64 = 1000;
/// Kafka's limit of a close without one: `Consumer.DEFAULT_CLOSE_TIMEOUT_MS`.
const CLOSE_MS: u64 = 30_000;

impl Consumer {
    /// Commits automatically if enabled, calls the rebalance listener, leaves the group and ends
    /// the thread. Afterwards every call returns `Closed`; closing again does nothing.
    ///
    /// - Errors: `Timeout` when this took longer than `timeout`; the consumer is closed
    ///   nevertheless.
    pub fn close(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let deadline = self.now().after_ms(timeout_ms);
        self.begin_close(deadline);
        let has_left = self.run_calls_until_left(deadline);
        self.end_close();
        let left = Duration::from_nanos(deadline.nanos_since(self.now()));
        // The thread needs a moment even when there is nothing to wait for.
        let has_ended = self.driver.join(left.max(Duration::from_millis(100)));
        if has_left && has_ended {
            return Ok(());
        }
        Err(close_timeout(timeout_ms))
    }

    /// Like `close` with 30 seconds, as a future for any async runtime. It starts with the first
    /// poll; the rebalance listener is called inside it. Dropped before it completes, the consumer
    /// can be closed again.
    ///
    /// - Errors: as `close`.
    ///
    /// ```no_run
    /// # use ottla_client::consumer::Consumer;
    /// # async fn example(mut consumer: Consumer) -> Result<(), ottla_client::Error> {
    /// for record in &consumer.recv().await? {
    ///     println!("{:?}", record.value);
    /// }
    /// consumer.commit().await?;
    /// consumer.close_async().await
    /// # }
    /// ```
    pub async fn close_async(&mut self) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        let deadline = self.now().after_ms(CLOSE_MS);
        self.begin_close(deadline);
        // The machine ends this wait at the deadline.
        poll_fn(|context| self.poll_left(context)).await;
        let is_in_time = self.now() < deadline;
        self.end_close();
        self.driver.ended().await;
        match is_in_time {
            true => Ok(()),
            false => Err(close_timeout(CLOSE_MS)),
        }
    }

    fn begin_close(&self, deadline: Moment) {
        self.exchange.lock().has_left = false;
        self.exchange.command(Command::Close { deadline });
    }

    fn end_close(&mut self) {
        self.finish_async_commits();
        self.is_closed = true;
        self.source = Source::Nowhere;
    }

    /// Returns false when the deadline came first.
    pub(super) fn run_calls_until_left(&mut self, deadline: Moment) -> bool {
        loop {
            self.run_calls();
            let state = self.exchange.lock();
            if state.has_left || state.is_ended {
                return true;
            }
            if !state.calls.is_empty() && !self.is_in_listener {
                continue;
            }
            let left_nanos = deadline.nanos_since(self.now());
            if left_nanos == 0 {
                return false;
            }
            drop(self.exchange.wait(state, Duration::from_nanos(left_nanos)));
        }
    }

    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.run_calls();
            let mut state = self.exchange.lock();
            if state.has_left || state.is_ended {
                return Poll::Ready(());
            }
            if state.calls.is_empty() || self.is_in_listener {
                state.add_waker(context.waker());
                return Poll::Pending;
            }
        }
    }
}

fn close_timeout(timeout_ms: u64) -> Error {
    Error::Timeout {
        what: "closing the consumer".into(),
        limit_ms: timeout_ms,
        setting: "close(timeout)",
    }
}

/// Async runtimes move futures between threads.
const _: fn(&mut Consumer) = |consumer| {
    fn check(_future: impl Send) {}
    check(consumer.close_async());
};

/// See [`Consumer`]. `close` is the orderly way.
impl Drop for Consumer {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let mut state = self.exchange.lock();
        state.is_abandoned = true;
        let calls = std::mem::take(&mut state.calls);
        let acknowledged = calls.into_iter().map(|call| Command::Acknowledge {
            call_id: call.id,
            consumed: Offsets::new(),
        });
        state.commands.extend(acknowledged);
        drop(state);
        let deadline = self.now().after_ms(FAREWELL_MS);
        self.exchange.command(Command::Close { deadline });
    }
}
