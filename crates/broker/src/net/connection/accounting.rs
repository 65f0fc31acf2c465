//! What a connection tells the metrics: its requests and their stages, its tenant's account, and,
//! once it has moved records, an activity of its own.

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use ottla_core::seen::{FetchedPartition, Position, Written};
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;

use super::super::loop_context::LoopContext;
use super::super::round_trip::path;
use super::client::Client;
use super::sending::Answered;
use super::served_request::ServedRequest;
use crate::metrics::accounts::Sum;
use crate::metrics::activity::{ActivityIndex, Exchange, Gap, Path, Who};
use crate::metrics::recorder::{Finished, bounded_name};
use crate::metrics::stage::Stage;

/// How often the kernel is asked for a connection's round-trip time at most: one system call per
/// second.
const ROUND_TRIP_INTERVAL: Duration = Duration::from_secs(1);

/// How often the positions of a connection's fetches in their partitions are noted.
const POSITIONS_INTERVAL: Duration = Duration::from_secs(2);

/// A connection that asked this often for topics that do not exist does not only look whether they
/// are there.
const ASKED_AGAIN: u64 = 5;

/// More requests under way at the same time are not told apart.
pub(super) const IN_FLIGHT_MAX: usize = 16;

/// The last answers that are compared with the moment of a request.
const ANSWERS_KEPT: usize = 8;

/// On shorter paths the moment at which an answer left is not exact enough to be compared with the
/// round trip.
const ROUND_TRIP_MICROS_MIN: u64 = 1_000;

pub(super) struct Accounting {
    /// Set by the first request that moved records.
    activity: Option<ActivityIndex>,
    /// When the socket took the last byte of the first answer, and of the last one.
    first_answered: Option<Moment>,
    last_answered: Option<Moment>,
    /// When the last answers that moved records were ready, and how many those were. The socket
    /// took them later, but a loop that waits for a processor after that learns it later still.
    answers: [Moment; ANSWERS_KEPT],
    answer_count: usize,
    path: Option<Path>,
    next_round_trip: Moment,
    next_positions: Moment,
    /// Of a fetch that is not accounted for yet.
    positions: Option<Vec<FetchedPartition>>,
    /// Appended by requests that are not accounted for yet.
    written: Written,
    /// The position of its last fetch.
    position: Option<Position>,
}

impl Accounting {
    pub fn new(now: Moment) -> Accounting {
        Accounting {
            activity: None,
            first_answered: None,
            last_answered: None,
            answers: [now; ANSWERS_KEPT],
            answer_count: 0,
            path: None,
            next_round_trip: now,
            next_positions: now,
            positions: None,
            written: Written::default(),
            position: None,
        }
    }

    /// From when on a fetch notes the positions of its partitions.
    pub fn positions_due(&self) -> Moment {
        self.next_positions
    }

    /// Keeps what the reply says of partitions until the request is accounted for: the positions of
    /// a fetch, the batches of a produce.
    pub fn note(&mut self, context: &mut LoopContext, now: Moment) {
        self.written.take(&mut context.reply.written);
        if let Some(positions) = context.reply.fetched.take() {
            self.next_positions = now.after(POSITIONS_INTERVAL);
            self.positions = Some(positions);
        }
    }

    /// The gap between the last answer, when no other is awaited, and the first byte of a request.
    pub fn gap_until(&self, began: Moment) -> Gap {
        self.last_answered
            .map_or(Gap::Unknown, |answered| Gap::Micros(began.micros_since(answered)))
    }

    /// How many of the last answers were still on their way when the client sent the request whose
    /// first byte came at `began`: those that were ready within the round trip before it.
    pub fn answers_under_way(&self, began: Moment) -> usize {
        let Some(path) = self.path else {
            return 0;
        };
        let answers = self.answers.iter().take(self.answer_count);
        answers
            .filter(|answered| is_under_way(began.micros_since(**answered), path.round_trip_micros.into()))
            .count()
    }

    /// Accounts for a request that has been answered.
    pub fn finish(
        &mut self,
        context: &mut LoopContext,
        mut answered: Answered,
        client: &Client,
        socket: &TcpStream,
        now: Moment,
    ) {
        let ready = answered.request.booked;
        answered.request.book(Stage::Written, now);
        self.first_answered.get_or_insert(now);
        self.last_answered = Some(now);
        if answered.request.moves_records() {
            self.answers[self.answer_count % ANSWERS_KEPT] = ready;
            self.answer_count += 1;
        }
        self.charge(context, &answered, client);
        let Answered {
            request,
            reply_bytes,
            cold,
        } = answered;
        let activity = self.activity_index(context, &request, client, socket, now);
        let activity = activity.map(|index| {
            let exchange = Exchange {
                api_key: request.api_key,
                api_version: request.api_version,
                request_bytes: request.request_bytes,
                reply_bytes,
                times: &request.times,
                seen: &request.seen,
                gap: request.gap,
                in_flight: request.in_flight,
                pause_squares: request.pause_squares,
                written: self.written.batches(),
                finished: now,
                cold_regions: cold.count,
                cold_bytes: cold.bytes,
            };
            (index, exchange)
        });
        let finished = Finished {
            api_key: request.api_key,
            api_version: request.api_version,
            correlation_id: request.correlation_id,
            client: request.client,
            connection_id: client.context().connection_id,
            request_bytes: request.request_bytes,
            reply_bytes,
            times: request.times,
            finished: now,
        };
        context.finish(finished, client.origin(), activity);
        self.written.clear_into(&mut context.reply.written);
    }

