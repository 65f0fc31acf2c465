//! Our transactions of `cargo xtask crash`; see crash_transactions.go for the records and the list.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ottla_client::Error;
use ottla_client::producer::{CommitError, Transaction, TransactionalProducer};

use super::suite::{MINUTE, Suite, text_record};

struct Load<'a> {
    producer: TransactionalProducer,
    topic: &'a str,
    partitions: usize,
}

/// Works until standard input is closed.
///
/// - `arguments`: topic, number of partitions, file of the list.
pub fn load(suite: &Suite, arguments: &[String]) -> Result<()> {
    let [topic, partitions, list] = arguments else {
        anyhow::bail!("crash-transactions TOPIC PARTITIONS LIST");
    };
    let settings = [
        ("transactional.id", topic.as_str()),
        ("linger.ms", "1"),
        ("retry.backoff.ms", "20"),
        ("reconnect.backoff.ms", "20"),
        ("reconnect.backoff.max.ms", "100"),
    ];
    let load = Load {
        producer: TransactionalProducer::new(&suite.config(&settings))?,
        topic,
        partitions: partitions.parse().context("the number of partitions")?,
    };
    let mut list = File::create(list)?;
    let is_closed = watch_input();
    load.producer.init()?;
    for number in 0.. {
        if is_closed.load(Ordering::Relaxed) {
            break;
        }
        list.write_all(format!("begun {number}\n").as_bytes())?;
        match load.one(number) {
            Ok(outcome) => list.write_all(format!("{outcome} {number}\n").as_bytes())?,
            Err(error) => {
                eprintln!("transaction {number}: {error}");
                load.producer.init()?;
            }
        }
    }
    load.producer.close(MINUTE)?;
    Ok(())
}

fn watch_input() -> Arc<AtomicBool> {
    let is_closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_closed);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    is_closed
}

impl Load<'_> {
    /// Returns what the broker has said; an error if that is not known.
    fn one(&self, number: usize) -> Result<&'static str, Error> {
        let transaction = self.producer.begin()?;
        if let Err(error) = self.send(&transaction, number) {
            eprintln!("transaction {number} is aborted: {error}");
            transaction.abort()?;
            return Ok("aborted");
        }
        if number % 5 == 3 {
            transaction.abort()?;
            return Ok("aborted");
        }
        commit(transaction)
    }

    /// An abort follows the acknowledgements, so that there is something to take back.
    fn send(&self, transaction: &Transaction<'_>, number: usize) -> Result<(), Error> {
        let pad = "x".repeat(number * 37 % 300);
        let mut sent = Vec::new();
        for index in 0..=number % 8 {
            let partition = (number + index) % self.partitions;
            let partition = i32::try_from(partition).expect("a partition's number");
            let value = format!("{number}:{index}:{pad}");
            sent.push(transaction.send(&text_record(self.topic, partition, &value))?);
        }
        if number % 5 == 3 {
            for one in sent {
                one.wait()?;
            }
        }
        Ok(())
    }
}

fn commit(mut transaction: Transaction<'_>) -> Result<&'static str, Error> {
    loop {
        match transaction.commit() {
            Ok(()) => return Ok("committed"),
            Err(CommitError::Unfinished(again, _)) => transaction = again,
            Err(CommitError::Abortable(aborted, error)) => {
                eprintln!("a commit is not possible: {error}");
                aborted.abort()?;
                return Ok("aborted");
            }
            Err(other) => return Err(other.into()),
        }
    }
}
