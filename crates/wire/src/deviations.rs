//! Where Ottla answers a wrong request otherwise than Apache Kafka, on purpose: one table.
//!
//! `docs/reference/wire-support.md` is made of it, and `cargo xtask interop --only refusals` refers to it: each row is an answer that both
//! brokers were seen to give.

/// A difference and its reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The APIs that it is about, for people.
    pub of: &'static str,
    pub text: &'static str,
}

macro_rules! deviations {
    ($($name:ident = $of:literal: $text:literal;)*) => {
        $(pub const $name: Deviation = Deviation { of: $of, text: $text };)*

        /// Every one, in the order of the page.
        pub const ALL: &[&Deviation] = &[$(&$name),*];
    };
}

deviations! {
    UNNAMED = "all": "What makes Apache Kafka answer UNKNOWN_SERVER_ERROR is refused with the code that says what is wrong. \
        So damaged compressed data and records that are not numbered 0, 1, 2, … are INVALID_RECORD, a codec that does not exist is \
        UNSUPPORTED_COMPRESSION_TYPE, an isolation level that is none INVALID_REQUEST.";
    SILENT = "all": "What makes Apache Kafka never answer is refused, or ends the connection: null records, a length of records \
        below -1.";
    NEGATIVE = "all": "A length below -1 ends the connection. Apache Kafka takes it for -1 where null is allowed.";
    TEXT = "all": "Strings must be UTF-8, else the connection ends. Apache Kafka replaces what is none, so that two names become one.";
    TWICE = "all": "What a request names twice is served and answered each time, in the request's order. Apache Kafka answers once, \
        in an order of its own, and refuses it in ListOffsets. Of two batches for one partition in a Produce it drops one without a word.";
    NUMBERING = "Produce": "Records that are not numbered 0, 1, 2, … are INVALID_RECORD also where they are not compressed. Apache \
        Kafka appends them; consumers then see offsets that are another record's, and librdkafka loses records.";
    RECORD_LENGTH = "Produce": "A record in a compressed batch that is not as long as it says is INVALID_RECORD. Apache Kafka appends \
        it; librdkafka loses the records behind it.";
    HEADER_VALUE = "Produce": "A header whose value has a length below -1 is INVALID_RECORD. Apache Kafka appends it where records are \
        not compressed.";
    ONE_STREAM = "Produce": "Compressed data is one gzip member, one snappy stream or block, one lz4 frame, or any number of zstd frames, \
        with nothing behind it, else INVALID_RECORD. Apache Kafka appends more; librdkafka reads the first part, or nothing.";
    CHECKSUMS = "Produce": "The checksum of an lz4 frame's content is checked. Apache Kafka passes over it; librdkafka refuses the batch.";
    BEHIND_BATCH = "Produce": "Bytes behind a partition's batch are INVALID_RECORD. Apache Kafka drops them if they are too few for a \
        header, else answers CORRUPT_MESSAGE.";
    ATTRIBUTES = "Produce": "A batch with the delete horizon's bit, or one without meaning, is INVALID_RECORD; one that claims \
        LogAppendTime is INVALID_TIMESTAMP for every topic. Apache Kafka keeps the bits, where the cleaner reads the first, and clears the claim \
        unless the topic has LogAppendTime itself.";
    TRANSACTIONS = "Produce": "Transactional batches with a transactional id are INVALID_TXN_STATE: transactions are not served yet.";
    UNFOLDING = "Produce": "The compressed batches of a request may unfold to 100 MiB, all together, or to 16 times what the request \
        has, if that is more; else MESSAGE_TOO_LARGE. Apache Kafka has no limit. librdkafka reads 100 MB of a batch by default.";
    LIMITS = "Fetch": "A limit in bytes below 0 is 0. Apache Kafka answers UNKNOWN_SERVER_ERROR for every partition.";
    PROTOCOLS = "JoinGroup": "A protocol named twice is INCONSISTENT_GROUP_PROTOCOL.";
    EPOCHS = "OffsetForLeaderEpoch": "An epoch below -1 is answered as -1, which is none.";
    VERSIONS = "ApiVersions": "An unknown version is answered with all APIs, as KIP-511 allows. Apache Kafka names ApiVersions alone.";
}

/// What stands before the table.
pub const ANSWERS: &str = "\
Every batch is read whole before it is acknowledged, and refused if a client could not read it: length, checksum, attributes, count \
and numbering, and of each record its length, its integers, its key's, value's and headers' lengths, its timestamp, and its key where the topic \
is compacted. Compressed batches are unfolded for that, each of them, always: there is no sample that damage could pass beside. It is \
one pass, piece by piece, without memory for a record or a batch. What is more than half a megabyte, unfolded, is not done by the event loop; the \
requests of the connection that come behind it wait.

A refusal has words (`error_message`), and names the records at fault (`record_errors`, KIP-467) wherever they are known; Apache Kafka \
has both for timestamps and missing keys only. Beside an error the log start offset is -1.

`cargo xtask interop --only refusals` sends wrong requests and batches with one lie each to Apache Kafka and to Ottla, byte for byte the same, \
and compares the answers. They are the same but for these:
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
