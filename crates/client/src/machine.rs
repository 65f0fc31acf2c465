//! The machines and their parts, for simulations, benchmarks and the generators of reference pages.
//! Not part of the crate's interface: anything here may change with any release.

pub mod time {
    pub use crate::time::*;
}

pub mod config {
    pub use ottla_wire::config_keys::client_keys;
}

pub mod network {
    pub mod io {
        pub use crate::network::io::*;
    }
    pub mod cluster {
        pub use crate::network::cluster::*;
    }
}

pub mod metadata {
    pub use crate::metadata::{Interest, MetadataCell};
    pub mod snapshot {
        pub use crate::metadata::snapshot::*;
    }
}

pub mod metrics {
    pub use crate::metrics::pushed_name::pushed_name;
    pub use crate::metrics::telemetry::Telemetry;
    pub use crate::metrics::{ConsumerMetrics, NetworkMetrics, ProducerMetrics, reference};
    #[cfg(feature = "telemetry")]
    pub mod otlp {
        pub use crate::metrics::otlp::*;
    }
}

pub mod producer {
    pub use crate::producer::accumulator::{Accumulator, PartitionQueue};
    pub use crate::producer::callbacks::CallbackQueue;
    pub use crate::producer::commands::Commands;
    pub use crate::producer::completion::{BatchCompletion, Placed};
    pub use crate::producer::record::{Callback, DeliveryHandler};
    pub use crate::producer::sender::{ProducerMachine, SenderParts};
}

pub mod consumer {
    pub use crate::consumer::group::*;
    pub use crate::consumer::group_network::*;
    pub use crate::consumer::poll_activity::PollActivity;
}

pub mod driver {
    pub use crate::driver::*;
}
