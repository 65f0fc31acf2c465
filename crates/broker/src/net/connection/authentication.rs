//! A connection of a listener with SASL: it serves nothing but authentication until its client is
//! authenticated (KIP-152), and authenticates again when its session ends (KIP-368).
//!
//! The exchange itself is `ottla_core::sasl`. What needs the connection is here: time limits, and
//! the delay of a refusal. During the delay the connection is not read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ottla_core::pending::Handled;
use ottla_core::reply::ReplyBuffer;
use ottla_core::request::Request;
use ottla_core::sasl::{SaslFailure, SaslServer, SaslStep};
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::RequestHeader;
use tracing::{debug, warn};

use super::super::authentication_counts::Means;
use super::super::loop_context::LoopContext;
use super::super::mailbox::NewConnection;
use super::super::refusal::CloseReason;
use super::Connection;
use super::served_request::ServedRequest;
use crate::metrics::activity::Gap;

/// How long a client may take to accept the answer that refuses it.
const REFUSAL_GRACE: Duration = Duration::from_secs(1);

pub(super) struct Authentication {
    server: SaslServer,
    /// By when the client must be authenticated.
    deadline: Moment,
    timeout: Duration,
    /// `sasl.server.max.receive.size`
    request_bytes_max: i32,
    refusal: Option<Refusal>,
}

/// A client that failed, until it is told.
struct Refusal {
    due: Moment,
    /// `None`: there is none, or it is on its way.
    answer: Option<(ServedRequest, ReplyBuffer)>,
    is_told: bool,
}

impl Authentication {
    /// `None`: the listener has no SASL.
    pub fn of(new: &NewConnection, context: &LoopContext) -> Option<Box<Authentication>> {
        let security = context.service.listener_security(&new.listener_name)?;
        let request_bytes_max = security.sasl.as_ref()?.request_bytes_max;
        let timeout = context.settings.authentication.timeout;
        Some(Box::new(Authentication {
            server: SaslServer::default(),
            deadline: context.now().after(timeout.saturating_sub(new.handshake_time)),
            timeout,
            request_bytes_max,
            refusal: None,
        }))
    }

    fn is_done(&self) -> bool {
        self.server.is_authenticated()
    }

    /// The largest request at this point.
    fn request_bytes_max(&self, once_done: i32) -> i32 {
        if self.is_done() {
            once_done
        } else {
            self.request_bytes_max.min(once_done)
        }
    }

    /// When to look at it again.
    pub fn next_look(&self) -> Option<Moment> {
        match &self.refusal {
            Some(refusal) if refusal.is_told => Some(refusal.due.after(REFUSAL_GRACE)),
            Some(refusal) => Some(refusal.due),
            None if self.is_done() => None,
            None => Some(self.deadline),
        }
    }

