//! All listeners with TLS: their stores can be set while the broker runs (KIP-226), and read again
//! when the operator asks for it.

use std::sync::Arc;

use ottla_core::config::ConfigError;
use ottla_core::key_stores::KeyStores;
use tracing::{error, info};

use super::listener::TlsListener;
use super::reload::read_again;
use super::settings::SslSettings;
use crate::properties::Properties;

#[derive(Clone, Debug)]
pub struct TlsListeners(Vec<Arc<TlsListener>>);

impl TlsListeners {
    pub fn new(listeners: Vec<Arc<TlsListener>>) -> TlsListeners {
        TlsListeners(listeners)
    }

    pub fn all(&self) -> &[Arc<TlsListener>] {
        &self.0
    }

    /// Reads all stores again, whether their files have changed or not.
    pub fn reload(&self) {
        self.0.iter().for_each(|listener| read_again(listener));
    }
}

impl KeyStores for TlsListeners {
    fn check(&self, settings: &Properties) -> Result<(), ConfigError> {
        let of = |listener: &TlsListener| SslSettings::of_listener(settings, listener.name());
        self.0
            .iter()
            .try_for_each(|listener| listener.check(of(listener)))
    }

    fn follow(&self, settings: &Properties) {
        for listener in &self.0 {
            let name = listener.name();
            match listener.follow(SslSettings::of_listener(settings, name)) {
                Ok(false) => {}
                Ok(true) => info!(listener = %name, "the stores of TLS were changed"),
                Err(error) => error!(
                    listener = %name, %error,
                    "the stores of TLS that were set at run time cannot be used; the listener keeps what it had"
                ),
            }
        }
    }
}
