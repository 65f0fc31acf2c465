//! Records to be written to the metadata log: encoded at once, so that the bytes that are replayed
//! are those that are written.

pub use ottla_wire::metadata_records::MetadataRecord;
use ottla_wire::metadata_records::encode_frame;

/// Encoded records, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordList {
    pub values: Vec<Vec<u8>>,
}

impl RecordList {
    /// Appends `record` in the given version of its type.
    pub fn push(&mut self, record: MetadataRecord<'_>, version: i16) {
        let mut value = Vec::with_capacity(64);
        encode_frame(&mut value, &record, version);
        self.values.push(value);
    }

    pub fn append(&mut self, mut other: RecordList) {
        self.values.append(&mut other.values);
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the total size of all values.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(Vec::len).sum()
    }
}
