//! Helpers for the tests of this crate's machines.

use crate::config::{ClientConfig, Config, ProducerConfig};
use crate::network::io::Address;

/// Kafka's defaults, for a client with one bootstrap server.
pub fn client_config(bootstrap_server: Address) -> ClientConfig {
    let config = Config::new()
        .set("bootstrap.servers", bootstrap_server)
        .set("client.id", "test");
    let config = ProducerConfig::from_config(&config).expect("the defaults are valid");
    ClientConfig::clone(&config.client)
}
