//! Which batches of a producer are accepted and which are refused.

use super::*;
use crate::error_code::ErrorCode;
use crate::records::batch::{self, Batch};
use crate::records::compression::CompressionError;
use crate::records::record::RecordError;

const NOW_MS: i64 = 1_700_000_000_000;
const LIMIT_BYTES: usize = 1 << 20;

fn validate<'a>(bytes: &'a [u8], rules: &ProduceRules) -> Result<ValidBatch<'a>, ProduceError> {
    super::validate(bytes, rules, &mut UnfoldingBudget::new(LIMIT_BYTES))
}

fn rules() -> ProduceRules {
    ProduceRules {
        produce_version: 9,
        max_message_bytes: 1 << 20,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        is_compacted: false,
        compression: None,
        now_ms: NOW_MS,
    }
}

fn batch_of(codec: Codec, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    for (timestamp, key) in records {
        builder.append(*timestamp, *key, Some(b"value"), &[]);
    }
    builder.finish()
}

fn two_records(codec: Codec) -> Vec<u8> {
    batch_of(codec, &[(NOW_MS - 5, Some(b"a")), (NOW_MS, Some(b"b"))])
}

/// Returns the batch with a changed header and a matching checksum.
fn with_header(bytes: &[u8], change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut header = BatchHeader::decode(bytes.first_chunk().unwrap());
    change(&mut header);
    let mut changed = [&header.encode()[..], &bytes[HEADER_BYTES..]].concat();
    batch::seal(&mut changed);
    changed
}

/// Validates, assigns offset 100 and epoch 3, and checks that the stored bytes are a sound batch.
fn stored(bytes: &[u8], rules: &ProduceRules) -> Vec<u8> {
    let valid = validate(bytes, rules).unwrap();
    let stored = [&valid.header_bytes(100, 3)[..], &valid.record_bytes].concat();
    let batch = Batch::parse(&stored).unwrap();
    assert_eq!(
        (batch.bytes.len(), valid.total_bytes()),
        (stored.len(), stored.len())
    );
    batch.verify_checksum().unwrap();
    assert_eq!((batch.header.base_offset, batch.header.leader_epoch), (100, 3));
    stored
}

#[track_caller]
fn check_error(bytes: &[u8], rules: &ProduceRules, expected: ProduceError) {
    assert_eq!(validate(bytes, rules), Err(expected));
}

#[test]
fn a_sound_batch_keeps_its_record_bytes_and_checksum() {
    for codec in Codec::ALL {
        let bytes = two_records(codec);
        let valid = validate(&bytes, &rules()).unwrap();
        assert!(matches!(valid.record_bytes, Cow::Borrowed(_)), "{codec}");
        assert_eq!(valid.header, BatchHeader::parse(&bytes).unwrap());
        assert_eq!(valid.record_count(), 2);
        stored(&bytes, &rules());
    }
}

#[test]
fn log_append_time_changes_the_header_only() {
    let rules = ProduceRules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules()
    };
    for codec in Codec::ALL {
        let bytes = two_records(codec);
        let stored = stored(&bytes, &rules);
        let header = BatchHeader::parse(&stored).unwrap();
        assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(header.max_timestamp, NOW_MS);
        assert_eq!(stored[HEADER_BYTES..], bytes[HEADER_BYTES..]);
    }
}

#[test]
fn a_wrong_max_timestamp_is_corrected() {
    let bytes = with_header(&two_records(Codec::None), |header| header.max_timestamp = 17);
    let header = BatchHeader::parse(&stored(&bytes, &rules())).unwrap();
    assert_eq!(header.max_timestamp, NOW_MS);
}

#[test]
fn a_topic_with_another_codec_recompresses_the_records() {
    for from in Codec::ALL {
        for to in Codec::ALL {
            let rules = ProduceRules {
                compression: Some(to.into()),
                ..rules()
            };
            let bytes = two_records(from);
            let valid = validate(&bytes, &rules).unwrap();
            assert_eq!(valid.header.compression(), Some(to));
            assert_eq!(matches!(valid.record_bytes, Cow::Borrowed(_)), from == to);
            let stored = stored(&bytes, &rules);
            let mut plain = Vec::new();
            decompress(to, &stored[HEADER_BYTES..], 1 << 20, &mut plain).unwrap();
            let stored_header = BatchHeader::parse(&stored).unwrap();
            let keys: Vec<_> = Records::new(&stored_header, &plain)
                .map(|r| r.unwrap().key.unwrap())
                .collect();
            assert_eq!(keys, [b"a", b"b"]);
        }
    }
}

