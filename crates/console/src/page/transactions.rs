//! `/transactions`: those that are open, the oldest first: consumers of committed records wait for
//! them.

use ottla_lab::numbers::duration;
use serde_json::json;

use super::{Page, View, lead_of};
use crate::draw::block::{block, head, nothing};
use crate::draw::table::{Table, numbers, words};
use crate::draw::text::{Piece, counted, name, plain, strong, text};
use crate::source::{OpenTransaction, Part};

pub fn page(view: &View<'_>) -> Page {
    let open = view.source.transactions();
    let now_ms = view.source.now_ms();
    let lead = lead_of(&open, |open| lead(open, now_ms));
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": open.as_ref().err(),
            "transactions": open.as_ref().ok(),
        })
    });
    let note = "A consumer with isolation.level=read_committed reads no further than the first record of the oldest one.";
    let table = block("transactions", "Open transactions", note, |page| match &open {
        Err(untold) => nothing(&untold.to_string(), page),
        Ok(open) if open.is_empty() => nothing("None is open.", page),
        Ok(open) => {
            let columns = vec![
                words("transactional id"),
                numbers("producer id"),
                words("state"),
                words("open for"),
                words("partitions"),
            ];
            let mut table = Table::new("Open transactions", columns);
            for transaction in open {
                let age = transaction
                    .since_ms
                    .map(|since_ms| duration((now_ms - since_ms).max(0) as f64 / 1e3));
                table.row(vec![
                    name(&transaction.transactional_id).into(),
                    transaction.producer_id.to_string().into(),
                    transaction.state.as_str().into(),
                    age.unwrap_or_else(|| String::from("–")).into(),
                    transaction
                        .partitions
                        .iter()
                        .map(|partition| name(partition))
                        .collect::<Vec<_>>()
                        .join(", ")
                        .into(),
                ]);
            }
            table.draw(page);
        }
    });
    Page {
        title: String::from("Transactions"),
        place: "/transactions",
        json: document,
        blocks: vec![
            head("Transactions", "", &lead, &view.since(Part::Transactions)),
            table,
        ],
    }
}

fn lead(open: &[OpenTransaction], now_ms: i64) -> Vec<Piece> {
    let oldest = open.iter().filter_map(|transaction| transaction.since_ms).min();
    match (open.len(), oldest) {
        (0, _) => vec![text(
            "No transaction is open: consumers of committed records wait for nothing.",
        )],
        (many, None) => vec![
            strong(counted(many, "transaction")),
            text(if many == 1 { " is open." } else { " are open." }),
        ],
        (many, Some(since_ms)) => vec![
            strong(counted(many, "transaction")),
            text(if many == 1 {
                " is open, for "
            } else {
                " are open, the oldest for "
            }),
            strong(duration((now_ms - since_ms).max(0) as f64 / 1e3)),
            text("."),
        ],
    }
}
