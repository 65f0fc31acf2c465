//! Axes: from values to positions on a chart, with round ticks.

use crate::numbers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Starts at 0.
    Linear,
    Log,
    /// Percentiles; each further nine takes the same width.
    Nines,
}

#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// With the unit.
    pub(super) title: String,
    scale: Scale,
    /// In units of the scale: logarithms on a logarithmic axis.
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Position along the axis, 0 to 1.
    pub(super) at: f64,
    pub(super) text: String,
}

/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 5.0;
/// A logarithmic axis shows at most this many decades: smaller values are clipped to its start.
const DECADES: f64 = 9.0;
/// Beyond six nines there are too few records for a percentile.
const NINES: f64 = 6.0;

impl Axis {
    /// An axis that covers all of `values`; values that are not finite, or not positive on a
    /// logarithmic axis, have no position.
    pub(super) fn fit(title: impl Into<String>, scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let values = values.filter(|value| value.is_finite());
        let title = title.into();
        match scale {
            Scale::Linear => Axis::linear(title, values.fold(0.0, f64::max)),
            Scale::Log => Axis::log(title, values.filter(|value| *value > 0.0)),
            Scale::Nines => Axis::nines(title, values.fold(0.0, f64::max)),
        }
    }

    fn linear(title: String, largest: f64) -> Axis {
        let largest = if largest > 0.0 { largest.min(1e300) } else { 1.0 };
        let raw = largest / TICKS;
        let power = 10_f64.powf(raw.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|factor| factor * power >= raw * 0.999_999);
        let step = factor.unwrap_or(10.0) * power;
        let count = (largest / step * 0.999_999).ceil().max(1.0);
        let high = count * step;
        let ticks = (0..=count as u32).map(|index| Tick {
            at: f64::from(index) / count,
            text: short(f64::from(index) * step),
        });
        Axis {
            title,
            scale: Scale::Linear,
            low: 0.0,
            high,
            ticks: ticks.collect(),
        }
    }

    fn log(title: String, values: impl Iterator<Item = f64>) -> Axis {
        let (smallest, largest) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (smallest, largest) = if smallest > largest {
            (1.0, 10.0)
        } else {
            (smallest, largest)
        };
        let high = largest.log10().ceil();
        let mut low = smallest.log10().floor().max(high - DECADES);
        if low >= high {
            low = high - 1.0;
        }
        let decades = high - low;
        let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks = Vec::new();
        for decade in 0..=decades as i32 {
            for factor in factors {
                let place = (f64::from(decade) + factor.log10()) / decades;
                if place <= 1.000_001 {
                    let value = 10_f64.powf(low + f64::from(decade)) * factor;
                    ticks.push(Tick {
                        at: place.min(1.0),
                        text: short(value),
                    });
                }
            }
        }
        Axis {
            title,
            scale: Scale::Log,
            low,
            high,
            ticks,
        }
    }

