//! Client quotas: limits on clients, their use, and throttling of clients that exceed them.
//!
//! The limits are records of the metadata log, in Kafka's terms: for a user, a client id, both, or
//! an address, with defaults; the most specific one applies ([`limits`]). A limit is enforced by a
//! [`token_bucket`]: one number per entity, updated without a lock. A connection looks up its
//! [`client::ClientQuota`] once, and again when the quotas change ([`registry`]); after that a
//! request costs a comparison and two additions. KIP-219: a client over its quota is answered at
//! once with the throttle time, and its connection is muted for that time.
//!
//! Reading order: the modules below, top to bottom.

pub mod kind;
pub mod token_bucket;
pub mod limits;
pub mod usage;
pub mod client;
pub mod registry;
pub mod connection_rate;
pub mod mutation;

#[cfg(test)]
mod tests;

pub use client::ClientQuota;
pub use kind::QuotaKind;
pub use registry::Quotas;

use crate::config::NodeConfig;
pub use crate::config::QuotaConfig;
use crate::image::MetadataImage;

const DRY_RUN_KEY: &str = "ottla.quota.dry.run";

/// Whether quotas are only counted: the dynamic setting of the broker, else the configuration
/// file's.
pub fn is_dry_run(image: &MetadataImage, config: &NodeConfig) -> bool {
    image
        .dynamic_broker_value(config.node_id, DRY_RUN_KEY)
        .map_or(config.quota.is_dry_run, |value| {
            value.eq_ignore_ascii_case("true")
        })
}
