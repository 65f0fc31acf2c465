//! What two readings of a broker tell of its clients.

use super::*;
use std::net::Ipv4Addr;

use crate::doctor::observe::counts::{DeniedCounts, FetchCounts, GroupCounts, MemberCounts};
use crate::machine::host::HostCounts;

fn denied(operation: &'static str, count: u64) -> DeniedCounts {
    DeniedCounts {
        what: DeniedWhat {
            operation,
            resource_type: "Topic",
            resource: "orders".into(),
            is_by_acl: false,
        },
        count,
    }
}

/// A producer's connection after `requests` requests of 10 records, 1,000 bytes and 2,000 µs
/// each, one of them synced.
fn producer(connection_id: u64, client_id: &str, requests: u64) -> ConnectionCounts {
    let produce = RequestCounts {
        requests,
        request_bytes: 996 * requests,
        batches: 2 * requests,
        records: 10 * requests,
        batch_bytes: 800 * requests,
        handled_micros: 500 * requests,
        synced_micros: 1_500 * requests,
        acks: [requests, 0, 0],
        codecs: BTreeSet::from([Codec::Lz4]),
        gaps: requests,
        gaps_judged: requests,
        gap_micros: 3_000 * requests,
        back_to_back: requests,
        // In reads of 2 and 4 ms.
        read_micros: 6_000 * requests,
        pause_squares: 20_000_000 * requests,
        ..RequestCounts::default()
    };
    ConnectionCounts {
        connection_id,
        client_id: client_id.into(),
        principal: "User:ANONYMOUS".into(),
        address: Ipv4Addr::new(10, 0, 0, 1).into(),
        is_local: false,
        is_off_at_broker: false,
        instance_id: None,
        push_interval_ms: None,
        software: None,
        tls: None,
        produce: Some(produce),
        fetch: None,
        written: None,
        other_micros: 0,
        commits: 0,
        commit_micros: 0,
        nameless_ends: 0,
        denied: Vec::new(),
        unknown_topics: Vec::new(),
        round_trip_micros: Some(2_500),
        smoothed_micros: Some(4_000),
        sending_micros: 10_000 * requests,
        fetched: None,
        is_unheard: false,
        is_closed: false,
    }
}

fn reading(second: u64, busy_micros: u64, connections: Vec<ConnectionCounts>) -> BrokerCounts {
    BrokerCounts {
        node_id: 1,
        at_ms: second as i64 * 1_000,
        moment_micros: second * 1_000_000,
        loop_count: 2,
        busy_micros,
        processor_count: 2,
        processor_micros: busy_micros,
        host: None,
        connections,
        groups: Vec::new(),
        open_transactions: Vec::new(),
        transaction_version: Some(2),
    }
}

/// librdkafka ends transactions on a connection that sends no records.
#[test]
fn ends_of_transactions_without_a_name_are_counted_on_whatever_connection_they_come() {
    let ending = |nameless_ends: u64| ConnectionCounts {
        produce: None,
        nameless_ends,
        ..producer(2, "p", 0)
    };
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![producer(1, "p", 1), ending(7)]));
    let told = windows.take(reading(5, 0, vec![producer(1, "p", 2), ending(10)]));
    let [one] = &told[..] else { panic!("{told:?}") };
    let side = &one.broker;
    assert_eq!(
        (side.nameless_ends, side.transaction_version),
        (Some(3.0), Some(2))
    );
    // A client that ends none is not asked for a version.
    let other = windows.take(reading(10, 0, vec![producer(3, "q", 2)]));
    let other = other.iter().find(|one| one.client.client_id == "q").unwrap();
    assert_eq!(
        (other.broker.nameless_ends, other.broker.transaction_version),
        (None, None)
    );
}

