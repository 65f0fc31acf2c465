//! The committed records of a topic, counted by our own consumer while others write them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, TopicPartition};

pub struct Committed {
    consumer: Consumer,
    pub count: usize,
}

impl Committed {
    pub fn open(bootstrap: &str, topic: &str, partitions: i32) -> Result<Committed> {
        let config = Config::new()
            .set("bootstrap.servers", bootstrap)
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "earliest")
            .set("allow.auto.create.topics", "false");
        let mut consumer = Consumer::new(&config)?;
        consumer.assign((0..partitions).map(|index| TopicPartition::new(topic, index)))?;
        Ok(Committed { consumer, count: 0 })
    }

    /// Waits for `more` records beyond those of earlier calls.
    ///
    /// - `check_alive`: whether who writes them still runs.
    pub fn wait_for(&mut self, more: usize, mut check_alive: impl FnMut() -> Result<()>) -> Result<()> {
        let wanted = self.count + more;
        let started = Instant::now();
        while self.count < wanted {
            self.count += self.consumer.poll(Duration::from_millis(100))?.iter().count();
            check_alive()?;
            ensure!(
                started.elapsed() < Duration::from_secs(120),
                "{} of {wanted} records are committed after two minutes",
                self.count
            );
        }
        Ok(())
    }
}
