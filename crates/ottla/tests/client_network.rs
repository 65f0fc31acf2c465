//! The client's connections and metadata against a broker in this process: real sockets, real
//! answers.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use ottla_broker::Broker;
use ottla_client::Error;
use ottla_client::config::{ClientConfig, Config, ProducerConfig};
use ottla_client::machine::driver::{Driver, DriverSetup};
use ottla_client::machine::metadata::snapshot::NodeId;
use ottla_client::machine::metadata::{Interest, MetadataCell};
use ottla_client::machine::network::cluster::{Cluster, Readiness, Reply, Request};
use ottla_client::machine::network::io::{Action, Event, Machine, Wake};
use ottla_client::machine::time::{Moment, Timestamp};
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::primitives::Reader;

const NOTHING_HANGS_LONGER: Duration = Duration::from_secs(60);
const IN_FLIGHT_MAX: usize = 5;

/// The outcome of the ticket's request.
type Outcome = (usize, Result<(i16, Bytes), Error>);

/// Asks a broker for the end offset of a topic's first partition, once per call.
struct Courier {
    cluster: Cluster<usize>,
    topic: &'static str,
    orders: Receiver<usize>,
    waiting: Option<usize>,
    replies: Vec<Reply<usize>>,
    outcomes: Sender<Outcome>,
    is_finished: bool,
}

impl Courier {
    fn leader(&self) -> Option<NodeId> {
        self.cluster.snapshot().leader(self.topic, 0)
    }

    fn request(&self, api_version: i16) -> Request {
        let mut body = Vec::new();
        ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: self.topic,
                partitions: vec![ListOffsetsPartition {
                    partition_index: 0,
                    timestamp: -1,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        }
        .encode(&mut body, api_version);
        Request {
            api_key: ApiKey::ListOffsets,
            api_version,
            body: vec![body.into()],
            timeout_ms: 30_000,
            expects_answer: true,
        }
    }
}

impl Machine for Courier {
    fn handle(&mut self, now: Moment, event: Event) {
        self.cluster.handle(now, event, &mut self.replies);
    }

    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) {
        self.cluster.turn(now, wall, &mut self.replies, actions);
        for reply in self.replies.drain(..) {
            let result = reply.result.map(|body| (reply.api_version, body));
            self.is_finished |= self.outcomes.send((reply.ticket, result)).is_err();
        }
        loop {
            if self.waiting.is_none() {
                self.waiting = match self.orders.try_recv() {
                    Ok(ticket) => Some(ticket),
                    Err(std::sync::mpsc::TryRecvError::Empty) => None,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                        self.is_finished = true;
                        None
                    }
                };
            }
            let (Some(ticket), Some(node)) = (self.waiting, self.leader()) else {
                return;
            };
            if self.cluster.readiness(now, node) != Readiness::Ready
                || self.cluster.in_flight(node) >= IN_FLIGHT_MAX
            {
                return;
            }
            let version = self.cluster.version(node, ApiKey::ListOffsets, 1).unwrap();
            let request = self.request(version);
            self.cluster.send(now, node, request, ticket, actions);
            self.waiting = None;
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.cluster.next_deadline()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

/// A handle on a courier and its driver.
struct Service {
    metadata: Arc<MetadataCell>,
    orders: Option<Sender<usize>>,
    outcomes: Receiver<Outcome>,
    waker: Arc<dyn Wake>,
    driver: Driver,
}

impl Service {
    fn start(port: u16, topic: &'static str) -> Service {
        let config = Config::new().set("bootstrap.servers", format!("localhost:{port}"));
        let config: Arc<ClientConfig> = ProducerConfig::from_config(&config).unwrap().client;
        let metrics = Arc::default();
        let metadata = Arc::new(MetadataCell::new(Interest::Named));
        let setup = DriverSetup::new(&config, &metrics).unwrap();
        let waker = setup.waker();
        metadata.attach(Arc::clone(&waker));
        let (orders, taken) = channel();
        let (told, outcomes) = channel();
        let courier = Courier {
            cluster: Cluster::new(config, Arc::clone(&metadata), metrics, 1),
            topic,
            orders: taken,
            waiting: None,
            replies: Vec::new(),
            outcomes: told,
            is_finished: false,
        };
        Service {
            metadata,
            orders: Some(orders),
            outcomes,
            waker,
            driver: setup.start("courier", Box::new(courier)).unwrap(),
        }
    }

    fn order(&self, ticket: usize) {
        self.orders.as_ref().unwrap().send(ticket).unwrap();
        self.waker.wake();
    }

    fn outcome(&self) -> Outcome {
        self.outcomes.recv_timeout(NOTHING_HANGS_LONGER).unwrap()
    }

    fn end(mut self) {
        self.orders = None;
        self.waker.wake();
        assert!(self.driver.join(NOTHING_HANGS_LONGER));
    }
}

fn end_offset((_, result): Outcome) -> i64 {
    let (version, body) = result.unwrap();
    let response = ListOffsetsResponse::decode(&mut Reader::new(&body), version).unwrap();
    response.topics[0].partitions[0].offset
}

#[test]
fn a_topic_is_created_by_asking_for_it_and_its_leader_answers_in_order() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let service = Service::start(broker.address().port(), "made");
    let topic = service.metadata.wait_for_topic("made", 60_000).unwrap();
    assert!(!topic.id.is_zero());
    assert!(topic.partitions[0].leader.is_some());
    for ticket in 0..500 {
        service.order(ticket);
    }
    for ticket in 0..500 {
        let outcome = service.outcome();
        assert_eq!(outcome.0, ticket);
        assert_eq!(end_offset(outcome), 0);
    }
    service.end();
}

#[test]
fn a_bad_topic_name_is_refused_by_the_broker_and_not_waited_for() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let service = Service::start(broker.address().port(), "unused");
    let error = service
        .metadata
        .wait_for_topic("what is this?", 60_000)
        .unwrap_err();
    assert!(error.to_string().contains("INVALID_TOPIC_EXCEPTION"), "{error}");
    assert!(!error.is_retriable());
    service.end();
}

#[test]
fn a_broker_that_comes_back_is_found_again() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let port = broker.address().port();
    let service = Service::start(port, "again");
    service.metadata.wait_for_topic("again", 60_000).unwrap();
    service.order(0);
    assert_eq!(end_offset(service.outcome()), 0);
    drop(broker);
    let listener = format!("PLAINTEXT://127.0.0.1:{port}");
    let broker = Broker::start_temporary(&[("listeners", &listener)]).unwrap();
    // The request either waits for the new broker, or breaks with the old one's connection.
    for ticket in 1.. {
        service.order(ticket);
        match service.outcome() {
            (_, Err(error)) => assert!(error.is_retriable(), "{error}"),
            outcome => {
                // The new broker's directory is empty: the topic is unknown, or was created again.
                assert!(matches!(end_offset(outcome), -1 | 0));
                break;
            }
        }
    }
    service.end();
    drop(broker);
}
