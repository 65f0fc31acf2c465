//! Settings of quotas.

use std::time::Duration;

/// How bursts are measured, and whether quotas are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// `quota.window.size.seconds`: an entity may use at once what it did not use within this time.
    pub window: Duration,
    /// `controller.quota.window.num` times `controller.quota.window.size.seconds`: the same for
    /// metadata changes.
    pub controller_window: Duration,
    /// `ottla.quota.dry.run`: no client is throttled; those that would be are counted.
    pub is_dry_run: bool,
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
