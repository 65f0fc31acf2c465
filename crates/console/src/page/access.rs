//! `/access`: who may do what, and why.

use std::net::IpAddr;

use ottla_lab::markup::Markup;
use ottla_lab::numbers::count;
use ottla_wire::acl::{CLUSTER_NAME, Operation, ResourceType};
use ottla_wire::text::printable;
use serde_json::json;

use super::{Page, Query, View, draw_choice, draw_field, draw_pager, lead_of, paged};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::table::{Cell, Table, words};
use crate::draw::text::{Piece, counted, name, plain, strong, text};
use crate::source::{Access, AccessAnswer, AccessQuestion, Part, Told, Untold};

pub fn page(view: &View<'_>) -> Page {
    let access = view.source.access();
    let lead = lead_of(&access, lead);
    let answer = asked(view.query).map(|asked| {
        let question = asked.map_err(Untold)?;
        view.source.explain_access(&question)
    });
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": access.as_ref().err(),
            "access": access.as_ref().ok(),
            "explanation": answer.as_ref().and_then(|answer| answer.as_ref().ok()),
            "not_explained": answer.as_ref().and_then(|answer| answer.as_ref().err()),
        })
    });
    let mut blocks = vec![head("Access", "", &lead, &view.since(Part::Access))];
    if let Ok(access) = &access {
        blocks.push(explanation(&answer, view.query));
        blocks.push(block(
            "rules",
            "Access control lists",
            "A rule that denies takes precedence over all that allow.",
            |page| {
                if access.rules.is_empty() {
                    return nothing("There is no rule. kafka-acls.sh adds one.", page);
                }
                let columns = vec![
                    words("principal"),
                    words("may"),
                    words("operation"),
                    words("resource"),
                    words("from host"),
                ];
                let mut table = Table::new("Rules", columns);
                let (shown, text) = paged(&access.rules, view.query, "rules");
                for rule in shown {
                    let is_denied = rule.permission.eq_ignore_ascii_case("deny");
                    table.row(vec![
                        name(&rule.principal).into(),
                        match is_denied {
                            true => Cell::Mark {
                                class: "bad",
                                mark: "✗",
                                word: String::from("denied"),
                            },
                            false => Cell::Mark {
                                class: "good",
                                mark: "✓",
                                word: String::from("allowed"),
                            },
                        },
                        rule.operation.as_str().into(),
                        name(&rule.resource).into(),
                        name(&rule.host).into(),
                    ]);
                }
                table.draw(page);
                draw_pager(&text, view.query, access.rules.len(), page);
            },
        ));
        blocks.push(block(
            "users",
            "SCRAM users",
            "Names only; what is stored of a password never leaves the broker.",
            |page| match access.users.is_empty() {
                true => nothing("There is none.", page),
                false => page.leaf(
                    "p",
                    &[],
                    access
                        .users
                        .iter()
                        .map(|user| name(user))
                        .collect::<Vec<_>>()
                        .join(", "),
                ),
            },
        ));
    }
    Page {
        title: String::from("Access"),
        place: "/access",
        json: document,
        blocks,
    }
}

fn lead(access: &Access) -> Vec<Piece> {
    let denied: u64 = access.denials.iter().map(|(_, count)| count).sum();
    if access.authorizer.is_none() {
        return vec![
            strong("Every client may do everything"),
            text(": no authorizer is configured (authorizer.class.name)."),
        ];
    }
    vec![
        strong(counted(access.rules.len(), "rule")),
        text(match denied {
            0 => String::from("; nothing has been denied since the broker started."),
            many => format!(
                "; {} operations have been denied since the broker started.",
                count(many)
            ),
        }),
    ]
}

/// What the form asks for; `None`: nothing.
///
/// - Shape: `?principal=User:app&operation=Write&type=Topic&name=orders`, and `host` if it matters.
/// - Errors: what is wrong with it, as a sentence.
fn asked(query: &Query) -> Option<Result<AccessQuestion, String>> {
    query.get("principal").map(|principal| question(principal, query))
}

