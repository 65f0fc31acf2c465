//! What ACLs permitted a connection lately, so that a check is mostly one look-up and not a walk
//! over ACLs: on the path of every produce and fetch.
//!
//! Only permissions are remembered: a denial is decided, counted and logged each time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::acl::{Operation, ResourceType};

/// Memory for the permissions of one connection. Clients choose the names, so beyond it all are
/// forgotten: about 700 topics of 25 characters.
const BYTES_MAX: usize = 64 * 1024;

/// What a permission takes beside its name: its place in the map, and the allocation of the name.
const ENTRY_BYTES: usize = 64;

/// Longer names are not remembered. Kafka's longest topic name has 249 characters.
const NAME_BYTES_MAX: usize = 256;

/// An operation on a resource.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub operation: Operation,
    pub resource_type: ResourceType,
    pub name: &'a str,
}

/// The principal that has permissions, and the ACLs that gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// With its type: `User:alice`.
    pub principal: &'a str,
    pub address: IpAddr,
    /// Of the ACLs.
    pub version: u64,
}

/// The permissions that the ACLs gave one connection. They are forgotten when the ACLs change, and
/// when another principal asks.
#[derive(Debug, Default)]
pub struct Permitted {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// `None`: nothing was remembered yet.
    holder: Option<(Arc<str>, IpAddr, u64)>,
    bytes: usize,
    by_hash: BTreeMap<u64, OnResource>,
}

#[derive(Debug)]
struct OnResource {
    resource_type: ResourceType,
    name: Box<str>,
    /// One bit per code.
    operations: u16,
}

impl Permitted {
    /// Whether this is known to be permitted.
    pub fn has(&self, holder: Holder<'_>, asked: Asked<'_>) -> bool {
        let remembered = self.lock();
        remembered.holder() == Some(holder) && remembered.has(asked)
    }

    pub fn remember(&self, holder: Holder<'_>, asked: Asked<'_>) {
        let mut remembered = self.lock();
        if remembered.holder() != Some(holder) {
            *remembered = Remembered::of(holder);
        }
        remembered.add(asked);
    }

    /// Returns how many resources are remembered.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().by_hash.len()
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn of(holder: Holder<'_>) -> Remembered {
        Remembered {
            holder: Some((holder.principal.into(), holder.address, holder.version)),
            ..Remembered::default()
        }
    }

    fn holder(&self) -> Option<Holder<'_>> {
        let (principal, address, version) = self.holder.as_ref()?;
        Some(Holder {
            principal,
            address: *address,
            version: *version,
        })
    }

    fn has(&self, asked: Asked<'_>) -> bool {
        let known = self.by_hash.get(&asked.hash());
        known.is_some_and(|known| known.is_on(asked) && known.operations & asked.bit() != 0)
    }

    fn add(&mut self, asked: Asked<'_>) {
        if asked.name.len() > NAME_BYTES_MAX {
            return;
        }
        let hash = asked.hash();
        if let Some(known) = self.by_hash.get_mut(&hash).filter(|known| known.is_on(asked)) {
            known.operations |= asked.bit();
            return;
        }
        // One that is displaced, because its name has the same hash, stays counted.
        let bytes = ENTRY_BYTES + asked.name.len();
        if self.bytes + bytes > BYTES_MAX {
            self.by_hash.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        let known = OnResource {
            resource_type: asked.resource_type,
            name: asked.name.into(),
            operations: asked.bit(),
        };
        self.by_hash.insert(hash, known);
    }
}

impl OnResource {
    fn is_on(&self, asked: Asked<'_>) -> bool {
        self.resource_type == asked.resource_type && *self.name == *asked.name
    }
}

