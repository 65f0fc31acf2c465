//! Operations that ACLs denied, as facts about a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Longer names of resources are cut: no topic has a longer name.
const NAME_BYTES_MAX: usize = 249;

/// Operations that are kept for one connection: the doctor advises one change at a time.
const KEPT_MAX: usize = 4;

/// What was denied, with the names that Kafka's tools have for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeniedOperation {
    pub operation: &'static str,
    pub resource_type: &'static str,
    pub resource: Arc<str>,
    /// An ACL denies it; otherwise none allows it.
    pub is_by_acl: bool,
}

impl DeniedOperation {
    pub fn new(
        operation: &'static str,
        resource_type: &'static str,
        resource: &str,
        is_by_acl: bool,
    ) -> DeniedOperation {
        DeniedOperation {
            operation,
            resource_type,
            resource: resource[..resource.floor_char_boundary(NAME_BYTES_MAX)].into(),
            is_by_acl,
        }
    }
}

/// The last different operations that one connection was denied, and how often.
#[derive(Debug, Default)]
pub struct DeniedHere {
    total: AtomicU64,
    /// The latest last.
    last: Mutex<Vec<(DeniedOperation, u64)>>,
}

impl DeniedHere {
    pub(crate) fn see(&self, denied: DeniedOperation) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.iter().position(|(known, _)| *known == denied);
        let before = known.map_or(0, |index| last.remove(index).1);
        if last.len() == KEPT_MAX {
            last.remove(0);
        }
        last.push((denied, before + 1));
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Without a lock: asked for each request of a connection that has moved no records.
    pub fn is_empty(&self) -> bool {
        self.total.load(Ordering::Relaxed) == 0
    }

    pub fn last(&self) -> Vec<(DeniedOperation, u64)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_last_denials() {
        let here = DeniedHere::default();
        assert!(here.is_empty());
        for name in ["a", "b", "a", "c", "d", "e"] {
            here.see(DeniedOperation::new("Write", "Topic", name, false));
        }
        let last = here.last();
        let last: Vec<_> = last
            .iter()
            .map(|(denied, count)| (&*denied.resource, *count))
            .collect();
        assert_eq!(last, [("a", 2), ("c", 1), ("d", 1), ("e", 1)]);
        assert!(!here.is_empty());
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let denied = DeniedOperation::new("Write", "Topic", &"ä".repeat(1_000), true);
        assert_eq!(&*denied.resource, "ä".repeat(NAME_BYTES_MAX / 2));
    }
}