/// Measured: a client on a full machine was told that its broker was slow, because the machine had
/// been idle a minute before.
#[test]
fn what_the_machine_did_before_a_client_began_is_not_told_of_the_client() {
    let mut windows = Windows::default();
    let mut used = |second: u64, busy: u64, idle: u64, connections: Vec<ConnectionCounts>| {
        let mut reading = reading(second, 0, connections);
        reading.host = Some(HostCounts {
            processors: 2,
            busy,
            idle,
            stolen: 0,
            waiting_micros: None,
        });
        let told = windows.take(reading);
        told.first().and_then(|told| told.broker.host?.used)
    };
    let late = |requests| {
        let mut connection = producer(1, "late", requests);
        connection.produce.as_mut().expect("produces").began_micros = Some(9_000_000);
        vec![connection]
    };
    assert_eq!(used(0, 0, 0, Vec::new()), None);
    assert_eq!(used(5, 0, 1_000, Vec::new()), None);
    // Nothing else is known yet than the slice in which it began.
    assert_eq!(used(10, 200, 1_800, late(100)), Some(0.2));
    assert_eq!(used(15, 1_200, 1_800, late(600)), Some(1.0));
}

/// Slices of five seconds, and a client whose first request is answered four seconds into one.
#[test]
fn the_time_before_the_first_request_is_no_time_of_the_client() {
    let mut windows = Windows::default();
    let connection = |requests| {
        let mut connection = producer(1, "late", requests);
        connection.produce.as_mut().expect("produces").began_micros = Some(9_000_000);
        connection
    };
    windows.take(reading(5, 0, Vec::new()));
    let first = windows.take(reading(10, 0, vec![connection(100)]));
    assert_eq!(first[0].seconds, 1.0);
    assert_eq!(first[0].broker.requests_per_second, Some(100.0));
    let second = windows.take(reading(15, 0, vec![connection(600)]));
    assert_eq!(second[0].seconds, 6.0);
    assert_eq!(second[0].broker.requests_per_second, Some(100.0));
    // In the last moment of a slice.
    let mut windows = Windows::default();
    windows.take(reading(5, 0, Vec::new()));
    let last_moment = windows.take(reading(9, 0, vec![connection(1)]));
    assert_eq!(last_moment[0].seconds, 1.0);
    // The earliest of two connections counts.
    let mut windows = Windows::default();
    let mut earlier = producer(2, "late", 300);
    earlier.produce.as_mut().expect("produces").began_micros = Some(7_000_000);
    windows.take(reading(5, 0, Vec::new()));
    let both = windows.take(reading(10, 0, vec![earlier, connection(100)]));
    assert_eq!(both[0].seconds, 3.0);
}

#[test]
fn what_a_clients_connections_speak_is_told_of_it() {
    let mut windows = Windows::default();
    let spoken = "TLSv1.3 TLS_AES_128_GCM_SHA256";
    let told = |windows: &mut Windows, second: u64, tls: Option<&str>| {
        let connection = ConnectionCounts {
            tls: tls.map(Into::into),
            ..producer(1, "app", second * 100)
        };
        let told = windows.take(reading(second, 0, vec![connection]));
        told.first().and_then(|told| told.client.tls.clone())
    };
    assert_eq!(
        told(&mut windows, 5, Some(spoken)),
        None,
        "there is no window yet"
    );
    assert_eq!(told(&mut windows, 10, Some(spoken)).as_deref(), Some(spoken));
    let mut windows = Windows::default();
    assert_eq!(told(&mut windows, 5, None), None);
    assert_eq!(told(&mut windows, 10, None), None);
}