#[test]
fn recompression_keeps_the_producer_and_obeys_the_size_limit() {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: Codec::Zstd.into(),
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 40,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(NOW_MS, None, Some(&[7; 5_000]), &[]);
    let bytes = builder.finish();
    let rules = ProduceRules {
        compression: Some(Compression::NONE),
        ..rules()
    };
    let header = validate(&bytes, &rules).unwrap().header;
    assert_eq!(
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (9, 2, 40)
    );
    assert!(header.is_transactional());

    let tight = ProduceRules {
        max_message_bytes: 1_000,
        ..rules
    };
    let error = validate(&bytes, &tight).unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::TooLarge {
                batch_bytes: 5_000..,
                max_message_bytes: 1_000
            }
        ),
        "{error}"
    );
}

#[test]
fn the_envelope_must_hold_exactly_one_batch_of_the_right_format() {
    let bytes = two_records(Codec::None);
    check_error(&[], &rules(), ProduceError::Empty);
    let twice = [&bytes[..], &bytes[..]].concat();
    check_error(
        &twice,
        &rules(),
        ProduceError::MoreThanOneBatch {
            trailing_bytes: bytes.len(),
        },
    );
    for magic in [0, 1, 3] {
        let other = with_header(&bytes, |header| header.magic = magic);
        let batch_length = bytes.len() as i32 - 12;
        check_error(
            &other,
            &rules(),
            ProduceError::Batch(BatchError::UnsupportedMagic { magic, batch_length }),
        );
    }
    for available in 1..bytes.len() {
        let error = validate(&bytes[..available], &rules()).unwrap_err();
        assert!(
            matches!(error, ProduceError::Batch(BatchError::Truncated { .. })),
            "{available}: {error}"
        );
    }
}

#[test]
fn the_size_limit_counts_the_whole_batch() {
    let bytes = two_records(Codec::None);
    let exact = ProduceRules {
        max_message_bytes: bytes.len(),
        ..rules()
    };
    validate(&bytes, &exact).unwrap();
    let max_message_bytes = bytes.len() - 1;
    let tight = ProduceRules {
        max_message_bytes,
        ..rules()
    };
    check_error(
        &bytes,
        &tight,
        ProduceError::TooLarge {
            batch_bytes: bytes.len(),
            max_message_bytes,
        },
    );
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    for codec in Codec::ALL {
        let bytes = two_records(codec);
        for position in 0..bytes.len() {
            // The checksum does not cover the leader epoch, which the broker sets.
            if (12..16).contains(&position) {
                continue;
            }
            let mut flipped = bytes.clone();
            flipped[position] ^= 0x10;
            assert!(validate(&flipped, &rules()).is_err(), "{codec} at {position}");
        }
    }
}

#[test]
fn counts_offsets_flags_and_sequences_must_make_sense() {
    let bytes = two_records(Codec::Lz4);
    check_error(
        &with_header(&bytes, |header| header.record_count = 3),
        &rules(),
        ProduceError::Count {
            record_count: 3,
            last_offset_delta: 1,
        },
    );
    check_error(
        &with_header(&bytes, |header| header.record_count = 0),
        &rules(),
        ProduceError::Count {
            record_count: 0,
            last_offset_delta: 1,
        },
    );
    check_error(
        &with_header(&bytes, |header| header.base_offset = 7),
        &rules(),
        ProduceError::BaseOffset { base_offset: 7 },
    );
    check_error(
        &with_header(&bytes, |header| header.attributes |= attributes::CONTROL),
        &rules(),
        ProduceError::ControlBatch,
    );
    check_error(
        &with_header(&bytes, |header| header.attributes = 6),
        &rules(),
        ProduceError::UnknownCodec { attributes: 6 },
    );
    check_error(
        &with_header(&bytes, |header| header.producer_id = 5),
        &rules(),
        ProduceError::Sequence {
            producer_id: 5,
            base_sequence: -1,
        },
    );
    check_error(
        &with_header(&bytes, |header| header.attributes |= attributes::LOG_APPEND_TIME),
        &rules(),
        ProduceError::LogAppendTimeFromClient,
    );
}

