//! The keys that tokens are verified by. The shell fetches them; connections only look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use super::jwk::JsonWebKeys;

/// Keys by the URL that they were fetched from.
#[derive(Debug, Default)]
pub struct TokenKeys {
    by_url: ArcSwap<BTreeMap<Arc<str>, Arc<JsonWebKeys>>>,
    /// A token named a key that is not there.
    is_missing: AtomicBool,
}

impl TokenKeys {
    pub fn of(&self, url: &str) -> Option<Arc<JsonWebKeys>> {
        self.by_url.load().get(url).cloned()
    }

    /// - Shape: called by one thread.
    pub fn put(&self, url: &Arc<str>, keys: JsonWebKeys) {
        let mut by_url = BTreeMap::clone(&self.by_url.load());
        by_url.insert(url.clone(), Arc::new(keys));
        self.by_url.store(Arc::new(by_url));
    }

    /// Notes that a provider may have begun to sign with a new key.
    pub(super) fn miss(&self) {
        self.is_missing.store(true, Ordering::Relaxed);
    }

    /// Whether a key was missing since this was asked last.
    pub fn take_missing(&self) -> bool {
        self.is_missing.swap(false, Ordering::Relaxed)
    }
}