#[test]
fn a_client_that_moves_no_records_is_seen_when_it_is_denied() {
    let client = |counts: &[(&'static str, u64)]| ConnectionCounts {
        produce: None,
        denied: counts
            .iter()
            .map(|(operation, count)| denied(operation, *count))
            .collect(),
        ..producer(1, "p", 0)
    };
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![client(&[("Describe", 2)])]));
    let mut told = |second, counts: &[(&'static str, u64)]| {
        let told = windows.take(reading(second, 0, vec![client(counts)]));
        let of = |one: &Observed| {
            let denied = one.broker.denied.iter();
            let denied = denied.map(|denied| (denied.operation.clone(), denied.count));
            (one.client.role, denied.collect::<Vec<_>>())
        };
        told.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(told(5, &[("Describe", 2)]), [], "nothing is new");
    let describe = |count| ("Describe".to_owned(), count);
    assert_eq!(
        told(10, &[("Describe", 5)]),
        [(Role::Producer, vec![describe(3.0)])]
    );
    // It was displaced by others, and counts from zero.
    assert_eq!(
        told(15, &[("Describe", 1)]),
        [(Role::Producer, vec![describe(4.0)])]
    );
    let read = ("Read".to_owned(), 7.0);
    let both = told(20, &[("Describe", 1), ("Read", 7)]);
    assert!(both.contains(&(Role::Consumer, vec![read])), "{both:?}");
}

#[test]
fn a_producer_that_asks_again_and_again_for_a_topic_is_seen() {
    let client = |asked: u64| ConnectionCounts {
        produce: None,
        unknown_topics: vec![("orders".into(), asked)],
        ..producer(1, "p", 0)
    };
    let group = GroupCounts {
        group_id: "g".into(),
        members: vec![MemberCounts {
            member_id: "p-1".into(),
            client_id: "p".into(),
            client_host: "/10.0.0.1".into(),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
        }],
        partition_count: 1,
        late: Vec::new(),
        committed: Vec::new(),
    };
    let told = |asked: [u64; 2], connection: fn(ConnectionCounts) -> ConnectionCounts, groups: &[_]| {
        let mut windows = Windows::default();
        windows.take(reading(0, 0, vec![connection(client(asked[0]))]));
        let mut later = reading(5, 0, vec![connection(client(asked[1]))]);
        later.groups = groups.to_vec();
        let told = windows.take(later);
        let of = |one: &Observed| (one.client.role, one.broker.unknown_topics.clone());
        told.iter().map(of).collect::<Vec<_>>()
    };
    let orders = UnknownTopic {
        topic: "orders".to_owned(),
        count: 7.0,
    };
    let found = [(Role::Producer, vec![orders])];
    assert_eq!(told([3, 10], |connection| connection, &[]), found);
    assert_eq!(told([3, 5], |connection| connection, &[]), [], "it only looked");
    assert_eq!(told([3, 10], |connection| connection, &[group]), [], "it reads");
    let reading = |connection| ConnectionCounts {
        fetch: Some(RequestCounts::default()),
        ..connection
    };
    assert_eq!(told([3, 10], reading, &[]), []);
}

#[test]
fn a_client_that_goes_again_and_again_before_it_hears_an_answer_is_seen() {
    let gone = |connection_id: u64| ConnectionCounts {
        produce: None,
        is_unheard: true,
        is_closed: true,
        round_trip_micros: Some(40_000),
        ..producer(connection_id, "deaf", 0)
    };
    let told = |count: u64| {
        let mut windows = Windows::default();
        windows.take(reading(0, 0, Vec::new()));
        let told = windows.take(reading(5, 0, (0..count).map(gone).collect()));
        let of = |one: &Observed| {
            (
                one.client.role,
                one.broker.unheard_per_second,
                one.broker.round_trip_ms,
            )
        };
        told.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(told(10), [(Role::Producer, Some(2.0), Some(40.0))]);
    assert_eq!(told(4), [], "it only looked whether the port is open");
}

/// Java and librdkafka have a connection of its own to the coordinator.
#[test]
fn a_consumers_commits_are_counted_on_whatever_connection_they_come() {
    let fetching = |fetches: u64| ConnectionCounts {
        produce: None,
        fetch: producer(1, "reader", fetches).produce,
        ..producer(1, "reader", fetches)
    };
    let committing = |commits: u64| ConnectionCounts {
        produce: None,
        commits,
        commit_micros: 1_500 * commits,
        ..producer(2, "reader", 0)
    };
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![fetching(10), committing(5)]));
    let told = windows.take(reading(5, 0, vec![fetching(20), committing(105)]));
    let [told] = &told[..] else { panic!("one client") };
    assert_eq!(told.client.role, Role::Consumer);
    let side = &told.broker;
    assert_eq!(
        (side.commits_per_second, side.commit_ms, side.requests_per_second),
        (Some(20.0), Some(1.5), Some(2.0))
    );
    // Who only commits, as a tool that sets offsets does, reads nothing.
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![committing(5)]));
    assert!(windows.take(reading(5, 0, vec![committing(105)])).is_empty());
}

