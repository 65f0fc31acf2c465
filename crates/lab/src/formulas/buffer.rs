//! What buffer.memory allows, and how long it lasts (F16, F17).

/// F16: `B / X`, the longest time that a batch can wait: the queue cannot exceed the memory (Kontur
/// talk's numbers, checked).
///
/// - `bytes_per_second`: in bytes of batches, after compression.
pub fn queue_ms_max(buffer_bytes: f64, bytes_per_second: f64) -> f64 {
    1_000.0 * buffer_bytes / bytes_per_second
}

/// F17: `B / (offered - drained)`, the time until `send()` blocks; infinite where the drain keeps
/// up (2.3.0 test report).
pub fn seconds_until_full(
    buffer_bytes: f64,
    offered_bytes_per_second: f64,
    drained_bytes_per_second: f64,
) -> f64 {
    let surplus = offered_bytes_per_second - drained_bytes_per_second;
    if surplus <= 0.0 {
        f64::INFINITY
    } else {
        buffer_bytes / surplus
    }
}

/// F17: `(waiting + 1) * batch.size / drained`: memory is given out in order of arrival, one batch
/// at a time (measured).
pub fn wait_ms(waiting_threads: f64, batch_bytes: f64, drained_bytes_per_second: f64) -> f64 {
    1_000.0 * (waiting_threads + 1.0) * batch_bytes / drained_bytes_per_second
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::within;

    #[test]
    fn a_queue_of_14_seconds_needs_320_mb() {
        // Experiment I: 83,550 records/s of 251 bytes each.
        let drained = 83_550.0 * 251.0;
        within(queue_ms_max(33_554_432.0, drained), 1_600.0, 1.0);
        assert!(queue_ms_max(335_544_320.0, drained) > 14_000.0);
    }

    #[test]
    fn failed_to_allocate_memory() {
        // 37 MB/s offered, a third of 12.5 MB/s drained.
        within(seconds_until_full(33_554_432.0, 37e6, 12.5e6 / 3.0), 1.0, 3.0);
        within(wait_ms(15.0, 131_072.0, 12.5e6 / 3.0), 503.0, 0.1);
        // 16 KiB at 0.746 MB/s: 22 ms, more than max.block.ms = 20.
        within(wait_ms(0.0, 16_384.0, 746_000.0), 22.0, 0.5);
        assert_eq!(seconds_until_full(1.0, 5.0, 5.0), f64::INFINITY);
    }
}
