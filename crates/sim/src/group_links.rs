//! The network between one group member and the simulated broker: delays, refused and broken
//! connections, lost requests and answers, requests that arrive after their connection is gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ottla_client::Error;
use ottla_client::machine::consumer::GroupNetwork;
use ottla_client::machine::consumer::GroupTicket;
use ottla_client::machine::metadata::snapshot::{NodeId, Snapshot};
use ottla_client::machine::network::cluster::{Readiness, Reply, Request};
use ottla_client::machine::network::io::Address;
use ottla_client::machine::time::Moment;
use ottla_log::disk::memory::Random;
use ottla_wire::api_key::ApiKey;

use crate::world::{Call, Outcome, World};

/// The only broker.
pub const BROKER: NodeId = NodeId(1);

/// Rates of network faults: each happens once in this many times; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkTroubles {
    pub refuse: u64,
    pub lose_request: u64,
    pub lose_answer: u64,
    /// Once in this many steps.
    pub break_idle: u64,
    /// Lost requests that nevertheless arrive later.
    pub arrive_late: u64,
    pub delay_ms_max: u64,
}

/// The newest API versions that a member supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Kafka 2.1: before static members, member ids on demand, leader epochs in commits.
    Old,
    /// Kafka 2.4.
    Middle,
    New,
}

impl Era {
    fn max(self, api_key: ApiKey) -> i16 {
        match (self, api_key) {
            (Era::New, _) => i16::MAX,
            (Era::Old, ApiKey::JoinGroup) => 3,
            (
                Era::Old,
                ApiKey::FindCoordinator | ApiKey::SyncGroup | ApiKey::Heartbeat | ApiKey::LeaveGroup,
            ) => 2,
            (Era::Old, ApiKey::OffsetCommit | ApiKey::OffsetFetch) => 5,
            (Era::Middle, ApiKey::JoinGroup) => 6,
            (Era::Middle, ApiKey::FindCoordinator) => 3,
            (Era::Middle, ApiKey::OffsetCommit) => 8,
            (Era::Middle, ApiKey::OffsetFetch) => 6,
            (Era::Middle, _) => 4,
            (Era::Old, _) => 0,
        }
    }
}

#[derive(Debug)]
enum State {
    Connecting { until: Moment },
    Ready,
    Down { until: Moment },
}

struct Sent {
    request: Request,
    ticket: GroupTicket,
    sent: Moment,
    arrives: Moment,
    call: Option<Call>,
    /// The answer is on its way back.
    answer: Option<(Moment, Vec<u8>)>,
}

struct Connection {
    state: State,
    sent: VecDeque<Sent>,
}

/// An answer of the broker and its member, checked by the oracle.
pub struct Answered {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub request: Vec<u8>,
    pub answer: Vec<u8>,
}

pub struct Links {
    pub snapshot: Arc<Snapshot>,
    era: Era,
    random: Random,
    connections: BTreeMap<NodeId, Connection>,
    replies: Vec<Reply<GroupTicket>>,
    /// Requests that arrive although their connection is gone.
    late: Vec<(Moment, Request, Option<Call>)>,
    pub broken: u64,
}

fn moment(world: &World) -> Moment {
    use ottla_core::time::Clock;
    world.clock.moment()
}

impl Links {
    pub fn new(seed: u64, era: Era) -> Links {
        Links {
            snapshot: Arc::default(),
            era,
            random: Random::new(seed),
            connections: BTreeMap::new(),
            replies: Vec::new(),
            late: Vec::new(),
            broken: 0,
        }
    }

    pub fn take_replies(&mut self) -> Vec<Reply<GroupTicket>> {
        std::mem::take(&mut self.replies)
    }

    fn happens(&mut self, once_in: u64) -> bool {
        once_in > 0 && self.random.one_in(once_in)
    }

    /// Advances all connections and late requests.
    pub fn step(&mut self, world: &mut World, troubles: &LinkTroubles, answered: &mut Vec<Answered>) {
        let now = moment(world);
        self.step_late(world, now, answered);
        let nodes: Vec<NodeId> = self.connections.keys().copied().collect();
        for node in nodes {
            let Some(mut connection) = self.connections.remove(&node) else {
                continue;
            };
            let stands = self.step_connection(&mut connection, node, world, now, troubles, answered);
            if !stands {
                self.broken += 1;
                self.fail(&mut connection, node, now, troubles);
            }
            self.connections.insert(node, connection);
        }
    }

    fn step_late(&mut self, world: &mut World, now: Moment, answered: &mut Vec<Answered>) {
        for (arrives, request, call) in std::mem::take(&mut self.late) {
            if arrives > now {
                self.late.push((arrives, request, call));
                continue;
            }
            let mut call = call.unwrap_or_else(|| begin(world, &request));
            match world.poll(&mut call) {
                None => self.late.push((arrives, request, Some(call))),
                Some(Outcome::Answer(answer)) => answered.push(note(&request, &answer)),
                Some(Outcome::Lost(_)) => {}
            }
        }
    }

