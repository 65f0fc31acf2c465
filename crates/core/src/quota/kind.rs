//! The kinds of quotas.

/// A quota of a user or client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum QuotaKind {
    /// Bytes of produce requests per second.
    Produce,
    /// Bytes of fetch answers per second.
    Fetch,
    /// Time of event loops: 100 percent is one of them, all the time.
    Request,
    /// Partitions created and deleted per second (KIP-599).
    ControllerMutation,
}

pub const KIND_COUNT: usize = 4;

/// The key of the one quota that an address has: connections per second (KIP-612).
pub const CONNECTION_CREATION_RATE: &str = "connection_creation_rate";

impl QuotaKind {
    pub const ALL: [QuotaKind; KIND_COUNT] = [
        QuotaKind::Produce,
        QuotaKind::Fetch,
        QuotaKind::Request,
        QuotaKind::ControllerMutation,
    ];

    /// Returns the key under which it is set.
    pub const fn key(self) -> &'static str {
        match self {
            QuotaKind::Produce => "producer_byte_rate",
            QuotaKind::Fetch => "consumer_byte_rate",
            QuotaKind::Request => "request_percentage",
            QuotaKind::ControllerMutation => "controller_mutation_rate",
        }
    }

    /// Returns the factor from counted units to units of the quota: request time is counted in
    /// microseconds, and one percent of a second has 10,000 of them.
    pub fn scale(self) -> f64 {
        match self {
            QuotaKind::Request => 1e-4,
            QuotaKind::Produce | QuotaKind::Fetch | QuotaKind::ControllerMutation => 1.0,
        }
    }
}
