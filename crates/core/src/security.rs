//! The security of the listeners at this moment: the file's, with what was set at run time
//! (KIP-226).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use ottla_log::disk::Disk;
use tracing::error;

use crate::config::{self, ConfigError, ListenerSecurity, NodeConfig, OauthSettings, SecurityByListener};
use crate::effective_config::{self, Settings};
use crate::image::MetadataImage;
use crate::key_stores::KeyStores;
use crate::sasl::decoy::Decoys;
use crate::sasl::nonce::Nonces;
use crate::sasl::token_keys::TokenKeys;
use crate::sasl::{SaslSecrets, secret_file};

#[derive(Debug)]
pub(crate) struct Security {
    config: Arc<NodeConfig>,
    by_listener: ArcSwap<SecurityByListener>,
    /// Set by a shell with TLS.
    key_stores: OnceLock<Arc<dyn KeyStores>>,
    pub secrets: SaslSecrets,
    pub token_keys: Arc<TokenKeys>,
}

impl Security {
    /// - `directory`: keeps the secret of decoys, if there can be a need for them.
    /// - Errors: as `check`.
    pub fn new(
        config: &Arc<NodeConfig>,
        image: &MetadataImage,
        disk: &dyn Disk,
        directory: &Path,
    ) -> Result<Security, ConfigError> {
        let by_listener = effective(image, config)?;
        let nonces = Nonces::new(config.secret_seed, "nonces");
        let secret = if has_scram(&by_listener) {
            secret_file::read_or_create(disk, directory, &nonces)
        } else {
            nonces.bytes().to_vec()
        };
        let decoys = Decoys::new(&secret, &image.scram_credentials);
        Ok(Security {
            config: config.clone(),
            by_listener: ArcSwap::from_pointee(by_listener),
            key_stores: OnceLock::new(),
            secrets: SaslSecrets { nonces, decoys },
            token_keys: Arc::default(),
        })
    }

    pub fn of(&self, listener_name: &str) -> Option<Arc<ListenerSecurity>> {
        let by_listener: Guard<Arc<SecurityByListener>> = self.by_listener.load();
        by_listener.get(listener_name).cloned()
    }

    /// The settings of every listener that takes tokens.
    pub fn oauth_settings(&self) -> Vec<OauthSettings> {
        let by_listener: Guard<Arc<SecurityByListener>> = self.by_listener.load();
        config::oauth_settings(&by_listener)
    }

    /// Takes over changed credentials.
    pub fn follow_users(&self, old: &MetadataImage, new: &MetadataImage) {
        if !Arc::ptr_eq(&old.scram_credentials, &new.scram_credentials) {
            self.secrets.decoys.follow(&new.scram_credentials);
        }
    }

    /// Takes over changed settings. Connections that are authenticated stay so.
    pub fn follow(&self, settings: &Settings) {
        match config::security_of(&self.config.listeners, settings) {
            Ok(by_listener) => {
                self.by_listener.store(Arc::new(by_listener));
                if let Some(key_stores) = self.key_stores.get() {
                    key_stores.follow(settings);
                }
            }
            // AlterConfigs refuses such a value before it is written.
            Err(error) => error!(%error, "the security of the listeners stays as it was"),
        }
    }

    /// Has the listeners use the stores that were set at run time, before this start or later.
    pub fn set_key_stores(&self, key_stores: Arc<dyn KeyStores>, image: &MetadataImage) {
        let settings = effective_config::broker_settings(image, &self.config);
        match config::security_of(&self.config.listeners, &settings) {
            Ok(_) => key_stores.follow(&settings),
            Err(error) => error!(%error, "the stores of the listeners stay as in the file"),
        }
        assert!(
            self.key_stores.set(key_stores).is_ok(),
            "the key stores are set once"
        );
    }
}

/// Looks whether every listener can be as the file and the metadata log say. A listener that is as
/// only the file says could admit a user who was removed at run time.
///
/// - Errors: the setting that cannot be served; Apache Kafka set it, or it was valid beside another
///   file.
pub(crate) fn check(image: &MetadataImage, config: &NodeConfig) -> Result<(), ConfigError> {
    effective(image, config).map(drop)
}

fn effective(image: &MetadataImage, config: &NodeConfig) -> Result<SecurityByListener, ConfigError> {
    config::security_of(
        &config.listeners,
        &effective_config::broker_settings(image, config),
    )
}

fn has_scram(security: &SecurityByListener) -> bool {
    let all = security.values().filter_map(|security| security.sasl.as_ref());
    all.flat_map(|sasl| &sasl.mechanisms)
        .any(|offered| offered.mechanism.is_scram())
}
