//! Requests that name a hundred thousand things are processed by other threads: clients on the same
//! event loop are answered meanwhile.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::time::{Duration, Instant};

use ottla_broker::broker::Broker;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::FetchResponse;
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::messages::produce::ProduceResponse;
use ottla_wire::primitives::Reader;
use support::gate::*;
use support::large::*;
use support::{Client, HANG, frame, frame_of};

#[test]
fn a_neighbour_is_served_while_a_hundred_thousand_names_are_processed() {
    let broker = start();
    let names = names();
    let all = [
        large_metadata(&names),
        large_list_offsets(),
        large_offset_fetch(),
        large_offset_commit(),
        large_describe_configs(),
        large_describe_log_dirs(),
        large_delete_topics(&names),
        large_describe_topic_partitions(&names),
        large_offset_for_leader_epoch(),
        large_fetch(),
        large_produce(),
    ];
    let gate = Gate::close(&broker);
    let mut clients: Vec<Client> = all.iter().map(|_| Client::connect(broker.address())).collect();
    let mut neighbour = Client::connect(broker.address());
    for (number, (large, client)) in all.iter().zip(&mut clients).enumerate() {
        client.send(&request(large, &format!("large-{number}")));
        // The event loop has read it, and done nothing else with it.
        wait_for_queued(&broker, number + 1);
        assert_eq!(exchange(&mut neighbour, number as i32), number as i64);
        assert!(!has_answer(client), "{}", large.api_key);
    }
    drop(gate);
    for (large, client) in all.iter().zip(&mut clients) {
        let body = client.receive(large.api_key, large.version, 1);
        assert_eq!((large.count)(&body), large.expected as usize, "{}", large.api_key);
    }
}

#[test]
fn requests_behind_a_large_one_are_not_executed_before_it() {
    let broker = start();
    let gate = Gate::close(&broker);
    let mut client = Client::connect(broker.address());
    let large = large_produce();
    client.send(&request(&large, "large"));
    wait_for_queued(&broker, 1);
    let body = produce_body(TOPIC, 0..1, -1);
    client.send(&frame(ApiKey::Produce, 9, 2, |bytes| {
        bytes.extend_from_slice(&body)
    }));
    let mut neighbour = Client::connect(broker.address());
    for number in 0..20 {
        assert_eq!(
            exchange(&mut neighbour, number),
            i64::from(number),
            "the other's is not appended"
        );
    }
    drop(gate);
    client.receive(ApiKey::Produce, 9, 1);
    let body = client.receive(ApiKey::Produce, 9, 2);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    assert_eq!(response.responses[0].partition_responses[0].base_offset, 20);
}

#[test]
fn a_large_request_with_acks_zero_is_executed() {
    let broker = start_with_many(1_001);
    let mut client = Client::connect(broker.address());
    let body = produce_body("many", 0..1_001, 0);
    client.send(&frame(ApiKey::Produce, 9, 1, |bytes| {
        bytes.extend_from_slice(&body)
    }));
    let mut offset = 0;
    while offset == 0 {
        offset = exchange_end(&mut client);
    }
    assert_eq!(offset, 1);
}

/// The end offset of the last partition of `many`.
fn exchange_end(client: &mut Client) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: "many",
            partitions: vec![ListOffsetsPartition {
                partition_index: 1_000,
                timestamp: -1,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    client.send(&frame(ApiKey::ListOffsets, 5, 2, |bytes| {
        request.encode(bytes, 5)
    }));
    let body = client.receive(ApiKey::ListOffsets, 5, 2);
    let response = ListOffsetsResponse::decode(&mut Reader::new(&body), 5).unwrap();
    response.topics[0].partitions[0].offset
}

#[test]
fn a_malformed_large_request_closes_only_its_connection() {
    let broker = start();
    let mut neighbour = Client::connect(broker.address());
    let mut client = Client::connect(broker.address());
    let mut large = large_list_offsets();
    large.body.truncate(100_000);
    client.send(&request(&large, "large"));
    assert!(client.closed().is_empty());
    assert_eq!(exchange(&mut neighbour, 1), 0);
}

#[test]
fn the_request_of_a_client_that_disconnects_meanwhile_is_dropped() {
    let broker = start();
    let gate = Gate::close(&broker);
    let mut client = Client::connect(broker.address());
    let large = large_produce();
    client.send(&request(&large, "large"));
    wait_for_queued(&broker, 1);
    // It has left the buffer that it was read into, and is counted.
    let memory_bytes = "ottla_request_memory_bytes";
    assert!(metric(&broker, memory_bytes) >= large.body.len() as f64);
    drop(client);
    drop(gate);
    wait_for_queued(&broker, 0);
    wait_for(&broker, memory_bytes, 0.0);
    let mut neighbour = Client::connect(broker.address());
    assert_eq!(exchange(&mut neighbour, 1), 0);
}

#[test]
fn requests_waiting_for_a_thread_are_bounded_over_all_connections() {
    const LIMIT_BYTES: usize = 4 << 20;
    const CONNECTIONS: usize = 200;
    let bound = LIMIT_BYTES.to_string();
    let properties = [
        PROPERTIES.as_slice(),
        &[
            ("queued.max.request.bytes", &bound),
            ("socket.request.max.bytes", "1048576"),
        ],
    ]
    .concat();
    let broker = Broker::start_temporary(&properties).unwrap();
    let gate = Gate::close(&broker);
    // Small enough that most arrive whole, and need memory only because they are handed to another
    // thread.
    let names: Vec<String> = (0..3_000).map(|number| format!("nowhere-{number}")).collect();
    let mut large = large_metadata(&names);
    large.expected = names.len() as i32;
    assert!((30_000..60_000).contains(&large.body.len()));
    let mut clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| Client::connect(broker.address()))
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&request(&large, ["a", "b", "c"][number % 3]));
    }
    let began = Instant::now();
    // Each one waits either for a thread or for memory.
    let placed = || {
        let memory_bytes = metric(&broker, "ottla_request_memory_bytes");
        assert!(memory_bytes <= LIMIT_BYTES as f64, "{memory_bytes} bytes");
        let queued = metric(&broker, "ottla_long_answers_queued");
        (queued, queued + metric(&broker, "ottla_request_memory_waiting"))
    };
    while placed().1 < CONNECTIONS as f64 {
        assert!(began.elapsed() < HANG, "{:?} of {CONNECTIONS}", placed());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(placed().0 < CONNECTIONS as f64 / 2.0, "{:?}", placed());
    let mut neighbour = Client::connect(broker.address());
    neighbour.send(&frame_of("neighbour", ApiKey::ApiVersions, 0, 1, |_| ()));
    neighbour.receive(ApiKey::ApiVersions, 0, 1);
    drop(gate);
    // The last one first: no waiter depends on another client taking its replies.
    for client in clients.iter_mut().rev() {
        let body = client.receive(large.api_key, large.version, 1);
        assert_eq!((large.count)(&body), large.expected as usize);
    }
    wait_for(&broker, "ottla_request_memory_bytes", 0.0);
}

