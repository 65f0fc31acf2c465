//! Life of a fetch, 2 of 6. Before: core/src/dispatch.rs. After: fetch/read.rs.
//!
//! Fetch, versions 4 to 18: reads what is there, or waits until there are `min_bytes` or
//! `max_wait_ms` have passed.
//!
//! - 7 (KIP-227) sessions; 9 (KIP-320) leader epochs; 12 (KIP-482) flexible; 13 (KIP-516) topics by
//!   id.
//! - KIP-219: while the clients of a shared byte quota have exceeded it, the answer is empty and
//!   carries the throttle time.
//! - Deviation: replicas are not served; a fetch with a replica id is answered as a consumer's.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_log::ReadMode;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{FetchRequest, FetchTopic};

use crate::access::acl::Operation;
use crate::access::granted::GrantedTopic;
use crate::access::{Caller, OwnedCaller};
use crate::batch_times::Given;
use crate::fetch::cold::{ColdFetch, ColdPass, Fetcher};
use crate::fetch::read::{AnswerLimits, IsolationLevel, PartitionRead, ReadPass, Target, read_all};
use crate::fetch::response::{FetchAnswer, PartitionAnswer};
use crate::fetch::session::{FetchPartition, SessionFetch, SessionRequest, TopicRef};
use crate::long_answer::drop_elsewhere;
use crate::node::Node;
use crate::partition::{Threshold, WaitToken};
use crate::pending::{Handled, PendingReply};
use crate::placement::ENTRIES_UNBOUNDED;
use crate::quota::ClientQuota;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::seen::{FetchLimits, Position};
use crate::services::Payer;
use crate::time::Moment;

/// From this version on topics are named by id.
const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 13;

/// From this version on an answer may refuse the whole fetch (KIP-227).
const FIRST_VERSION_WITH_ERROR: i16 = 7;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: FetchRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let session_request = session_request(request, &body);
    let uses_topic_ids = session_request.uses_topic_ids;
    let isolation_level = match IsolationLevel::from_wire(body.isolation_level) {
        Ok(isolation_level) => isolation_level,
        Err(error) => return refuse(error, request, reply),
    };
    let asked = body
        .topics
        .iter()
        .flat_map(|topic| asked_partitions(topic, uses_topic_ids))
        .collect();
    let forgotten: Vec<_> = body
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| {
            let name = topic_ref(topic.topic, topic.topic_id, uses_topic_ids);
            topic.partitions.iter().map(move |index| (name.clone(), *index))
        })
        .collect();
    let mut session = match node
        .fetch_sessions
        .begin(session_request, asked, &forgotten, request.received)
    {
        Ok(session) => session,
        Err(error) => return refuse(error, request, reply),
    };
    reply.seen.fetch_limits = Some(FetchLimits {
        min_bytes: body.min_bytes,
        max_wait_ms: body.max_wait_ms,
        max_bytes: body.max_bytes,
        partition_bytes_max: session.partitions.iter().map(|asked| asked.bytes_max).max(),
    });
    let payer = Payer::Tenant(request.connection.tenant);
    if let Some(gone) = session.take_large_gone() {
        drop_elsewhere(&**node.executor(), payer, ENTRIES_UNBOUNDED, gone);
    }
    let quota = request.connection.quota.clone();
    let bytes_max = u64::try_from(body.max_bytes)
        .unwrap_or(0)
        .min(u64::try_from(node.config().network.fetch_bytes_max).unwrap_or(0))
        .min(quota.as_ref().map_or(u64::MAX, |quota| quota.fetch_bytes_max()));
    let fetch = Fetch {
        version: request.api_version,
        limits: AnswerLimits {
            bytes_max,
            isolation_level,
        },
        is_follower: replica_id(&body) >= 0,
        bytes_min: u64::try_from(body.min_bytes).unwrap_or(0).min(bytes_max),
        session,
        fetcher: Fetcher {
            connection_id: request.connection.connection_id,
            payer,
        },
        quota,
    };
    if fetch.answer_throttled(node, reply) {
        return Handled::Replied;
    }
    let max_wait_ms = u64::try_from(body.max_wait_ms).unwrap_or(0);
    match fetch.look_first(node, &caller, max_wait_ms > 0, reply) {
        None => Handled::Replied,
        Some(wait) => Handled::Pending(Box::new(PendingFetch {
            deadline: request.received.after_ms(max_wait_ms),
            wait,
            fetch,
            caller: caller.keep(),
        })),
    }
}

/// The measure of a fetch: a few bytes can stand for a session with very many partitions.
pub(crate) fn session_entries(node: &Node, request: &Request<'_>, body: &FetchRequest<'_>) -> u64 {
    let session_request = session_request(request, body);
    if node.fetch_sessions.continues_large(session_request) {
        ENTRIES_UNBOUNDED
    } else {
        0
    }
}