#[test]
fn a_window_is_rates_and_means_per_request() {
    let mut windows = Windows::default();
    assert!(
        windows
            .take(reading(0, 0, vec![producer(1, "p", 1_000)]))
            .is_empty()
    );
    let told = windows.take(reading(10, 5_000_000, vec![producer(1, "p", 2_000)]));
    let [told] = &told[..] else { panic!("one client") };
    let side = &told.broker;
    assert_eq!(
        (side.requests_per_second, side.records_per_second),
        (Some(100.0), Some(1_000.0))
    );
    assert_eq!(
        (side.bytes_per_second, side.request_bytes),
        (Some(100_000.0), Some(1_000.0))
    );
    assert_eq!(
        (side.batch_bytes, side.records_per_request),
        (Some(400.0), Some(10.0))
    );
    assert_eq!(
        (side.local_micros, side.remote_micros, side.total_micros),
        (Some(2_000.0), Some(0.0), Some(2_000.0))
    );
    assert_eq!(
        (side.gap_ms, side.back_to_back_share, side.has_overlap),
        (Some(3.0), Some(1.0), Some(false))
    );
    assert_eq!((side.round_trip_ms, side.connections), (Some(2.5), Some(1.0)));
    assert_eq!(side.arriving_share, Some(0.6));
    assert!(side.arrival_pause_ms.is_some_and(|ms| (3.3..3.4).contains(&ms)));
    assert_eq!(side.loaded_round_trip_ms, None, "6 of 10 seconds");
    // 5 of 20 seconds of two loops.
    assert_eq!((side.network_idle, side.cpu_use), (Some(0.75), Some(0.25)));
    assert_eq!(told.settings.acks.map(|acks| acks.value), Some(-1));
    assert_eq!(
        told.settings.compression.map(|codec| codec.value),
        Some(Codec::Lz4)
    );
    assert_eq!(
        (told.client.role, told.seconds, told.has_subscription),
        (Role::Producer, 10.0, false)
    );
}

#[test]
fn a_reader_that_stands_still_where_a_transaction_begins_is_held() {
    let reader = |second: u64, offset| {
        let mut reader = producer(1, "reader", 0);
        let at = FetchCounts {
            topic: "t".into(),
            partition: 3,
            offset,
            end: 900 + second as i64,
        };
        reader.fetched = Some((second * 1_000_000, vec![at]));
        reader.produce = None;
        reader.fetch = Some(RequestCounts {
            requests: second,
            ..RequestCounts::default()
        });
        let mut reading = reading(second, 0, vec![reader]);
        reading.open_transactions = vec![OpenTransactionCounts {
            topic: "t".into(),
            partition: 3,
            first_offset: 700,
            producer_id: 7,
            transactional_id: Some("billing".into()),
            written_ms: 1_000,
        }];
        reading
    };
    let held = |offsets: [i64; 3]| {
        let mut windows = Windows::default();
        let mut told = Vec::new();
        for (second, offset) in [0, 5, 40].into_iter().zip(offsets) {
            told = windows.take(reader(second, offset));
        }
        told[0].broker.held.clone()
    };
    let [held_at] = &held([700, 700, 700])[..] else {
        panic!("one partition")
    };
    assert_eq!((held_at.offset, held_at.lag, held_at.seconds), (700, 240.0, 35.0));
    assert_eq!(held_at.transactional_id.as_deref(), Some("billing"));
    assert_eq!((held_at.producer_id, held_at.idle_seconds), (7, 39.0));
    assert_eq!(held([100, 600, 700]), [], "it has only just come there");
    assert_eq!(held([800, 800, 800]), [], "it has read on");
}

#[test]
fn a_round_trip_is_under_load_only_where_the_broker_was_sending_to_a_consumer() {
    let consumer = |fetches: u64| {
        let connection = producer(1, "c", fetches);
        ConnectionCounts {
            produce: None,
            fetch: connection.produce.clone(),
            ..connection
        }
    };
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![consumer(1_000)]));
    let told = windows.take(reading(10, 0, vec![consumer(1_400)]));
    assert_eq!(told[0].broker.loaded_round_trip_ms, None, "4 of 10 seconds");
    let told = windows.take(reading(20, 0, vec![consumer(1_900)]));
    assert_eq!(told[0].broker.loaded_round_trip_ms, Some(4.0), "5 of 10 seconds");
}

