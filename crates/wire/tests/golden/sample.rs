//! The values of sample messages. `xtask/java/Golden.java` follows the same rules: change both.
//!
//! A field's value is derived from the names on the path to it: a seed is hashed with each
//! (FNV-1a), and the value is the seed after one more mixing. So no two fields have the same value,
//! and a swapped pair is noticed.

use ottla_wire::primitives::DecodeError;
pub use ottla_wire::primitives::Uuid;

/// The kind of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No field has its default.
    Populated,
    /// As `Populated`, but null wherever null is allowed.
    Nulls,
    /// Every field has its default, but arrays of structs have one element, itself of defaults.
    Defaults,
}

impl Kind {
    pub fn from_u8(kind: u8) -> Kind {
        match kind {
            0 => Kind::Populated,
            1 => Kind::Nulls,
            2 => Kind::Defaults,
            other => panic!("unknown kind of sample {other}"),
        }
    }
}

/// One message as functions over bytes.
pub struct Entry {
    pub name: &'static str,
    /// The record type of a metadata record.
    pub metadata_record_type: Option<i16>,
    pub min_version: i16,
    pub max_version: i16,
    /// Decodes; a decoded value must survive being encoded and decoded again.
    pub decode: fn(&[u8], i16) -> Result<(), DecodeError>,
    /// The sample, encoded.
    pub sample: fn(i16, Kind) -> Vec<u8>,
    /// Decodes, compares with the sample's values and encodes again.
    pub check: fn(&[u8], i16, Kind) -> Vec<u8>,
}

/// A row of the table of all messages.
#[macro_export]
macro_rules! entry {
    ($name:literal, $message:path, $sample:path) => {
        entry!($name, $message, $sample, None)
    };
    ($name:literal, $message:path, $sample:path, $metadata_record_type:expr) => {{
        use $message as Message;
        Entry {
            name: $name,
            metadata_record_type: $metadata_record_type,
            min_version: Message::MIN_VERSION,
            max_version: Message::MAX_VERSION,
            decode: |bytes, version| {
                let mut reader = ottla_wire::primitives::Reader::new(bytes);
                let decoded = Message::decode(&mut reader, version)?;
                let mut buffer = Vec::new();
                decoded.encode(&mut buffer, version);
                let mut reader = ottla_wire::primitives::Reader::new(&buffer);
                let again = Message::decode(&mut reader, version).expect("what was encoded decodes");
                let mut copy = Vec::new();
                again.encode(&mut copy, version);
                assert_eq!(copy, buffer, "{} version {version}", $name);
                Ok(())
            },
            sample: |version, kind| {
                let mut buffer = Vec::new();
                $sample(root($name), version, kind).encode(&mut buffer, version);
                buffer
            },
            check: |bytes, version, kind| {
                let mut reader = ottla_wire::primitives::Reader::new(bytes);
                let decoded = Message::decode(&mut reader, version).expect("a golden sample decodes");
                assert_eq!(reader.finish(), Ok(()), "{} version {version} {kind:?}", $name);
                assert_eq!(
                    decoded,
                    $sample(root($name), version, kind),
                    "version {version} {kind:?}"
                );
                let mut buffer = Vec::new();
                decoded.encode(&mut buffer, version);
                buffer
            },
        }
    }};
}
pub use crate::entry;

pub fn root(message: &str) -> u64 {
    step(0xcbf2_9ce4_8422_2325, message)
}

pub fn step(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn mix(seed: u64) -> u64 {
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

pub fn int8(seed: u64) -> i8 {
    mix(seed) as i8
}

pub fn int16(seed: u64) -> i16 {
    mix(seed) as i16
}

pub fn uint16(seed: u64) -> u16 {
    mix(seed) as u16
}

pub fn int32(seed: u64) -> i32 {
    mix(seed) as i32
}

pub fn int64(seed: u64) -> i64 {
    mix(seed) as i64
}

pub fn float64(seed: u64) -> f64 {
    (mix(seed) >> 40) as f64 / 8.0
}

pub fn uuid(seed: u64) -> Uuid {
    let high = mix(seed);
    let bits = (u128::from(high) << 64) | u128::from(mix(high));
    Uuid(bits.to_be_bytes())
}

// Messages borrow; a test may leak what they borrow.
pub fn string(seed: u64) -> &'static str {
    Box::leak(format!("\u{e9}{:04x}", mix(seed) & 0xffff).into_boxed_str())
}

pub fn bytes(seed: u64) -> &'static [u8] {
    let bytes = mix(seed).to_be_bytes();
    Box::leak(Box::new([bytes[5], bytes[6], bytes[7]]))
}

pub fn values<T>(seed: u64, value: fn(u64) -> T) -> Vec<T> {
    ["0", "1"].map(|index| value(step(seed, index))).into()
}

pub fn structs<T>(seed: u64, version: i16, kind: Kind, value: fn(u64, i16, Kind) -> T) -> Vec<T> {
    let mut elements = vec![value(step(seed, "0"), version, kind)];
    if kind != Kind::Defaults {
        elements.push(value(step(seed, "1"), version, kind));
    }
    elements
}

pub fn choose<T>(kind: Kind, default: T, populated: T) -> T {
    if kind == Kind::Defaults {
        default
    } else {
        populated
    }
}

pub fn choose_optional<T>(kind: Kind, nullable: bool, default: Option<T>, populated: T) -> Option<T> {
    match kind {
        Kind::Nulls if nullable => None,
        Kind::Defaults if nullable || default.is_some() => default,
        _ => Some(populated),
    }
}

pub fn null_or<T>(kind: Kind, nullable: bool, populated: T) -> Option<T> {
    if kind == Kind::Nulls && nullable {
        None
    } else {
        Some(populated)
    }
}
