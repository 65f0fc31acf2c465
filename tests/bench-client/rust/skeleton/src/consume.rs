//! The reading loop of a consumer: repeated, checked passes from the beginning to the end of every
//! partition.

use std::time::Instant;

use crate::arguments::Arguments;
use crate::handshake::{Report, say_and_wait};

/// The options of a run.
#[derive(Debug)]
pub struct Read {
    pub bootstrap: String,
    pub topic: String,
    pub partitions: i32,
    /// Of all partitions together.
    pub records: u64,
    pub passes: u32,
}

impl Read {
    pub fn from(arguments: &Arguments) -> Read {
        Read {
            bootstrap: arguments.text("bootstrap").to_string(),
            topic: arguments.text("topic").to_string(),
            partitions: arguments.number("partitions"),
            records: arguments.number("records"),
            passes: arguments.number("passes"),
        }
    }
}

/// Counts records and bytes and checks that offsets are consecutive.
#[derive(Debug)]
pub struct Ledger {
    next: Vec<i64>,
    pub records: u64,
    pub bytes: u64,
    pub disordered: u64,
    pub first_at: Option<Instant>,
}

impl Ledger {
    fn new(partitions: i32) -> Ledger {
        Ledger {
            next: vec![0; partitions as usize],
            records: 0,
            bytes: 0,
            disordered: 0,
            first_at: None,
        }
    }

    #[inline]
    pub fn see(&mut self, partition: i32, offset: i64, value: &[u8]) {
        if self.records == 0 {
            self.first_at = Some(Instant::now());
        }
        let next = &mut self.next[partition as usize];
        if *next != offset {
            self.disordered += 1;
        }
        *next = offset + 1;
        self.records += 1;
        self.bytes += value.len() as u64;
    }
}

/// A client under test.
pub trait Contender {
    fn version(&self) -> String;
    /// Goes back to the beginning of every partition.
    fn rewind(&mut self);
    /// Reads until `ledger` has seen `records`.
    fn read(&mut self, records: u64, ledger: &mut Ledger);
}

/// Runs one pass to warm up, then the measured ones.
pub fn run(read: &Read, contender: &mut dyn Contender) {
    let mut warm = Ledger::new(read.partitions);
    contender.rewind();
    contender.read(read.records, &mut warm);
    say_and_wait("ready");
    let begun = Instant::now();
    let (mut records, mut bytes, mut disordered, mut to_first) = (0, 0, warm.disordered, 0.0);
    for _ in 0..read.passes {
        let mut ledger = Ledger::new(read.partitions);
        let rewound = Instant::now();
        contender.rewind();
        contender.read(read.records, &mut ledger);
        records += ledger.records;
        bytes += ledger.bytes;
        disordered += ledger.disordered;
        to_first += ledger.first_at.map_or(0.0, |at| (at - rewound).as_secs_f64());
    }
    let seconds = begun.elapsed().as_secs_f64();
    say_and_wait("done");
    Report::default()
        .number("seconds", seconds)
        .number("seconds_to_first", to_first)
        .number("received", records)
        .number("expected", read.records * u64::from(read.passes))
        .number("value_bytes", bytes)
        .number("disordered", disordered)
        .text("version", &contender.version())
        .print();
}
