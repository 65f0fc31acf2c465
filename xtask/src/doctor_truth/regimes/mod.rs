//! The regimes: clients whose bottleneck is known because it was built.

mod producers;
mod consumers;
mod healthy;

pub use super::feed::Feed;
pub use super::load::Pairs;
pub use crate::interop::clients::Client;

/// The way between client and broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Loopback,
    /// Kernel TCP with a round trip of 4 ms.
    Near,
    /// Kernel TCP with a round trip of 40 ms.
    Far,
    /// Kernel TCP, 4 ms, one megabyte per second.
    Narrow,
}

/// What is done around the client, and undone by the remedy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Around {
    Nothing,
    /// A quota of the client's id.
    Quota(&'static str, f64),
    /// Twice as many busy processes as there are processors.
    BusyHost,
}

/// What the remedy improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Rate,
    Latency,
}

pub struct Remedy {
    /// Keys of the load and settings that change.
    pub set: Pairs,
    /// The doctor would be wrong to refuse one of these.
    pub names: &'static [&'static str],
    pub lifts: bool,
}

pub struct Regime {
    pub name: &'static str,
    /// How it is built, in words.
    pub construction: &'static str,
    pub way: Way,
    pub around: Around,
    pub partitions: i32,
    pub set: Pairs,
    pub feed: Option<Feed>,
    /// The verdicts that are right.
    pub truth: &'static [&'static str],
    /// `None`: the client is healthy.
    pub remedy: Option<Remedy>,
    pub figure: Figure,
    pub clients: &'static [Client],
}

impl Regime {
    pub fn is_producer(&self) -> bool {
        self.feed.is_none()
    }
}

pub const JAVA: &[Client] = &[Client::Java];
pub const ALL: &[Client] = &crate::interop::clients::CLIENTS;
/// franz-go has no send or receive buffer setting and none for some limits.
pub const JAVA_LIBRDKAFKA: &[Client] = &[Client::Java, Client::Librdkafka];

pub fn all() -> Vec<Regime> {
    let mut all = producers::all();
    all.extend(consumers::all());
    all.extend(healthy::all());
    all
}

#[cfg(test)]
mod tests {
    use ottla_lab::doctor::diagnosis::Verdict;

    use super::*;

    #[test]
    fn names_are_unique_and_verdicts_are_the_doctors() {
        let mut names = std::collections::BTreeSet::new();
        for regime in all() {
            assert!(names.insert(regime.name), "{}", regime.name);
            for truth in regime.truth {
                serde_json::from_value::<Verdict>((*truth).into()).expect("a verdict");
            }
        }
    }
}
