//! Every message in every version against bytes written by Apache Kafka's own classes; see
//! `golden/README.md`.

#[path = "golden/hostile.rs"]
mod hostile;
#[path = "golden/sample.rs"]
mod sample;
#[path = "golden/samples.rs"]
mod samples;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};

use ottla_wire::api_key::ApiKey;
use ottla_wire::coordinator_records::GroupRecordKey;
use ottla_wire::coordinator_records::offset_commit::{OffsetCommitKey, OffsetCommitValue};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::{MIN_REQUEST_HEADER_BYTES, RequestHeader, encode_response_header};
use ottla_wire::metadata_records::{decode_frame, encode_frame};
use ottla_wire::primitives::{DecodeError, Reader};

use self::sample::{Entry, Kind};
use self::samples::MESSAGES;

struct GoldenSample {
    entry: &'static Entry,
    version: i16,
    kind: Kind,
    body: Vec<u8>,
}

fn golden_samples() -> Vec<GoldenSample> {
    let mut file = Vec::new();
    let packed = include_bytes!("golden/samples.bin.gz");
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut file)
        .expect("the samples unpack");
    let mut reader = Reader::new(&file);
    let mut samples = Vec::new();
    while reader.remaining() > 0 {
        samples.push(golden_sample(&mut reader).expect("the samples are complete"));
    }
    samples
}

fn golden_sample(reader: &mut Reader<'_>) -> Result<GoldenSample, DecodeError> {
    let name = reader.string(false)?;
    let entry = MESSAGES
        .iter()
        .find(|entry| entry.name == name)
        .expect("a sample of a known message");
    let version = reader.i16()?;
    let kind = Kind::from_u8(reader.u8()?);
    Ok(GoldenSample {
        entry,
        version,
        kind,
        body: reader.bytes(false)?.to_vec(),
    })
}

/// With `OTTLA_GOLDEN_OUT` set, our bytes are written to a file, which `cargo xtask golden
/// --verify` has Apache Kafka's classes read.
#[test]
fn every_sample_reads_and_writes_as_apache_kafka_does() {
    let mut ours = Vec::new();
    for GoldenSample {
        entry,
        version,
        kind,
        body,
    } in golden_samples()
    {
        let context = format!("{} version {version} {kind:?}", entry.name);
        assert_eq!(
            (entry.check)(&body, version, kind),
            body,
            "read and written again: {context}"
        );
        let written = (entry.sample)(version, kind);
        assert_eq!(written, body, "written from the same values: {context}");
        ottla_wire::primitives::put_string(&mut ours, entry.name, false);
        ottla_wire::primitives::put_i16(&mut ours, version);
        ours.push(kind as u8);
        ottla_wire::primitives::put_bytes(&mut ours, &written, false);
    }
    if let Some(path) = std::env::var_os("OTTLA_GOLDEN_OUT") {
        let mut file = std::fs::File::create(path).expect("the file can be made");
        file.write_all(&ours).expect("the file can be written");
    }
}

#[test]
fn there_is_a_sample_of_every_message_in_every_version() {
    let present: BTreeSet<(&str, i16, u8)> = golden_samples()
        .iter()
        .map(|sample| (sample.entry.name, sample.version, sample.kind as u8))
        .collect();
    for entry in MESSAGES {
        for version in entry.min_version..=entry.max_version {
            for kind in [Kind::Populated, Kind::Defaults] {
                assert!(
                    present.contains(&(entry.name, version, kind as u8)),
                    "{} {version} {kind:?}",
                    entry.name
                );
            }
        }
    }
}

#[test]
fn metadata_records_read_and_write_with_their_frame() {
    let mut count = 0;
    for GoldenSample {
        entry, version, body, ..
    } in golden_samples()
    {
        let Some(record_type) = entry.metadata_record_type else {
            continue;
        };
        // Frame version 1; both numbers are below 128 and so take one byte.
        let mut value = vec![1, record_type as u8, version as u8];
        value.extend_from_slice(&body);
        let (record, decoded_version) = decode_frame(&value).expect("a golden record decodes");
        assert_eq!(
            (record.record_type(), decoded_version),
            (record_type, version),
            "{}",
            entry.name
        );
        let mut written = Vec::new();
        encode_frame(&mut written, &record, version);
        assert_eq!(written, value, "{} version {version}", entry.name);
        count += 1;
    }
    assert!(count > 50, "only {count} metadata records");
}