#[test]
fn zstd_needs_a_consumer_that_knows_it() {
    let bytes = two_records(Codec::Zstd);
    let old = ProduceRules {
        produce_version: 6,
        ..rules()
    };
    check_error(&bytes, &old, ProduceError::ZstdTooEarly { produce_version: 6 });
    validate(
        &bytes,
        &ProduceRules {
            produce_version: 7,
            ..rules()
        },
    )
    .unwrap();
}

#[test]
fn compacted_topics_name_every_record_without_a_key() {
    let rules = ProduceRules {
        is_compacted: true,
        ..rules()
    };
    for codec in Codec::ALL {
        validate(&two_records(codec), &rules).unwrap();
        let bytes = batch_of(codec, &[(NOW_MS, None), (NOW_MS, Some(b"k")), (NOW_MS, None)]);
        let error = validate(&bytes, &rules).unwrap_err();
        assert!(
            matches!(error, ProduceError::InvalidRecords { fault_count: 2, .. }),
            "{error}"
        );
        let indexes: Vec<i32> = error
            .record_faults()
            .iter()
            .map(|fault| fault.batch_index)
            .collect();
        assert_eq!(indexes, [0, 2]);
    }
}

#[test]
fn the_list_of_faults_is_bounded() {
    let rules = ProduceRules {
        is_compacted: true,
        ..rules()
    };
    let bytes = batch_of(Codec::None, &[(NOW_MS, None); 5_000]);
    let error = validate(&bytes, &rules).unwrap_err();
    assert!(matches!(
        error,
        ProduceError::InvalidRecords {
            fault_count: 5_000,
            ..
        }
    ));
    assert_eq!(error.record_faults().len(), RECORD_FAULTS_MAX);
}

#[test]
fn timestamps_must_be_near_the_clock() {
    let after = ProduceRules {
        timestamp_after_max_ms: 1_000,
        ..rules()
    };
    let before = ProduceRules {
        timestamp_before_max_ms: 1_000,
        ..rules()
    };
    for codec in Codec::ALL {
        let late = batch_of(codec, &[(NOW_MS + 1_000, None), (NOW_MS + 1_001, None)]);
        let early = batch_of(
            codec,
            &[(NOW_MS - 1_001, None), (NOW_MS - 1_000, None), (-1, None)],
        );
        for (bytes, rules, index) in [(&late, &after, 1), (&early, &before, 0)] {
            let error = validate(bytes, rules).unwrap_err();
            assert!(
                matches!(error, ProduceError::InvalidTimestamps { fault_count: 1, .. }),
                "{codec}: {error}"
            );
            assert_eq!(error.record_faults()[0].batch_index, index);
            // The broker's time replaces the producer's.
            let own = ProduceRules {
                timestamp_type: TimestampType::LogAppendTime,
                ..*rules
            };
            validate(bytes, &own).unwrap();
        }
    }
}

#[test]
fn records_without_a_timestamp_are_never_too_old() {
    let rules = ProduceRules {
        timestamp_before_max_ms: 0,
        ..rules()
    };
    for codec in Codec::ALL {
        validate(&batch_of(codec, &[(-1, None), (-1, None)]), &rules).unwrap();
    }
}

#[test]
fn uncompressed_records_are_walked() {
    let bytes = two_records(Codec::None);
    // The second record's offset delta is its fourth byte.
    let second = HEADER_BYTES + 1 + usize::from(bytes[HEADER_BYTES] / 2);
    let mut gap = bytes.clone();
    gap[second + 3] = 4;
    batch::seal(&mut gap);
    let error = validate(&gap, &rules()).unwrap_err();
    assert_eq!(error.record_faults()[0].message, "offset delta 2 where 1 is due");

    let fewer = with_header(&bytes, |header| {
        header.record_count = 1;
        header.last_offset_delta = 0;
    });
    let position = second - HEADER_BYTES;
    let trailing = bytes.len() - second;
    check_error(
        &fewer,
        &rules(),
        ProduceError::Structure {
            index: 1,
            error: RecordError::TrailingBytes { position, trailing },
        },
    );

    let mut garbage = bytes;
    garbage[HEADER_BYTES..].fill(0xFF);
    batch::seal(&mut garbage);
    assert!(matches!(
        validate(&garbage, &rules()),
        Err(ProduceError::Structure { index: 0, .. })
    ));
}

