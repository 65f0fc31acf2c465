//! Decisions about ACLs, and the records for them.
//!
//! Apache Kafka's controller cannot replay a log that removes an ACL which is not there, nor one
//! that holds two equal ACLs and removes both. So an equal ACL is never written twice, and a
//! removal never without its entry.

use std::collections::BTreeSet;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::MetadataRecord;
use ottla_wire::metadata_records::access_control_entry::AccessControlEntryRecord;
use ottla_wire::metadata_records::remove_access_control_entry::RemoveAccessControlEntryRecord;
use ottla_wire::primitives::Uuid;

use super::Decider;
use crate::access::acl::{CLUSTER_NAME, Operation, PatternType, Permission, ResourceType};
use crate::access::filter::AclFilter;
use crate::access::host;
use crate::image::access::AclImage;
use crate::image::record::RecordList;
use crate::random::Random;
use crate::refusal::Refusal;

/// At most this many changes per request: they are one batch of the metadata log.
const CHANGES_PER_REQUEST_MAX: usize = 10_000;

/// An ACL to create; the codes and texts as sent.
#[derive(Clone, Debug)]
pub struct NewAcl {
    pub resource_type: i8,
    pub resource_name: String,
    pub pattern_type: i8,
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

impl NewAcl {
    fn key(&self) -> AclKey<'_> {
        AclKey {
            codes: [
                self.resource_type,
                self.pattern_type,
                self.operation,
                self.permission_type,
            ],
            texts: [&self.resource_name, &self.principal, &self.host],
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
        let Some(resource_type) = ResourceType::from_code(self.resource_type) else {
            return invalid(format!("Invalid resourceType {}", self.resource_type));
        };
        if PatternType::from_code(self.pattern_type).is_none() {
            return invalid(format!("Invalid patternType {}", self.pattern_type));
        }
        if Operation::from_code(self.operation).is_none() {
            return invalid(format!("Invalid operation {}", self.operation));
        }
        let Some(permission) = Permission::from_code(self.permission_type) else {
            return invalid(format!("Invalid permissionType {}", self.permission_type));
        };
        if self.resource_name.is_empty() {
            return invalid("Resource name should not be empty".to_owned());
        }
        if resource_type == ResourceType::Cluster && self.resource_name != CLUSTER_NAME {
            return invalid(format!(
                "The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
            ));
        }
        if !self.principal.contains(':') {
            return invalid(format!(
                "`{}` is not a principal: it has no type, as in User:name",
                self.principal
            ));
        }
        host::refusal(&self.host, permission).map_or(Ok(()), invalid)
    }

    fn record(&self, id: Uuid) -> AccessControlEntryRecord<'_> {
        AccessControlEntryRecord {
            id,
            resource_type: self.resource_type,
            resource_name: &self.resource_name,
            pattern_type: self.pattern_type,
            principal: &self.principal,
            host: &self.host,
            operation: self.operation,
            permission_type: self.permission_type,
        }
    }
}

/// Everything but the id: two ACLs with the same key are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct AclKey<'a> {
    codes: [i8; 4],
    texts: [&'a str; 3],
}

fn key_of(acl: &AclImage) -> AclKey<'_> {
    AclKey {
        codes: [
            acl.resource_type,
            acl.pattern_type,
            acl.operation,
            acl.permission_type,
        ],
        texts: [&acl.resource_name, &acl.principal, &acl.host],
    }
}

/// One result for each filter: the ACLs that are gone.
pub type DeletedAcls = Vec<Result<Vec<AclImage>, Refusal>>;