fn fetch(client: &mut Client, correlation_id: i32, session: (i32, i32), partitions: i32, max_wait_ms: i32) {
    let body = fetch_body("many", partitions, session, max_wait_ms);
    client.send(&frame(ApiKey::Fetch, 11, correlation_id, |bytes| {
        bytes.extend_from_slice(&body);
    }));
}

/// Returns the session id, the partitions in the answer and the bytes of their records.
fn fetched(client: &mut Client, correlation_id: i32) -> (i32, Vec<i32>, usize) {
    let body = client.receive(ApiKey::Fetch, 11, correlation_id);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    assert_eq!(response.error_code, ErrorCode::None.code());
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes = partitions
        .clone()
        .map(|partition| partition.records.unwrap_or_default().len());
    (
        response.session_id,
        partitions
            .clone()
            .map(|partition| partition.partition_index)
            .collect(),
        bytes.sum(),
    )
}

#[test]
fn a_session_with_many_partitions_is_read_on_another_thread_and_waits_like_any_other() {
    const MANY: i32 = 1_200;
    let broker = start_with_many(MANY);
    let mut client = Client::connect(broker.address());
    fetch(&mut client, 1, (0, 0), MANY, 0);
    let (session, all, _) = fetched(&mut client, 1);
    assert_eq!((all.len() as i32, session != 0), (MANY, true));
    // A small request for all of them, which waits until its time is over.
    fetch(&mut client, 2, (session, 1), 0, 50);
    assert_eq!(fetched(&mut client, 2), (session, vec![], 0));
    let gate = Gate::close(&broker);
    fetch(&mut client, 3, (session, 2), 0, 60_000);
    wait_for_queued(&broker, 1);
    let mut neighbour = Client::connect(broker.address());
    assert_eq!(exchange(&mut neighbour, 1), 0);
    drop(gate);
    // This one waits until one of the partitions has records.
    let mut producer = Client::connect(broker.address());
    let body = produce_body("many", 700..701, -1);
    producer.send(&frame(ApiKey::Produce, 9, 1, |bytes| {
        bytes.extend_from_slice(&body)
    }));
    producer.receive(ApiKey::Produce, 9, 1);
    let (_, news, bytes) = fetched(&mut client, 3);
    assert_eq!(news, [700]);
    assert!(bytes > 0);
    // A session that ends drops its list of partitions.
    fetch(&mut client, 4, (session, -1), 0, 0);
    fetched(&mut client, 4);
    assert_eq!(broker.node().fetch_sessions.count(), 0);
}

#[test]
fn records_of_many_partitions_come_in_several_answers_without_omission() {
    const MANY: i32 = 1_100;
    let broker = start_with_many(MANY);
    let mut client = Client::connect(broker.address());
    let body = produce_body("many", 0..MANY, -1);
    client.send(&frame(ApiKey::Produce, 9, 1, |bytes| {
        bytes.extend_from_slice(&body)
    }));
    let body = client.receive(ApiKey::Produce, 9, 1);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let answers = &response.responses[0].partition_responses;
    assert!(
        answers
            .iter()
            .all(|answer| answer.error_code == ErrorCode::None.code())
    );
    let mut read = std::collections::BTreeSet::new();
    fetch(&mut client, 1, (0, 0), MANY, 0);
    let mut rounds = 0;
    let mut session = 0;
    while read.len() < MANY as usize {
        let body = client.receive(ApiKey::Fetch, 11, rounds + 1);
        let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
        session = session.max(response.session_id);
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let with_records = partitions.filter(|partition| !partition.records.unwrap_or_default().is_empty());
        let found: Vec<i32> = with_records.map(|partition| partition.partition_index).collect();
        assert!(found.len() <= 256, "{}", found.len());
        read.extend(found);
        rounds += 1;
        assert!(rounds < 10, "{} after {rounds} rounds", read.len());
        fetch(&mut client, rounds + 1, (session, rounds), 0, 0);
    }
}
