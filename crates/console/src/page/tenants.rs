//! `/tenants`: what each tenant costs, and who makes others wait.

use ottla_lab::markup::Markup;
use ottla_lab::numbers::{count, duration, number, percent};
use ottla_lab::tenants::document::{Document, Tenant, TenantQuota};
use serde_json::{Value, json};

use super::{Form, Page, View, draw_pager, json_text, lead_of, paged};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::line;
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, address, counted, link, name, plain, rate, strong, text};
use crate::source::{Part, SetQuota, Told, Untold};

/// Tenants whose quotas are listed, those that were throttled longest.
const LIMITED_MAX: usize = 50;

/// Tenants of the picture of who makes others wait.
const PAIRS_MAX: usize = 12;

pub fn page(view: &View<'_>) -> Page {
    let text_of = view.source.tenants();
    let read: Told<Document> = text_of
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|text| Document::read(text).map_err(Untold));
    let set = view.source.quotas();
    let lead = lead_of(&read, lead);
    Page {
        title: String::from("Tenants"),
        place: "/tenants",
        json: document(&text_of, &read, &set, &lead, view),
        blocks: vec![
            head("Tenants", "", &lead, &view.since(Part::Quotas)),
            shares(&read, view),
            quotas(&read),
            set_quotas(&set, view),
            waits(&read),
        ],
    }
}

