//! Records of `__transaction_state` by Apache Kafka's own classes, in every state and at every
//! transaction version (`cargo xtask golden`, `xtask/java/TransactionStates.java`).

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::records::batch::batches;

use super::loading::Loading;
use super::lost_markers::LostMarkers;
use super::machine::{Machine, World};
use super::record::TransactionRecord;
use super::request::{Effect, Reply, Request, Ticket};
use super::state::{Status, TransactionState};
use crate::coordinator::replay::{Place, Replayed, replay_batches};
use crate::time::{Moment, Now, Timestamp};

const LOG: &[u8] = include_bytes!("golden/kafka-4.3.0-transaction-state.log");
const STATES: &str = include_str!("golden/kafka-4.3.0-transaction-state.tsv");

fn world(fresh: &mut dyn FnMut() -> Option<i64>) -> World<'_> {
    let now = Now {
        moment: Moment::from_micros(1),
        timestamp: Timestamp(1_700_000_000_500),
    };
    World { now, level: 2, fresh }
}

fn load() -> Machine {
    let mut loading = Loading {
        machine: Machine::new(Arc::default()),
        lost_markers: LostMarkers::default(),
    };
    let place = Place {
        path: "__transaction_state-0/00.log".into(),
        position: 0,
    };
    let mut replayed = Replayed::default();
    replay_batches(LOG, &place, 0, &mut loading, &mut replayed).expect("intact and understood");
    assert!(replayed.is_whole(), "{replayed:?}");
    loading.machine
}

/// In the words of the golden file.
fn line(id: &str, state: &TransactionState) -> String {
    let mut places: Vec<String> = state
        .partitions
        .iter()
        .map(|(topic, index)| format!("{topic}-{index}"))
        .collect();
    places.sort();
    let status = state.status.name();
    let (ids, epoch) = (
        [
            state.producer_id,
            state.previous_producer_id,
            state.next_producer_id,
        ]
        .map(|id| id.to_string()),
        state.producer_epoch,
    );
    format!(
        "{id}\t{status}\t{}\t{epoch}\t{}\t{}\t{}\t{}\t{}",
        ids.join("\t"),
        state.timeout_ms,
        places.join(","),
        state.started.0,
        state.updated.0,
        state.client_version
    )
}

#[test]
fn what_apache_kafka_wrote_is_read_as_apache_kafka_reads_it() {
    let mut machine = load();
    let step = machine.handle(&mut world(&mut || None), Ticket(0), Request::List);
    let Some((_, Reply::List(all))) = step.replies.into_iter().next() else {
        panic!("no list")
    };
    let mut found: Vec<String> = all.iter().map(|(id, state)| line(id, state)).collect();
    found.sort();
    let mut expected: Vec<&str> = STATES
        .lines()
        .filter(|line| !line.ends_with("\tExpired"))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(STATES.lines().count() - expected.len(), 3, "expired ones");
}

/// What Apache Kafka left undone is done: its decisions are carried out by the rule for markers
/// that its client had, and what was open times out.
#[test]
fn what_apache_kafka_had_decided_is_finished() {
    let mut machine = load();
    let step = machine.arm(&mut world(&mut || None));
    let order = |effect| match effect {
        Effect::Finish(finish) => (
            finish.id.to_string(),
            (
                finish.is_commit,
                finish.producer_epoch,
                finish.partitions.len(),
                finish.transaction_version,
            ),
        ),
        Effect::AllocateProducerIds => panic!("no id is used up"),
    };
    let orders: BTreeMap<String, _> = step.effects.into_iter().map(order).collect();
    let expected = [
        ("aborted-empty-2", (false, 1, 0, 2)),
        ("exhausted-prepare-2", (true, i16::MAX, 3, 2)),
        ("old-client-2", (true, 0, 3, 0)),
        ("one-partition-0", (false, 0, 1, 0)),
        ("one-partition-1", (false, 0, 1, 0)),
        ("one-partition-2", (false, 2, 1, 2)),
        ("prepare-abort-0", (false, 0, 3, 0)),
        ("prepare-abort-1", (false, 0, 3, 0)),
        ("prepare-abort-2", (false, 1, 3, 2)),
        ("prepare-commit-0", (true, 0, 3, 0)),
        ("prepare-commit-1", (true, 0, 3, 0)),
        ("prepare-commit-2", (true, 1, 3, 2)),
    ];
    assert_eq!(orders, expected.map(|(id, order)| (id.to_owned(), order)).into());
    let ongoing = step.records.iter().filter(|record| {
        let state = record.state.as_ref();
        state.is_some_and(|state| state.status == Status::Ongoing)
    });
    assert_eq!(ongoing.count(), 6, "are written again");
    // The earliest that was open began 3 ms after the first record, and may take a minute.
    let due = machine.next_deadline().expect("open transactions time out");
    assert_eq!(due, Moment::from_micros(1).after_ms(60_003 - 500));
}

/// Apache Kafka writes several partitions in the order of a hash table, we in theirs.
#[test]
fn records_are_written_byte_for_byte_as_apache_kafka_writes_them() {
    let (mut same, mut reordered) = (0, 0);
    for batch in batches(LOG).map(Result::unwrap) {
        let record = batch.records().next().unwrap().unwrap();
        let (kafkas_key, kafkas) = (record.key.unwrap(), record.value);
        let decoded = TransactionRecord::decode(kafkas_key, kafkas).unwrap().unwrap();
        let version = kafkas.map_or(0, |value| i16::from_be_bytes([value[0], value[1]]));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let ours = decoded.encode(version, &mut key, &mut value);
        assert_eq!(key, kafkas_key);
        if decoded
            .state
            .as_ref()
            .is_none_or(|state| state.partitions.len() <= 1)
        {
            assert_eq!(ours, kafkas, "{decoded:?}");
            same += 1;
        } else {
            assert_eq!(ours.map(<[u8]>::len), kafkas.map(<[u8]>::len), "{decoded:?}");
            let again = TransactionRecord::decode(&key, ours).unwrap();
            assert_eq!(again, Some(decoded));
            reordered += 1;
        }
    }
    assert!(same > 60 && reordered > 30, "{same}, {reordered}");
}
