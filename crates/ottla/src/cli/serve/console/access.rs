//! ACLs and users.

use ottla_broker::AdminView;
use ottla_console::source::{Access, AccessAnswer, AccessQuestion};

use crate::cli::access::cluster::Authorizer;
use crate::cli::access::explanation::explain;
use crate::cli::access::list::AclRow;

pub fn read(view: &AdminView) -> Access {
    let node = &view.node;
    let image = node.image().clone();
    let mut users: Vec<String> = image
        .scram_credentials
        .keys()
        .map(|key| key.user.to_string())
        .collect();
    users.dedup();
    let denials = node.access.denials().unwrap_or_default();
    Access {
        authorizer: node.access.is_on().then(|| String::from("StandardAuthorizer")),
        rules: image.acls.values().map(|acl| AclRow::of(acl).rule()).collect(),
        users,
        denials: denials
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect(),
    }
}

/// - `servers`: of the commands that would allow it.
pub fn answer(view: &AdminView, question: &AccessQuestion, servers: &str) -> AccessAnswer {
    let config = view.node.config().authorizer.as_ref();
    let authorizer = config.map_or_else(Authorizer::default, |config| Authorizer {
        acls: Some(view.node.image().acls.values().cloned().collect()),
        super_users: Some(config.super_users.iter().map(ToString::to_string).collect()),
        allow_without_acl: Some(config.allow_without_acl),
    });
    explain(question, &authorizer, servers).answer()
}
