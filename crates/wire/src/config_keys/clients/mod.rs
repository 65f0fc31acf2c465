//! The keys of clients: every setting of Kafka 4.3's producer, consumer and admin client, and two
//! of our own. A key whose defaults differ between clients has a row for each.

mod all;
mod producer;
mod consumer;
mod security;

use super::key::{ClientKind, ConfigKey};

/// The rows by theme, with a title for each.
pub(super) const SECTIONS: [(&str, &[ConfigKey]); 4] = [
    ("All clients", all::CLIENT_KEYS),
    ("Producer", producer::PRODUCER_KEYS),
    ("Consumer", consumer::CONSUMER_KEYS),
    ("Security", security::SECURITY_KEYS),
];

/// Every row, by theme.
pub fn client_keys() -> impl Iterator<Item = &'static ConfigKey> {
    SECTIONS.into_iter().flat_map(|(_, keys)| keys)
}

/// The rows of one client.
pub fn keys_of(client: ClientKind) -> impl Iterator<Item = &'static ConfigKey> {
    client_keys().filter(move |key| key.is_of(client))
}

/// Finds a client's row of a key.
pub fn client_key(client: ClientKind, name: &str) -> Option<&'static ConfigKey> {
    keys_of(client).find(|key| key.name == name)
}
