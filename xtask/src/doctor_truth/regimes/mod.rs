//! The regimes: clients whose bottleneck is known because it was built.

mod producers;
mod consumers;
mod healthy;
mod refusals;

pub use super::feed::Feed;
pub use super::load::Pairs;
pub use crate::interop::clients::Client;
pub use crate::interop::server::Target;

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
    /// Kernel TCP, 4 ms, ten megabytes per second.
    Broad,
    /// Kernel TCP, 40 ms, one megabyte per second.
    FarNarrow,
}

impl Way {
    /// The same way with a link that nothing fills.
    pub fn widened(self) -> Way {
        match self {
            Way::Narrow | Way::Broad => Way::Near,
            Way::FarNarrow => Way::Far,
            way => way,
        }
    }
}

/// What is done around the client, and undone by the remedy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Around {
    Nothing,
    /// A quota of the client's id.
    Quota(&'static str, f64),
    /// Twice as many busy processes as there are processors.
    BusyHost,
    /// The broker asks no client for metrics.
    NoMetrics,
    /// The topic's ACLs let others write to it.
    Denied,
    /// The page cache has nothing of the topic's first partition, and the broker reads its disk at
    /// this many bytes per second; undone, all of it is in memory.
    ColdDisk(u64),
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
    /// The doctor would be wrong to refuse one of these, or a changed key by one of its names.
    pub names: &'static [&'static str],
    /// What is around the client ends, a narrow link widens, and a skewed feed spreads.
    pub lifts: bool,
}

impl Remedy {
    /// Whether the doctor refuses this remedy when it says that `set` would not help.
    pub fn is_refused_by(&self, set: &str) -> bool {
        let is_changed = |key| {
            refusals::is_of(set, key)
                || refusals::aliases(key)
                    .iter()
                    .any(|name| refusals::is_of(set, name))
        };
        let is_named = self.names.iter().any(|name| refusals::is_of(set, name));
        is_named || self.set.iter().any(|(key, _)| is_changed(key))
    }
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
    /// Where the doctor cannot know it, beside clients that push too little to a broker that counts
    /// nothing of them: there `NOT_ENOUGH_DATA` is right too, with what would tell.
    pub unknowable: &'static [(Target, Client)],
    /// `None`: the client is healthy.
    pub remedy: Option<Remedy>,
    pub figure: Figure,
    pub clients: &'static [Client],
    pub brokers: &'static [Target],
    /// The doctor is asked once, when the client has just begun.
    pub is_starting: bool,
}

impl Regime {
    pub fn is_producer(&self) -> bool {
        self.feed.is_none()
    }

    /// Whether the processors or the disk are what the client or its remedy uses up: nothing else
    /// may run beside it.
    pub fn needs_the_machine(&self) -> bool {
        let rate = self.set.iter().find(|(key, _)| *key == "load.rate");
        let is_fast = rate.is_some_and(|(_, rate)| rate.parse::<f64>().is_ok_and(|rate| rate >= FAST));
        let is_busy = |(key, _): &(&str, &str)| ["compression.zstd.level", "load.work.micros"].contains(key);
        let takes_all = match self.around {
            Around::BusyHost | Around::ColdDisk(_) => true,
            Around::Quota(key, _) => key == "request_percentage",
            _ => false,
        };
        // What the link carries passes through this program.
        let is_broad = self.way == Way::Broad;
        is_fast || is_broad || takes_all || self.set.iter().any(is_busy)
    }

    /// On Apache Kafka a producer's rate is known only from the client, which librdkafka and
    /// franz-go do not push; of its polls and fetches franz-go pushes nothing either.
    pub fn is_knowable(&self, target: Target, client: Client) -> bool {
        let pushes_little = match client {
            Client::Librdkafka => self.is_producer(),
            Client::FranzGo => true,
            Client::Java | Client::Ottla => false,
        };
        let is_untold = pushes_little && target == Target::Kafka;
        !is_untold && !self.unknowable.contains(&(target, client))
    }

    /// The verdicts that are right on a broker with a client.
    pub fn truth(&self, target: Target, client: Client) -> Vec<String> {
        let cannot = (!self.is_knowable(target, client)).then_some("NOT_ENOUGH_DATA");
        self.truth
            .iter()
            .copied()
            .chain(cannot)
            .map(str::to_owned)
            .collect()
    }

    /// Why the regime does not run with a client; `None`: it does.
    pub fn why_not(&self, client: Client) -> Option<String> {
        if self.clients.contains(&client) {
            return None;
        }
        let lacking = self.lacking(client);
        Some(lacking.unwrap_or_else(|| "not tried".to_owned()))
    }

