//! Calculators for producers: throughput, request ceiling, window, synchronous sending.

use super::{Answer, Calculator, Inputs, optional, preset, required};
use crate::doctor::calculator::quantity::Dimension;
use crate::doctor::diagnosis::Evidence;
use crate::formulas::ceiling::{
    DEFAULT_BUFFER_BYTES, in_flight_effective, in_flight_use, in_flight_useful, requests_per_connection_max,
    requests_per_second_max, synchronous_records_per_second,
};
use crate::formulas::wire::{
    Connection, bytes_per_second, bytes_per_second_refined, packet_bytes, request_bytes, request_ms,
};
use crate::numbers::{bytes, number, percent};

pub const THROUGHPUT: Calculator = Calculator {
    name: "throughput",
    question: "How many records per second can a producer send over a connection of this round trip?",
    formulas: "F11, F12, F13",
    inputs: &[
        required("record", "size of a record", Dimension::Bytes),
        required("rtt", "network round trip", Dimension::Milliseconds),
        preset("batch", "batch.size", Dimension::Bytes, "16KiB"),
        preset("partitions", "partitions per broker", Dimension::Count, "1"),
        preset(
            "in-flight",
            "max.in.flight.requests.per.connection",
            Dimension::Count,
            "5",
        ),
        preset("send-buffer", "send.buffer.bytes", Dimension::Bytes, "128KiB"),
        preset("max-request", "max.request.size", Dimension::Bytes, "1MiB"),
        preset(
            "brokers",
            "brokers that lead the partitions",
            Dimension::Count,
            "1",
        ),
        preset(
            "broker-time",
            "time of a request in the broker",
            Dimension::Milliseconds,
            "0",
        ),
        optional("bandwidth", "of the link", Dimension::BytesPerSecond),
        optional(
            "window",
            "bytes under way at most, where it is not twice send-buffer",
            Dimension::Bytes,
        ),
    ],
    work_out: throughput,
};

pub const REQUEST_CEILING: Calculator = Calculator {
    name: "request-ceiling",
    question: "How many requests per second can a producer have answered, and how near is it?",
    formulas: "F8, F8b, F9, F14",
    inputs: &[
        required("latency", "request latency", Dimension::Milliseconds),
        preset(
            "in-flight",
            "max.in.flight.requests.per.connection",
            Dimension::Count,
            "5",
        ),
        preset(
            "brokers",
            "brokers that lead the partitions",
            Dimension::Count,
            "1",
        ),
        optional("requests", "requests per second now", Dimension::PerSecond),
        optional("request-size", "mean size of a request", Dimension::Bytes),
        optional(
            "full-request-size",
            "size of a request with full batches",
            Dimension::Bytes,
        ),
        preset(
            "compression",
            "compressed over uncompressed size",
            Dimension::Share,
            "1",
        ),
        optional(
            "broker-time",
            "time of a request in the broker",
            Dimension::Milliseconds,
        ),
        optional("rtt", "network round trip", Dimension::Milliseconds),
    ],
    work_out: request_ceiling,
};

pub const WINDOW: Calculator = Calculator {
    name: "window",
    question: "How large must send and receive buffers be for this link?",
    formulas: "F12, F13",
    inputs: &[
        required("rtt", "network round trip", Dimension::Milliseconds),
        required("bandwidth", "that is to be reached", Dimension::BytesPerSecond),
        preset("send-buffer", "send.buffer.bytes now", Dimension::Bytes, "128KiB"),
        optional("request-size", "size of a request", Dimension::Bytes),
    ],
    work_out: window,
};

pub const SYNCHRONOUS: Calculator = Calculator {
    name: "synchronous",
    question: "How many records per second do threads send that wait for every answer?",
    formulas: "F28",
    inputs: &[
        required("latency", "request latency", Dimension::Milliseconds),
        preset("threads", "threads that send", Dimension::Count, "1"),
        preset("linger", "linger.ms", Dimension::Milliseconds, "5"),
    ],
    work_out: synchronous,
};

