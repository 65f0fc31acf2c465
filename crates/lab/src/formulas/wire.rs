//! What a connection carries: requests, round trips, windows, bandwidth (F10 to F13, F15). From the
//! producer formula article.

/// F10c: `1000 / X` is the round trip where one producer sends one record at a time (acks=1, one
/// partition, record >= batch.size).
pub fn round_trip_ms(records_per_second: f64) -> f64 {
    1_000.0 / records_per_second
}

/// F11: `record` where it is larger than a batch, otherwise as many whole records as a batch holds.
pub fn packet_bytes(record_bytes: f64, batch_bytes: f64) -> f64 {
    if record_bytes > batch_bytes {
        record_bytes
    } else {
        (batch_bytes / record_bytes).floor() * record_bytes
    }
}

/// F11: `packet * partitions per broker`, up to max.request.size.
pub fn request_bytes(packet_bytes: f64, partitions_per_broker: f64, max_request_bytes: f64) -> f64 {
    // A record larger than the limit is refused, so one packet always fits.
    (packet_bytes * partitions_per_broker).min(max_request_bytes.max(packet_bytes))
}

/// F12: `min(M * request, send.buffer.bytes) / RTT`, bytes per second to one broker.
pub fn bytes_per_second(
    in_flight: f64,
    request_bytes: f64,
    send_buffer_bytes: f64,
    round_trip_ms: f64,
) -> f64 {
    1_000.0 * (in_flight * request_bytes).min(send_buffer_bytes) / round_trip_ms
}

/// The parameters of a connection for F13.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connection {
    pub round_trip_ms: f64,
    /// The most bytes under way; up to twice send.buffer.bytes, because Linux doubles it. Infinite:
    /// no limit.
    pub window_bytes: f64,
    /// Infinite: no limit.
    pub bandwidth_bytes_per_second: f64,
    /// The broker's time for a request of this size.
    pub broker_ms: f64,
    pub in_flight: f64,
}

/// F13: `RTT * ceil(request / W) + request / bandwidth + D`.
pub fn request_ms(connection: &Connection, request_bytes: f64) -> f64 {
    let round_trips = (request_bytes / connection.window_bytes).ceil().max(1.0);
    let transfer_ms = 1_000.0 * request_bytes / connection.bandwidth_bytes_per_second;
    connection.round_trip_ms * round_trips + transfer_ms + connection.broker_ms
}

/// F13: `min(M * request / t, W / RTT, bandwidth)`, bytes per second to one broker.
pub fn bytes_per_second_refined(connection: &Connection, request_bytes: f64) -> f64 {
    let by_requests = 1_000.0 * connection.in_flight * request_bytes / request_ms(connection, request_bytes);
    let by_window = 1_000.0 * connection.window_bytes / connection.round_trip_ms;
    by_requests
        .min(by_window)
        .min(connection.bandwidth_bytes_per_second)
}

/// F15: `0.92 * link`, the share of a link's bits that is left for the bytes of requests.
pub fn link_bytes_per_second(link_bits_per_second: f64) -> f64 {
    0.92 * link_bits_per_second / 8.0
}

/// Broker time of the article's cluster within a data centre: `0.35 ms + S / 48 MB/s` (fitted to
/// its table).
pub fn article_broker_ms(request_bytes: f64) -> f64 {
    0.35 + request_bytes / 48_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::{BETWEEN, MIB, within};

    fn connection(send_buffer_bytes: f64, in_flight: f64, request_bytes: f64) -> Connection {
        Connection {
            round_trip_ms: 73.0,
            window_bytes: 2.0 * send_buffer_bytes,
            // The fit to the data centre's table includes the transfer.
            bandwidth_bytes_per_second: f64::INFINITY,
            broker_ms: article_broker_ms(request_bytes),
            in_flight,
        }
    }

    #[test]
    fn round_trips_show_in_the_rate() {
        within(round_trip_ms(13.8), 72.5, 0.1);
        within(round_trip_ms(13.6), 73.5, 0.1);
    }

    #[test]
    fn packets_hold_whole_records() {
        assert_eq!(packet_bytes(100_000.0, 16_384.0), 100_000.0);
        assert_eq!(packet_bytes(1_000.0, 16_384.0), 16_000.0);
        assert_eq!(request_bytes(200_000.0, 16.0, 1_048_576.0), 1_048_576.0);
        assert_eq!(request_bytes(16_000.0, 3.0, 1_048_576.0), 48_000.0);
    }

    #[test]
    fn the_article_s_own_predictions() {
        // Table of send buffers: record, buffer, requests per second by F12.
        for (record, buffer, expected) in [
            (10_000.0, 102_400.0, 13.7),
            (200_000.0, 102_400.0, 7.0),
            (200_000.0, 502_400.0, 13.7),
            (600_000.0, 102_400.0, 2.3),
            (600_000.0, 502_400.0, 11.5),
            (600_000.0, 1_024_000.0, 13.7),
        ] {
            within(
                bytes_per_second(1.0, record, buffer, 73.0) / record,
                expected,
                2.0,
            );
        }
        // Top speed: 13.4 MiB/s with a buffer of 1,024,000 bytes, five times that with five times
        // the buffer.
        within(bytes_per_second(1e4, 1e5, 1_024_000.0, 73.0) / MIB, 13.4, 1.0);
        within(bytes_per_second(1e4, 1e5, 5_024_000.0, 73.0) / MIB, 65.6, 1.0);
    }

    #[test]
    fn the_refined_formula_is_closer_where_the_kernel_doubles_the_buffer() {
        for row in BETWEEN
            .iter()
            .filter(|row| row.in_flight == 1.0 && row.partitions == 1.0)
        {
            let refined = bytes_per_second_refined(&connection(row.send_buffer, 1.0, row.record), row.record)
                / row.record;
            within(refined, row.records_per_second, 12.0);
        }
    }

    #[test]
    fn within_a_data_centre_the_broker_s_time_decides() {
        for (record, measured) in [(600_000.0, 77.0), (200_000.0, 237.0), (10_000.0, 1_785.0)] {
            within(1_000.0 / article_broker_ms(record), measured, 7.0);
        }
    }

    #[test]
    fn links_lose_a_little() {
        within(link_bytes_per_second(1e9) / 1e6, 115.0, 0.1);
        // 5 MB/s: five requests of 48.8 kB under way take 49 ms each.
        let slow = Connection {
            round_trip_ms: 0.1,
            window_bytes: f64::INFINITY,
            bandwidth_bytes_per_second: 5e6,
            broker_ms: 0.2,
            in_flight: 5.0,
        };
        assert_eq!(bytes_per_second_refined(&slow, 48_800.0), 5e6);
    }

    #[test]
    fn windows_measured_here() {
        let window = |bytes: f64, in_flight: f64| Connection {
            round_trip_ms: 72.0,
            window_bytes: bytes,
            bandwidth_bytes_per_second: f64::INFINITY,
            broker_ms: 5.3,
            in_flight,
        };
        // 600 kB through 100 KiB: six round trips; 2.29 to 2.40 records per second.
        within(
            bytes_per_second_refined(&window(102_400.0, 1.0), 600_000.0) / 600_000.0,
            2.35,
            4.0,
        );
        within(
            bytes_per_second_refined(&window(1_024_000.0, 1.0), 600_000.0) / 600_000.0,
            12.9,
            1.0,
        );
        // 100 kB, ten in flight: 126.9 were measured.
        within(
            bytes_per_second_refined(&window(1_024_000.0, 10.0), 100_000.0) / 100_000.0,
            126.9,
            12.5,
        );
    }
}
