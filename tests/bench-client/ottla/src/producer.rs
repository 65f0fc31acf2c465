//! `send` and its futures; `send_with` with a callback, or `send_tagged` with one handler, where
//! they are measured.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::RwLock;
use std::task::{Context, Poll, Waker};

use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::producer::{self, Record, RecordMetadata, SendFuture};
use skeleton::produce::{self, Answers, Job, Load};

pub struct Producer {
    producer: producer::Producer,
    topic: String,
    slow_topic: String,
    wants_callbacks: bool,
    wants_handler: bool,
}

impl Producer {
    pub fn new(load: &Load) -> Producer {
        let mut config = Config::new()
            .set("bootstrap.servers", &load.bootstrap)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("compression.type", &load.compression);
        if let Some(bytes) = load.batch_bytes {
            // A request must have room for a batch.
            config = config
                .set("batch.size", bytes)
                .set("max.request.size", (bytes + 65_536).max(1_048_576));
        }
        if let Some(milliseconds) = load.linger_ms {
            config = config.set("linger.ms", milliseconds);
        }
        if let Some(bytes) = load.buffer_bytes {
            config = config.set("buffer.memory", bytes);
        }
        Producer {
            producer: producer::Producer::with_delivery(&config, delivered).expect("a producer"),
            topic: load.topic.clone(),
            slow_topic: load.slow_topic.clone(),
            wants_callbacks: load.rate > 0.0 || load.answers == "callbacks",
            wants_handler: load.answers == "handler",
        }
    }

    fn record<'a>(&'a self, item: &produce::Item) -> Record<'a> {
        Record {
            topic: if item.slow { &self.slow_topic } else { &self.topic },
            partition: Some(item.partition),
            value: Some(item.value),
            ..Record::default()
        }
    }

    fn send_tagged(&self, job: &mut Job, answers: &'static Answers) {
        *ANSWERS.write().expect("no holder panics") = Some(answers);
        while let Some(item) = job.next() {
            if let Err(error) = self.producer.send_tagged(&self.record(&item), item.slot) {
                answers.failed(&error);
            }
        }
    }

    fn send_with_callbacks(&self, job: &mut Job, answers: &'static Answers) {
        while let Some(item) = job.next() {
            let slot = item.slot;
            let sent = self
                .producer
                .send_with(&self.record(&item), move |result| match result {
                    Ok(_) => answers.acknowledged(slot),
                    Err(error) => answers.failed(&error),
                });
            if let Err(error) = sent {
                answers.failed(&error);
            }
        }
    }
}

/// The receiver of tagged results. Warm-up and measured part do not overlap.
static ANSWERS: RwLock<Option<&'static Answers>> = RwLock::new(None);

/// A tag is the record's slot.
fn delivered(slot: u64, result: Result<RecordMetadata, Error>) {
    let answers = ANSWERS.read().expect("no holder panics").expect("set before a send");
    match result {
        Ok(_) => answers.acknowledged(slot),
        Err(error) => answers.failed(&error),
    }
}

/// Takes the completed answers at the front.
fn collect(waiting: &mut VecDeque<(u64, SendFuture)>, answers: &Answers) {
    let mut context = Context::from_waker(Waker::noop());
    while let Some((slot, future)) = waiting.front_mut() {
        let Poll::Ready(result) = Pin::new(future).poll(&mut context) else {
            return;
        };
        match result {
            Ok(_) => answers.acknowledged(*slot),
            Err(error) => answers.failed(&error),
        }
        waiting.pop_front();
    }
}

impl produce::Contender for Producer {
    fn version(&self) -> String {
        crate::VERSION.to_string()
    }

    fn send_all(&self, job: &mut Job, answers: &'static Answers) {
        if self.wants_handler && !job.is_slow() {
            return self.send_tagged(job, answers);
        }
        if self.wants_callbacks || job.is_slow() {
            return self.send_with_callbacks(job, answers);
        }
        let mut waiting = VecDeque::new();
        while let Some(item) = job.next() {
            match self.producer.send(&self.record(&item)) {
                Ok(future) => waiting.push_back((item.slot, future)),
                Err(error) => answers.failed(&error),
            }
            if waiting.len().is_multiple_of(64) {
                collect(&mut waiting, answers);
            }
        }
        for (slot, future) in waiting {
            match future.wait() {
                Ok(_) => answers.acknowledged(slot),
                Err(error) => answers.failed(&error),
            }
        }
    }

    fn flush(&self) {
        self.producer.flush().expect("flush");
    }
}
