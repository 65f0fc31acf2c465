//! The arithmetic that is shown with any verdict: every formula whose inputs are known, and
//! remarks.

use crate::doctor::diagnosis::{Evidence, Verdict};
use crate::formulas::{batching, ceiling, latency};

use super::super::words::{self, evidence as line, measured, of_setting};
use super::backlog::{Backlog, served_share};
use super::reading::{Bound, Reading, clean, positive};
use super::{window, worker};
use crate::numbers::number;

/// Every formula whose inputs are known, in the order of the tree.
pub(crate) fn evidence(reading: &Reading<'_>, verdict: Verdict) -> Vec<Evidence> {
    // Without a verdict, only what brokers measured is shown.
    if verdict == Verdict::NotEnoughData && reading.snapshot.brokers.is_empty() {
        return Vec::new();
    }
    let lines = [
        request_ceiling(reading),
        in_flight_use(reading),
        fill(reading),
        load(reading),
        sender_latency(reading),
        broker_share(reading),
        worker_use(reading),
        callbacks(reading),
        way(reading),
    ];
    lines.into_iter().flatten().collect()
}

fn request_ceiling(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    pipe.used?;
    let count = reading.nodes.len() as f64;
    let request_ms = positive(pipe.request_ms)?;
    let result = clean(Some(ceiling::requests_per_second_max(
        request_ms,
        pipe.in_flight,
        count,
    )))?;
    let allowed = of_setting("M", reading.settings.in_flight, "requests");
    let (expression, in_flight) = if (pipe.in_flight - allowed.value).abs() < 0.01 {
        ("1000 / L * M * N", allowed)
    } else {
        (
            "1000 / L * M_eff * N",
            words::measured("M_eff", pipe.in_flight, "requests"),
        )
    };
    line(
        "F8",
        expression,
        vec![
            measured("L", pipe.request_ms?, "ms"),
            in_flight,
            measured("N", count, "brokers"),
        ],
        ("R_max", result, "requests/s"),
    )
}

fn in_flight_use(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    let most = ceiling::requests_per_second_max(positive(pipe.request_ms)?, pipe.in_flight, 1.0);
    line(
        "F8",
        "R_n / (1000 / L_n * M_eff)",
        vec![
            measured("R_n", pipe.requests_per_second, "requests/s"),
            measured("L_n", pipe.request_ms?, "ms"),
            measured("M_eff", pipe.in_flight, "requests"),
            measured("R_n,max", most, "requests/s"),
        ],
        ("U", pipe.used?, ""),
    )
}

fn fill(reading: &Reading<'_>) -> Option<Evidence> {
    line(
        "F18",
        "b / batch.size",
        vec![
            measured("b", reading.batch_bytes?, "bytes"),
            of_setting("batch.size", reading.settings.batch_bytes, "bytes"),
        ],
        (
            "phi",
            batching::fill_share(reading.batch_bytes?, reading.settings.batch_bytes.value),
            "",
        ),
    )
}

fn load(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    line(
        "F9",
        "min(U, 1) * S / S_max",
        vec![
            measured("U", pipe.used?, ""),
            measured("S", pipe.request_bytes?, "bytes"),
            measured("S_max", reading.request_bytes_max(), "bytes"),
        ],
        ("Z", reading.load()?, ""),
    )
}

/// F5 with the fill time of a batch, where it is known; q + L where there is a backlog.
fn sender_ms(reading: &Reading<'_>) -> Option<f64> {
    let (queue_ms, request_ms) = (reading.queue_ms?, reading.request_ms?);
    if reading.backlog == Backlog::Hard {
        return Some(latency::sender_ms_high(queue_ms, request_ms));
    }
    let batches = reading.nodes.len().max(1) as f64 * reading.partitions_per_broker;
    let records = reading.batch_bytes? / reading.record_bytes()?;
    let rate = positive(reading.records_per_second)? / batches;
    // The record that opens a batch waits for no fill time: a record alone in its batch waits all
    // of q.
    Some(latency::sender_ms(
        queue_ms,
        request_ms,
        (records - 1.0).max(0.0),
        rate,
    ))
}

fn sender_latency(reading: &Reading<'_>) -> Option<Evidence> {
    let result = sender_ms(reading)?;
    let expression = if reading.backlog == Backlog::Hard {
        "q + L"
    } else {
        "q - f / 2 + L"
    };
    line(
        "F5",
        expression,
        vec![
            measured("q", reading.queue_ms?, "ms"),
            measured("L", reading.request_ms?, "ms"),
        ],
        ("sender latency", result, "ms"),
    )
}

