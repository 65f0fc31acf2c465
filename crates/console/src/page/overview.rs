//! `/`: one sentence, where the time of requests goes, findings, vitals.

use ottla_lab::doctor::diagnosis::{Diagnosis, Examination};
use ottla_lab::doctor::severity::Severity;
use ottla_lab::markup::Markup;
use ottla_lab::numbers::{bytes, count, duration, number, percent};
use serde_json::{Value, json};

use super::{Now, Page, View};
use crate::draw::bar::Stages;
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::text::{Keys, Piece, address, counted, link, name, plain, rate, strong, text};
use crate::draw::{area, line, parts};
use crate::series::{ApiMinute, Minute};
use crate::source::{Identity, Told};
use crate::stage::{Stage, dominant};

/// Bars of the ledger: APIs with less time are in the JSON.
const BARS_MAX: usize = 6;

/// A bar needs at least this share of the time of all requests: a rare API that is slow by nature
/// would set the scale of all others.
const BAR_SHARE_MIN: f64 = 0.02;

/// Findings that are told one by one.
const FINDINGS_MAX: usize = 6;

/// A disk that is full sooner than this is told in the sentence.
const DISK_SOON_SECONDS: f64 = 3.0 * 86_400.0;

pub fn page(view: &View<'_>) -> Page {
    let now = view.now();
    let examination = view.source.examination();
    let lead = lead(view, &now, &examination);
    let identity = view.source.identity();
    Page {
        title: String::from("Overview"),
        place: "/",
        json: view.document(|| json(&now, &examination, &lead)),
        blocks: vec![
            head("Overview", "", &lead, &start_hint(&now, &identity)),
            ledger(&now),
            course(view, &now),
            findings(&examination),
            vitals(view, &now),
        ],
    }
}

/// The API whose requests a person means by "a request": producing, else the busiest.
fn leading(minute: &Minute) -> Option<&ApiMinute> {
    let produce = minute.apis.iter().find(|api| api.name == "Produce");
    let busiest = || {
        minute
            .apis
            .iter()
            .find(|api| dominant(&api.stage_micros).is_some())
    };
    produce.or_else(busiest)
}

fn lead(view: &View<'_>, now: &Told<Now>, examination: &Told<Examination>) -> Vec<Piece> {
    let mut pieces = match now {
        Err(untold) => vec![text(untold.to_string())],
        Ok(Now { minute: None, .. }) => vec![text(
            "The broker has just been started: figures are those of a minute, and the first is due in a few seconds.",
        )],
        Ok(Now {
            minute: Some(minute),
            counts,
        }) => traffic(minute, counts.connections),
    };
    if let Ok(examination) = examination {
        pieces.push(text(" "));
        pieces.extend(clients(examination));
    }
    if let Ok(Now { counts, .. }) = now
        && let Some(disk) = counts.disk
        && let Some(growth) = view.series.disk_growth().filter(|growth| *growth > 0.0)
    {
        let seconds = disk.total_bytes.saturating_sub(disk.used_bytes) as f64 / growth;
        if seconds < DISK_SOON_SECONDS {
            pieces.push(text(" At this rate the disk is full in "));
            pieces.push(strong(duration(seconds)));
            pieces.push(text("."));
        }
    }
    pieces
}

fn traffic(minute: &Minute, connections: u64) -> Vec<Piece> {
    let mut pieces = match minute.records_in {
        none if none < 0.005 => vec![text(format!(
            "No records come in; {} {} open.",
            counted(connections as usize, "connection"),
            if connections == 1 { "is" } else { "are" }
        ))],
        some => vec![strong(format!("{} records/s", rate(some))), text(" come in")],
    };
    let Some(api) = leading(minute).filter(|_| minute.records_in >= 0.005) else {
        return pieces;
    };
    let stages = Stages::of_ms(api.mean_ms());
    pieces.push(text(format!(" and a {} request takes ", api.name.to_lowercase())));
    pieces.push(strong(format!("{} ms", stages.total())));
    if let Some(stage) = dominant(&api.stage_micros) {
        pieces.push(text(format!(", most of it {}", stage.spent())));
    }
    pieces.push(text("."));
    pieces
}

