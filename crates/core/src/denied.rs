//! Operations that ACLs denied, as facts about a connection.

use std::sync::Arc;

/// Longer names of resources are cut: no topic has a longer name.
const NAME_BYTES_MAX: usize = 249;

/// The part of a resource's name that is kept.
pub(crate) fn cut(name: &str) -> Arc<str> {
    name[..name.floor_char_boundary(NAME_BYTES_MAX)].into()
}

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
            resource: cut(resource),
            is_by_acl,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let denied = DeniedOperation::new("Write", "Topic", &"ä".repeat(1_000), true);
        assert_eq!(&*denied.resource, "ä".repeat(NAME_BYTES_MAX / 2));
    }
}
