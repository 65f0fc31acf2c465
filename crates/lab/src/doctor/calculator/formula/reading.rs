//! Calculators for consumers: catching up, how many are needed, their commits.

use super::{Answer, Calculator, Inputs, optional, preset, required};
use crate::doctor::calculator::quantity::Dimension;
use crate::doctor::diagnosis::Evidence;
use crate::formulas::consumer::{catch_up_seconds, commits_per_second, consumers_needed};
use crate::numbers::{duration, number};

pub const CATCH_UP: Calculator = Calculator {
    name: "catch-up",
    question: "When has a consumer caught up, and how many consumers are needed?",
    formulas: "F29",
    inputs: &[
        required("lag", "records behind the end", Dimension::Count),
        required(
            "consumed",
            "records per second of one consumer",
            Dimension::PerSecond,
        ),
        required("produced", "records per second", Dimension::PerSecond),
        preset("consumers", "in the group", Dimension::Count, "1"),
        optional("work", "on one record, in the consumer", Dimension::Milliseconds),
        optional("partitions", "of the topic", Dimension::Count),
    ],
    work_out: catch_up,
};

pub const COMMITS: Calculator = Calculator {
    name: "commits",
    question: "How many commits per second does a group's coordinator get?",
    formulas: "consumers / auto.commit.interval",
    inputs: &[
        required("consumers", "in the group", Dimension::Count),
        preset(
            "interval",
            "auto.commit.interval.ms",
            Dimension::Milliseconds,
            "5s",
        ),
    ],
    work_out: commits,
};

fn catch_up(inputs: &Inputs) -> Answer {
    let (lag, produced) = (inputs.value("lag"), inputs.value("produced"));
    let consumed = inputs.value("consumed") * inputs.value("consumers");
    let seconds = catch_up_seconds(lag, consumed, produced);
    let mut lines = vec![
        Evidence::new("F29", "catch_up", "lag / (consumed - produced)", seconds, "s")
            .with("lag", lag, "records", "stated")
            .with("consumed", consumed, "records/s", "stated")
            .with("produced", produced, "records/s", "stated"),
    ];
    let mut text = if seconds.is_infinite() {
        String::from("never: it is not faster than what is produced")
    } else {
        format!("after {}", duration(seconds))
    };
    let mut notes = Vec::new();
    let work = inputs
        .maybe("work")
        .or_else(|| Some(1_000.0 / inputs.value("consumed")).filter(|work| work.is_finite()));
    if let Some(work) = work {
        let needed = consumers_needed(produced, work);
        lines.push(
            Evidence::new(
                "F29",
                "needed",
                "ceil(produced * work / 1000)",
                needed,
                "consumers",
            )
            .with("produced", produced, "records/s", "stated")
            .with("work", work, "ms", inputs.origin("work")),
        );
        text.push_str(&format!(
            "; {} consumers keep up with what is produced",
            number(needed)
        ));
        if let Some(partitions) = inputs.maybe("partitions")
            && needed > partitions
        {
            notes.push(format!(
                "only {} can work: a partition is read by one member of a group",
                number(partitions)
            ));
        }
    }
    Answer { lines, text, notes }
}

fn commits(inputs: &Inputs) -> Answer {
    let (consumers, interval) = (inputs.value("consumers"), inputs.value("interval"));
    let rate = commits_per_second(consumers, interval);
    Answer {
        lines: vec![
            Evidence::new("commits", "commits", "1000 * consumers / interval", rate, "/s")
                .with("consumers", consumers, "", "stated")
                .with("interval", interval, "ms", inputs.origin("interval")),
        ],
        text: format!("{} commits/s", number(rate)),
        notes: vec![String::from(
            "each is a write to one partition of __consumer_offsets, at one coordinator; a longer interval lowers it in proportion",
        )],
    }
}
