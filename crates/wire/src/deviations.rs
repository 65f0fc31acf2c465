//! The intended differences between Ottla's and Apache Kafka's answers to wrong requests: one
//! table.
//!
//! It is the source of `docs/reference/wire-support.md`, and `cargo xtask interop --only refusals`
//! refers to it: each row was observed on both brokers.

/// A difference and its reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The APIs concerned, as text.
    pub of: &'static str,
    pub text: &'static str,
}

macro_rules! deviations {
    ($($name:ident = $of:literal: $text:literal;)*) => {
        $(pub const $name: Deviation = Deviation { of: $of, text: $text };)*

        /// All deviations, in the order of the page.
        pub const ALL: &[&Deviation] = &[$(&$name),*];
    };
}

deviations! {
    UNNAMED = "all": "A request that makes Apache Kafka answer UNKNOWN_SERVER_ERROR is refused with a specific code: \
        INVALID_RECORD for damaged compressed data and for records that are not numbered 0, 1, 2, …, \
        UNSUPPORTED_COMPRESSION_TYPE for an unknown codec, INVALID_REQUEST for an unknown isolation level.";
    SILENT = "all": "A request that Apache Kafka never answers is refused, or ends the connection: null records, a length of \
        records below -1.";
    NEGATIVE = "all": "A length below -1 ends the connection. Apache Kafka treats it as -1 where null is allowed.";
    TEXT = "all": "Strings must be valid UTF-8, else the connection ends. Apache Kafka replaces invalid bytes, so that two \
        different names can become one.";
    TWICE = "all": "An entry that is repeated in a request is served and answered each time, in the request's order. Apache \
        Kafka answers it once, in an order of its own, and refuses it in ListOffsets. Of two batches for one partition in a \
        Produce request it silently drops one.";
    NUMBERING = "Produce": "Records that are not numbered 0, 1, 2, … are INVALID_RECORD, also in uncompressed batches. Apache \
        Kafka appends those; consumers then see offsets of other records, and librdkafka loses records.";
    RECORD_LENGTH = "Produce": "A record in a compressed batch whose announced length is wrong is INVALID_RECORD. Apache Kafka \
        appends it; librdkafka loses the records after it.";
    HEADER_VALUE = "Produce": "A header whose value has a length below -1 is INVALID_RECORD. Apache Kafka appends it in \
        uncompressed batches.";
    ONE_STREAM = "Produce": "Compressed data must be one gzip member, one snappy stream or block, one lz4 frame, or any number \
        of zstd frames, without trailing bytes, else INVALID_RECORD. Apache Kafka appends more; librdkafka reads the first part, \
        or nothing.";
    CHECKSUMS = "Produce": "The content checksum of an lz4 frame is verified. Apache Kafka ignores it; librdkafka refuses the \
        batch.";
    BEHIND_BATCH = "Produce": "Bytes after a partition's batch are INVALID_RECORD. Apache Kafka drops them if they are too few \
        for a header, else answers CORRUPT_MESSAGE.";
    ATTRIBUTES = "Produce": "A batch with the delete horizon bit, or an unassigned bit, is INVALID_RECORD; one that claims \
        LogAppendTime is INVALID_TIMESTAMP for every topic. Apache Kafka keeps these bits, and its cleaner interprets the first; \
        it clears the claim unless the topic has LogAppendTime itself.";
    TRANSACTIONS = "Produce": "A transactional batch without a producer id is INVALID_TXN_STATE: no producer could end its \
        transaction. Apache Kafka appends it.";
    UNFOLDING = "Produce": "The compressed batches of a request may decompress to 100 MiB in total, or to 16 times the size of \
        the request if that is more; else MESSAGE_TOO_LARGE. Apache Kafka has no limit. librdkafka reads 100 MB of a batch by \
        default.";
    LIMITS = "Fetch": "A byte limit below 0 counts as 0. Apache Kafka answers UNKNOWN_SERVER_ERROR for every partition.";
    PROTOCOLS = "JoinGroup": "A protocol name that occurs twice is INCONSISTENT_GROUP_PROTOCOL.";
    EPOCHS = "OffsetForLeaderEpoch": "An epoch below -1 is treated as -1, no epoch.";
    CREDENTIAL = "AlterUserScramCredentials": "A salt that is empty or longer than 1,024 bytes, and a salted password without the \
        length of the mechanism's hash, are UNACCEPTABLE_CREDENTIAL. Apache Kafka stores a credential that no client can use.";
    VERSIONS = "ApiVersions": "An unknown version is answered with all APIs, as KIP-511 allows. Apache Kafka lists only \
        ApiVersions.";
}

/// The text before the table.
pub const ANSWERS: &str = "\
Every batch is validated completely before it is acknowledged, and refused if a client could not read it: its length, checksum, \
attributes, record count and numbering, and for each record its length, integers, the lengths of key, value and headers, the \
timestamp, and the presence of a key where the topic is compacted. Every compressed batch is decompressed for this, without \
sampling. It is one pass over the data, piece by piece, without an allocation for a record or a batch. A batch that \
decompresses to more than half a megabyte is not validated on the event loop; later requests of the connection wait.

A refusal has a text (`error_message`), and names the records at fault (`record_errors`, KIP-467) wherever they are known; \
Apache Kafka has both only for timestamps and missing keys. With an error the log start offset is -1.

`cargo xtask interop --only refusals` sends the same wrong requests and batches, each with one fault, byte for byte to Apache \
Kafka and to Ottla, and compares the answers. They are the same except for these:
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deviation_is_a_sentence_on_one_line() {
        for deviation in ALL {
            assert!(deviation.text.ends_with('.'), "{}", deviation.text);
            assert!(!deviation.text.contains(['\n', '|']), "{}", deviation.text);
            assert!(!deviation.text.contains("  "), "{}", deviation.text);
        }
    }
}
