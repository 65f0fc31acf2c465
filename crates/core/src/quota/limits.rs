//! Finds the limits of a client, in Kafka's order of precedence.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kind::{KIND_COUNT, QuotaKind};
use crate::image::access::ClientQuotaEntity;

pub const USER: &str = "user";
pub const CLIENT_ID: &str = "client-id";
pub const IP: &str = "ip";

/// The quotas of the metadata image.
pub type ClientQuotas = BTreeMap<ClientQuotaEntity, BTreeMap<Arc<str>, f64>>;

/// The clients that share one limit: a user's quota is shared by all its client ids, one of user
/// and client id belongs to that pair alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharers {
    pub user: Option<Arc<str>>,
    pub client_id: Option<Arc<str>>,
}

/// One limit, in the unit of its key, and its sharers.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub per_second: f64,
    pub sharers: Sharers,
    pub set_for: SetFor,
}

/// The entity that a limit was set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetFor {
    pub user: Part,
    pub client_id: Part,
}

/// The limits of one user and client id, by kind; `None` is without limit.
pub type Limits = [Option<Limit>; KIND_COUNT];

/// A part of an entity at one step of the search: by name, as a default, or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Named,
    Default,
    Absent,
}

impl Part {
    fn sharer(self, name: &Arc<str>, by_default: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Part::Named => Some(name.clone()),
            Part::Default => Some(by_default.clone()),
            Part::Absent => None,
        }
    }
}

/// From the most specific on, as (user, client id). KIP-55 and KIP-546.
const PRECEDENCE: [(Part, Part); 8] = [
    (Part::Named, Part::Named),
    (Part::Named, Part::Default),
    (Part::Named, Part::Absent),
    (Part::Default, Part::Named),
    (Part::Default, Part::Default),
    (Part::Default, Part::Absent),
    (Part::Absent, Part::Named),
    (Part::Absent, Part::Default),
];

/// Returns the limits of a user and client id. Each kind is searched for separately, as in Kafka.
///
/// - `by_default`: the names under which they share a limit that was not set for them specifically.
pub fn limits_of(
    quotas: &ClientQuotas,
    (user, client_id): (&Arc<str>, &Arc<str>),
    by_default: (&Arc<str>, &Arc<str>),
) -> Limits {
    let mut limits = Limits::default();
    if quotas.is_empty() {
        return limits;
    }
    for (user_part, client_part) in PRECEDENCE {
        // Sorted by type, as in the image.
        let parts = [(CLIENT_ID, client_part, client_id), (USER, user_part, user)];
        let entity: ClientQuotaEntity = parts
            .into_iter()
            .filter(|(_, part, _)| *part != Part::Absent)
            .map(|(entity_type, part, name)| {
                (entity_type.into(), (part == Part::Named).then(|| name.clone()))
            })
            .collect();
        let Some(values) = quotas.get(&entity) else {
            continue;
        };
        for kind in QuotaKind::ALL {
            let limit = &mut limits[kind as usize];
            if limit.is_none() {
                // Directories of Apache Kafka may contain 0, which can no longer be set; it would
                // throttle for ever.
                let per_second = values.get(kind.key()).copied().filter(|value| *value > 0.0);
                *limit = per_second.map(|per_second| Limit {
                    per_second,
                    sharers: Sharers {
                        user: user_part.sharer(user, by_default.0),
                        client_id: client_part.sharer(client_id, by_default.1),
                    },
                    set_for: SetFor {
                        user: user_part,
                        client_id: client_part,
                    },
                });
            }
        }
    }
    limits
}
