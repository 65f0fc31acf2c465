//! What an event loop lends to the connection that has its turn: the loop's buffers, its clock, and
//! what all loops share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_core::quota::Quotas;
use ottla_core::reply::ReplyBuffer;
use ottla_core::tenant::Tenants;
use ottla_core::time::{Clock, Moment};
use tracing::warn;

use super::expected_answers::ExpectedAnswers;
use super::input::BufferPool;
use super::mailbox::Mailbox;
use super::memory_budget::{LoopMemory, MemoryBudget};
use super::output::SparePages;
use super::service::Service;
use super::tls_session::TlsPages;
use crate::executor::cold_reads::ColdReads;
use crate::metrics::accounts::{AccountBook, Accounts};
use crate::metrics::activity::{ActivityIndex, Exchange};
use crate::metrics::recorder::{Finished, LoopRecords, Origin};
use crate::metrics::stage::Stage;
use crate::rate_limit::RateLimit;

/// Settings that all connections of a listener share.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// `socket.request.max.bytes`.
    pub request_bytes_max: i32,
    /// `connections.max.idle.ms`; also how long a request may take to arrive, and how long a client
    /// may take to accept the next byte of its replies. `None`: no limit.
    pub idle_max: Option<Duration>,
    /// `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`; `None` leaves them to the
    /// kernel.
    pub send_buffer_bytes: Option<usize>,
    pub receive_buffer_bytes: Option<usize>,
    /// `ottla.slow.request.ms`; `None`: slow requests are not logged.
    pub slow_request: Option<Duration>,
    pub authentication: AuthenticationSettings,
}

/// Times of authentication on listeners with SASL.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticationSettings {
    /// `connection.failed.authentication.delay.ms`
    pub failed_delay: Duration,
    /// `ottla.authentication.timeout.ms`
    pub timeout: Duration,
}

