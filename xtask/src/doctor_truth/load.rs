//! A client under load: one process of one library, described by a properties file, that reports
//! every second what it did.
//!
//! Keys of the file (all others are the client's settings, by Java's names):
//!
//! | key | meaning |
//! |---|---|
//! | `load.role` | `producer` or `consumer` |
//! | `load.topic` | another than the regime's own, which exists |
//! | `load.rate` | records per second that a producer offers; 0: as fast as it goes |
//! | `load.record.bytes` | size of a value |
//! | `load.values` | `noise`, or `text` that compresses about three times (Java) |
//! | `load.keys` | `none`, `spread` over 100,000 keys, or `hot`: nine of ten records have one key |
//! | `load.partitioner` | the application chooses: `hot`: nine of ten records go to partition 0; `turn`: each in turn; `even`: as `turn`, and large records take turns too (Java) |
//! | `load.large.bytes` | size of every n-th value of n partitions: with `turn`, all of partition 0 (Java) |
//! | `load.members` | consumers of the group in the process; all but the first are `<client.id>-other` (Java) |
//! | `load.threads` | threads that share the rate (Java) |
//! | `load.synchronous` | `true`: every send waits for its result |
//! | `load.flush.records` | `flush()` after every n records (Java) |
//! | `load.transaction.records` | a transaction of every n records, with a `transactional.id` (Java) |
//! | `load.work.micros` | processor time of the sending thread for each record (Java) |
//! | `load.callback.micros` | time that each callback takes |
//! | `load.processing.micros` | time that a consumer takes for each record |
//! | `load.commit` | `record`: a synchronous commit after each record (Java, librdkafka) |
//! | `load.slow.partition` | only its records take that time (Java) |

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Settings or keys of a load.
pub type Pairs = &'static [(&'static str, &'static str)];

/// What a client did in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    pub records: f64,
    pub failed: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    /// How often the group went on without this member; `None`: the program does not count it.
    pub lost: Option<f64>,
}

/// The mean over some seconds; of `lost`, the sum.
pub fn mean(seconds: &[Second]) -> Second {
    let count = seconds.len().max(1) as f64;
    let records: f64 = seconds.iter().map(|second| second.records).sum();
    let weighted = |of: fn(&Second) -> f64| {
        let sum: f64 = seconds.iter().map(|second| second.records * of(second)).sum();
        sum / records.max(1.0)
    };
    Second {
        records: records / count,
        failed: seconds.iter().map(|second| second.failed).sum::<f64>() / count,
        mean_ms: weighted(|second| second.mean_ms),
        p99_ms: weighted(|second| second.p99_ms),
        lost: seconds
            .iter()
            .filter_map(|second| second.lost)
            .reduce(|a, b| a + b),
    }
}

/// A running client; killed when dropped.
pub struct Load {
    child: Child,
    seconds: Arc<Mutex<Vec<Second>>>,
    log: String,
}

impl Load {
    /// Starts `program`, a client's part of the interop suite.
    pub fn start(
        mut program: Command,
        bootstrap: &str,
        file: &Path,
        pairs: &[(String, String)],
    ) -> Result<Load> {
        let mut text = fs::File::create(file).with_context(|| format!("creating {}", file.display()))?;
        for (key, value) in pairs {
            writeln!(text, "{key}={value}")?;
        }
        let log = file.with_extension("err");
        let mut child = program
            .args(["load", bootstrap])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot start the client")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let seconds = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seconds);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(second) = parse(&line) {
                    shared.lock().unwrap_or_else(PoisonError::into_inner).push(second);
                }
            }
        });
        Ok(Load {
            child,
            seconds,
            log: log.display().to_string(),
        })
    }

    /// The seconds so far.
    pub fn seconds(&self) -> Vec<Second> {
        self.seconds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for this many seconds and returns those that were reported meanwhile.
    pub fn watch(&mut self, seconds: usize) -> Result<Vec<Second>> {
        let from = self.seconds().len();
        let limit = Instant::now() + Duration::from_secs(seconds as u64 + 20);
        loop {
            self.check_alive()?;
            let all = self.seconds();
            if all.len() >= from + seconds {
                return Ok(all[from..].to_vec());
            }
            ensure!(
                Instant::now() < limit,
                "the client reports nothing ({})",
                self.log
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the client ended with {status}: {}", last_line(&log))
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_line(text: &str) -> &str {
    text.lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it says nothing")
}

fn parse(line: &str) -> Option<Second> {
    let value: Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| value[key].as_f64();
    Some(Second {
        records: number("records")?,
        failed: number("failed")?,
        mean_ms: number("mean_ms")?,
        p99_ms: number("p99_ms")?,
        lost: number("lost"),
    })
}

/// Later pairs replace earlier ones; an empty value removes a key.
pub fn merged(layers: &[Pairs]) -> Vec<(String, String)> {
    let mut merged = std::collections::BTreeMap::new();
    for (key, value) in layers.iter().copied().flatten() {
        if value.is_empty() {
            merged.remove(*key);
        } else {
            merged.insert((*key).to_owned(), (*value).to_owned());
        }
    }
    merged.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_settings_replace_earlier_ones_and_empty_ones_remove_them() {
        let found = merged(&[&[("a", "1"), ("b", "2")], &[("a", "3"), ("b", "")]]);
        assert_eq!(found, [("a".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn latency_is_weighted_by_records() {
        let second = |records: f64, mean_ms: f64| Second {
            records,
            mean_ms,
            ..Second::default()
        };
        let mean = mean(&[second(100.0, 1.0), second(300.0, 5.0)]);
        assert_eq!((mean.records, mean.mean_ms, mean.lost), (200.0, 4.0, None));
    }

    #[test]
    fn expulsions_are_added_up_where_the_program_counts_them() {
        let line = |lost: &str| {
            parse(&format!(
                "{{\"records\":1,\"failed\":0,\"mean_ms\":1,\"p99_ms\":1{lost}}}"
            ))
        };
        let second = |lost| line(lost).expect("a second");
        assert_eq!(
            mean(&[
                second(",\"lost\":1"),
                second(",\"lost\":0"),
                second(",\"lost\":2")
            ])
            .lost,
            Some(3.0)
        );
        assert_eq!(mean(&[second(""), second("")]).lost, None);
    }
}
