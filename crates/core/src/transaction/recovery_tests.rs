//! Decided transactions whose markers meet a failure, through a node without sockets. Names of
//! anomalies are those of Apache Kafka's issues.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::batch::batches;
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

use super::coordinator::Coordinator;
use super::finish::Progress;
use super::request::Producer;
use super::stage_times::Stage;
use crate::config::NodeConfig;
use crate::coordinator::registry::partition_for;
use crate::handlers::metadata_tests::Broker;
use crate::handlers::transaction_flow_tests::{
    Client, TIMEOUT_MS, add_partition, broker, broker_with, commit_offset, committed, described, end, finish,
    init, produce, produce_to, readable, send, tick,
};
use crate::time::Moment;

const HOUR_MS: u64 = 3_600_000;

fn now(broker: &Broker) -> Moment {
    broker.node.clock().moment()
}

/// Has the machine dropped, by a panic under its lock, as by a bug.
fn crash(broker: &Broker, coordinator: &Coordinator) {
    let crash = || coordinator.act(broker.node.services(), 0, |_, _| panic!("a bug in a machine"));
    assert!(
        catch_unwind(AssertUnwindSafe(crash)).is_err(),
        "it was not loaded"
    );
}

/// Loads what was dropped.
fn reload(broker: &Broker) {
    broker.node.groups.maintain(&broker.node.storage);
    broker.node.transactions.maintain(&broker.node.storage);
    while broker.settle() > 0 {}
}

/// A transaction that is decided, and whose markers are not written. Returns its next producer.
fn decided(broker: &Broker, client: Client) -> Producer {
    let producer = init(broker);
    assert_eq!(send(broker, client, producer, 0, 0), ErrorCode::None);
    let next = end(broker, client, producer, true).unwrap();
    assert_eq!(broker.node.transactions.decided(), 1);
    next
}

/// Writes the markers of the decided transaction, and drops the machine before it is told. Returns
/// the coordinator, and the report that it has not got.
fn lose_the_report(broker: &Broker) -> (Arc<Coordinator>, u64, Arc<str>, Producer) {
    let node = &broker.node;
    for coordinator in node.transactions.known() {
        let mut taken = coordinator.take_finishing(node.services());
        let Some(mut finishing) = taken.orders.pop() else {
            continue;
        };
        let progress = finishing.advance(&node.storage, &node.groups, Waker::noop());
        assert_eq!(progress, Progress::Done);
        let generation = taken.generation();
        drop(taken);
        crash(broker, &coordinator);
        let (id, producer) = (finishing.finish.id.clone(), finishing.producer());
        return (coordinator, generation, id, producer);
    }
    panic!("nothing is decided");
}

/// The report completed the transaction of the machine that was loaded since, while the order of
/// that one was queued: its marker ended the next transaction of a producer that keeps its epoch.
#[test]
fn a_report_to_a_machine_that_was_dropped_does_not_complete_its_successors_transaction() {
    let broker = broker();
    let next = decided(&broker, Client::Old);
    let (coordinator, generation, id, producer) = lose_the_report(&broker);
    reload(&broker);
    coordinator.finished(&broker.node.storage, &mut || None, generation, &id, producer);
    assert_eq!(
        broker.node.transactions.decided(),
        1,
        "its own order completes it"
    );
    // The next transaction waits for that, and stays open.
    assert_eq!(send(&broker, Client::Old, next, 0, 1), ErrorCode::None);
    assert_eq!(broker.node.transactions.decided(), 0);
    tick(&broker);
    let (high_watermark, last_stable) = readable(&broker.node, 0);
    assert!(last_stable < high_watermark, "the transaction was ended");
    assert!(end(&broker, Client::Old, next, false).is_ok());
}

/// KAFKA-19999: a marker that was written before a restart is written again; under the rule for
/// epochs per transaction the second one was refused, and the transaction stayed in Prepare.
#[test]
fn a_marker_that_is_repeated_after_a_restart_is_taken() {
    for client in [Client::New, Client::Old] {
        let broker = broker();
        let next = decided(&broker, client);
        lose_the_report(&broker);
        reload(&broker);
        assert_eq!(broker.node.transactions.decided(), 1);
        tick(&broker);
        assert_eq!(broker.node.transactions.decided(), 0, "{client:?}");
        assert_eq!(broker.node.transactions.unfinished(), []);
        // Data, two markers.
        assert_eq!(readable(&broker.node, 0), (3, 3), "{client:?}");
        let sequence = if client == Client::New { 0 } else { 1 };
        assert_eq!(send(&broker, client, next, 0, sequence), ErrorCode::None);
    }
}

