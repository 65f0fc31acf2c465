//! Why an operation is allowed or denied, by the decision of the broker's own authorizer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ottla_broker::access::acl::command::{AclWords, TOOL, quoted};
use ottla_broker::access::acl::{CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, WILDCARD};
use ottla_broker::access::{AclImage, AclIndex, Asker, Decision, Uuid};
use ottla_console::source::{AccessAnswer, AccessQuestion};
use serde::Serialize;

use super::cluster::Authorizer;
use super::list::{AclRow, VERSION};
use crate::cli::doctor::text::clean;

/// At most this many hosts for which the answer differs are named.
const HOSTS_MAX: usize = 5;

/// What decides. The JSON uses the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    NoAuthorizer,
    SuperUser,
    AllowingAcl,
    DenyingAcl,
    /// The resource has ACLs, and none is about this.
    NoAclApplies,
    /// The resource has no ACL.
    NoAcl,
}

#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub version: u32,
    pub principal: String,
    /// `None`: a host that no ACL names.
    pub host: Option<IpAddr>,
    pub operation: &'static str,
    pub resource_type: &'static str,
    pub resource: String,
    pub allowed: bool,
    pub reason: Reason,
    /// The ACL that decides.
    pub acl: Option<AclRow>,
    /// What would allow it, in this order; empty if it is allowed.
    pub commands: Vec<String>,
    /// What the answer depends on besides.
    pub notes: Vec<String>,
}

/// - `servers`: of the commands.
pub fn explain(asked: &AccessQuestion, authorizer: &Authorizer, servers: &str) -> Explanation {
    let mut explanation = Explanation {
        version: VERSION,
        principal: asked.principal.clone(),
        host: asked.host,
        operation: asked.operation.name(),
        resource_type: asked.resource_type.name(),
        resource: asked.resource.clone(),
        allowed: true,
        reason: Reason::NoAuthorizer,
        acl: None,
        commands: Vec::new(),
        notes: Vec::new(),
    };
    let Some(acls) = &authorizer.acls else {
        return explanation;
    };
    let super_users = authorizer.super_users.as_ref();
    if super_users.is_some_and(|users| users.contains(&asked.principal)) {
        explanation.reason = Reason::SuperUser;
        return explanation;
    }
    if super_users.is_none() {
        explanation.notes.push(format!(
            "whether {} is one of super.users is not known: the broker does not tell (Apache Kafka never does)",
            asked.principal
        ));
    }
    let without_acl = authorizer.allow_without_acl.unwrap_or(false);
    let acls = Acls::of(acls.iter().map(|acl| (acl.id, acl.clone())).collect());
    let decision = acls.decide(asked, acls.host(asked));
    explanation.allowed = decision.is_allowed(without_acl);
    explanation.acl = acls.row(decision);
    explanation.reason = match decision {
        Decision::Allowed(_) => Reason::AllowingAcl,
        Decision::Denied(_) => Reason::DenyingAcl,
        Decision::NoneApplies => Reason::NoAclApplies,
        Decision::NoAcl => Reason::NoAcl,
    };
    if decision == Decision::NoAcl && authorizer.allow_without_acl.is_none() {
        explanation
            .notes
            .push("allow.everyone.if.no.acl.found is not known and taken for false, its default".to_owned());
    }
    explanation
        .notes
        .extend(acls.other_hosts(asked, explanation.allowed, without_acl));
    if !explanation.allowed {
        explanation.commands = acls.remedy(asked, servers, without_acl);
        explanation
            .notes
            .extend(acls.allowed_otherwise(asked, without_acl));
        explanation.notes.extend(not_taken(asked));
    }
    explanation
}

/// A cluster's ACLs, and their index.
struct Acls {
    images: BTreeMap<Uuid, AclImage>,
    index: AclIndex,
}

impl Acls {
    fn of(images: BTreeMap<Uuid, AclImage>) -> Acls {
        let index = AclIndex::new(&images);
        Acls { images, index }
    }

