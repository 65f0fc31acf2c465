//! Calculators for brokers: replication, queues, cold reads, the shared limit of several clients.

use super::{Answer, Calculator, Inputs, optional, preset, required};
use crate::doctor::calculator::quantity::Dimension;
use crate::doctor::diagnosis::Evidence;
use crate::doctor::rules::broker::sharing::{Sharing, Shortage, shortage};
use crate::formulas::queueing::{
    blocked_share, read_bytes_per_second, wait_factor, written_bytes_per_second,
};
use crate::numbers::{bytes, number, percent};

pub const REPLICATION_LOAD: Calculator = Calculator {
    name: "replication-load",
    question: "What does a broker write and send when leaders are spread evenly?",
    formulas: "F25",
    inputs: &[
        required("produced", "by clients, per broker", Dimension::BytesPerSecond),
        required("consumed", "by clients, per broker", Dimension::BytesPerSecond),
        preset("replicas", "replication factor", Dimension::Count, "3"),
        optional(
            "link",
            "bandwidth of a broker's network",
            Dimension::BytesPerSecond,
        ),
        optional(
            "disk",
            "bytes per second that a broker's disks write",
            Dimension::BytesPerSecond,
        ),
    ],
    work_out: replication_load,
};

pub const QUEUEING: Calculator = Calculator {
    name: "queueing",
    question: "How much longer do requests wait when utilisation changes?",
    formulas: "F24",
    inputs: &[
        required(
            "utilisation",
            "of the busiest thread pool: 1 - idle share",
            Dimension::Share,
        ),
        optional("then", "utilisation after a change", Dimension::Share),
    ],
    work_out: queueing,
};

pub const COLD_READS: Calculator = Calculator {
    name: "cold-reads",
    question: "How much of the network threads do reads from the disk block?",
    formulas: "F26",
    inputs: &[
        required(
            "reads",
            "fetches per second that read the disk",
            Dimension::PerSecond,
        ),
        preset("time", "of such a read", Dimension::Milliseconds, "50"),
        preset("threads", "num.network.threads", Dimension::Count, "3"),
    ],
    work_out: cold_reads,
};

pub const SCALING: Calculator = Calculator {
    name: "scaling",
    question: "Clients together get less than their number times what one gets: who is the limit?",
    formulas: "comparison with F15",
    inputs: &[
        required(
            "alone",
            "bytes per second of one client alone",
            Dimension::BytesPerSecond,
        ),
        required("clients", "how many run together", Dimension::Count),
        required(
            "together",
            "bytes per second of all of them",
            Dimension::BytesPerSecond,
        ),
        optional(
            "link",
            "bandwidth of the broker's network",
            Dimension::BytesPerSecond,
        ),
        optional(
            "disk",
            "bytes per second of the broker's disks",
            Dimension::BytesPerSecond,
        ),
        preset("brokers", "brokers that serve them", Dimension::Count, "1"),
    ],
    work_out: scaling,
};

fn replication_load(inputs: &Inputs) -> Answer {
    let (replicas, produced, consumed) = (
        inputs.value("replicas"),
        inputs.value("produced"),
        inputs.value("consumed"),
    );
    let written = written_bytes_per_second(replicas, produced);
    let read = read_bytes_per_second(replicas, produced, consumed);
    let with = |line: Evidence| {
        line.with("w", produced, "B/s", "stated")
            .with("RF", replicas, "", inputs.origin("replicas"))
    };
    let lines = vec![
        with(Evidence::new("F25", "written", "RF * w", written, "B/s")),
        with(Evidence::new("F25", "read", "r + (RF - 1) * w", read, "B/s"))
            .with("r", consumed, "B/s", "stated"),
    ];
    let mut notes = vec![String::from(
        "leaders that are not spread evenly load their brokers more; followers that fall behind read the disk",
    )];
    for (name, load) in [("link", read), ("disk", written)] {
        if let Some(limit) = inputs.maybe(name) {
            let usable = if name == "link" { 0.92 * limit } else { limit };
            notes.push(format!(
                "{} of what the {name} carries ({}/s)",
                percent(load / usable),
                bytes(usable)
            ));
        }
    }
    Answer {
        lines,
        text: format!("{}/s are written, {}/s are sent", bytes(written), bytes(read)),
        notes,
    }
}

fn queueing(inputs: &Inputs) -> Answer {
    let line = |utilisation: f64| {
        Evidence::new(
            "F24",
            "wait",
            "rho / (1 - rho)",
            wait_factor(utilisation),
            "service times",
        )
        .with("rho", utilisation, "", "stated")
    };
    let now = line(inputs.value("utilisation"));
    let mut text = format!("a request waits {} times its service time", number(now.result));
    let mut lines = vec![now];
    if let Some(then) = inputs.maybe("then") {
        let then = line(then);
        text.push_str(&format!("; then {}", number(then.result)));
        lines.push(then);
    }
    Answer {
        lines,
        text,
        notes: vec![String::from(
            "the slowest broker sets the tail: the utilisation of the busiest one counts",
        )],
    }
}

fn cold_reads(inputs: &Inputs) -> Answer {
    let (reads, time, threads) = (
        inputs.value("reads"),
        inputs.value("time"),
        inputs.value("threads"),
    );
    let blocked = blocked_share(reads, time, threads);
    let line = Evidence::new(
        "F26",
        "blocked",
        "reads * t / 1000 / threads",
        blocked,
        "of the network threads",
    )
    .with("reads", reads, "/s", "stated")
    .with("t", time, "ms", inputs.origin("time"))
    .with("threads", threads, "", inputs.origin("threads"));
    Answer {
        lines: vec![line],
        text: format!(
            "{} of the network threads' time is blocked",
            percent(blocked.min(1.0))
        ),
        notes: vec![String::from("a read from the page cache takes about 0.1 ms")],
    }
}

fn scaling(inputs: &Inputs) -> Answer {
    let sharing = Sharing {
        alone_bytes_per_second: inputs.value("alone"),
        clients: inputs.value("clients"),
        together_bytes_per_second: inputs.value("together"),
        link_bytes_per_second: inputs.maybe("link"),
        disk_bytes_per_second: inputs.maybe("disk"),
        brokers: inputs.value("brokers"),
    };
    let offered = sharing.offered_bytes_per_second();
    let line = Evidence::new("sharing", "offered", "alone * clients", offered, "B/s")
        .with("alone", sharing.alone_bytes_per_second, "B/s", "stated")
        .with("clients", sharing.clients, "", "stated");
    let found = shortage(&sharing);
    let text = match found {
        Shortage::None => format!(
            "no common limit: {}/s are {} of {}/s",
            bytes(sharing.together_bytes_per_second),
            percent(sharing.together_bytes_per_second / offered),
            bytes(offered)
        ),
        Shortage::Link => String::from("the brokers' network is the limit"),
        Shortage::Disk => String::from("the brokers' disks are the limit"),
        Shortage::Broker => format!(
            "the broker is the limit: {}/s of {}/s offered, less than network and disk carry",
            bytes(sharing.together_bytes_per_second),
            bytes(offered)
        ),
    };
    let mut notes = Vec::new();
    if found == Shortage::Broker {
        notes.push(String::from(
            "more brokers and partitions help in proportion; more clients or threads do not",
        ));
    }
    Answer {
        lines: vec![line],
        text,
        notes,
    }
}
