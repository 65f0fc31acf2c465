//! Reads topics as a member of a group and prints every record, until none has arrived for ten
//! seconds.
//!
//! ```text
//! cargo run --example consume -- localhost:9092 readers orders payments
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use ottla_client::config::Config;
use ottla_client::consumer::Consumer;

const IDLE_MAX: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [servers, group, topics @ ..] = &arguments[..] else {
        return Err("usage: consume BOOTSTRAP_SERVERS GROUP TOPIC...".into());
    };
    let config = Config::new()
        .set("bootstrap.servers", servers)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest");
    let mut consumer = Consumer::new(&config)?;
    consumer.subscribe(topics.iter().map(String::as_str))?;

    let mut last_record = Instant::now();
    while last_record.elapsed() < IDLE_MAX {
        let records = match consumer.poll(Duration::from_secs(1)) {
            Ok(records) => records,
            // A broker restarts, the group moves to another coordinator: the consumer recovers by
            // itself.
            Err(error) if error.is_retriable() => {
                eprintln!("{error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for record in &records {
            // Key and value borrow from the fetched bytes; copy what must outlive the batch.
            let key = String::from_utf8_lossy(record.key.unwrap_or_default());
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            println!(
                "{}-{} @ {}: {key} = {value}",
                record.topic, record.partition, record.offset
            );
            last_record = Instant::now();
        }
    }
    // Commits what was read (enable.auto.commit) and leaves the group, so that the other members
    // need not wait for this one's session to time out.
    consumer.close(Duration::from_secs(30))?;
    Ok(())
}
