//! Forged record batches, in which any field can be wrong; the checksum is right unless it is the
//! fault.

use ottla_wire::primitives::{put_i8, put_i16, put_i32, put_i64, put_u32, put_varint, put_varlong};
use ottla_wire::records::batch::{self, HEADER_BYTES};
use ottla_wire::records::compression::{Codec, compress};

/// A record with freely chosen lengths.
#[derive(Clone, Debug, Default)]
pub struct ForgedRecord {
    pub length: Option<i32>,
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key_length: Option<i32>,
    pub key: Vec<u8>,
    pub value_length: Option<i32>,
    pub value: Vec<u8>,
    pub header_count: Option<i32>,
    /// Key's length, key, value's length, value.
    pub headers: Vec<(i32, &'static [u8], i32, &'static [u8])>,
    /// Bytes after the last field, included in the record's length.
    pub more: Vec<u8>,
}

impl ForgedRecord {
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_i8(&mut body, self.attributes);
        put_varlong(&mut body, self.timestamp_delta);
        put_varint(&mut body, self.offset_delta);
        put_varint(&mut body, self.key_length.unwrap_or(self.key.len() as i32));
        body.extend_from_slice(&self.key);
        put_varint(&mut body, self.value_length.unwrap_or(self.value.len() as i32));
        body.extend_from_slice(&self.value);
        put_varint(&mut body, self.header_count.unwrap_or(self.headers.len() as i32));
        for (key_length, key, value_length, value) in &self.headers {
            put_varint(&mut body, *key_length);
            body.extend_from_slice(key);
            put_varint(&mut body, *value_length);
            body.extend_from_slice(value);
        }
        body.extend_from_slice(&self.more);
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.length.unwrap_or(body.len() as i32));
        bytes.extend_from_slice(&body);
        bytes
    }
}

/// A batch, by default with three sound records.
#[derive(Clone, Debug)]
pub struct Forged {
    pub base_offset: i64,
    pub batch_length: Option<i32>,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: Option<u32>,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
    pub records: Vec<ForgedRecord>,
    pub codec: Codec,
    /// Replaces the compressed records.
    pub payload: Option<Vec<u8>>,
}

impl Forged {
    pub fn new(now_ms: i64) -> Forged {
        let record = |offset_delta: i32| ForgedRecord {
            timestamp_delta: offset_delta.into(),
            offset_delta,
            key: b"key".to_vec(),
            value: format!("value {offset_delta}").into_bytes(),
            ..ForgedRecord::default()
        };
        Forged {
            base_offset: 0,
            batch_length: None,
            leader_epoch: -1,
            magic: 2,
            crc: None,
            attributes: 0,
            last_offset_delta: 2,
            base_timestamp: now_ms - 2,
            max_timestamp: now_ms,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 3,
            records: (0..3).map(record).collect(),
            codec: Codec::None,
            payload: None,
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut Forged)) -> Forged {
        change(&mut self);
        self
    }

    pub fn codec(self, codec: Codec) -> Forged {
        self.with(|batch| batch.codec = codec)
    }

    pub fn record(self, index: usize, change: impl FnOnce(&mut ForgedRecord)) -> Forged {
        self.with(|batch| change(&mut batch.records[index]))
    }

    /// The records without compression.
    pub fn plain(&self) -> Vec<u8> {
        self.records.iter().flat_map(ForgedRecord::bytes).collect()
    }

    /// The records compressed with the batch's codec.
    pub fn packed(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        compress(self.codec.into(), &self.plain(), &mut packed);
        packed
    }

    pub fn bytes(&self) -> Vec<u8> {
        let payload = self.payload.clone().unwrap_or_else(|| self.packed());
        let length = HEADER_BYTES - batch::LENGTH_PREFIX_BYTES + payload.len();
        let mut out = Vec::new();
        put_i64(&mut out, self.base_offset);
        put_i32(&mut out, self.batch_length.unwrap_or(length as i32));
        put_i32(&mut out, self.leader_epoch);
        put_i8(&mut out, self.magic);
        put_u32(&mut out, 0);
        put_i16(&mut out, self.attributes | self.codec.id());
        put_i32(&mut out, self.last_offset_delta);
        put_i64(&mut out, self.base_timestamp);
        put_i64(&mut out, self.max_timestamp);
        put_i64(&mut out, self.producer_id);
        put_i16(&mut out, self.producer_epoch);
        put_i32(&mut out, self.base_sequence);
        put_i32(&mut out, self.record_count);
        out.extend_from_slice(&payload);
        batch::seal(&mut out);
        if let Some(crc) = self.crc {
            out[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        out
    }
}