/// The least of all slices: a queue that fills a link is there all the time.
#[test]
fn a_producers_round_trip_is_under_load_only_where_its_requests_always_arrived() {
    let smoothed = |requests: u64, micros: u32| ConnectionCounts {
        smoothed_micros: Some(micros),
        ..producer(1, "p", requests)
    };
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![smoothed(1_000, 9_000)]));
    let mut loaded = |second, requests, micros| {
        let told = windows.take(reading(second, 0, vec![smoothed(requests, micros)]));
        told[0].broker.loaded_round_trip_ms
    };
    assert_eq!(loaded(10, 2_200, 9_000), None, "7.2 of 10 seconds");
    assert_eq!(loaded(20, 3_600, 9_000), Some(9.0), "8.4 of 10 seconds");
    assert_eq!(loaded(30, 5_000, 5_000), Some(5.0));
    assert_eq!(loaded(40, 6_400, 9_000), Some(5.0));
    assert_eq!(loaded(50, 6_500, 2_000), Some(5.0), "little arrived");
}

#[test]
fn what_requests_name_and_weigh_is_in_the_window() {
    let mut windows = Windows::default();
    let limits = FetchLimits {
        min_bytes: 100_000,
        max_wait_ms: 250,
        max_bytes: 50 << 20,
        partition_bytes_max: Some(16_384),
    };
    let both = |requests: u64| {
        let mut both = producer(1, "both", requests);
        both.is_local = true;
        let produce = both.produce.as_mut().unwrap();
        (produce.request_bytes_max, produce.batch_bytes_max) = (70_000, 16_384);
        produce.in_flight_max = 5;
        both.fetch = Some(RequestCounts {
            requests,
            fetch_limits: Some(limits),
            ..RequestCounts::default()
        });
        both
    };
    let busy = |second: u64, busy: u64| {
        let mut reading = reading(second, 0, vec![both(second), producer(2, "far", second)]);
        reading.host = Some(HostCounts {
            processors: 2,
            busy,
            idle: 100,
            stolen: 0,
            waiting_micros: None,
        });
        reading
    };
    windows.take(busy(0, 0));
    let told = windows.take(busy(10, 300));
    let [producer, consumer, far] = &told[..] else {
        panic!("three clients: {told:?}")
    };
    let side = &producer.broker;
    assert_eq!(
        (side.request_bytes_max, side.batch_bytes_max, side.in_flight_max),
        (Some(70_004.0), Some(16_384.0), Some(5.0))
    );
    assert_eq!(side.host.and_then(|host| host.used), Some(1.0));
    assert_eq!(
        (producer.host, far.host),
        (side.host, None),
        "its machine is the broker's"
    );
    let settings = &consumer.settings;
    assert_eq!(
        (settings.fetch_min_bytes, settings.fetch_max_wait_ms),
        (seen(100_000.0), seen(250.0))
    );
    assert_eq!(
        (settings.fetch_max_bytes, settings.max_partition_fetch_bytes),
        (seen(f64::from(50 << 20)), seen(16_384.0))
    );
    assert_eq!(producer.settings.fetch_min_bytes, None);
    assert_eq!(consumer.broker.in_flight_max, None, "fetches do not tell");
}

#[test]
fn connections_of_one_client_are_added_up_including_closed_ones() {
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![producer(1, "p", 100), producer(2, "p", 0)]));
    let mut closed = producer(1, "p", 150);
    closed.is_closed = true;
    let told = windows.take(reading(10, 0, vec![producer(2, "p", 50), closed]));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].broker.requests_per_second, Some(10.0));
    assert_eq!(told[0].broker.connections, Some(1.0));
    // Later readings lack the closed connection, but its requests stay in the window.
    let told = windows.take(reading(20, 0, vec![producer(2, "p", 50)]));
    assert_eq!(told[0].broker.requests_per_second, Some(5.0));
}