/// KAFKA-9777: the wait for a marker loses its completion, and the transaction stays in Prepare
/// although all markers are there.
#[test]
fn the_end_of_a_wait_for_markers_is_not_lost() {
    let broker = broker_with(&[("ottla.durability", "disk")]);
    let producer = init(&broker);
    for partition in [0, 1] {
        assert_eq!(
            send(&broker, Client::New, producer, partition, 0),
            ErrorCode::None
        );
    }
    end(&broker, Client::New, producer, true).unwrap();
    // Every turn is one that the broker asked for.
    for _ in 0..8 {
        broker.sync();
        if broker.node.next_deadline().is_some_and(|due| due <= now(&broker)) {
            broker.node.on_deadline(now(&broker));
        }
    }
    assert_eq!(broker.node.transactions.decided(), 0);
    let times = broker.node.transactions.times();
    let counted = Stage::ALL.map(|stage| times.of(stage).classes.iter().sum::<u64>());
    assert_eq!(counted, [1, 1, 1]);
    assert_eq!(
        (readable(&broker.node, 0), readable(&broker.node, 1)),
        ((2, 2), (2, 2))
    );
}

/// KAFKA-17754, which KIP-890 ended. Before it, a transaction has no name of its own: an EndTxn
/// that is delayed on its way, and that its client has repeated meanwhile, ends the next one.
#[test]
fn a_delayed_end_ends_the_next_transaction_of_clients_before_kip_890_only() {
    let broker = broker();
    let producer = init(&broker);
    let client = Client::Old;
    assert_eq!(send(&broker, client, producer, 0, 0), ErrorCode::None);
    end(&broker, client, producer, true).unwrap();
    tick(&broker);
    assert_eq!(send(&broker, client, producer, 0, 1), ErrorCode::None);
    // The same request arrives again.
    assert_eq!(end(&broker, client, producer, true), Ok(producer));
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (4, 4), "the flaw of the protocol");
    // Its client wanted to abort.
    assert_eq!(
        end(&broker, client, producer, false),
        Err(ErrorCode::InvalidTxnState)
    );

    let broker = self::broker();
    let producer = init(&broker);
    let client = Client::New;
    assert_eq!(send(&broker, client, producer, 0, 0), ErrorCode::None);
    let next = end(&broker, client, producer, true).unwrap();
    tick(&broker);
    assert_eq!(send(&broker, client, next, 0, 0), ErrorCode::None);
    assert_eq!(
        end(&broker, client, producer, true),
        Err(ErrorCode::ProducerFenced)
    );
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (3, 2), "the next one is open");
}

/// KAFKA-12671: a batch that arrives behind the abort of its transaction would open another one,
/// which nothing ends.
#[test]
fn a_batch_behind_the_abort_of_its_transaction_opens_none() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(add_partition(&broker, producer, 0), ErrorCode::None);
    end(&broker, Client::Old, producer, false).unwrap();
    tick(&broker);
    let late = produce(&broker, Client::Old, producer, 0, 0);
    assert_eq!(late, ErrorCode::InvalidTxnState);
    let (high_watermark, last_stable) = readable(&broker.node, 0);
    assert_eq!(high_watermark, last_stable);

    // Since KIP-890 its epoch is that of an earlier transaction.
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::New, producer, 1, 0), ErrorCode::None);
    end(&broker, Client::New, producer, false).unwrap();
    tick(&broker);
    let late = produce(&broker, Client::New, producer, 1, 1);
    assert_eq!(late, ErrorCode::InvalidProducerEpoch);
    let (high_watermark, last_stable) = readable(&broker.node, 1);
    assert_eq!(high_watermark, last_stable);
}

/// KAFKA-12671: a request that adds a partition arrives behind the end of its transaction. Before
/// KIP-890 it begins another one, and a late batch belongs to that; the coordinator knows it, so
/// that it holds up no reader for longer than it may take.
#[test]
fn a_partition_that_is_added_behind_the_end_of_its_transaction_is_let_go() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::Old, producer, 0, 0), ErrorCode::None);
    end(&broker, Client::Old, producer, false).unwrap();
    tick(&broker);
    assert_eq!(add_partition(&broker, producer, 0), ErrorCode::None);
    assert_eq!(produce(&broker, Client::Old, producer, 0, 1), ErrorCode::None);
    assert_eq!(readable(&broker.node, 0), (3, 2));
    broker.advance_ms(TIMEOUT_MS as u64 + 1);
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (4, 4));
    assert_eq!(aborted(&broker), [0, 2]);

    // Since KIP-890 its epoch is that of an earlier transaction.
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::New, producer, 0, 0), ErrorCode::None);
    end(&broker, Client::New, producer, false).unwrap();
    tick(&broker);
    assert_eq!(add_partition(&broker, producer, 0), ErrorCode::ProducerFenced);
    assert_eq!(broker.node.transactions.open(), []);
}

