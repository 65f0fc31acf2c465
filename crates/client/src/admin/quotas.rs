//! Client quotas (KIP-546): limits by user, client id and address.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse, OpData,
};
use ottla_wire::messages::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};

use super::context::{Context, Destination, Versions, decode_with};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::error::Error;
use crate::pending::Pending;

/// Entity types (`user`, `client-id`, `ip`) with names; `None`: the default of that type.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// Which entities a filter matches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaMatch {
    /// The entity with this name.
    Exact(String),
    /// The entity for names without a quota of their own.
    Default,
    /// Every entity that has this type.
    Any,
}

/// Matches entities that have all these types; `is_strict`: and no other type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaFilter {
    /// By entity type: `user`, `client-id` or `ip`.
    pub components: BTreeMap<String, QuotaMatch>,
    /// Leaves out entities that have other types besides.
    pub is_strict: bool,
}

impl QuotaFilter {
    /// Matches every entity.
    pub fn new() -> QuotaFilter {
        QuotaFilter::default()
    }

    /// Matches only entities that have this type (`user`, `client-id` or `ip`) with such a name.
    #[must_use]
    pub fn component(mut self, entity_type: impl Into<String>, name: QuotaMatch) -> QuotaFilter {
        self.components.insert(entity_type.into(), name);
        self
    }

    /// Leaves out entities that have other types besides.
    #[must_use]
    pub fn strict(mut self) -> QuotaFilter {
        self.is_strict = true;
        self
    }
}

/// Changes to one entity's quotas; `None` removes a quota.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QuotaAlteration {
    /// Whose quotas change.
    pub entity: QuotaEntity,
    /// By quota, for example `producer_byte_rate`; `None` removes it.
    pub quotas: BTreeMap<String, Option<f64>>,
}

impl QuotaAlteration {
    /// No change yet.
    pub fn new(entity: QuotaEntity) -> QuotaAlteration {
        QuotaAlteration {
            entity,
            quotas: BTreeMap::new(),
        }
    }

    /// Sets a quota, for example `producer_byte_rate` in bytes per second.
    #[must_use]
    pub fn set(mut self, quota: impl Into<String>, value: f64) -> QuotaAlteration {
        self.quotas.insert(quota.into(), Some(value));
        self
    }

    /// Removes a quota.
    #[must_use]
    pub fn remove(mut self, quota: impl Into<String>) -> QuotaAlteration {
        self.quotas.insert(quota.into(), None);
        self
    }
}

impl Admin {
    /// Describes the quotas of the entities that match (KIP-546).
    pub fn describe_client_quotas(
        &self,
        filter: QuotaFilter,
    ) -> Pending<BTreeMap<QuotaEntity, BTreeMap<String, f64>>> {
        self.call("describe client quotas", |context| describe(context, filter))
    }

    /// Sets and removes quotas (KIP-546).
    pub fn alter_client_quotas(&self, changes: Vec<QuotaAlteration>) -> Pending<Results<QuotaEntity, ()>> {
        self.call("alter client quotas", |context| alter(context, changes))
    }
}

async fn describe(
    context: Context,
    filter: QuotaFilter,
) -> Result<BTreeMap<QuotaEntity, BTreeMap<String, f64>>, Error> {
    let encode = move |version| {
        let components = filter
            .components
            .iter()
            .map(|(entity_type, wanted)| ComponentData {
                entity_type,
                match_type: match wanted {
                    QuotaMatch::Exact(_) => 0,
                    QuotaMatch::Default => 1,
                    QuotaMatch::Any => 2,
                },
                r#match: match wanted {
                    QuotaMatch::Exact(name) => Some(name),
                    QuotaMatch::Default | QuotaMatch::Any => None,
                },
            });
        let request = DescribeClientQuotasRequest {
            components: components.collect(),
            strict: filter.is_strict,
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Any,
            ApiKey::DescribeClientQuotas,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, DescribeClientQuotasResponse::decode)?;
                if let Some(error) =
                    resource_error(response.error_code, response.error_message, || "quotas".into())
                {
                    return Err(error);
                }
                let entries = response.entries.iter().flatten().map(|entry| {
                    let entity = entry
                        .entity
                        .iter()
                        .map(|part| name(part.entity_type, part.entity_name));
                    let values = entry
                        .values
                        .iter()
                        .map(|value| (value.key.to_owned(), value.value));
                    (entity.collect(), values.collect())
                });
                Ok(entries.collect())
            },
        )
        .await
}

fn name(kind: &str, name: Option<&str>) -> (String, Option<String>) {
    (kind.to_owned(), name.map(str::to_owned))
}

async fn alter(context: Context, changes: Vec<QuotaAlteration>) -> Result<Results<QuotaEntity, ()>, Error> {
    let encode = move |version| {
        let entries = changes.iter().map(|change| {
            let entity = change
                .entity
                .iter()
                .map(|(kind, name)| AlterClientQuotasRequestEntityData {
                    entity_type: kind,
                    entity_name: name.as_deref(),
                });
            let ops = change.quotas.iter().map(|(key, value)| OpData {
                key,
                value: value.unwrap_or(0.0),
                remove: value.is_none(),
            });
            AlterClientQuotasRequestEntryData {
                entity: entity.collect(),
                ops: ops.collect(),
            }
        });
        let request = AlterClientQuotasRequest {
            entries: entries.collect(),
            validate_only: false,
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Controller,
            ApiKey::AlterClientQuotas,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, AlterClientQuotasResponse::decode)?;
                super::topics::controller_moved(response.entries.iter().map(|entry| &entry.error_code))?;
                let results = response.entries.iter().map(|entry| {
                    let entity: QuotaEntity = entry
                        .entity
                        .iter()
                        .map(|part| name(part.entity_type, part.entity_name))
                        .collect();
                    let what = || format!("quotas of {entity:?}");
                    let result = resource_result((), entry.error_code, entry.error_message, what);
                    (entity, result)
                });
                Ok(results.collect())
            },
        )
        .await
}
