//! Answers on their way to the client: what the socket has not taken yet, and the requests that
//! are accounted for once it has.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::AsFd;

use ottla_core::services::Payer;
use ottla_core::time::Moment;
use ottla_log::disk::FileRegion;
use ottla_wire::frame::encode_response_header;

use super::super::cold_region::{COLD_READ_BYTES, ColdPath, ColdRegion};
use super::super::loop_context::LoopContext;
use super::super::mailbox::OwnWaker;
use super::super::output::{COPIED_BYTES_MAX, Flushed, Output, OutputError};
use super::super::refusal::CloseReason;
use super::super::transport::Transport;
use super::REPLY_BYTES_MAX_TIGHT;
use super::accounting::IN_FLIGHT_MAX;
use super::served_request::ServedRequest;

/// Capacity for unsent requests that a connection keeps at least, and above which it is given back.
const UNSENT_KEPT_MIN: usize = 4;
const UNSENT_KEPT_MAX: usize = 64;

/// A request whose answer is enqueued.
struct Unsent {
    /// The stream position at which the answer ends.
    end: u64,
    reply_bytes: u64,
    request: ServedRequest,
}

/// Ranges of files that were fetched from the device while answers were sent.
#[derive(Clone, Copy, Default)]
pub(super) struct ColdRegions {
    pub count: u32,
    pub bytes: u64,
}

/// A request that has been answered completely.
pub(super) struct Answered {
    pub request: ServedRequest,
    pub reply_bytes: u64,
    /// Since the answer before it.
    pub cold: ColdRegions,
}

pub(super) struct Sending {
    output: Output,
    is_writable: bool,
    /// The socket did not take everything: since when, and at which stream position. Nothing more
    /// is read until it has.
    stuck: Option<(Moment, u64)>,
    /// Sending was interrupted because the turn was over.
    is_cut: bool,
    unsent: VecDeque<Unsent>,
    /// Since the last answer was completed.
    cold: ColdRegions,
}

impl Default for Sending {
    fn default() -> Sending {
        Sending {
            output: Output::default(),
            is_writable: true,
            stuck: None,
            is_cut: false,
            unsent: VecDeque::new(),
            cold: ColdRegions::default(),
        }
    }
}

impl Sending {
    pub fn is_empty(&self) -> bool {
        self.output.is_empty()
    }

    /// The number of answers that the socket has not taken completely.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// An estimate of its memory.
    pub fn memory_bytes(&self) -> usize {
        self.unsent.len() * size_of::<Unsent>() + self.output.memory_bytes()
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// Since when the client has not taken everything, and how many bytes it has taken since.
    pub fn stuck_since(&self) -> Option<(Moment, u64)> {
        let (since, sent) = self.stuck?;
        Some((since, self.output.sent() - sent))
    }

    /// Whether it was interrupted and can go on right away.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many of them are of requests that move records; more than `IN_FLIGHT_MAX` are not
    /// counted.
    pub fn moving_records(&self) -> usize {
        let moving = self.unsent.iter().filter(|unsent| unsent.request.moves_records());
        moving.take(IN_FLIGHT_MAX).count()
    }

    pub fn on_writable(&mut self) {
        self.is_writable = true;
    }

    /// Gives back spare memory of what stays until the client reads.
    pub fn shrink_if_stuck(&mut self) {
        if self.is_stuck() {
            self.output.shrink();
        }
    }

    /// Enqueues the reply in `context.reply`.
    pub fn push(&mut self, context: &mut LoopContext, request: ServedRequest) -> Result<(), CloseReason> {
        context.header.clear();
        // KIP-511: the answer to an unknown version of ApiVersions is version 0; its header is the
        // same in all versions.
        if request.has_header {
            encode_response_header(
                &mut context.header,
                request.api_key,
                request.api_version,
                request.correlation_id,
            );
        }
        let before = self.output.enqueued();
        let is_tight = context.memory.is_tight();
        let copied_bytes_max = if is_tight {
            REPLY_BYTES_MAX_TIGHT
        } else {
            COPIED_BYTES_MAX
        };
        let (header, spare) = (&context.header, &mut context.spare);
        let pushed = self
            .output
            .push(header, &mut context.reply, copied_bytes_max, spare);
        let kept_bytes = pushed.map_err(|error| refusal_of(&error))?;
        context
            .expected
            .answered(request.api_key, request.is_of_thread, kept_bytes, is_tight);
        let end = self.output.enqueued();
        self.unsent.push_back(Unsent {
            end,
            reply_bytes: end - before,
            request,
        });
        Ok(())
    }

    /// Sends what the socket takes and the turn allows; returns whether it took anything.
    pub fn flush(
        &mut self,
        context: &mut LoopContext,
        (socket, transport): (&TcpStream, &mut Transport),
        waker: &mut OwnWaker,
        payer: Payer,
    ) -> Result<bool, CloseReason> {
        if !self.is_writable || (self.output.is_empty() && !transport.has_unsent()) {
            return Ok(false);
        }
        let before = self.output.sent();
        let began = context.now();
        let (clock, turn_ends) = (&context.clock, context.turn.ends());
        let is_over = || clock.moment() >= turn_ends;
        let (cold, cold_reads) = (&mut self.cold, &context.cold_reads);
        let fetch_cold = |region: FileRegion, path: ColdPath| {
            cold.count += 1;
            cold.bytes += region.bytes.min(COLD_READ_BYTES);
            ColdRegion::fetch(region, path, waker.get().clone(), cold_reads, payer)
        };
        let flushed = match transport {
            Transport::Plain => self
                .output
                .flush(socket.as_fd(), &mut context.spare, is_over, fetch_cold),
            Transport::Tls(session) => {
                let pages = (&mut context.tls_pages, &mut context.spare);
                self.output
                    .flush_encrypted(session, socket, pages, is_over, fetch_cold)
            }
        };
        let flushed = flushed.map_err(|error| refusal_of(&error))?;
        self.is_writable = flushed != Flushed::SocketFull;
        self.is_cut = flushed == Flushed::Cut;
        let now = context.tick();
        self.stuck = match flushed {
            Flushed::All => None,
            Flushed::SocketFull => self.stuck.or(Some((now, self.output.sent()))),
            Flushed::Cold | Flushed::Cut => self.stuck,
        };
        context.turn.sending_micros += now.micros_since(began);
        Ok(self.output.sent() != before)
    }

    /// Takes out the first request whose answer the socket has taken completely.
    pub fn take_answered(&mut self) -> Option<Answered> {
        let sent = self.output.sent();
        let unsent = self.unsent.pop_front_if(|unsent| unsent.end <= sent)?;
        if self.unsent.is_empty() && self.unsent.capacity() > UNSENT_KEPT_MAX {
            self.unsent.shrink_to(UNSENT_KEPT_MIN);
        }
        Some(Answered {
            request: unsent.request,
            reply_bytes: unsent.reply_bytes,
            cold: std::mem::take(&mut self.cold),
        })
    }

    /// A request whose client expects no answer.
    pub fn answered_silently(&mut self, request: ServedRequest) -> Answered {
        Answered {
            request,
            reply_bytes: 0,
            cold: std::mem::take(&mut self.cold),
        }
    }
}

fn refusal_of(error: &OutputError) -> CloseReason {
    match error {
        OutputError::Socket(_) => CloseReason::Gone,
        OutputError::File(error) => CloseReason::ReplyUnreadable(error.to_string()),
    }
}
