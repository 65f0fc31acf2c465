//! The line that all connections of a relay share: computes when bytes that enter it now arrive at
//! the other end.

use crate::scenario::model::LinkSpec;

/// When bytes wait longer than this for the line, connections are no longer read. Longer, and one
/// connection's queue would delay all others (head-of-line blocking); shorter, and the line would
/// idle while the relay's thread is not running.
const QUEUE_NANOS: u64 = 2_000_000;

/// The smallest piece that is sent at a time: one Ethernet frame's worth of TCP.
const PIECE_BYTES_MIN: usize = 1_460;

/// The largest piece that is sent at a time, where bandwidth allows it.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToBroker,
    ToClient,
}

/// A full-duplex FIFO line without loss. Moments are nanoseconds since the relay started.
#[derive(Debug)]
pub struct Line {
    delay_nanos: u64,
    bytes_per_second: u64,
    stall_every_nanos: u64,
    stall_nanos: u64,
    /// By way: when everything that has entered is on the line.
    free_at: [u64; 2],
}

impl Line {
    pub fn new(spec: &LinkSpec) -> Line {
        let nanos_of_ms = |ms: u64| ms.saturating_mul(1_000_000);
        Line {
            delay_nanos: (spec.round_trip_ms.max(0.0) * 1e6 / 2.0) as u64,
            bytes_per_second: spec.bytes_per_second,
            stall_every_nanos: nanos_of_ms(spec.stall_every_ms),
            stall_nanos: nanos_of_ms(spec.stall_ms),
            free_at: [0; 2],
        }
    }

    /// The one-way delay of a byte.
    pub fn delay_nanos(&self) -> u64 {
        self.delay_nanos
    }

    /// How many bytes enter at a time: about a millisecond's worth, so that connections take turns.
    pub fn piece_bytes(&self) -> usize {
        match usize::try_from(self.bytes_per_second / 1_000) {
            Ok(0) if self.bytes_per_second == 0 => PIECE_BYTES_MAX,
            Ok(bytes) => bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX),
            Err(_) => PIECE_BYTES_MAX,
        }
    }

    /// When the next piece may enter; a moment not after the current one means at once.
    pub fn opens_at(&self, way: Way) -> u64 {
        self.free_at[way as usize].saturating_sub(QUEUE_NANOS)
    }

    /// Puts `bytes` on the line and returns when the last of them arrives.
    pub fn enter(&mut self, way: Way, now: u64, bytes: usize) -> u64 {
        let begin = self.after_stall(now.max(self.free_at[way as usize]));
        let end = begin + self.transfer_nanos(bytes);
        self.free_at[way as usize] = end;
        self.after_stall(end + self.delay_nanos)
    }

    fn transfer_nanos(&self, bytes: usize) -> u64 {
        if self.bytes_per_second == 0 {
            return 0;
        }
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.bytes_per_second));
        u64::try_from(nanos).unwrap_or(u64::MAX / 4)
    }

    /// Returns `moment`, or the end of the stall that it falls into. The first stall begins after
    /// one interval.
    fn after_stall(&self, moment: u64) -> u64 {
        if self.stall_every_nanos == 0 || self.stall_nanos == 0 || moment < self.stall_every_nanos {
            return moment;
        }
        let since_stall_began = moment % self.stall_every_nanos;
        moment + self.stall_nanos.saturating_sub(since_stall_began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn without_limits_everything_arrives_at_once() {
        let mut line = Line::new(&LinkSpec::default());
        assert_eq!(line.enter(Way::ToBroker, 5, 1_000_000), 5);
        assert_eq!(line.opens_at(Way::ToBroker), 0);
        assert_eq!(line.piece_bytes(), PIECE_BYTES_MAX);
    }

    #[test]
    fn a_byte_takes_half_a_round_trip() {
        let spec = LinkSpec {
            round_trip_ms: 72.0,
            ..LinkSpec::default()
        };
        let mut line = Line::new(&spec);
        assert_eq!(line.enter(Way::ToBroker, 10, 1), 36 * MS + 10);
        assert_eq!(line.enter(Way::ToClient, 20, 1), 36 * MS + 20);
    }

    #[test]
    fn bytes_queue_for_the_bandwidth_of_each_direction_separately() {
        let spec = LinkSpec {
            bytes_per_second: 1_000_000,
            ..LinkSpec::default()
        };
        let mut line = Line::new(&spec);
        assert_eq!(line.enter(Way::ToBroker, 0, 1_000), MS);
        assert_eq!(line.enter(Way::ToBroker, 0, 4_000), 5 * MS);
        assert_eq!(line.enter(Way::ToClient, 0, 1_000), MS);
        assert_eq!(line.opens_at(Way::ToBroker), 5 * MS - QUEUE_NANOS);
        // An idle line accumulates no credit.
        assert_eq!(line.enter(Way::ToBroker, 50 * MS, 1_000), 51 * MS);
    }

    #[test]
    fn nothing_enters_or_arrives_in_a_stall_and_order_is_kept() {
        let spec = LinkSpec {
            stall_every_ms: 100,
            stall_ms: 30,
            round_trip_ms: 4.0,
            ..LinkSpec::default()
        };
        let mut line = Line::new(&spec);
        assert_eq!(line.enter(Way::ToBroker, 10 * MS, 1), 12 * MS);
        // Under way when the stall begins.
        assert_eq!(line.enter(Way::ToBroker, 99 * MS, 1), 130 * MS);
        assert_eq!(line.enter(Way::ToBroker, 105 * MS, 1), 132 * MS);
        assert_eq!(line.enter(Way::ToBroker, 140 * MS, 1), 142 * MS);
        let mut last = 0;
        for moment in (0..1_000).map(|step| step * MS / 2) {
            let arrival = line.enter(Way::ToClient, moment, 100);
            assert!(arrival >= last && arrival >= moment + 2 * MS);
            last = arrival;
        }
    }
}
