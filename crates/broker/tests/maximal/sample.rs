//! The contents of a sample request: plausible values, except those that a [`Recipe`] makes as
//! large as possible.
//!
//! Replaces `crates/wire/tests/golden/sample.rs` beside the generated `samples.rs`, which walks the
//! schemas.

use std::cell::RefCell;
use std::collections::BTreeSet;

pub use ottla_wire::primitives::Uuid;
use ottla_wire::primitives::{DecodeError, STRING_BYTES_MAX};

/// Whether nullable fields are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Populated,
    Nulls,
}

/// Which strings have the maximum length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Long {
    #[default]
    None,
    All,
    /// The string at this path.
    One(String),
    /// None in the request itself: the client id in its header.
    ClientId,
}

/// What the fields of a request are filled with.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    pub long: Long,
    /// What long strings consist of.
    pub filling: &'static str,
    /// The value of every integer whose name does not imply one.
    pub number: i64,
    /// The array at this path has this many elements; the others have one.
    pub many: Option<(String, usize)>,
}

/// One message as functions over bytes.
pub struct Entry {
    pub name: &'static str,
    pub sample: fn(i16, Kind) -> Vec<u8>,
    pub decode: fn(&[u8], i16) -> Result<(), DecodeError>,
}

#[macro_export]
macro_rules! entry {
    ($name:literal, $message:path, $sample:path) => {
        entry!($name, $message, $sample, None)
    };
    ($name:literal, $message:path, $sample:path, $metadata_record_type:expr) => {{
        use $message as Message;
        Entry {
            name: $name,
            sample: |version, kind| {
                let mut buffer = Vec::new();
                $sample(root($name), version, kind).encode(&mut buffer, version);
                buffer
            },
            decode: |bytes, version| {
                let mut reader = ottla_wire::primitives::Reader::new(bytes);
                Message::decode(&mut reader, version)?;
                reader.finish()
            },
        }
    }};
}
pub use crate::entry;

#[derive(Default)]
struct Making {
    recipe: Recipe,
    /// The path of each seed.
    paths: Vec<String>,
    strings: BTreeSet<String>,
    arrays: BTreeSet<String>,
}

thread_local! {
    static MAKING: RefCell<Making> = RefCell::default();
}

/// The paths of the strings and arrays of a message.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub strings: BTreeSet<String>,
    pub arrays: BTreeSet<String>,
}

/// Returns a request made by `recipe`, and its fields.
pub fn make(entry: &Entry, version: i16, kind: Kind, recipe: Recipe) -> (Vec<u8>, Fields) {
    MAKING.set(Making {
        recipe,
        ..Making::default()
    });
    let bytes = (entry.sample)(version, kind);
    let made = MAKING.take();
    let fields = Fields {
        strings: made.strings,
        arrays: made.arrays,
    };
    (bytes, fields)
}

fn with<T>(seed: u64, make: impl FnOnce(&mut Making, String) -> T) -> T {
    MAKING.with_borrow_mut(|making| {
        let path = making.paths[seed as usize].clone();
        make(making, path)
    })
}

pub fn root(message: &str) -> u64 {
    MAKING.with_borrow_mut(|making| {
        making.paths.push(message.to_owned());
        making.paths.len() as u64 - 1
    })
}

pub fn step(seed: u64, name: &str) -> u64 {
    with(seed, |making, path| {
        // The index of an element is not part of the path.
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        making.paths.push(match is_number {
            true => path,
            false => format!("{path}.{name}"),
        });
        making.paths.len() as u64 - 1
    })
}

fn number(seed: u64) -> i64 {
    with(seed, |making, path| {
        let name = path.rsplit('.').next().unwrap_or_default();
        match name {
            // Never wait.
            "MaxWaitMs" | "TimeoutMs" | "SessionTimeoutMs" | "RebalanceTimeoutMs" => 1,
            "MaxBytes" | "PartitionMaxBytes" => 1 << 20,
            "Acks" => -1,
            // Other values end the connection of a fetch before version 7, as with Apache Kafka.
            "IsolationLevel" => making.recipe.number & 1,
            _ => making.recipe.number,
        }
    })
}

