//! The shell's half of TLS: the stores that `ssl.*` settings name can be changed while the broker
//! runs (KIP-226), and only the shell reads them.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::ConfigError;

/// The key stores and trust stores of all listeners. Called on the controller thread, and may wait
/// for the disk.
///
/// - `settings`: those of security, of the file and over it those set at run time.
pub trait KeyStores: fmt::Debug + Send + Sync {
    /// Reads the stores that the settings name. The listeners keep what they have.
    ///
    /// - Errors: a listener could not use its store.
    fn check(&self, settings: &BTreeMap<String, String>) -> Result<(), ConfigError>;

    /// Has listeners use the stores that the settings name, for new connections. A listener that
    /// cannot keeps what it has, and the log says why.
    fn follow(&self, settings: &BTreeMap<String, String>);
}
