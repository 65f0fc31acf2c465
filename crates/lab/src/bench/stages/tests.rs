//! Stages of made-up records whose times are known.

use super::*;

const MS: u64 = 1_000_000;

fn place(offset: i64) -> RecordPlace {
    RecordPlace {
        topic: "t".into(),
        partition: 0,
        offset,
    }
}

/// Due after 1 s, arrives `latency_ms` later.
fn received(offset: i64, latency_ms: u64) -> ReceivedRecord {
    ReceivedRecord {
        place: place(offset),
        due_nanos: 1_000 * MS,
        sent_nanos: 1_000 * MS,
        received_nanos: (1_000 + latency_ms) * MS,
        log_append_ms: None,
    }
}

fn sent(offset: i64, acknowledged_ms: u64) -> SentRecord {
    SentRecord {
        place: place(offset),
        due_nanos: 1_000 * MS,
        sent_nanos: 1_000 * MS,
        acknowledged_nanos: (1_000 + acknowledged_ms) * MS,
    }
}

/// Batches of `batch_records`; the ends of the first four stages in ms after the records were due.
fn log(batches: impl Iterator<Item = (i64, [u64; 4])>, batch_records: i64) -> BrokerLog {
    let rows: Vec<String> = batches
        .map(|(base, ends)| {
            let [received, appended, visible, fetched] = ends.map(|ms| (1_000 + ms) * MS);
            let last = base + batch_records - 1;
            format!("[{base},{last},{received},{appended},{visible},{fetched}]")
        })
        .collect();
    let rows = rows.join(",");
    let document = format!(
        r#"{{"version":1,"one_of":1,"partitions":[{{"topic":"t","partition":0,"batches":[{rows}]}}]}}"#
    );
    BrokerLog::parse(&document).unwrap()
}

fn check_sums(stages: &Stages) {
    for group in &stages.slowest {
        assert_eq!(group.means_ms.len(), stages.names.len());
        let sum: f64 = group.means_ms.iter().sum();
        assert!((sum - group.end_to_end_ms).abs() < 1e-9, "{group:?}");
    }
}

#[test]
fn five_stages_are_told_apart_and_add_up() {
    let records: Vec<_> = (0..10).map(|offset| received(offset, 100)).collect();
    let log = log([(0, [10, 12, 42, 90])].into_iter(), 10);
    let stages = of_ottla(&[], &records, &log);
    assert_eq!(stages.names, FIVE);
    assert_eq!(stages.slowest[0].percentile, 50.0);
    assert_eq!(stages.slowest[0].means_ms, [10.0, 2.0, 30.0, 48.0, 10.0]);
    assert_eq!(stages.slowest[0].end_to_end_ms, 100.0);
    check_sums(&stages);
}

#[test]
fn the_slowest_records_have_means_that_percentiles_of_stages_would_not_give() {
    // Most wait for the network; one in a hundred waits 900 ms for the commit.
    let is_slow = |offset: i64| offset % 100 == 7;
    let records: Vec<_> = (0..2_000)
        .map(|offset| {
            received(
                offset,
                if is_slow(offset) {
                    1_000
                } else {
                    20 + (offset % 3) as u64
                },
            )
        })
        .collect();
    let ends = |offset| {
        if is_slow(offset) {
            [10, 11, 911, 912]
        } else {
            [10, 11, 12, 13]
        }
    };
    let log = log((0..2_000).map(|offset| (offset, ends(offset))), 1);
    let stages = of_ottla(&[], &records, &log);
    let percentiles: Vec<f64> = stages.slowest.iter().map(|group| group.percentile).collect();
    assert_eq!(percentiles, PERCENTILES);
    assert_eq!(stages.slowest[0].means_ms[2], 1.0);
    assert_eq!(stages.slowest[2].means_ms, [10.0, 1.0, 900.0, 1.0, 88.0]);
    assert_eq!(stages.slowest[3].end_to_end_ms, 1_000.0);
    // One fifth of the slowest twentieth waited for the commit.
    assert!((stages.slowest[1].means_ms[2] - (900.0 + 4.0) / 5.0).abs() < 1e-9);
    check_sums(&stages);
}

#[test]
fn percentiles_that_no_record_lies_above_are_left_out() {
    let records: Vec<_> = (0..150).map(|offset| received(offset, 50)).collect();
    let log = log((0..150).map(|offset| (offset, [1, 2, 3, 4])), 1);
    let percentiles = |count| {
        let stages = of_ottla(&[], &records[..count], &log);
        stages
            .slowest
            .iter()
            .map(|group| group.percentile)
            .collect::<Vec<_>>()
    };
    assert_eq!(percentiles(150), [50.0, 95.0, 99.0]);
    assert_eq!(percentiles(20), [50.0, 95.0]);
    assert_eq!(percentiles(2), [50.0]);
    assert_eq!(percentiles(1), [] as [f64; 0]);
}