fn session_request(request: &Request<'_>, body: &FetchRequest<'_>) -> SessionRequest {
    SessionRequest {
        session_id: body.session_id,
        session_epoch: body.session_epoch,
        uses_topic_ids: request.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
    }
}

/// Refuses the fetch as a whole; versions before 7 have no field for that, so the connection is
/// closed.
fn refuse(error: ErrorCode, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
    reply.seen.errors.see(error);
    if request.api_version < FIRST_VERSION_WITH_ERROR {
        return Handled::Close(format!("fetch was refused: {}", error.name()));
    }
    FetchAnswer {
        version: request.api_version,
        error,
        session_id: 0,
    }
    .encode(&[], reply);
    Handled::Replied
}

/// Returns the replica id; −1 for a consumer.
fn replica_id(body: &FetchRequest<'_>) -> i32 {
    body.replica_id.max(body.replica_state.replica_id)
}

fn topic_ref(name: &str, id: ottla_wire::primitives::Uuid, uses_topic_ids: bool) -> TopicRef {
    if uses_topic_ids {
        TopicRef::Id(id)
    } else {
        TopicRef::Name(name.into())
    }
}

fn asked_partitions(topic: &FetchTopic<'_>, uses_topic_ids: bool) -> impl Iterator<Item = FetchPartition> {
    let name = topic_ref(topic.topic, topic.topic_id, uses_topic_ids);
    topic.partitions.iter().map(move |asked| FetchPartition {
        current_leader_epoch: asked.current_leader_epoch,
        last_fetched_epoch: asked.last_fetched_epoch,
        ..FetchPartition::new(
            name.clone(),
            asked.partition,
            asked.fetch_offset,
            asked.partition_max_bytes,
        )
    })
}

/// One fetch request, decoded and joined with its session.
struct Fetch {
    version: i16,
    limits: AnswerLimits,
    /// The request claims to be from a replica. This broker has none.
    is_follower: bool,
    bytes_min: u64,
    session: SessionFetch,
    fetcher: Fetcher,
    quota: Option<Arc<ClientQuota>>,
}

impl Fetch {
    /// Reads once; answers, or returns what to wait for.
    fn look_first(
        &self,
        node: &Node,
        caller: &Caller<'_>,
        may_wait: bool,
        reply: &mut ReplyBuffer,
    ) -> Option<Wait> {
        let look = self.look(node, caller);
        let is_in_vain = || {
            node.read_ahead
                .was_in_vain(self.fetcher, &look.targets, &look.pass)
        };
        let is_cold = look.pass.is_on_device() && (!self.is_enough(&look.pass) || is_in_vain());
        if !is_cold && (!may_wait || look.targets.is_empty() || self.is_enough(&look.pass)) {
            self.answer_at_once(node, &look, reply);
            return None;
        }
        Some(if is_cold {
            Wait::ForCold(look.targets)
        } else {
            Wait::After(look)
        })
    }

    fn look(&self, node: &Node, caller: &Caller<'_>) -> Look {
        let targets = self.targets(node, caller);
        // Taken before reading: what becomes visible in between counts as new.
        let level = self.limits.isolation_level;
        let readable_bytes = targets
            .iter()
            .map(|target| target.readable_bytes(level))
            .collect();
        let pass = read_all(&targets, self.limits, ReadMode::Resident);
        Look {
            targets,
            readable_bytes,
            pass,
        }
    }

    fn is_enough(&self, pass: &ReadPass) -> bool {
        pass.is_urgent || (pass.bytes >= self.bytes_min && (pass.bytes > 0 || !pass.has_cold))
    }

    fn targets(&self, node: &Node, caller: &Caller<'_>) -> Vec<Target> {
        let image = node.image();
        let find = |asked: &FetchPartition| {
            let (topic, unknown) = match &asked.topic {
                TopicRef::Name(name) => (image.topic(name), ErrorCode::UnknownTopicOrPartition),
                TopicRef::Id(id) => (image.topic_by_id(*id), ErrorCode::UnknownTopicId),
            };
            // A denied name does not tell whether the topic exists. An id does, as in Apache Kafka:
            // it is known only to those who have seen the topic.
            let granted = match (&asked.topic, topic) {
                (TopicRef::Name(name), _) => self.check(caller, name)?,
                (TopicRef::Id(_), Some(topic)) => self.check(caller, &topic.name)?,
                (TopicRef::Id(_), None) => return Err(unknown),
            };
            let topic = topic.ok_or(unknown)?;
            let partition = node.partition(granted, topic, asked.index)?;
            if self.is_follower {
                return Err(ErrorCode::NotLeaderOrFollower);
            }
            Ok(partition)
        };
        self.session
            .partitions
            .iter()
            .map(|asked| Target {
                asked: asked.clone(),
                partition: find(asked),
            })
            .collect()
    }

