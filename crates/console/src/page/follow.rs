//! `/messages/T?follow=1`: the end of a partition as it grows, newest first.

use ottla_lab::markup::Markup;
use ottla_lab::numbers::count;
use serde_json::{Value, json};

use super::messages::{form, json_of, of_filter, shown, shown_offset, wanted};
use super::{Page, Query, View};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::text::{Piece, clock_ms, link, name, plain, strong, text};
use crate::source::{Peek, PeekedRecord, Told};
use crate::tail::{Entry, Now, Tail};

pub fn page(view: &View<'_>, ask: &Peek) -> Page {
    let now = Now {
        at_ms: view.source.now_ms(),
        interval_ms: view.source.look_interval_ms(),
    };
    let tail = view.tails.follow(ask, now, |ask| view.source.peek(ask));
    let lead = lead(ask, &tail);
    let document = view.document(|| {
        let known = tail.as_ref().ok();
        json!({
            "summary": plain(&lead),
            "untold": tail.as_ref().err(),
            "partition": ask.partition,
            "log_start": known.map(|tail| tail.log_start),
            "log_end": known.map(|tail| tail.log_end),
            "skipped": known.map(|tail| tail.skipped),
            "entries": known.iter().flat_map(|tail| &tail.entries).map(entry_of).collect::<Vec<Value>>(),
        })
    });
    let more = [link(of_filter(ask, ""), "Stop following")];
    Page {
        title: format!("Records of {}", name(&ask.topic)),
        place: "/topics",
        json: document,
        blocks: vec![
            head(
                &name(&ask.topic),
                &format!("the end of partition {}", ask.partition),
                &lead,
                &more,
            ),
            records(ask, &tail, view.query),
        ],
    }
}

fn entry_of(entry: &Entry) -> Value {
    match entry {
        Entry::Record(record) => json_of(record),
        Entry::Skipped { from, offsets } => json!({"skipped_from": from, "skipped": offsets}),
    }
}

fn lead(ask: &Peek, tail: &Told<Tail>) -> Vec<Piece> {
    let tail = match tail {
        Err(untold) => return vec![text(untold.to_string())],
        Ok(tail) => tail,
    };
    let mut pieces = vec![
        text(format!(
            "Records{} as they come; the end is offset ",
            wanted(&ask.filter)
        )),
        strong(shown_offset(tail.log_end)),
        text("."),
    ];
    if tail.skipped > 0 {
        pieces.push(text(" They come faster than they are shown: "));
        pieces.push(strong(count(tail.skipped)));
        pieces.push(text(" were skipped."));
    }
    pieces
}

fn records(ask: &Peek, tail: &Told<Tail>, query: &Query) -> Block {
    let note = "Newest first. At most 20 records are shown for each look at the end, which is one a second; others are counted as skipped. \
                Fields are cut at 80 bytes: the offset leads to the whole record. P freezes.";
    block("records", "Records", note, |page| {
        form(ask, &[], query, page);
        let tail = match tail {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(tail) => tail,
        };
        if let Some(note) = &tail.note {
            page.leaf("p", &[("class", &"q")], note);
        }
        if tail.entries.is_empty() {
            return nothing("Nothing has come since this page is open.", page);
        }
        page.nest("ol", &[("class", &"no")], |page| {
            tail.entries.iter().rev().for_each(|entry| draw(ask, entry, page))
        });
    })
}

fn draw(ask: &Peek, entry: &Entry, page: &mut Markup) {
    match entry {
        Entry::Record(record) => draw_record(ask, record, page),
        Entry::Skipped { from, offsets } => {
            let key = format!("s{from}");
            page.nest("li", &[("data-key", &key)], |page| {
                page.inline("b", &[], format_args!("{} skipped", count(*offsets)));
                page.inline(
                    "span",
                    &[("class", &"q")],
                    format_args!("from {} on", shown_offset(*from)),
                );
            });
        }
    }
}

fn draw_record(ask: &Peek, record: &PeekedRecord, page: &mut Markup) {
    let key = format!("o{}", record.offset);
    let to = format!("?partition={}&offset={}", ask.partition, record.offset);
    page.nest("li", &[("data-key", &key)], |page| {
        page.nest("span", &[], |page| {
            page.inline("a", &[("href", &to)], shown_offset(record.offset));
            page.text(" ");
            page.inline("small", &[], clock_ms(record.timestamp_ms));
        });
        page.nest("span", &[], |page| {
            if let Some(key) = &record.key {
                page.inline("code", &[], shown(key, record.key_bytes));
                page.text(" ");
            }
            match &record.value {
                None => page.inline("span", &[("class", &"q")], "no value"),
                Some(value) => page.inline("code", &[], shown(value, record.value_bytes)),
            }
        });
    });
}

/// The block of a tail without a filter.
#[cfg(test)]
pub fn of_tail(tail: &Tail) -> Block {
    let ask = Peek {
        topic: String::from("orders"),
        partition: 0,
        from: crate::source::PeekFrom::End,
        filter: Default::default(),
        records_max: 0,
        field_bytes_max: 0,
    };
    records(&ask, &Ok(tail.clone()), &Query::default())
}
