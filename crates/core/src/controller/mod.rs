//! The standalone controller: decides, writes the decision to the metadata log, replays it.

pub mod configs;
pub mod topics;

use ottla_wire::primitives::Uuid;

use crate::config::NodeConfig;
use crate::image::MetadataImage;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    pub image: &'a MetadataImage,
    pub config: &'a NodeConfig,
    /// The log directory that new partitions go to.
    pub directory_id: Uuid,
}