#[test]
fn a_client_that_asked_on_another_connection_and_never_pushes_has_a_subscription() {
    let asked = |instance: &str| ConnectionCounts {
        instance_id: Some(instance.to_owned()),
        push_interval_ms: Some(10_000),
        produce: None,
        ..producer(9, "p", 0)
    };
    let has_subscription = |connections: fn(u64) -> Vec<ConnectionCounts>, asked: Vec<ConnectionCounts>| {
        let mut windows = Windows::default();
        windows.take(reading(0, 0, [connections(0), asked.clone()].concat()));
        let told = windows.take(reading(10, 0, [connections(100), asked].concat()));
        told.iter()
            .map(|told| told.has_subscription && told.push_interval_ms.is_some())
            .collect::<Vec<_>>()
    };
    let one = |requests| vec![producer(1, "p", requests)];
    assert_eq!(has_subscription(one, vec![asked("a")]), [true]);
    assert_eq!(has_subscription(one, Vec::new()), [false]);
    // Whose instance it is cannot be told.
    assert_eq!(has_subscription(one, vec![asked("a"), asked("b")]), [false]);
    let two = |requests| vec![producer(1, "p", requests), producer(2, "p", requests)];
    assert_eq!(has_subscription(two, vec![asked("a")]), [false]);
    // The instance produces itself.
    let own = |requests| {
        let own = ConnectionCounts {
            instance_id: Some("a".to_owned()),
            push_interval_ms: Some(10_000),
            ..producer(2, "p", requests)
        };
        vec![producer(1, "p", requests), own]
    };
    assert_eq!(has_subscription(own, vec![asked("a")]), [false, true]);
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![producer(1, "p", 0), asked("a")]));
    let told = windows.take(reading(10, 0, vec![producer(1, "p", 100)]));
    assert_eq!(
        told[0].client.instance_id.as_deref(),
        Some("a"),
        "although the other is closed"
    );
}

#[test]
fn requests_before_the_first_push_count_for_the_instance_that_it_names() {
    let mut windows = Windows::default();
    let tells = |connection_id, requests, instance: u8| {
        let mut connection = producer(connection_id, "p", requests);
        connection.instance_id = Some(instance.to_string());
        connection
    };
    windows.take(reading(0, 0, vec![producer(1, "p", 0)]));
    windows.take(reading(5, 0, vec![producer(1, "p", 100)]));
    let observed = windows.take(reading(10, 0, vec![tells(1, 300, 7)]));
    assert_eq!(observed.len(), 1, "{observed:?}");
    assert!(observed[0].client.instance_id.is_some());
    assert_eq!(observed[0].seconds, 10.0);
    assert_eq!(observed[0].broker.requests_per_second, Some(30.0));
    // Another connection of this client id names no instance and goes on: now it is ambiguous.
    windows.take(reading(15, 0, vec![tells(1, 400, 7), producer(2, "p", 50)]));
    let observed = windows.take(reading(20, 0, vec![tells(1, 500, 7), producer(2, "p", 150)]));
    assert_eq!(observed.len(), 2, "{observed:?}");
}

/// Regression: a consumer that had read all and ended was said to fall behind.
#[test]
fn a_client_that_is_gone_is_judged_by_the_time_in_which_it_was_there() {
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![producer(1, "p", 0)]));
    windows.take(reading(5, 0, vec![producer(1, "p", 100)]));
    windows.take(reading(10, 0, Vec::new()));
    let gone = windows.take(reading(15, 0, Vec::new()));
    let told = (
        gone[0].seconds,
        gone[0].broker.requests_per_second,
        gone[0].broker.connections,
    );
    assert_eq!(told, (5.0, Some(20.0), Some(0.0)));
    // One that comes and goes is there all the time.
    let back = windows.take(reading(20, 0, vec![producer(2, "p", 100)]));
    assert_eq!(
        (back[0].seconds, back[0].broker.requests_per_second),
        (20.0, Some(10.0))
    );
}

#[test]
fn the_rate_of_a_new_client_counts_from_its_first_slice() {
    let mut windows = Windows::default();
    for second in [0, 5, 10, 15, 20] {
        windows.take(reading(second, 0, vec![producer(1, "old", second * 10)]));
    }
    let both = vec![producer(1, "old", 250), producer(2, "new", 500)];
    let observed = windows.take(reading(25, 0, both));
    let rates: Vec<Option<f64>> = observed
        .iter()
        .map(|client| client.broker.requests_per_second)
        .collect();
    assert_eq!(rates, [Some(100.0), Some(10.0)]);
    assert_eq!(observed[0].seconds, 5.0);
}

