//! `/requests`: the slowest of the last minute, or of each minute of the last hour, stage by stage.

use std::collections::BTreeSet;

use ottla_lab::markup::Markup;
use serde_json::{Value, json};

use super::{Page, Query, View, draw_choice, lead_of};
use crate::draw::bar::Stages;
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::text::{Keys, Piece, address, clock_ms, counted, name, plain, strong, text};
use crate::source::{SlowRequest, Told};
use crate::stage::{STAGE_COUNT, Stage, dominant, own_micros};

/// Bars of one page.
const SHOWN_MAX: usize = 30;

pub fn page(view: &View<'_>) -> Page {
    let is_hour = view.query.get("of") == Some("hour");
    let requests = match is_hour {
        false => view.source.slow_requests(),
        // What a source does not tell of a minute, it does not tell of an hour.
        true => view.source.slow_requests().map(|_| view.series.worst.requests()),
    };
    let period = if is_hour { "hour" } else { "minute" };
    let lead = lead_of(&requests, |requests| lead(requests, period));
    let shown: Vec<Value> = requests.iter().flatten().map(json_of).collect();
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": requests.as_ref().err(),
            "requests": shown,
        })
    });
    Page {
        title: String::from("Slow requests"),
        place: "/requests",
        json: document,
        blocks: vec![
            head(
                "Slow requests",
                &format!("the last {period}, slowest first"),
                &lead,
                &[],
            ),
            waterfalls(&requests, view.query),
        ],
    }
}

fn json_of(request: &SlowRequest) -> Value {
    let stages: serde_json::Map<String, Value> = Stage::ALL
        .iter()
        .map(|stage| {
            (
                stage.name().to_owned(),
                json!(request.stage_micros[*stage as usize]),
            )
        })
        .collect();
    json!({
        "api": request.api,
        "client_id": request.client_id,
        "finished_at_ms": request.finished_at_ms,
        "request_bytes": request.request_bytes,
        "reply_bytes": request.reply_bytes,
        "own_micros": own_micros(&request.stage_micros),
        "dominated_by": dominant(&request.stage_micros).map(Stage::name),
        "stage_micros": stages,
    })
}

fn stages(request: &SlowRequest) -> Stages {
    let ms: [f64; STAGE_COUNT] = request.stage_micros.map(|micros| micros as f64 / 1e3);
    Stages::of_ms(ms)
}

fn lead(requests: &[SlowRequest], period: &str) -> Vec<Piece> {
    let Some(slowest) = requests.first() else {
        return vec![text(format!(
            "No request has been answered in the last {period}."
        ))];
    };
    let mut pieces = vec![
        text("The slowest took "),
        strong(format!("{} ms", stages(slowest).total())),
    ];
    if let Some(stage) = dominant(&slowest.stage_micros) {
        pieces.push(text(format!(", most of it {}", stage.spent())));
    }
    pieces.push(text(format!(": {} of ", slowest.api)));
    pieces.push(Piece::Link {
        to: address("clients", &slowest.client_id),
        text: name(&slowest.client_id),
    });
    pieces.push(text(format!(", at {} UTC.", clock_ms(slowest.finished_at_ms))));
    pieces
}

fn waterfalls(requests: &Told<Vec<SlowRequest>>, query: &Query) -> Block {
    let note = "The first is unfolded: each step at its time. All bars have one scale. Waits that the client asked for are hatched and count for nothing. \
                Of the last hour the ten slowest of each minute are kept.";
    block("requests", "Stage by stage", note, |page| {
        let requests = match requests {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(requests) => requests,
        };
        filter(requests, query, page);
        let is_wanted = |request: &&SlowRequest| {
            query.get("api").is_none_or(|api| request.api == api)
                && query
                    .get("client")
                    .is_none_or(|client| &*request.client_id == client)
                && query.get("stage").is_none_or(|stage| {
                    dominant(&request.stage_micros).is_some_and(|dominant| dominant.name() == stage)
                })
        };
        let mut found: Vec<&SlowRequest> = requests.iter().filter(is_wanted).collect();
        let cut = found.len().saturating_sub(SHOWN_MAX);
        found.truncate(SHOWN_MAX);
        if found.is_empty() {
            let why = match requests.is_empty() {
                true => "Every answered request is a candidate; there is none.",
                false => "None of the slowest requests is of this kind.",
            };
            return nothing(why, page);
        }
        let longest = found
            .iter()
            .map(|request| stages(request).own_ms())
            .fold(0.0, f64::max);
        let full_ms = round_up(longest);
        axis(full_ms, page);
        page.nest("ol", &[("class", &"wf")], |page| {
            let mut keys = Keys::default();
            for (index, request) in found.iter().enumerate() {
                waterfall(request, index == 0, full_ms, &mut keys, page);
            }
        });
        if cut > 0 {
            let cut = counted(cut, "faster one");
            nothing(
                &format!("Not shown: {cut}. Choose an API, a client or a stage."),
                page,
            );
        }
    })
}