    /// Charges an answered request to its tenant.
    fn charge(&mut self, context: &mut LoopContext, answered: &Answered, client: &Client) {
        let request = &answered.request;
        let seen = &request.seen;
        let mut records = seen.records;
        if let Some(position) = seen.position {
            let earlier = self.position.replace(position);
            records += earlier
                .and_then(|earlier| position.progress_since(&earlier))
                .unwrap_or(0);
        }
        let read_cold = request.times.get(Stage::ColdRead) > 0;
        let cold_bytes = answered.cold.bytes + if read_cold { seen.fetched_bytes } else { 0 };
        let amounts = [
            (Sum::Requests, 1),
            (Sum::Records, records),
            (Sum::BytesIn, u64::from(request.request_bytes)),
            (Sum::BytesOut, answered.reply_bytes),
            (Sum::ColdBytes, cold_bytes),
            (Sum::DiskMicros, seen.disk_micros),
            (Sum::ThrottledMs, request.throttle_ms.into()),
        ];
        context.accounts.add(client.tenant(), amounts);
    }

    /// Returns where this connection's activity is counted; opened by the first request that moves
    /// records, commits offsets or ends a transaction (coordinators may have connections of their
    /// own), asks for a subscription to metrics (Java asks on another connection than the one that
    /// it produces on), is denied something, or asks again and again for a topic that does not
    /// exist: such a client moves no records.
    fn activity_index(
        &mut self,
        context: &LoopContext,
        request: &ServedRequest,
        client: &Client,
        socket: &TcpStream,
        now: Moment,
    ) -> Option<ActivityIndex> {
        let is_data = request.moves_records();
        let identity = &client.context().identity;
        let is_refused = identity.denied().total() > 0 || identity.unknown_topics().total() >= ASKED_AGAIN;
        let is_decisive = matches!(request.api_key, ApiKey::OffsetCommit | ApiKey::EndTxn);
        let is_known = is_data || is_decisive || identity.instance_id().is_some() || is_refused;
        if self.activity.is_none() && is_known {
            self.activity = Some(context.records().activities.open(who(client, socket)));
        }
        let index = self.activity?;
        if is_data && now >= self.next_round_trip {
            self.next_round_trip = now.after(ROUND_TRIP_INTERVAL);
            self.path = path(socket);
            context.records().activities.set_path(index, self.path);
        }
        if let Some(positions) = self.positions.take() {
            context.records().activities.set_fetched(index, now, positions);
        }
        Some(index)
    }

    /// Called when the connection is closed.
    pub fn leave(&mut self, context: &LoopContext, client: &Client, socket: &TcpStream) {
        let now = context.now();
        if self.activity.is_none()
            && let Some(path) = self.path_of_unheard(socket, now)
        {
            let mut records = context.records();
            let index = records.activities.open(who(client, socket));
            records.activities.set_unheard(index, path);
            self.activity = Some(index);
        }
        if let Some(index) = self.activity {
            context.records().activities.close(index, now);
        }
    }

    /// The path of a client that has gone before the first answer can have reached it.
    fn path_of_unheard(&self, socket: &TcpStream, now: Moment) -> Option<Path> {
        let first = self.first_answered?;
        path(socket).filter(|path| is_under_way(now.micros_since(first), path.round_trip_micros.into()))
    }
}

/// Whether an answer that left so long ago, in microseconds, was still on its way when the client
/// sent what comes now.
fn is_under_way(since_micros: u64, round_trip_micros: u64) -> bool {
    // The margin is for the time that the kernel takes on both ways.
    round_trip_micros >= ROUND_TRIP_MICROS_MIN && since_micros < round_trip_micros * 9 / 10
}

fn who(client: &Client, socket: &TcpStream) -> Who {
    let facts = client.context();
    Who {
        connection_id: facts.connection_id,
        client_id: bounded_name(client.name()).into(),
        principal: facts.principal.clone(),
        spoken: client.spoken(),
        listener_name: facts.listener_name.clone(),
        address: facts.peer_address,
        port: facts.peer_port,
        is_local: is_own_address(socket, facts.peer_address),
        identity: facts.identity.clone(),
    }
}

/// Whether the peer has this machine's address: the kernel chooses the same address for both ends.
fn is_own_address(socket: &TcpStream, peer: IpAddr) -> bool {
    let own = socket.local_addr().map(|own| own.ip().to_canonical());
    peer.to_canonical().is_loopback() || own.is_ok_and(|own| own == peer.to_canonical())
}
