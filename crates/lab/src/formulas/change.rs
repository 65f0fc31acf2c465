//! The gain of a change: more threads, larger requests (F22, F30).

/// F22: `W(T) / W(1)`: 1 means no contention, T a lock around everything (Kontur talk).
pub fn contention(send_micros: f64, send_micros_of_one: f64) -> f64 {
    send_micros / send_micros_of_one
}

/// F22: `X(T) / X(T')` (Kontur talk).
pub fn gain(records_per_second: f64, records_per_second_before: f64) -> f64 {
    records_per_second / records_per_second_before
}

/// F30: `U / g`, the in-flight use after requests became g times larger at unchanged latency
/// (measured).
pub fn in_flight_use_after(in_flight_use: f64, growth: f64) -> f64 {
    in_flight_use / growth
}

/// F30: `min(offered, X * g / max(U, 0.01))`, at unchanged latency (measured).
pub fn records_per_second_after(
    offered: f64,
    records_per_second: f64,
    growth: f64,
    in_flight_use: f64,
) -> f64 {
    offered.min(records_per_second * growth / in_flight_use.max(0.01))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::{KONTUR, within};

    #[test]
    fn the_talk_s_contention() {
        let row = |name: &str| KONTUR.iter().find(|row| row.name == name).unwrap();
        for (threads, one, kappa) in [
            ("VI", "V", 1.71),
            ("VII", "V", 2.79),
            ("XIV", "XIII", 2.44),
            ("XV", "XIII", 4.22),
        ] {
            within(
                contention(row(threads).send_micros, row(one).send_micros),
                kappa,
                0.5,
            );
        }
        for (after, before, expected) in [
            ("VI", "V", 1.21),
            ("VII", "VI", 0.91),
            ("XII", "X", 1.24),
            ("XIV", "XIII", 0.96),
        ] {
            let (after, before) = (row(after), row(before));
            within(
                gain(after.records_per_second, before.records_per_second),
                expected,
                1.0,
            );
        }
    }

    #[test]
    fn twice_the_batch() {
        // I to II: U = 0.91 * 100 / 83.55 / 2 at the offered 100,000.
        within(in_flight_use_after(0.91 * 100.0 / 83.55, 2.0), 0.54, 1.0);
        assert_eq!(
            records_per_second_after(100_000.0, 83_550.0, 2.0, 0.91),
            100_000.0
        );
        // Measured here: 64,800 rose to the offered 100,000.
        assert_eq!(
            records_per_second_after(100_000.0, 64_800.0, 2.0, 0.98),
            100_000.0
        );
        // zstd on a full link: 4.78 MB/s / 0.61, measured 7.84.
        within(records_per_second_after(1e9, 4.78, 1.0 / 0.61, 1.0), 7.84, 0.1);
    }
}