fn clients(examination: &Examination) -> Vec<Piece> {
    let all = examination.clients.len();
    let limited = examination
        .clients
        .iter()
        .filter(|client| client.severity().is_bad())
        .count();
    match (limited, all) {
        (_, 0) => vec![text("No client has been seen.")],
        (0, 1) => vec![text("The one client keeps up.")],
        (0, all) => vec![text(format!("None of {} is limited.", counted(all, "client")))],
        (limited, all) => {
            let is = if limited == 1 { "is" } else { "are" };
            let they = if limited == 1 { "it" } else { "they" };
            vec![
                link("#findings", format!("{limited} of {}", counted(all, "client"))),
                text(format!(" {is} slower than {they} need be.")),
            ]
        }
    }
}

/// With nothing connected: what to do.
fn start_hint(now: &Told<Now>, identity: &Identity) -> Vec<Piece> {
    match now {
        Ok(Now { counts, .. }) if counts.connections == 0 && counts.records_in == 0 => vec![
            text("Nothing is connected. Clients find it at "),
            Piece::Code(format!("bootstrap.servers={}", identity.address)),
            text("; "),
            Piece::Code(String::from("ottla perf produce")),
            text(" sends a load to look at."),
        ],
        _ => Vec::new(),
    }
}

fn ledger(now: &Told<Now>) -> Block {
    let note = "Mean of the last minute. The stages of a bar add up to its mean exactly; percentiles do not add up, so they stand beside. Hatched: a wait that the client asked for, not to scale and not counted. APIs with less than 2 % of all time are in the JSON.";
    block("ledger", "Where a request’s time goes", note, |page| {
        let minute = match now {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(Now { minute: None, .. }) => {
                return nothing("Means need two readings; they are five seconds apart.", page);
            }
            Ok(Now {
                minute: Some(minute), ..
            }) if minute.apis.is_empty() => {
                return nothing(
                    "No request has been answered in the last minute. The first one fills this.",
                    page,
                );
            }
            Ok(Now {
                minute: Some(minute), ..
            }) => minute,
        };
        let mut rows: Vec<(&ApiMinute, Stages)> = minute
            .apis
            .iter()
            .map(|api| (api, Stages::of_ms(api.mean_ms())))
            .collect();
        // By all the time that requests of the API took; JSON has those beyond the last bar.
        let weight = |row: &(&ApiMinute, Stages)| row.0.requests as f64 * row.1.own_ms();
        rows.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        let least = rows.iter().map(weight).sum::<f64>() * BAR_SHARE_MIN;
        rows.retain(|row| weight(row) >= least);
        rows.truncate(BARS_MAX);
        let full_ms = rows.iter().map(|row| row.1.own_ms()).fold(0.0, f64::max);
        page.nest("ul", &[("class", &"led")], |page| {
            ledger_head(full_ms, page);
            rows.iter()
                .for_each(|(api, stages)| ledger_row(api, stages, full_ms, page));
        });
        meanings(page);
    })
}

fn ledger_head(full_ms: f64, page: &mut Markup) {
    page.nest("li", &[("class", &"hd")], |page| {
        page.leaf("span", &[], "API");
        let scale = format!("mean time of a request, 0 to {} ms", parts::one_ms(full_ms));
        page.leaf("span", &[("class", &"bar")], scale);
        for head in ["mean", "p50", "p99 ms"] {
            page.leaf("span", &[("class", &"r")], head);
        }
    });
}

fn ledger_row(api: &ApiMinute, stages: &Stages, full_ms: f64, page: &mut Markup) {
    let quantile = |quantile| {
        api.quantile_ms(quantile)
            .map_or_else(|| String::from("–"), parts::one_ms)
    };
    page.nest("li", &[], |page| {
        page.nest("span", &[("class", &"nm")], |page| {
            page.inline("b", &[], api.name);
            page.text(" ");
            page.inline("small", &[], format_args!("{}/s", rate(api.per_second)));
        });
        stages.draw_bar(full_ms, page);
        page.leaf("b", &[("class", &"r tot")], stages.total());
        page.leaf("span", &[("class", &"r")], quantile(0.5));
        page.leaf("span", &[("class", &"r")], quantile(0.99));
        stages.draw_sum(page);
    });
}

fn meanings(page: &mut Markup) {
    page.nest("details", &[], |page| {
        page.leaf("summary", &[], "What the stages mean");
        let rows: Vec<(&str, String)> = Stage::ALL
            .iter()
            .map(|stage| (stage.name(), stage.meaning().to_owned()))
            .collect();
        facts(&rows, page);
    });
}

