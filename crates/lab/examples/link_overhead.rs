//! Measures what the relay costs on this machine, and how accurately it keeps a link's times:
//! `cargo run --release -p ottla-lab --example link_overhead`.

use std::io;

use ottla_lab::link::namespace::Namespace;
use ottla_lab::link::relay::Relay;
use ottla_lab::link::{namespace, overhead};
use ottla_lab::scenario::model::LinkSpec;

fn main() -> io::Result<()> {
    // No client connects: any valid address will do.
    let relay = Relay::start("127.0.0.1:1", &LinkSpec::default())?;
    println!("{}", relay.overhead()?);
    println!("\n| round trip | window | request | a second | by arithmetic | late p50 | p99 | max (us) |");
    println!("|---|---|---|---|---|---|---|---|");
    for (round_trip_ms, window_bytes, request_bytes) in [
        (0.5, 0, 1_000),
        (5.0, 0, 1_000),
        (72.0, 0, 10_000),
        (72.0, 102_400, 10_000),
        (72.0, 102_400, 200_000),
        (72.0, 102_400, 600_000),
        (72.0, 204_800, 600_000),
        (72.0, 1_024_000, 600_000),
    ] {
        let spec = LinkSpec {
            round_trip_ms,
            window_bytes,
            ..LinkSpec::default()
        };
        let requests = (4_000.0 / round_trip_ms).clamp(8.0, 500.0) as u32;
        let (seconds, late) = overhead::request_seconds(&spec, request_bytes, requests)?;
        let windows = match window_bytes {
            0 => 1,
            window_bytes => (request_bytes as u64).div_ceil(window_bytes),
        };
        println!(
            "| {round_trip_ms} ms | {window_bytes} | {request_bytes} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} |",
            1.0 / seconds,
            1_000.0 / (round_trip_ms * windows as f64),
            late.p50,
            late.p99,
            late.max
        );
    }
    println!("\nnamespaces: {}", namespace::probe());
    let spec = LinkSpec {
        round_trip_ms: 72.0,
        ..LinkSpec::default()
    };
    let namespace = match Namespace::create(&spec) {
        Ok(namespace) => namespace,
        Err(error) => {
            println!("no real packets here: {error}");
            return Ok(());
        }
    };
    println!("\n| round trip | send.buffer.bytes | request | a second, real packets |\n|---|---|---|---|");
    for (send_buffer_bytes, request_bytes) in [
        (102_400, 10_000),
        (102_400, 200_000),
        (102_400, 600_000),
        (502_400, 600_000),
        (1_024_000, 600_000),
    ] {
        let seconds = overhead::real_request_seconds(&namespace, send_buffer_bytes, request_bytes, 20)?;
        println!(
            "| 72 ms | {send_buffer_bytes} | {request_bytes} | {:.2} |",
            1.0 / seconds
        );
    }
    Ok(())
}