#[test]
fn times_that_are_a_little_out_of_order_still_add_up() {
    let records = vec![received(0, 5), received(1, 5)];
    // A consumer that waited was woken before the end of the append was noted.
    let log = log([(0, [2, 4, 4, 3])].into_iter(), 2);
    let stages = of_ottla(&[], &records, &log);
    assert_eq!(stages.slowest[0].means_ms, [2.0, 2.0, 0.0, 0.0, 1.0]);
    check_sums(&stages);
}

#[test]
fn another_machines_clock_is_noticed() {
    let records: Vec<_> = (0..100).map(|offset| received(offset, 5)).collect();
    let acknowledged: Vec<_> = (0..100).map(|offset| sent(offset, 2)).collect();
    let log = log([(0, [80_000, 80_001, 80_002, 80_003])].into_iter(), 100);
    let stages = of_ottla(&acknowledged, &records, &log);
    assert_eq!(stages.names.len(), 2);
    assert!(stages.notes[0].contains("another clock"), "{:?}", stages.notes);
    assert_eq!(stages.slowest[0].means_ms, [2.0, 3.0]);
}

#[test]
fn records_whose_batch_was_not_kept_are_counted_and_left_out() {
    let records: Vec<_> = (0..100).map(|offset| received(offset, 5)).collect();
    let log = log([(40, [1, 2, 3, 4])].into_iter(), 10);
    let stages = of_ottla(&[], &records, &log);
    assert!(
        stages.notes[0].starts_with("10 of 100 sampled records"),
        "{:?}",
        stages.notes
    );
    let none = of_ottla(&[], &records, &BrokerLog::default());
    assert!(none.notes[0].contains("no batch"), "{:?}", none.notes);
}

#[test]
fn client_times_alone_give_two_stages_and_note_what_is_merged() {
    let records: Vec<_> = (0..40).map(|offset| received(offset, 10)).collect();
    // The last is acknowledged after it was received.
    let acknowledged: Vec<_> = (0..40)
        .map(|offset| sent(offset, if offset == 39 { 12 } else { 4 }))
        .collect();
    let stages = of_clients(&acknowledged, &records);
    assert_eq!(stages.names, ["produce + publish + commit", "catch-up + fetch"]);
    assert_eq!(stages.slowest[0].means_ms, [4.0, 6.0]);
    assert!(
        stages
            .notes
            .iter()
            .any(|note| note.starts_with("1 records were at the consumer"))
    );
    check_sums(&stages);
}

#[test]
fn without_acknowledgements_there_is_one_stage() {
    let records: Vec<_> = (0..40).map(|offset| received(offset, 10)).collect();
    let stages = of_clients(&[], &records);
    assert_eq!(stages.names.len(), 1);
    assert_eq!(stages.slowest[0].means_ms, [10.0]);
    assert!(of_clients(&[], &[]).slowest.is_empty());
}

#[test]
fn with_log_append_times_publish_and_commit_are_told_apart() {
    let wall_ahead_ms = 1_700_000_000_000i64;
    let appended = |offset, appended_ms: i64| ReceivedRecord {
        log_append_ms: Some(wall_ahead_ms + 1_000 + appended_ms),
        ..received(offset, 30)
    };
    let acknowledged: Vec<_> = (0..40).map(|offset| sent(offset, 10)).collect();
    let records: Vec<_> = (0..40).map(|offset| appended(offset, 4)).collect();
    let wall_ahead_nanos = i128::from(wall_ahead_ms) * 1_000_000;
    let stages = of_clients_at(&acknowledged, &records, wall_ahead_nanos);
    assert_eq!(stages.names, ["produce + publish", "commit", "catch-up + fetch"]);
    assert_eq!(stages.slowest[0].means_ms, [4.5, 5.5, 20.0]);
    check_sums(&stages);
    // Another machine's wall clock, and a topic that previously had CreateTime.
    let far: Vec<_> = (0..40).map(|offset| appended(offset, 5_000)).collect();
    assert_eq!(
        of_clients_at(&acknowledged, &far, wall_ahead_nanos).names.len(),
        2
    );
    let mut mixed = records;
    mixed[3].log_append_ms = None;
    assert_eq!(
        of_clients_at(&acknowledged, &mixed, wall_ahead_nanos).names.len(),
        2
    );
}