    fn decide(&self, asked: &AccessQuestion, address: IpAddr) -> Decision {
        let asker = Asker {
            principal: &asked.principal,
            address,
        };
        self.index
            .decide(asker, asked.operation, asked.resource_type, &asked.resource)
    }

    /// Returns the host that is asked about, or one that no ACL names.
    fn host(&self, asked: &AccessQuestion) -> IpAddr {
        let named = self.hosts();
        let others = (0_u128..).map(|number| IpAddr::from(Ipv6Addr::from(number)));
        let mut others = others.filter(|address| !named.contains(address));
        asked
            .host
            .or_else(|| others.next())
            .expect("ACLs do not name all addresses")
    }

    fn hosts(&self) -> BTreeSet<IpAddr> {
        let hosts = self.images.values().filter_map(|acl| acl.host.parse().ok());
        hosts.map(|host: IpAddr| host.to_canonical()).collect()
    }

    /// Names the hosts for which the answer is another one, where no host was asked about.
    fn other_hosts(&self, asked: &AccessQuestion, allowed: bool, without_acl: bool) -> Option<String> {
        if asked.host.is_some() {
            return None;
        }
        let is_other = |host: &IpAddr| self.decide(asked, *host).is_allowed(without_acl) != allowed;
        let hosts: Vec<IpAddr> = self.hosts().into_iter().filter(is_other).collect();
        let (first, more) = hosts.split_at(hosts.len().min(HOSTS_MAX));
        let mut names: Vec<String> = first.iter().map(IpAddr::to_string).collect();
        if !more.is_empty() {
            names.push(format!("{} more", more.len()));
        }
        let answer = if allowed { "denied" } else { "allowed" };
        (!names.is_empty()).then(|| format!("from these hosts it is {answer}: {}", names.join(", ")))
    }

    /// Says where another permission does as well, so that clients are served although this one is
    /// missing.
    fn allowed_otherwise(&self, asked: &AccessQuestion, without_acl: bool) -> Option<String> {
        let address = self.host(asked);
        let asker = Asker {
            principal: &asked.principal,
            address,
        };
        let index = &self.index;
        match (asked.operation, asked.resource_type) {
            (Operation::IdempotentWrite, ResourceType::Cluster) => index
                .allows_somewhere(asker, Operation::Write, ResourceType::Topic, without_acl)
                .then(|| {
                    "its producers may be idempotent all the same: it may write to a topic (KIP-679)"
                        .to_owned()
                }),
            (Operation::Create, ResourceType::Topic) => index
                .allows(
                    asker,
                    Operation::Create,
                    ResourceType::Cluster,
                    CLUSTER_NAME,
                    without_acl,
                )
                .then(|| "it may create topics all the same: it has Create on the cluster".to_owned()),
            _ => None,
        }
    }

    fn row(&self, decision: Decision) -> Option<AclRow> {
        let (Decision::Allowed(id) | Decision::Denied(id)) = decision else {
            return None;
        };
        Some(AclRow::of(&self.images[&id]))
    }

    /// Returns the commands after which it is allowed: every denial in the way is removed, then the
    /// permission is added unless there is one.
    fn remedy(&self, asked: &AccessQuestion, servers: &str, without_acl: bool) -> Vec<String> {
        let address = self.host(asked);
        let mut acls = Acls::of(self.images.clone());
        let mut commands = Vec::new();
        while let Decision::Denied(id) = acls.decide(asked, address) {
            let mut images = acls.images;
            let denial = images.remove(&id).expect("it has just decided");
            commands.extend(words(&denial).map(|words| words.removing(servers)));
            acls = Acls::of(images);
        }
        let is_taken = asked.resource_type.operations().contains(&asked.operation);
        if is_taken && !acls.decide(asked, address).is_allowed(without_acl) {
            commands.push(missing(asked).adding(servers));
        }
        commands
    }
}