fn connection(inputs: &Inputs) -> Connection {
    Connection {
        round_trip_ms: inputs.value("rtt"),
        window_bytes: inputs
            .maybe("window")
            .unwrap_or(2.0 * inputs.value("send-buffer")),
        bandwidth_bytes_per_second: inputs.maybe("bandwidth").unwrap_or(f64::INFINITY),
        broker_ms: inputs.value("broker-time"),
        in_flight: inputs.value("in-flight"),
    }
}

fn throughput(inputs: &Inputs) -> Answer {
    let (record, partitions) = (inputs.value("record"), inputs.value("partitions"));
    let packet = packet_bytes(record, inputs.value("batch"));
    let request = request_bytes(packet, partitions, inputs.value("max-request"));
    let connection = connection(inputs);
    let brokers = inputs.value("brokers");
    let send_buffer = inputs.value("send-buffer");
    let plain = bytes_per_second(
        connection.in_flight,
        request,
        send_buffer,
        connection.round_trip_ms,
    ) * brokers;
    let refined = bytes_per_second_refined(&connection, request) * brokers;
    let lines = throughput_lines(inputs, &connection, [packet, request, plain, refined]);
    // The article's rows are 0.5 to 1.9 times F12, which knows neither the kernel's doubling of the
    // buffer nor requests that are not filled.
    let (low, high) = (plain.min(refined), plain.max(refined));
    let capped = high.min(connection.bandwidth_bytes_per_second * brokers);
    let (low, high) = (low.min(capped), capped);
    let text = if record > 0.0 {
        format!(
            "{} to {} records/s, {}/s to {}/s; the limit is {}",
            number(low / record),
            number(high / record),
            bytes(low),
            bytes(high),
            limit_of(&connection, request)
        )
    } else {
        String::from("a record of no bytes has no rate in bytes")
    };
    let mut notes = vec![String::from(
        "F12 takes the send buffer as it is set; F13 counts round trips per request, and the kernel's doubling of the buffer",
    )];
    if connection.in_flight > 1.0 {
        notes.push(String::from(
            "with many small requests under way 0.7 of this was measured: they do not fill the window",
        ));
    }
    if request < packet * partitions {
        notes.push(format!(
            "max.request.size cuts the request: {} of the {} that all partitions would give",
            bytes(request),
            bytes(packet * partitions)
        ));
    }
    Answer { lines, text, notes }
}

fn throughput_lines(inputs: &Inputs, connection: &Connection, worked: [f64; 4]) -> Vec<Evidence> {
    let [packet, request, plain, refined] = worked;
    let given = |line: Evidence, symbol: &'static str, name: &str, unit: &'static str| {
        line.with(symbol, inputs.value(name), unit, inputs.origin(name))
    };
    let record = inputs.value("record");
    let (rule, packet_line) = if record > inputs.value("batch") {
        ("record", "a record larger than a batch goes alone")
    } else {
        ("floor(batch / record) * record", "whole records in a batch")
    };
    let packet_line = Evidence::new("F11", "packet", rule, packet, format!("B, {packet_line}"));
    let packet_line = given(given(packet_line, "record", "record", "B"), "batch", "batch", "B");
    let request_line = Evidence::new("F11", "request", "min(packet * partitions, limit)", request, "B")
        .with("packet", packet, "B", "worked out")
        .with(
            "limit",
            inputs.value("max-request").max(packet),
            "B",
            inputs.origin("max-request"),
        );
    let request_line = given(request_line, "partitions", "partitions", "");
    let speed = Evidence::new(
        "F12",
        "speed",
        "1000 * min(M * request, buffer) / RTT * N",
        plain,
        "B/s",
    )
    .with("request", request, "B", "worked out");
    let speed = given(speed, "M", "in-flight", "");
    let speed = given(speed, "buffer", "send-buffer", "B");
    let speed = given(given(speed, "RTT", "rtt", "ms"), "N", "brokers", "");
    let window_origin = if inputs.maybe("window").is_some() {
        "stated"
    } else {
        "twice send-buffer"
    };
    let (time_rule, speed_rule) = match inputs.maybe("bandwidth") {
        Some(_) => (
            "RTT * ceil(request / W) + 1000 * request / bandwidth + D",
            "min(1000 * M * request / t, 1000 * W / RTT, bandwidth) * N",
        ),
        None => (
            "RTT * ceil(request / W) + D",
            "min(1000 * M * request / t, 1000 * W / RTT) * N",
        ),
    };
    let limited = |line: Evidence| match inputs.maybe("bandwidth") {
        Some(bandwidth) => line.with("bandwidth", bandwidth, "B/s", "stated"),
        None => line,
    };
    let time = Evidence::new("F13", "t", time_rule, request_ms(connection, request), "ms")
        .with("request", request, "B", "worked out")
        .with("W", connection.window_bytes, "B", window_origin);
    let time = limited(time);
    let time = given(given(time, "RTT", "rtt", "ms"), "D", "broker-time", "ms");
    let refined = Evidence::new("F13", "speed", speed_rule, refined, "B/s")
        .with("request", request, "B", "worked out")
        .with("t", time.result, "ms", "worked out")
        .with("W", connection.window_bytes, "B", window_origin);
    let refined = limited(refined);
    let refined = given(given(refined, "RTT", "rtt", "ms"), "M", "in-flight", "");
    let refined = given(refined, "N", "brokers", "");
    vec![packet_line, request_line, speed, time, refined]
}

