//! Calculator for a producer's buffer: how long it lasts, and whether send() fails.

use super::{Answer, Calculator, Inputs, optional, preset, required};
use crate::doctor::calculator::quantity::Dimension;
use crate::doctor::diagnosis::Evidence;
use crate::formulas::buffer::{queue_ms_max, seconds_until_full, wait_ms};
use crate::numbers::{bytes, duration, number};

pub const BUFFER_TIME: Calculator = Calculator {
    name: "buffer-time",
    question: "How long does buffer.memory last, and will send() fail?",
    formulas: "F16, F17",
    inputs: &[
        required(
            "offered",
            "bytes per second that the application sends",
            Dimension::BytesPerSecond,
        ),
        required(
            "drained",
            "bytes per second that go out",
            Dimension::BytesPerSecond,
        ),
        preset("buffer", "buffer.memory", Dimension::Bytes, "32MiB"),
        preset("batch", "batch.size", Dimension::Bytes, "16KiB"),
        preset("waiting", "threads that wait besides", Dimension::Count, "0"),
        preset("max-block", "max.block.ms", Dimension::Milliseconds, "60s"),
        optional(
            "pause",
            "of the drain that is to be survived",
            Dimension::Milliseconds,
        ),
    ],
    work_out: buffer_time,
};

fn buffer_time(inputs: &Inputs) -> Answer {
    let lines = lines(inputs);
    let (full, wait, least) = (
        seconds_until_full(
            inputs.value("buffer"),
            inputs.value("offered"),
            inputs.value("drained"),
        ),
        wait_ms(
            inputs.value("waiting"),
            inputs.value("batch"),
            inputs.value("drained"),
        ),
        least_drain(inputs),
    );
    let block = inputs.value("max-block");
    let text = if full.is_infinite() {
        String::from("the buffer does not fill: what is offered goes out")
    } else if wait > block {
        format!(
            "after {} send() blocks, and then fails: a batch waits {} ms for memory, max.block.ms is {}",
            duration(full),
            number(wait),
            number(block)
        )
    } else {
        format!(
            "after {} send() blocks for {} ms per batch; it fails only where less than {}/s go out for {}",
            duration(full),
            number(wait),
            bytes(least),
            duration(block / 1_000.0)
        )
    };
    Answer {
        lines,
        text,
        notes: vec![String::from(
            "a larger buffer only moves the time at which send() blocks; what helps is a faster drain",
        )],
    }
}

/// The drain, in bytes per second, below which a batch waits for longer than max.block.ms.
fn least_drain(inputs: &Inputs) -> f64 {
    1_000.0 * (inputs.value("waiting") + 1.0) * inputs.value("batch") / inputs.value("max-block")
}

fn lines(inputs: &Inputs) -> Vec<Evidence> {
    let (offered, drained, buffer) = (
        inputs.value("offered"),
        inputs.value("drained"),
        inputs.value("buffer"),
    );
    let given = |line: Evidence, symbol: &'static str, name: &str, unit: &'static str| {
        line.with(symbol, inputs.value(name), unit, inputs.origin(name))
    };
    let full = seconds_until_full(buffer, offered, drained);
    let full = Evidence::new("F17", "t_full", "B / (offered - drained)", full, "s");
    let full = given(given(full, "B", "buffer", "B"), "offered", "offered", "B/s");
    let queue = Evidence::new(
        "F16",
        "q_max",
        "1000 * B / drained",
        queue_ms_max(buffer, drained),
        "ms",
    );
    let wait = wait_ms(inputs.value("waiting"), inputs.value("batch"), drained);
    let wait = Evidence::new(
        "F17",
        "t_wait",
        "1000 * (waiting + 1) * batch / drained",
        wait,
        "ms",
    );
    let wait = given(given(wait, "waiting", "waiting", ""), "batch", "batch", "B");
    let expression = "1000 * (waiting + 1) * batch / block";
    let least = Evidence::new("F17", "drained_min", expression, least_drain(inputs), "B/s");
    let least = given(given(least, "waiting", "waiting", ""), "batch", "batch", "B");
    let mut lines = vec![
        given(full, "drained", "drained", "B/s"),
        given(given(queue, "B", "buffer", "B"), "drained", "drained", "B/s"),
        given(wait, "drained", "drained", "B/s"),
        given(least, "block", "max-block", "ms"),
    ];
    if let Some(pause) = inputs.maybe("pause") {
        let needed = Evidence::new(
            "F17",
            "B_needed",
            "offered * pause / 1000",
            offered * pause / 1_000.0,
            "B",
        );
        lines.push(given(
            given(needed, "offered", "offered", "B/s"),
            "pause",
            "pause",
            "ms",
        ));
    }
    lines
}
