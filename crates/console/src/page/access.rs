//! `/access`: who may do what.

use ottla_lab::numbers::count;
use serde_json::json;

use super::{Page, View, draw_pager, lead_of, paged};
use crate::draw::block::{block, head, nothing};
use crate::draw::table::{Cell, Table, words};
use crate::draw::text::{Piece, counted, name, plain, strong, text};
use crate::source::{Access, Part};

pub fn page(view: &View<'_>) -> Page {
    let access = view.source.access();
    let lead = lead_of(&access, lead);
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": access.as_ref().err(),
            "access": access.as_ref().ok(),
        })
    });
    let mut blocks = vec![head("Access", "", &lead, &view.since(Part::Access))];
    if let Ok(access) = &access {
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
