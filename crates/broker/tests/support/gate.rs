//! Blocks the threads for long answers, so that what is handed to them waits for as long as a test
//! needs.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use ottla_broker::broker::Broker;
use ottla_broker::executor::long_answer_threads;
use ottla_core::node::LongAnswer;
use ottla_core::services::Payer;
use ottla_core::tenant::TenantId;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::produce::ProduceResponse;
use ottla_wire::primitives::Reader;

use super::large::{TOPIC, produce_body};
use super::{Client, HANG, frame_of};

/// Keeps every thread for long answers busy until it is dropped.
pub struct Gate {
    _release: Vec<mpsc::Sender<()>>,
}

impl Gate {
    pub fn close(broker: &Broker) -> Gate {
        // Each payer occupies one thread.
        let threads = u32::try_from(long_answer_threads()).unwrap();
        let payers: Vec<Payer> = (0..threads)
            .map(|number| Payer::Tenant(TenantId(70_000 + number)))
            .collect();
        let (begun, begins) = mpsc::channel();
        let close = |payer| {
            let (release, gate) = mpsc::channel::<()>();
            let begun = begun.clone();
            broker.node().executor().long_answer(LongAnswer {
                payer,
                entries: 1,
                job: Box::new(move |_| {
                    begun.send(()).unwrap();
                    // Ends when the sender is dropped.
                    let _ = gate.recv();
                    1
                }),
            });
            release
        };
        let release = payers.into_iter().map(close).collect();
        (0..threads).for_each(|_| begins.recv().unwrap());
        Gate { _release: release }
    }
}

/// Returns a number from `/metrics`.
pub fn metric(broker: &Broker, name: &str) -> f64 {
    let page = super::http::get(broker, "/metrics");
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

pub fn wait_for(broker: &Broker, name: &str, value: f64) {
    let began = Instant::now();
    while metric(broker, name) != value {
        assert!(began.elapsed() < HANG, "{name} was never {value}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until this many requests wait for a thread for long answers.
pub fn wait_for_queued(broker: &Broker, count: usize) {
    wait_for(broker, "ottla_long_answers_queued", count as f64);
}

pub fn has_answer(client: &Client) -> bool {
    client.socket.set_nonblocking(true).unwrap();
    let peeked = client.socket.peek(&mut [0]);
    client.socket.set_nonblocking(false).unwrap();
    peeked.is_ok()
}

/// Produces a record and returns its offset.
pub fn exchange(client: &mut Client, correlation_id: i32) -> i64 {
    let body = produce_body(TOPIC, 0..1, -1);
    client.send(&frame_of(
        "neighbour",
        ApiKey::Produce,
        9,
        correlation_id,
        |bytes| {
            bytes.extend_from_slice(&body);
        },
    ));
    let body = client.receive(ApiKey::Produce, 9, correlation_id);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    response.responses[0].partition_responses[0].base_offset
}
