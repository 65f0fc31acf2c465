//! The settings of an admin client.

use std::sync::Arc;

use super::client::ClientConfig;
use super::settings::{Settings, config_error};
use super::{ClientKind, Config};
use crate::error::Error;

/// An admin client's settings, checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdminConfig {
    /// What every client has.
    pub client: Arc<ClientConfig>,
    /// `default.api.timeout.ms`.
    pub default_api_timeout_ms: u64,
    /// `retries`.
    pub retries: u32,
}

impl AdminConfig {
    /// - Errors: `Config` with Kafka's text, for the first wrong key.
    pub fn from_config(config: &Config) -> Result<AdminConfig, Error> {
        let settings = Settings::new(ClientKind::Admin, config)?;
        if settings.list("bootstrap.servers").is_empty() {
            let message = "You must set either bootstrap.servers or bootstrap.controllers";
            return Err(config_error("bootstrap.servers", message));
        }
        Ok(AdminConfig {
            default_api_timeout_ms: settings.natural("default.api.timeout.ms"),
            retries: u32::try_from(settings.number("retries")).expect("an int of at least 0"),
            client: Arc::new(ClientConfig::new(ClientKind::Admin, settings)?),
        })
    }
}