impl Decider<'_> {
    /// Decides about every ACL of a CreateAcls request, in the request's order. One that exists is
    /// a success.
    pub fn create_acls(&self, acls: &[NewAcl], random: &Random) -> (RecordList, Vec<Result<(), Refusal>>) {
        let mut records = RecordList::default();
        let mut known: BTreeSet<AclKey<'_>> = self.image.acls.values().map(key_of).collect();
        let results: Vec<_> = acls
            .iter()
            .map(|acl| {
                acl.check()?;
                if known.insert(acl.key()) {
                    records.push(MetadataRecord::AccessControlEntry(acl.record(random.uuid())), 0);
                }
                Ok(())
            })
            .collect();
        if records.len() > CHANGES_PER_REQUEST_MAX {
            let message = format!("more than {CHANGES_PER_REQUEST_MAX} new ACLs in one request");
            let refusal = Refusal::new(ErrorCode::PolicyViolation, message);
            return (RecordList::default(), vec![Err(refusal); acls.len()]);
        }
        (records, results)
    }

    /// Decides about every filter of a DeleteAcls request, in the request's order. An ACL that two
    /// filters match is reported by both and removed once.
    pub fn delete_acls(&self, filters: &[Result<AclFilter, Refusal>]) -> (RecordList, DeletedAcls) {
        let (mut removed, mut reported) = (BTreeSet::new(), 0);
        let mut results = DeletedAcls::with_capacity(filters.len());
        for filter in filters {
            let matching = filter.as_ref().map_err(Clone::clone).map(|filter| {
                let matching = self.image.acls.values().filter(|acl| filter.matches(acl));
                let room = CHANGES_PER_REQUEST_MAX + 1 - reported;
                matching.take(room).cloned().collect::<Vec<AclImage>>()
            });
            let found = matching.as_deref().unwrap_or_default();
            removed.extend(found.iter().map(|acl| acl.id));
            reported += found.len();
            results.push(matching);
            if reported > CHANGES_PER_REQUEST_MAX {
                let message = format!("the filters match more than {CHANGES_PER_REQUEST_MAX} ACLs");
                let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
                return (RecordList::default(), vec![Err(refusal); filters.len()]);
            }
        }
        let mut records = RecordList::default();
        for id in removed {
            let record = RemoveAccessControlEntryRecord { id };
            records.push(MetadataRecord::RemoveAccessControlEntry(record), 0);
        }
        (records, results)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, World};
    use super::*;
    use crate::access::filter::FilterParts;
    use crate::controller::Controller;

    fn new_acl(resource_name: &str) -> NewAcl {
        NewAcl {
            resource_type: ResourceType::Topic.code(),
            resource_name: resource_name.to_owned(),
            pattern_type: PatternType::Literal.code(),
            principal: "User:alice".to_owned(),
            host: "*".to_owned(),
            operation: Operation::Read.code(),
            permission_type: Permission::Allow.code(),
        }
    }

    fn filter(resource_name: Option<&str>) -> Result<AclFilter, Refusal> {
        AclFilter::new(FilterParts {
            resource_type: 1,
            resource_name,
            pattern_type: 1,
            principal: None,
            host: None,
            operation: 1,
            permission_type: 1,
        })
    }

    fn create(controller: &mut Controller, acls: &[NewAcl]) -> Vec<ErrorCode> {
        let results = controller.create_acls(acls, NOW).unwrap();
        let code =
            |result: Result<(), Refusal>| result.map_or_else(|refusal| refusal.code, |()| ErrorCode::None);
        results.into_iter().map(code).collect()
    }

    fn delete(controller: &mut Controller, filters: &[Result<AclFilter, Refusal>]) -> Vec<Option<usize>> {
        let results = controller.delete_acls(filters, NOW).unwrap();
        results
            .into_iter()
            .map(|result| result.ok().map(|acls| acls.len()))
            .collect()
    }

    #[test]
    fn an_equal_acl_is_never_written_twice() {
        let mut world = World::new("acls-equal");
        let mut controller = world.start();
        let before = controller.provenance().last_offset;
        let both = [new_acl("a"), new_acl("a")];
        assert_eq!(create(&mut controller, &both), [ErrorCode::None; 2]);
        assert_eq!(controller.image().acls.len(), 1);
        assert_eq!(create(&mut controller, &both), [ErrorCode::None; 2]);
        assert_eq!(controller.provenance().last_offset, before + 1);
        drop(controller);
        let mut controller = world.start();
        assert_eq!(
            create(&mut controller, &[new_acl("a"), new_acl("b")]),
            [ErrorCode::None; 2]
        );
        assert_eq!(controller.image().acls.len(), 2);
    }

    #[test]
    fn acls_that_differ_in_one_part_are_different() {
        let mut world = World::new("acls-parts");
        let mut controller = world.start();
        let acls = [
            new_acl("a"),
            new_acl("b"),
            NewAcl {
                resource_type: ResourceType::Group.code(),
                ..new_acl("a")
            },
            NewAcl {
                pattern_type: PatternType::Prefixed.code(),
                ..new_acl("a")
            },
            NewAcl {
                principal: "User:bob".to_owned(),
                ..new_acl("a")
            },
            NewAcl {
                host: "10.0.0.1".to_owned(),
                ..new_acl("a")
            },
            NewAcl {
                operation: Operation::Write.code(),
                ..new_acl("a")
            },
            NewAcl {
                permission_type: Permission::Deny.code(),
                ..new_acl("a")
            },
        ];
        assert_eq!(create(&mut controller, &acls), [ErrorCode::None; 8]);
        assert_eq!(controller.image().acls.len(), 8);
    }

    #[test]
    fn an_acl_that_two_filters_match_is_reported_twice_and_removed_once() {
        let mut world = World::new("acls-removal");
        let mut controller = world.start();
        create(&mut controller, &[new_acl("a"), new_acl("b")]);
        let before = controller.provenance().last_offset;
        let filters = [filter(Some("a")), filter(None), filter(Some("c"))];
        assert_eq!(delete(&mut controller, &filters), [Some(1), Some(2), Some(0)]);
        assert_eq!(controller.provenance().last_offset, before + 2);
        assert!(controller.image().acls.is_empty());
        assert_eq!(delete(&mut controller, &filters), [Some(0), Some(0), Some(0)]);
        assert_eq!(controller.provenance().last_offset, before + 2);
    }

    #[test]
    fn what_is_no_acl_is_refused_and_the_others_are_created() {
        let mut world = World::new("acls-invalid");
        let mut controller = world.start();
        let cluster = |name| NewAcl {
            resource_type: ResourceType::Cluster.code(),
            ..new_acl(name)
        };
        let wrong = [
            NewAcl {
                resource_type: 0,
                ..new_acl("a")
            },
            NewAcl {
                resource_type: 1,
                ..new_acl("a")
            },
            NewAcl {
                pattern_type: 1,
                ..new_acl("a")
            },
            NewAcl {
                pattern_type: 2,
                ..new_acl("a")
            },
            NewAcl {
                operation: 1,
                ..new_acl("a")
            },
            NewAcl {
                permission_type: 1,
                ..new_acl("a")
            },
            NewAcl {
                principal: "alice".to_owned(),
                ..new_acl("a")
            },
            NewAcl {
                host: "fe80::1%eth0".to_owned(),
                ..new_acl("a")
            },
            NewAcl {
                host: "client.example".to_owned(),
                permission_type: Permission::Deny.code(),
                ..new_acl("a")
            },
            new_acl(""),
            cluster("kafka"),
        ];
        for acl in wrong {
            let codes = create(&mut controller, &[acl.clone(), cluster(CLUSTER_NAME)]);
            assert_eq!(codes, [ErrorCode::InvalidRequest, ErrorCode::None], "{acl:?}");
        }
        assert_eq!(controller.image().acls.len(), 1);
    }

    #[test]
    fn too_many_changes_in_one_request_change_nothing() {
        let mut world = World::new("acls-many");
        let mut controller = world.start();
        let many: Vec<NewAcl> = (0..=CHANGES_PER_REQUEST_MAX)
            .map(|index| new_acl(&format!("t{index}")))
            .collect();
        let codes = create(&mut controller, &many);
        assert!(codes.iter().all(|code| *code == ErrorCode::PolicyViolation));
        assert!(controller.image().acls.is_empty());
        create(&mut controller, &many[1..]);
        create(&mut controller, &many[..1]);
        assert_eq!(
            delete(&mut controller, &[filter(Some("t1")), filter(None)]),
            [None, None]
        );
        assert_eq!(controller.image().acls.len(), many.len());
        assert_eq!(delete(&mut controller, &[filter(Some("t1"))]), [Some(1)]);
    }
}
