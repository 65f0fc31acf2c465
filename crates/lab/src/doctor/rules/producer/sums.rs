//! Writes the arithmetic that is shown: evidence lines, the summary sentence, and remarks.

use crate::doctor::diagnosis::{Evidence, Recommendation, Verdict};
use crate::formulas::{batching, ceiling, latency};

use super::super::words::{self, evidence as line, measured, of_setting};
use super::backlog::{self, Backlog};
use super::limit;
use super::pipe::served_share;
use super::reading::{Reading, positive};
use super::refusals;
use crate::numbers::{number, percent};

/// Every formula whose inputs are known, in the order of the tree.
pub(crate) fn evidence(reading: &Reading<'_>, verdict: Verdict, backlog: Backlog) -> Vec<Evidence> {
    // Without a verdict, only what brokers measured is shown.
    if verdict == Verdict::NotEnoughData && reading.snapshot.brokers.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        request_ceiling(reading),
        in_flight_use(reading),
        fill(reading),
        load(reading),
    ];
    lines.extend([
        sender_latency(reading, backlog),
        broker_share(reading),
        worker_use(reading),
        callbacks(reading),
        way(reading),
    ]);
    lines.into_iter().flatten().collect()
}

fn request_ceiling(reading: &Reading<'_>) -> Option<Evidence> {
    let pipe = reading.hottest()?;
    pipe.used?;
    let count = reading.nodes.len() as f64;
    let result = refusals::request_ceiling(reading, pipe)?;
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
pub(crate) fn sender_ms(reading: &Reading<'_>, backlog: Backlog) -> Option<f64> {
    let (queue_ms, request_ms) = (reading.queue_ms?, reading.request_ms?);
    if backlog == Backlog::Hard {
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

fn sender_latency(reading: &Reading<'_>, backlog: Backlog) -> Option<Evidence> {
    let result = sender_ms(reading, backlog)?;
    let expression = if backlog == Backlog::Hard {
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
        ("use of the sending threads", limit::worker_use(reading)?, ""),
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
    let bytes = super::cause::on_the_way(reading, pipe, trip.ms)?;
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

/// Describes N1, when the pipe has room and the thread has none.
pub(crate) fn busy_thread(reading: &Reading<'_>) -> String {
    if let (Some(micros), Some(used), true) = (
        reading.callback_micros,
        reading.callback_use(),
        reading.has_slow_callbacks(),
    ) {
        return format!(
            "callbacks of {} µs, one after another, take {} of their thread: no more than {} records/s are confirmed (F7)",
            number(micros),
            percent(used),
            number(1e6 / micros)
        );
    }
    let wait = percent(reading.io_wait.unwrap_or(0.0));
    let rate = positive(reading.records_per_second);
    let bound = reading.io_other.zip(rate).map(|(other, rate)| {
        format!(
            ": callbacks and closing batches take {} of it, {} µs a record at most (F7)",
            percent(other),
            number(latency::callback_micros_max(other, rate))
        )
    });
    format!(
        "the I/O thread waits {wait} of its time{}",
        bound.unwrap_or_default()
    )
}

pub(crate) fn summary(
    reading: &Reading<'_>,
    verdict: Verdict,
    text: &str,
    spare: Option<f64>,
    recommendation: Option<&Recommendation>,
) -> String {
    let mut sentence = String::new();
    if let Some(used) = reading.used().filter(|_| refusals::is_of_pipe(verdict)) {
        sentence.push_str(&format!("U = {}", number(used)));
        if let Some(fill) = reading.fill() {
            sentence.push_str(&format!(", batches {} full", percent(fill)));
        }
        sentence.push_str(": ");
    }
    sentence.push_str(text);
    if let (Verdict::KeepsUp, Some(spare)) = (verdict, spare) {
        sentence.push_str(&format!("; spare capacity {} times", number(spare)));
    }
    if let Some(recommendation) = recommendation {
        let promise = &recommendation.promise;
        let (low, high) = (number(promise.low), number(promise.high));
        let range = match low == high {
            true => low,
            false => format!("{low} to {high}"),
        };
        sentence.push_str(&format!(
            "; {} promises {range} {}",
            recommendation.set, promise.unit
        ));
    }
    sentence
}

pub(crate) fn notes(reading: &Reading<'_>, verdict: Verdict, backlog: Backlog) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(sender) = sender_ms(reading, backlog) {
        let own = reading.snapshot.producer.as_ref();
        let threshold = backlog::queue_threshold_ms(reading);
        let is_growing = own.is_some_and(|own| backlog::is_rising(&own.queue_ms_max_course, threshold))
            || (backlog == Backlog::Hard
                && reading
                    .queue_ms_max
                    .zip(reading.queue_ms)
                    .is_some_and(|(most, mean)| most > 1.4 * mean));
        let least = if is_growing { "at least " } else { "" };
        let low = latency::sender_ms_low(reading.queue_ms.unwrap_or(0.0), reading.request_ms.unwrap_or(0.0));
        notes.push(format!(
            "sender latency: {least}{} ms; the talk's lower bound q/2 + L is {} ms (F5)",
            number(sender),
            number(low)
        ));
    }
    if backlog == Backlog::Hard && limit::worker_use(reading).is_some_and(|used| used >= 0.8) {
        notes.push(
            "the threads' time in send() is a consequence: it includes waiting for buffer memory".to_owned(),
        );
    }
    if verdict == Verdict::KeepsUp && backlog == Backlog::None && reading.settings.linger_ms.value >= 20.0 {
        notes.push(format!(
            "latency is linger: {} ms of it",
            number(reading.settings.linger_ms.value)
        ));
    }
    if refusals::is_of_pipe(verdict)
        && reading.settings.in_flight.value <= 1.0
        && reading.is_complete_reading()
    {
        notes.push(
            "with one in flight and a full pipe a Java client pushes no metrics: expect silence".to_owned(),
        );
    }
    if verdict == Verdict::SenderRate && super::levers::has_full_batches(reading) {
        notes
            .push("more partitions for each broker would enlarge requests too, but are permanent".to_owned());
    }
    if reading.snapshot.telemetry.is_silent && refusals::is_of_pipe(verdict) {
        notes.push(
            "the client pushed nothing by itself: with a full pipe of one in flight it cannot".to_owned(),
        );
    }
    request_fill(reading, verdict, &mut notes);
    notes
}

/// Requests that hold fewer batches than they could: the article's 2.4 of 5 records per round trip.
fn request_fill(reading: &Reading<'_>, verdict: Verdict, notes: &mut Vec<String>) {
    let Some(request) = reading.request_bytes else {
        return;
    };
    let most = reading.request_bytes_max();
    if refusals::is_of_pipe(verdict) && reading.partitions_per_broker > 1.0 && request < 0.6 * most {
        notes.push(format!(
            "requests hold {} of the {} that their partitions could fill: look at records per request",
            crate::numbers::bytes(request),
            crate::numbers::bytes(most)
        ));
    }
}
