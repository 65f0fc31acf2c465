//! The sources' tables, for tests: reported numbers, by experiment.

pub const MIB: f64 = 1_048_576.0;

/// Fails unless `value` is within this many percent of `expected`.
#[track_caller]
pub fn within(value: f64, expected: f64, percent: f64) {
    let off = 100.0 * (value - expected).abs() / expected.abs();
    assert!(
        off <= percent,
        "{value} is {off:.1} % off {expected}; {percent} % are allowed"
    );
}

/// An experiment of the Kontur talk.
#[derive(Clone, Copy, Debug)]
pub struct Kontur {
    pub name: &'static str,
    pub threads: f64,
    pub records_per_second: f64,
    pub send_micros: f64,
}

const fn kontur(name: &'static str, threads: f64, records_per_second: f64, send_micros: f64) -> Kontur {
    Kontur {
        name,
        threads,
        records_per_second,
        send_micros,
    }
}

pub const KONTUR: &[Kontur] = &[
    kontur("I", 1.0, 83_550.0, 11.6),
    kontur("II", 1.0, 100_000.0, 3.5),
    kontur("III", 1.0, 100_000.0, 3.6),
    kontur("IV", 1.0, 282_600.0, 3.6),
    kontur("V", 1.0, 343_500.0, 2.4),
    kontur("VI", 2.0, 414_600.0, 4.1),
    kontur("VII", 3.0, 377_300.0, 6.7),
    kontur("VIII", 3.0, 394_900.0, 6.3),
    kontur("IX", 3.0, 397_800.0, 6.6),
    kontur("X", 3.0, 404_000.0, 6.4),
    kontur("XI", 3.0, 421_600.0, 6.2),
    kontur("XII", 3.0, 500_000.0, 4.5),
    kontur("XIII", 3.0, 610_700.0, 3.6),
    kontur("XIV", 6.0, 586_700.0, 8.8),
    kontur("XV", 9.0, 551_800.0, 15.2),
];

/// A row of the producer formula article between the data centres, acks=all, one broker.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    pub record: f64,
    pub in_flight: f64,
    pub partitions: f64,
    pub send_buffer: f64,
    pub records_per_second: f64,
}

const fn between(
    record: f64,
    in_flight: f64,
    partitions: f64,
    send_buffer: f64,
    records_per_second: f64,
) -> Between {
    Between {
        record,
        in_flight,
        partitions,
        send_buffer,
        records_per_second,
    }
}

pub const BETWEEN: &[Between] = &[
    between(10_000.0, 1.0, 1.0, 102_400.0, 13.7),
    between(10_000.0, 1.0, 1.0, 502_400.0, 13.7),
    between(10_000.0, 1.0, 1.0, 1_024_000.0, 13.6),
    between(200_000.0, 1.0, 1.0, 102_400.0, 12.6),
    between(200_000.0, 1.0, 1.0, 502_400.0, 12.6),
    between(200_000.0, 1.0, 1.0, 1_024_000.0, 12.6),
    between(600_000.0, 1.0, 1.0, 102_400.0, 4.3),
    between(600_000.0, 1.0, 1.0, 502_400.0, 10.7),
    between(600_000.0, 1.0, 1.0, 1_024_000.0, 10.8),
    between(200_000.0, 1.0, 16.0, 102_400.0, 12.6),
    between(200_000.0, 1.0, 16.0, 502_400.0, 32.0),
    between(200_000.0, 1.0, 16.0, 1_024_000.0, 32.8),
    between(600_000.0, 100.0, 1.0, 102_400.0, 4.4),
    between(600_000.0, 100.0, 1.0, 502_400.0, 20.1),
    between(600_000.0, 100.0, 1.0, 1_024_000.0, 21.3),
    between(10_000.0, 10.0, 1.0, 1_024_000.0, 137.0),
    between(10_000.0, 100.0, 1.0, 1_024_000.0, 1_018.0),
    between(10_000.0, 1_000.0, 1.0, 1_024_000.0, 1_019.8),
    between(50_000.0, 1.0, 1.0, 1_024_000.0, 13.4),
    between(100_000.0, 1.0, 1.0, 1_024_000.0, 13.0),
    between(900_000.0, 1.0, 1.0, 1_024_000.0, 9.7),
    between(100_000.0, 1.0, 16.0, 1_024_000.0, 64.3),
    between(100_000.0, 10_000.0, 1.0, 1_024_000.0, 129.6),
    between(100_000.0, 10_000.0, 1.0, 5_024_000.0, 812.0),
];
