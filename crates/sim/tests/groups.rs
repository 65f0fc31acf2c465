//! Groups of real members and the real coordinator, with broken connections, dying and slow
//! members, and restarts.
//!
//! `OTTLA_SIM_SEED=n` runs one seed, `OTTLA_SIM_SEEDS=n` the first n. A failure names its seed.
//!
//! Seeds 165 and 600 have a static leader that comes back to an assignment that is not whole
//! (`kept_assignment.rs` of the client).

use ottla_log::disk::memory::Random;
use ottla_sim::group_links::LinkTroubles;
use ottla_sim::groups::{GroupRun, Report, Scenario};

const SEEDS_BY_DEFAULT: u64 = 120;

fn for_each_seed(run: impl Fn(u64) -> Report) -> Report {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let mut total = Report::default();
    match number("OTTLA_SIM_SEED") {
        Some(seed) => add(&mut total, run(seed)),
        None => (0..number("OTTLA_SIM_SEEDS").unwrap_or(SEEDS_BY_DEFAULT))
            .for_each(|seed| add(&mut total, run(seed))),
    }
    println!("{total:?}");
    total
}

fn add(total: &mut Report, run: Report) {
    total.generations += run.generations;
    total.commits_accepted += run.commits_accepted;
    total.commits_refused += run.commits_refused;
    total.records_processed += run.records_processed;
    total.records_repeated += run.records_repeated;
    total.broken_connections += run.broken_connections;
    total.killed += run.killed;
    total.closed += run.closed;
    total.fenced += run.fenced;
    total.broker_starts += run.broker_starts;
    total.settled_after_ms = total.settled_after_ms.max(run.settled_after_ms);
}

fn is_one_seed() -> bool {
    std::env::var("OTTLA_SIM_SEED").is_ok()
}

/// A scenario without faults.
fn calm(seed: u64) -> Scenario {
    Scenario {
        members: 1 + seed % 5,
        assignors: [
            vec!["range"],
            vec!["roundrobin"],
            vec!["sticky"],
            vec!["cooperative-sticky"],
            // A group that migrates from eager to cooperative, as Kafka's upgrade notes describe
            // it.
            vec!["cooperative-sticky,range", "range"],
            vec!["cooperative-sticky", "cooperative-sticky,range"],
        ][seed as usize % 6]
            .clone(),
        has_static_members: false,
        has_patterns: seed % 4 == 1,
        has_old_members: seed.is_multiple_of(3),
        auto_commits: seed.is_multiple_of(2),
        troubles: LinkTroubles {
            delay_ms_max: 5,
            ..LinkTroubles::default()
        },
        has_churn: false,
        has_restarts: false,
        has_growth: false,
        is_slow: false,
        chaos_ms: 3_000,
    }
}

fn rate(random: &mut Random, often: u64) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => often * 8,
        2 => often * 3,
        _ => often,
    }
}

fn troubled(seed: u64) -> Scenario {
    let random = &mut Random::new(seed ^ 0x7ab1e);
    let troubles = LinkTroubles {
        refuse: rate(random, 5),
        lose_request: rate(random, 30),
        lose_answer: rate(random, 30),
        break_idle: rate(random, 3_000),
        arrive_late: 2,
        delay_ms_max: 1 + random.below(40),
    };
    Scenario {
        troubles,
        has_static_members: random.one_in(3),
        has_churn: !random.one_in(4),
        has_restarts: random.one_in(2),
        has_growth: random.one_in(2),
        is_slow: random.one_in(2),
        chaos_ms: 20_000,
        ..calm(seed)
    }
}

#[test]
fn members_without_faults_settle_and_lose_nothing() {
    let total = for_each_seed(|seed| GroupRun::new(seed, calm(seed)).run());
    assert_eq!(total.broken_connections, 0);
    assert!(is_one_seed() || total.commits_accepted > 1_000);
}

#[test]
fn no_partition_has_two_owners_and_every_group_settles_after_the_faults() {
    let total = for_each_seed(|seed| GroupRun::new(seed, troubled(seed)).run());
    // Faults were injected.
    if !is_one_seed() {
        assert!(
            total.broken_connections > 100 && total.killed > 10 && total.closed > 10,
            "{total:?}"
        );
        assert!(
            total.fenced > 0 && total.broker_starts > SEEDS_BY_DEFAULT / 2,
            "{total:?}"
        );
        assert!(
            total.commits_refused > 10 && total.records_repeated > 0,
            "{total:?}"
        );
    }
}
