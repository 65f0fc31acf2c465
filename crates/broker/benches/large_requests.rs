//! How long requests that name a hundred thousand things occupy the event loop, and how long they
//! would if it did everything: `cargo bench -p ottla-broker --bench large_requests`.
//!
//! A topic of 100,000 partitions on a disk in memory, requests handed to the broker's core without
//! a socket; minimum of five runs.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a measurement is a failed measurement"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use ottla_broker::broker::{Additions, Broker};
use ottla_core::pending::Handled;
use ottla_core::reply::ReplyBuffer;
use ottla_core::request::{ConnectionContext, Request};
use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use ottla_wire::messages::fetch::FetchResponse;
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::messages::metadata::MetadataRequest;
use ottla_wire::primitives::Reader;
use support::large::*;
use support::{Client, frame};

fn main() {
    let additions = Additions {
        disk: Some(MemoryDisk::new(1).shared()),
        ..Additions::default()
    };
    let broker = Broker::start_temporary_with(&PROPERTIES, additions).unwrap();
    create_topic(&broker, TOPIC, PARTITIONS);
    grow_topic(&broker);
    create_offsets_topic(&broker);
    let names = names();
    let all = [
        metadata_of_everything(),
        large_metadata(&names),
        large_list_offsets(),
        large_offset_commit(),
        large_offset_fetch(),
        large_describe_configs(),
        large_describe_log_dirs(),
        large_delete_topics(&names),
        large_describe_topic_partitions(&names),
        large_offset_for_leader_epoch(),
        large_fetch(),
        large_produce(),
    ];
    let columns = ["", "bytes", "all of it, us", "the loop, us"];
    println!(
        "{:<24} {:>10} {:>14} {:>14}",
        columns[0], columns[1], columns[2], columns[3]
    );
    for large in &all {
        let (micros, _) = handle(&broker, large, Place::Thread);
        let (held_micros, is_pending) = handle(&broker, large, Place::Loop);
        assert!(is_pending, "{}", large.api_key);
        let (name, bytes) = (large.api_key.to_string(), large.body.len());
        println!("{name:<24} {bytes:>10} {micros:>14} {held_micros:>14}");
    }
    let mut client = Client::connect(broker.address());
    let large = large_fetch();
    client.send(&request(&large, "session"));
    let body = client.receive(ApiKey::Fetch, large.version, 1);
    let response = FetchResponse::decode(&mut Reader::new(&body), large.version).unwrap();
    let mut epoch = 0;
    let mut next = |place| {
        epoch += 1;
        let body = fetch_body(TOPIC, 0, (response.session_id, epoch), 0);
        handle_once(
            &broker,
            &Large {
                body,
                ..large_fetch()
            },
            place,
        )
        .0
    };
    let [micros, held_micros] =
        [Place::Thread, Place::Loop].map(|place| (0..5).map(|_| next(place)).min().unwrap());
    println!(
        "{:<24} {:>10} {micros:>14} {held_micros:>14}",
        "Fetch of a session", 40
    );
}

/// What serves the requests.
#[derive(Clone, Copy)]
enum Place {
    Loop,
    Thread,
}

/// A few bytes that request all partitions.
fn metadata_of_everything() -> Large {
    let mut body = Vec::new();
    let request = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    request.encode(&mut body, 9);
    Large {
        body,
        ..large_metadata(&[])
    }
}

/// Returns when there is a coordinator for the group of the requests.
fn create_offsets_topic(broker: &Broker) {
    let mut client = Client::connect(broker.address());
    let request = FindCoordinatorRequest {
        coordinator_keys: vec!["g"],
        ..Default::default()
    };
    loop {
        client.send(&frame(ApiKey::FindCoordinator, 4, 1, |bytes| {
            request.encode(bytes, 4)
        }));
        let body = client.receive(ApiKey::FindCoordinator, 4, 1);
        let response = FindCoordinatorResponse::decode(&mut Reader::new(&body), 4).unwrap();
        if response.coordinators[0].error_code == ErrorCode::None.code() {
            return;
        }
    }
}

/// Grows the topic to as many partitions as the requests name.
fn grow_topic(broker: &Broker) {
    let mut client = Client::connect(broker.address());
    for count in (10_000..NAMED).step_by(9_000).chain([NAMED]) {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: TOPIC,
                count,
                assignments: None,
            }],
            timeout_ms: 60_000,
            validate_only: false,
        };
        client.send(&frame(ApiKey::CreatePartitions, 1, 1, |bytes| {
            request.encode(bytes, 1)
        }));
        let body = client.receive(ApiKey::CreatePartitions, 1, 1);
        let response = CreatePartitionsResponse::decode(&mut Reader::new(&body), 1).unwrap();
        assert_eq!(
            response.results[0].error_code,
            ErrorCode::None.code(),
            "{:?}",
            response.results[0]
        );
    }
}

/// Returns the minimum time in microseconds, and whether the rest is done on another thread.
fn handle(broker: &Broker, large: &Large, place: Place) -> (u128, bool) {
    let handled = (0..5).map(|_| handle_once(broker, large, place));
    handled.min().unwrap()
}

fn handle_once(broker: &Broker, large: &Large, place: Place) -> (u128, bool) {
    let connection = ConnectionContext {
        connection_id: 1,
        peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        peer_port: 1,
        listener_name: "PLAINTEXT".into(),
        principal: "User:ANONYMOUS".into(),
        identity: Default::default(),
        permitted: Default::default(),
        tenant: Default::default(),
        quota: None,
    };
    let request = Request {
        connection: &connection,
        api_key: large.api_key,
        api_version: large.version,
        correlation_id: 1,
        client_id: Some("c"),
        body: &large.body,
        received: broker.node().clock().moment(),
    };
    let mut reply = ReplyBuffer::default();
    let began = Instant::now();
    let handled = match place {
        Place::Loop => broker.node().handle(&request, &mut reply),
        Place::Thread => broker.node().handle_whole(&request, &mut reply),
    };
    let micros = began.elapsed().as_micros();
    (micros, matches!(handled, Handled::Pending(_)))
}
