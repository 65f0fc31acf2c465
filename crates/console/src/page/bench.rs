//! `/bench`: reports of measurements, one of them, and two beside each other.

use ottla_lab::bench::compare::{self, Comparison, Winner};
use ottla_lab::markup::Markup;
use ottla_lab::numbers::number;
use ottla_lab::report::{Report, label};
use serde_json::json;

use super::{Page, View, draw_choice, draw_pager, lead_of, paged};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, clock, counted, date, link, name, plain, strong, text};
use crate::reports::{Heading, Listing, Reports};
use crate::source::{Told, Untold};

/// Files that cannot be read, and differences of two reports, that are named.
const NAMED_MAX: usize = 20;

pub fn list(view: &View<'_>) -> Page {
    let Some(reports) = view.source.reports() else {
        return without_reports(view);
    };
    let listing = reports.list();
    if let Some(compared) = compared(reports, view) {
        return beside(view, &listing, &compared);
    }
    let lead = lead_of(&listing, lead);
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": listing.as_ref().err(),
            "reports": listing.as_ref().map(|listing| &*listing.reports).unwrap_or_default(),
            "unreadable": listing.as_ref().map(|listing| &*listing.unreadable).unwrap_or_default(),
            "cut": listing.as_ref().map(|listing| listing.cut).unwrap_or_default(),
        })
    });
    let blocks = vec![head("Bench", "", &lead, &[]), listed(&listing, view), how(view)];
    page("Bench", document, blocks)
}

/// Two reports; the list has its own page, because both may be long.
fn beside(view: &View<'_>, listing: &Told<Listing>, compared: &Told<Comparison>) -> Page {
    let lead = lead_of(compared, |compared| {
        let side = |side: &compare::Side| strong(name(&side.scenario));
        vec![
            text("a is "),
            side(&compared.a),
            text(", b is "),
            side(&compared.b),
            text("."),
        ]
    });
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": compared.as_ref().err(),
            "comparison": compared.as_ref().ok(),
        })
    });
    let more = [link("/bench", "All reports")];
    let blocks = vec![
        head("Bench", "a beside b", &lead, &more),
        comparison(listing, compared, view),
    ];
    page("a beside b", document, blocks)
}

fn page(title: &str, json: String, blocks: Vec<Block>) -> Page {
    Page {
        title: title.to_owned(),
        place: "/bench",
        json,
        blocks,
    }
}

fn without_reports(view: &View<'_>) -> Page {
    let lead = [text(
        "This page lists no reports: a broker does not measure itself while it serves, and no directory was given.",
    )];
    let document = view.document(|| json!({"summary": plain(&lead), "reports": []}));
    page("Bench", document, vec![head("Bench", "", &lead, &[]), how(view)])
}

fn how(view: &View<'_>) -> Block {
    let server = view.source.identity().address;
    let note = "A report is one HTML file; it opens without this console, which lists those of a directory.";
    block("how", "Make a report", note, |page| {
        let commands = format!(
            "ottla bench list\nottla bench run NAME --bootstrap-server {server} --output ottla-bench\nottla console --bootstrap-server {server} --reports ottla-bench"
        );
        page.leaf("pre", &[("tabindex", &"0")], commands);
    })
}

fn lead(listing: &Listing) -> Vec<Piece> {
    match listing.reports.first() {
        None => vec![text("There is no report in this directory yet.")],
        Some(last) => vec![
            strong(counted(listing.reports.len(), "report")),
            text(if listing.reports.len() == 1 {
                ": "
            } else {
                "; the last is "
            }),
            link(address("bench", &last.name), name(&last.scenario)),
            text(", "),
            strong(last.verdict),
            text("."),
        ],
    }
}

fn listed(listing: &Told<Listing>, view: &View<'_>) -> Block {
    let note = "The newest first. INVALID says that a figure does not mean what it seems to, and the report says why.";
    block("reports", "Reports", note, |page| {
        let listing = match listing {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(listing) => listing,
        };
        match listing.reports.is_empty() {
            true => nothing("A report appears when its run has ended.", page),
            false => {
                table(listing, view, page);
                choice(listing, view, page);
            }
        }
        remarks(listing, page);
    })
}

fn table(listing: &Listing, view: &View<'_>, page: &mut Markup) {
    let columns = vec![
        words("report"),
        words("begun, UTC"),
        words("verdict"),
        words("answer"),
        words("measured on"),
    ];
    let mut table = Table::new("Reports", columns);
    let (shown, text) = paged(&listing.reports, view.query, "reports");
    for heading in shown {
        let answer = heading.answer.as_ref().unwrap_or(&heading.question);
        table.row(vec![
            Cell::from(link(address("bench", &heading.name), name(&heading.name))),
            began(heading).into(),
            verdict(heading),
            name(answer).into(),
            heading
                .targets
                .iter()
                .map(|target| name(target))
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
        ]);
    }
    table.draw(page);
    draw_pager(&text, view.query, listing.reports.len(), page);
}

fn began(heading: &Heading) -> String {
    let at_ms = heading.started_at_ms;
    format!("{} {}", date(at_ms), clock(at_ms))
}

fn verdict(heading: &Heading) -> Cell {
    let (class, mark) = match heading.reason {
        None => ("good", "✓"),
        Some(_) => ("bad", "✗"),
    };
    Cell::Mark {
        class,
        mark,
        word: heading.verdict.to_owned(),
    }
}

