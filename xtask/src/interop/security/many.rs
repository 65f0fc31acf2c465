//! 200 ACLs and 20 users of SCRAM that change hands with a directory: each broker lists and accepts
//! what the other has written, and has none of it after the other has removed it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use ottla_client::admin::{Acl, Admin, ScramCredential, ScramMechanism};
use ottla_client::config::Password;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::delete_acls::{DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse};
use ottla_wire::primitives::Reader;

use super::broker::{Broker, admin};
use super::exchange::Caller;
use super::{at, sasl_as, trusting};
use crate::interop::matrix::sent;

const ACLS: u8 = 200;
const USERS: u8 = 20;
const MECHANISMS: [(ScramMechanism, &str); 2] = [
    (ScramMechanism::Sha256, "SCRAM-SHA-256"),
    (ScramMechanism::Sha512, "SCRAM-SHA-512"),
];
const DELETE_ACLS_VERSION: i16 = 3;

/// Creates all of them, the ACLs twice: of equal ACLs with two ids Apache Kafka could not remove
/// one.
pub fn create(broker: &Broker) -> Result<()> {
    let admin = admin(&broker.site)?;
    for _ in 0..2 {
        for result in admin.create_acls(acls().collect()).wait()? {
            result.context("an ACL of 200")?;
        }
    }
    change_users(&admin, |mechanism, user| ScramCredential::Set {
        mechanism,
        password: Password::new(&password(user)),
        rounds: Some(4_096),
    })
}

/// Checks that the broker has them all, and that every user gets in by both mechanisms.
///
/// - `listed`: by kafka-acls.
pub fn check(broker: &Broker, listed: &BTreeSet<String>) -> Result<()> {
    let known: BTreeSet<Acl> = admin(&broker.site)?.describe_acls().wait()?.into_iter().collect();
    for acl in acls() {
        ensure!(known.contains(&acl), "{acl:?} is gone");
    }
    ensure!(
        listed.len() == known.len(),
        "kafka-acls lists {} of {} ACLs",
        listed.len(),
        known.len()
    );
    for user in users() {
        for (_, mechanism) in MECHANISMS {
            log_in(broker, mechanism, &user, &password(&user))
                .with_context(|| format!("{user} by {mechanism}"))?;
        }
    }
    refused(broker, "wrong")
}

pub fn remove(broker: &Broker) -> Result<()> {
    remove_acls(broker.site.port)?;
    change_users(&admin(&broker.site)?, |mechanism, _| ScramCredential::Delete {
        mechanism,
    })
}

pub fn check_gone(broker: &Broker) -> Result<()> {
    let admin = admin(&broker.site)?;
    let known: BTreeSet<Acl> = admin.describe_acls().wait()?.into_iter().collect();
    if let Some(left) = acls().find(|acl| known.contains(acl)) {
        anyhow::bail!("{left:?} is left");
    }
    let described = admin.describe_scram_credentials(Vec::new()).wait()?;
    if let Some(left) = users().find(|user| described.contains_key(user)) {
        anyhow::bail!("the user {left} is left");
    }
    refused(broker, &password(&users().next().unwrap_or_default()))
}

fn refused(broker: &Broker, password: &str) -> Result<()> {
    let user = users().next().context("the first user")?;
    for (_, mechanism) in MECHANISMS {
        let error = log_in(broker, mechanism, &user, password)
            .err()
            .with_context(|| format!("{user} got in by {mechanism}"))?;
        ensure!(error.to_string().contains("invalid credentials"), "{error}");
    }
    Ok(())
}

fn log_in(broker: &Broker, mechanism: &str, user: &str, password: &str) -> Result<()> {
    let config = trusting(at(broker, "SASLSSL", "SASL_SSL"), &broker.authority.file);
    let config = sasl_as(config, mechanism, user, password);
    Ok(Caller::Admin.attempt(&config, std::time::Duration::ZERO)?)
}

