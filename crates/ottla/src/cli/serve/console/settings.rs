//! Settings with their origins.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_broker::effective_config::{self, EffectiveValue};
use ottla_broker::{AdminView, ConfigResourceType};
use ottla_console::source::{BrokerSetting, SetQuota, Subscription};

/// Sources of DescribeConfigs (KIP-226) that mean: set by a person.
const FILE: i8 = 4;
const DEFAULT: i8 = 5;

pub fn of_broker(view: &AdminView) -> Vec<BrokerSetting> {
    let image = view.node.image().clone();
    of(effective_config::describe_broker(&image), FILE)
}

/// Subscriptions of client metrics.
pub fn subscriptions(view: &AdminView) -> Vec<Subscription> {
    let image = view.node.image().clone();
    let all = image.configs.iter();
    let all = all.filter(|(resource, _)| resource.resource_type == ConfigResourceType::ClientMetrics);
    all.map(|(resource, values)| {
        let values = effective_config::describe_client_metrics(values);
        Subscription::of(resource.name.to_string(), |key| {
            let found = values.iter().find(|value| &*value.name == key);
            found.and_then(|value| value.value.as_deref())
        })
    })
    .collect()
}

/// Quotas as they are set.
pub fn quotas(view: &AdminView) -> Vec<SetQuota> {
    let image = view.node.image().clone();
    let of_entity = |(entity, values): (&Entity, &Values)| {
        let parts = entity.iter();
        let entity = SetQuota::entity(parts.map(|(kind, name)| (&**kind, name.as_deref())));
        let values = values.iter();
        values
            .map(|(quota, limit)| SetQuota {
                entity: entity.clone(),
                quota: quota.to_string(),
                limit: *limit,
            })
            .collect::<Vec<SetQuota>>()
    };
    image.client_quotas.iter().flat_map(of_entity).collect()
}

type Entity = Vec<(Arc<str>, Option<Arc<str>>)>;
type Values = BTreeMap<Arc<str>, f64>;

/// - `own`: the code of the source whose values count as set; those of an earlier one do, too.
pub fn of(values: Vec<EffectiveValue>, own: i8) -> Vec<BrokerSetting> {
    values.into_iter().map(|value| setting(&value, own)).collect()
}

fn setting(value: &EffectiveValue, own: i8) -> BrokerSetting {
    let source = value.source().code();
    let key = value.key;
    BrokerSetting {
        name: value.name.to_string(),
        value: value.value.as_deref().map(str::to_owned),
        default: key.and_then(|key| key.default).map(str::to_owned),
        origin: String::from(match source {
            1 => "the topic",
            2 => "this broker, at run time",
            3 => "all brokers, at run time",
            FILE => "the file",
            7 | 8 => "itself",
            _ => "default",
        }),
        is_set: source != DEFAULT && source <= own,
        is_secret: value.is_sensitive() && value.value.is_none() && source != DEFAULT,
        is_without_effect: key.is_some_and(ottla_broker::is_without_effect),
        about: match key {
            Some(key) => key.doc.to_owned(),
            None => String::from("Not a key of this broker: it has no effect."),
        },
    }
}