#[test]
fn an_invalid_frame_is_refused() {
    assert_eq!(
        decode_frame(&[2, 2, 0]),
        Err(DecodeError::UnsupportedVersion { version: 2 })
    );
    assert_eq!(decode_frame(&[1, 6, 0]), Err(DecodeError::UnknownKey { key: 6 }));
    assert_eq!(decode_frame(&[1, 20, 0, 0]).map(|(_, version)| version), Ok(0));
    assert_eq!(
        decode_frame(&[1, 20, 0, 0, 9]),
        Err(DecodeError::TrailingBytes { count: 1 })
    );
    assert_eq!(
        decode_frame(&[1, 20, 0xff, 0xff, 3, 0]),
        Err(DecodeError::UnsupportedVersion { version: i16::MAX })
    );
}

#[test]
fn a_group_record_is_known_by_the_type_in_its_key() {
    let key = OffsetCommitKey {
        group: "g",
        topic: "t",
        partition: 7,
    };
    let mut bytes = Vec::new();
    key.encode_key(&mut bytes);
    assert_eq!(bytes, [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 7]);
    assert_eq!(
        GroupRecordKey::decode(&bytes),
        Ok(GroupRecordKey::OffsetCommit(key))
    );
    assert_eq!(
        GroupRecordKey::decode(&[0, 99, 1, 2]),
        Ok(GroupRecordKey::Unknown { record_type: 99 })
    );
    assert!(GroupRecordKey::decode(&[0]).is_err());

    let value = OffsetCommitValue {
        offset: 5,
        commit_timestamp: 6,
        ..OffsetCommitValue::default()
    };
    let mut bytes = Vec::new();
    value.encode_value(&mut bytes, 3);
    assert_eq!(bytes[..2], [0, 3]);
    assert_eq!(OffsetCommitValue::decode_value(&bytes), Ok(value));
    assert_eq!(
        OffsetCommitValue::decode_value(&[0, 99]),
        Err(DecodeError::UnsupportedVersion { version: 99 })
    );
}

/// Returns the rows of `facts.tsv` whose first word is `kind`.
fn facts(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = include_str!("golden/facts.tsv")
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(move |row| row[0] == kind)
}

#[test]
fn error_codes_are_apache_kafkas() {
    let theirs: Vec<_> = facts("error").map(|row| row[1..].join(" ")).collect();
    let ours: Vec<_> = ErrorCode::ALL
        .iter()
        .map(|error_code| {
            format!(
                "{} {} {}",
                error_code.code(),
                error_code.name(),
                error_code.is_retriable()
            )
        })
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn headers_are_apache_kafkas() {
    let number = |text: &str| text.parse::<i16>().expect("facts hold numbers");
    let mut apis = BTreeSet::new();
    for row in facts("api") {
        // Only the messages that a list in xtask/src/codegen names are generated.
        let Some(api_key) = ApiKey::from_i16(number(row[1])) else {
            continue;
        };
        let version = number(row[3]);
        apis.insert(api_key);
        assert_eq!(api_key.name(), row[2]);
        assert!(api_key.known_versions().contains(version), "{api_key} {version}");
        let header = RequestHeader {
            api_key,
            api_version: version,
            correlation_id: 9,
            client_id: None,
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        let tagged_bytes = usize::from(number(row[4]) == 2);
        assert_eq!(
            bytes.len(),
            MIN_REQUEST_HEADER_BYTES + tagged_bytes,
            "{api_key} {version}"
        );
        bytes.clear();
        encode_response_header(&mut bytes, api_key, version, 9);
        assert_eq!(
            bytes.len(),
            4 + usize::from(number(row[5]) == 1),
            "{api_key} {version}"
        );
    }
    assert_eq!(apis.len(), ApiKey::ALL.len());
}