/// How a broker goes down and comes back.
type Restart = fn(Broker) -> Broker;

fn after_clean_stop(broker: Broker) -> Broker {
    broker.node.close().unwrap();
    after_power_cut(broker)
}

/// Jepsen, Redpanda 21.10.1: a batch whose answer was lost was appended once more, or answered with
/// another offset.
#[test]
fn a_batch_that_is_repeated_after_a_restart_is_answered_with_the_offset_that_it_had() {
    for restart in [after_power_cut as Restart, after_clean_stop] {
        for client in [Client::New, Client::Old] {
            let broker = broker_with(&[("ottla.durability", "disk")]);
            let producer = init(&broker);
            for sequence in 0..2 {
                assert_eq!(send(&broker, client, producer, 0, sequence), ErrorCode::None);
            }
            let again = restart(broker);
            finish(&again);
            for sequence in [1, 0] {
                let answers = produce_to(&again, client, producer, &[0], sequence);
                assert_eq!(answers, [(ErrorCode::None, i64::from(sequence))], "{client:?}");
            }
            assert_eq!(readable(&again.node, 0), (2, 0), "{client:?}");
            assert_eq!(send(&again, client, producer, 0, 2), ErrorCode::None);
            end(&again, client, producer, true).unwrap();
            finish(&again);
            assert_eq!(readable(&again.node, 0), (4, 4), "{client:?}");
        }
    }
}

/// Jepsen, Bufstream 0.1.0: offset 0 in the answer to a batch that was not acknowledged. An answer
/// that becomes an error while it waits for the disk loses its offset; a repeated batch that waits
/// has the offset of the first one.
#[test]
fn an_answer_names_the_offset_of_its_batch_or_none() {
    let broker = broker_with(&[("ottla.durability", "disk")]);
    let producer = init(&broker);
    let both = |sequence| produce_to(&broker, Client::New, producer, &[0, 1], sequence);
    assert_eq!(both(0), [(ErrorCode::None, 0); 2]);
    broker.disk.fail_next_sync();
    let mut answers = both(1);
    answers.sort_by_key(|answer| answer.1);
    let failed = (ErrorCode::KafkaStorageError, -1);
    assert_eq!(answers, [failed, (ErrorCode::None, 1)]);
    let mut repeated = both(1);
    repeated.sort_by_key(|answer| answer.1);
    assert_eq!(repeated, answers);
}

/// The group coordinator is loaded again before, or after, the marker is in its log; in between it
/// cannot be, because the marker is applied under the lock of its append.
#[test]
fn offsets_settle_although_their_group_coordinator_is_loaded_again() {
    for is_marker_first in [true, false] {
        let broker = broker();
        let producer = init(&broker);
        assert_eq!(commit_offset(&broker, 5, producer, 7), ErrorCode::None);
        end(&broker, Client::New, producer, true).unwrap();
        if is_marker_first {
            tick(&broker);
        }
        broker.node.groups.crash(broker.node.services());
        reload(&broker);
        assert_eq!(committed(&broker).is_ok(), is_marker_first);
        tick(&broker);
        assert_eq!(committed(&broker), Ok(7), "marker first: {is_marker_first}");
    }
}

/// Each ring of the bell counted as another failure: a group coordinator that loaded for a moment
/// left its offsets unstable for up to 30 s.
#[test]
fn markers_are_written_soon_after_a_group_coordinator_is_loaded_whatever_rings_meanwhile() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(commit_offset(&broker, 5, producer, 7), ErrorCode::None);
    end(&broker, Client::New, producer, true).unwrap();
    broker.node.groups.crash(broker.node.services());
    for _ in 0..100 {
        broker.node.transactions.ring();
        broker.node.on_deadline(now(&broker));
    }
    reload(&broker);
    let due = broker.node.transactions.next_deadline().unwrap();
    assert!(due <= now(&broker).after_ms(200), "{due:?}");
    broker.advance_ms(200);
    tick(&broker);
    assert_eq!(committed(&broker), Ok(7));
}

