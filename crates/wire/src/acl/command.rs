//! Commands of Apache Kafka's `kafka-acls.sh` that add or remove one ACL.

use super::{Operation, PatternType, Permission, ResourceType, WILDCARD};

pub const TOOL: &str = "kafka-acls.sh";

/// One ACL, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclWords<'a> {
    pub resource_type: ResourceType,
    pub resource: &'a str,
    pub pattern_type: PatternType,
    pub principal: &'a str,
    pub host: &'a str,
    pub operation: Operation,
    pub permission: Permission,
}

impl AclWords<'_> {
    /// - Shape: for a POSIX shell, on one line.
    /// - `servers`: of `--bootstrap-server`.
    pub fn adding(self, servers: &str) -> String {
        self.command(servers, "--add")
    }

    pub fn removing(self, servers: &str) -> String {
        self.command(servers, "--remove --force")
    }

    fn command(self, servers: &str, action: &str) -> String {
        let permission = match self.permission {
            Permission::Allow => "allow",
            Permission::Deny => "deny",
        };
        let mut command = format!(
            "{TOOL} --bootstrap-server {} {action} --{permission}-principal {}",
            quoted(servers),
            quoted(self.principal)
        );
        if self.host != WILDCARD {
            command.push_str(&format!(" --{permission}-host {}", quoted(self.host)));
        }
        command.push_str(&format!(" --operation {}", self.operation.name()));
        command.push_str(&match self.resource_type {
            ResourceType::Cluster => " --cluster".to_owned(),
            other => format!(" --{} {}", option_of(other), quoted(self.resource)),
        });
        if self.pattern_type == PatternType::Prefixed {
            command.push_str(" --resource-pattern-type prefixed");
        }
        command
    }
}

fn option_of(resource_type: ResourceType) -> &'static str {
    match resource_type {
        ResourceType::Topic => "topic",
        ResourceType::Group => "group",
        ResourceType::Cluster => "cluster",
        ResourceType::TransactionalId => "transactional-id",
        ResourceType::DelegationToken => "delegation-token",
        ResourceType::User => "user-principal",
    }
}

/// Returns `word` as one word of a POSIX shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_=./:,@%+".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACL: AclWords<'_> = AclWords {
        resource_type: ResourceType::Topic,
        resource: "orders",
        pattern_type: PatternType::Literal,
        principal: "User:app",
        host: WILDCARD,
        operation: Operation::Write,
        permission: Permission::Allow,
    };

    #[test]
    fn a_command_says_what_differs_from_the_tools_defaults() {
        assert_eq!(
            ACL.adding("kafka:9092"),
            "kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal User:app --operation Write --topic orders"
        );
        let denial = AclWords {
            resource_type: ResourceType::Cluster,
            resource: "kafka-cluster",
            host: "10.0.0.1",
            operation: Operation::IdempotentWrite,
            permission: Permission::Deny,
            ..ACL
        };
        assert_eq!(
            denial.removing("kafka:9092"),
            "kafka-acls.sh --bootstrap-server kafka:9092 --remove --force --deny-principal User:app --deny-host 10.0.0.1 --operation IdempotentWrite --cluster"
        );
        let prefixed = AclWords {
            resource_type: ResourceType::TransactionalId,
            pattern_type: PatternType::Prefixed,
            ..ACL
        };
        assert!(
            prefixed
                .adding("k:1")
                .ends_with("--transactional-id orders --resource-pattern-type prefixed")
        );
    }

    #[test]
    fn names_cannot_leave_their_word() {
        for name in ["*", "a b", "$(reboot)", "`x`", "a;b", "", "it's", "a\nb"] {
            let command = AclWords {
                resource: name,
                ..ACL
            }
            .adding("k:1");
            let quoted = format!("'{}'", name.replace('\'', r"'\''"));
            assert!(command.ends_with(&format!("--topic {quoted}")), "{command}");
        }
        let principal = AclWords {
            principal: "User:CN=app,O=Ex ample",
            ..ACL
        };
        assert!(
            principal
                .adding("k:1")
                .contains("--allow-principal 'User:CN=app,O=Ex ample' ")
        );
    }
}
