//! `/clients`: every client, worst first.

use ottla_lab::doctor::diagnosis::{Diagnosis, Examination};
use ottla_lab::doctor::severity::Severity;
use ottla_lab::doctor::time::{TimePart, TimeShare};
use ottla_lab::markup::Markup;
use serde_json::json;

use super::overview::mark;
use super::{Page, Query, View, draw_pager, draw_search, lead_of, paged};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::parts;
use crate::draw::text::{Keys, Piece, address, counted, name, plain, strong, text};
use crate::source::Told;

pub fn page(view: &View<'_>) -> Page {
    let examination = view.source.examination();
    let lead = lead_of(&examination, lead);
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": examination.as_ref().err(),
            "examination": examination.as_ref().ok(),
        })
    });
    Page {
        title: String::from("Clients"),
        place: "/clients",
        json: document,
        blocks: vec![head("Clients", "", &lead, &[]), list(&examination, view.query)],
    }
}

fn lead(examination: &Examination) -> Vec<Piece> {
    let all = &examination.clients;
    if all.is_empty() {
        return vec![text(
            "No client has been seen yet. On Apache Kafka its brokers need the plug-in (ottla doctor plugin), and clients that were \
             connected before it was there need a restart.",
        )];
    }
    let count = |of: fn(Severity) -> bool| all.iter().filter(|client| of(client.severity())).count();
    let (limited, unknown) = (
        count(Severity::is_bad),
        count(|severity| severity == Severity::Unknown),
    );
    let mut pieces = match limited {
        0 => vec![
            text("None of "),
            strong(counted(all.len(), "client")),
            text(" is limited by anything but its own work."),
        ],
        1 => vec![
            strong(format!("1 of {}", counted(all.len(), "client"))),
            text(" is slower than it need be."),
        ],
        many => vec![
            strong(format!("{many} of {}", counted(all.len(), "client"))),
            text(" are slower than they need be."),
        ],
    };
    if unknown > 0 {
        let them = if unknown == 1 { "it" } else { "them" };
        pieces.push(text(format!(
            " Of {} not enough has been seen to judge {them}.",
            counted(unknown, "client")
        )));
    }
    if let Some(seen) = examination.seen.filter(|seen| seen.pushing < seen.clients) {
        let silent = usize::try_from(seen.clients - seen.pushing).unwrap_or(0);
        pieces.push(text(format!(
            " {} no metrics; judged by what the broker sees.",
            match silent {
                1 => String::from("1 client pushes"),
                many => format!("{} push", counted(many, "client")),
            }
        )));
    }
    pieces
}

fn list(examination: &Told<Examination>, query: &Query) -> Block {
    let note = "Worst first. ▲ limited, ◆ worth knowing, ● fine, ○ not enough seen. The bar is where the time of a record goes, or of one round of a consumer’s loop.";
    block("clients", "Clients", note, |page| {
        let examination = match examination {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(examination) if examination.clients.is_empty() => {
                return nothing(
                    "A client appears here as soon as it connects; a verdict needs a minute of traffic.",
                    page,
                );
            }
            Ok(examination) => examination,
        };
        draw_search(query, page);
        let found: Vec<&Diagnosis> = (examination.clients.iter())
            .map(|client| &**client)
            .filter(|client| query.finds(&client.client_id))
            .collect();
        if found.is_empty() {
            return nothing("No client has this in its name.", page);
        }
        let (shown, text) = paged(&found, query, "clients");
        page.nest("ol", &[("class", &"fi")], |page| {
            let mut keys = Keys::default();
            shown.iter().for_each(|client| row(client, &mut keys, page))
        });
        draw_pager(&text, query, found.len(), page);
    })
}

fn row(client: &Diagnosis, keys: &mut Keys, page: &mut Markup) {
    let (sign, class) = mark(client.severity());
    let class = format!("mk {class}");
    let id = client.instance_id.as_deref().unwrap_or(&client.client_id);
    page.nest(
        "li",
        &[("data-key", &keys.of(&[id, client.role.name()]))],
        |page| {
            page.leaf("span", &[("class", &class), ("aria-hidden", &"true")], sign);
            page.nest("div", &[], |page| {
                page.nest("p", &[], |page| {
                    page.open("a", &[("href", &address("clients", id))]);
                    page.inline("b", &[], name(&client.client_id));
                    page.end("a");
                    page.text(" ");
                    page.inline("span", &[("class", &"tag")], client.role.name());
                    page.inline("span", &[("class", &"tag")], client.verdict.name());
                    page.inline(
                        "span",
                        &[("class", &"tag")],
                        format_args!("{} confidence", client.confidence.name()),
                    );
                    page.literal("<br>");
                    page.text(&client.summary);
                });
                time_bar(&client.time, page);
            });
            page.nest("p", &[], |page| match &client.recommendation {
                None => page.inline("span", &[("class", &"q")], "nothing to change"),
                Some(change) => {
                    page.inline("code", &[], &change.set);
                    page.literal("<br>");
                    page.inline(
                        "span",
                        &[("class", &"q")],
                        format_args!("{} {}", change.promise.range(), change.promise.unit),
                    );
                }
            });
        },
    );
}

/// The colour of a part, by what the time is: at work, in line, on the way, at the broker.
fn class(part: TimePart) -> &'static str {
    match part {
        TimePart::Worker | TimePart::Processing => "work",
        TimePart::Queue => "line",
        TimePart::Request | TimePart::Fetch => "way",
        TimePart::Broker => "disk",
    }
}

/// Draws where a client's time goes, followed by its own sum.
pub fn time_bar(time: &[TimeShare], page: &mut Markup) {
    let shown = parts::of_ms(&time.iter().map(|share| share.ms).collect::<Vec<f64>>());
    let sum: f64 = time.iter().map(|share| share.ms).sum();
    if time.is_empty() || sum <= 0.0 {
        return;
    }
    page.nest(
        "svg",
        &[("class", &"bar thin"), ("aria-hidden", &"true")],
        |page| {
            let mut begin = 0.0;
            for share in time {
                let width = share.ms / sum * 100.0;
                let (x, width_text) = (format!("{begin:.2}%"), format!("{width:.2}%"));
                page.shape(
                    "rect",
                    &[("class", &class(share.part)), ("x", &x), ("width", &width_text)],
                );
                begin += width;
            }
        },
    );
    page.nest("div", &[("class", &"eq")], |page| {
        let known = time.iter().zip(&shown.parts).filter(|(_, text)| !text.is_empty());
        for (index, (share, shown)) in known.enumerate() {
            if index > 0 {
                page.text(" + ");
            }
            page.inline(
                "i",
                &[("class", &class(share.part))],
                format_args!("{} {shown}", share.part.name()),
            );
        }
        page.open("span", &[]);
        page.text(" = ");
        page.inline("b", &[], format_args!("{} ms", shown.total));
        page.end("span");
    });
}