fn users() -> impl Iterator<Item = String> {
    // Names with what SCRAM escapes. Apache Kafka's SCRAM takes no name beyond ASCII.
    (0..USERS).map(|number| match number {
        0 => "o'neil=a,b".to_owned(),
        1 => "a b\\c@d".to_owned(),
        _ => format!("user-{number}"),
    })
}

fn password(user: &str) -> String {
    format!("{user}'s; \"pass\\word\"")
}

/// One request for each mechanism: brokers take a user once in a request.
fn change_users(admin: &Admin, change: impl Fn(ScramMechanism, &str) -> ScramCredential) -> Result<()> {
    for (mechanism, _) in MECHANISMS {
        let changes = users().map(|user| {
            let change = change(mechanism, &user);
            (user, change)
        });
        for (user, result) in admin.alter_scram_credentials(changes.collect()).wait()? {
            result.with_context(|| format!("the credential of {user}"))?;
        }
    }
    Ok(())
}

/// All different: of every kind of resource and pattern, operations, hosts and permissions in turn.
fn acls() -> impl Iterator<Item = Acl> {
    const LITERAL: i8 = 3;
    const PREFIXED: i8 = 4;
    let users: Vec<String> = users().collect();
    (0..ACLS).map(move |number| {
        let (resource_type, resource_name, pattern_type) = match number % 8 {
            0 => (2, format!("orders-{number}"), LITERAL),
            1 => (2, format!("team-{number}."), PREFIXED),
            2 => (2, "*".to_owned(), LITERAL),
            3 => (3, format!("grüppe {number}"), LITERAL),
            4 => (3, format!("app-{number}-"), PREFIXED),
            5 => (4, "kafka-cluster".to_owned(), LITERAL),
            6 => (5, format!("tx-{number}"), PREFIXED),
            _ => (5, "*".to_owned(), LITERAL),
        };
        let principal = match number % 5 {
            // Not every user may do something with every topic: the other users' limits stay.
            1 if resource_name != "*" => "User:*".to_owned(),
            0 | 1 => format!("User:CN=client {number},OU=a\\+b,O=o\\, inc"),
            _ => format!("User:{}", users[usize::from(number % USERS)]),
        };
        let host = match number % 3 {
            0 => "*".to_owned(),
            1 => format!("10.0.0.{number}"),
            _ => format!("2001:db8:0:0:0:0:0:{number:x}"),
        };
        let mut acl = Acl::allowing(principal, 2 + (number % 11) as i8, resource_type, resource_name);
        acl.pattern_type = pattern_type;
        acl.host = host;
        acl.permission_type = if number % 7 == 0 { 2 } else { 3 };
        acl
    })
}

/// One filter for each, in one request.
fn remove_acls(port: u16) -> Result<()> {
    let acls: Vec<Acl> = acls().collect();
    let filters = acls.iter().map(|acl| DeleteAclsFilter {
        resource_type_filter: acl.resource_type,
        resource_name_filter: Some(&acl.resource_name),
        pattern_type_filter: acl.pattern_type,
        principal_filter: Some(&acl.principal),
        host_filter: Some(&acl.host),
        operation: acl.operation,
        permission_type: acl.permission_type,
    });
    let request = DeleteAclsRequest {
        filters: filters.collect(),
    };
    let version = DELETE_ACLS_VERSION;
    let frame = sent(port, ApiKey::DeleteAcls, version, |body| {
        request.encode(body, version)
    })?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::DeleteAcls, version)?;
    let response = DeleteAclsResponse::decode(&mut reader, version)?;
    ensure!(
        response.filter_results.len() == acls.len(),
        "{} results",
        response.filter_results.len()
    );
    for (acl, result) in acls.iter().zip(&response.filter_results) {
        let removed = result.matching_acls.len();
        ensure!(
            result.error_code == 0 && removed == 1,
            "{acl:?}: error code {}, {removed} removed",
            result.error_code
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_acls_are_different() {
        assert_eq!(acls().collect::<BTreeSet<Acl>>().len(), usize::from(ACLS));
    }
}
