//! S3: does a backlog exist?
//!
//! **Asks** whether records wait in the client for something other than linger. **Numbers**:
//! thread-seconds that `send()` waits for memory (`w_buf`), threads that wait (`T_wait`), free
//! buffer, queue time q and its maxima over pushes.
//!
//! | sign | threshold | kind |
//! |---|---|---|
//! | `w_buf` | 0.05 thread-seconds per second | hard |
//! | `T_wait` | above zero in two pushes | hard |
//! | q | above 1 s | hard |
//! | q_max | higher in each of three consecutive pushes than in the one before, by 5 %, and above the queue's threshold | hard |
//! | free buffer | below a tenth | hard |
//! | q | above 3 × max(linger, 2 ms) | soft |
//!
//! **Why two kinds**: a soft backlog is latency near a ceiling, a hard one is a ceiling. Measured
//! with 100,000 records/s offered: 32 KiB batches had q = 36 ms at linger 5 (soft, and the producer
//! kept up); 16 KiB batches had q = 1,708 ms (hard, and it did not). librdkafka's queue time
//! excludes batching, so its threshold is 6 ms regardless of linger. A client that sends no queue
//! time at all is judged by whether its requests follow each other without a pause.

use crate::doctor::diagnosis::Step;

use super::super::words::{known, step};
use super::evidence::is_back_to_back;
use super::reading::{Reading, clean};

const BUFFER_WAIT: f64 = 0.05;
const FREE: f64 = 0.1;
const LONG_MS: f64 = 1_000.0;
const LINGERS: f64 = 3.0;
const LINGER_MS_MIN: f64 = 2.0;
const RISE: f64 = 1.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Backlog {
    None,
    Soft,
    Hard,
}

/// The queue time above which records wait for more than linger.
pub(crate) fn queue_threshold_ms(reading: &Reading<'_>) -> f64 {
    LINGERS * reading.settings.linger_ms.value.max(LINGER_MS_MIN)
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Backlog, Step) {
    let none = Default::default();
    let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
    let threshold_ms = queue_threshold_ms(reading);
    let (queue_ms, threshold_ms) = match reading.transmit_queue_ms {
        Some(queue_ms) => (Some(queue_ms), LINGERS * LINGER_MS_MIN),
        None => (reading.queue_ms, threshold_ms),
    };
    let signs = [
        (
            Backlog::Hard,
            reading.buffer_wait.is_some_and(|wait| wait >= BUFFER_WAIT),
            "send() waits for buffer memory",
        ),
        (
            Backlog::Hard,
            own.pushes_with_waiting_threads >= 2,
            "threads wait for buffer memory in two pushes",
        ),
        (
            Backlog::Hard,
            queue_ms.is_some_and(|queue| queue > LONG_MS),
            "batches wait for more than a second",
        ),
        (
            Backlog::Hard,
            is_rising(&own.queue_ms_max_course, threshold_ms),
            "the longest wait grows from push to push",
        ),
        (
            Backlog::Hard,
            reading.buffer_free_share.is_some_and(|free| free < FREE),
            "the buffer is nearly full",
        ),
        (
            Backlog::Soft,
            queue_ms.is_some_and(|queue| queue > threshold_ms),
            "batches wait for more than three lingers",
        ),
        (
            Backlog::Soft,
            queue_ms.is_none() && is_back_to_back(reading),
            "requests follow each other without a pause",
        ),
    ];
    let backlog = signs
        .iter()
        .filter(|(_, is_there, _)| *is_there)
        .map(|(kind, ..)| *kind)
        .max()
        .unwrap_or(Backlog::None);
    let named: Vec<&str> = signs
        .iter()
        .filter(|(_, is_there, _)| *is_there)
        .map(|(.., words)| *words)
        .collect();
    let answer = match backlog {
        Backlog::None => "no".to_owned(),
        Backlog::Soft => format!("yes, near the ceiling: {}", named.join(", ")),
        Backlog::Hard => format!("yes: {}", named.join(", ")),
    };
    let numbers = [
        known("w_buf", reading.buffer_wait, ""),
        known("free buffer", reading.buffer_free_share, ""),
        known("q", queue_ms, "ms"),
        known("q_max", reading.queue_ms_max, "ms"),
        known("threshold", Some(threshold_ms), "ms"),
    ];
    (backlog, step("S3", "Does a backlog exist?", &numbers, answer))
}

/// Whether the maxima of the last four pushes rise from each to the next.
pub(crate) fn is_rising(course: &[f64], threshold_ms: f64) -> bool {
    let Some(last) = course.len().checked_sub(4).map(|start| &course[start..]) else {
        return false;
    };
    last.iter().all(|value| clean(Some(*value)).is_some())
        && last.windows(2).all(|pair| pair[1] > RISE * pair[0])
        && last[3] > threshold_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steady_growth_is_a_rise() {
        assert!(is_rising(&[10.0, 40.0, 90.0, 200.0, 900.0], 15.0));
        assert!(!is_rising(&[40.0, 90.0, 200.0], 15.0));
        assert!(!is_rising(&[10.0, 40.0, 40.0, 200.0], 15.0));
        assert!(!is_rising(&[1.0, 2.0, 4.0, 8.0], 15.0));
        assert!(!is_rising(&[10.0, f64::NAN, 90.0, 200.0], 15.0));
    }
}