/// Each ring of the bell, one for every marker of any transaction, tried again and logged an error.
#[test]
fn a_marker_that_contradicts_its_partition_is_tried_again_when_its_time_has_come() {
    let broker = broker();
    let producer = init(&broker);
    let newer = TransactionMarker {
        producer_id: producer.0,
        producer_epoch: producer.1,
        result: TransactionResult::Abort,
        coordinator_epoch: 1_000,
    };
    let partition = broker.node.storage.partition_by_name("t", 0).unwrap();
    partition.append_marker(broker.node.services(), newer, 0).unwrap();
    assert_eq!(send(&broker, Client::Old, producer, 0, 0), ErrorCode::None);
    end(&broker, Client::Old, producer, true).unwrap();
    tick(&broker);
    let first = broker.node.transactions.next_deadline().unwrap();
    assert!(first > now(&broker), "it is refused");
    for _ in 0..100 {
        broker.node.transactions.ring();
        broker.node.on_deadline(now(&broker));
    }
    assert_eq!(broker.node.transactions.next_deadline(), Some(first));
    broker.advance_ms(first.micros_since(now(&broker)).div_ceil(1_000));
    tick(&broker);
    let second = broker.node.transactions.next_deadline().unwrap();
    assert!(second > first);
    assert_eq!(broker.node.transactions.decided(), 1, "it is not given up");
}

/// The deadline of a machine that a panic had dropped stayed: the thread for deadlines ran without
/// a pause until the next request.
#[test]
fn a_machine_that_was_dropped_is_not_due() {
    let broker = broker();
    let coordinators = broker.node.transactions.known();
    crash(&broker, &coordinators[0]);
    broker.node.groups.crash(broker.node.services());
    broker.advance_ms(2 * HOUR_MS);
    broker.node.on_deadline(now(&broker));
    assert!(broker.node.next_deadline().is_none_or(|due| due > now(&broker)));
}

/// The broker that comes after one, whose machine loses what was not synced.
fn after_power_cut(broker: Broker) -> Broker {
    let config = (*broker.node.storage.config).clone();
    let Broker { disk, node, .. } = broker;
    drop(node);
    disk.power_cut();
    let again = Broker::on(disk, config);
    while again.settle() > 0 {}
    again
}

/// Makes durable what is not yet.
type Keep = fn(&Broker);

/// Nothing waits for the end of a transaction, so that it asks for no sync: a power cut may take
/// it, and then the markers are written again. What follows in the log, a checkpoint and a clean
/// stop keep it.
#[test]
fn the_end_of_a_transaction_that_a_power_cut_takes_is_written_again() {
    let keeps: [(&str, Keep); 4] = [
        ("nothing", |_| {}),
        ("a describe", |broker| {
            assert_eq!(described(broker), "CompleteCommit");
        }),
        ("a checkpoint", |broker| {
            broker.advance_ms(HOUR_MS);
            broker.node.maintain();
            broker.sync();
        }),
        ("a clean stop", |broker| broker.node.close().unwrap()),
    ];
    for (name, keep) in keeps {
        let broker = broker_with(&[("ottla.durability", "disk")]);
        let producer = init(&broker);
        assert_eq!(send(&broker, Client::New, producer, 0, 0), ErrorCode::None);
        let next = end(&broker, Client::New, producer, true).unwrap();
        finish(&broker);
        keep(&broker);
        let again = after_power_cut(broker);
        let is_lost = again.node.transactions.decided() == 1;
        assert_eq!(is_lost, name == "nothing", "{name}");
        finish(&again);
        assert_eq!(again.node.transactions.decided(), 0, "{name}");
        // A record, its marker, and that marker again.
        let end_offset = 2 + i64::from(is_lost);
        assert_eq!(readable(&again.node, 0), (end_offset, end_offset), "{name}");
        assert_eq!(send(&again, Client::New, next, 0, 0), ErrorCode::None, "{name}");
        assert!(end(&again, Client::New, next, false).is_ok(), "{name}");
    }
}

/// Kills a broker and damages the newest batch of a log, which its next start cuts off.
fn restart_without_newest_batch(broker: Broker, directory: &str) -> Broker {
    let properties = [("log.dirs", "/data"), ("ottla.durability", "page-cache")];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = NodeConfig::from_properties(&BTreeMap::from(properties), [6; 4]).unwrap();
    let Broker { disk, node, .. } = broker;
    drop(node);
    disk.kill();
    let path = Path::new("/data")
        .join(directory)
        .join("00000000000000000000.log");
    let log = disk.read_file(&path).unwrap();
    let lengths = batches(&log)
        .map_while(Result::ok)
        .map(|batch| batch.bytes.len() as u64);
    disk.corrupt(&path, lengths.sum::<u64>() - 1, 1);
    let again = Broker::on(disk, config);
    reload(&again);
    tick(&again);
    assert_eq!(again.node.transactions.decided(), 0);
    again
}

