//! How busy the broker's machine was over a window.

use crate::doctor::snapshot::Host;
use crate::machine::host::HostCounts;

/// What a machine's processors did over a slice, or over a window of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSums {
    processors: u32,
    busy: u64,
    all: u64,
    stolen: u64,
    /// With the time over which it was counted.
    waiting_micros: Option<u64>,
    micros: u64,
}

impl HostSums {
    pub fn between(before: &HostCounts, now: &HostCounts, micros: u64) -> HostSums {
        let since = |of: fn(&HostCounts) -> u64| of(now).saturating_sub(of(before));
        HostSums {
            processors: now.processors,
            busy: since(|counts| counts.busy),
            all: since(|counts| counts.busy + counts.idle),
            stolen: since(|counts| counts.stolen),
            waiting_micros: (now.waiting_micros.zip(before.waiting_micros))
                .map(|(now, before)| now.saturating_sub(before)),
            micros,
        }
    }

    pub fn merge(&mut self, later: &HostSums) {
        self.processors = later.processors;
        self.busy += later.busy;
        self.all += later.all;
        self.stolen += later.stolen;
        self.waiting_micros = match (self.waiting_micros, later.waiting_micros) {
            _ if self.micros == 0 => later.waiting_micros,
            (Some(before), Some(later)) => Some(before + later),
            _ => None,
        };
        self.micros += later.micros;
    }

    pub fn host(&self) -> Host {
        let share = |ticks: u64| (self.all > 0).then(|| ticks as f64 / self.all as f64);
        let waiting = self.waiting_micros.filter(|_| self.micros > 0);
        Host {
            processors: Some(f64::from(self.processors)).filter(|count| *count > 0.0),
            used: share(self.busy),
            waiting: waiting.map(|waiting| (waiting as f64 / self.micros as f64).min(1.0)),
            stolen: share(self.stolen),
        }
    }
}

/// The machine between two readings, each with its time in milliseconds since 1970.
pub fn host_between(before: (i64, &HostCounts), now: (i64, &HostCounts)) -> Option<Host> {
    let micros = u64::try_from(1_000 * (now.0 - before.0)).ok()?;
    Some(HostSums::between(before.1, now.1, micros).host())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(busy: u64, idle: u64, stolen: u64, waiting_micros: Option<u64>) -> HostCounts {
        HostCounts {
            processors: 4,
            busy,
            idle,
            stolen,
            waiting_micros,
        }
    }

    #[test]
    fn shares_are_those_of_the_window() {
        let first = counts(1_000, 1_000, 10, Some(5_000_000));
        let second = counts(1_300, 1_100, 50, Some(6_000_000));
        let third = counts(1_500, 1_500, 50, Some(9_000_000));
        let mut sums = HostSums::default();
        sums.merge(&HostSums::between(&first, &second, 5_000_000));
        sums.merge(&HostSums::between(&second, &third, 5_000_000));
        let expected = Host {
            processors: Some(4.0),
            used: Some(0.5),
            waiting: Some(0.4),
            stolen: Some(0.04),
        };
        assert_eq!(sums.host(), expected);
    }

    #[test]
    fn what_the_kernel_does_not_count_is_unknown() {
        let counts = |busy| counts(busy, 100, 0, None);
        let sums = HostSums::between(&counts(100), &counts(200), 5_000_000);
        assert_eq!(sums.host().waiting, None);
        assert_eq!(sums.host().used, Some(1.0));
        assert_eq!(HostSums::default().host(), Host::default());
    }
}