/// The form that puts two reports beside each other.
fn choice(listing: &Listing, view: &View<'_>, page: &mut Markup) {
    if listing.reports.len() < 2 {
        return;
    }
    page.nest("form", &[("class", &"fil")], |page| {
        for side in ["a", "b"] {
            let options = listing.reports.iter();
            let options = options.map(|heading| (&*heading.name, name(&heading.name)));
            draw_choice(side, side, options, view.query, page);
        }
        page.leaf("button", &[], "Compare");
    });
}

fn remarks(listing: &Listing, page: &mut Markup) {
    let unreadable = listing.unreadable.iter();
    let lines = unreadable.map(|(file, what)| format!("{}: {}", name(file), name(what)));
    named(lines.collect(), page);
    if listing.cut > 0 {
        let line = format!("{} not listed: they are older.", counted(listing.cut, "file"));
        page.leaf("p", &[("class", &"q")], line);
    }
}

/// The first lines, and how many more there are.
fn named(lines: Vec<String>, page: &mut Markup) {
    for line in lines.iter().take(NAMED_MAX) {
        page.leaf("p", &[("class", &"q")], line);
    }
    let more = lines.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        page.leaf("p", &[("class", &"q")], format_args!("and {more} more"));
    }
}

/// `None`: not asked for.
fn compared(reports: &Reports, view: &View<'_>) -> Option<Told<Comparison>> {
    let (a, b) = (view.query.get("a")?, view.query.get("b")?);
    let read = |wanted: &str| {
        let missing = || Untold(format!("There is no report {}.", name(wanted)));
        reports.one(wanted)?.ok_or_else(missing)
    };
    let both = read(a).and_then(|a| Ok((a, read(b)?)));
    Some(both.map(|(a, b)| compare::compare(&a, &b)))
}

fn comparison(listing: &Told<Listing>, compared: &Told<Comparison>, view: &View<'_>) -> Block {
    block("comparison", "a beside b", compare::TWO_RUNS, |page| {
        if let Ok(listing) = listing {
            choice(listing, view, page);
        }
        let compared = match compared {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(compared) => compared,
        };
        let side = |side: &compare::Side| {
            format!(
                "{}, {}: {}",
                side.verdict,
                name(&side.scenario),
                name(&side.command)
            )
        };
        facts(&[("a", side(&compared.a)), ("b", side(&compared.b))], page);
        let remarks = compared.differences.iter().chain(&compared.unmatched);
        named(remarks.map(|remark| name(remark)).collect(), page);
        match compared.rows.is_empty() {
            true => nothing("No point and figure is in both.", page),
            false => figures(&compared.rows, view, page),
        }
    })
}

fn figures(rows: &[compare::Row], view: &View<'_>, page: &mut Markup) {
    let columns = vec![
        words("figure"),
        words("point"),
        words("on"),
        numbers("a"),
        numbers("b"),
        numbers("b/a"),
        numbers("spread"),
        words("better"),
    ];
    let mut table = Table::new("a beside b", columns);
    let (shown, text) = paged(rows, view.query, "figures");
    for row in shown {
        let unknown = || String::from("–");
        let spread = row.ratio_low.zip(row.ratio_high);
        table.row(vec![
            label::title(&row.figure).into(),
            name(&row.point).into(),
            name(&row.target).into(),
            number(row.a).into(),
            number(row.b).into(),
            row.ratio.map_or_else(unknown, number).into(),
            spread
                .map_or_else(unknown, |(low, high)| {
                    format!("{} to {}", number(low), number(high))
                })
                .into(),
            better(row).into(),
        ]);
    }
    table.draw(page);
    draw_pager(&text, view.query, rows.len(), page);
}

fn better(row: &compare::Row) -> String {
    match (row.winner, &row.no_winner) {
        (Some(Winner::A), _) => String::from("a"),
        (Some(Winner::B), _) => String::from("b"),
        (None, Some(reason)) => name(reason),
        (None, None) => String::from("–"),
    }
}

/// `/bench/NAME`; `None`: there is no such report.
pub fn one(view: &View<'_>, report_name: &str) -> Option<Page> {
    let read = view.source.reports()?.one(report_name).transpose()?;
    let lead = lead_of(&read, lead_of_one);
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": read.as_ref().err(),
            "report": read.as_ref().ok(),
        })
    });
    let alone = address("reports", report_name);
    let more = [
        link("/bench", "All reports"),
        text(" · "),
        link(&*alone, "without this frame"),
    ];
    let mut blocks = vec![head(&name(report_name), "report", &lead, &more)];
    if read.is_ok() {
        blocks.push(framed(&alone));
    }
    Some(page(&format!("Report {}", name(report_name)), document, blocks))
}

fn lead_of_one(report: &Report) -> Vec<Piece> {
    let answer = report.answer.as_ref().map(|answer| &answer.sentence);
    let sentence = name(answer.unwrap_or(&report.scenario.question));
    let verdict = &report.verdict;
    let mut pieces = vec![text(format!("{sentence} ")), strong(verdict.word())];
    pieces.extend(
        verdict
            .reasons
            .first()
            .map(|reason| text(format!(": {}", name(reason)))),
    );
    pieces.push(text("."));
    pieces
}

/// The report as its own document: it has its own style, and may do nothing here.
fn framed(to: &str) -> Block {
    let mut html = Markup::default();
    let attributes: [(&'static str, &dyn std::fmt::Display); 4] = [
        ("class", &"frame"),
        ("src", &to),
        ("title", &"The report"),
        ("sandbox", &""),
    ];
    html.nest("section", &[("id", &"report")], |page| {
        page.nest("iframe", &attributes, |_| {})
    });
    Block { id: "report", html }
}
