//! ACLs as a table and as JSON.

use std::fmt::Write;

use ottla_broker::access::AclImage;
use ottla_broker::access::acl::{Operation, PatternType, Permission, ResourceType};
use ottla_console::source::AccessRule;
use serde::Serialize;

use crate::cli::doctor::text::clean;
use crate::cli::output::{self, Failure};
use crate::cli::table::align;

/// Version of the JSON of `ottla access`; it changes when a field is removed or changes its
/// meaning.
pub const VERSION: u32 = 1;

const HEADINGS: [&str; 7] = [
    "TYPE",
    "RESOURCE",
    "PATTERN",
    "PRINCIPAL",
    "HOST",
    "OPERATION",
    "PERMISSION",
];

/// An ACL with names in place of codes; a code without a name is a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AclRow {
    pub resource_type: String,
    pub resource: String,
    pub pattern_type: String,
    pub principal: String,
    pub host: String,
    pub operation: String,
    pub permission: String,
}

impl AclRow {
    pub fn of(acl: &AclImage) -> AclRow {
        let name =
            |name: Option<&'static str>, code: i8| name.map_or_else(|| code.to_string(), str::to_owned);
        AclRow {
            resource_type: name(
                ResourceType::from_code(acl.resource_type).map(ResourceType::name),
                acl.resource_type,
            ),
            resource: acl.resource_name.to_string(),
            pattern_type: name(
                PatternType::from_code(acl.pattern_type).map(PatternType::name),
                acl.pattern_type,
            ),
            principal: acl.principal.to_string(),
            host: acl.host.to_string(),
            operation: name(
                Operation::from_code(acl.operation).map(Operation::name),
                acl.operation,
            ),
            permission: name(
                Permission::from_code(acl.permission_type).map(Permission::name),
                acl.permission_type,
            ),
        }
    }

    /// The same for a page of the console.
    pub fn rule(self) -> AccessRule {
        let is_prefix = self.pattern_type == PatternType::Prefixed.name();
        AccessRule {
            principal: self.principal,
            permission: self.permission,
            operation: self.operation,
            resource: format!(
                "{} {}{}",
                self.resource_type,
                self.resource,
                if is_prefix { "*" } else { "" }
            ),
            host: self.host,
        }
    }

    fn cells(&self) -> [String; HEADINGS.len()] {
        [
            &self.resource_type,
            &self.resource,
            &self.pattern_type,
            &self.principal,
            &self.host,
            &self.operation,
            &self.permission,
        ]
        .map(|cell| clean(cell))
    }
}

pub fn text(acls: &[AclImage]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(acls.iter().map(|acl| AclRow::of(acl).cells()));
    let mut text = String::new();
    for line in align(&rows, HEADINGS.len()) {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

pub fn json(acls: &[AclImage]) -> Result<String, Failure> {
    let rows: Vec<AclRow> = acls.iter().map(AclRow::of).collect();
    output::json(&serde_json::json!({ "version": VERSION, "acls": rows }))
}
