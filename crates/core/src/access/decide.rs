//! The decision of Apache Kafka's StandardAuthorizer: may a principal at an address do this?

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ottla_wire::primitives::Uuid;

use super::acl::{Operation, PatternType, Permission, ResourceType, WILDCARD};
use super::index::{AclIndex, Rule, Rules};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// With its type: `User:alice`.
    pub principal: &'a str,
    /// Canonical: an IPv4 address is never mapped into IPv6.
    pub address: IpAddr,
}

impl Asker<'_> {
    fn is_meant_by(&self, rule: &Rule) -> bool {
        rule.is_about(self.principal, self.address)
    }
}

/// What the ACLs say, and which of them says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// By the ACL with this id.
    Denied(Uuid),
    /// By the ACL with this id.
    Allowed(Uuid),
    /// The resource has ACLs, and none is about this: denied.
    NoneApplies,
    /// The resource has no ACL: `allow.everyone.if.no.acl.found` decides.
    NoAcl,
}

/// What decided, as a line of the log tells it.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Denied(id) | Decision::Allowed(id) => write!(f, "ACL {id}"),
            Decision::NoneApplies => f.write_str("no ACL allows it"),
            Decision::NoAcl => f.write_str("the resource has no ACL"),
        }
    }
}

impl Decision {
    /// - `without_acl`: the value of `allow.everyone.if.no.acl.found`.
    pub fn is_allowed(self, without_acl: bool) -> bool {
        match self {
            Decision::Allowed(_) => true,
            Decision::Denied(_) | Decision::NoneApplies => false,
            Decision::NoAcl => without_acl,
        }
    }
}

impl AclIndex {
    /// Any matching denial denies; then any matching permission permits. A resource with ACLs, of
    /// any principal, is closed without a permission.
    pub fn decide(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> Decision {
        let mut decision = Decision::NoAcl;
        let Some(rules) = self.of(resource_type) else {
            return decision;
        };
        rules.visit_matching(name, |matching| {
            if decision == Decision::NoAcl {
                decision = Decision::NoneApplies;
            }
            for rule in matching.iter().filter(|rule| asker.is_meant_by(rule)) {
                match rule.permission {
                    Permission::Deny if covers(rule, |own| own == operation) => {
                        decision = Decision::Denied(rule.id);
                        return false;
                    }
                    Permission::Allow if covers(rule, |own| own.implies(operation)) => {
                        decision = Decision::Allowed(rule.id);
                    }
                    _ => {}
                }
            }
            true
        });
        decision
    }

    /// - `without_acl`: the answer for a resource without any ACL
    ///   (`allow.everyone.if.no.acl.found`).
    pub fn allows(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
        without_acl: bool,
    ) -> bool {
        let decision = self.decide(asker, operation, resource_type, name);
        decision.is_allowed(without_acl)
    }

    /// Whether the operation is allowed on any resource of the type, even one that does not exist.
    /// As Kafka's `authorizeByResourceType`: it first asks about one fixed name, which lets
    /// `without_acl` decide, and it takes nothing for implied.
    pub fn allows_somewhere(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        resource_type: ResourceType,
        without_acl: bool,
    ) -> bool {
        if self.allows(asker, operation, resource_type, "hardcode", without_acl) {
            return true;
        }
        let Some(rules) = self.of(resource_type) else {
            return false;
        };
        let patterns = |permission, pattern_type| patterns(rules, asker, operation, permission, pattern_type);
        let denied = patterns(Permission::Deny, PatternType::Literal);
        if denied.contains(WILDCARD) {
            return false;
        }
        let denied_prefixes = patterns(Permission::Deny, PatternType::Prefixed);
        let is_open = |name: &str| !has_prefix_in(name, &denied_prefixes);
        let allowed = patterns(Permission::Allow, PatternType::Literal);
        allowed.contains(WILDCARD)
            || allowed.difference(&denied).any(|name| is_open(name))
            || patterns(Permission::Allow, PatternType::Prefixed)
                .iter()
                .any(|prefix| is_open(prefix))
    }
}

fn covers(rule: &Rule, is_own: impl Fn(Operation) -> bool) -> bool {
    rule.operation == Operation::All || is_own(rule.operation)
}

fn patterns<'a>(
    rules: &'a Rules,
    asker: Asker<'_>,
    operation: Operation,
    permission: Permission,
    pattern_type: PatternType,
) -> BTreeSet<&'a str> {
    let by_name = match pattern_type {
        PatternType::Literal => &rules.literal,
        PatternType::Prefixed => &rules.prefixed,
    };
    let is_about = |rule: &Rule| {
        rule.permission == permission && asker.is_meant_by(rule) && covers(rule, |own| own == operation)
    };
    let matching = by_name.iter().filter(|(_, rules)| rules.iter().any(is_about));
    matching.map(|(name, _)| &**name).collect()
}

fn has_prefix_in(name: &str, prefixes: &BTreeSet<&str>) -> bool {
    let ends = name
        .char_indices()
        .map(|(start, character)| start + character.len_utf8());
    ends.map(|end| &name[..end])
        .any(|prefix| prefixes.contains(prefix))
}
