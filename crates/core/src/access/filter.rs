//! Which ACLs a DescribeAcls or DeleteAcls request means (KIP-140, KIP-290).

use ottla_wire::error_code::ErrorCode;

use super::acl::{ANY, Operation, PatternType, Permission, ResourceType, WILDCARD};
use crate::image::access::AclImage;
use crate::refusal::Refusal;

/// As a pattern type: all patterns that match the name, whatever their type.
const MATCH: i8 = 2;

/// The codes and texts of a filter as sent; no text means any.
#[derive(Clone, Copy, Debug)]
pub struct FilterParts<'a> {
    pub resource_type: i8,
    pub resource_name: Option<&'a str>,
    pub pattern_type: i8,
    pub principal: Option<&'a str>,
    pub host: Option<&'a str>,
    pub operation: i8,
    pub permission_type: i8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclFilter {
    /// `None`: any.
    resource_type: Option<i8>,
    resource_name: Option<String>,
    pattern: PatternFilter,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<i8>,
    permission_type: Option<i8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternFilter {
    Any,
    Matching,
    Only(i8),
}

impl AclFilter {
    /// - Errors: a code that no ACL can have.
    pub fn new(parts: FilterParts<'_>) -> Result<AclFilter, Refusal> {
        let any_or = |code: i8, is_known: bool, what: &str| match code {
            ANY => Ok(None),
            code if is_known => Ok(Some(code)),
            code => Err(invalid(what, code)),
        };
        let text = |text: Option<&str>| text.map(str::to_owned);
        let (resource_type, operation) = (parts.resource_type, parts.operation);
        let permission = parts.permission_type;
        Ok(AclFilter {
            resource_type: any_or(
                resource_type,
                ResourceType::from_code(resource_type).is_some(),
                "resource type",
            )?,
            resource_name: text(parts.resource_name),
            pattern: match parts.pattern_type {
                ANY => PatternFilter::Any,
                MATCH => PatternFilter::Matching,
                code if PatternType::from_code(code).is_some() => PatternFilter::Only(code),
                code => return Err(invalid("pattern type", code)),
            },
            principal: text(parts.principal),
            host: text(parts.host),
            operation: any_or(operation, Operation::from_code(operation).is_some(), "operation")?,
            permission_type: any_or(
                permission,
                Permission::from_code(permission).is_some(),
                "permission type",
            )?,
        })
    }

    pub fn matches(&self, acl: &AclImage) -> bool {
        let is_code = |wanted: Option<i8>, own: i8| wanted.is_none_or(|wanted| wanted == own);
        let is_text =
            |wanted: &Option<String>, own: &str| wanted.as_deref().is_none_or(|wanted| wanted == own);
        is_code(self.resource_type, acl.resource_type)
            && self.matches_pattern(acl)
            && is_text(&self.principal, &acl.principal)
            && is_text(&self.host, &acl.host)
            && is_code(self.operation, acl.operation)
            && is_code(self.permission_type, acl.permission_type)
    }

    fn matches_pattern(&self, acl: &AclImage) -> bool {
        let own = &*acl.resource_name;
        match (self.pattern, self.resource_name.as_deref()) {
            (PatternFilter::Only(wanted), _) if wanted != acl.pattern_type => false,
            (_, None) => true,
            (PatternFilter::Matching, Some(name)) => match PatternType::from_code(acl.pattern_type) {
                Some(PatternType::Literal) => name == own || own == WILDCARD,
                Some(PatternType::Prefixed) => name.starts_with(own),
                None => false,
            },
            (_, Some(name)) => name == own,
        }
    }
}

fn invalid(what: &str, code: i8) -> Refusal {
    Refusal::new(
        ErrorCode::InvalidRequest,
        format!("{code} is not the {what} of a filter"),
    )
}

#[cfg(test)]
mod tests {
    use ottla_wire::primitives::Uuid;

    use super::*;

    const OPEN: FilterParts<'_> = FilterParts {
        resource_type: ANY,
        resource_name: None,
        pattern_type: ANY,
        principal: None,
        host: None,
        operation: ANY,
        permission_type: ANY,
    };

    fn acl(resource_name: &str, pattern_type: PatternType) -> AclImage {
        AclImage {
            id: Uuid::ZERO,
            resource_type: ResourceType::Topic.code(),
            resource_name: resource_name.into(),
            pattern_type: pattern_type.code(),
            principal: "User:alice".into(),
            host: "10.0.0.1".into(),
            operation: Operation::Read.code(),
            permission_type: Permission::Allow.code(),
        }
    }

    fn matches(parts: FilterParts<'_>, acl: &AclImage) -> bool {
        AclFilter::new(parts).unwrap().matches(acl)
    }

    #[test]
    fn every_part_of_a_filter_counts() {
        let acl = acl("orders", PatternType::Literal);
        assert!(matches(OPEN, &acl));
        let exact = FilterParts {
            resource_type: 2,
            resource_name: Some("orders"),
            pattern_type: 3,
            principal: Some("User:alice"),
            host: Some("10.0.0.1"),
            operation: 3,
            permission_type: 3,
        };
        assert!(matches(exact, &acl));
        let others = [
            FilterParts {
                resource_type: 3,
                ..exact
            },
            FilterParts {
                resource_name: Some("order"),
                ..exact
            },
            FilterParts {
                pattern_type: 4,
                ..exact
            },
            FilterParts {
                principal: Some("User:*"),
                ..exact
            },
            FilterParts {
                host: Some("*"),
                ..exact
            },
            FilterParts {
                operation: 2,
                ..exact
            },
            FilterParts {
                permission_type: 2,
                ..exact
            },
        ];
        for other in others {
            assert!(!matches(other, &acl), "{other:?}");
        }
    }

    #[test]
    fn match_finds_the_name_the_wildcard_and_its_prefixes() {
        let named = |pattern_type| FilterParts {
            resource_name: Some("orders"),
            pattern_type,
            ..OPEN
        };
        let cases = [
            ("orders", PatternType::Literal, true, true),
            ("*", PatternType::Literal, true, false),
            ("ord", PatternType::Prefixed, true, false),
            ("orders", PatternType::Prefixed, true, true),
            ("orders2", PatternType::Prefixed, false, false),
            ("ord", PatternType::Literal, false, false),
        ];
        for (name, pattern_type, in_match, in_any) in cases {
            let acl = acl(name, pattern_type);
            assert_eq!(matches(named(MATCH), &acl), in_match, "{name} {pattern_type:?}");
            assert_eq!(matches(named(ANY), &acl), in_any, "{name} {pattern_type:?}");
        }
    }

    #[test]
    fn codes_that_no_acl_has_are_refused() {
        let wrong = [
            FilterParts {
                resource_type: 0,
                ..OPEN
            },
            FilterParts {
                resource_type: 8,
                ..OPEN
            },
            FilterParts {
                pattern_type: 0,
                ..OPEN
            },
            FilterParts {
                pattern_type: 5,
                ..OPEN
            },
            FilterParts { operation: 0, ..OPEN },
            FilterParts {
                operation: 16,
                ..OPEN
            },
            FilterParts {
                permission_type: 0,
                ..OPEN
            },
            FilterParts {
                permission_type: -1,
                ..OPEN
            },
        ];
        for parts in wrong {
            let refusal = AclFilter::new(parts).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{parts:?}");
        }
    }
}
