//! ACLs and users.

use ottla_client::admin::Admin;
use ottla_console::source::{Access, Told};

use super::cluster::untold;
use crate::cli::access::cluster::acls_of;
use crate::cli::access::list::AclRow;

pub fn read(admin: &Admin) -> Told<Access> {
    let acls = acls_of(admin).map_err(|error| untold(&error))?;
    // A client that may describe ACLs need not be allowed to describe users.
    let users = admin
        .describe_scram_credentials(Vec::new())
        .wait()
        .unwrap_or_default();
    Ok(Access {
        authorizer: acls.as_ref().map(|_| String::from("An authorizer")),
        rules: acls
            .unwrap_or_default()
            .iter()
            .map(|acl| AclRow::of(acl).rule())
            .collect(),
        users: users.into_keys().collect(),
        denials: Vec::new(),
    })
}