fn question(principal: &str, query: &Query) -> Result<AccessQuestion, String> {
    let text = |field| query.get(field).unwrap_or_default().trim();
    let operation = AccessQuestion::operation(text("operation"));
    let resource_type = ResourceType::named(text("type")).ok_or_else(|| {
        let names: Vec<&str> = ResourceType::ALL.iter().map(|one| one.name()).collect();
        format!("type must be one of {}.", names.join(", "))
    })?;
    let resource = match (resource_type, text("name")) {
        (ResourceType::Cluster, _) => CLUSTER_NAME,
        (resource_type, "") => return Err(format!("name is missing: which {}?", resource_type.name())),
        (_, name) => name,
    };
    let host = match text("host") {
        "" => None,
        host => Some(host.parse::<IpAddr>().map_err(|_| {
            let shown = name(host);
            format!("host wants an address as 10.0.4.19, not {shown}: ACLs know no names of hosts.")
        })?),
    };
    Ok(AccessQuestion {
        principal: AccessQuestion::principal(principal.trim()).map_err(|wrong| format!("{wrong}."))?,
        host: host.map(|host| host.to_canonical()),
        operation: operation.map_err(|wrong| format!("operation {wrong}."))?,
        resource_type,
        resource: resource.to_owned(),
    })
}

fn explanation(answer: &Option<Told<AccessAnswer>>, query: &Query) -> Block {
    let note = "Asks what the authorizer decides, as ottla access explain does; nothing is changed. Without a host it is one that no rule names.";
    block("explain", "May this principal do that?", note, |page| {
        page.nest("form", &[("class", &"fil")], |page| {
            let given = |field| query.get(field).unwrap_or_default();
            draw_field("principal", "text", given("principal"), page);
            let operations = AccessQuestion::operations().map(Operation::name);
            let shown = |name: &'static str| (name, name.to_owned());
            draw_choice("operation", "operation", operations.map(shown), query, page);
            let types = ResourceType::ALL.iter().map(|one| one.name());
            draw_choice("type", "type", types.map(shown), query, page);
            for field in ["name", "host"] {
                draw_field(field, "text", given(field), page);
            }
            page.leaf("button", &[("class", &"p")], "Explain");
        });
        match answer {
            None => nothing(
                "The answer stands here: the rule that decides, and what would allow it.",
                page,
            ),
            Some(Err(wrong)) => page.nest("p", &[], |page| {
                page.inline("b", &[("class", &"bad")], "▲ Not explained: ");
                page.text(printable(&wrong.0));
            }),
            Some(Ok(answer)) => draw_answer(answer, page),
        }
    })
}

fn draw_answer(answer: &AccessAnswer, page: &mut Markup) {
    let (class, word) = match answer.allowed {
        true => ("set mk good", "✓ Allowed"),
        false => ("set mk bad", "✗ Denied"),
    };
    page.leaf("p", &[("class", &class)], word);
    page.leaf("p", &[], format!("Because {}.", printable(&answer.because)));
    if !answer.commands.is_empty() {
        page.leaf("p", &[("class", &"q")], "What would allow it:");
        let commands = answer.commands.iter();
        let commands: Vec<_> = commands.map(|command| printable(command)).collect();
        page.leaf(
            "pre",
            &[("id", &"commands"), ("tabindex", &"0")],
            commands.join("\n"),
        );
        let button: [(&'static str, &dyn std::fmt::Display); 3] =
            [("type", &"button"), ("data-copy", &"commands"), ("hidden", &"")];
        page.leaf("button", &button, "Copy");
    }
    for note in &answer.notes {
        page.leaf("p", &[("class", &"q s")], printable(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Result<AccessQuestion, String>> {
        asked(&Query::read(text))
    }

    #[test]
    fn a_question_is_read_and_what_is_wrong_with_it_is_named() {
        assert_eq!(read("operation=Write&type=Topic&name=orders"), None);
        let read = |text: &str| read(text).unwrap();
        let question = read("principal=User:app&operation=write&type=topic&name=+orders+&host=").unwrap();
        assert_eq!(
            (&*question.principal, question.operation, question.resource_type),
            ("User:app", Operation::Write, ResourceType::Topic)
        );
        assert_eq!((&*question.resource, question.host), ("orders", None));
        let cluster = read("principal=User:app&operation=Alter&type=Cluster&host=::ffff:10.0.0.1").unwrap();
        assert_eq!(cluster.resource, CLUSTER_NAME);
        assert_eq!(cluster.host, Some("10.0.0.1".parse().unwrap()));
        for (wrong, says) in [
            ("principal=app&operation=Read&type=Topic&name=t", "as in User:app"),
            (
                "principal=User:a&operation=All&type=Topic&name=t",
                "operation All is of ACLs",
            ),
            (
                "principal=User:a&operation=Fly&type=Topic&name=t",
                "operation must be one of Read, ",
            ),
            (
                "principal=User:a&operation=Read&type=Table&name=t",
                "type must be one of Topic, ",
            ),
            (
                "principal=User:a&operation=Read&type=Topic",
                "name is missing: which Topic?",
            ),
            (
                "principal=User:a&operation=Read&type=Topic&name=t&host=db-1",
                "host wants an address as 10.0.4.19, not db-1",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
