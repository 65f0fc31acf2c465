//! Requests and answers as they pass, cut at every position.

use ottla_wire::frame::{RequestHeader, encode_response_header};
use ottla_wire::messages::fetch::{FetchResponse, NodeEndpoint};
use ottla_wire::messages::find_coordinator::{Coordinator, FindCoordinatorResponse};
use ottla_wire::messages::metadata::{MetadataResponse, MetadataResponseBroker};
use ottla_wire::primitives::Reader;

use super::*;
use ottla_wire::frame::decode_response_header;

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as i32).to_be_bytes(), body].concat()
}

fn request(api_key: ApiKey, api_version: i16, correlation_id: i32) -> Vec<u8> {
    let mut body = Vec::new();
    let client_id = Some("a client");
    let header = RequestHeader {
        api_key,
        api_version,
        correlation_id,
        client_id,
    };
    header.encode(&mut body);
    body.extend([7; 30]);
    frame(&body)
}

fn answer(api_key: ApiKey, version: i16, correlation_id: i32, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    encode_response_header(&mut body, api_key, version, correlation_id);
    encode(&mut body);
    frame(&body)
}

fn metadata(version: i16, correlation_id: i32, brokers: &[(&str, i32)]) -> Vec<u8> {
    let broker = |(node_id, (host, port)): (usize, &(&'static str, i32))| MetadataResponseBroker {
        node_id: node_id as i32,
        host,
        port: *port,
        ..Default::default()
    };
    let hosts: Vec<(&'static str, i32)> = brokers
        .iter()
        .map(|(host, port)| (&*String::leak((*host).to_owned()), *port))
        .collect();
    let message = MetadataResponse {
        brokers: hosts.iter().enumerate().map(broker).collect(),
        controller_id: 1,
        ..Default::default()
    };
    answer(ApiKey::Metadata, version, correlation_id, |out| {
        message.encode(out, version)
    })
}

/// Feeds `answers` in chunks of `chunk_bytes` to a conversation that has seen `requests`.
fn play(requests: &[u8], answers: &[u8], chunk_bytes: usize) -> Result<Vec<u8>, Broken> {
    let mut conversation = Conversation::default();
    for chunk in requests.chunks(chunk_bytes) {
        conversation.hear_requests(chunk)?;
    }
    // The port identifies the broker, so that a mix-up shows.
    let mut port_of = |host: &str, port: u16| match host {
        "full" => Err(String::from("no socket left")),
        _ => Ok(port + 1_000),
    };
    let mut out = Vec::new();
    for chunk in answers.chunks(chunk_bytes) {
        let mut parts = Vec::new();
        conversation.hear_answers(chunk, &mut parts, &mut port_of)?;
        for part in parts {
            match part {
                Part::Through(range) => out.extend_from_slice(&chunk[range]),
                Part::Instead(bytes) => out.extend_from_slice(&bytes),
            }
        }
    }
    Ok(out)
}

fn check(requests: &[u8], answers: &[u8], expected: &[u8]) {
    for chunk_bytes in [1, 2, 3, 5, 7, 11, 64, 1 << 20] {
        let heard = play(requests, answers, chunk_bytes).expect("the stream is whole");
        assert_eq!(heard, expected, "in chunks of {chunk_bytes}");
    }
}

#[test]
fn addresses_in_metadata_become_the_relays() {
    for version in 0..=13 {
        check(
            &request(ApiKey::Metadata, version, 5),
            &metadata(version, 5, &[("one.example", 9092), ("two.example", 9093)]),
            &metadata(version, 5, &[("127.0.0.1", 10_092), ("127.0.0.1", 10_093)]),
        );
    }
}

#[test]
fn other_answers_pass_unchanged_and_between_them_only_addresses_change() {
    let plain = |correlation_id: i32, bytes: usize| {
        frame(&[&correlation_id.to_be_bytes()[..], &vec![0xee; bytes]].concat())
    };
    let requests = [
        request(ApiKey::ApiVersions, 4, 1),
        request(ApiKey::Metadata, 12, 2),
        request(ApiKey::ListOffsets, 10, 3),
        request(ApiKey::Metadata, 12, 4),
    ]
    .concat();
    let answers = |host: &'static str, port| {
        [
            plain(1, 0),
            metadata(12, 2, &[(host, port)]),
            plain(3, 70_000),
            metadata(12, 4, &[(host, port)]),
            plain(9, 5),
        ]
        .concat()
    };
    check(&requests, &answers("kafka", 9092), &answers("127.0.0.1", 10_092));
}

#[test]
fn the_coordinator_is_found_behind_the_relay_and_a_missing_one_stays_missing() {
    let of = |host: &'static str, port: i32| {
        let known = Coordinator {
            key: "g",
            node_id: 1,
            host,
            port,
            ..Default::default()
        };
        let none = Coordinator {
            key: "h",
            node_id: -1,
            port: -1,
            error_code: 15,
            ..Default::default()
        };
        let message = FindCoordinatorResponse {
            coordinators: vec![known, none],
            ..Default::default()
        };
        answer(ApiKey::FindCoordinator, 4, 8, |out| message.encode(out, 4))
    };
    let asked = request(ApiKey::FindCoordinator, 4, 8);
    check(&asked, &of("kafka", 9092), &of("127.0.0.1", 10_092));
}

