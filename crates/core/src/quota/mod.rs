//! Client quotas: who may use how much, what was used, and how long whoever used more is held back.
//!
//! The limits are records of the metadata log, in Kafka's terms: for a user, a client id, both, or an address, with
//! defaults, the most specific one wins ([`limits`]). A limit is kept by a [`token_bucket`]: one number per entity, booked
//! without a lock. A connection looks its [`client::ClientQuota`] up once and again when the quotas change
//! ([`registry`]); after that a request costs a comparison and two additions. What happens to a client that is over its
//! quota is KIP-219: it is answered at once and told, and then not read until it has paid.
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

use std::time::Duration;

use crate::config::NodeConfig;
use crate::image::MetadataImage;

const DRY_RUN_KEY: &str = "ottla.quota.dry.run";

/// How bursts are measured and whether quotas hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// `quota.window.size.seconds`: what an entity did not use within this time it may use at once.
    pub window: Duration,
    /// `controller.quota.window.num` times `controller.quota.window.size.seconds`: the same for changes of the metadata.
    pub controller_window: Duration,
    /// `ottla.quota.dry.run`: nobody is held back, and who would have been is counted.
    pub is_dry_run: bool,
}

/// Whether quotas only count: as set on the running broker, else as the configuration file says.
pub fn is_dry_run(image: &MetadataImage, config: &NodeConfig) -> bool {
    image
        .dynamic_broker_value(config.node_id, DRY_RUN_KEY)
        .map_or(config.quota.is_dry_run, |value| {
            value.eq_ignore_ascii_case("true")
        })
}

impl Default for QuotaConfig {
    /// Kafka's defaults.
    fn default() -> QuotaConfig {
        QuotaConfig {
            window: Duration::from_secs(1),
            controller_window: Duration::from_secs(11),
            is_dry_run: false,
        }
    }
}
