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

/// Whether a record is in the log, as far as this producer knows.
///
/// The outcome of a `send` is `Ok` for `Written`; for an error, ask [`Error::delivery_status`].
///
/// - Source: librdkafka's persisted status of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryStatus {
    /// No request with the record was sent, or the broker has said that it did not append it.
    /// Sending it again writes it once.
    NotWritten,
    /// A request with the record was sent and not answered, or the answer was an error that a
    /// broker may also give after the append. Sending it again may write it twice.
    MaybeWritten,
    /// The broker has said that the record is in the log, also with DUPLICATE_SEQUENCE_NUMBER
    /// (KIP-98), where the offset can be unknown (−1). With acks=0, which no broker answers: the
    /// record was handed to a connection.
    Written,
}

impl DeliveryStatus {
    /// The status of a record with this outcome.
    ///
    /// ```no_run
    /// # use ottla_client::producer::{DeliveryStatus, Producer, Record};
    /// # fn example(producer: &Producer) -> Result<(), ottla_client::Error> {
    /// let outcome = producer.send(&Record::new("payments").value(b"12 EUR"))?.wait();
    /// match DeliveryStatus::of(&outcome) {
    ///     DeliveryStatus::Written => {}
    ///     DeliveryStatus::NotWritten => println!("send it again"),
    ///     DeliveryStatus::MaybeWritten => println!("look for it before sending it again"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(outcome: &Result<RecordMetadata, Error>) -> DeliveryStatus {
        match outcome {
            Ok(_) => DeliveryStatus::Written,
            Err(error) => error.delivery_status(),
        }
    }
}

/// What is called with the result of a `send`, on the callback thread, never on the sender's.
pub enum Callback {
    /// A closure of this record's own.
    Once(Box<dyn FnOnce(Result<RecordMetadata, Error>) + Send>),
    /// The producer's delivery handler, with this tag.
    Tag(u64),
}

/// A producer's handler for the results of its tagged records.
pub type DeliveryHandler = Box<dyn FnMut(u64, Result<RecordMetadata, Error>) + Send>;

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Callback::Once(_) => f.write_str("Once"),
            Callback::Tag(tag) => write!(f, "Tag({tag})"),
        }
    }
}
