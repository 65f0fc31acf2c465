//! The shell around the core: sockets, threads, clocks and the admin address.
//!
//! Nothing here decides how a request is answered. Whatever can be decided without a socket or a
//! thread belongs in `ottla_core`.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod broker;
pub mod machine_memory;
pub mod settings;
pub mod net;
pub mod tls;
mod token_keys;
pub mod executor;
pub mod clock;
pub mod metrics;
pub mod activity;
pub mod access;
pub mod http;
pub mod admin;
pub mod growth;
mod first_users;
mod random_bytes;
mod rate_limit;

pub use admin::exposition::Page as MetricsPage;
pub use admin::{AddedMetrics, AdminView, Console, Page, PageBody};
pub use broker::{Additions, Broker, StartError};
pub use ottla_core::access::acl;
pub use ottla_core::config::{ConfigResource, ConfigResourceType};
pub use ottla_core::config::{NodeConfig, RecoveryConfig};
pub use ottla_core::effective_config;
pub use ottla_core::image::topics::TopicImage;
pub use ottla_core::telemetry::receiver as telemetry;
pub use ottla_core::transaction::{hanging, transactions};
pub use ottla_wire::error_code::ErrorCode;
pub use ottla_wire::properties;
pub use ottla_wire::records::compression::Codec;
pub use ottla_wire::text;

/// Whether a key of the configuration file is accepted without effect.
pub fn is_without_effect(key: &ottla_wire::config_keys::ConfigKey) -> bool {
    matches!(key.support, ottla_wire::config_keys::Support::NoEffect(_))
}