/// Which term of F13's minimum is the limit.
fn limit_of(connection: &Connection, request: f64) -> &'static str {
    let by_requests = 1_000.0 * connection.in_flight * request / request_ms(connection, request);
    let by_window = 1_000.0 * connection.window_bytes / connection.round_trip_ms;
    let link = connection.bandwidth_bytes_per_second;
    if link <= by_requests && link <= by_window {
        "the link's bandwidth"
    } else if by_window <= by_requests || request > connection.window_bytes {
        "the window (send.buffer.bytes)"
    } else {
        "the round trip with this many requests in flight"
    }
}

fn request_ceiling(inputs: &Inputs) -> Answer {
    let (latency, in_flight, brokers) = (
        inputs.value("latency"),
        inputs.value("in-flight"),
        inputs.value("brokers"),
    );
    let size = inputs.maybe("request-size");
    let effective = size.map_or(in_flight, |size| {
        in_flight_effective(in_flight, DEFAULT_BUFFER_BYTES, size)
    });
    let max = requests_per_second_max(latency, effective, brokers);
    let mut lines = Vec::new();
    if let Some(size) = size {
        lines.push(
            Evidence::new("F8b", "M_eff", "min(M, 1 + buffers / S)", effective, "")
                .with("M", in_flight, "", inputs.origin("in-flight"))
                .with("buffers", DEFAULT_BUFFER_BYTES, "B", "default")
                .with("S", size, "B", "stated"),
        );
    }
    lines.push(
        Evidence::new("F8", "R_max", "1000 / L * M * N", max, "requests/s")
            .with("L", latency, "ms", "stated")
            .with("M", effective, "", inputs.origin("in-flight"))
            .with("N", brokers, "", inputs.origin("brokers")),
    );
    let mut text = format!("at most {} requests/s", number(max));
    let mut notes = Vec::new();
    if let Some(requests) = inputs.maybe("requests") {
        let used = in_flight_use(requests, max);
        lines.push(
            Evidence::new("F8", "U", "R / R_max", used, "")
                .with("R", requests, "requests/s", "stated")
                .with("R_max", max, "requests/s", "worked out"),
        );
        text.push_str(&format!(", of which {} are used", percent(used)));
        if used > 1.05 {
            notes.push(String::from(
                "more than all requests in flight: latency and rate are not of the same time, or more are allowed",
            ));
        }
    }
    if let Some(full) = inputs.maybe("full-request-size").or(size) {
        let compression = inputs.value("compression");
        let payload = max * full / compression;
        lines.push(
            Evidence::new("F9", "X_max", "R_max * S_max / c", payload, "B/s")
                .with("R_max", max, "requests/s", "worked out")
                .with("S_max", full, "B", "stated")
                .with("c", compression, "", inputs.origin("compression")),
        );
        text.push_str(&format!(
            "; {}/s of payload, if full requests take no longer than {} ms",
            bytes(payload),
            number(latency)
        ));
    }
    serial_service(inputs, &mut lines, &mut notes);
    Answer { lines, text, notes }
}

