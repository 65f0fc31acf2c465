//! A record as the application hands it over, and what comes back.

use crate::error::Error;

/// Borrowed: `send` copies it once, straight into its batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    pub topic: &'a str,
    /// `None`: the partitioner chooses.
    pub partition: Option<i32>,
    /// Milliseconds since the epoch; `None`: now.
    pub timestamp: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    pub partition: i32,
    /// −1 with acks=0.
    pub offset: i64,
    /// The broker's when the topic stamps records on append, else the record's.
    pub timestamp: i64,
}

/// Runs on the callback thread, never on the sender's path.
pub struct Callback(pub Box<dyn FnOnce(Result<RecordMetadata, Error>) + Send>);

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}
