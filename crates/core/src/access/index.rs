//! The ACLs of an image, arranged for lookup by resource.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;
use tracing::warn;

use super::acl::{Operation, PatternType, Permission, ResourceType, WILDCARD, WILDCARD_PRINCIPAL};
use super::host::HostRule;
use crate::image::access::AclImage;

/// An ACL without its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub id: Uuid,
    /// `None`: every principal.
    principal: Option<Arc<str>>,
    host: HostRule,
    pub operation: Operation,
    pub permission: Permission,
}

impl Rule {
    fn new(acl: &AclImage) -> Option<Rule> {
        let permission = Permission::from_code(acl.permission_type)?;
        Some(Rule {
            id: acl.id,
            principal: (&*acl.principal != WILDCARD_PRINCIPAL).then(|| acl.principal.clone()),
            host: HostRule::new(&acl.host, permission),
            operation: Operation::from_code(acl.operation)?,
            permission,
        })
    }

    fn denies_nothing(&self) -> bool {
        self.permission == Permission::Deny && self.host == HostRule::Never
    }

    /// - `address`: canonical.
    pub fn is_about(&self, principal: &str, address: IpAddr) -> bool {
        let is_principal = self.principal.as_deref().is_none_or(|own| own == principal);
        is_principal && self.host.is(address)
    }
}

/// The rules for the resources of one type, by name.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The name `*` stands for all resources, beside the one that is called so.
    pub literal: BTreeMap<Arc<str>, Vec<Rule>>,
    pub prefixed: BTreeMap<Arc<str>, Vec<Rule>>,
}

impl Rules {
    /// Calls `visit` with the rules of every pattern that matches `name`, until it returns false.
    ///
    /// The prefixes of a name are found from the longest to the shortest. Each step takes the
    /// greatest prefix that is not above the bound; if it is no prefix of the name, no other that
    /// is longer than what the two have in common can be one, so the bound becomes that part.
    pub fn visit_matching<'a>(&'a self, name: &str, mut visit: impl FnMut(&'a [Rule]) -> bool) {
        if self.literal.get(name).is_some_and(|rules| !visit(rules)) {
            return;
        }
        let is_other = name != WILDCARD;
        if is_other && self.literal.get(WILDCARD).is_some_and(|rules| !visit(rules)) {
            return;
        }
        let mut bound = Bound::Included(name);
        while let Some((prefix, rules)) = self.greatest_prefixed(bound) {
            if name.starts_with(prefix) {
                if !visit(rules) {
                    return;
                }
                bound = Bound::Excluded(prefix);
            } else {
                bound = Bound::Included(common_prefix(name, prefix));
            }
        }
    }

    fn greatest_prefixed(&self, bound: Bound<&str>) -> Option<(&str, &[Rule])> {
        let (prefix, rules) = self
            .prefixed
            .range::<str, _>((Bound::Unbounded, bound))
            .next_back()?;
        Some((Borrow::<str>::borrow(prefix), rules))
    }
}

fn common_prefix<'a>(name: &'a str, other: &str) -> &'a str {
    let pairs = name.bytes().zip(other.bytes());
    let mut end = pairs.take_while(|(ours, theirs)| ours == theirs).count();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// All ACLs of an image; rebuilt when they change.
#[derive(Debug, Default)]
pub struct AclIndex {
    by_type: BTreeMap<ResourceType, Rules>,
}

impl AclIndex {
    pub fn new(acls: &BTreeMap<Uuid, AclImage>) -> AclIndex {
        let mut index = AclIndex::default();
        let (mut unknown, mut idle) = (BTreeSet::new(), BTreeSet::new());
        for acl in acls.values() {
            match index.add(acl) {
                None => _ = unknown.insert(acl.id),
                Some(rule) if rule.denies_nothing() => _ = idle.insert(&acl.host),
                Some(_) => {}
            }
        }
        if let Some(host) = idle.first() {
            let count = idle.len();
            warn!(
                count,
                first = &***host,
                "hosts of denying ACLs are not addresses: they deny nothing"
            );
        }
        if let Some(id) = unknown.first() {
            let count = unknown.len();
            warn!(count, first = %id, "ACLs with unknown codes neither permit nor deny anything");
        }
        index
    }

    fn add(&mut self, acl: &AclImage) -> Option<&Rule> {
        let resource_type = ResourceType::from_code(acl.resource_type)?;
        let pattern_type = PatternType::from_code(acl.pattern_type)?;
        let rules = self.by_type.entry(resource_type).or_default();
        let by_name = match pattern_type {
            PatternType::Literal => &mut rules.literal,
            PatternType::Prefixed => &mut rules.prefixed,
        };
        // A rule that is not understood permits nothing, but the resource has an ACL.
        let rules = by_name.entry(acl.resource_name.clone()).or_default();
        rules.push(Rule::new(acl)?);
        rules.last()
    }

    pub(super) fn of(&self, resource_type: ResourceType) -> Option<&Rules> {
        self.by_type.get(&resource_type)
    }
}
