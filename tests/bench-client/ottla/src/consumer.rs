//! `poll` of an assigned consumer.

use std::time::Duration;

use ottla_client::config::Config;
use ottla_client::consumer::{self, TopicPartition};
use skeleton::consume::{self, Ledger, Read};

pub struct Consumer {
    consumer: consumer::Consumer,
    partitions: Vec<TopicPartition>,
}

impl Consumer {
    pub fn new(read: &Read) -> Consumer {
        let config = Config::new()
            .set("bootstrap.servers", &read.bootstrap)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest");
        let mut consumer = consumer::Consumer::new(&config).expect("a consumer");
        let partitions: Vec<TopicPartition> = (0..read.partitions)
            .map(|partition| TopicPartition::new(read.topic.as_str(), partition))
            .collect();
        consumer.assign(partitions.clone()).expect("assign");
        Consumer { consumer, partitions }
    }
}

impl consume::Contender for Consumer {
    fn version(&self) -> String {
        crate::VERSION.to_string()
    }

    fn rewind(&mut self) {
        self.consumer.seek_to_beginning(&self.partitions).expect("seek");
    }

    fn read(&mut self, records: u64, ledger: &mut Ledger) {
        while ledger.records < records {
            let found = self.consumer.poll(Duration::from_millis(100)).expect("poll");
            for record in &found {
                ledger.see(record.partition, record.offset, record.value.unwrap_or_default());
            }
        }
    }
}
