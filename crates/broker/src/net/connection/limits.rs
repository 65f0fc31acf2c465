//! How long a client may take: to send a request, to take its answers, to show any sign of life;
//! and less while others wait for the memory that its request or its answers hold.

use std::time::Duration;

use ottla_core::time::Moment;

use super::super::loop_context::LoopContext;
use super::super::refusal::CloseReason;
use super::Connection;
use super::memory::next_look;

impl Connection {
    /// Returns when to give it a turn even if no event arrives.
    pub fn next_deadline(&self, context: &LoopContext) -> Option<Moment> {
        let limit = match (self.limits_since(), context.settings.idle_max) {
            (Some(since), Some(idle_max)) => Some(since.after(idle_max)),
            _ => None,
        };
        let unmuted = self.muting.look_at(context.now());
        let of_request = self.request_stalls_at();
        let stalls_at = of_request.into_iter().chain(self.reader_stalls_at()).min();
        let memory_look = stalls_at.map(|stalls_at| next_look(stalls_at, context.now()));
        let authentication = self.authentication.as_ref();
        let authentication = authentication.and_then(|authentication| authentication.next_look());
        [
            self.replies.deadline(),
            limit,
            unmuted,
            memory_look,
            authentication,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// By when more of its request must have come if others wait for its memory.
    fn request_stalls_at(&self) -> Option<Moment> {
        self.memory.stalls_at(self.reading.input().bytes().len())
    }

    /// By when the client must have taken more of its answers if others wait for their memory.
    fn reader_stalls_at(&self) -> Option<Moment> {
        let (since, taken_bytes) = self.sending.stuck_since()?;
        self.memory.reader_stalls_at(since, taken_bytes)
    }

    /// Since when something is expected of the client: bytes of its request, taking its replies, or
    /// any sign of life.
    fn limits_since(&self) -> Option<Moment> {
        if !self.sending.is_empty() {
            return Some(self.progress);
        }
        if !self.replies.is_empty() || self.muting.is_muted() || self.memory.is_waiting() {
            return None;
        }
        Some(self.reading.request_began().unwrap_or(self.progress))
    }

    /// Closes connections whose clients have exceeded a time limit (`connections.max.idle.ms`).
    pub fn check_limits(&self, context: &LoopContext, now: Moment) -> Result<(), CloseReason> {
        if let Some(authentication) = &self.authentication {
            authentication.check(now)?;
        }
        if context.memory.waiting() > 0 {
            let is_over = |stalls_at: Option<Moment>| stalls_at.is_some_and(|stalls_at| stalls_at <= now);
            if is_over(self.request_stalls_at()) {
                return Err(CloseReason::RequestInTheWay(self.reading.request_bytes()));
            }
            if is_over(self.reader_stalls_at()) {
                return Err(CloseReason::ReaderInTheWay(self.answer_bytes()));
            }
        }
        let (Some(since), Some(limit)) = (self.limits_since(), context.settings.idle_max) else {
            return Ok(());
        };
        if now < since.after(limit) {
            return Ok(());
        }
        Err(self.overdue(limit))
    }

    fn overdue(&self, limit: Duration) -> CloseReason {
        if !self.sending.is_empty() {
            CloseReason::ReaderTooSlow(limit)
        } else if self.reading.request_began().is_some() {
            CloseReason::RequestTooSlow(limit)
        } else {
            CloseReason::Idle(limit)
        }
    }
}
