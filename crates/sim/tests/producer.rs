//! A producer with broken connections, changing leaders, lost answers and failing brokers.
//!
//! `OTTLA_SIM_SEED=n` runs one seed, `OTTLA_SIM_SEEDS=n` the first n. A failure names its seed.

use ottla_log::disk::memory::Random;
use ottla_sim::brokers::{Brokers, Mishaps};
use ottla_sim::network::Troubles;
use ottla_sim::producing::{Producing, Report, Scenario};
use ottla_sim::served::{Hurt, Served};

const SEEDS_BY_DEFAULT: u64 = 300;

/// Every scenario but the first runs for one in this many seeds.
const OTHERS_PART: u64 = 5;

/// Runs the seeds, then calls `check` on their totals, unless only one seed was run.
fn for_each_seed(part: u64, run: impl Fn(u64) -> Report, check: impl Fn(&Report) -> bool) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let mut total = Report::default();
    if let Some(seed) = number("OTTLA_SIM_SEED") {
        add(&mut total, run(seed));
        return println!("{total:?}");
    }
    let count = number("OTTLA_SIM_SEEDS").unwrap_or(SEEDS_BY_DEFAULT);
    (0..count / part).for_each(|seed| add(&mut total, run(seed)));
    println!("{total:?}");
    assert!(
        count < SEEDS_BY_DEFAULT || check(&total),
        "the simulation did too little: {total:?}"
    );
}

fn add(total: &mut Report, run: Report) {
    total.acknowledged += run.acknowledged;
    total.failed += run.failed;
    total.failed_but_stored += run.failed_but_stored;
    total.not_written += run.not_written;
    total.maybe_written += run.maybe_written;
    total.stored_twice += run.stored_twice;
    total.broken_connections += run.broken_connections;
    total.late_requests += run.late_requests;
    let (all, one) = (&mut total.played, run.played);
    for (sum, part) in [
        (&mut all.appends, one.appends),
        (&mut all.duplicates, one.duplicates),
        (&mut all.refused_duplicates, one.refused_duplicates),
        (&mut all.out_of_order, one.out_of_order),
        (&mut all.fenced_epochs, one.fenced_epochs),
        (&mut all.leader_changes, one.leader_changes),
        (&mut all.not_leader, one.not_leader),
        (&mut all.errors_before, one.errors_before),
        (&mut all.errors_after, one.errors_after),
        (&mut all.too_large, one.too_large),
        (&mut all.hangs, one.hangs),
        (&mut all.throttles, one.throttles),
        (&mut all.nonsense, one.nonsense),
        (&mut all.starts, one.starts),
        (&mut all.producer_ids, one.producer_ids),
        (&mut all.epochs_above_zero, one.epochs_above_zero),
    ] {
        *sum += part;
    }
}

/// A random rate between never and once in `often`.
fn rate(random: &mut Random, often: u64) -> u64 {
    match random.below(4) {
        0 => u64::MAX,
        1 => often * 8,
        2 => often * 3,
        _ => often,
    }
}

fn troubles(random: &mut Random) -> Troubles {
    Troubles {
        refuse: rate(random, 5),
        black_hole: rate(random, 20),
        break_while_writing: rate(random, 20),
        break_after_request: rate(random, 20),
        break_before_answer: rate(random, 10),
        break_idle: rate(random, 300),
        delay_micros_max: [500, 5_000, 200_000][random.below(3) as usize],
        slow_write: rate(random, 10),
        slow_write_micros_max: [1_000, 300_000][random.below(2) as usize],
    }
}

fn mishaps(random: &mut Random) -> Mishaps {
    Mishaps {
        error_before_append: rate(random, 8),
        error_after_append: rate(random, 15),
        forgets_producer: rate(random, 40),
        hangs: rate(random, 60),
        refuses_duplicates: 4,
        throttles: rate(random, 20),
        init_producer_id_fails: rate(random, 2),
        nonsense: u64::MAX,
        service_micros_max: [200, 3_000, 100_000][random.below(3) as usize],
        ..Mishaps::NONE
    }
}