/// Says so if there can be no ACL about this.
fn not_taken(asked: &AccessQuestion) -> Option<String> {
    let operations = asked.resource_type.operations();
    let names: Vec<&str> = operations.iter().map(|operation| operation.name()).collect();
    (!operations.contains(&asked.operation)).then(|| {
        format!(
            "{TOOL} takes no {} of a {}; it takes {}",
            asked.operation.name(),
            asked.resource_type.name(),
            names.join(", ")
        )
    })
}

/// Returns the narrowest ACL that allows what is asked, from any host.
fn missing(asked: &AccessQuestion) -> AclWords<'_> {
    AclWords {
        resource_type: asked.resource_type,
        resource: &asked.resource,
        pattern_type: PatternType::Literal,
        principal: &asked.principal,
        host: WILDCARD,
        operation: asked.operation,
        permission: Permission::Allow,
    }
}

/// - Returns: `None` if a code has no name here.
fn words(acl: &AclImage) -> Option<AclWords<'_>> {
    Some(AclWords {
        resource_type: ResourceType::from_code(acl.resource_type)?,
        resource: &acl.resource_name,
        pattern_type: PatternType::from_code(acl.pattern_type)?,
        principal: &acl.principal,
        host: &acl.host,
        operation: Operation::from_code(acl.operation)?,
        permission: Permission::from_code(acl.permission_type)?,
    })
}

impl Explanation {
    /// Has the commands reach the cluster with the settings of a file.
    pub fn reach_with(&mut self, command_config: &Path) {
        let file = quoted(&command_config.display().to_string());
        for command in &mut self.commands {
            *command = command.replacen(TOOL, &format!("{TOOL} --command-config {file}"), 1);
        }
    }

    pub fn text(&self) -> String {
        let verdict = if self.allowed { "allowed" } else { "denied" };
        let from = self.host.map_or_else(String::new, |host| format!(" from {host}"));
        let mut text = format!(
            "{verdict}: {} {} {} {}{from}\n",
            clean(&self.principal),
            self.operation,
            self.resource_type,
            clean(&self.resource)
        );
        let _ = writeln!(text, "because {}", self.because());
        for (number, command) in self.commands.iter().enumerate() {
            if number == 0 {
                text.push_str("what would allow it:\n");
            }
            let _ = writeln!(text, "  {}", clean(command));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", clean(note));
        }
        text
    }

    /// The same for a page of the console.
    pub fn answer(self) -> AccessAnswer {
        AccessAnswer {
            allowed: self.allowed,
            because: self.because(),
            commands: self.commands,
            notes: self.notes,
        }
    }