/// F14: the ceiling from serving a connection's requests one after another.
fn serial_service(inputs: &Inputs, lines: &mut Vec<Evidence>, notes: &mut Vec<String>) {
    let Some(broker) = inputs.maybe("broker-time") else {
        return;
    };
    let serial = requests_per_connection_max(broker) * inputs.value("brokers");
    lines.push(
        Evidence::new("F14", "R_serial", "1000 / D * N", serial, "requests/s")
            .with("D", broker, "ms", "stated")
            .with("N", inputs.value("brokers"), "", inputs.origin("brokers")),
    );
    notes.push(String::from(
        "an Apache Kafka broker serves the requests of a connection one after another, whatever is in flight",
    ));
    if let Some(round_trip) = inputs.maybe("rtt") {
        lines.push(
            Evidence::new(
                "F14",
                "M_useful",
                "1 + RTT / D",
                in_flight_useful(round_trip, broker),
                "",
            )
            .with("RTT", round_trip, "ms", "stated")
            .with("D", broker, "ms", "stated"),
        );
    }
}

fn window(inputs: &Inputs) -> Answer {
    let (round_trip, bandwidth) = (inputs.value("rtt"), inputs.value("bandwidth"));
    let buffer = inputs.value("send-buffer");
    let needed = bandwidth * round_trip / 1_000.0;
    let now = 1_000.0 * buffer / round_trip;
    let mut lines = vec![
        Evidence::new("F12", "window", "bandwidth * RTT / 1000", needed, "B")
            .with("bandwidth", bandwidth, "B/s", "stated")
            .with("RTT", round_trip, "ms", "stated"),
        Evidence::new("F12", "speed_now", "1000 * buffer / RTT", now, "B/s")
            .with("buffer", buffer, "B", inputs.origin("send-buffer"))
            .with("RTT", round_trip, "ms", "stated"),
        Evidence::new("F13", "speed_doubled", "2000 * buffer / RTT", 2.0 * now, "B/s")
            .with("buffer", buffer, "B", inputs.origin("send-buffer"))
            .with("RTT", round_trip, "ms", "stated"),
    ];
    if let Some(request) = inputs.maybe("request-size") {
        let trips = (request / (2.0 * buffer)).ceil().max(1.0);
        lines.push(
            Evidence::new(
                "F13",
                "round_trips",
                "ceil(request / (2 * buffer))",
                trips,
                "per request",
            )
            .with("request", request, "B", "stated")
            .with("buffer", buffer, "B", inputs.origin("send-buffer")),
        );
    }
    let text = if needed <= buffer {
        format!(
            "{} are enough: {} have to be under way",
            bytes(buffer),
            bytes(needed)
        )
    } else {
        format!(
            "send.buffer.bytes and the receiver's buffer of {}: now {}/s to {}/s pass",
            number(needed.ceil()),
            bytes(now.min(bandwidth)),
            bytes((2.0 * now).min(bandwidth))
        )
    };
    let notes = vec![String::from(
        "Linux doubles the buffer that is asked for, up to net.core.wmem_max and rmem_max; part of it is bookkeeping",
    )];
    Answer { lines, text, notes }
}

fn synchronous(inputs: &Inputs) -> Answer {
    let (threads, linger, latency) = (
        inputs.value("threads"),
        inputs.value("linger"),
        inputs.value("latency"),
    );
    let line = |linger: f64, origin: &'static str| {
        let rate = synchronous_records_per_second(threads, linger, latency);
        Evidence::new("F28", "X_r", "T * 1000 / (linger + L)", rate, "records/s")
            .with("T", threads, "", inputs.origin("threads"))
            .with("linger", linger, "ms", origin)
            .with("L", latency, "ms", "stated")
    };
    let with = line(linger, inputs.origin("linger"));
    let without = line(0.0, "assumed");
    let text = format!(
        "{} records/s; {} without linger, which waits for records that are not sent meanwhile",
        number(with.result),
        number(without.result)
    );
    Answer {
        lines: vec![with, without],
        text,
        notes: vec![String::from(
            "with callbacks instead of waiting the ceiling is that of full requests: request-ceiling",
        )],
    }
}