    fn nines(title: String, largest: f64) -> Axis {
        let high = nines_of(largest).ceil().clamp(2.0, NINES);
        let all = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.999_9];
        let ticks = all
            .into_iter()
            .filter(|percentile| nines_of(*percentile) <= high + 1e-6);
        Axis {
            title,
            scale: Scale::Nines,
            low: 0.0,
            high,
            ticks: ticks
                .map(|percentile| Tick {
                    at: (nines_of(percentile) / high).min(1.0),
                    text: format!("{percentile}"),
                })
                .collect(),
        }
    }

    /// An axis with one position for each name: the first is at 0, the second at 1 and so on.
    ///
    /// - `letters`: longer names are cut.
    pub(super) fn of_names(title: &str, names: &[&str], letters: usize) -> Axis {
        let count = names.len().max(1) as f64;
        let ticks = names.iter().enumerate().map(|(index, name)| Tick {
            at: (index as f64 + 0.5) / count,
            text: cut(name, letters),
        });
        Axis {
            title: title.to_owned(),
            scale: Scale::Linear,
            low: -0.5,
            high: count - 0.5,
            ticks: ticks.collect(),
        }
    }

    /// The position, 0 to 1; `None` for values that have none.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => value.log10(),
            Scale::Nines => nines_of(value),
        };
        place
            .is_finite()
            .then(|| ((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }
}

pub(super) fn cut(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    let kept: String = name.chars().take(letters.saturating_sub(1)).collect();
    kept + "…"
}

/// 90 is 1, 99 is 2, 99.9 is 3.
fn nines_of(percentile: f64) -> f64 {
    let rest = (1.0 - percentile / 100.0).clamp(10_f64.powf(-NINES), 1.0);
    // Not -0.
    (-rest.log10()).max(0.0)
}

/// Formats a tick: `0.5`, `20`, `1.5k`, `2M`.
fn short(value: f64) -> String {
    let size = value.abs();
    let (divisor, suffix) = match size {
        _ if size >= 1e13 => return format!("{value:.0e}"),
        _ if size >= 1e9 => (1e9, "G"),
        _ if size >= 1e6 => (1e6, "M"),
        _ if size >= 1e3 => (1e3, "k"),
        _ if size > 0.0 && size < 1e-3 => return numbers::number(value),
        _ => (1.0, ""),
    };
    // Ticks are round, so anything beyond the third digit is rounding error.
    let text = format!("{:.3}", value / divisor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.text.as_str()).collect()
    }

    fn axis(scale: Scale, values: &[f64]) -> Axis {
        Axis::fit("x", scale, values.iter().copied())
    }

    #[test]
    fn ticks_are_round_and_hold_the_largest() {
        assert_eq!(
            texts(&axis(Scale::Linear, &[3.0, 47.0])),
            ["0", "10", "20", "30", "40", "50"]
        );
        assert_eq!(
            texts(&axis(Scale::Linear, &[1_000_000.0])),
            ["0", "200k", "400k", "600k", "800k", "1M"]
        );
        assert_eq!(texts(&axis(Scale::Linear, &[0.3])), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(texts(&axis(Scale::Log, &[0.3, 40.0])), ["0.1", "1", "10", "100"]);
        assert_eq!(texts(&axis(Scale::Log, &[3.0, 7.0])), ["1", "2", "5", "10"]);
        assert_eq!(
            texts(&axis(Scale::Nines, &[99.95])),
            ["0", "50", "90", "99", "99.9", "99.99"]
        );
    }

    #[test]
    fn values_have_their_positions() {
        let linear = axis(Scale::Linear, &[100.0]);
        assert_eq!(linear.at(50.0), Some(0.5));
        let log = axis(Scale::Log, &[1.0, 100.0]);
        assert_eq!(log.at(10.0), Some(0.5));
        assert_eq!((log.at(0.0), log.at(-3.0)), (None, None));
        assert_eq!(axis(Scale::Nines, &[99.0]).at(90.0), Some(0.5));
    }

    #[test]
    fn names_have_consecutive_positions() {
        let axis = Axis::of_names("point", &["linger.ms=5", "b"], 6);
        assert_eq!(texts(&axis), ["linge…", "b"]);
        assert_eq!((axis.at(0.0), axis.at(1.0)), (Some(0.25), Some(0.75)));
        assert_eq!(Axis::of_names("point", &[], 6).at(0.0), Some(0.5));
    }

    #[test]
    fn no_values_and_invalid_values_still_give_an_axis() {
        for scale in [Scale::Linear, Scale::Log, Scale::Nines] {
            for values in [
                &[][..],
                &[0.0],
                &[-5.0],
                &[f64::NAN, f64::INFINITY],
                &[1e-320],
                &[f64::MAX],
                &[1e-300, 1e300],
                &[100.0],
            ] {
                let axis = axis(scale, values);
                assert!(
                    (2..=20).contains(&axis.ticks.len()),
                    "{scale:?} {values:?} {axis:?}"
                );
                assert!(
                    axis.ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.at)),
                    "{axis:?}"
                );
                for value in values {
                    assert!(
                        axis.at(*value).is_none_or(|at| (0.0..=1.0).contains(&at)),
                        "{axis:?}"
                    );
                }
            }
        }
    }
}
