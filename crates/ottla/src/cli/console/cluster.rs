//! A cluster of Apache Kafka as the console's source.

use std::sync::Arc;
use std::time::Duration;

use ottla_client::Error;
use ottla_client::admin::{Admin, NodeId};
use ottla_client::config::Config;
use ottla_console::reports::Reports;
use ottla_console::source::{
    Access, AccessAnswer, AccessQuestion, AsOf, BrokerSetting, Counts, Groups, Identity, OpenTransaction,
    Part, PartitionDetail, Peek, PeekFrom, Peeked, SetQuota, SlowRequest, Source, Subscription, Told, Topic,
    TopicDetail, Untold,
};
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::promises::document::Promises;

use super::kept::{Kept, KeptBy};
use super::topics::Sizes;
use super::{access, groups, partition, records, settings, topics};
use crate::cli::access::cluster::{Authorizer, authorizer_of};
use crate::cli::access::explanation::explain;
use crate::cli::doctor::now_ms;
use crate::cli::output::Failure;
use crate::cli::transactions::survey::{self, Row};

/// Sizes, settings and groups of a large cluster take a while to ask for.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// One topic, a look at records, open transactions: what changes while it is shown.
const KEPT_SHORTLY: Duration = Duration::from_secs(5);

/// Answers with longer fields are not kept.
const KEPT_FIELD_BYTES_MAX: usize = 64 * 1024;

pub struct Cluster {
    identity: Identity,
    /// The broker whose settings are shown.
    broker: NodeId,
    admin: Admin,
    config: Config,
    collector: Arc<Collector>,
    shows_records: bool,
    reports: Option<Reports>,
    sizes: Kept<Arc<Sizes>>,
    topics: Kept<Arc<Vec<Topic>>>,
    topic: KeptBy<String, Option<TopicDetail>>,
    partition: KeptBy<(String, i32), Option<PartitionDetail>>,
    groups: Kept<Arc<Groups>>,
    quotas: Kept<Vec<SetQuota>>,
    settings: Kept<Vec<BrokerSetting>>,
    subscriptions: Kept<Vec<Subscription>>,
    records: KeptBy<Peek, Peeked>,
    access: Kept<Access>,
    authorizer: Kept<Arc<Authorizer>>,
    transactions: Kept<Vec<OpenTransaction>>,
}

impl Cluster {
    /// Asks the cluster who it is.
    ///
    /// - `shows_records`: the pages are shown to this machine alone, or behind a token.
    /// - Errors: a wrong setting, or no answer.
    pub fn ask(
        servers: &str,
        config: Config,
        collector: Arc<Collector>,
        shows_records: bool,
        reports: Option<Reports>,
    ) -> Result<Arc<Cluster>, Failure> {
        let admin = Admin::new(&config).map_err(Failure::unanswered)?;
        let described = admin.describe_cluster().wait();
        let described = described.map_err(|error| Failure::unanswered(format!("{servers}: {error}")))?;
        let Some((broker, _)) = described.nodes.iter().next() else {
            let text = format!("{servers}: the cluster names no broker");
            return Err(Failure::unanswered(text));
        };
        let software = match described.nodes.len() {
            1 => String::from("Kafka, one broker"),
            count => format!("Kafka, {count} brokers"),
        };
        Ok(Arc::new(Cluster {
            identity: Identity {
                software,
                address: servers.to_owned(),
                cluster_id: described.id.unwrap_or_default(),
                serves_metrics: false,
            },
            broker: *broker,
            admin,
            config,
            collector,
            shows_records,
            reports,
            sizes: Kept::new(KEPT_FOR),
            topics: Kept::new(KEPT_FOR),
            topic: KeptBy::new(KEPT_SHORTLY),
            partition: KeptBy::new(KEPT_SHORTLY),
            groups: Kept::new(KEPT_FOR),
            quotas: Kept::new(KEPT_FOR),
            settings: Kept::new(KEPT_FOR),
            subscriptions: Kept::new(KEPT_FOR),
            records: KeptBy::new(KEPT_SHORTLY),
            access: Kept::new(KEPT_FOR),
            authorizer: Kept::new(KEPT_FOR),
            transactions: Kept::new(KEPT_SHORTLY),
        }))
    }

    fn sizes(&self) -> Option<Arc<Sizes>> {
        self.sizes.get(|| topics::sizes(&self.admin).map(Arc::new)).ok()
    }
}

fn open(row: Row) -> OpenTransaction {
    let partitions = row.partitions.keys();
    OpenTransaction {
        transactional_id: row.transactional_id.unwrap_or_default(),
        producer_id: row.producer_id,
        state: row.state,
        since_ms: row.started_ms,
        partitions: partitions
            .map(|partition| format!("{} {}", partition.topic, partition.partition))
            .collect(),
    }
}