/// Ends a transaction with one record. Time passes, as between any two transactions.
fn transact(
    broker: &Broker,
    client: Client,
    producer: Producer,
    partition: i32,
    sequence: i32,
    committed: bool,
) -> Producer {
    broker.advance_ms(1);
    assert_eq!(
        send(broker, client, producer, partition, sequence),
        ErrorCode::None
    );
    broker.advance_ms(1);
    let next = end(broker, client, producer, committed).unwrap();
    broker.advance_ms(1);
    tick(broker);
    next
}

fn sequence(client: Client, count: i32) -> i32 {
    if client == Client::New { 0 } else { count }
}

/// First offsets of aborted transactions.
fn aborted(broker: &Broker) -> Vec<i64> {
    let reader = broker
        .node
        .storage
        .partition_by_name("t", 0)
        .unwrap()
        .view()
        .reader;
    let aborted = reader.aborted_transactions(0, 100);
    aborted.iter().map(|aborted| aborted.first_offset).collect()
}

/// The marker of an abort was cut off as an unfinished append, and the producer's next commit made
/// the aborted records visible.
#[test]
fn a_marker_that_is_lost_is_written_again_with_the_outcome_of_its_transaction() {
    for client in [Client::New, Client::Old] {
        for outcomes in [[true, false], [false, true]] {
            let broker = broker();
            let mut producer = init(&broker);
            for (count, outcome) in outcomes.into_iter().enumerate() {
                let sequence = sequence(client, count as i32);
                producer = transact(&broker, client, producer, 0, sequence, outcome);
            }
            assert_eq!(readable(&broker.node, 0), (4, 4));
            let again = restart_without_newest_batch(broker, "t-0");
            assert_eq!(readable(&again.node, 0), (4, 4), "{client:?} {outcomes:?}");
            transact(&again, client, producer, 0, sequence(client, 2), true);
            let expected = outcomes.iter().position(|outcome| !outcome).unwrap() as i64 * 2;
            assert_eq!(aborted(&again), [expected], "{client:?} {outcomes:?}");
        }
    }
}

#[test]
fn offsets_whose_marker_is_lost_are_settled_with_their_outcome() {
    for is_commit in [true, false] {
        let broker = broker();
        let producer = init(&broker);
        assert_eq!(commit_offset(&broker, 5, producer, 7), ErrorCode::None);
        end(&broker, Client::New, producer, is_commit).unwrap();
        tick(&broker);
        assert_eq!(committed(&broker), Ok(if is_commit { 7 } else { -1 }));
        let directory = format!("__consumer_offsets-{}", partition_for("readers", 50));
        let again = restart_without_newest_batch(broker, &directory);
        assert_eq!(committed(&again), Ok(if is_commit { 7 } else { -1 }));
    }
}

#[test]
fn a_lost_marker_is_written_again_although_its_producer_came_back_or_went_elsewhere() {
    for client in [Client::New, Client::Old] {
        let broker = broker();
        let first = init(&broker);
        let producer = transact(&broker, client, first, 0, 0, false);
        transact(&broker, client, producer, 1, 0, true);
        let producer = init(&broker);
        let again = restart_without_newest_batch(broker, "t-0");
        assert_eq!(readable(&again.node, 0), (2, 2), "{client:?}");
        transact(&again, client, producer, 0, 0, true);
        assert_eq!(aborted(&again), [0], "{client:?}");
    }
}

/// What the log of the coordinator no longer tells is not guessed: the open transaction is not the
/// one whose outcome is known.
#[test]
fn the_transaction_whose_beginning_is_lost_gets_no_marker_of_an_earlier_one() {
    for client in [Client::New, Client::Old] {
        let broker = broker();
        let producer = init(&broker);
        let next = transact(&broker, client, producer, 0, 0, true);
        broker.advance_ms(1);
        assert_eq!(
            send(&broker, client, next, 0, sequence(client, 1)),
            ErrorCode::None
        );
        let directory = format!("__transaction_state-{}", partition_for("billing", 50));
        let again = restart_without_newest_batch(broker, &directory);
        assert_eq!(readable(&again.node, 0), (3, 2), "{client:?}");
    }
}
