//! The admin client: topics, settings, groups, offsets, quotas, credentials, ACLs, transactions.
//!
//! Every call returns a `Pending`: a future that also has a blocking `wait`. A call is retried, on
//! other nodes where that helps, until it succeeds, fails with a final error, or
//! `default.api.timeout.ms` is over. A call on several resources returns a result for each.
//!
//! ```no_run
//! use ottla_client::admin::{Admin, NewTopic};
//! use ottla_client::config::Config;
//!
//! # fn main() -> Result<(), ottla_client::Error> {
//! let admin = Admin::new(&Config::new().set("bootstrap.servers", "localhost:9092"))?;
//! let created = admin.create_topics(vec![NewTopic::new("orders").partitions(6)]).wait()?;
//! println!("{:?}", created["orders"]);
//! # Ok(())
//! # }
//! ```

mod context;
mod machine;
mod topics;
mod partitions;
mod records;
mod configs;
mod client_metrics;
mod quotas;
mod groups;
mod group_offsets;
mod cluster;
mod scram;
mod acls;
mod transactions;

pub use self::acls::Acl;
pub use self::client_metrics::ClientMetricsSubscription;
pub use self::cluster::{ClusterDescription, LogDirectory, Replica};
pub use self::configs::{
    AlterConfig, ConfigEntries, ConfigEntry, ConfigOperation, ConfigResource, ConfigResourceKind,
    ConfigSource,
};
pub use self::groups::{GroupDescription, GroupListing, GroupMember};
use self::machine::{AdminMachine, Inbox};
pub use self::partitions::{ElectionKind, PartitionResults};
pub use self::quotas::{QuotaAlteration, QuotaEntity, QuotaFilter, QuotaMatch};
pub use self::records::{ListedOffset, OffsetSpec};
pub use self::scram::{ScramCredential, ScramDescription, ScramMechanism};
pub use self::topics::{
    CreatedTopic, NewPartitions, NewTopic, PartitionDescription, TopicDescription, TopicListing,
};
pub use self::transactions::{ActiveProducer, TransactionDescription, TransactionListing};
pub use crate::consumer::topic_partition::{OffsetAndMetadata, TopicPartition};
pub use crate::metadata::snapshot::NodeId;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::context::Context;
use self::machine::Command;
use crate::config::{AdminConfig, Config};
use crate::driver::{Driver, DriverSetup};
use crate::error::Error;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientKind, ClientMetrics, Metric};
use crate::network::io::Wake;
use crate::pending::{Pending, pending};

/// A result for each resource that a call named.
pub type Results<K, T> = BTreeMap<K, Result<T, Error>>;

/// Kafka's admin client. It costs little to keep and is meant to be shared; dropping it ends every
/// call.
pub struct Admin {
    inbox: Arc<Inbox>,
    waker: Arc<dyn Wake>,
    metrics: Arc<ClientMetrics>,
    /// `None` in tests, which drive the machine themselves.
    driver: Mutex<Option<Driver>>,
}

impl Admin {
    /// - Errors: `Config` for a wrong setting. Connections are made by the first call.
    pub fn new(config: &Config) -> Result<Admin, Error> {
        let config = Arc::new(AdminConfig::from_config(config)?);
        let clock = Arc::new(crate::time::SystemClock::default());
        let metrics = ClientMetrics::new(ClientKind::Admin, &config.client, clock);
        let mut setup = DriverSetup::new(&config.client, metrics.network())?;
        let inbox = Arc::new(Inbox::default());
        let waker = setup.waker();
        let metadata = Arc::new(MetadataCell::new(Interest::Nodes));
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "admin");
        let machine = AdminMachine::new(config, inbox.clone(), metadata, &metrics, seed);
        let ended = inbox.clone();
        setup.at_end(move |_| ended.close());
        let driver = setup.start("ottla-admin", Box::new(machine))?;
        Ok(Admin {
            inbox,
            waker,
            metrics,
            driver: Mutex::new(Some(driver)),
        })
    }

    /// Ends every call with `Closed` and waits at most `limit` for the client's thread.
    pub fn close(&self, limit: Duration) {
        self.inbox.close();
        self.waker.wake();
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = driver.as_mut() {
            driver.join(limit);
        }
    }

    /// Returns this client's metrics, under Kafka's names.
    pub fn metrics(&self) -> Vec<Metric> {
        self.metrics.snapshot()
    }

    /// Starts a call on the client's thread.
    fn call<T, F>(&self, what: &'static str, call: impl FnOnce(Context) -> F + Send + 'static) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (promise, pending) = pending();
        let start = Box::new(move |context| -> machine::TaskFuture {
            let future = call(context);
            Box::pin(async move { promise.fulfil(future.await) })
        });
        // A refused command is dropped, and its promise gives `Closed`.
        if self.inbox.push(Command { what, start }) {
            self.waker.wake();
        }
        pending
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.inbox.close();
        self.waker.wake();
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// The error of one resource; `message` is the broker's text.
fn resource_error(code: i16, message: Option<&str>, what: impl FnOnce() -> String) -> Option<Error> {
    Error::from_code(code, || match message {
        Some(message) if !message.is_empty() => format!("{} ({message})", what()).into(),
        _ => what().into(),
    })
}

/// `Ok` unless the code is an error.
fn resource_result<T>(
    value: T,
    code: i16,
    message: Option<&str>,
    what: impl FnOnce() -> String,
) -> Result<T, Error> {
    resource_error(code, message, what).map_or(Ok(value), Err)
}

/// Encodes a request's body.
fn body(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
