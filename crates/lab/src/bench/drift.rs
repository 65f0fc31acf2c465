//! Whether a run's rate stays the same from beginning to end.

use crate::report::Drift;

/// Computes the drift from the rate of every second.
pub fn of_rates(rates: &[f64]) -> Drift {
    let count = rates.len();
    let sum: f64 = rates.iter().sum();
    if count < 3 || sum == 0.0 {
        return Drift {
            slope_percent: 0.0,
            last_to_first: 1.0,
        };
    }
    let mean = sum / count as f64;
    let middle = (count - 1) as f64 / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (second, rate) in rates.iter().enumerate() {
        let distance = second as f64 - middle;
        above += distance * (rate - mean);
        below += distance * distance;
    }
    let third = count / 3;
    let of = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    Drift {
        slope_percent: 100.0 * above / below * (count - 1) as f64 / mean,
        last_to_first: of(&rates[count - third..]) / of(&rates[..third]).max(f64::MIN_POSITIVE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_does_not_drift() {
        let drift = of_rates(&[100.0; 9]);
        assert_eq!((drift.slope_percent, drift.last_to_first), (0.0, 1.0));
    }

    #[test]
    fn a_rate_that_halves_drifts_by_two_thirds_of_its_mean() {
        let rates: Vec<f64> = (0..=10).map(|second| 200.0 - 10.0 * f64::from(second)).collect();
        let drift = of_rates(&rates);
        assert!((drift.slope_percent + 66.67).abs() < 0.01, "{drift:?}");
        assert!((drift.last_to_first - 330.0 / 570.0).abs() < 0.01, "{drift:?}");
    }

    #[test]
    fn too_few_seconds_say_nothing() {
        assert_eq!(of_rates(&[1.0, 9.0]).last_to_first, 1.0);
        assert_eq!(of_rates(&[0.0; 30]).slope_percent, 0.0);
    }
}