    /// Asked at every look: a permission that is withdrawn while a fetch waits ends it.
    fn check<'t>(&self, caller: &Caller<'_>, topic: &'t str) -> Result<GrantedTopic<'t>, ErrorCode> {
        if !self.is_follower {
            return caller.topic(Operation::Read, topic);
        }
        match caller.cluster(Operation::ClusterAction) {
            Ok(granted) => Ok(granted.topic(topic)),
            Err(_) => Err(ErrorCode::TopicAuthorizationFailed),
        }
    }

    /// Takes back what the device returned of topics that the client may no longer read.
    fn check_again(&self, caller: &Caller<'_>, found: &mut ColdPass) {
        if caller.is_unlimited() {
            return;
        }
        for (target, read) in found.targets.iter_mut().zip(&mut found.pass.reads) {
            let Ok(partition) = &target.partition else {
                continue;
            };
            if let Some(error) = self.check(caller, &partition.topic).err() {
                found.pass.bytes = found.pass.bytes.saturating_sub(read.reached_bytes);
                *read = PartitionRead::error(error);
                target.partition = Err(error);
            }
        }
    }

    fn answer_at_once(&self, node: &Node, look: &Look, reply: &mut ReplyBuffer) {
        if look.pass.wants_ahead() {
            node.read_ahead.start(
                node.services(),
                &node.cold_cache,
                self.fetcher,
                &look.targets,
                &look.pass,
                self.limits,
            );
        }
        self.answer(node, &look.targets, &look.pass, reply);
    }

    /// Answers with no data but the throttle time while the quota is in debt; false when it is not.
    fn answer_throttled(&self, node: &Node, reply: &mut ReplyBuffer) -> bool {
        let debt_ms = self
            .quota
            .as_ref()
            .map_or(0, |quota| quota.fetch_debt_ms(node.clock().moment()));
        if debt_ms == 0 {
            return false;
        }
        reply.throttle_ms = debt_ms;
        // An empty full answer opens no session: the client treats it as an answer without one and
        // sends a full fetch again.
        if self.session.is_full {
            node.fetch_sessions.close(self.session.session_id);
        }
        let head = FetchAnswer {
            version: self.version,
            error: ErrorCode::None,
            session_id: if self.session.is_full {
                0
            } else {
                self.session.session_id
            },
        };
        head.encode(&[], reply);
        true
    }

    fn answer(&self, node: &Node, targets: &[Target], pass: &ReadPass, reply: &mut ReplyBuffer) {
        // While this fetch waited or read, other clients may have used up the shared quota.
        if pass.bytes > 0 && self.answer_throttled(node, reply) {
            return;
        }
        let mut answers = Vec::new();
        let mut position = Position::default();
        for (target, read) in targets.iter().zip(&pass.reads) {
            let asked = &target.asked;
            match &asked.topic {
                TopicRef::Id(id) => position.by_id(*id, asked.index, asked.fetch_offset),
                TopicRef::Name(name) => position.by_name(name, asked.index, asked.fetch_offset),
            }
            reply.seen.fetched_bytes += read.bytes();
            reply.seen.errors.see(read.error);
            if let Ok(partition) = &target.partition {
                let end = read.offsets.high_watermark;
                reply
                    .fetched
                    .see(&partition.topic, asked.index, asked.fetch_offset, end);
            }
            let is_mentioned =
                self.session
                    .mentions(&target.asked, read.has_error(), read.bytes(), read.offsets);
            if let Ok(partition) = &target.partition {
                let bytes = if is_mentioned { read.bytes() } else { 0 };
                partition.count_fetch(bytes, read.has_error());
            }
            if is_mentioned {
                answers.push(PartitionAnswer {
                    topic: &target.asked.topic,
                    index: target.asked.index,
                    read,
                });
                if let (Ok(partition), Some(at)) = (&target.partition, read.at)
                    && node.services().batch_times.is_on()
                {
                    let bytes = read.bytes();
                    node.services().batch_times.given(
                        partition.key(),
                        Given { at, bytes },
                        node.clock().moment(),
                    );
                }
            }
        }
        reply.seen.position = Some(position);
        let head = FetchAnswer {
            version: self.version,
            error: ErrorCode::None,
            session_id: self.session.session_id,
        };
        head.encode(&answers, reply);
    }

