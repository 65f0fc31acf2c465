//! Subscriptions to client metrics (KIP-714): configuration resources that exist as long as they
//! have any setting.

use std::collections::BTreeMap;

use super::configs::{AlterConfig, ConfigEntries, ConfigResource, ConfigResourceKind};
use super::{Admin, Results};
use crate::error::Error;
use crate::pending::Pending;

/// A subscription: which clients push which metrics, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientMetricsSubscription {
    /// Prefixes of metric names; `*`: all.
    pub metrics: Vec<String>,
    /// The broker's default is 300 000.
    pub interval_ms: Option<u32>,
    /// `selector=regular expression`, e.g. `client_id=billing-.*`; all must match, none matches
    /// every client.
    pub matches: Vec<String>,
}

impl ClientMetricsSubscription {
    /// Metrics with these prefixes, from every client, at the broker's interval.
    pub fn new(metrics: impl IntoIterator<Item = impl Into<String>>) -> ClientMetricsSubscription {
        ClientMetricsSubscription {
            metrics: metrics.into_iter().map(Into::into).collect(),
            ..ClientMetricsSubscription::default()
        }
    }

    /// Sets the interval between two pushes of a client.
    #[must_use]
    pub fn interval_ms(mut self, interval_ms: u32) -> ClientMetricsSubscription {
        self.interval_ms = Some(interval_ms);
        self
    }

    /// Adds a condition, for example `client_id=billing-.*`.
    #[must_use]
    pub fn matching(mut self, condition: impl Into<String>) -> ClientMetricsSubscription {
        self.matches.push(condition.into());
        self
    }
}

const METRICS: &str = "metrics";
const INTERVAL: &str = "interval.ms";
const MATCH: &str = "match";

fn resource(name: &str) -> ConfigResource {
    ConfigResource::new(ConfigResourceKind::ClientMetrics, name)
}

impl Admin {
    /// Returns the names of all subscriptions.
    pub fn list_client_metrics_subscriptions(&self) -> Pending<Vec<ConfigResource>> {
        self.list_config_resources(vec![ConfigResourceKind::ClientMetrics])
    }

    /// Creates or replaces the subscription.
    pub fn set_client_metrics_subscription(
        &self,
        name: &str,
        subscription: &ClientMetricsSubscription,
    ) -> Pending<Results<ConfigResource, ()>> {
        let list = |key: &str, values: &[String]| match values {
            [] => AlterConfig::delete(key),
            values => AlterConfig::set(key, values.join(",")),
        };
        let interval = match subscription.interval_ms {
            Some(ms) => AlterConfig::set(INTERVAL, ms),
            None => AlterConfig::delete(INTERVAL),
        };
        let changes = vec![
            list(METRICS, &subscription.metrics),
            interval,
            list(MATCH, &subscription.matches),
        ];
        self.incremental_alter_configs(BTreeMap::from([(resource(name), changes)]))
    }

    /// Deletes a subscription; clients stop pushing for it at their next question.
    pub fn delete_client_metrics_subscription(&self, name: &str) -> Pending<Results<ConfigResource, ()>> {
        let changes = [METRICS, INTERVAL, MATCH].map(AlterConfig::delete).to_vec();
        self.incremental_alter_configs(BTreeMap::from([(resource(name), changes)]))
    }

    /// Returns the settings of these subscriptions; see `ClientMetricsSubscription::from_entries`.
    pub fn describe_client_metrics_subscriptions(
        &self,
        names: &[&str],
    ) -> Pending<Results<ConfigResource, ConfigEntries>> {
        self.describe_configs(names.iter().map(|name| resource(name)).collect())
    }
}

impl ClientMetricsSubscription {
    /// - Errors: `InvalidArgument` when the broker's interval is not a number.
    pub fn from_entries(entries: &ConfigEntries) -> Result<ClientMetricsSubscription, Error> {
        let value = |key: &str| {
            entries
                .get(key)
                .and_then(|entry| entry.value.as_deref())
                .unwrap_or_default()
        };
        let list = |key: &str| {
            let parts = value(key)
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let interval_ms = match value(INTERVAL) {
            "" => None,
            text => Some(text.parse().map_err(|_| Error::InvalidArgument {
                message: format!("interval.ms is {text:?}").into(),
            })?),
        };
        Ok(ClientMetricsSubscription {
            metrics: list(METRICS),
            interval_ms,
            matches: list(MATCH),
        })
    }
}
