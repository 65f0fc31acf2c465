//! ACLs and users.

use ottla_broker::AdminView;
use ottla_console::source::Access;

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
