//! When markers that a partition refused are tried again.

use crate::time::Moment;

/// The first wait; then twice as long each time, up to the maximum.
const RETRY_MS: u64 = 50;
const RETRY_MS_MAX: u64 = 30_000;
/// A group coordinator that loads its log is ready soon, and until then its offsets are unstable.
const LOADING_MS: u64 = 100;

/// Why a partition took no marker; the last one decides how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// The group coordinator has not read its log.
    Loading,
    /// A failed log, or one that contradicts the decision.
    Refused,
}

/// Wake-ups do not shorten a wait, and count for nothing: there is one for each marker of every
/// transaction.
pub(super) struct Backoff {
    /// `None`: nothing was refused.
    due: Option<Moment>,
    failures: u32,
}

impl Backoff {
    /// What has not been tried is due at once.
    pub fn due_now() -> Backoff {
        Backoff {
            due: Some(Moment::from_nanos(0)),
            failures: 0,
        }
    }

    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    /// Whether to try now what was refused before.
    pub fn take(&mut self, now: Moment) -> bool {
        self.due = self.due.filter(|due| *due > now);
        self.due.is_none()
    }

    /// Begins a wait, unless there is one.
    pub fn refused(&mut self, now: Moment, refusal: Refusal) {
        if self.due.is_some() {
            return;
        }
        let delay_ms = match refusal {
            Refusal::Loading => LOADING_MS,
            Refusal::Refused => {
                self.failures += 1;
                (RETRY_MS << (self.failures - 1).min(16)).min(RETRY_MS_MAX)
            }
        };
        self.due = Some(now.after_ms(delay_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_each_time_up_to_thirty_seconds() {
        let mut backoff = Backoff::due_now();
        let mut now = Moment::from_micros(1);
        let mut waits_ms = Vec::new();
        for _ in 0..12 {
            assert!(backoff.take(now));
            backoff.refused(now, Refusal::Refused);
            let due = backoff.due().unwrap();
            waits_ms.push(due.micros_since(now) / 1_000);
            now = due;
        }
        assert_eq!(waits_ms[..3], [50, 100, 200]);
        assert_eq!(waits_ms[10..], [30_000, 30_000]);
    }

    #[test]
    fn a_wake_up_during_a_wait_neither_ends_nor_prolongs_it() {
        let start = Moment::from_micros(1);
        for refusal in [Refusal::Loading, Refusal::Refused] {
            let mut backoff = Backoff::due_now();
            assert!(backoff.take(start));
            backoff.refused(start, refusal);
            let due = backoff.due().unwrap();
            for _ in 0..100 {
                assert!(!backoff.take(start.after_ms(1)), "{refusal:?}");
                backoff.refused(start.after_ms(1), refusal);
            }
            assert_eq!(backoff.due(), Some(due), "{refusal:?}");
            assert!(backoff.take(due));
        }
    }

    #[test]
    fn a_coordinator_that_loads_is_asked_again_soon_however_often_it_was_asked() {
        let mut backoff = Backoff::due_now();
        let mut now = Moment::from_micros(1);
        for _ in 0..1_000 {
            assert!(backoff.take(now));
            backoff.refused(now, Refusal::Loading);
            let due = backoff.due().unwrap();
            assert_eq!(due.micros_since(now), LOADING_MS * 1_000);
            now = due;
        }
    }
}