pub fn int8(seed: u64) -> i8 {
    number(seed) as i8
}

pub fn int16(seed: u64) -> i16 {
    number(seed) as i16
}

pub fn uint16(seed: u64) -> u16 {
    number(seed) as u16
}

pub fn int32(seed: u64) -> i32 {
    number(seed) as i32
}

pub fn int64(seed: u64) -> i64 {
    number(seed)
}

pub fn float64(seed: u64) -> f64 {
    number(seed) as f64
}

pub fn uuid(seed: u64) -> Uuid {
    Uuid((number(seed) as u128).to_be_bytes())
}

// Messages borrow; a test may leak what they borrow if it is little: long strings are reused.
pub fn string(seed: u64) -> &'static str {
    let (is_long, filling, path) = with(seed, |making, path| {
        making.strings.insert(path.clone());
        let is_long = match &making.recipe.long {
            Long::None | Long::ClientId => false,
            Long::All => true,
            Long::One(only) => *only == path,
        };
        (is_long, making.recipe.filling, path)
    });
    match is_long {
        true => longest(filling),
        false => plausible(&path),
    }
}

/// A string of the maximum length.
pub fn longest(filling: &'static str) -> &'static str {
    thread_local! {
        static MADE: RefCell<Vec<(&'static str, &'static str)>> = const { RefCell::new(Vec::new()) };
    }
    MADE.with_borrow_mut(|made| {
        if let Some((_, longest)) = made.iter().find(|(of, _)| *of == filling) {
            return *longest;
        }
        let count = STRING_BYTES_MAX / filling.len();
        let rest = "-".repeat(STRING_BYTES_MAX % filling.len());
        let longest: &'static str = Box::leak((rest + &filling.repeat(count)).into_boxed_str());
        made.push((filling, longest));
        longest
    })
}

/// A value that takes a handler further than an unknown name.
fn plausible(path: &str) -> &'static str {
    let mut names = path.rsplit('.');
    let (name, parent) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    match (parent, name) {
        ("Configs" | "ConfigurationKeys" | "Keys", "Name" | "ConfigName") => "retention.ms",
        (_, "ConfigurationKeys") => "retention.ms",
        ("Ops", "Key") => "producer_byte_rate",
        (_, "EntityType") => "client-id",
        (_, "Value") => "1000",
        (_, "ResourceName" | "Topic" | "TopicName" | "Topics" | "TopicNames") => super::TOPIC,
        ("Topics" | "TopicData", "Name") => super::TOPIC,
        (_, "ProtocolType") => "consumer",
        (_, "MemberId") => "",
        ("Protocols", "Name") | (_, "ProtocolName") => "range",
        _ => "x",
    }
}

pub fn bytes(_: u64) -> &'static [u8] {
    &[0; 8]
}

fn count(seed: u64) -> usize {
    with(seed, |making, path| {
        making.arrays.insert(path.clone());
        match &making.recipe.many {
            Some((many, count)) if *many == path => *count,
            _ => 1,
        }
    })
}

pub fn values<T>(seed: u64, value: fn(u64) -> T) -> Vec<T> {
    (0..count(seed)).map(|_| value(step(seed, "0"))).collect()
}

pub fn structs<T>(seed: u64, version: i16, kind: Kind, value: fn(u64, i16, Kind) -> T) -> Vec<T> {
    (0..count(seed))
        .map(|_| value(step(seed, "0"), version, kind))
        .collect()
}

pub fn choose<T>(_: Kind, _: T, populated: T) -> T {
    populated
}

pub fn choose_optional<T>(kind: Kind, nullable: bool, _: Option<T>, populated: T) -> Option<T> {
    null_or(kind, nullable, populated)
}

pub fn null_or<T>(kind: Kind, nullable: bool, populated: T) -> Option<T> {
    (kind != Kind::Nulls || !nullable).then_some(populated)
}
