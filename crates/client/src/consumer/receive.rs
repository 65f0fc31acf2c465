//! `poll` for asynchronous code, for any async runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::front::{Consumer, has_news};
use super::records::ConsumerRecords;
use crate::error::Error;

/// The future of [`Consumer::recv`].
#[derive(Debug)]
pub struct Receive<'a> {
    consumer: &'a mut Consumer,
    has_begun: bool,
}

impl Consumer {
    /// Like `poll` without a limit: returns at least one record, or an error. Dropping the future
    /// loses nothing.
    ///
    /// Rebalance listeners and commit callbacks run inside it; while it is awaited the member
    /// counts as polling (`max.poll.interval.ms`).
    pub fn recv(&mut self) -> Receive<'_> {
        Receive {
            consumer: self,
            has_begun: false,
        }
    }
}

impl Future for Receive<'_> {
    type Output = Result<ConsumerRecords, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_begun {
            if let Err(error) = self.consumer.begin_poll() {
                return Poll::Ready(Err(error));
            }
            self.has_begun = true;
        }
        loop {
            match self.consumer.take_ready() {
                Ok(records) if records.is_empty() => {}
                result => return Poll::Ready(result),
            }
            let mut state = self.consumer.exchange.lock();
            if !has_news(&state) && !self.consumer.exchange.is_woken_up() {
                state.add_waker(context.waker());
                drop(state);
                // The machine must know the waker, to call it for an automatic commit.
                if self.consumer.config.auto_commit_enabled {
                    self.consumer.exchange.wake_driver();
                }
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            self.consumer.end_poll();
        }
    }
}
