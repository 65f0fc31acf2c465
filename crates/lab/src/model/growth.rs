//! What larger requests and fetches carry (F30).

use crate::formulas::change;

use super::constants::GAIN_LOW;

/// F30: the least and the most that requests `growth` times as large carry through a pipe that is
/// used to a share of `used`, before any ceiling.
pub fn grown(now: f64, growth: f64, used: f64) -> (f64, f64) {
    let high = change::records_per_second_after(f64::INFINITY, now, growth, used.clamp(0.5, 1.0));
    (GAIN_LOW * high, high)
}

/// The share of a growth in size that is left of the rate, where all of a request's time but
/// `fixed_ms` grows with its size.
pub fn share_left(growth: f64, request_ms: f64, fixed_ms: f64) -> f64 {
    let fixed_ms = fixed_ms.min(request_ms);
    let grown_ms = fixed_ms + (request_ms - fixed_ms) * growth;
    if grown_ms > 0.0 {
        request_ms / grown_ms
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fixed_part_of_the_time_is_shared_by_more_bytes() {
        assert_eq!(share_left(4.0, 40.0, 40.0), 1.0);
        assert_eq!(share_left(4.0, 40.0, 0.0), 0.25);
        assert_eq!(share_left(2.0, 40.0, 20.0), 40.0 / 60.0);
        assert_eq!(share_left(2.0, 40.0, 90.0), 1.0);
        assert_eq!(share_left(2.0, 0.0, 10.0), 1.0);
    }
}
