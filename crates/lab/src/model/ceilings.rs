//! Ceilings of a rate: the lowest wins, and no promise goes beyond a known one.

use crate::formulas::ceiling;

use super::constants::LINK_SHARE;

/// A rate that something allows at most, and what that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    pub records_per_second: f64,
    pub text: String,
}

pub fn lowest(ceilings: &[Ceiling]) -> Option<&Ceiling> {
    ceilings
        .iter()
        .min_by(|a, b| a.records_per_second.total_cmp(&b.records_per_second))
}

/// A rate, cut at the lowest ceiling.
pub fn cut(ceilings: &[Ceiling], records_per_second: f64) -> f64 {
    lowest(ceilings).map_or(records_per_second, |ceiling| {
        records_per_second.min(ceiling.records_per_second)
    })
}

/// Names the next limit.
pub fn next(ceilings: &[Ceiling]) -> String {
    lowest(ceilings).map_or_else(
        || "not known: no number of the threads, the link or the broker limits it; measure again".to_owned(),
        |ceiling| ceiling.text.clone(),
    )
}

/// F15: records per second of a link.
pub fn by_link(link_bytes_per_second: f64, record_bytes: f64) -> f64 {
    LINK_SHARE * link_bytes_per_second / record_bytes
}

/// F12: records per second of one window to each broker.
pub fn by_window(window_bytes: f64, round_trip_ms: f64, brokers: f64, record_bytes: f64) -> f64 {
    1_000.0 * window_bytes / round_trip_ms * brokers / record_bytes
}

/// F14: records per second where each broker serves a connection's requests one after another.
pub fn by_broker(broker_ms: f64, brokers: f64, records_per_request: f64) -> f64 {
    ceiling::requests_per_connection_max(broker_ms) * brokers * records_per_request
}

/// F6: records per second of threads that do nothing but send.
pub fn by_threads(threads: f64, send_micros: f64) -> f64 {
    1e6 * threads / send_micros
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling(records_per_second: f64) -> Ceiling {
        Ceiling {
            records_per_second,
            text: format!("{records_per_second}"),
        }
    }

    #[test]
    fn the_lowest_ceiling_cuts_and_is_named() {
        let ceilings = [ceiling(300.0), ceiling(200.0), ceiling(900.0)];
        assert_eq!(cut(&ceilings, 250.0), 200.0);
        assert_eq!(cut(&ceilings, 150.0), 150.0);
        assert_eq!(next(&ceilings), "200");
        assert!(next(&[]).starts_with("not known"));
    }
}