fn scenario(random: &mut Random, settings: &[(&'static str, &str)]) -> (Scenario, Brokers) {
    let request_timeout_ms = [200, 600, 2_000][random.below(3) as usize];
    let linger_ms = [0, 5, 50][random.below(3) as usize];
    // Short timeouts let many batches expire.
    let delivery_timeout_ms = request_timeout_ms + linger_ms + [0, 500, 20_000][random.below(3) as usize];
    let codec = ["none", "none", "none", "gzip", "snappy", "lz4", "zstd"][random.below(7) as usize];
    let mut all: Vec<(&'static str, String)> = vec![
        ("request.timeout.ms", request_timeout_ms.to_string()),
        ("linger.ms", linger_ms.to_string()),
        ("delivery.timeout.ms", delivery_timeout_ms.to_string()),
        ("compression.type", codec.to_string()),
        ("batch.size", (200 + random.below(1_000)).to_string()),
        ("buffer.memory", (4_000 + random.below(30_000)).to_string()),
        ("max.request.size", (1_000 + random.below(4_000)).to_string()),
        ("retry.backoff.ms", (1 + random.below(50)).to_string()),
        ("retry.backoff.max.ms", "300".to_string()),
        ("reconnect.backoff.ms", "10".to_string()),
        ("reconnect.backoff.max.ms", "200".to_string()),
        ("socket.connection.setup.timeout.ms", "300".to_string()),
        ("socket.connection.setup.timeout.max.ms", "600".to_string()),
        ("metadata.max.age.ms", "3000".to_string()),
    ];
    for (key, value) in settings {
        all.retain(|(known, _)| known != key);
        all.push((key, value.to_string()));
    }
    let mut mishaps = mishaps(random);
    mishaps.leader_change = rate(random, 50);
    mishaps.broker_down = rate(random, 200);
    let scenario = Scenario {
        settings: all,
        thread_count: 1 + random.below(3),
        troubles: troubles(random),
        record_count: 100 + random.below(300),
        pause_micros: [50, 1_000, 10_000][random.below(3) as usize],
        value_bytes_max: 1 + random.below(150),
        changes_producer_id: false,
        refused_records: u64::MAX,
        close_within_ms: None,
        // Some of the errors after an append are not retriable.
        may_refuse: mishaps.error_after_append != u64::MAX,
    };
    let (broker_count, partition_count) = (1 + random.below(4), 1 + random.below(6));
    let brokers = Brokers::new(
        random.next(),
        broker_count as usize,
        partition_count as usize,
        mishaps,
    );
    (scenario, brokers)
}

#[test]
fn an_idempotent_producer_stores_every_acknowledged_record_once_and_in_order() {
    for_each_seed(
        1,
        |seed| {
            let mut random = Random::new(seed);
            let in_flight = (1 + random.below(5)).to_string();
            let settings = [("max.in.flight.requests.per.connection", in_flight.as_str())];
            let (scenario, brokers) = scenario(&mut random, &settings);
            Producing::new(seed, scenario, brokers).run()
        },
        |total| {
            total.played.appends > 1_000
                && total.played.refused_duplicates > 0
                && total.not_written > 0
                && total.maybe_written > total.failed_but_stored
        },
    );
}

#[test]
fn batches_that_are_too_large_for_the_broker_are_split_and_keep_their_order() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let (mut scenario, mut brokers) = scenario(&mut random, &[]);
            brokers.set_batch_bytes_max(150 + random.below(300) as usize);
            scenario.may_refuse = true;
            // Some records are too large even in a batch of their own.
            scenario.value_bytes_max = 20 + random.below(350);
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.played.too_large > 100,
    );
}

#[test]
fn refused_records_fail_only_their_batch() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let (mut scenario, brokers) = scenario(&mut random, &[]);
            scenario.refused_records = 20;
            scenario.may_refuse = true;
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.failed > 100 && total.acknowledged > 1_000,
    );
}

#[test]
fn answers_outside_the_protocol_neither_hang_nor_mislead() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let (scenario, mut brokers) = scenario(&mut random, &[]);
            brokers.mishaps.nonsense = 4;
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.played.nonsense > 100,
    );
}

#[test]
fn used_up_epochs_lead_to_another_producer_id() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let (mut scenario, mut brokers) = scenario(&mut random, &[]);
            brokers.set_first_producer_epoch(i16::MAX - 1);
            brokers.mishaps.forgets_producer = 10;
            scenario.changes_producer_id = true;
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.played.producer_ids > 2 * SEEDS_BY_DEFAULT / OTHERS_PART,
    );
}

#[test]
fn close_always_ends_in_time() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let (mut scenario, brokers) = scenario(&mut random, &[]);
            scenario.close_within_ms = Some([0, 100, 3_000][random.below(3) as usize]);
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.failed > 0 && total.acknowledged > 1_000,
    );
}

#[test]
fn without_idempotence_one_request_in_flight_keeps_the_order() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let settings = [
                ("enable.idempotence", "false"),
                ("max.in.flight.requests.per.connection", "1"),
                ("acks", ["1", "all"][random.below(2) as usize]),
            ];
            let (scenario, brokers) = scenario(&mut random, &settings);
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.stored_twice > 0,
    );
}

#[test]
fn without_idempotence_every_acknowledged_record_is_stored() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let in_flight = (1 + random.below(8)).to_string();
            let retries = ["0", "2", "2147483647"][random.below(3) as usize];
            let settings = [
                ("enable.idempotence", "false"),
                ("max.in.flight.requests.per.connection", in_flight.as_str()),
                ("retries", retries),
            ];
            let (mut scenario, brokers) = scenario(&mut random, &settings);
            scenario.may_refuse |= retries != "2147483647";
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.acknowledged > 1_000,
    );
}

#[test]
fn acks_0_waits_for_no_answer_and_leaks_nothing() {
    for_each_seed(
        OTHERS_PART,
        |seed| {
            let mut random = Random::new(seed);
            let settings = [("acks", "0")];
            let (mut scenario, brokers) = scenario(&mut random, &settings);
            scenario.may_refuse |= true;
            Producing::new(seed, scenario, brokers).run()
        },
        |total| total.acknowledged > 1_000,
    );
}

fn served(seed: u64, hurt: Hurt) -> Report {
    let mut random = Random::new(seed);
    // The simulated broker cannot decompress.
    let (mut scenario, _) = scenario(&mut random, &[("compression.type", "none")]);
    scenario.may_refuse = false;
    let served = Served::new(
        random.next(),
        1 + random.below(4) as i32,
        hurt,
        100 + random.below(400),
    );
    Producing::new(seed, scenario, served).run()
}

#[test]
fn after_kills_of_our_own_broker_every_acknowledged_record_is_there_once() {
    for_each_seed(
        OTHERS_PART,
        |seed| served(seed, Hurt::Kill),
        |total| total.acknowledged > 1_000 && total.played.starts > 200,
    );
}

#[test]
fn after_power_cuts_of_our_own_broker_every_acknowledged_record_is_there_once() {
    for_each_seed(
        OTHERS_PART,
        |seed| served(seed, Hurt::PowerCut),
        |total| total.acknowledged > 1_000 && total.played.starts > 200,
    );
}
