//! A little load: a producer, a consumer with a group, and a producer whose records are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record};

const TOPIC: &str = "orders";

/// Takes records of at most 100 bytes.
const NARROW: &str = "narrow";

pub struct Load {
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    pub fn start(bootstrap: &str) -> Result<Load> {
        let config = Config::new().set("bootstrap.servers", bootstrap);
        let admin = Admin::new(&config)?;
        let topics = vec![
            NewTopic::new(TOPIC).partitions(3),
            NewTopic::new(NARROW).config("max.message.bytes", 100),
        ];
        for (name, created) in admin.create_topics(topics).wait()? {
            created.with_context(|| format!("creating {name}"))?;
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let run = |act: fn(&Config, &AtomicBool) -> Result<()>| {
            let (config, stopped) = (config.clone(), stopped.clone());
            std::thread::spawn(move || act(&config, &stopped))
        };
        Ok(Load {
            threads: vec![run(produce), run(consume)],
            stopped,
        })
    }

    pub fn stop(mut self) -> Result<()> {
        self.stopped.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

fn produce(config: &Config, stopped: &AtomicBool) -> Result<()> {
    let producer = Producer::new(&config.clone().set("client.id", "writer"))?;
    while !stopped.load(Ordering::SeqCst) {
        for _ in 0..20 {
            producer.send_with(&Record::new(TOPIC).value("a record of some bytes"), |_| {})?;
        }
        // Refused by the broker: that is what this topic is for.
        producer.send_with(&Record::new(NARROW).value(&"wide ".repeat(100)), |_| {})?;
        producer.flush()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn consume(config: &Config, stopped: &AtomicBool) -> Result<()> {
    let config = config
        .clone()
        .set("client.id", "reader")
        .set("group.id", "billing")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", false);
    let mut consumer = Consumer::new(&config)?;
    consumer.subscribe([TOPIC])?;
    while !stopped.load(Ordering::SeqCst) {
        if !consumer.poll(Duration::from_millis(500))?.is_empty() {
            consumer.commit_sync()?;
        }
    }
    consumer.close(Duration::from_secs(10))?;
    Ok(())
}
