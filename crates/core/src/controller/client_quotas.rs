//! Decisions about client quotas: which entities may have which limits, and the records for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ottla_wire::config_keys::nearest;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::MetadataRecord;
use ottla_wire::metadata_records::client_quota::{ClientQuotaRecord, EntityData};

use super::Decider;
use crate::image::access::ClientQuotaEntity;
use crate::image::record::RecordList;
use crate::quota::kind::{CONNECTION_CREATION_RATE, QuotaKind};
use crate::quota::limits::{CLIENT_ID, IP, USER};
use crate::refusal::Refusal;

/// All changes of one request to one entity.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaAlteration {
    /// Type and name of each part; no name is the default of its type.
    pub entity: Vec<(String, Option<String>)>,
    /// Key and value; no value removes it.
    pub operations: Vec<(String, Option<f64>)>,
}

/// The type of a value, which must also be above 0. Kafka's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Double,
    Long,
    Int,
}

const KEYS_OF_CLIENTS: [(&str, ValueType); 4] = [
    (QuotaKind::Produce.key(), ValueType::Long),
    (QuotaKind::Fetch.key(), ValueType::Long),
    (QuotaKind::Request.key(), ValueType::Double),
    (QuotaKind::ControllerMutation.key(), ValueType::Double),
];
const KEYS_OF_ADDRESSES: [(&str, ValueType); 1] = [(CONNECTION_CREATION_RATE, ValueType::Int)];

/// At most this many changes per request, as in Kafka's controller: they are one batch of the
/// metadata log.
const CHANGES_PER_REQUEST_MAX: usize = 10_000;

/// Tolerance for whole numbers, as in Kafka: they are sent as doubles.
const INTEGRAL_TOLERANCE: f64 = 1e-6;

impl Decider<'_> {
    /// Decides about every entity of an AlterClientQuotas request, in the request's order. With too
    /// many changes all are refused.
    pub fn alter_client_quotas(
        &self,
        alterations: &[QuotaAlteration],
    ) -> (RecordList, Vec<Result<(), Refusal>>) {
        let mut times = BTreeMap::<ClientQuotaEntity, usize>::new();
        for alteration in alterations {
            *times.entry(image_entity(alteration)).or_default() += 1;
        }
        let mut records = RecordList::default();
        let results = alterations.iter().map(|alteration| {
            let entity = image_entity(alteration);
            if times[&entity] > 1 {
                return Err(invalid(format!("Ignoring duplicate entity {}", spelt(&entity))));
            }
            self.alter_entity(&entity, alteration, &mut records)
        });
        let results = results.collect();
        if records.len() <= CHANGES_PER_REQUEST_MAX {
            return (records, results);
        }
        let words = format!(
            "{} changes of quotas in one request, {CHANGES_PER_REQUEST_MAX} are allowed",
            records.len()
        );
        let refusal = Refusal::new(ErrorCode::PolicyViolation, words);
        (RecordList::default(), vec![Err(refusal); alterations.len()])
    }

    fn alter_entity(
        &self,
        entity: &ClientQuotaEntity,
        alteration: &QuotaAlteration,
        records: &mut RecordList,
    ) -> Result<(), Refusal> {
        let keys = keys_of(entity)?;
        let mut seen = BTreeSet::new();
        for (key, value) in &alteration.operations {
            if !seen.insert(key) {
                let message = format!(
                    "Duplicate quota key {key} not updating quota for this entity {}",
                    spelt(entity)
                );
                return Err(invalid(message));
            }
            if let Some(value) = value {
                check_value(keys, key, *value)?;
            }
        }
        let current = self.image.client_quotas.get(entity);
        for (key, value) in &alteration.operations {
            let current = current.and_then(|values| values.get(key.as_str())).copied();
            if current == *value {
                continue;
            }
            let record = ClientQuotaRecord {
                entity: entity
                    .iter()
                    .map(|(entity_type, entity_name)| EntityData {
                        entity_type,
                        entity_name: entity_name.as_deref(),
                    })
                    .collect(),
                key,
                value: value.unwrap_or_default(),
                remove: value.is_none(),
            };
            records.push(MetadataRecord::ClientQuota(record), 0);
        }
        Ok(())
    }
}

/// Returns the entity as the image stores it: sorted by type.
fn image_entity(alteration: &QuotaAlteration) -> ClientQuotaEntity {
    let parts = alteration.entity.iter();
    let mut entity: ClientQuotaEntity = parts
        .map(|(entity_type, name)| (entity_type.as_str().into(), name.as_deref().map(Arc::from)))
        .collect();
    entity.sort();
    entity
}

fn keys_of(entity: &ClientQuotaEntity) -> Result<&'static [(&'static str, ValueType)], Refusal> {
    if entity.is_empty() {
        return Err(invalid("Invalid empty client quota entity".to_owned()));
    }
    for (entity_type, name) in entity {
        if !matches!(&**entity_type, USER | CLIENT_ID | IP) {
            let message =
                format!("Unhandled client quota entity type: {entity_type} (known are user, client-id, ip)");
            return Err(invalid(message));
        }
        if name.as_deref() == Some("") {
            return Err(invalid(format!("Empty {entity_type} not supported")));
        }
    }
    if let Some(pair) = entity.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(invalid(format!(
            "Invalid client quota entity, duplicate entity entry {}",
            pair[0].0
        )));
    }
    let address = entity.iter().find(|(entity_type, _)| &**entity_type == IP);
    let Some((_, address)) = address else {
        return Ok(&KEYS_OF_CLIENTS);
    };
    if entity.len() > 1 {
        return Err(invalid(
            "Invalid client quota entity: ip goes neither with user nor with client-id".to_owned(),
        ));
    }
    match address {
        Some(address) if address.parse::<IpAddr>().is_err() => {
            Err(invalid(format!("{address} is not a valid IP.")))
        }
        _ => Ok(&KEYS_OF_ADDRESSES),
    }
}

