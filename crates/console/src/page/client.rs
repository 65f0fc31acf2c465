//! `/clients/ID`: the doctor's verdict on one client, with everything that led to it.

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::{Diagnosis, Evidence, Recommendation};
use ottla_lab::doctor::glossary;
use ottla_lab::doctor::promises::document::Row;
use ottla_lab::doctor::snapshot::Client;
use ottla_lab::markup::Markup;
use ottla_lab::numbers::number;
use serde_json::json;

use super::clients::time_bar;
use super::{Page, View, chain, what_if};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, date, link, name, text};

/// The page of a client id or of one instance; `None`: it has not been seen.
pub fn page(view: &View<'_>, id: &str) -> Option<Page> {
    let examination = view.source.examination().ok()?;
    let found: Vec<&Diagnosis> = examination.find(id).ok()?;
    let client = found.first()?;
    let snapshots = view.source.snapshots().unwrap_or_default();
    let instance = client.instance_id.as_deref();
    let snapshot = snapshots.iter().find(|snapshot| {
        snapshot.client.client_id == client.client_id && snapshot.client.instance_id.as_deref() == instance
    });
    let promises = promises(view, client);
    let question = what_if::Question::read(snapshot, view.query);
    let document = view.document(|| json!({
        "diagnosis": client,
        "snapshot": snapshot,
        "promises": promises,
        "prediction": question.prediction.as_ref().and_then(|prediction| prediction.as_ref().ok()),
        "prediction_error": question.prediction.as_ref().and_then(|prediction| prediction.as_ref().err()).map(ToString::to_string),
    }));
    let mut blocks = vec![
        top(client, snapshot, &found),
        limit(client, snapshot),
        change(client),
    ];
    blocks.push(arithmetic(client));
    blocks.push(reasoning(client));
    blocks.push(refused(client));
    blocks.push(missing(client));
    blocks.push(what_if::block_of(id, snapshot, &question));
    blocks.push(kept(&promises));
    Some(Page {
        title: name(&client.client_id),
        place: "/clients",
        blocks,
        json: document,
    })
}

fn promises(view: &View<'_>, client: &Diagnosis) -> Vec<Row> {
    let all = view
        .source
        .promises()
        .map(|promises| promises.promises)
        .unwrap_or_default();
    all.into_iter()
        .filter(|row| row.client_id == client.client_id && row.role == client.role)
        .collect()
}

fn top(client: &Diagnosis, snapshot: Option<&Snapshot>, found: &[&Diagnosis]) -> Block {
    let aside = snapshot.map_or_else(
        || client.role.name().to_owned(),
        |snapshot| aside(&snapshot.client),
    );
    let mut more = vec![text(format!(
        "{}, {} confidence. {}",
        client.verdict.name(),
        client.confidence.name(),
        client.verdict.meaning()
    ))];
    if found.len() > 1 {
        more.push(text(format!(
            " {} clients have this name; the worst is shown. Others: ",
            found.len()
        )));
        for (index, other) in found.iter().skip(1).take(8).enumerate() {
            if index > 0 {
                more.push(text(", "));
            }
            let id = other.instance_id.as_deref().unwrap_or(&other.client_id);
            more.push(link(
                address("clients", id),
                format!("{} {}", other.role.name(), name(id)),
            ));
        }
    }
    head(
        &name(&client.client_id),
        &aside,
        &[text(client.summary.clone())],
        &more,
    )
}