/// A round number whose quarters are round, not below `ms`.
fn round_up(ms: f64) -> f64 {
    let power = 10_f64.powf(ms.max(1e-3).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= ms * 0.999_999)
        .unwrap_or(10.0 * power)
}

fn axis(full_ms: f64, page: &mut Markup) {
    page.nest("div", &[("class", &"wf ax"), ("aria-hidden", &"true")], |page| {
        page.leaf("span", &[], "");
        page.nest("svg", &[("class", &"bar")], |page| {
            for (quarter, class) in [(0, "t"), (1, "t m"), (2, "t m"), (3, "t m"), (4, "t e")] {
                // The room behind the longest bar is for hatched waits.
                let x = format!("{:.2}%", f64::from(quarter) * 0.25 * 94.0);
                let ms = ottla_lab::numbers::number(full_ms * f64::from(quarter) / 4.0);
                let unit = if quarter == 0 { " ms" } else { "" };
                page.leaf(
                    "text",
                    &[("class", &class), ("x", &x), ("y", &"11")],
                    format_args!("{ms}{unit}"),
                );
            }
        });
    });
}

fn waterfall(request: &SlowRequest, is_unfolded: bool, full_ms: f64, keys: &mut Keys, page: &mut Markup) {
    let stages = stages(request);
    let at = request.finished_at_ms.to_string();
    let key = keys.of(&[request.api, &request.client_id, &at]);
    page.nest("li", &[("data-key", &key)], |page| {
        page.nest("span", &[], |page| {
            page.inline("b", &[], request.api);
            page.text(" ");
            page.inline(
                "a",
                &[("href", &address("clients", &request.client_id))],
                name(&request.client_id),
            );
            page.literal("<br>");
            page.inline("small", &[], clock_ms(request.finished_at_ms));
        });
        match is_unfolded {
            true => stages.draw_steps(full_ms / 0.94, page),
            false => stages.draw_bar(full_ms, page),
        }
        page.nest("span", &[("class", &"r tt")], |page| {
            page.inline("b", &[], stages.total());
            page.text(" ");
            page.inline("small", &[], "ms");
        });
        // Unfolded, each step has its number already.
        if !is_unfolded {
            stages.draw_sum(page);
        }
    });
}

fn filter(requests: &[SlowRequest], query: &Query, page: &mut Markup) {
    let unique = |of: fn(&SlowRequest) -> &str| {
        let all: BTreeSet<&str> = requests.iter().map(of).collect();
        all
    };
    let choice = |label, field, all: &str, values: BTreeSet<&str>, page: &mut Markup| {
        let any = std::iter::once(("", all.to_owned()));
        let options = any.chain(values.into_iter().map(|value| (value, name(value))));
        draw_choice(label, field, options, query, page);
    };
    let stages = requests
        .iter()
        .filter_map(|request| dominant(&request.stage_micros));
    let stages = stages.map(Stage::name).collect();
    page.nest("form", &[("class", &"fil")], |page| {
        let periods = [("", "minute"), ("hour", "hour")];
        let periods = periods.map(|(value, period)| (value, format!("the last {period}")));
        draw_choice("of", "of", periods.into_iter(), query, page);
        choice("API", "api", "all", unique(|request| request.api), page);
        choice(
            "client",
            "client",
            "all",
            unique(|request| &request.client_id),
            page,
        );
        choice("most time in", "stage", "any stage", stages, page);
        page.leaf("button", &[], "Show");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number_beyond_the_slowest() {
        for (ms, expected) in [
            (18.62, 20.0),
            (0.7, 0.8),
            (1.0, 1.0),
            (4.1, 6.0),
            (950.0, 1_000.0),
            (0.0, 0.001),
        ] {
            assert!((round_up(ms) - expected).abs() < 1e-9, "{ms}: {}", round_up(ms));
        }
    }
}
