//! One partition of one topic.

/// A partition that this broker leads.
pub struct Partition {}
