//! How many requests and bytes per second a producer can get answered (F8, F8b, F9, F14, F28).

/// F8: `1000 / L * M * N`, requests per second (Kontur talk).
///
/// - `in_flight`: of one connection; `brokers`: those that lead partitions the producer writes to.
pub fn requests_per_second_max(request_ms: f64, in_flight: f64, brokers: f64) -> f64 {
    1_000.0 / request_ms * in_flight * brokers
}

/// F8: `R / R_max`, by Little's law the mean number of requests under way over the allowed number
/// (Kontur talk).
pub fn in_flight_use(requests_per_second: f64, requests_per_second_max: f64) -> f64 {
    requests_per_second / requests_per_second_max
}

/// F8b: `min(M, 1 + buffers / S)`, the requests that really fit on a connection (measured).
///
/// - `buffer_bytes`: twice send.buffer.bytes and twice the broker's receive buffer; 456 KiB with
///   Kafka's defaults.
pub fn in_flight_effective(in_flight: f64, buffer_bytes: f64, request_bytes: f64) -> f64 {
    in_flight.min(1.0 + buffer_bytes / request_bytes)
}

/// The buffers for `in_flight_effective`, with Kafka's defaults on both sides.
pub const DEFAULT_BUFFER_BYTES: f64 = 456.0 * 1_024.0;

/// F9: the largest request: `min(max.request.size, P * batch.size)`, one batch of every partition
/// that the broker leads (Kontur talk).
///
/// - `partitions_per_broker`: 1 for a client that sends one partition per request.
pub fn request_bytes_max(max_request_bytes: f64, partitions_per_broker: f64, batch_bytes: f64) -> f64 {
    max_request_bytes.min(partitions_per_broker * batch_bytes)
}

/// F9: `R_max * S_max / c`, payload bytes per second at unchanged latency (Kontur talk).
///
/// - `compression_rate`: compressed over uncompressed size.
pub fn payload_bytes_per_second_max(
    requests_per_second_max: f64,
    request_bytes_max: f64,
    compression_rate: f64,
) -> f64 {
    requests_per_second_max * request_bytes_max / compression_rate
}

/// F9: `min(U, 1) * S / S_max`: a full pipe of small requests is not an overload, a full pipe of
/// full requests is (measured).
pub fn load(in_flight_use: f64, request_bytes: f64, request_bytes_max: f64) -> f64 {
    in_flight_use.min(1.0) * request_bytes / request_bytes_max
}

/// F14: `1000 / D`: Apache Kafka serves the requests of a connection one after another, regardless
/// of the number in flight (measured).
pub fn requests_per_connection_max(broker_ms: f64) -> f64 {
    1_000.0 / broker_ms
}

/// F14: `1 + RTT / D`: more in flight hides no more latency (measured).
pub fn in_flight_useful(round_trip_ms: f64, broker_ms: f64) -> f64 {
    1.0 + round_trip_ms / broker_ms
}

/// F28: `T * 1000 / (linger + L)`, records per second of threads that wait for every answer (2.3.0
/// test report).
pub fn synchronous_records_per_second(threads: f64, linger_ms: f64, request_ms: f64) -> f64 {
    threads * 1_000.0 / (linger_ms + request_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::within;

    #[test]
    fn the_talk_s_request_rates() {
        // I, IV, V: L, R and what the talk computed from them.
        for (request_ms, requests, ceiling, used) in [
            (9.8, 1_391.0, 1_531.0, 0.91),
            (11.0, 1_159.0, 1_364.0, 0.85),
            (11.8, 1_029.0, 1_271.0, 0.81),
        ] {
            let max = requests_per_second_max(request_ms, 5.0, 3.0);
            within(max, ceiling, 0.1);
            within(in_flight_use(requests, max), used, 1.0);
        }
    }

    #[test]
    fn the_talk_s_load() {
        // I: Z = 0.84 with batches of 15,066 of 16,384 bytes, one partition per broker.
        let full = request_bytes_max(1_048_576.0, 1.0, 16_384.0);
        within(load(0.91, 15_066.0, full), 0.84, 1.0);
        // Two partitions per broker: two batches in a request.
        assert_eq!(request_bytes_max(1_048_576.0, 2.0, 65_536.0), 131_072.0);
        assert_eq!(request_bytes_max(1_048_576.0, 100.0, 65_536.0), 1_048_576.0);
    }

    #[test]
    fn a_pipe_may_be_full_in_bytes() {
        within(
            in_flight_effective(5.0, DEFAULT_BUFFER_BYTES, 311_000.0),
            2.5,
            1.0,
        );
        within(
            in_flight_effective(5.0, DEFAULT_BUFFER_BYTES, 729_000.0),
            1.64,
            1.0,
        );
        assert_eq!(in_flight_effective(5.0, DEFAULT_BUFFER_BYTES, 10_000.0), 5.0);
    }

    #[test]
    fn one_in_flight_across_20_ms() {
        // 45.4 requests/s were measured with L = 22.03 ms; five in flight gave 4.7 to 5 times as
        // many.
        within(requests_per_second_max(22.03, 1.0, 1.0), 45.4, 0.1);
        within(requests_per_second_max(22.03, 5.0, 1.0) / 45.4, 5.0, 0.1);
    }

    #[test]
    fn a_connection_is_served_one_request_at_a_time() {
        // Re-compression took D = 118 ms at R * D = 0.95: 8 requests a second.
        within(0.95 * requests_per_connection_max(118.0), 8.05, 0.1);
        assert_eq!(in_flight_useful(10.0, 5.0), 3.0);
    }

    #[test]
    fn compression_lifts_a_byte_ceiling() {
        within(
            payload_bytes_per_second_max(100.0, 47_800.0, 0.61),
            4.78e6 / 0.61,
            0.1,
        );
    }

    #[test]
    fn threads_that_wait() {
        // RTT 10 ms, linger 5 and 0: 57.3 and 79.3 were measured.
        within(synchronous_records_per_second(1.0, 5.0, 12.2), 58.1, 0.1);
        within(synchronous_records_per_second(1.0, 0.0, 12.1), 82.6, 0.1);
        // The test report: 16 threads, linger 10, 11.5 ms each; a million records in about 12
        // minutes.
        within(
            1e6 / synchronous_records_per_second(16.0, 10.0, 1.5) / 60.0,
            12.0,
            0.5,
        );
    }
}
