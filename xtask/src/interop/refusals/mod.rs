//! `--only refusals`: sends requests and batches with one fault each, the same bytes to Apache
//! Kafka and to Ottla, which run on copies of one directory. Their answers must be the same, or
//! differ as the table of cases says.

mod exchange;
mod answer;
mod case;
mod forged;
mod batch_cases;
mod codec_cases;
mod transaction_cases;
mod produce_cases;
mod log_cases;
mod group_cases;
mod admin_cases;
mod scram_cases;
mod stage;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub(super) use answer::Said;
pub(super) use case::produce_body;
use case::{Case, Expected, TOPIC, TOPIC_PARTITIONS, same_codes};
pub(super) use exchange::{Ask, Outcome, Wire};
pub(super) use forged::Forged;
use stage::Stage;
pub(super) use stage::{answer, is_led, wait_for};

use super::clients::{CLIENTS, Clients};
use super::server::Programs;
use super::table::Table;

/// Longer than any wait requested by a case.
const PATIENCE: Duration = Duration::from_secs(8);

/// A group of cases: its subject, and whether each case has a partition of its own.
type Group = (&'static str, fn() -> Vec<Case>, bool);

const GROUPS: [Group; 8] = [
    ("batches", batch_cases::cases, true),
    ("compressed batches", codec_cases::cases, true),
    ("transactional batches", transaction_cases::cases, true),
    ("produce requests", produce_cases::cases, true),
    ("logs", log_cases::cases, false),
    ("groups", group_cases::cases, false),
    ("administration", admin_cases::cases, false),
    ("SCRAM users", scram_cases::cases, false),
];

pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    let stage = Stage::set(programs)?;
    // Partition 0 is shared by all cases.
    let mut partitions = 1..TOPIC_PARTITIONS;
    let mut stored_alike = Ok(());
    for (group, cases, has_partitions) in GROUPS {
        let cases = cases();
        println!("refusals: {}, {} cases", group, cases.len());
        let mut failed = 0;
        for case in &cases {
            let partition = match has_partitions {
                true => partitions.next().context("more cases than partitions")?,
                false => 0,
            };
            if let Err(error) = play(&stage, case, partition) {
                failed += 1;
                table.add_other(format!("refusals: {}", case.name), Err(format!("{error:#}")));
            } else if has_partitions && stored_alike.is_ok() && matches!(case.expected, Expected::Both(_)) {
                stored_alike = check_stored(&stage, partition).with_context(|| case.name.clone());
            }
        }
        let outcome = match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} of {} cases", cases.len())),
        };
        table.add_other(format!("refusals: {} {group}", cases.len()), outcome);
    }
    let said = stored_alike.map_err(|error| format!("{error:#}"));
    table.add_other("refusals: what both took they stored alike", said);
    for client in CLIENTS {
        let bootstrap = format!("127.0.0.1:{}", stage.ottla_port());
        let arguments = [&["drain", &*bootstrap][..], &stage::topics()].concat();
        println!("{}: reads what Ottla took", client.name());
        let read = clients.run(&programs.kafka, client, &arguments, Duration::from_secs(180))?;
        let read = match read.get("drain") {
            _ if read.len() > 1 => Err(format!("{read:?}")),
            Some(outcome) => outcome.clone(),
            None => Err(format!("did not report: {read:?}")),
        };
        table.add_other(
            format!("refusals: {} reads all that Ottla took", client.name()),
            read,
        );
    }
    stage.strike()
}

/// Runs a case on both brokers.
///
/// - Errors: unexpected answers; the text has both.
fn play(stage: &Stage, case: &Case, partition: i32) -> Result<()> {
    let asks = (case.ask)(&stage.scene(partition));
    let kafka = last(stage.kafka_port(), &asks)?;
    let ottla = last(stage.ottla_port(), &asks)?;
    let is_same = ottla.is_like(&kafka);
    let (is_expected, wanted) = match case.expected {
        Expected::Both(code) => (
            is_same && kafka.short == code && ottla.short == code,
            format!("{code}, alike in everything"),
        ),
        Expected::Differ {
            kafka: k,
            ottla: o,
            why,
        } => (
            !is_same && kafka.short == k && ottla.short == o,
            format!("{k} from Kafka, {o} from Ottla, because: {}", why.text),
        ),
        Expected::KafkaInAnyOrder { ottla: o, why } => (
            same_codes(&kafka.short, o) && ottla.short == o,
            format!("{o}, from Kafka in any order, because: {}", why.text),
        ),
    };
    ensure!(
        is_expected,
        "expected {wanted}\n  Kafka: {}: {}\n  Ottla: {}: {}\n  alike: {is_same}",
        kafka.short,
        kafka.verbose,
        ottla.short,
        ottla.verbose
    );
    Ok(())
}

/// Sends the requests on one connection and returns the answer to the last.
fn last(port: u16, asks: &[Ask]) -> Result<Said> {
    let mut wire = Wire::connect(port, PATIENCE)?;
    let mut said = None;
    for ask in asks {
        said = Some(Said::of(ask, wire.ask(ask)?));
    }
    said.context("a case without requests")
}

/// Checks that a consumer gets the same bytes of the partition from both brokers, except leader
/// epochs.
fn check_stored(stage: &Stage, partition: i32) -> Result<()> {
    let began = Instant::now();
    loop {
        let kafka = stage::stored(stage.kafka_port(), TOPIC, partition)?;
        let ottla = stage::stored(stage.ottla_port(), TOPIC, partition)?;
        if kafka == ottla {
            return Ok(());
        }
        // Records with acks=0 or 1 become visible a moment later.
        ensure!(
            began.elapsed() < PATIENCE,
            "\n  Kafka: {kafka:02x?}\n  Ottla: {ottla:02x?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ottla_wire::deviations;

    use super::*;

    #[test]
    fn every_deviation_is_shown_by_a_case_and_every_case_has_a_name_of_its_own() {
        let cases: Vec<Case> = GROUPS.iter().flat_map(|(_, cases, _)| cases()).collect();
        let shown: BTreeSet<&str> = cases
            .iter()
            .filter_map(|case| match case.expected {
                Expected::Differ { why, .. } | Expected::KafkaInAnyOrder { why, .. } => Some(why.text),
                Expected::Both(_) => None,
            })
            .collect();
        for deviation in deviations::ALL {
            assert!(
                shown.contains(deviation.text),
                "no case shows: {}",
                deviation.text
            );
        }
        let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), cases.len());
    }
}