impl Asked<'_> {
    fn bit(self) -> u16 {
        1 << self.operation.code()
    }

    /// Not keyed: a client that looks for names with the same hash only makes its own checks slow.
    fn hash(self) -> u64 {
        // The fractional part of the golden ratio.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| {
            let product = u128::from(hash ^ word) * FACTOR;
            (product >> 64) as u64 ^ product as u64
        };
        let (words, rest) = self.name.as_bytes().as_chunks::<8>();
        let last = rest.iter().fold(0, |last, byte| (last << 8) | u64::from(*byte));
        let start = mix(self.name.len() as u64, self.resource_type as u64);
        let whole = words
            .iter()
            .fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        mix(whole, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Describe, Read, Write};
    use ResourceType::{Group, Topic};

    const ALICE: Holder<'_> = Holder {
        principal: "User:alice",
        address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        version: 1,
    };

    fn asked(operation: Operation, resource_type: ResourceType, name: &str) -> Asked<'_> {
        Asked {
            operation,
            resource_type,
            name,
        }
    }

    fn alice_may_write_orders() -> Permitted {
        let permitted = Permitted::default();
        permitted.remember(ALICE, asked(Write, Topic, "orders"));
        permitted
    }

    #[test]
    fn only_what_was_permitted_is_remembered() {
        let permitted = alice_may_write_orders();
        let has =
            |operation, resource_type, name| permitted.has(ALICE, asked(operation, resource_type, name));
        assert!(has(Write, Topic, "orders"));
        assert!(!has(Read, Topic, "orders"));
        assert!(!has(Write, Group, "orders"));
        for other in ["order", "orders2", "Orders", "", "orders\0"] {
            assert!(!has(Write, Topic, other), "{other:?}");
        }
        permitted.remember(ALICE, asked(Describe, Topic, "orders"));
        assert!(has(Write, Topic, "orders") && has(Describe, Topic, "orders"));
    }

    #[test]
    fn a_change_of_the_acls_forgets_everything_at_once() {
        let permitted = alice_may_write_orders();
        let later = Holder { version: 2, ..ALICE };
        assert!(!permitted.has(later, asked(Write, Topic, "orders")));
        permitted.remember(later, asked(Write, Topic, "payments"));
        assert!(!permitted.has(later, asked(Write, Topic, "orders")));
        assert!(!permitted.has(ALICE, asked(Write, Topic, "payments")));
    }

    #[test]
    fn permissions_of_one_principal_or_address_are_none_of_another() {
        let permitted = alice_may_write_orders();
        let bob = Holder {
            principal: "User:bob",
            ..ALICE
        };
        let elsewhere = Holder {
            address: "10.0.0.1".parse().unwrap(),
            ..ALICE
        };
        for other in [bob, elsewhere] {
            assert!(!permitted.has(other, asked(Write, Topic, "orders")), "{other:?}");
        }
        permitted.remember(bob, asked(Write, Topic, "payments"));
        assert!(!permitted.has(bob, asked(Write, Topic, "orders")));
        assert!(!permitted.has(ALICE, asked(Write, Topic, "payments")));
    }

    #[test]
    fn names_from_the_network_take_bounded_memory() {
        let permitted = Permitted::default();
        let long = "ä".repeat(NAME_BYTES_MAX);
        let mut peak = 0;
        for number in 0..20_000 {
            let name = format!("topic-{number}");
            permitted.remember(ALICE, asked(Write, Topic, &name));
            permitted.remember(ALICE, asked(Write, Topic, &format!("{number}{long}")));
            let remembered = permitted.lock();
            let names = remembered.by_hash.values().map(|known| known.name.len());
            let bytes = names.map(|name| name + ENTRY_BYTES).sum::<usize>();
            peak = peak.max(bytes);
        }
        assert!(peak <= BYTES_MAX, "{peak}");
        assert!(peak > BYTES_MAX / 2, "{peak}: hardly anything is remembered");
        assert!(permitted.has(ALICE, asked(Write, Topic, "topic-19999")));
        permitted.remember(ALICE, asked(Write, Topic, &"x".repeat(2 * BYTES_MAX)));
        assert!(permitted.lock().bytes <= BYTES_MAX);
    }

    #[test]
    fn names_with_the_same_hash_displace_each_other() {
        let permitted = alice_may_write_orders();
        let hash = asked(Write, Topic, "orders").hash();
        let intruder = OnResource {
            resource_type: Topic,
            name: "intruder".into(),
            operations: u16::MAX,
        };
        permitted.lock().by_hash.insert(hash, intruder);
        assert!(!permitted.has(ALICE, asked(Write, Topic, "orders")));
        permitted.remember(ALICE, asked(Write, Topic, "orders"));
        assert!(permitted.has(ALICE, asked(Write, Topic, "orders")));
        assert!(!permitted.has(ALICE, asked(Read, Topic, "orders")));
    }

    #[test]
    fn similar_names_have_different_hashes() {
        let names = (0..100_000).map(|number| format!("tenant-{}.topic-{number}", number % 10));
        let hashes = names.map(|name| asked(Write, Topic, &name).hash());
        assert_eq!(hashes.collect::<std::collections::BTreeSet<u64>>().len(), 100_000);
    }
}