fn broker_share(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    line(
        "F14",
        "R_n * D_n / 1000",
        vec![
            measured("R_n", pipe.requests_per_second, "requests/s"),
            measured("D_n", pipe.broker.as_ref()?.ms?, "ms"),
        ],
        (
            "share of time that the connection is served",
            served_share(pipe)?,
            "",
        ),
    )
}

fn worker_use(reading: &Reading<'_>) -> Option<Evidence> {
    line(
        "F6",
        "X_r * W / T",
        vec![
            measured("X_r", reading.records_per_second?, "records/s"),
            measured("W", reading.send_micros?, "µs"),
            measured("T", reading.threads?, "threads"),
        ],
        ("use of the sending threads", worker::used(reading)?, ""),
    )
}

fn callbacks(reading: &Reading<'_>) -> Option<Evidence> {
    if let Some(micros) = reading.callback_micros {
        return line(
            "F7",
            "X_r * C",
            vec![
                measured("X_r", reading.records_per_second?, "records/s"),
                measured("C", micros, "µs"),
            ],
            ("use of the callbacks' thread", reading.callback_use()?, ""),
        );
    }
    let (other, rate) = (reading.io_other?, positive(reading.records_per_second)?);
    line(
        "F7",
        "i_oth / X_r",
        vec![measured("i_oth", other, ""), measured("X_r", rate, "records/s")],
        (
            "callback at most",
            latency::callback_micros_max(other, rate),
            "µs",
        ),
    )
}

fn way(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    let trip = reading.round_trip(pipe)?;
    let bytes = window::on_the_way(reading, pipe, trip.ms)?;
    line(
        "F12",
        "X_b * RTT / 1000",
        vec![
            measured(
                "X_b",
                pipe.bytes_per_second.or(reading.bytes_per_second)?,
                "bytes/s",
            ),
            measured("RTT", trip.ms, "ms"),
        ],
        ("bytes on the way", bytes, "bytes"),
    )
}

pub(crate) fn notes(reading: &Reading<'_>, verdict: Verdict) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(sender) = sender_ms(reading) {
        let is_growing = reading.backlog == Backlog::Hard
            && reading
                .queue_ms_max
                .zip(reading.queue_ms)
                .is_some_and(|(most, mean)| most > 1.4 * mean);
        let least = if is_growing { "at least " } else { "" };
        let low = latency::sender_ms_low(reading.queue_ms.unwrap_or(0.0), reading.request_ms.unwrap_or(0.0));
        notes.push(format!(
            "sender latency: {least}{} ms; the talk's lower bound q/2 + L is {} ms (F5)",
            number(sender),
            number(low)
        ));
    }
    if reading.backlog == Backlog::Hard && worker::used(reading).is_some_and(|used| used >= 0.8) {
        notes.push(
            "the threads' time in send() is a consequence: it includes waiting for buffer memory".to_owned(),
        );
    }
    let is_one = reading.settings.in_flight.value <= 1.0 && is_of_pipe(verdict);
    if is_one && reading.snapshot.telemetry.is_silent {
        notes.push(
            "the client pushed nothing by itself: with a full pipe of one in flight it cannot".to_owned(),
        );
    } else if is_one && reading.is_complete_reading() {
        notes.push(
            "with one in flight and a full pipe a Java client pushes no metrics: expect silence".to_owned(),
        );
    }
    notes.extend(request_fill(reading));
    notes
}

/// Whether a verdict is one of requests that are all under way.
pub(crate) fn is_of_pipe(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::SenderRate
            | Verdict::NetworkRtt
            | Verdict::NetworkWindow
            | Verdict::NetworkBandwidth
            | Verdict::Broker
            | Verdict::SenderThread
    )
}

/// Requests that hold fewer batches than they could: the article's 2.4 of 5 records per round trip.
fn request_fill(reading: &Reading<'_>) -> Option<String> {
    let request = reading.request_bytes?;
    let most = reading.request_bytes_max();
    let is_unfilled = reading.bound == Bound::Pipe
        && reading.knows_fill()
        && reading.partitions_per_broker > 1.0
        && request < 0.6 * most;
    is_unfilled.then(|| {
        format!(
            "requests hold {} of the {} that their partitions could fill: look at records per request",
            crate::numbers::bytes(request),
            crate::numbers::bytes(most)
        )
    })
}