impl Default for AuthenticationSettings {
    fn default() -> AuthenticationSettings {
        AuthenticationSettings {
            failed_delay: Duration::from_millis(100),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The clock of the current turn.
#[derive(Debug, Default)]
pub struct TurnClock {
    /// The time of the last reading of the clock.
    now: Moment,
    ends: Moment,
    is_one_free: bool,
    /// Time this turn has spent sending.
    pub sending_micros: u64,
}

impl TurnClock {
    pub fn begin(&mut self, budget_micros: u64) {
        self.ends = self.now.after(Duration::from_micros(budget_micros));
        self.is_one_free = true;
        self.sending_micros = 0;
    }

    pub fn ends(&self) -> Moment {
        self.ends
    }

    /// Whether the turn's budget is used up, so that others should be served.
    pub fn is_over(&self) -> bool {
        self.now >= self.ends
    }

    /// Grants one step regardless of the budget: for work that a read has begun or that is due.
    pub fn allow_one(&mut self) {
        self.is_one_free = true;
    }

    /// Whether one more request may be served, or one more reply finished.
    pub fn may_serve(&self) -> bool {
        self.is_one_free || !self.is_over()
    }

    pub fn has_served(&mut self) {
        self.is_one_free = false;
    }
}

/// What an event loop is built from.
pub struct LoopParts {
    pub service: Arc<dyn Service>,
    pub clock: Arc<dyn Clock>,
    pub settings: Arc<NetSettings>,
    pub cold_reads: Arc<ColdReads>,
    pub quotas: Arc<Quotas>,
    /// Shared by all loops.
    pub memory: Arc<MemoryBudget>,
    pub records: Arc<Mutex<LoopRecords>>,
    pub tenants: Arc<Tenants>,
    /// Written by this loop only.
    pub accounts: Arc<Accounts>,
}

/// What an event loop lends to the connection being served.
pub struct LoopContext {
    pub service: Arc<dyn Service>,
    pub clock: Arc<dyn Clock>,
    pub settings: Arc<NetSettings>,
    pub mailbox: Arc<Mailbox>,
    pub cold_reads: Arc<ColdReads>,
    pub quotas: Arc<Quotas>,
    pub memory: Arc<MemoryBudget>,
    /// The part of this loop.
    pub loop_memory: Arc<LoopMemory>,
    pub pool: BufferPool,
    pub spare: SparePages,
    pub tls_pages: TlsPages,
    pub reply: ReplyBuffer,
    pub expected: ExpectedAnswers,
    pub header: Vec<u8>,
    pub tenants: Arc<Tenants>,
    pub accounts: AccountBook,
    pub turn: TurnClock,
    records: Arc<Mutex<LoopRecords>>,
    /// Log lines about clients that fail to authenticate.
    pub authentication_lines: RateLimit,
    slow_lines: RateLimit,
}

impl LoopContext {
    /// - `index`: of the event loop.
    pub fn new(index: usize, parts: LoopParts, mailbox: Arc<Mailbox>) -> LoopContext {
        LoopContext {
            service: parts.service,
            clock: parts.clock,
            settings: parts.settings,
            mailbox,
            cold_reads: parts.cold_reads,
            quotas: parts.quotas,
            pool: BufferPool::new(parts.memory.of_loop(index).limit_bytes()),
            loop_memory: parts.memory.of_loop(index),
            memory: parts.memory,
            spare: SparePages::default(),
            tls_pages: TlsPages::default(),
            reply: ReplyBuffer::default(),
            expected: ExpectedAnswers::default(),
            header: Vec::new(),
            tenants: parts.tenants,
            accounts: AccountBook::new(parts.accounts),
            turn: TurnClock::default(),
            records: parts.records,
            authentication_lines: RateLimit::per_second(5),
            slow_lines: RateLimit::per_second(5),
        }
    }

    pub fn records(&self) -> MutexGuard<'_, LoopRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last reading of the clock: accurate enough for what happened since.
    pub fn now(&self) -> Moment {
        self.turn.now
    }

    /// Reads the clock.
    pub fn tick(&mut self) -> Moment {
        self.turn.now = self.clock.moment();
        self.turn.now
    }

    /// Counts a request; `activity` is the connection it counts for besides its client id.
    pub fn finish(
        &mut self,
        request: Finished,
        origin: Origin<'_>,
        activity: Option<(ActivityIndex, Exchange<'_>)>,
    ) {
        {
            let mut records = self.records();
            records.record(&request, origin);
            if let Some((index, exchange)) = activity {
                records.failed(request.api_key, &exchange.seen.errors);
                records.activities.add(index, &exchange);
            }
        }
        let own_micros = request.times.own_time();
        if self
            .settings
            .slow_request
            .is_some_and(|slow| u128::from(own_micros) >= slow.as_micros())
        {
            self.write_slow_line(&request);
        }
    }

    #[cold]
    fn write_slow_line(&mut self, request: &Finished) {
        let Some(suppressed) = self.slow_lines.pass() else {
            return;
        };
        let times = &request.times;
        let client_id = self.records().client_name(request.client).clone();
        warn!(
            api = request.api_key.name(),
            version = request.api_version,
            %client_id,
            connection = request.connection_id,
            correlation_id = request.correlation_id,
            total_us = times.total(),
            read_us = times.get(Stage::Read),
            queued_us = times.get(Stage::Queued),
            handled_us = times.get(Stage::Handled),
            appended_us = times.get(Stage::Appended),
            synced_us = times.get(Stage::Synced),
            waited_for_data_us = times.get(Stage::WaitedForData),
            cold_read_us = times.get(Stage::ColdRead),
            waited_for_group_us = times.get(Stage::WaitedForGroup),
            waited_for_transaction_us = times.get(Stage::WaitedForTransaction),
            controller_us = times.get(Stage::Controller),
            throttled_us = times.get(Stage::Throttled),
            behind_us = times.get(Stage::Behind),
            written_us = times.get(Stage::Written),
            dominated_by = times.dominant().name(),
            suppressed,
            "slow request"
        );
    }
}
