//! One file per API, named like it.

pub(crate) mod api_versions;
pub(crate) mod delete_records;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
