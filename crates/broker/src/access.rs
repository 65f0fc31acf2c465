//! The decision by ACLs, for programs that explain it.

pub use ottla_core::access::acl;
pub use ottla_core::access::decide::{Asker, Decision};
pub use ottla_core::access::index::AclIndex;
pub use ottla_core::image::access::AclImage;
pub use ottla_wire::primitives::Uuid;