    /// Returns, for each target, the readable bytes at which this fetch is worth another read.
    fn thresholds(&self, look: &Look) -> Vec<u64> {
        let count = look.targets.len().max(1) as u64;
        // When all missing bytes have arrived, at least one of the partitions has received its
        // share of them.
        let share = self
            .bytes_min
            .saturating_sub(look.pass.bytes)
            .div_ceil(count)
            .max(1);
        look.readable_bytes.iter().map(|bytes| bytes + share).collect()
    }
}

/// The result of one pass over the partitions.
struct Look {
    targets: Vec<Target>,
    /// Parallel to the targets, see `Target::readable_bytes`.
    readable_bytes: Vec<u64>,
    pass: ReadPass,
}

/// Memory per partition of a waiting fetch: the partition as requested, twice, and its entry among
/// the waiters.
const KEPT_BYTES_PER_PARTITION: usize = 256;

/// A fetch that waits for data or for the device.
struct PendingFetch {
    fetch: Fetch,
    caller: OwnedCaller,
    deadline: Moment,
    wait: Wait,
}

enum Wait {
    /// Waiters are not registered yet.
    After(Look),
    Data {
        targets: Vec<Target>,
        thresholds: Vec<u64>,
        #[expect(dead_code, reason = "held for its drop, which undoes the registrations")]
        tokens: Vec<WaitToken>,
    },
    /// Nothing is read from the device before the earlier replies of the connection are sent: its
    /// requests wait in the socket, not in the disk's queue.
    ForCold(Vec<Target>),
    Cold(ColdFetch),
}

impl Wait {
    fn register(targets: Vec<Target>, thresholds: Vec<u64>, level: IsolationLevel, waker: &Waker) -> Wait {
        let threshold = |bytes| match level {
            IsolationLevel::ReadUncommitted => Threshold {
                visible_bytes: bytes,
                ..Threshold::default()
            },
            IsolationLevel::ReadCommitted => Threshold {
                stable_bytes: bytes,
                ..Threshold::default()
            },
        };
        let register = |(target, bytes): (&Target, &u64)| {
            let partition = target.partition.as_ref().ok()?;
            Some(partition.wait(threshold(*bytes), waker))
        };
        let tokens = targets.iter().zip(&thresholds).filter_map(register).collect();
        Wait::Data {
            targets,
            thresholds,
            tokens,
        }
    }

    fn is_worth_a_look(&self, level: IsolationLevel) -> bool {
        match self {
            Wait::Data {
                targets, thresholds, ..
            } => targets
                .iter()
                .zip(thresholds)
                .any(|(target, bytes)| target.is_deleted() || target.readable_bytes(level) >= *bytes),
            Wait::After(_) | Wait::ForCold(_) | Wait::Cold(_) => false,
        }
    }
}

impl PendingReply for PendingFetch {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let level = self.fetch.limits.isolation_level;
        loop {
            if let Wait::ForCold(targets) = &mut self.wait {
                let targets = std::mem::take(targets);
                let cold = ColdFetch::start(
                    node.services(),
                    &node.cold_cache,
                    self.fetch.fetcher,
                    targets,
                    self.fetch.limits,
                );
                self.wait = Wait::Cold(cold);
            }
            if let Wait::Cold(cold) = &self.wait {
                let Some(mut found) = cold.take_or_register(waker) else {
                    return Poll::Pending;
                };
                self.fetch.check_again(&self.caller.borrow(), &mut found);
                self.fetch.answer(node, &found.targets, &found.pass, reply);
                reply.seen.disk_micros = found.disk_micros;
                return Poll::Ready(());
            }
            if let Wait::After(look) = &mut self.wait {
                let thresholds = self.fetch.thresholds(look);
                let targets = std::mem::take(&mut look.targets);
                self.wait = Wait::register(targets, thresholds, level, waker);
            }
            let is_late = node.clock().moment() >= self.deadline;
            // Checked after registering, so that data arriving just before is not missed.
            if !is_late && !self.wait.is_worth_a_look(level) {
                return Poll::Pending;
            }
            let look = self.fetch.look(node, &self.caller.borrow());
            if is_late || self.fetch.is_enough(&look.pass) {
                self.fetch.answer_at_once(node, &look, reply);
                return Poll::Ready(());
            }
            self.wait = if look.pass.is_on_device() {
                Wait::ForCold(look.targets)
            } else {
                Wait::After(look)
            };
        }
    }

    fn deadline(&self) -> Option<Moment> {
        match self.wait {
            Wait::ForCold(_) | Wait::Cold(_) => None,
            _ => Some(self.deadline),
        }
    }

    fn kept_bytes(&self) -> usize {
        self.fetch.session.partitions.len() * KEPT_BYTES_PER_PARTITION
    }

    fn waits_for(&self) -> WaitKind {
        match self.wait {
            Wait::ForCold(_) | Wait::Cold(_) => WaitKind::ColdRead,
            _ => WaitKind::Data,
        }
    }
}
