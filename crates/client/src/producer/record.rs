//! The record that an application sends, and the position it gets.

use crate::error::Error;

/// A record to send. It borrows its data; `send` copies it once, straight into its batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// The topic; created by the first record where the broker allows it.
    pub topic: &'a str,
    /// `None`: the partitioner chooses.
    pub partition: Option<i32>,
    /// Milliseconds since the Unix epoch; `None`: now.
    pub timestamp: Option<i64>,
    /// `None` is Kafka's null.
    pub key: Option<&'a [u8]>,
    /// `None` is Kafka's null, which deletes the key in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Names with values, in this order; names may repeat.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

impl<'a> Record<'a> {
    /// A record without key, value or headers.
    pub fn new(topic: &'a str) -> Record<'a> {
        Record {
            topic,
            ..Record::default()
        }
    }

    /// Sets the key, which determines the partition unless that is set as well.
    #[must_use]
    pub fn key(mut self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Record<'a> {
        self.key = Some(key.as_ref());
        self
    }

    /// Sets the value.
    #[must_use]
    pub fn value(mut self, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Record<'a> {
        self.value = Some(value.as_ref());
        self
    }

    /// Sets the partition; without it the partitioner chooses.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Record<'a> {
        self.partition = Some(partition);
        self
    }

    /// Sets the timestamp, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Record<'a> {
        self.timestamp = Some(timestamp);
        self
    }

    /// Sets all headers.
    #[must_use]
    pub fn headers(mut self, headers: &'a [(&'a str, Option<&'a [u8]>)]) -> Record<'a> {
        self.headers = headers;
        self
    }
}

/// Where a record is stored: its partition, offset and timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// The partition that the record was appended to.
    pub partition: i32,
    /// −1 with acks=0.
    pub offset: i64,
    /// The broker's time when the topic stamps records on append, else the record's own.
    pub timestamp: i64,
}

/// A callback for the result of a `send`. It runs on the callback thread, never on the sender's.
pub struct Callback(pub Box<dyn FnOnce(Result<RecordMetadata, Error>) + Send>);

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}