    /// The first key that the client's library or program does not have.
    fn lacking(&self, client: Client) -> Option<String> {
        let queue = ["queue.buffering.max.messages"];
        let keys = match client {
            Client::Java => queue.to_vec(),
            Client::Librdkafka => JAVA_LOADS.to_vec(),
            Client::FranzGo => [FRANZ_GO_LACKS, COMMIT_LOAD, &JAVA_LOADS].concat(),
            Client::Ottla => [&queue[..], COMMIT_LOAD, &JAVA_LOADS].concat(),
        };
        let found = self.set.iter().find(|(key, _)| keys.contains(key));
        found.map(|(key, _)| format!("no `{key}`"))
    }
}

/// Records per second that keep a processor busy.
const FAST: f64 = 10_000.0;

pub const JAVA: &[Client] = &[Client::Java];
pub const BOTH: &[Target] = &[Target::Ottla, Target::Kafka];
pub const OTTLA: &[Target] = &[Target::Ottla];
pub const KAFKA: &[Target] = &[Target::Kafka];
/// A Java client pushes on the connection that it produces on, and Apache Kafka does not tell what
/// a client that pushes nothing does.
const NOT_PUSHED: &[(Target, Client)] = &[(Target::Kafka, Client::Java)];
pub const ALL: &[Client] = &crate::interop::clients::CLIENTS;
/// A key of the load that Java's and librdkafka's programs know.
const COMMIT_LOAD: &[&str] = &["load.commit"];
/// Keys of the load that only Java's program knows.
const JAVA_LOADS: [&str; 8] = [
    "load.flush.records",
    "load.transaction.records",
    "load.work.micros",
    "load.values",
    "load.slow.partition",
    "load.partitioner",
    "load.large.bytes",
    "load.members",
];
/// What franz-go's program refuses, because the library has no such setting.
const FRANZ_GO_LACKS: &[&str] = &[
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "queue.buffering.max.messages",
];
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
            for client in regime.clients {
                assert_eq!(regime.lacking(*client), None, "{} with {client:?}", regime.name);
            }
            for (target, client) in regime.unknowable {
                assert!(regime.brokers.contains(target) && regime.clients.contains(client));
            }
        }
    }

    #[test]
    fn what_uses_up_the_machine_has_it_for_itself() {
        let alone: Vec<&str> = all()
            .iter()
            .filter(|regime| regime.needs_the_machine())
            .map(|regime| regime.name)
            .collect();
        let expected = [
            "request-40k",
            "full-link",
            "zstd-19",
            "worker",
            "busy-host",
            "request-quota",
            "cold-read",
            "healthy-large",
        ];
        assert_eq!(alone, expected);
    }

    #[test]
    fn every_remedy_that_is_a_setting_can_be_refused_by_it() {
        for regime in all() {
            let Some(remedy) = &regime.remedy else { continue };
            for (key, value) in remedy.set.iter().filter(|(key, _)| !key.starts_with("load.")) {
                let set = format!("{key}={value}");
                assert!(remedy.is_refused_by(&set), "{}: {set}", regime.name);
            }
        }
    }

    #[test]
    fn what_one_broker_cannot_tell_is_known_on_the_other() {
        let all = all();
        let silent = all
            .iter()
            .find(|regime| regime.name == "batch-4096-silent")
            .unwrap();
        let truth = |target| silent.truth(target, Client::Java);
        assert_eq!(truth(Target::Ottla), ["NETWORK_RTT", "SENDER_RATE"]);
        assert_eq!(
            truth(Target::Kafka),
            ["NETWORK_RTT", "SENDER_RATE", "NOT_ENOUGH_DATA"]
        );
        let full = all.iter().find(|regime| regime.name == "in-flight-1").unwrap();
        assert!(!full.is_knowable(Target::Kafka, Client::Java));
        // It pushes no rate, and Apache Kafka counts none.
        assert!(!full.is_knowable(Target::Kafka, Client::Librdkafka));
        assert!(full.is_knowable(Target::Ottla, Client::Librdkafka));
        assert!(full.is_knowable(Target::Kafka, Client::Ottla));
        let reads = all
            .iter()
            .find(|regime| regime.name == "partition-fetch-16k")
            .unwrap();
        assert!(reads.is_knowable(Target::Kafka, Client::Librdkafka));
        assert!(!reads.is_knowable(Target::Kafka, Client::FranzGo));
    }
}
