//! `ottla grow`: prepares a stopped node's directory for dedicated controllers.

use std::sync::Arc;

use ottla_core::config::Listener;
pub use ottla_core::growth::{Growth, NewController};
pub use ottla_core::image::cluster::{BrokerImage, EndpointImage};
pub use ottla_core::image::features::{METADATA_VERSION, SHARE_VERSION, STREAMS_VERSION};
pub use ottla_core::node::StartError as NodeError;
use ottla_core::random::Random;
use ottla_core::time::Clock;
use ottla_log::directory::MetaProperties;
use ottla_log::disk::os::OsDisk;

use crate::broker::{StartError, seed};
use crate::clock::SystemClock;
use crate::properties::Properties;
use crate::settings::Settings;

/// Locks and checks the directories that `properties` name; changes nothing.
///
/// - `host`: the host under which brokers and other controllers reach the controller.
pub fn read(
    properties: &Properties,
    controller_id: i32,
    host: &str,
    port: u16,
) -> Result<(Growth, Random), StartError> {
    let mut properties = properties.clone();
    let disk = OsDisk::shared();
    if !properties.contains_key("node.id") && !properties.contains_key("broker.id") {
        let settings = Settings::read(&properties, seed()).map_err(StartError::Config)?;
        // The node id comes from the directory.
        let meta = MetaProperties::read(&*disk, &settings.node.metadata_directory);
        if let Some(meta) = meta.map_err(|error| StartError::Node(error.into()))? {
            properties.insert("node.id".to_owned(), meta.node_id.to_string());
        }
    }
    let settings = Settings::read(&properties, seed()).map_err(StartError::Config)?;
    let controller = NewController {
        node_id: controller_id,
        listener: Listener {
            name: settings.node.controller_listener.name.clone(),
            host: Arc::from(host),
            port,
            security_protocol: settings.node.controller_listener.security_protocol,
        },
    };
    let random = Random::new(settings.node.seed);
    let now = SystemClock::default().timestamp();
    let growth = Growth::read(disk, &settings.node, controller, &random, now).map_err(StartError::Node)?;
    Ok((growth, random))
}
