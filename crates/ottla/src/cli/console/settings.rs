//! Settings with their origins.

use std::collections::BTreeMap;

use ottla_client::admin::{
    Admin, ConfigEntries, ConfigEntry, ConfigResource, ConfigResourceKind, ConfigSource, NodeId, QuotaEntity,
    QuotaFilter,
};
use ottla_console::source::{BrokerSetting, SetQuota, Subscription, Told, Untold};

use super::cluster::untold;

pub fn of_broker(admin: &Admin, broker: NodeId) -> Told<Vec<BrokerSetting>> {
    let resource = ConfigResource::new(ConfigResourceKind::Broker, broker.0.to_string());
    let entries = entries(admin, resource)?;
    Ok(of(entries, |source| source != ConfigSource::Default))
}

/// The settings of a topic; those that it does not have itself are not set.
pub fn of_topic(admin: &Admin, topic: &str) -> Told<Vec<BrokerSetting>> {
    let entries = entries(admin, ConfigResource::topic(topic))?;
    Ok(of(entries, |source| source == ConfigSource::Topic))
}

/// Subscriptions of client metrics.
pub fn subscriptions(admin: &Admin) -> Told<Vec<Subscription>> {
    let listed = admin.list_client_metrics_subscriptions().wait();
    let listed = listed.map_err(|error| untold(&error))?;
    let names: Vec<&str> = listed.iter().map(|resource| resource.name.as_str()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let described = admin.describe_client_metrics_subscriptions(&names).wait();
    let described = described.map_err(|error| untold(&error))?;
    // One that was deleted meanwhile is no longer there to be shown.
    let told = described.into_iter().filter_map(|(resource, entries)| {
        let entries = entries.ok()?;
        let value = |key: &str| entries.get(key)?.value.as_deref();
        Some(Subscription::of(resource.name.clone(), value))
    });
    Ok(told.collect())
}

/// Quotas as they are set.
pub fn quotas(admin: &Admin) -> Told<Vec<SetQuota>> {
    let described = admin.describe_client_quotas(QuotaFilter::new()).wait();
    let described = described.map_err(|error| untold(&error))?;
    let of_entity = |(entity, values): (&QuotaEntity, &BTreeMap<String, f64>)| {
        let parts = entity.iter();
        let entity = SetQuota::entity(parts.map(|(kind, name)| (kind.as_str(), name.as_deref())));
        let values = values.iter();
        values
            .map(|(quota, limit)| SetQuota {
                entity: entity.clone(),
                quota: quota.clone(),
                limit: *limit,
            })
            .collect::<Vec<SetQuota>>()
    };
    Ok(described.iter().flat_map(of_entity).collect())
}

fn entries(admin: &Admin, resource: ConfigResource) -> Told<ConfigEntries> {
    let answers = admin.describe_configs(vec![resource]).wait();
    let answers = answers.map_err(|error| untold(&error))?;
    let answer = answers.into_values().next();
    let answer = answer.ok_or_else(|| Untold(String::from("The cluster told no settings.")))?;
    answer.map_err(|error| untold(&error))
}

fn of(entries: ConfigEntries, is_set: impl Fn(ConfigSource) -> bool) -> Vec<BrokerSetting> {
    entries
        .into_iter()
        .map(|(name, entry)| setting(name, entry, &is_set))
        .collect()
}

fn setting(name: String, entry: ConfigEntry, is_set: &impl Fn(ConfigSource) -> bool) -> BrokerSetting {
    BrokerSetting {
        name,
        is_set: is_set(entry.source),
        is_secret: entry.is_sensitive && entry.source != ConfigSource::Default,
        origin: String::from(origin(entry.source)),
        value: entry.value,
        ..BrokerSetting::default()
    }
}

fn origin(source: ConfigSource) -> &'static str {
    match source {
        ConfigSource::Topic => "the topic",
        ConfigSource::DynamicBroker => "this broker, at run time",
        ConfigSource::DynamicDefaultBroker => "all brokers, at run time",
        ConfigSource::StaticBroker => "the file",
        ConfigSource::Default => "default",
        _ => "itself",
    }
}
