//! Which tenant a connection belongs to: by its address until its first client id, then by the
//! names it takes.

use std::sync::Arc;
use std::time::Duration;

use ottla_core::tenant::{TenantClaim, TenantId, TenantLease, Tenants};
use ottla_core::time::Moment;

/// How often a connection may change its name. Clients keep theirs; one that changes it with every
/// request would cost a registry look-up each time, so it stays with the last name allowed.
const RENAMES_MAX: u32 = 16;

/// When a connection without a tenant of its own tries again: new names are limited per minute.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// A connection's tenant.
#[derive(Debug)]
pub struct Tenancy {
    lease: TenantLease,
    renames: u32,
    next_try: Moment,
}

impl Tenancy {
    pub fn new(tenants: &Arc<Tenants>, claim: &TenantClaim<'_>, now: Moment) -> Tenancy {
        Tenancy {
            lease: tenants.admit(claim, now),
            renames: 0,
            next_try: now.after(RETRY_INTERVAL),
        }
    }

    pub fn lease(&self) -> &TenantLease {
        &self.lease
    }

    pub fn id(&self) -> TenantId {
        self.lease.id()
    }

    /// Whether a place among the known tenants may have become free for this connection.
    pub fn should_try_again(&self, now: Moment) -> bool {
        self.id() == TenantId::OTHERS && now >= self.next_try
    }

    /// Called when the client sends its client id, or another one.
    pub fn claim(&mut self, tenants: &Arc<Tenants>, claim: &TenantClaim<'_>, now: Moment) {
        if self.renames < RENAMES_MAX {
            self.lease = tenants.admit(claim, now);
        }
        self.renames = self.renames.saturating_add(1);
        self.next_try = now.after(RETRY_INTERVAL);
    }

    /// Looks up the same client once more.
    pub fn try_again(&mut self, tenants: &Arc<Tenants>, claim: &TenantClaim<'_>, now: Moment) {
        self.lease = tenants.admit(claim, now);
        self.next_try = now.after(RETRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_core::tenant::{TenantConfig, TenantKind, TenantLimits};
    use std::net::Ipv4Addr;

    fn claim(client_id: &str) -> TenantClaim<'_> {
        TenantClaim {
            principal: "User:ANONYMOUS",
            client_id: Some(client_id).filter(|client_id| !client_id.is_empty()),
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }

    fn tenants(new_per_minute: u32) -> Arc<Tenants> {
        let limits = TenantLimits {
            new_per_minute,
            ..TenantLimits::default()
        };
        Arc::new(Tenants::new(TenantConfig {
            limits,
            ..TenantConfig::default()
        }))
    }

    #[test]
    fn the_first_client_id_takes_the_place_of_the_address() {
        let tenants = tenants(10);
        let mut tenancy = Tenancy::new(&tenants, &claim(""), Moment::from_micros(0));
        assert_eq!(tenants.name(tenancy.id()).unwrap().kind, TenantKind::Address);
        tenancy.claim(&tenants, &claim("orders"), Moment::from_micros(0));
        assert_eq!(&*tenants.name(tenancy.id()).unwrap().name, "orders");
        let known = tenants.known();
        assert!(known.iter().all(|known| known.connections <= 1 && (known.connections == 1) == (known.id == tenancy.id())));
    }

    #[test]
    fn a_client_that_keeps_changing_its_name_keeps_one() {
        let tenants = tenants(1_000);
        let mut tenancy = Tenancy::new(&tenants, &claim(""), Moment::from_micros(0));
        for number in 0..100 {
            tenancy.claim(&tenants, &claim(&format!("n{number}")), Moment::from_micros(0));
        }
        assert_eq!(&*tenants.name(tenancy.id()).unwrap().name, "n15");
        assert_eq!(tenants.known().len(), 2 + RENAMES_MAX as usize);
    }

    #[test]
    fn a_client_that_came_in_a_crowd_gets_its_own_name_a_minute_later() {
        let tenants = tenants(2);
        let mut tenancies: Vec<Tenancy> = ["a", "b", "c", "d"]
            .iter()
            .map(|name| Tenancy::new(&tenants, &claim(name), Moment::from_micros(0)))
            .collect();
        assert_eq!(tenancies[3].id(), TenantId::OTHERS);
        assert!(!tenancies[3].should_try_again(Moment::from_micros(59_000_000)));
        let later = Moment::from_micros(61_000_000);
        assert!(tenancies[3].should_try_again(later) && !tenancies[0].should_try_again(later));
        tenancies[3].try_again(&tenants, &claim("d"), later);
        assert_eq!(&*tenants.name(tenancies[3].id()).unwrap().name, "d");
    }
}
