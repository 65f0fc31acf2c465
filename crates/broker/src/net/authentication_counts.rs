//! How authentications have ended, by listener and by what the client authenticated with.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_core::config::SaslMechanism;

/// What a client authenticates with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// The handshake of TLS, where no SASL follows it; a failed one on every listener.
    Tls,
    Sasl(SaslMechanism),
    /// Nothing that is known by a name: the client did not begin with SASL, or with a mechanism
    /// that there is not.
    Other,
}

impl Means {
    /// - `mechanism`: as a client named it.
    pub fn named(mechanism: &str) -> Means {
        SaslMechanism::from_name(mechanism).map_or(Means::Other, Means::Sasl)
    }

    /// The value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Means::Tls => "TLS",
            Means::Sasl(mechanism) => mechanism.name(),
            Means::Other => "other",
        }
    }
}

/// The end of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Successful,
    Failed,
    /// KIP-368: a client that was authenticated is so again.
    SuccessfulAgain,
    FailedAgain,
}

impl End {
    pub const ALL: [End; 4] = [
        End::Successful,
        End::Failed,
        End::SuccessfulAgain,
        End::FailedAgain,
    ];

    /// In the names of Apache Kafka's metrics.
    pub fn name(self) -> &'static str {
        match self {
            End::Successful => "successful_authentication",
            End::Failed => "failed_authentication",
            End::SuccessfulAgain => "successful_reauthentication",
            End::FailedAgain => "failed_reauthentication",
        }
    }
}

/// Bounded: there are as many entries as listeners, times means, times ends.
#[derive(Clone, Debug, Default)]
pub struct AuthenticationCounts(BTreeMap<(Arc<str>, Means, End), u64>);

impl AuthenticationCounts {
    pub fn add(&mut self, listener: &Arc<str>, means: Means, end: End) {
        *self.0.entry((listener.clone(), means, end)).or_default() += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Means, End, u64)> {
        self.0
            .iter()
            .map(|((listener, means, end), count)| (listener, *means, *end, *count))
    }

    /// All of one listener that have ended so.
    pub fn of_listener(&self, name: &str, wanted: End) -> u64 {
        let all = self.iter();
        all.filter(|(listener, _, end, _)| ***listener == *name && *end == wanted)
            .map(|(.., count)| count)
            .sum()
    }
}
