//! Which client quota applies to a client, of those that a cluster describes.

use std::collections::BTreeMap;

use ottla_client::admin::QuotaEntity;

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";

/// The quotas of a cluster by entity; empty as well where they are unknown.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    limits: BTreeMap<QuotaEntity, BTreeMap<String, f64>>,
}

impl Quotas {
    pub fn new(limits: BTreeMap<QuotaEntity, BTreeMap<String, f64>>) -> Quotas {
        Quotas { limits }
    }

    /// The limit that a client has: of all entities that match it, the first in Kafka's order has
    /// it (KIP-55: user before client id, a name before the default).
    ///
    /// - `quota`: for example `producer_byte_rate`, in bytes per second.
    /// - `user`: the name of its principal; `None`: not known. Then no limit of it is known as soon
    ///   as some user has one of this kind.
    pub fn of(&self, quota: &str, user: Option<&str>, client_id: &str) -> Option<f64> {
        let limit = |entity: &QuotaEntity| self.limits.get(entity)?.get(quota).copied();
        match user {
            Some(user) => entities(user, client_id).iter().find_map(limit),
            None if self.has_users(quota) => None,
            None => of_client_id(client_id).iter().find_map(limit),
        }
    }

    fn has_users(&self, quota: &str) -> bool {
        let mut entities = self.limits.iter();
        entities.any(|(entity, limits)| entity.contains_key(USER) && limits.contains_key(quota))
    }
}

/// The entities that match a client, the deciding one first.
fn entities(user: &str, client_id: &str) -> Vec<QuotaEntity> {
    let of_user = [Some(user.to_owned()), None].into_iter().flat_map(|user| {
        let user = (USER.to_owned(), user);
        let both = of_client_id(client_id).map(|mut entity| {
            entity.extend([user.clone()]);
            entity
        });
        both.into_iter().chain([QuotaEntity::from([user])])
    });
    of_user.chain(of_client_id(client_id)).collect()
}

fn of_client_id(client_id: &str) -> [QuotaEntity; 2] {
    [Some(client_id.to_owned()), None].map(|name| QuotaEntity::from([(CLIENT_ID.to_owned(), name)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "producer_byte_rate";

    /// `-`: the entity has no such part, `*`: the default.
    fn entity(user: &str, client_id: &str) -> QuotaEntity {
        let parts = [(USER, user), (CLIENT_ID, client_id)].into_iter();
        let present = parts.filter(|(_, name)| *name != "-");
        present
            .map(|(kind, name)| (kind.to_owned(), (name != "*").then(|| name.to_owned())))
            .collect()
    }

    fn quotas(entities: &[(&str, &str, f64)]) -> Quotas {
        let limits = entities.iter().map(|(user, client_id, limit)| {
            let limits = BTreeMap::from([(QUOTA.to_owned(), *limit)]);
            (entity(user, client_id), limits)
        });
        Quotas::new(limits.collect())
    }

    #[test]
    fn the_most_particular_entity_has_the_quota() {
        // In the order of Kafka's documentation of quotas.
        let all = [
            ("alice", "p", 1.0),
            ("alice", "*", 2.0),
            ("alice", "-", 3.0),
            ("*", "p", 4.0),
            ("*", "*", 5.0),
            ("*", "-", 6.0),
            ("-", "p", 7.0),
            ("-", "*", 8.0),
        ];
        for first in 0..all.len() {
            let found = quotas(&all[first..]).of(QUOTA, Some("alice"), "p");
            assert_eq!(found, Some(all[first].2));
        }
        assert_eq!(quotas(&all).of(QUOTA, Some("bob"), "q"), Some(5.0));
        assert_eq!(quotas(&all).of("consumer_byte_rate", Some("alice"), "p"), None);
        assert_eq!(quotas(&[]).of(QUOTA, Some("alice"), "p"), None);
    }

    #[test]
    fn an_entity_without_the_quota_leaves_it_to_the_next() {
        let mut some = quotas(&[("-", "p", 7.0)]);
        let other = BTreeMap::from([("request_percentage".to_owned(), 50.0)]);
        some.limits.insert(entity("alice", "-"), other);
        assert_eq!(some.of(QUOTA, Some("alice"), "p"), Some(7.0));
        assert_eq!(some.of(QUOTA, None, "p"), Some(7.0), "no user has this quota");
    }

    #[test]
    fn of_an_unknown_user_nothing_is_guessed() {
        assert_eq!(quotas(&[("-", "p", 7.0)]).of(QUOTA, None, "p"), Some(7.0));
        assert_eq!(quotas(&[("-", "*", 8.0)]).of(QUOTA, None, "p"), Some(8.0));
        assert_eq!(
            quotas(&[("alice", "-", 3.0), ("-", "p", 7.0)]).of(QUOTA, None, "p"),
            None
        );
    }
}