    pub fn check(&self, now: Moment) -> Result<(), CloseReason> {
        match &self.refusal {
            Some(refusal) if now >= refusal.due.after(REFUSAL_GRACE) => {
                Err(CloseReason::AuthenticationFailed)
            }
            None if !self.is_done() && now >= self.deadline => {
                Err(CloseReason::AuthenticationTooSlow(self.timeout))
            }
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// Whether the next frame is a token without a request around it.
    pub(super) fn expects_token(&self) -> bool {
        let authentication = self.authentication.as_ref();
        authentication.is_some_and(|authentication| authentication.server.takes_token())
    }

    /// Whether the request that was received last is a matter of authentication, as all are before
    /// it has succeeded.
    pub(super) fn must_authenticate(&self, api_key: ApiKey) -> bool {
        let authentication = self.authentication.as_ref();
        authentication
            .is_some_and(|authentication| authentication.server.concerns(api_key, self.reading.received()))
    }

    /// Whether its client failed to authenticate: nothing more is read.
    pub(super) fn is_refused(&self) -> bool {
        let authentication = self.authentication.as_ref();
        authentication.is_some_and(|authentication| authentication.refusal.is_some())
    }

    /// The largest request that is read at this point.
    pub(super) fn request_bytes_max(&self, context: &LoopContext) -> i32 {
        let usual = context.settings.request_bytes_max;
        self.authentication
            .as_ref()
            .map_or(usual, |authentication| authentication.request_bytes_max(usual))
    }

    /// Passes a request to the exchange.
    pub(super) fn authenticate(
        &mut self,
        context: &mut LoopContext,
        header: &RequestHeader<'_>,
        frame: &[u8],
        body_bytes: usize,
    ) -> Result<(), CloseReason> {
        let start = context.now();
        context.reply.begin(false);
        let request = Request {
            connection: self.client.context(),
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            body: &frame[frame.len() - body_bytes..],
            received: self.reading.received(),
        };
        let Some(authentication) = &mut self.authentication else {
            return Ok(());
        };
        let server = &mut authentication.server;
        let step = catch_unwind(AssertUnwindSafe(|| {
            context.service.authenticate(server, &request, &mut context.reply)
        }));
        let step = step.map_err(|_| CloseReason::Panicked {
            api_key: header.api_key,
            api_version: header.api_version,
        })?;
        let served = self.authentication_request(context, frame.len(), start);
        let served = ServedRequest {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            has_header: true,
            ..served
        };
        self.follow(context, served, step, start)
    }

    /// Passes a token without a request around it to the exchange.
    pub(super) fn take_token(&mut self, context: &mut LoopContext, token: &[u8]) -> Result<(), CloseReason> {
        let start = context.now();
        context.reply.begin(false);
        let (listener, received) = (&self.client.context().listener_name, self.reading.received());
        let Some(authentication) = &mut self.authentication else {
            return Ok(());
        };
        let server = &mut authentication.server;
        let step = catch_unwind(AssertUnwindSafe(|| {
            context
                .service
                .take_sasl_token(server, listener, token, received, &mut context.reply)
        }));
        let step = step.map_err(|_| CloseReason::Panicked {
            api_key: ApiKey::SaslAuthenticate,
            api_version: 0,
        })?;
        let served = self.authentication_request(context, token.len(), start);
        self.follow(context, served, step, start)
    }

    /// A token without a request around it, as far as metrics and sending are concerned. It counts
    /// for no client id: a client that is not authenticated could name any.
    fn authentication_request(
        &mut self,
        context: &mut LoopContext,
        request_bytes: usize,
        start: Moment,
    ) -> ServedRequest {
        let now = context.tick();
        ServedRequest {
            api_key: ApiKey::SaslAuthenticate,
            api_version: 0,
            correlation_id: 0,
            has_header: false,
            client: context.records().client(""),
            request_bytes: request_bytes as u32,
            times: self.service_times(context, start, now),
            booked: now,
            seen: context.reply.seen,
            gap: Gap::Unknown,
            in_flight: 1,
            pause_squares: 0,
            throttle_ms: 0,
            is_of_thread: false,
        }
    }

    fn follow(
        &mut self,
        context: &mut LoopContext,
        served: ServedRequest,
        step: SaslStep,
        start: Moment,
    ) -> Result<(), CloseReason> {
        let micros = served.booked.micros_since(start);
        match step {
            SaslStep::Replied => self.reply(context, served, Handled::Replied, micros),
            SaslStep::Authenticated(principal) => {
                self.reply(context, served, Handled::Replied, micros)?;
                debug!(peer = %self.peer, %principal, "authenticated");
                let means = self.means();
                self.permit.authenticated(means);
                self.client.authenticated(context, principal);
                Ok(())
            }
            SaslStep::Refused(failure) => {
                self.refuse(context, served, &failure);
                Ok(())
            }
            SaslStep::Close(reason) => {
                let is_done = self.authentication.as_ref().is_some_and(|one| one.is_done());
                // A session that is over is none that failed.
                if !is_done {
                    self.permit.not_authenticated(Means::Other);
                }
                Err(CloseReason::NotAuthenticated(reason))
            }
            SaslStep::Serve => Err(CloseReason::NotAuthenticated(format!(
                "{} was taken for a matter of authentication",
                served.api_key
            ))),
        }
    }

    /// What its client has authenticated with.
    fn means(&self) -> Means {
        let server = self.authentication.as_ref().map(|one| &one.server);
        let mechanism = server.and_then(SaslServer::authenticated_by);
        mechanism.map_or(Means::Other, Means::Sasl)
    }

    fn refuse(&mut self, context: &mut LoopContext, served: ServedRequest, failure: &SaslFailure) {
        self.permit.not_authenticated(Means::named(&failure.mechanism));
        if let Some(suppressed) = context.authentication_lines.pass() {
            warn!(
                peer = %self.peer,
                listener = %self.client.context().listener_name,
                mechanism = %failure.mechanism,
                user = failure.user.as_deref().unwrap_or_default(),
                reason = failure.reason,
                suppressed,
                "authentication failed"
            );
        }
        let due = served.booked.after(context.settings.authentication.failed_delay);
        let answer = failure
            .has_answer
            .then(|| (served, std::mem::take(&mut context.reply)));
        if let Some(authentication) = &mut self.authentication {
            authentication.refusal = Some(Refusal {
                due,
                answer,
                is_told: false,
            });
        }
    }

    /// Sends the answer to a client that failed, when the delay is over. A client that has closed
    /// is not waited for.
    pub(super) fn tell_refusal_if_due(&mut self, context: &mut LoopContext) -> Result<(), CloseReason> {
        let now = context.now();
        let has_peer_closed = self.reading.has_peer_closed();
        let refusal = self
            .authentication
            .as_mut()
            .and_then(|authentication| authentication.refusal.as_mut());
        let Some(refusal) = refusal else {
            return Ok(());
        };
        if has_peer_closed {
            return Err(CloseReason::AuthenticationFailed);
        }
        if refusal.is_told || now < refusal.due {
            return Ok(());
        }
        refusal.is_told = true;
        match refusal.answer.take() {
            Some((served, reply)) if self.replies.is_empty() => {
                context.reply = reply;
                self.enqueue(context, served)
            }
            Some((served, reply)) => {
                self.replies.push_ready(served, reply);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Closes the connection once the refused client has been told.
    pub(super) fn close_if_told(&self) -> Result<(), CloseReason> {
        let refusal = self
            .authentication
            .as_ref()
            .and_then(|authentication| authentication.refusal.as_ref());
        let is_told = refusal.is_some_and(|refusal| refusal.is_told);
        if is_told && self.replies.is_empty() && self.sending.is_empty() {
            return Err(CloseReason::AuthenticationFailed);
        }
        Ok(())
    }
}