#[test]
fn a_fetch_answer_with_a_moved_leader_leads_to_the_relay_and_others_are_unchanged() {
    let of = |endpoints: Vec<NodeEndpoint<'static>>| {
        let message = FetchResponse {
            session_id: 3,
            node_endpoints: endpoints,
            ..Default::default()
        };
        answer(ApiKey::Fetch, 17, 8, |out| message.encode(out, 17))
    };
    let moved = |host, port| {
        vec![NodeEndpoint {
            node_id: 2,
            host,
            port,
            rack: None,
        }]
    };
    let asked = request(ApiKey::Fetch, 17, 8);
    check(&asked, &of(moved("kafka", 9092)), &of(moved("127.0.0.1", 10_092)));
    check(&asked, &of(Vec::new()), &of(Vec::new()));
}

#[test]
fn a_large_fetch_is_not_held_back() {
    let mut conversation = Conversation::default();
    let requests = request(ApiKey::Fetch, 17, 8);
    conversation.hear_requests(&requests).expect("whole");
    let mut large = (8 + SMALL_ANSWER_BYTES_MAX as i32).to_be_bytes().to_vec();
    large.extend(8i32.to_be_bytes());
    large.extend([1; 100]);
    let mut parts = Vec::new();
    conversation
        .hear_answers(&large, &mut parts, &mut |_, port| Ok(port))
        .expect("an incomplete answer is no error");
    assert_eq!(parts, [Part::Through(0..108)]);
}

#[test]
fn produces_without_acks_do_not_pile_up() {
    let mut conversation = Conversation::default();
    for correlation_id in 0..100_000 {
        let bytes = request(ApiKey::Produce, 11, correlation_id);
        conversation.hear_requests(&bytes).expect("whole");
    }
    assert_eq!(conversation.asked.len(), ASKED_MAX);
    let bytes = request(ApiKey::Metadata, 12, 100_000);
    conversation.hear_requests(&bytes).expect("whole");
    let mut parts = Vec::new();
    let mut port_of = |_: &str, _: u16| Ok(1);
    conversation
        .hear_answers(
            &metadata(12, 100_000, &[("kafka", 9092)]),
            &mut parts,
            &mut port_of,
        )
        .expect("whole");
    assert!(matches!(&parts[..], [Part::Instead(_)]));
    assert!(conversation.asked.is_empty());
}

#[test]
fn lengths_that_no_frame_has_end_the_connection() {
    let http = b"GET / HTTP/1.1\r\n\r\n";
    assert_eq!(play(http, b"", 64), Err(Broken::Length(0x4745_5420)));
    assert_eq!(play(&[0, 0, 0, 7, 1], b"", 64), Err(Broken::Length(7)));
    let negative = (-5i32).to_be_bytes();
    assert_eq!(play(b"", &negative, 64), Err(Broken::Length(-5)));
}

#[test]
fn metadata_that_cannot_be_read_ends_the_connection() {
    let requests = request(ApiKey::Metadata, 12, 2);
    let broken = frame(&[0, 0, 0, 2, 0, 0xff, 0xff]);
    assert!(matches!(play(&requests, &broken, 3), Err(Broken::Answer(_))));
    let unknown = request(ApiKey::Metadata, 99, 2);
    assert!(matches!(
        play(&unknown, &metadata(12, 2, &[("k", 1)]), 3),
        Err(Broken::Answer(_))
    ));
    let full = metadata(12, 2, &[("full", 9092)]);
    assert!(matches!(play(&requests, &full, 64), Err(Broken::Answer(_))));
}

#[test]
fn tls_is_recognised_and_passes() {
    let mut conversation = Conversation::default();
    conversation.hear_requests(&[0x16]).expect("one byte");
    assert!(conversation.is_opaque());
    conversation
        .hear_requests(&[3, 1, 2, 0, 1, 0, 1])
        .expect("no length is read");
    let mut parts = Vec::new();
    conversation
        .hear_answers(&[0x16, 3, 3, 0, 80], &mut parts, &mut |_, port| Ok(port))
        .expect("no length is read");
    assert_eq!(parts, [Part::Through(0..5)]);
}

#[test]
fn the_rewritten_answer_keeps_its_correlation_id() {
    let requests = request(ApiKey::Metadata, 12, 77);
    let heard = play(&requests, &metadata(12, 77, &[("kafka", 9092)]), 9).expect("whole");
    let mut reader = Reader::new(&heard[4..]);
    assert_eq!(decode_response_header(&mut reader, ApiKey::Metadata, 12), Ok(77));
}