    fn because(&self) -> String {
        let acl = self.acl.as_ref().map(|acl| {
            format!(
                "{} {} {} on {} {} {} from {}",
                acl.permission,
                clean(&acl.principal),
                acl.operation,
                acl.pattern_type.to_lowercase(),
                acl.resource_type,
                clean(&acl.resource),
                clean(&acl.host)
            )
        });
        match self.reason {
            Reason::NoAuthorizer => "the cluster has no authorizer: everyone may do everything".to_owned(),
            Reason::SuperUser => "it is one of super.users".to_owned(),
            Reason::AllowingAcl | Reason::DenyingAcl => format!("of this ACL: {}", acl.unwrap_or_default()),
            Reason::NoAclApplies => "the resource has ACLs, and none of them allows this".to_owned(),
            Reason::NoAcl if self.allowed => {
                "the resource has no ACL, and allow.everyone.if.no.acl.found is true".to_owned()
            }
            Reason::NoAcl => "the resource has no ACL".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(permission: Permission, operation: Operation, pattern_type: PatternType, name: &str) -> AclImage {
        AclImage {
            id: Uuid::ZERO,
            resource_type: ResourceType::Topic.code(),
            resource_name: name.into(),
            pattern_type: pattern_type.code(),
            principal: "User:app".into(),
            host: "*".into(),
            operation: operation.code(),
            permission_type: permission.code(),
        }
    }

    fn authorizer(acls: Vec<AclImage>) -> Authorizer {
        let numbered = acls.into_iter().zip(1_u128..);
        let acls = numbered.map(|(acl, number)| AclImage {
            id: Uuid(number.to_be_bytes()),
            ..acl
        });
        Authorizer {
            acls: Some(acls.collect()),
            super_users: Some(["User:admin".to_owned()].into()),
            allow_without_acl: Some(false),
        }
    }

    fn asked() -> AccessQuestion {
        AccessQuestion {
            principal: "User:app".to_owned(),
            host: None,
            operation: Operation::Write,
            resource_type: ResourceType::Topic,
            resource: "orders".to_owned(),
        }
    }

    const ADD: &str = "kafka-acls.sh --bootstrap-server k:1 --add --allow-principal User:app --operation Write --topic orders";

    #[test]
    fn a_missing_permission_is_named_by_the_command_that_adds_it() {
        let explanation = explain(&asked(), &authorizer(Vec::new()), "k:1");
        assert_eq!((explanation.allowed, explanation.reason), (false, Reason::NoAcl));
        assert_eq!(explanation.commands, [ADD]);
        let others = acl(Permission::Allow, Operation::Read, PatternType::Literal, "orders");
        let explanation = explain(&asked(), &authorizer(vec![others]), "k:1");
        assert_eq!(explanation.reason, Reason::NoAclApplies);
        assert_eq!(explanation.commands, [ADD]);
        assert_eq!(
            explanation.text(),
            format!(
                "denied: User:app Write Topic orders\n\
                 because the resource has ACLs, and none of them allows this\n\
                 what would allow it:\n  {ADD}\n"
            )
        );
    }

    #[test]
    fn the_deciding_acl_is_named_and_all_denials_are_in_the_way() {
        let allowing = acl(Permission::Allow, Operation::All, PatternType::Literal, "orders");
        let denying = acl(Permission::Deny, Operation::Write, PatternType::Prefixed, "ord");
        let everyone = AclImage {
            principal: "User:*".into(),
            ..acl(Permission::Deny, Operation::All, PatternType::Literal, "*")
        };
        let explanation = explain(&asked(), &authorizer(vec![allowing.clone()]), "k:1");
        assert_eq!(explanation.reason, Reason::AllowingAcl);
        assert_eq!(explanation.acl, Some(AclRow::of(&allowing)));
        assert!(explanation.commands.is_empty());
        let explanation = explain(
            &asked(),
            &authorizer(vec![allowing, denying, everyone.clone()]),
            "k:1",
        );
        assert_eq!(explanation.reason, Reason::DenyingAcl);
        assert_eq!(
            explanation.commands,
            [
                "kafka-acls.sh --bootstrap-server k:1 --remove --force --deny-principal 'User:*' --operation All --topic '*'",
                "kafka-acls.sh --bootstrap-server k:1 --remove --force --deny-principal User:app --operation Write --topic ord --resource-pattern-type prefixed",
            ]
        );
        let explanation = explain(&asked(), &authorizer(vec![everyone]), "k:1");
        assert_eq!(explanation.commands.len(), 2);
        assert_eq!(explanation.commands[1], ADD);
    }

    #[test]
    fn super_users_and_clusters_without_an_authorizer_need_no_acl() {
        let admin = AccessQuestion {
            principal: "User:admin".to_owned(),
            ..asked()
        };
        let explanation = explain(&admin, &authorizer(Vec::new()), "k:1");
        assert_eq!(
            (explanation.allowed, explanation.reason),
            (true, Reason::SuperUser)
        );
        let explanation = explain(&asked(), &Authorizer::default(), "k:1");
        assert_eq!(
            (explanation.allowed, explanation.reason),
            (true, Reason::NoAuthorizer)
        );
    }

    #[test]
    fn a_permission_that_does_as_well_is_noted() {
        let ask = |operation, resource_type, resource: &str, acls| {
            let asked = AccessQuestion {
                operation,
                resource_type,
                resource: resource.to_owned(),
                ..asked()
            };
            explain(&asked, &authorizer(acls), "k:1")
        };
        let write = || {
            acl(
                Permission::Allow,
                Operation::Write,
                PatternType::Literal,
                "orders",
            )
        };
        let idempotent = |acls| {
            ask(
                Operation::IdempotentWrite,
                ResourceType::Cluster,
                CLUSTER_NAME,
                acls,
            )
        };
        let explanation = idempotent(vec![write()]);
        assert!(!explanation.allowed);
        assert!(
            explanation.notes[0].contains("KIP-679"),
            "{:?}",
            explanation.notes
        );
        assert_eq!(idempotent(Vec::new()).notes.len(), 0);
        let on_cluster = AclImage {
            resource_type: ResourceType::Cluster.code(),
            ..acl(
                Permission::Allow,
                Operation::Create,
                PatternType::Literal,
                CLUSTER_NAME,
            )
        };
        let explanation = ask(Operation::Create, ResourceType::Topic, "orders", vec![on_cluster]);
        assert!(!explanation.allowed);
        assert!(explanation.notes[0].contains("Create on the cluster"));
    }

    #[test]
    fn no_command_is_shown_that_kafkas_tool_would_not_take() {
        let asked = AccessQuestion {
            operation: Operation::Read,
            resource_type: ResourceType::Cluster,
            resource: CLUSTER_NAME.to_owned(),
            ..asked()
        };
        let explanation = explain(&asked, &authorizer(Vec::new()), "k:1");
        assert!(!explanation.allowed && explanation.commands.is_empty());
        assert!(
            explanation.notes[0].starts_with("kafka-acls.sh takes no Read of a Cluster; it takes Create,")
        );
    }

    #[test]
    fn commands_reach_the_cluster_with_the_same_settings() {
        let mut explanation = explain(&asked(), &authorizer(Vec::new()), "k:1");
        explanation.reach_with(Path::new("my admin.properties"));
        let option = "kafka-acls.sh --command-config 'my admin.properties' ";
        assert_eq!(explanation.commands, [ADD.replace("kafka-acls.sh ", option)]);
    }

    #[test]
    fn what_the_broker_does_not_tell_is_said() {
        let silent = Authorizer {
            acls: Some(Vec::new()),
            ..Authorizer::default()
        };
        let explanation = explain(&asked(), &silent, "k:1");
        assert!(!explanation.allowed);
        assert!(explanation.notes[0].contains("super.users is not known"));
        assert!(explanation.notes[1].contains("allow.everyone.if.no.acl.found"));
        let open = Authorizer {
            allow_without_acl: Some(true),
            ..authorizer(Vec::new())
        };
        let explanation = explain(&asked(), &open, "k:1");
        assert_eq!((explanation.allowed, explanation.reason), (true, Reason::NoAcl));
    }

    #[test]
    fn hosts_for_which_the_answer_differs_are_named() {
        let here = AclImage {
            host: "10.0.0.1".into(),
            ..acl(
                Permission::Allow,
                Operation::Write,
                PatternType::Literal,
                "orders",
            )
        };
        let authorizer = authorizer(vec![here]);
        let explanation = explain(&asked(), &authorizer, "k:1");
        assert!(!explanation.allowed);
        assert_eq!(explanation.notes, ["from these hosts it is allowed: 10.0.0.1"]);
        let there = AccessQuestion {
            host: Some("10.0.0.1".parse().unwrap()),
            ..asked()
        };
        let explanation = explain(&there, &authorizer, "k:1");
        assert!(explanation.allowed && explanation.notes.is_empty());
    }

    #[test]
    fn names_cannot_paint_the_terminal() {
        let asked = AccessQuestion {
            resource: "a\x1b[31m\nallowed".to_owned(),
            ..asked()
        };
        let text = explain(&asked, &authorizer(Vec::new()), "k:1").text();
        assert!(!text.contains('\x1b'));
        assert_eq!(text.lines().filter(|line| line.starts_with("allowed")).count(), 0);
    }
}