fn check_value(keys: &[(&str, ValueType)], key: &str, value: f64) -> Result<(), Refusal> {
    let Some((_, value_type)) = keys.iter().find(|(known, _)| *known == key) else {
        let names = || keys.iter().map(|(name, _)| *name);
        let hint = match nearest(key, names()) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("known here: {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(invalid(format!("Invalid configuration key {key}: {hint}")));
    };
    if !value.is_finite() {
        return Err(invalid(format!("Quota {key} must be a number, not {value}")));
    }
    if value <= 0.0 {
        return Err(invalid(format!(
            "Quota {key} must be greater than 0, not {value}"
        )));
    }
    let (name, max) = match value_type {
        ValueType::Double => return Ok(()),
        ValueType::Long => ("Long", i64::MAX as f64),
        ValueType::Int => ("Integer", f64::from(i32::MAX)),
    };
    if value > max {
        return Err(invalid(format!(
            "Configuration {key} must be at most {max}, not {value}"
        )));
    }
    if (value - value.round()).abs() > INTEGRAL_TOLERANCE || value.round() < 1.0 {
        return Err(invalid(format!(
            "Configuration {key} must be a {name} value, not {value}"
        )));
    }
    Ok(())
}

fn invalid(message: String) -> Refusal {
    Refusal::new(ErrorCode::InvalidRequest, message)
}

fn spelt(entity: &ClientQuotaEntity) -> String {
    let parts = entity.iter().map(|(entity_type, name)| match name {
        Some(name) => format!("{entity_type}={name}"),
        None => format!("{entity_type}=<default>"),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(parts: &[(&str, Option<&str>)]) -> ClientQuotaEntity {
        image_entity(&QuotaAlteration {
            entity: parts
                .iter()
                .map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned)))
                .collect(),
            operations: Vec::new(),
        })
    }

    fn check_entity(parts: &[(&str, Option<&str>)], expected: Result<usize, &str>) {
        let found = keys_of(&entity(parts));
        match expected {
            Ok(keys) => assert_eq!(found.unwrap().len(), keys, "{parts:?}"),
            Err(part) => {
                let refusal = found.unwrap_err();
                assert_eq!(refusal.code, ErrorCode::InvalidRequest);
                assert!(refusal.message.contains(part), "{parts:?}: {}", refusal.message);
            }
        }
    }

    #[test]
    fn a_user_and_a_client_id_can_be_combined_and_an_address_cannot() {
        check_entity(&[(USER, Some("a")), (CLIENT_ID, None)], Ok(4));
        check_entity(&[(CLIENT_ID, Some("c"))], Ok(4));
        check_entity(&[(IP, None)], Ok(1));
        check_entity(&[(IP, Some("fd00::1"))], Ok(1));
        check_entity(&[], Err("empty client quota entity"));
        check_entity(&[(IP, Some("1.2.3.4")), (USER, None)], Err("ip goes neither"));
        check_entity(&[(IP, Some("nowhere"))], Err("nowhere is not a valid IP"));
        check_entity(&[(USER, Some(""))], Err("Empty user not supported"));
        check_entity(&[("topic", None)], Err("entity type: topic"));
        check_entity(
            &[(USER, None), (USER, Some("a"))],
            Err("duplicate entity entry user"),
        );
    }

    fn check_of(keys: &[(&str, ValueType)], key: &str, value: f64, expected: Option<&str>) {
        let found = check_value(keys, key, value).err().map(|refusal| refusal.message);
        match (&found, expected) {
            (None, None) => {}
            (Some(message), Some(part)) if message.contains(part) => {}
            _ => panic!("{key}={value}: {found:?}"),
        }
    }

    #[test]
    fn a_value_must_be_above_zero_and_of_its_type() {
        let check = |key, value, expected| check_of(&KEYS_OF_CLIENTS, key, value, expected);
        check("producer_byte_rate", 1024.0, None);
        check("producer_byte_rate", 1_024.000_000_1, None);
        check("producer_byte_rate", 1024.5, Some("must be a Long value"));
        check("producer_byte_rate", 1e-7, Some("must be a Long value"));
        check("producer_byte_rate", 1e30, Some("must be at most"));
        check("request_percentage", 0.01, None);
        check("request_percentage", 1e9, None);
        check("controller_mutation_rate", 0.5, None);
        for value in [0.0, -0.0, -1.0, f64::MIN] {
            check("consumer_byte_rate", value, Some("must be greater than 0"));
            check("request_percentage", value, Some("must be greater than 0"));
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            check("request_percentage", value, Some("must be a number"));
        }
        check("producer_byte_rat", 1.0, Some("did you mean producer_byte_rate?"));
        check(
            "connection_creation_rate",
            1.0,
            Some("known here: producer_byte_rate, "),
        );
        check_of(&KEYS_OF_ADDRESSES, "connection_creation_rate", 3.0, None);
        check_of(
            &KEYS_OF_ADDRESSES,
            "connection_creation_rate",
            3e9,
            Some("at most 2147483647"),
        );
        check_of(
            &KEYS_OF_ADDRESSES,
            "producer_byte_rate",
            3.0,
            Some("known here: connection_creation_rate"),
        );
    }
}