fn aside(client: &Client) -> String {
    let software = client.software_name.as_deref().map(|software| {
        let version = client.software_version.as_deref().unwrap_or_default();
        name(format!("{software} {version}").trim())
    });
    let parts = [
        Some(client.role.name().to_owned()),
        software,
        client.address.as_deref().map(name),
        client
            .principal
            .as_deref()
            .filter(|principal| *principal != "User:ANONYMOUS")
            .map(name),
        client.tls.as_deref().map(name),
        client
            .group_id
            .as_deref()
            .map(|group| format!("group {}", name(group))),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join(" · ")
}

fn limit(client: &Diagnosis, snapshot: Option<&Snapshot>) -> Block {
    let note = "From left to right as a record goes. Everything before the limit waits for it; everything after it has room.";
    block("limit", "Where the limit is", note, |page| {
        chain::draw(client, snapshot, page);
        match client.time.is_empty() {
            true => nothing(
                "Times are known once the client pushes its metrics, or a minute of its requests has been seen.",
                page,
            ),
            false => page.nest("div", &[("class", &"s")], |page| {
                page.leaf("p", &[("class", &"q")], "Where the time goes:");
                time_bar(&client.time, page);
            }),
        }
    })
}

fn change(client: &Diagnosis) -> Block {
    let note = "One change. The band is what the doctor promises and will check after the next restart.";
    block("change", "The change", note, |page| {
        match &client.recommendation {
            None => nothing(
                "Nothing to change: no setting of this client would make it faster.",
                page,
            ),
            Some(change) => page.nest("div", &[("class", &"chg")], |page| {
                page.nest("div", &[], |page| words_of(change, page));
                page.nest("div", &[], |page| band(change, page));
            }),
        }
    })
}

fn words_of(change: &Recommendation, page: &mut Markup) {
    page.nest("p", &[("class", &"set")], |page| {
        page.inline("code", &[("id", &"set")], &change.set)
    });
    page.leaf("p", &[], &change.why);
    let promise = &change.promise;
    let from = promise
        .now
        .map_or_else(String::new, |now| format!(", from {}", number(now)));
    facts(
        &[
            ("Promise", format!("{} {}{from}", promise.range(), promise.unit)),
            ("If", promise.assumption.clone()),
            ("Next limit", change.next_ceiling.clone()),
            (
                "Cost",
                match change.cost.as_str() {
                    "" => String::from("none that can be measured here"),
                    cost => cost.to_owned(),
                },
            ),
        ],
        page,
    );
    if change.set.contains('=') {
        page.nest("p", &[], |page| {
            let button: [(&'static str, &dyn std::fmt::Display); 3] =
                [("type", &"button"), ("data-copy", &"set"), ("hidden", &"")];
            page.leaf("button", &button, "Copy as properties");
        });
    }
}

/// Now, and what is promised, on one axis from zero.
fn band(change: &Recommendation, page: &mut Markup) {
    let promise = &change.promise;
    let (Some(now), None) = (promise.now, &promise.unknown) else {
        return;
    };
    let full = promise.high.max(now) * 1.08;
    if !(full.is_finite() && full > 0.0) {
        return;
    }
    const BOTTOM: f64 = 180.0;
    let y = |value: f64| BOTTOM - 160.0 * value / full;
    let about = format!(
        "Measured {} {}; promised {}",
        number(now),
        promise.unit,
        promise.range()
    );
    let around: [(&'static str, &dyn std::fmt::Display); 4] = [
        ("width", &"100%"),
        ("height", &"206"),
        ("role", &"img"),
        ("aria-label", &about),
    ];
    page.nest("svg", &around, |page| {
        let at = |value: f64| format!("{:.1}", y(value));
        page.shape(
            "line",
            &[("class", &"g"), ("x2", &"100%"), ("y1", &BOTTOM), ("y2", &BOTTOM)],
        );
        page.leaf("text", &[("class", &"t"), ("y", &"14")], &promise.unit);
        page.leaf("text", &[("class", &"t"), ("y", &"176")], "0");
        page.shape(
            "line",
            &[
                ("class", &"ln"),
                ("x2", &"62%"),
                ("y1", &at(now)),
                ("y2", &at(now)),
            ],
        );
        page.shape(
            "line",
            &[
                ("class", &"cl"),
                ("x1", &"62%"),
                ("x2", &"62%"),
                ("y1", &"10"),
                ("y2", &BOTTOM),
            ],
        );
        let height = format!("{:.1}", (y(promise.low) - y(promise.high)).max(3.0));
        page.shape(
            "rect",
            &[
                ("class", &"band"),
                ("x", &"62%"),
                ("width", &"38%"),
                ("y", &at(promise.high)),
                ("height", &height),
            ],
        );
        let below = format!("{:.1}", y(now) + 18.0);
        page.leaf(
            "text",
            &[("class", &"e"), ("x", &"61%"), ("y", &below)],
            format_args!("measured {}", number(now)),
        );
        let (above, text_y) = (y(promise.high) - 8.0, y(promise.low) + 18.0);
        let promised = format!("{:.1}", if text_y > BOTTOM - 4.0 { above } else { text_y });
        page.leaf(
            "text",
            &[("class", &"e w6"), ("x", &"100%"), ("y", &promised)],
            promise.range(),
        );
        page.leaf("text", &[("class", &"t"), ("y", &"198")], "now");
        page.leaf(
            "text",
            &[("class", &"t e"), ("x", &"100%"), ("y", &"198")],
            "after the restart",
        );
    });
}

/// The sign of an origin: seen, stated, derived, guessed.
fn origin(origin: &str) -> String {
    let sign = match origin {
        "measured" | "seen" => "●",
        "stated" => "◆",
        "default" | "assumed" => "?",
        _ => "=",
    };
    format!("{sign} {origin}")
}

fn arithmetic(client: &Diagnosis) -> Block {
    let note = "● seen on the wire or pushed by the client, ◆ stated by its owner, = derived from others, ? guessed: a default.";
    block("arithmetic", "The arithmetic", note, |page| {
        if client.evidence.is_empty() {
            return nothing("No formula was needed, or too little is known for one.", page);
        }
        draw_lines(&client.evidence, page);
        let guessed = client.evidence.iter().flat_map(|line| &line.symbols);
        let guessed: Vec<&str> = guessed
            .filter(|symbol| matches!(&*symbol.origin, "default" | "assumed"))
            .map(|symbol| &*symbol.name)
            .collect();
        let words = match guessed.is_empty() {
            true => String::from("Nothing in it is guessed."),
            false => format!(
                "Guessed: {}. Stating these settings makes it certain.",
                unique(&guessed).join(", ")
            ),
        };
        page.leaf("p", &[("class", &"q s")], words);
    })
}

fn unique<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.iter().copied().filter(|name| seen.insert(*name)).collect()
}

/// Draws lines of arithmetic: each symbol once, each result with its formula.
pub fn draw_lines(lines: &[Evidence], page: &mut Markup) {
    let mut table = Table::new(
        "Arithmetic",
        vec![
            words("symbol"),
            words("meaning"),
            words("from"),
            numbers("value"),
            words("unit"),
            words("origin"),
        ],
    );
    let mut seen = std::collections::BTreeSet::new();
    for line in lines {
        for symbol in &line.symbols {
            if seen.insert((symbol.name.to_string(), number(symbol.value))) {
                table.row(vec![
                    symbol.name.to_string().into(),
                    glossary::symbol(&symbol.name).unwrap_or_default().into(),
                    "".into(),
                    number(symbol.value).into(),
                    symbol.unit.to_string().into(),
                    origin(&symbol.origin).into(),
                ]);
            }
        }
        seen.insert((line.name.to_string(), number(line.result)));
        table.row(vec![
            line.name.to_string().into(),
            glossary::symbol(&line.name).unwrap_or_default().into(),
            Cell::from(Piece::Code(line.expression.to_string())),
            Cell::from(Piece::Strong(number(line.result))),
            line.unit.to_string().into(),
            format!("= derived, {}", line.formula).into(),
        ]);
    }
    table.draw(page);
}

fn reasoning(client: &Diagnosis) -> Block {
    block(
        "reasoning",
        "How this was found",
        "The questions in the order in which they were asked; the last one decided.",
        |page| {
            if client.reasoning.is_empty() {
                return nothing("No question could be asked yet.", page);
            }
            page.nest("ol", &[("class", &"no")], |page| {
                for step in &client.reasoning {
                    page.nest("li", &[], |page| {
                        page.nest("span", &[], |page| {
                            page.text(&step.question);
                            page.text(" ");
                            page.inline("small", &[], &step.rule);
                        });
                        page.nest("span", &[], |page| {
                            page.inline("b", &[], &step.answer);
                            page.text(" ");
                            page.inline("span", &[("class", &"q")], step.numbers.to_string());
                        });
                    });
                }
            });
        },
    )
}

fn refused(client: &Diagnosis) -> Block {
    block(
        "refused",
        "What would not help",
        "So that no time is spent on it.",
        |page| {
            if client.refused.is_empty() {
                return nothing("No change had to be refused.", page);
            }
            page.nest("ul", &[("class", &"no")], |page| {
                for refusal in &client.refused {
                    page.nest("li", &[], |page| {
                        page.nest("span", &[], |page| page.inline("code", &[], &refusal.set));
                        page.leaf("span", &[], &refusal.why);
                    });
                }
            });
        },
    )
}

fn missing(client: &Diagnosis) -> Block {
    let note = "What else is known, and what would make the verdict more certain.";
    block("notes", "Findings and gaps", note, |page| {
        let is_empty = client.findings.is_empty() && client.missing.is_empty() && client.notes.is_empty();
        if is_empty {
            return nothing("Nothing is missing.", page);
        }
        page.nest("ul", &[("class", &"no")], |page| {
            let mut line = |head: String, words: &str| {
                page.nest("li", &[], |page| {
                    page.leaf("span", &[("class", &"q")], head);
                    page.leaf("span", &[], words);
                });
            };
            for finding in &client.findings {
                let kind = if finding.is_contributing {
                    "contributing"
                } else {
                    "finding"
                };
                line(format!("{kind} {:?}", finding.id), &finding.text);
            }
            client
                .missing
                .iter()
                .for_each(|missing| line(String::from("missing"), missing));
            client
                .notes
                .iter()
                .for_each(|note| line(String::from("note"), note));
        });
    })
}

fn kept(promises: &[Row]) -> Block {
    let note = "Each promise to this client against what came of it.";
    block("kept", "Kept?", note, |page| {
        if promises.is_empty() {
            return nothing(
                "Nothing has been promised to it. A promise is checked when the client comes back with the setting.",
                page,
            );
        }
        let mut table = Table::new(
            "Promises",
            vec![
                words("change"),
                words("when"),
                numbers("promised"),
                numbers("measured"),
                words("kept?"),
            ],
        );
        for row in promises {
            let (class, mark) = match () {
                () if row.score.is_kept() => ("good", "✓"),
                () if row.score == ottla_lab::doctor::promises::score::Score::NotKept => ("bad", "✗"),
                () => ("q", "○"),
            };
            let because = if row.because.is_empty() {
                String::new()
            } else {
                format!(": {}", row.because)
            };
            table.row(vec![
                Cell::from(Piece::Code(row.set.clone())),
                date(row.promised_ms).into(),
                row.promised().into(),
                row.after
                    .map_or_else(|| String::from("–"), |after| row.with_unit(number(after)))
                    .into(),
                Cell::Mark {
                    class,
                    mark,
                    word: format!("{}{because}", row.score.name()),
                },
            ]);
        }
        table.draw(page);
    })
}
