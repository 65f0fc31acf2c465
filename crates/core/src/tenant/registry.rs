//! The bounded table of tenants and their ids.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{KnownTenant, TenantId, TenantLimits, TenantName};
use crate::time::Moment;

const MINUTE_MICROS: u64 = 60_000_000;

/// At most this many addresses have their new names counted; further ones may bring none in this
/// minute.
const COUNTED_ADDRESSES_MAX: usize = 4_096;

#[derive(Debug)]
struct Known {
    name: TenantName,
    generation: u32,
    connections: usize,
    /// Key in `Registry::absent`; meaningful only without connections.
    left: u64,
}

#[derive(Debug)]
pub(super) struct Registry {
    limits: TenantLimits,
    /// Indexed by id; the first is the shared tenant.
    known: Vec<Known>,
    ids: BTreeMap<TenantName, TenantId>,
    /// Tenants without connections, in the order in which they left.
    absent: BTreeMap<u64, TenantId>,
    leavings: u64,
    /// The minute that `introduced` counts, since the clock's start.
    minute: u64,
    introduced: BTreeMap<IpAddr, u32>,
}

impl Registry {
    pub fn new(limits: TenantLimits) -> Registry {
        Registry {
            limits,
            known: vec![Known {
                name: TenantName::others(),
                generation: 0,
                connections: 0,
                left: 0,
            }],
            ids: BTreeMap::new(),
            absent: BTreeMap::new(),
            leavings: 0,
            minute: 0,
            introduced: BTreeMap::new(),
        }
    }

    /// Adds a connection of `name`, or of the shared tenant; returns its id and generation.
    pub fn admit(&mut self, name: TenantName, network: IpAddr, now: Moment) -> (TenantId, u32) {
        let id = match self.ids.get(&name) {
            Some(id) => *id,
            None => self.introduce(name, network, now),
        };
        self.count(id)
    }

    pub fn admit_to_others(&mut self) -> (TenantId, u32) {
        self.count(TenantId::OTHERS)
    }

    fn count(&mut self, id: TenantId) -> (TenantId, u32) {
        let known = &mut self.known[id.index()];
        if known.connections == 0 && id != TenantId::OTHERS {
            self.absent.remove(&known.left);
        }
        known.connections += 1;
        (id, known.generation)
    }

    /// Assigns an id to a new name.
    fn introduce(&mut self, name: TenantName, network: IpAddr, now: Moment) -> TenantId {
        if !self.may_introduce(network, now) {
            return TenantId::OTHERS;
        }
        let id = if self.known.len() <= self.limits.known_max {
            let id = TenantId(self.known.len() as u32);
            self.known.push(Known {
                name: name.clone(),
                generation: 0,
                connections: 0,
                left: 0,
            });
            id
        } else {
            let Some((_, id)) = self.absent.pop_first() else {
                return TenantId::OTHERS;
            };
            let known = &mut self.known[id.index()];
            self.ids.remove(&known.name);
            known.name = name.clone();
            known.generation = known.generation.wrapping_add(1);
            id
        };
        self.ids.insert(name, id);
        id
    }

    fn may_introduce(&mut self, network: IpAddr, now: Moment) -> bool {
        let minute = now.micros() / MINUTE_MICROS;
        if minute != self.minute {
            self.minute = minute;
            self.introduced.clear();
        }
        if self.introduced.len() >= COUNTED_ADDRESSES_MAX && !self.introduced.contains_key(&network) {
            return false;
        }
        let count = self.introduced.entry(network).or_default();
        let may = *count < self.limits.new_per_minute;
        *count += u32::from(may);
        may
    }

    pub fn release(&mut self, id: TenantId) {
        let known = &mut self.known[id.index()];
        debug_assert!(known.connections > 0, "released as often as admitted");
        known.connections -= 1;
        if known.connections == 0 && id != TenantId::OTHERS {
            self.leavings += 1;
            known.left = self.leavings;
            self.absent.insert(self.leavings, id);
        }
    }

    pub fn known(&self) -> Vec<KnownTenant> {
        let numbered = self.known.iter().enumerate();
        numbered
            .map(|(index, known)| KnownTenant {
                id: TenantId(index as u32),
                generation: known.generation,
                name: known.name.clone(),
                connections: known.connections,
            })
            .collect()
    }

    pub fn name(&self, id: TenantId) -> Option<TenantName> {
        self.known.get(id.index()).map(|known| known.name.clone())
    }

    /// Number of entries in all maps.
    #[cfg(test)]
    pub fn bookkeeping_len(&self) -> usize {
        self.ids.len() + self.absent.len() + self.introduced.len()
    }
}