fn course(view: &View<'_>, now: &Told<Now>) -> Block {
    let minute = now.as_ref().ok().and_then(|now| now.minute.as_ref());
    let api = minute.and_then(leading).map_or("Produce", |api| api.name);
    let title = format!("{api}, last 15 minutes");
    block(
        "course",
        &title,
        "The same stages, in the same order, now at the right edge.",
        |page| {
            if let Err(untold) = now {
                return nothing(&untold.to_string(), page);
            }
            if !area::draw(api, &view.series.stages(api), page) {
                nothing("Filled by requests: one point every five seconds.", page);
            }
        },
    )
}

fn findings(examination: &Told<Examination>) -> Block {
    let note = "▲ limited, ◆ worth knowing, ● fine. Each opens the arithmetic behind it.";
    block("findings", "Findings, worst first", note, |page| {
        let examination = match examination {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(examination) if examination.clients.is_empty() => {
                return nothing(
                    "No client has been seen. The doctor needs a minute of each.",
                    page,
                );
            }
            Ok(examination) => examination,
        };
        let (worth, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) = (examination.clients.iter())
            .map(|client| &**client)
            .partition(|client| client.severity() >= Severity::Inefficient);
        let (waiting, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) = fine
            .into_iter()
            .partition(|client| client.severity() == Severity::Unknown);
        page.nest("ol", &[("class", &"fi")], |page| {
            let mut keys = Keys::default();
            worth
                .iter()
                .take(FINDINGS_MAX)
                .for_each(|client| finding(client, &mut keys, page));
            let more = worth.len().saturating_sub(FINDINGS_MAX);
            summed(
                more,
                "warn",
                "◆",
                |more| format!("{} more", counted(more, "client")),
                "see all clients",
                page,
            );
            let fine_words = |many: usize| match (many, worth.is_empty()) {
                (1, true) => String::from("1 client keeps up."),
                (many, true) => format!("{} keep up.", counted(many, "client")),
                (1, false) => String::from("1 other client keeps up."),
                (many, false) => format!("{} keep up.", counted(many, "other client")),
            };
            summed(fine.len(), "good", "●", fine_words, "nothing to change", page);
            let unknown = |many: usize| format!("{}: not enough has been seen yet.", counted(many, "client"));
            summed(waiting.len(), "q", "○", unknown, "a minute of traffic", page);
        });
    })
}

fn summed(
    many: usize,
    class: &str,
    mark: &str,
    words: impl Fn(usize) -> String,
    to_do: &str,
    page: &mut Markup,
) {
    if many == 0 {
        return;
    }
    let class = format!("mk {class}");
    page.nest("li", &[], |page| {
        page.leaf("span", &[("class", &class), ("aria-hidden", &"true")], mark);
        page.nest("p", &[], |page| {
            page.inline("a", &[("href", &"/clients")], words(many))
        });
        page.leaf("p", &[("class", &"q")], to_do);
    });
}

/// The mark of a severity: sign and class.
pub fn mark(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Good => ("●", "good"),
        Severity::Unknown => ("○", "q"),
        Severity::Inefficient => ("◆", "warn"),
        Severity::Limited | Severity::Failing => ("▲", "bad"),
    }
}

fn finding(client: &Diagnosis, keys: &mut Keys, page: &mut Markup) {
    let (sign, class) = mark(client.severity());
    let class = format!("mk {class}");
    let id = client.instance_id.as_deref().unwrap_or(&client.client_id);
    page.nest(
        "li",
        &[("data-key", &keys.of(&[id, client.role.name()]))],
        |page| {
            page.leaf("span", &[("class", &class), ("aria-hidden", &"true")], sign);
            page.nest("p", &[], |page| {
                page.open("a", &[("href", &address("clients", id))]);
                page.inline("b", &[], name(&client.client_id));
                page.end("a");
                page.text(" ");
                page.inline("span", &[("class", &"tag")], client.role.name());
                page.inline(
                    "span",
                    &[("class", &"tag")],
                    format_args!("{} confidence", client.confidence.name()),
                );
                page.literal("<br>");
                page.text(&client.summary);
            });
            page.nest("p", &[], |page| match &client.recommendation {
                None => page.inline("span", &[("class", &"q")], "nothing to change"),
                Some(change) => {
                    page.inline("code", &[], &change.set);
                    page.literal("<br>");
                    let promise = &change.promise;
                    let now = promise
                        .now
                        .map_or_else(String::new, |now| format!("{} → ", number(now)));
                    let words = format!("{now}{} {}", promise.range(), promise.unit);
                    page.inline("span", &[("class", &"q")], words);
                }
            });
        },
    );
}

