//! Sends records and prints the result: `cargo run --example produce -- localhost:9092 greetings`.
//!
//! Shows the ways to send: with a future, with a callback, and at full speed with a check at the
//! end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().unwrap_or_else(|| "localhost:9092".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "greetings".to_owned());

    // Settings have Kafka's names and defaults: acknowledged by all in-sync replicas, without
    // duplicates, in order.
    let config = Config::new()
        .set("bootstrap.servers", servers)
        .set("client.id", "produce-example")
        .set("linger.ms", "5")
        .set("compression.type", "lz4");
    let producer = Producer::new(&config)?;

    // One record, and its offset. `wait` is for threads; in async code, `.await` the same future.
    let headers = [("source", Some(&b"example"[..]))];
    let record = Record::new(&topic).key("world").value("hello").headers(&headers);
    let metadata = producer.send(&record)?.wait()?;
    println!("{topic}-{} at offset {}", metadata.partition, metadata.offset);

    // With a callback: it runs on a thread of the producer, where a slow callback delays no
    // records.
    producer.send_with(&Record::new(&topic).value("hello again"), |result| match result {
        Ok(metadata) => println!("the callback says: offset {}", metadata.offset),
        Err(error) if error.is_retriable() => eprintln!("not now: {error}"),
        Err(error) => eprintln!("never: {error}"),
    })?;

    // Many records: count the failures, and let `flush` wait for all of them at once.
    let failed = Arc::new(AtomicU64::new(0));
    for number in 0..100_000u32 {
        let key = (number % 1_000).to_be_bytes();
        let value = number.to_string();
        let failed = Arc::clone(&failed);
        producer.send_with(&Record::new(&topic).key(&key).value(&value), move |result| {
            if result.is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        })?;
    }
    producer.flush()?;
    println!("100000 records sent, {} failed", failed.load(Ordering::Relaxed));

    // Dropping the producer would not wait, and the end of the process would lose what is not sent
    // yet; `close` waits and reports whether everything was sent.
    producer.close(Duration::from_secs(10))?;
    Ok(())
}
