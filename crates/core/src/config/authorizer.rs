//! The settings of access control.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ConfigError, Properties};

const CLASS_KEY: &str = "authorizer.class.name";
const SUPER_USERS_KEY: &str = "super.users";
const STANDARD_AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// Settings of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfig {
    /// Principals with their type, e.g. `User:admin`.
    pub super_users: BTreeSet<Arc<str>>,
    /// `allow.everyone.if.no.acl.found`
    pub allow_without_acl: bool,
}

/// - Returns: `None` without an authorizer.
pub(super) fn read(read: &Properties<'_>) -> Result<Option<AuthorizerConfig>, ConfigError> {
    let super_users = super_users(read.text(SUPER_USERS_KEY).unwrap_or_default())?;
    let allow_without_acl = read.boolean("allow.everyone.if.no.acl.found")?;
    match read.text(CLASS_KEY) {
        None => Ok(None),
        Some(STANDARD_AUTHORIZER) => Ok(Some(AuthorizerConfig {
            super_users,
            allow_without_acl,
        })),
        Some(other) => {
            let problem = format!("there is one authorizer: {STANDARD_AUTHORIZER}; empty for none");
            Err(ConfigError::new(CLASS_KEY, other, problem))
        }
    }
}

/// Semicolons, because the distinguished name of a certificate has commas.
fn super_users(value: &str) -> Result<BTreeSet<Arc<str>>, ConfigError> {
    let principals = value
        .split(';')
        .map(str::trim)
        .filter(|principal| !principal.is_empty());
    principals
        .map(|principal| match principal.split_once(':') {
            Some((kind, _)) if !kind.is_empty() => Ok(principal.into()),
            _ => {
                let problem = format!("`{principal}` is not a principal: User:{principal}");
                Err(ConfigError::new(SUPER_USERS_KEY, value, problem))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(lines: &[(&str, &str)]) -> Result<Option<AuthorizerConfig>, ConfigError> {
        let pairs = lines
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let values: BTreeMap<String, String> = pairs.collect();
        read(&Properties { values: &values })
    }

    #[test]
    fn without_a_class_there_is_no_authorizer() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[(CLASS_KEY, " "), (SUPER_USERS_KEY, "User:a")]), Ok(None));
    }

    #[test]
    fn super_users_are_separated_by_semicolons_and_may_have_commas() {
        let users = " User:admin ;;User:CN=ops,O=example; ";
        let read = of(&[(CLASS_KEY, STANDARD_AUTHORIZER), (SUPER_USERS_KEY, users)]);
        let config = read.unwrap().unwrap();
        let users: Vec<&str> = config.super_users.iter().map(|user| &**user).collect();
        assert_eq!(users, ["User:CN=ops,O=example", "User:admin"]);
        assert!(!config.allow_without_acl);
    }

    #[test]
    fn other_classes_and_names_without_type_prevent_the_start() {
        let old = "kafka.security.authorizer.AclAuthorizer";
        assert_eq!(of(&[(CLASS_KEY, old)]).unwrap_err().key, CLASS_KEY);
        let error = of(&[
            (CLASS_KEY, STANDARD_AUTHORIZER),
            (SUPER_USERS_KEY, "User:a;admin"),
        ])
        .unwrap_err();
        assert_eq!(error.key, SUPER_USERS_KEY);
        assert!(error.problem.contains("`admin`"), "{error}");
        assert!(of(&[(SUPER_USERS_KEY, "admin")]).is_err());
    }

    #[test]
    fn resources_without_acls_can_be_opened() {
        let lines = [
            (CLASS_KEY, STANDARD_AUTHORIZER),
            ("allow.everyone.if.no.acl.found", "true"),
        ];
        assert!(of(&lines).unwrap().unwrap().allow_without_acl);
    }
}