fn vitals(view: &View<'_>, now: &Told<Now>) -> Block {
    block(
        "vitals",
        "Vitals",
        "15 minutes each, from low to high of its own range.",
        |page| {
            let now = match now {
                Err(untold) => return nothing(&untold.to_string(), page),
                Ok(now) => now,
            };
            let minute = now.minute.clone().unwrap_or_default();
            let past = view.series.vitals();
            let megabytes = |value: f64| number(value / 1e6);
            let of_disk = now
                .counts
                .disk
                .map(|disk| disk.used_bytes as f64 / disk.total_bytes.max(1) as f64);
            let memory = now.counts.memory_bytes.map(|memory| bytes(memory as f64));
            let (memory, memory_unit) = split_unit(memory);
            let (busy, busy_unit) = split_unit(Some(percent(minute.busy.clamp(0.0, 1.0))));
            let (disk, disk_unit) = split_unit(of_disk.map(percent));
            page.nest("dl", &[("class", &"vit")], |page| {
                vital(
                    "Records in",
                    rate(minute.records_in),
                    "/s",
                    &past.records_in,
                    page,
                );
                vital(
                    "Bytes in",
                    megabytes(minute.bytes_in),
                    "MB/s",
                    &past.bytes_in,
                    page,
                );
                vital(
                    "Bytes out",
                    megabytes(minute.bytes_out),
                    "MB/s",
                    &past.bytes_out,
                    page,
                );
                vital(
                    "Connections",
                    count(now.counts.connections),
                    "",
                    &past.connections,
                    page,
                );
                vital("Loops busy", busy, &busy_unit, &past.busy, page);
                vital("Memory", memory, &memory_unit, &past.memory, page);
                vital(
                    "Cold reads",
                    rate(minute.cold_reads),
                    "/s",
                    &past.cold_reads,
                    page,
                );
                vital("Disk", disk, &disk_unit, &past.disk, page);
            });
        },
    )
}

fn split_unit(text: Option<String>) -> (String, String) {
    let text = text.unwrap_or_else(|| String::from("–"));
    match text.rsplit_once(' ') {
        Some((value, unit)) => (value.to_owned(), unit.to_owned()),
        None => (text, String::new()),
    }
}

fn vital(title: &str, value: String, unit: &str, past: &[f64], page: &mut Markup) {
    page.nest("div", &[], |page| {
        page.leaf("dt", &[], title);
        page.nest("dd", &[], |page| {
            page.inline("b", &[], value);
            page.inline("span", &[], unit);
            line::spark(past, page);
        });
    });
}

fn json(now: &Told<Now>, examination: &Told<Examination>, lead: &[Piece]) -> Value {
    let apis: Vec<Value> = (now.iter().flat_map(|now| &now.minute))
        .flat_map(|minute| &minute.apis)
        .map(|api| {
            let means = api.mean_ms();
            let stages: serde_json::Map<String, Value> = Stage::ALL
                .iter()
                .map(|stage| (stage.name().to_owned(), json!(means[*stage as usize])))
                .collect();
            json!({
                "api": api.name,
                "requests_per_second": api.per_second,
                "own_mean_ms": Stages::of_ms(means).own_ms(),
                "own_p50_ms": api.quantile_ms(0.5),
                "own_p99_ms": api.quantile_ms(0.99),
                "stage_means_ms": stages,
            })
        })
        .collect();
    let minute = now.as_ref().ok().and_then(|now| now.minute.as_ref());
    let counts = now.as_ref().ok().map(|now| &now.counts);
    json!({
        "summary": plain(lead),
        "untold": now.as_ref().err(),
        "seconds": minute.map(|minute| minute.seconds),
        "records_in_per_second": minute.map(|minute| minute.records_in),
        "bytes_in_per_second": minute.map(|minute| minute.bytes_in),
        "bytes_out_per_second": minute.map(|minute| minute.bytes_out),
        "event_loops_busy": minute.map(|minute| minute.busy),
        "cold_reads_per_second": minute.map(|minute| minute.cold_reads),
        "connections": counts.map(|counts| counts.connections),
        "resident_memory_bytes": counts.and_then(|counts| counts.memory_bytes),
        "disk": counts.and_then(|counts| counts.disk),
        "apis": apis,
        "clients": examination.as_ref().ok().map(|examination| &examination.clients),
    })
}
