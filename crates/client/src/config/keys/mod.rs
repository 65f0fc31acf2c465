//! The table of keys: every setting of Kafka 4.3's producer, consumer and admin client, and two of
//! our own.

mod client;
mod producer;
mod consumer;
mod security;

pub use client::CLIENT_KEYS;
pub use consumer::CONSUMER_KEYS;
pub use producer::PRODUCER_KEYS;
pub use security::SECURITY_KEYS;

use super::key::{ClientKey, ClientKind};

/// Every row, by theme.
pub fn all() -> impl Iterator<Item = &'static ClientKey> {
    [CLIENT_KEYS, PRODUCER_KEYS, CONSUMER_KEYS, SECURITY_KEYS]
        .into_iter()
        .flatten()
}

pub fn of(client: ClientKind) -> impl Iterator<Item = &'static ClientKey> {
    all().filter(move |key| key.is_of(client))
}

pub fn find(client: ClientKind, name: &str) -> Option<&'static ClientKey> {
    of(client).find(|key| key.name == name)
}
