//! Calculator of a producer's buffer: how long it lasts, and who gets an error.

use super::{Answer, Calculator, Inputs, optional, preset, required};
use crate::doctor::arithmetic::{bytes, duration, figure};
use crate::doctor::calculator::quantity::Dimension;
use crate::doctor::diagnosis::Evidence;
use crate::formulas::buffer::{queue_ms_max, seconds_until_full, wait_ms};

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
    let (offered, drained, buffer) = (
        inputs.value("offered"),
        inputs.value("drained"),
        inputs.value("buffer"),
    );
    let (batch, waiting, block) = (
        inputs.value("batch"),
        inputs.value("waiting"),
        inputs.value("max-block"),
    );
    let full = seconds_until_full(buffer, offered, drained);
    let wait = wait_ms(waiting, batch, drained);
    let drained_symbol = |line: Evidence| line.with("drained", drained, "B/s", "stated");
    let mut lines = vec![
        drained_symbol(Evidence::new(
            "F17",
            "t_full",
            "B / (offered - drained)",
            full,
            "s",
        ))
        .with("B", buffer, "B", inputs.origin("buffer"))
        .with("offered", offered, "B/s", "stated"),
        drained_symbol(Evidence::new(
            "F16",
            "q_max",
            "1000 * B / drained",
            queue_ms_max(buffer, drained),
            "ms",
        ))
        .with("B", buffer, "B", inputs.origin("buffer")),
        drained_symbol(Evidence::new(
            "F17",
            "t_wait",
            "1000 * (waiting + 1) * batch / drained",
            wait,
            "ms",
        ))
        .with("waiting", waiting, "", inputs.origin("waiting"))
        .with("batch", batch, "B", inputs.origin("batch")),
    ];
    let least = (waiting + 1.0) * batch / (block / 1_000.0);
    lines.push(
        Evidence::new(
            "F17",
            "drained_min",
            "1000 * (waiting + 1) * batch / block",
            least,
            "B/s",
        )
        .with("waiting", waiting, "", inputs.origin("waiting"))
        .with("batch", batch, "B", inputs.origin("batch"))
        .with("block", block, "ms", inputs.origin("max-block")),
    );
    if let Some(pause) = inputs.maybe("pause") {
        lines.push(
            Evidence::new(
                "F17",
                "B_needed",
                "offered * pause / 1000",
                offered * pause / 1_000.0,
                "B",
            )
            .with("offered", offered, "B/s", "stated")
            .with("pause", pause, "ms", "stated"),
        );
    }
    let text = if full.is_infinite() {
        String::from("the buffer does not fill: what is offered goes out")
    } else if wait > block {
        format!(
            "after {} send() blocks, and then fails: a batch waits {} ms for memory, max.block.ms is {}",
            duration(full),
            figure(wait),
            figure(block)
        )
    } else {
        format!(
            "after {} send() blocks for {} ms per batch; it fails only where less than {}/s go out for {}",
            duration(full),
            figure(wait),
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