#[test]
fn timestamps_that_overflow_are_judged_as_the_times_that_consumers_would_see() {
    let bytes = with_header(&two_records(Codec::None), |header| {
        header.base_timestamp = i64::MAX - 1
    });
    let any = ProduceRules {
        timestamp_after_max_ms: i64::MAX,
        ..rules()
    };
    // Java adds deltas with wrap-around: the second record has the smallest timestamp.
    let error = validate(&bytes, &any).unwrap_err();
    assert_eq!(error.error_code(), ErrorCode::InvalidTimestamp);
    assert_eq!(error.record_faults()[0].batch_index, 1);
    assert_eq!(error.record_faults().len(), 1);
}

#[test]
fn a_decompression_bomb_is_refused_at_the_limit() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new(BatchOptions {
            compression: codec.into(),
            ..BatchOptions::default()
        });
        builder.append(NOW_MS, Some(b"k"), Some(&vec![0; 8 << 20]), &[]);
        let bytes = builder.finish();
        let limit_bytes = LIMIT_BYTES;
        check_error(&bytes, &rules(), ProduceError::UnfoldsTooMuch { limit_bytes });
    }
}

#[test]
fn records_of_another_codec_than_announced_are_refused() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let plain = batch_of(Codec::None, &[(NOW_MS, Some(&b"some key"[..])); 20]);
        let bytes = with_header(&plain, |header| header.attributes |= codec.id());
        let error = validate(&bytes, &rules()).unwrap_err();
        assert_eq!(error.error_code(), ErrorCode::InvalidRecord, "{codec}: {error}");
        let empty = with_header(&two_records(codec)[..HEADER_BYTES], |header| {
            header.batch_length = 49
        });
        assert_eq!(
            validate(&empty, &rules()).unwrap_err().error_code(),
            ErrorCode::InvalidRecord,
            "{codec}"
        );
    }
}

#[test]
fn compressed_garbage_is_refused_where_records_are_needed() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut bytes = two_records(codec);
        bytes[HEADER_BYTES..].fill(0x55);
        batch::seal(&mut bytes);
        let rules = ProduceRules {
            is_compacted: true,
            ..rules()
        };
        let error = validate(&bytes, &rules).unwrap_err();
        assert!(
            matches!(
                error,
                ProduceError::Decompression(CompressionError::Invalid { .. })
            ),
            "{error}"
        );
    }
}

#[test]
fn error_codes_are_those_of_kafka() {
    let bytes = two_records(Codec::None);
    let mut flipped = bytes.clone();
    flipped[HEADER_BYTES + 3] ^= 1;
    let check = |bytes: &[u8], rules: &ProduceRules, expected: ErrorCode| {
        assert_eq!(validate(bytes, rules).unwrap_err().error_code(), expected);
    };
    check(&flipped, &rules(), ErrorCode::CorruptMessage);
    check(
        &with_header(&bytes, |header| header.magic = 1),
        &rules(),
        ErrorCode::InvalidRecord,
    );
    check(&[], &rules(), ErrorCode::InvalidRecord);
    check(
        &bytes,
        &ProduceRules {
            max_message_bytes: 80,
            ..rules()
        },
        ErrorCode::MessageTooLarge,
    );
    check(
        &bytes,
        &ProduceRules {
            timestamp_before_max_ms: 1,
            ..rules()
        },
        ErrorCode::InvalidTimestamp,
    );
    let old = ProduceRules {
        produce_version: 3,
        ..rules()
    };
    check(
        &two_records(Codec::Zstd),
        &old,
        ErrorCode::UnsupportedCompressionType,
    );
}
