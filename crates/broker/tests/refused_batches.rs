//! Batches that a broker refuses, over the wire: error code, message and record.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES, attributes, seal};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::{Codec, compress};
use support::large::{TOPIC, start};
use support::{Client, frame};

/// A batch of three records.
fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    for _ in 0..3 {
        builder.append(1_000, Some(b"key"), Some(b"value"), &[]);
    }
    builder.finish()
}

/// The batch with a changed header, and with other records if given.
fn with(batch: &[u8], records: Option<&[u8]>, change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut header = BatchHeader::decode(batch.first_chunk().unwrap());
    change(&mut header);
    let records = records.unwrap_or(&batch[HEADER_BYTES..]);
    header.batch_length = (HEADER_BYTES - 12 + records.len()) as i32;
    let mut changed = [&header.encode()[..], records].concat();
    seal(&mut changed);
    changed
}

/// Error code, message and offending records of each partition, in order.
type Answer = Vec<(ErrorCode, String, Vec<i32>)>;

fn produce(client: &mut Client, transactional_id: Option<&str>, batches: &[&[u8]]) -> Answer {
    let part = |(index, records): (usize, &&'_ [u8])| (index as i32, records.to_vec());
    let parts: Vec<(i32, Vec<u8>)> = batches.iter().enumerate().map(part).collect();
    let request = ProduceRequest {
        transactional_id,
        acks: -1,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            partition_data: parts
                .iter()
                .map(|(index, records)| PartitionProduceData {
                    index: *index,
                    records: Some(records),
                })
                .collect(),
            ..Default::default()
        }],
    };
    client.send(&frame(ApiKey::Produce, 9, 1, |bytes| request.encode(bytes, 9)));
    let body = client.receive(ApiKey::Produce, 9, 1);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let parts = response.responses[0].partition_responses.iter();
    parts
        .map(|part| {
            let at_fault = part.record_errors.iter().map(|record| record.batch_index);
            let words = part.error_message.unwrap_or_default().to_owned();
            (
                ErrorCode::from_i16(part.error_code).unwrap(),
                words,
                at_fault.collect(),
            )
        })
        .collect()
}

fn codes(answer: &Answer) -> Vec<ErrorCode> {
    answer.iter().map(|(code, ..)| *code).collect()
}

#[test]
fn the_requests_transactional_id_decides_about_transactional_batches() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    let plain = batch(Codec::None);
    let transactional = with(&plain, None, |header| {
        header.attributes |= attributes::TRANSACTIONAL;
        (header.producer_id, header.producer_epoch, header.base_sequence) = (7, 0, 0);
    });
    // Like Kafka, the whole request is refused: one of its batches would block readers of committed
    // records for good.
    let refused = ErrorCode::TransactionalIdAuthorizationFailed;
    let answer = produce(&mut client, None, &[&plain, &transactional]);
    assert_eq!(codes(&answer), [refused; 2]);
    assert!(answer[1].1.contains("transactional id"), "{}", answer[1].1);
    let answer = produce(&mut client, Some("t"), &[&transactional]);
    // Its coordinator knows no such id: a code that every producer retries, as from Kafka.
    assert_eq!(codes(&answer), [ErrorCode::NotEnoughReplicas]);
    // An id alone does not make a transaction.
    assert_eq!(
        codes(&produce(&mut client, Some("t"), &[&plain])),
        [ErrorCode::None]
    );
}

#[test]
fn a_refusal_says_which_record_is_wrong_and_the_others_partitions_are_served() {
    let broker = start();
    let mut client = Client::connect(broker.address());
    for codec in Codec::ALL {
        let sound = batch(codec);
        // The second record's offset delta, which is the fourth byte of a record of 15.
        let mut plain = batch(Codec::None).split_off(HEADER_BYTES);
        plain[15 + 3] = 2 * 5;
        let mut packed = Vec::new();
        compress(codec.into(), &plain, &mut packed);
        let misnumbered = with(&sound, Some(&packed), |_| {});
        let uncounted = with(&sound, None, |header| {
            header.record_count = i32::MAX;
            header.last_offset_delta = i32::MAX - 1;
        });
        let answer = produce(&mut client, None, &[&misnumbered, &uncounted, &sound]);
        let (invalid, none) = (ErrorCode::InvalidRecord, ErrorCode::None);
        assert_eq!(codes(&answer), [invalid, invalid, none], "{codec}");
        assert_eq!(answer[0].1, "record 1: offset delta 5 where 1 is due", "{codec}");
        assert_eq!(
            (&answer[0].2[..], &answer[1].2[..]),
            (&[1][..], &[3][..]),
            "{codec}"
        );
        assert!(answer[1].1.starts_with("record 3: "), "{codec}: {}", answer[1].1);
    }
}
