//! The keys that tokens are verified by. The shell fetches them; connections only look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::jwk::JsonWebKeys;

/// Keys by the URL that they were fetched from.
#[derive(Debug, Default)]
pub struct TokenKeys {
    by_url: ArcSwap<BTreeMap<Arc<str>, Arc<JsonWebKeys>>>,
    /// Tokens so far that named a key that is not there.
    missed: AtomicU64,
}

impl TokenKeys {
    pub fn of(&self, url: &str) -> Option<Arc<JsonWebKeys>> {
        self.by_url.load().get(url).cloned()
    }

    pub fn put(&self, url: &Arc<str>, keys: JsonWebKeys) {
        let keys = Arc::new(keys);
        self.by_url.rcu(|by_url| {
            let mut by_url = BTreeMap::clone(by_url);
            by_url.insert(url.clone(), keys.clone());
            by_url
        });
    }

    /// Notes that a provider may have begun to sign with a new key.
    pub(super) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many tokens named a key that was not there.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}
