//! Sends records at full speed and prints the rate and the processor time: `produce_load SERVERS
//! TOPIC RECORDS BYTES THREADS [key=value ...] [own]`.
//!
//! All threads send to partition 0; with `own` as the last argument, thread n sends to partition n.

use std::time::Instant;

use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record};

/// User and system time of this process, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    // USER_HZ is 100 on every Linux that matters.
    ticks.iter().sum::<f64>() / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, topic, records, bytes, threads, rest @ ..] = &arguments[..] else {
        return Err("usage: produce_load SERVERS TOPIC RECORDS BYTES THREADS [key=value ...] [own]".into());
    };
    let (records, bytes): (u64, usize) = (records.parse()?, bytes.parse()?);
    let threads: u64 = threads.parse()?;
    let own_partitions = rest.iter().any(|argument| argument == "own");
    let mut config = Config::new().set("bootstrap.servers", servers);
    for (key, value) in rest.iter().filter_map(|argument| argument.split_once('=')) {
        config = config.set(key, value);
    }
    let producer = Producer::new(&config)?;
    producer.partitions_for(topic)?;
    let before = processor_seconds();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let producer = &producer;
            scope.spawn(move || {
                let value = vec![b'v'; bytes];
                let partition = if own_partitions { thread as i32 } else { 0 };
                let record = Record::new(topic).partition(partition).value(&value);
                for _ in 0..records / threads {
                    drop(producer.send(&record).expect("the broker takes it"));
                }
            });
        }
    });
    let sent_seconds = started.elapsed().as_secs_f64();
    producer.flush()?;
    let seconds = started.elapsed().as_secs_f64();
    let processor = processor_seconds() - before;
    let millions = records as f64 / 1e6;
    println!(
        "{:.3} M records/s ({seconds:.2} s, in send {sent_seconds:.2} s), processor {:.3} s per million",
        millions / seconds,
        processor / millions
    );
    Ok(())
}