    /// Advances a connection; false if it breaks.
    fn step_connection(
        &mut self,
        connection: &mut Connection,
        node: NodeId,
        world: &mut World,
        now: Moment,
        troubles: &LinkTroubles,
        answered: &mut Vec<Answered>,
    ) -> bool {
        match connection.state {
            State::Connecting { until } if until <= now => {
                if !world.is_running() || self.happens(troubles.refuse) {
                    return false;
                }
                connection.state = State::Ready;
            }
            State::Ready if !world.is_running() || self.happens(troubles.break_idle) => return false,
            State::Ready => {}
            _ => return true,
        }
        // A broker takes the next request of a connection after it has answered the previous one.
        let Some(front) = connection.sent.front_mut() else {
            return true;
        };
        if front.sent.after_ms(front.request.timeout_ms) <= now {
            return false;
        }
        if let Some((due, _)) = &front.answer {
            if *due <= now
                && let Some(Sent {
                    request,
                    ticket,
                    sent,
                    answer: Some((_, answer)),
                    ..
                }) = connection.sent.pop_front()
            {
                self.replies.push(Reply {
                    node,
                    ticket,
                    api_key: request.api_key,
                    api_version: request.api_version,
                    result: Ok(answer.into()),
                    latency_nanos: now.nanos_since(sent),
                });
            }
            return true;
        }
        if front.call.is_none() {
            if front.arrives > now {
                return true;
            }
            if self.happens(troubles.lose_request) {
                return false;
            }
            front.call = Some(begin(world, &front.request));
        }
        let Some(call) = &mut front.call else {
            return true;
        };
        match world.poll(call) {
            None => true,
            Some(Outcome::Lost(_)) => false,
            Some(Outcome::Answer(answer)) => {
                answered.push(note(&front.request, &answer));
                if self.happens(troubles.lose_answer) {
                    return false;
                }
                let delay_ms = self.random.below(troubles.delay_ms_max + 1);
                front.answer = Some((now.after_ms(delay_ms), answer));
                true
            }
        }
    }

    fn fail(&mut self, connection: &mut Connection, node: NodeId, now: Moment, troubles: &LinkTroubles) {
        connection.state = State::Down {
            until: now.after_ms(20 + self.random.below(100)),
        };
        for sent in connection.sent.drain(..) {
            if sent.call.is_none() && self.happens(troubles.arrive_late) {
                let arrives = now.after_ms(self.random.below(1_500));
                let request = Request {
                    body: sent.request.body.clone(),
                    ..sent.request
                };
                self.late.push((arrives, request, None));
            }
            self.replies.push(Reply {
                node,
                ticket: sent.ticket,
                api_key: sent.request.api_key,
                api_version: sent.request.api_version,
                result: Err(Error::Disconnected {
                    address: "simulated".into(),
                    reason: "broken".into(),
                }),
                latency_nanos: 0,
            });
        }
    }
}

fn body(request: &Request) -> Vec<u8> {
    request
        .body
        .iter()
        .flat_map(|part| part.iter().copied())
        .collect()
}

fn begin(world: &mut World, request: &Request) -> Call {
    world.call(request.api_key, request.api_version, &body(request))
}

fn note(request: &Request, answer: &[u8]) -> Answered {
    Answered {
        api_key: request.api_key,
        api_version: request.api_version,
        request: body(request),
        answer: answer.to_vec(),
    }
}

impl GroupNetwork for Links {
    fn readiness(&mut self, now: Moment, node: NodeId) -> Readiness {
        let connecting = |random: &mut Random| State::Connecting {
            until: now.after_ms(random.below(20)),
        };
        let connection = self.connections.entry(node).or_insert_with(|| Connection {
            state: connecting(&mut self.random),
            sent: VecDeque::new(),
        });
        match connection.state {
            State::Ready => Readiness::Ready,
            State::Connecting { .. } => Readiness::Connecting,
            State::Down { until } if until > now => Readiness::BackingOff(until),
            State::Down { .. } => {
                connection.state = connecting(&mut self.random);
                Readiness::Connecting
            }
        }
    }

    fn version(&self, node: NodeId, api_key: ApiKey, needed_min: i16) -> Result<i16, Error> {
        self.version_within(node, api_key, needed_min, i16::MAX)
    }

    fn version_within(
        &self,
        _node: NodeId,
        api_key: ApiKey,
        needed_min: i16,
        wanted_max: i16,
    ) -> Result<i16, Error> {
        let known = api_key.known_versions();
        let served = api_key.served_versions().expect("the broker serves groups");
        let max = known
            .max
            .min(served.max)
            .min(wanted_max)
            .min(self.era.max(api_key));
        if max < needed_min.max(known.min).max(served.min) {
            return Err(Error::UnsupportedVersion {
                api: api_key.name(),
                broker_max: max,
                needed_min,
            });
        }
        Ok(max)
    }

    fn send(&mut self, now: Moment, node: NodeId, request: Request, ticket: GroupTicket) {
        let arrives = now.after_ms(self.random.below(8));
        let connection = self.connections.get_mut(&node).expect("readiness was asked");
        assert!(
            matches!(connection.state, State::Ready),
            "sent to a node that is not ready"
        );
        connection.sent.push_back(Sent {
            request,
            ticket,
            sent: now,
            arrives,
            call: None,
            answer: None,
        });
    }

    fn least_loaded(&mut self, now: Moment) -> Option<NodeId> {
        (self.readiness(now, BROKER) == Readiness::Ready).then_some(BROKER)
    }

    fn add_node(&mut self, id: NodeId, _address: Address) {
        assert_eq!(
            id,
            NodeId(i32::MAX - BROKER.0),
            "the coordinator's own connection"
        );
    }

    fn disconnect(&mut self, now: Moment, node: NodeId) {
        if let Some(mut connection) = self.connections.remove(&node) {
            self.fail(&mut connection, node, now, &LinkTroubles::default());
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }
}
