//! The host of an ACL: all of them, or one address.

use std::net::IpAddr;

use super::acl::{Permission, WILDCARD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostRule {
    Any,
    /// Compared as an address, because an IPv6 address has several spellings.
    Address(IpAddr),
    /// Not an address, as the tools resolve names: no peer has it.
    Never,
}

impl HostRule {
    /// Reads the host of an ACL, which may be one of Apache Kafka's.
    ///
    /// A scope (`fe80::1%eth0`) names a network interface, and which one a client came by is not
    /// known. So a denial counts for the address on every interface, and a permission on none.
    pub fn new(host: &str, permission: Permission) -> HostRule {
        if host == WILDCARD {
            return HostRule::Any;
        }
        let scoped = || without_scope(host).filter(|_| permission == Permission::Deny);
        let address = host.parse().ok().or_else(scoped);
        address.map_or(HostRule::Never, |address: IpAddr| {
            HostRule::Address(address.to_canonical())
        })
    }

    /// - `address`: canonical.
    pub fn is(self, address: IpAddr) -> bool {
        match self {
            HostRule::Any => true,
            HostRule::Address(own) => own == address,
            HostRule::Never => false,
        }
    }
}

/// Why an ACL with this host is not created, in words: a denial that denies nothing would leave
/// open what it is meant to close.
pub fn refusal(host: &str, permission: Permission) -> Option<String> {
    if without_scope(host).is_some() {
        return Some(format!(
            "the host `{host}` has a scope; name the address without it"
        ));
    }
    let denies_nothing = permission == Permission::Deny && HostRule::new(host, permission) == HostRule::Never;
    denies_nothing
        .then(|| format!("the host `{host}` is neither `*` nor an IP address: the ACL would deny nothing"))
}

/// Returns the address of `fe80::1%eth0`; `None` for anything else.
fn without_scope(host: &str) -> Option<IpAddr> {
    let (address, _) = host.split_once('%')?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Permission::{Allow, Deny};

    fn is(host: &str, permission: Permission, peer: &str) -> bool {
        let peer: IpAddr = peer.parse().unwrap();
        HostRule::new(host, permission).is(peer.to_canonical())
    }

    #[test]
    fn an_address_is_the_same_in_every_spelling() {
        for permission in [Allow, Deny] {
            assert!(is("*", permission, "10.0.0.1"));
            assert!(is("0:0:0:0:0:0:0:1", permission, "::1"));
            assert!(is("::ffff:10.0.0.1", permission, "10.0.0.1"));
            assert!(is("10.0.0.1", permission, "::ffff:10.0.0.1"));
            assert!(!is("10.0.0.2", permission, "10.0.0.1"));
            assert!(!is("10.0.0.0/8", permission, "10.0.0.1"));
            assert!(!is("client.example", permission, "10.0.0.1"));
        }
    }

    #[test]
    fn a_denial_with_a_scope_counts_on_every_interface_and_a_permission_on_none() {
        for host in ["fe80::1%eth0", "fe80:0:0:0:0:0:0:1%2", "fe80::1%"] {
            assert!(is(host, Deny, "fe80::1"), "{host}");
            assert!(!is(host, Allow, "fe80::1"), "{host}");
            assert!(!is(host, Deny, "fe80::2"), "{host}");
        }
    }

    #[test]
    fn hosts_that_would_deny_nothing_are_refused() {
        for host in ["*", "10.0.0.1", "fe80::1", "0:0:0:0:0:0:0:1"] {
            assert_eq!(refusal(host, Deny), None, "{host}");
            assert_eq!(refusal(host, Allow), None, "{host}");
        }
        for host in [
            "client.example",
            "10.0.0.0/8",
            "",
            "10.0.0.256",
            "[::1]",
            " 10.0.0.1",
        ] {
            assert!(
                refusal(host, Deny).is_some_and(|why| why.contains(host)),
                "{host}"
            );
            assert_eq!(refusal(host, Allow), None, "{host}");
        }
        for permission in [Allow, Deny] {
            assert!(refusal("fe80::1%eth0", permission).is_some_and(|why| why.contains("scope")));
        }
    }
}
