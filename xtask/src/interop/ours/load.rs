//! One producer or consumer of ours as a properties file describes it, for `cargo xtask
//! doctor-truth` (`doctor_truth/load.rs` explains the keys).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record};

/// What was done since the last line.
#[derive(Default)]
struct Done {
    failed: u64,
    latencies_ms: Vec<f64>,
}

struct Load {
    keys: BTreeMap<String, String>,
    config: Config,
    done: Arc<Mutex<Done>>,
}

pub fn run(bootstrap: &str, file: &str) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let mut load = Load {
        keys: BTreeMap::new(),
        config: Config::new().set("bootstrap.servers", bootstrap),
        done: Arc::default(),
    };
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key.strip_prefix("load.") {
            Some(key) => {
                load.keys.insert(key.to_owned(), value.to_owned());
            }
            None => load.config = load.config.set(key, value),
        }
    }
    let done = Arc::clone(&load.done);
    std::thread::spawn(move || report(&done));
    match load.keys["role"].as_str() {
        "producer" => load.produce(),
        _ => load.consume(),
    }
}

fn report(done: &Mutex<Done>) {
    let mut due = Instant::now();
    loop {
        due += Duration::from_secs(1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut second = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        second.latencies_ms.sort_by(f64::total_cmp);
        let count = second.latencies_ms.len();
        let mean = second.latencies_ms.iter().sum::<f64>() / count.max(1) as f64;
        let p99 = second.latencies_ms.get(count.saturating_sub(1) * 99 / 100);
        println!(
            "{{\"records\":{count},\"failed\":{},\"mean_ms\":{mean:.3},\"p99_ms\":{:.3}}}",
            second.failed,
            p99.unwrap_or(&0.0)
        );
        let _ = std::io::stdout().flush();
    }
}

fn add(done: &Mutex<Done>, latency_ms: Option<f64>) {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    match latency_ms {
        Some(latency_ms) => done.latencies_ms.push(latency_ms),
        None => done.failed += 1,
    }
}

impl Load {
    fn number(&self, key: &str) -> Result<u64> {
        let Some(text) = self.keys.get(key) else {
            return Ok(0);
        };
        text.parse().with_context(|| format!("load.{key}"))
    }

    fn produce(&self) -> Result<()> {
        let producer = Producer::new(&self.config)?;
        let (rate, callback) = (
            self.number("rate")?,
            Duration::from_micros(self.number("callback.micros")?),
        );
        let is_synchronous = self.keys.get("synchronous").is_some_and(|value| value == "true");
        let value = vec![b'v'; usize::try_from(self.number("record.bytes")?)?];
        let keys = self.keys.get("keys").map(String::as_str);
        let began = Instant::now();
        for sent in 0_u64.. {
            if rate > 0 {
                let due = began + Duration::from_secs_f64(sent as f64 / rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let key = match keys {
                Some("hot") if sent % 10 > 0 => "hot".to_owned(),
                _ => format!("k{}", sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000),
            };
            let mut record = Record::new(&self.keys["topic"]).value(&value);
            if keys.is_some_and(|keys| keys != "none") {
                record = record.key(&key);
            }
            let (at, done) = (Instant::now(), Arc::clone(&self.done));
            let finished = move |is_done: bool| {
                add(&done, is_done.then(|| at.elapsed().as_secs_f64() * 1e3));
                std::thread::sleep(callback);
            };
            if is_synchronous {
                finished(producer.send(&record)?.wait().is_ok());
            } else {
                producer.send_with(&record, move |result| finished(result.is_ok()))?;
            }
        }
        Ok(())
    }

    fn consume(&self) -> Result<()> {
        let mut consumer = Consumer::new(&self.config)?;
        let processing = Duration::from_micros(self.number("processing.micros")?);
        consumer.subscribe([self.keys["topic"].as_str()])?;
        loop {
            let records = consumer.poll(Duration::from_millis(500))?;
            for record in records.iter() {
                std::thread::sleep(processing);
                let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as f64;
                add(&self.done, Some((now_ms - record.timestamp as f64).max(0.0)));
            }
        }
    }
}
