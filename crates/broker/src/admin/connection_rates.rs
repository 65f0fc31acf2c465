//! How many connections come and go per second, over a window of the broker's own: two readers do
//! not disturb each other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ottla_core::time::Moment;

use crate::net::connection_counts::{ConnectionCounts, ListenerConnections};

/// With the interval of the looks, a minute.
const LOOKS_MAX: usize = 4;

type ByListener = BTreeMap<Arc<str>, ListenerConnections>;

/// What [`ConnectionRates::look`] saw in the last minute, oldest first.
#[derive(Debug, Default)]
pub struct ConnectionRates(Mutex<VecDeque<(Moment, ByListener)>>);

/// Connections per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub created: f64,
    pub closed: f64,
}

impl ConnectionRates {
    /// Call every fifteen seconds.
    pub fn look(&self, counts: &ConnectionCounts, now: Moment) {
        self.add(counts.by_listener(), now);
    }

    /// Returns the rates since the oldest look.
    pub fn read(&self, counts: &ConnectionCounts, now: Moment) -> BTreeMap<Arc<str>, Rates> {
        self.rates(&counts.by_listener(), now)
    }

    fn add(&self, counts: ByListener, now: Moment) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push_back((now, counts));
        while looks.len() > LOOKS_MAX {
            looks.pop_front();
        }
    }

    fn rates(&self, counts: &ByListener, now: Moment) -> BTreeMap<Arc<str>, Rates> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, before) = match looks.front() {
            Some((began, before)) => (*began, Some(before)),
            None => (now, None),
        };
        let seconds = now.micros_since(began) as f64 / 1e6;
        let rate = |of: u64| if seconds > 0.0 { of as f64 / seconds } else { 0.0 };
        let rates = |(listener, now): (&Arc<str>, &ListenerConnections)| {
            let before = before.and_then(|before| before.get(listener)).copied();
            let before = before.unwrap_or_default();
            let rates = Rates {
                created: rate(now.accepted - before.accepted),
                closed: rate(now.closed() - before.closed()),
            };
            (listener.clone(), rates)
        };
        counts.iter().map(rates).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_looks_that_are_kept() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let counts = |open: usize, accepted: u64| -> ByListener {
            BTreeMap::from([("PLAINTEXT".into(), ListenerConnections { open, accepted })])
        };
        let rates = ConnectionRates::default();
        assert_eq!(rates.rates(&counts(1, 1), at(0))["PLAINTEXT"], Rates::default());
        for look in 0..5 {
            rates.add(counts(2, 10 * look), at(15 * look));
        }
        // The first look is forgotten; from the second on are 45 s.
        let read = rates.rates(&counts(5, 55), at(60));
        let expected = Rates {
            created: 1.0,
            closed: 42.0 / 45.0,
        };
        assert_eq!(read["PLAINTEXT"], expected);
    }
}
