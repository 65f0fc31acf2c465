//! Denials: counted by principal and resource, and logged within a limit for each principal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::acl::ResourceType;
use crate::denied::DeniedOperation;
use crate::rate_limit::RateLimit;
use crate::time::Moment;

/// At most this many denials of one principal are logged per second; its next line tells how many
/// were left out.
const LINES_PER_SECOND: u32 = 2;

/// Principals that are counted by name, and operations of each: clients choose the names of
/// resources. Further ones are counted together.
const PRINCIPALS_MAX: usize = 256;
const OPERATIONS_MAX: usize = 32;

/// How often an operation was denied to a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialCount {
    /// `None`: those beyond the limit.
    pub principal: Option<Arc<str>>,
    /// `None`: the principal's operations beyond the limit.
    pub denied: Option<DeniedOperation>,
    pub count: u64,
}

/// The denials since the start.
#[derive(Debug)]
pub(super) struct Denials {
    by_type: BTreeMap<&'static str, AtomicU64>,
    /// `None`: the principals beyond the limit.
    by_principal: Mutex<BTreeMap<Option<Arc<str>>, OfPrincipal>>,
}

#[derive(Debug)]
struct OfPrincipal {
    by_operation: BTreeMap<DeniedOperation, u64>,
    others: u64,
    lines: RateLimit,
}

impl Default for OfPrincipal {
    fn default() -> OfPrincipal {
        OfPrincipal {
            by_operation: BTreeMap::new(),
            others: 0,
            lines: RateLimit::per_second(LINES_PER_SECOND),
        }
    }
}

impl OfPrincipal {
    fn count(&mut self, denied: &DeniedOperation) {
        if let Some(count) = self.by_operation.get_mut(denied) {
            *count += 1;
        } else if self.by_operation.len() < OPERATIONS_MAX {
            self.by_operation.insert(denied.clone(), 1);
        } else {
            self.others += 1;
        }
    }
}

impl Denials {
    pub fn new() -> Denials {
        let types = ResourceType::ALL.iter();
        Denials {
            by_type: types
                .map(|resource_type| (resource_type.name(), AtomicU64::new(0)))
                .collect(),
            by_principal: Mutex::default(),
        }
    }

    /// Counts a denial. `Some(n)`: log it; `n` of this principal were not since its last line.
    pub fn see(&self, principal: &Arc<str>, denied: &DeniedOperation, now: Moment) -> Option<u64> {
        self.by_type[denied.resource_type].fetch_add(1, Ordering::Relaxed);
        let mut by_principal = self.by_principal();
        let is_known = by_principal.contains_key(&Some(principal.clone()));
        let has_room = by_principal.len() < PRINCIPALS_MAX;
        let key = (is_known || has_room).then(|| principal.clone());
        let own = by_principal.entry(key).or_default();
        own.count(denied);
        own.lines.pass(now)
    }

    /// Returns the denials by the name of the type of resource.
    pub fn by_type(&self) -> Vec<(&'static str, u64)> {
        let counts = self.by_type.iter();
        counts
            .map(|(resource_type, count)| (*resource_type, count.load(Ordering::Relaxed)))
            .collect()
    }

    pub fn counts(&self) -> Vec<DenialCount> {
        let by_principal = self.by_principal();
        let counts = by_principal.iter().flat_map(|(principal, own)| {
            let row = |denied: Option<&DeniedOperation>, count| DenialCount {
                principal: principal.clone(),
                denied: denied.cloned(),
                count,
            };
            let named = own.by_operation.iter();
            let named = named.map(move |(denied, count)| row(Some(denied), *count));
            named.chain((own.others > 0).then(|| row(None, own.others)))
        });
        counts.collect()
    }

    fn by_principal(&self) -> MutexGuard<'_, BTreeMap<Option<Arc<str>>, OfPrincipal>> {
        self.by_principal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(name: &str) -> DeniedOperation {
        DeniedOperation::new("Write", "Topic", name, false)
    }

    fn see(denials: &Denials, principal: &str, name: &str) -> Option<u64> {
        denials.see(&principal.into(), &denied(name), Moment::from_micros(1))
    }

    #[test]
    fn a_principal_with_many_denials_leaves_others_their_lines() {
        let denials = Denials::new();
        let alice: Vec<_> = (0..5).map(|_| see(&denials, "User:alice", "t")).collect();
        assert_eq!(alice, [Some(0), Some(0), None, None, None]);
        assert_eq!(see(&denials, "User:bob", "t"), Some(0));
        let later = denials.see(&"User:alice".into(), &denied("t"), Moment::from_micros(1_000_001));
        assert_eq!(later, Some(3));
    }

    #[test]
    fn denials_are_counted_by_principal_and_operation() {
        let denials = Denials::new();
        see(&denials, "User:alice", "orders");
        see(&denials, "User:alice", "orders");
        see(&denials, "User:bob", "orders");
        let counts: Vec<_> = denials
            .counts()
            .into_iter()
            .map(|row| (row.principal.unwrap().to_string(), row.denied, row.count))
            .collect();
        let expected = [("User:alice", 2), ("User:bob", 1)];
        let expected =
            expected.map(|(principal, count)| (principal.to_owned(), Some(denied("orders")), count));
        assert_eq!(counts, expected);
        assert!(denials.by_type().contains(&("Topic", 3)));
    }

    #[test]
    fn names_from_the_network_take_bounded_memory() {
        let denials = Denials::new();
        let long = "ä".repeat(10_000);
        for number in 0..1_000 {
            see(&denials, "User:alice", &format!("{number}{long}"));
            see(&denials, &format!("User:{number}"), "t");
        }
        let counts = denials.counts();
        assert_eq!(counts.iter().map(|row| row.count).sum::<u64>(), 2_000);
        let of_alice = counts
            .iter()
            .filter(|row| row.principal.as_deref() == Some("User:alice"));
        let of_alice: Vec<&DenialCount> = of_alice.collect();
        assert_eq!(of_alice.len(), OPERATIONS_MAX + 1);
        assert_eq!(of_alice[OPERATIONS_MAX].count, 1_000 - OPERATIONS_MAX as u64);
        let others: u64 = counts
            .iter()
            .filter(|row| row.principal.is_none())
            .map(|row| row.count)
            .sum();
        assert_eq!(others, 1_000 - (PRINCIPALS_MAX as u64 - 1));
    }
}
