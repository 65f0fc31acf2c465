//! What a connection's buffers, its window and its link let through: how many requests, and how
//! many bytes per second.

use crate::formulas::{ceiling, wire};

use super::constants::LINK_SHARE;

/// Kafka's default of send.buffer.bytes.
pub const SEND_BUFFER_BYTES: f64 = 131_072.0;
/// The receiver's buffer: twice Kafka's default socket.receive.buffer.bytes of 100 KiB.
const RECEIVE_BUFFER_BYTES: f64 = 200.0 * 1_024.0;

/// How much may be under way to a receive buffer that has been set, in shares of it: the kernel
/// keeps part of a buffer for its own data, and lends some of what it reserves for that. Measured
/// where the buffer was full: 1.05 to 1.28 times the setting.
pub const RECEIVE_WINDOW_SHARE: (f64, f64) = (0.5, 1.35);

/// The same of a send buffer, which the kernel doubles. Measured where it was full: 1.41.
pub const SEND_WINDOW_SHARE: (f64, f64) = (1.0, 2.0);

/// F8b: the bytes that the sockets of both ends hold. The kernel doubles both buffers.
pub fn socket_bytes(send_buffer_bytes: f64) -> f64 {
    2.0 * send_buffer_bytes + RECEIVE_BUFFER_BYTES
}

/// M_eff (F8b): a Java client starts a request only once the previous one is written out, so bytes
/// limit what is under way too.
///
/// - `seen`: the most that were seen under way on one connection; it is never fewer.
pub fn in_flight(allowed: f64, send_buffer_bytes: f64, request_bytes: f64, seen: f64) -> f64 {
    let buffers = socket_bytes(send_buffer_bytes);
    let by_bytes = ceiling::in_flight_effective(allowed, buffers, request_bytes.max(1.0));
    by_bytes.max(seen.min(allowed)).max(1.0)
}

/// A connection for F13. Of a link of known bandwidth requests get their share (F15); a broker of
/// which no time is known takes none.
pub fn connection(
    (round_trip_ms, broker_ms): (f64, Option<f64>),
    window_bytes: f64,
    link_bytes_per_second: Option<f64>,
    in_flight: f64,
) -> wire::Connection {
    wire::Connection {
        round_trip_ms,
        window_bytes,
        bandwidth_bytes_per_second: link_bytes_per_second.map_or(f64::INFINITY, |link| LINK_SHARE * link),
        broker_ms: broker_ms.unwrap_or(0.0),
        in_flight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_kafkas_defaults_are_those_of_the_formula() {
        assert_eq!(socket_bytes(SEND_BUFFER_BYTES), ceiling::DEFAULT_BUFFER_BYTES);
    }

    #[test]
    fn bytes_limit_what_is_under_way_but_not_below_what_was_seen() {
        // Measured: 311 kB left room for 2.5 of five, and 3 were seen.
        assert_eq!(in_flight(5.0, SEND_BUFFER_BYTES, 311_000.0, 1.0).round(), 3.0);
        assert_eq!(in_flight(5.0, SEND_BUFFER_BYTES, 311_000.0, 4.0), 4.0);
        assert_eq!(in_flight(2.0, SEND_BUFFER_BYTES, 311_000.0, 4.0), 2.0);
        assert_eq!(in_flight(5.0, 16_384.0, 10e6, 0.0).floor(), 1.0);
    }

    #[test]
    fn a_link_gives_requests_their_share() {
        let speed = |link| wire::bytes_per_second_refined(&connection((4.0, None), 1e9, link, 5.0), 1e6);
        assert_eq!(speed(Some(1e6)), 0.92e6);
        assert!(speed(None) > 1e8);
    }
}