#[test]
fn a_producer_and_a_consumer_with_one_client_id_are_two_clients() {
    let mut windows = Windows::default();
    let both = |requests| {
        let mut both = producer(1, "rdkafka", requests);
        both.fetch = Some(RequestCounts {
            requests: requests / 10,
            reply_bytes: 100 * requests,
            ..RequestCounts::default()
        });
        both
    };
    windows.take(reading(0, 0, vec![both(0)]));
    let told = windows.take(reading(10, 0, vec![both(100)]));
    let figures = told.iter().map(|told| {
        (
            told.client.role,
            told.broker.requests_per_second,
            told.broker.bytes_per_second,
        )
    });
    let expected = [
        (Role::Producer, Some(10.0), Some(10_000.0)),
        (Role::Consumer, Some(1.0), Some(1_000.0)),
    ];
    assert_eq!(figures.collect::<Vec<_>>(), expected);
    assert!(told[1].settings.acks.is_none());
}

#[test]
fn the_lag_of_a_consumer_without_telemetry_comes_from_its_fetches() {
    let mut windows = Windows::default();
    let consumer = |second: u64, offsets: &[i64], end: i64| {
        let mut consumer = producer(1, "c", 0);
        consumer.produce = None;
        consumer.fetch = Some(RequestCounts {
            requests: second,
            ..RequestCounts::default()
        });
        let partitions = offsets.iter().enumerate().map(|(index, offset)| FetchCounts {
            topic: "t".into(),
            partition: index as i32,
            offset: *offset,
            end,
        });
        consumer.fetched = Some((second * 1_000_000, partitions.collect()));
        consumer
    };
    windows.take(reading(0, 0, vec![consumer(0, &[0, 0], 100)]));
    windows.take(reading(5, 0, vec![consumer(5, &[50, 100], 200)]));
    let told = windows.take(reading(10, 0, vec![consumer(10, &[100, 400], 400)]));
    let [slow, quick] = &told[0].partitions[..] else {
        panic!("two partitions")
    };
    assert_eq!((slow.lag, slow.lag_slope), (Some(300.0), Some(30.0)));
    assert_eq!(
        (slow.consumed_per_second, slow.produced_per_second),
        (Some(10.0), Some(40.0))
    );
    assert_eq!((quick.lag, quick.lag_slope), (Some(0.0), Some(-20.0)));
    // The second partition was given to another member.
    let told = windows.take(reading(15, 0, vec![consumer(15, &[200], 500)]));
    assert_eq!(told[0].partitions.len(), 1);
}

#[test]
fn a_clients_requests_leave_the_window_after_a_minute() {
    let mut windows = Windows::default();
    windows.take(reading(0, 0, vec![producer(1, "p", 0)]));
    for number in 1..=12 {
        let told = windows.take(reading(5 * number, 0, vec![producer(1, "p", 60)]));
        assert_eq!(told.len(), 1, "{number}");
    }
    let told = windows.take(reading(65, 0, vec![producer(1, "p", 60)]));
    assert!(told.is_empty());
}

#[test]
fn a_heavy_neighbour_is_named_with_its_past_share() {
    let mut windows = Windows::default();
    let clients = |victim: u64, heavy: u64| vec![producer(1, "victim", victim), producer(2, "heavy", heavy)];
    windows.take(reading(0, 0, clients(0, 0)));
    // In the first minute both do little; in the second one takes a quarter of two event loops.
    for number in 1..=12 {
        windows.take(reading(5 * number, 0, clients(50 * number, 500 * number)));
    }
    let mut told = Vec::new();
    for number in 1..=12 {
        let heavy = 6_000 + 5_000 * number;
        told = windows.take(reading(60 + 5 * number, 0, clients(600 + 50 * number, heavy)));
    }
    let victim = told
        .iter()
        .find(|told| told.client.client_id == "victim")
        .unwrap();
    let [neighbour] = &victim.neighbours[..] else {
        panic!("one neighbour")
    };
    assert_eq!(neighbour.client_id, "heavy");
    assert!(
        (neighbour.time_share - 0.25).abs() < 0.001,
        "{}",
        neighbour.time_share
    );
    let before = neighbour.time_share_before.unwrap();
    assert!((before - 0.025).abs() < 0.001, "{before}");
    assert_eq!(neighbour.victim_growth, Some(1.0));
    let heavy = told.iter().find(|told| told.client.client_id == "heavy").unwrap();
    assert!(heavy.neighbours.is_empty(), "the victim is too light to be named");
}