/// An error as a sentence for the place where the answer would stand.
pub fn untold(error: &Error) -> Untold {
    Untold(format!("The cluster did not answer: {error}."))
}

impl Source for Cluster {
    fn counts(&self) -> Told<Counts> {
        Err(Untold::by_kafka("where the time of its requests goes"))
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn examination(&self) -> Told<Examination> {
        let mut examination = self.collector.examine(now_ms());
        examination.sort();
        Ok(examination)
    }

    fn snapshots(&self) -> Told<Vec<Snapshot>> {
        Ok(self.collector.snapshots(now_ms()))
    }

    fn promises(&self) -> Told<Promises> {
        Ok(self.collector.promises(now_ms()))
    }

    fn topics(&self) -> Told<Arc<Vec<Topic>>> {
        self.topics
            .get(|| topics::list(&self.admin, self.sizes().as_deref()).map(Arc::new))
    }

    fn topic(&self, name: &str) -> Told<Option<TopicDetail>> {
        self.topic.get(&name.to_owned(), || {
            topics::one(&self.admin, name, self.sizes().as_deref())
        })
    }

    fn partition(&self, topic: &str, index: i32) -> Told<Option<PartitionDetail>> {
        self.partition.get(&(topic.to_owned(), index), || {
            partition::one(&self.admin, topic, index, self.sizes().as_deref())
        })
    }

    fn is_sampled_unviewed(&self) -> bool {
        false
    }

    fn groups(&self) -> Told<Arc<Groups>> {
        self.groups.get(|| groups::list(&self.admin).map(Arc::new))
    }

    fn slow_requests(&self) -> Told<Vec<SlowRequest>> {
        Err(Untold::by_kafka("its slowest requests"))
    }

    fn tenants(&self) -> Told<String> {
        Err(Untold::by_kafka("what a client costs"))
    }

    fn quotas(&self) -> Told<Vec<SetQuota>> {
        self.quotas.get(|| settings::quotas(&self.admin))
    }

    fn settings(&self) -> Told<Vec<BrokerSetting>> {
        self.settings
            .get(|| settings::of_broker(&self.admin, self.broker))
    }

    fn subscriptions(&self) -> Told<Vec<Subscription>> {
        self.subscriptions.get(|| settings::subscriptions(&self.admin))
    }

    fn peek(&self, ask: &Peek) -> Told<Peeked> {
        let look = || records::peek(&self.admin, &self.config, ask);
        match self.shows_records {
            // What is asked once, and may be long, is not kept.
            true if matches!(ask.from, PeekFrom::Since(_)) || ask.field_bytes_max > KEPT_FIELD_BYTES_MAX => {
                look()
            }
            true => self.records.get(ask, look),
            false => Err(Untold(String::from(
                "Records are shown only where --listen is a loopback address or --token-file is given: this one can be reached from other machines.",
            ))),
        }
    }

    /// A look opens a connection of its own.
    fn look_interval_ms(&self) -> u64 {
        KEPT_SHORTLY.as_millis() as u64
    }

    fn access(&self) -> Told<Access> {
        self.access.get(|| access::read(&self.admin))
    }

    fn explain_access(&self, question: &AccessQuestion) -> Told<AccessAnswer> {
        let authorizer = self.authorizer.get(|| {
            let authorizer = authorizer_of(&self.admin).map_err(|error| untold(&error))?;
            Ok(Arc::new(authorizer))
        })?;
        Ok(explain(question, &authorizer, &self.identity.address).answer())
    }

    fn transactions(&self) -> Told<Vec<OpenTransaction>> {
        self.transactions.get(|| {
            let known = survey::known(&self.admin).map_err(|error| untold(&error))?;
            Ok(known.into_iter().filter(Row::is_open).map(open).collect())
        })
    }

    fn reports(&self) -> Option<&Reports> {
        self.reports.as_ref()
    }

    fn as_of(&self, part: Part<'_>) -> Option<AsOf> {
        match part {
            Part::Topics => self.topics.as_of(),
            Part::Topic(name) => self.topic.as_of(&name.to_owned()),
            Part::Partition(topic, index) => self.partition.as_of(&(topic.to_owned(), index)),
            Part::Groups => self.groups.as_of(),
            Part::Quotas => self.quotas.as_of(),
            Part::Settings => self.settings.as_of(),
            Part::Records(ask) => self.records.as_of(ask),
            Part::Access => self.access.as_of(),
            Part::Transactions => self.transactions.as_of(),
        }
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }
}
