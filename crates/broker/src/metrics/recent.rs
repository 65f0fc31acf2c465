//! A value about the recent past: that of the current period and of the one before, so that a
//! reader sees at least one whole period however it is timed, and old peaks are forgotten.

use ottla_core::time::Moment;

/// Two intervals of the doctor's readings, so that none of them misses a peak.
const PERIOD_MICROS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Recent<T> {
    period: u64,
    now: T,
    before: T,
}

impl<T: Copy + Default> Recent<T> {
    /// The value of the current period, to be changed.
    pub fn at(&mut self, now: Moment) -> &mut T {
        let period = now.micros() / PERIOD_MICROS;
        if period != self.period {
            self.before = if period == self.period + 1 {
                self.now
            } else {
                T::default()
            };
            self.now = T::default();
            self.period = period;
        }
        &mut self.now
    }

    /// The values of the current period and of the one before; the default for a period in which
    /// nothing happened.
    pub fn read(mut self, now: Moment) -> [T; 2] {
        self.at(now);
        [self.now, self.before]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_for_one_to_two_periods_and_then_forgotten() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let mut peak = Recent::<u32>::default();
        *peak.at(at(19)) = 7;
        assert_eq!(peak.read(at(19)), [7, 0]);
        assert_eq!(peak.read(at(29)), [0, 7]);
        assert_eq!(peak.read(at(30)), [0, 0]);
        *peak.at(at(21)) = 3;
        assert_eq!(peak.read(at(22)), [3, 7]);
    }
}