/// The same document as for programs that ask /tenants.
fn document(
    text_of: &Told<String>,
    read: &Told<Document>,
    set: &Told<Vec<SetQuota>>,
    lead: &[Piece],
    view: &View<'_>,
) -> String {
    let known: Value = match (view.form, text_of) {
        (Form::Json, Ok(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Value::Null,
    };
    match known {
        Value::Object(_) => json_text(&known),
        _ => view.document(|| {
            json!({
                "summary": plain(lead),
                "untold": read.as_ref().err(),
                "quotas_set": set.as_ref().ok(),
                "quotas_untold": set.as_ref().err(),
            })
        }),
    }
}

fn lead(read: &Document) -> Vec<Piece> {
    let Some(heaviest) = read.tenants.first() else {
        return vec![text("No client has connected yet.")];
    };
    let mut pieces = vec![
        text("The event loops are "),
        strong(format!("{} busy", percent(read.utilisation.clamp(0.0, 1.0)))),
        text(format!(" with {}", counted(read.tenants.len(), "tenant"))),
    ];
    match heaviest.share >= 0.001 {
        false => pieces.push(text(".")),
        true => {
            pieces.push(text("; the heaviest is "));
            pieces.push(named(heaviest));
            pieces.push(text(" with "));
            pieces.push(strong(percent(heaviest.share)));
            pieces.push(text("."));
        }
    }
    pieces
}

/// The name, with the page of the client if it is one: users and addresses have none.
fn named(tenant: &Tenant) -> Piece {
    match tenant.kind.as_str() {
        "client-id" => link(address("clients", &tenant.name), name(&tenant.name)),
        _ => text(name(&tenant.name)),
    }
}

fn shares(read: &Told<Document>, view: &View<'_>) -> Block {
    let note = "Share of the event loops’ time, now and over the last hour. Nothing has to be configured: loops serve tenants in turn, by measured cost.";
    block("tenants", "What each one costs", note, |page| {
        let read = match read {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(read) if read.tenants.is_empty() => {
                return nothing("A tenant appears with its first connection.", page);
            }
            Ok(read) => read,
        };
        let seconds = (read.window_ms as f64 / 1e3).max(1e-3);
        let mut table = Table::new(
            "Tenants",
            vec![
                words("tenant"),
                words("by"),
                numbers("share"),
                numbers("an hour ago"),
                numbers("requests/s"),
                numbers("records/s"),
                numbers("MB/s in"),
                numbers("MB/s out"),
                numbers("connections"),
            ],
        );
        let (shown, text) = paged(&read.tenants, view.query, "tenants");
        for tenant in shown {
            let window = &tenant.window;
            let per_second = |value: u64| value as f64 / seconds;
            let before = (read.past_minutes > 0).then(|| {
                tenant
                    .past_shares
                    .get(read.past_minutes - 1)
                    .copied()
                    .unwrap_or(0.0)
            });
            table.row(vec![
                Cell::from(named(tenant)),
                tenant.kind.as_str().into(),
                percent(tenant.share).into(),
                before.map_or_else(|| String::from("–"), percent).into(),
                rate(per_second(window.requests)).into(),
                rate(per_second(window.records)).into(),
                number(per_second(window.bytes_in) / 1e6).into(),
                number(per_second(window.bytes_out) / 1e6).into(),
                count(tenant.connections).into(),
            ]);
        }
        table.draw(page);
        draw_pager(&text, view.query, read.tenants.len(), page);
    })
}

fn quotas(read: &Told<Document>) -> Block {
    let note = "The limit that applies to the clients of each tenant: the most specific one, as Kafka chooses it. Throttled: since the broker started.";
    block("quotas", "Quotas in force", note, |page| {
        let Ok(read) = read else {
            return nothing(
                "Apache Kafka does not tell which quota applies to which client, nor whether it throttled it; an Ottla does.",
                page,
            );
        };
        let limits = |tenant: &&Tenant| !tenant.quotas.is_empty();
        let mut limited: Vec<&Tenant> = read.tenants.iter().filter(limits).collect();
        if limited.is_empty() {
            return nothing("No quota applies to a tenant that has been seen.", page);
        }
        limited.sort_by_key(|tenant| std::cmp::Reverse(throttled_ms(tenant)));
        if read.quotas_are_dry_run {
            nothing(
                "Quotas are only counted (ottla.quota.dry.run): nothing is throttled.",
                page,
            );
        }
        let columns = vec![
            words("tenant"),
            words("quota"),
            numbers("limit"),
            numbers("at present"),
            words("set for"),
            numbers("throttled"),
            numbers("for"),
        ];
        let mut table = Table::new("Quotas", columns);
        for tenant in limited.iter().take(LIMITED_MAX) {
            for quota in &tenant.quotas {
                table.row(quota_row(tenant, quota));
            }
        }
        table.draw(page);
        let cut: usize = limited
            .iter()
            .take(LIMITED_MAX)
            .map(|tenant| tenant.quotas_cut)
            .sum();
        let more: usize = limited
            .iter()
            .skip(LIMITED_MAX)
            .map(|tenant| tenant.quotas.len())
            .sum();
        if cut + more > 0 {
            nothing(&format!("Not shown: {}.", counted(cut + more, "quota")), page);
        }
    })
}

fn set_quotas(set: &Told<Vec<SetQuota>>, view: &View<'_>) -> Block {
    let note = "By entity, as kafka-configs.sh sets them, whether a client of it has been seen or not. “default” applies to those without one of their own.";
    block("set", "Quotas that are set", note, |page| {
        let set = match set {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(none) if none.is_empty() => return nothing("None is set.", page),
            Ok(set) => set,
        };
        let columns = vec![words("set for"), words("quota"), numbers("limit")];
        let mut table = Table::new("Quotas that are set", columns);
        let (shown, text) = paged(set, view.query, "quotas");
        for quota in shown {
            table.row(vec![
                name(&quota.entity).into(),
                name(&quota.quota).into(),
                limit(&quota.quota, quota.limit).into(),
            ]);
        }
        table.draw(page);
        draw_pager(&text, view.query, set.len(), page);
    })
}

/// `50 MB/s`, `200 %`.
fn limit(quota: &str, value: f64) -> String {
    match quota {
        "producer_byte_rate" | "consumer_byte_rate" => format!("{} MB/s", number(value / 1e6)),
        "request_percentage" => format!("{} %", number(value)),
        _ => format!("{}/s", number(value)),
    }
}

fn throttled_ms(tenant: &Tenant) -> u64 {
    tenant.quotas.iter().map(|quota| quota.throttle_ms).sum()
}

fn quota_row(tenant: &Tenant, quota: &TenantQuota) -> Vec<Cell> {
    let times = match quota.throttles {
        1 => String::from("once"),
        times => format!("{} times", count(times)),
    };
    vec![
        Cell::from(named(tenant)),
        quota.quota.as_str().into(),
        limit(&quota.quota, quota.limit).into(),
        limit(&quota.quota, quota.rate).into(),
        name(&quota.set_for).into(),
        times.into(),
        duration(quota.throttle_ms as f64 / 1e3).into(),
    ]
}

fn waits(read: &Told<Document>) -> Block {
    let note = "Left: time that others waited while this tenant was served. Right: time that it waited for others. One scale.";
    block("waits", "Who makes others wait", note, |page| {
        let Ok(read) = read else {
            return nothing("Only a broker that shares its loops by cost knows this.", page);
        };
        let mut rows: Vec<&Tenant> = read.tenants.iter().collect();
        let weight = |tenant: &Tenant| tenant.window.inflicted_micros + tenant.window.suffered_micros;
        rows.sort_by_key(|tenant| std::cmp::Reverse(weight(tenant)));
        rows.truncate(PAIRS_MAX);
        let most = rows
            .iter()
            .map(|tenant| tenant.window.inflicted_micros.max(tenant.window.suffered_micros))
            .max();
        let most = most.unwrap_or(0);
        if most == 0 {
            return nothing("No tenant has waited for another in the last minute.", page);
        }
        let seconds = (read.window_ms as f64 / 1e3).max(1e-3);
        page.nest("ul", &[("class", &"no")], |page| {
            for tenant in rows.iter().filter(|tenant| weight(tenant) > 0) {
                two_sided(tenant, most as f64, seconds, page);
            }
        });
    })
}

fn two_sided(tenant: &Tenant, most: f64, seconds: f64, page: &mut Markup) {
    let (inflicted, suffered) = (
        tenant.window.inflicted_micros as f64,
        tenant.window.suffered_micros as f64,
    );
    page.nest("li", &[], |page| {
        page.leaf("span", &[], name(&tenant.name));
        page.nest("div", &[], |page| {
            page.nest(
                "svg",
                &[("class", &"bar thin"), ("aria-hidden", &"true")],
                |page| {
                    let left = inflicted / most * 49.5;
                    let (x, width) = (format!("{:.2}%", 49.5 - left), format!("{left:.2}%"));
                    page.shape("rect", &[("class", &"disk"), ("x", &x), ("width", &width)]);
                    let right = format!("{:.2}%", suffered / most * 49.5);
                    page.shape("rect", &[("class", &"line"), ("x", &"50.5%"), ("width", &right)]);
                },
            );
            let ms = |micros: f64| number(micros / 1e3 / seconds);
            page.nest("div", &[("class", &"eq")], |page| {
                page.inline(
                    "i",
                    &[("class", &"disk")],
                    format_args!("others waited {} ms/s", ms(inflicted)),
                );
                page.text(" · ");
                page.inline(
                    "i",
                    &[("class", &"line")],
                    format_args!("it waited {} ms/s", ms(suffered)),
                );
            });
            let mut past = tenant.past_shares.clone();
            past.reverse();
            line::spark(&past, page);
        });
    });
}
