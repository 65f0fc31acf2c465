//! ACLs and users.

use ottla_broker::AdminView;
use ottla_broker::acl::{Operation, PatternType, Permission, ResourceType};
use ottla_console::source::{Access, AccessRule};

pub fn read(view: &AdminView) -> Access {
    let node = &view.node;
    let image = node.image().clone();
    let rules = image.acls.values().map(|acl| AccessRule {
        principal: acl.principal.to_string(),
        permission: named(
            Permission::from_code(acl.permission_type).map(Permission::name),
            acl.permission_type,
        ),
        operation: named(
            Operation::from_code(acl.operation).map(Operation::name),
            acl.operation,
        ),
        resource: resource(acl.resource_type, acl.pattern_type, &acl.resource_name),
        host: acl.host.to_string(),
    });
    let mut users: Vec<String> = image
        .scram_credentials
        .keys()
        .map(|key| key.user.to_string())
        .collect();
    users.dedup();
    let denials = node.access.denials().unwrap_or_default();
    Access {
        authorizer: node.access.is_on().then(|| String::from("StandardAuthorizer")),
        rules: rules.collect(),
        users,
        denials: denials
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect(),
    }
}

/// The name of a code; the code itself where it has none.
fn named(name: Option<&'static str>, code: i8) -> String {
    name.map_or_else(|| code.to_string(), str::to_owned)
}

/// `Topic orders`, `Group billing*`.
fn resource(resource_type: i8, pattern_type: i8, name: &str) -> String {
    let kind = named(
        ResourceType::from_code(resource_type).map(ResourceType::name),
        resource_type,
    );
    let is_prefix = PatternType::from_code(pattern_type) == Some(PatternType::Prefixed);
    format!("{kind} {name}{}", if is_prefix { "*" } else { "" })
}
