//! Records that every client writes and every client reads.
//!
//! Record i of a topic goes to partition i % 3; key null when i % 5 == 0, else key-i; value null
//! when i % 7 == 0, else value-i- and i % 50 times abcdefghij; headers writer, i and nothing
//! (null); timestamp 1,700,000,000,000 + i.

use super::suite::{MINUTE, Suite, partitions, same, take};
use crate::interop::cases::CODECS;
use anyhow::Result;
use ottla_client::producer::Record;

const PARTITIONS: usize = 3;
const COUNT: usize = 600;
const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;

fn topic(writer: &str, codec: &str) -> String {
    format!("cross-{writer}-{codec}")
}

pub fn write_all(suite: &mut Suite) {
    for codec in CODECS {
        suite.run(&format!("write {codec}"), |suite| write(suite, codec));
    }
}

pub fn read_all(suite: &mut Suite, writers: &[String]) {
    for writer in writers {
        for codec in CODECS {
            suite.run(&format!("read {writer} {codec}"), |suite| {
                read(suite, &topic(writer, codec), writer)
            });
        }
    }
}

fn key(i: usize) -> Option<Vec<u8>> {
    (!i.is_multiple_of(5)).then(|| format!("key-{i}").into_bytes())
}

fn value(i: usize) -> Option<Vec<u8>> {
    (!i.is_multiple_of(7)).then(|| format!("value-{i}-{}", "abcdefghij".repeat(i % 50)).into_bytes())
}

fn write(suite: &Suite, codec: &str) -> Result<()> {
    let topic = topic("ottla", codec);
    // The timestamps are older than any default retention.
    suite.create_topic(&topic, PARTITIONS as i32, &[("retention.ms", "-1")])?;
    let producer = suite.producer(&[("compression.type", codec), ("linger.ms", "50")])?;
    let mut sent = Vec::new();
    for i in 0..COUNT {
        let (key, value, number) = (key(i), value(i), i.to_string());
        let record = Record {
            topic: &topic,
            partition: Some((i % PARTITIONS) as i32),
            timestamp: Some(FIRST_TIMESTAMP + i as i64),
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &[
                ("writer", Some(b"ottla")),
                ("i", Some(number.as_bytes())),
                ("nothing", None),
            ],
        };
        sent.push(producer.send(&record)?);
    }
    producer.flush()?;
    for (i, sent) in sent.into_iter().enumerate() {
        same(
            &((i / PARTITIONS) as i64),
            &sent.wait()?.offset,
            &format!("offset of record {i}"),
        )?;
    }
    producer.close(MINUTE)?;
    Ok(())
}

fn read(suite: &Suite, topic: &str, writer: &str) -> Result<()> {
    let mut consumer = suite.consumer(&[])?;
    let all = partitions(topic, PARTITIONS as i32);
    consumer.assign(all.clone())?;
    consumer.seek_to_beginning(&all)?;
    let mut next = [0, 1, 2];
    for record in take(&mut consumer, COUNT)? {
        let of = &mut next[record.partition as usize];
        let i = *of;
        *of += PARTITIONS;
        let what = |field: &str| format!("{field} of record {i}");
        same(&((i / PARTITIONS) as i64), &record.offset, &what("offset"))?;
        same(&key(i), &record.key, &what("key"))?;
        same(&value(i), &record.value, &what("value"))?;
        same(
            &(FIRST_TIMESTAMP + i as i64),
            &record.timestamp,
            &what("timestamp"),
        )?;
        let headers = vec![
            ("writer".to_string(), Some(writer.as_bytes().to_vec())),
            ("i".to_string(), Some(i.to_string().into_bytes())),
            ("nothing".to_string(), None),
        ];
        same(&headers, &record.headers, &what("headers"))?;
    }
    consumer.close(MINUTE)?;
    Ok(())
}
