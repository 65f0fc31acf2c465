//! `/config`: settings that differ from their defaults, what clients are asked for, and every
//! setting.

use ottla_lab::markup::Markup;
use serde_json::json;

use super::{Page, View, lead_of};
use crate::draw::block::{Block, block, head, nothing};
use crate::draw::table::{Cell, Table, numbers, words};
use crate::draw::text::{Piece, counted, name, plain, strong, text};
use crate::source::{BrokerSetting, Part, Subscription, Told};

pub fn page(view: &View<'_>) -> Page {
    let topic = view.query.get("topic");
    let settings: Told<Vec<BrokerSetting>> = match topic {
        None => view.source.settings(),
        Some(topic) => view
            .source
            .topic(topic)
            .map(|detail| detail.unwrap_or_default().settings),
    };
    // Those of a topic have nothing to do with them.
    let subscriptions = topic.is_none().then(|| view.source.subscriptions());
    let lead = lead_of(&settings, |settings| lead(settings));
    let document = view.document(|| {
        json!({
            "summary": plain(&lead),
            "untold": settings.as_ref().err(),
            "settings": settings.as_ref().ok(),
            "subscriptions": subscriptions.as_ref().and_then(|told| told.as_ref().ok()),
            "subscriptions_untold": subscriptions.as_ref().and_then(|told| told.as_ref().err()),
        })
    });
    let part = topic.map_or(Part::Settings, Part::Topic);
    let aside = topic.map_or_else(String::new, |topic| format!("topic {}", name(topic)));
    let mut blocks = vec![head("Configuration", &aside, &lead, &view.since(part))];
    if let Ok(settings) = &settings {
        blocks.push(set(settings));
        blocks.extend(subscriptions.as_ref().map(of_clients));
        blocks.push(all(settings, view));
    }
    Page {
        title: String::from("Configuration"),
        place: "/config",
        json: document,
        blocks,
    }
}

fn lead(settings: &[BrokerSetting]) -> Vec<Piece> {
    let set = settings.iter().filter(|setting| setting.is_set).count();
    let without = settings
        .iter()
        .filter(|setting| setting.is_set && setting.is_without_effect)
        .count();
    let mut pieces = vec![
        strong(counted(set, "setting")),
        text(format!(
            " of {} {} set; all others have their defaults.",
            settings.len(),
            if set == 1 { "is" } else { "are" }
        )),
    ];
    if without > 0 {
        pieces.push(text(" "));
        pieces.push(strong(without.to_string()));
        pieces.push(text(
            " of them ".to_owned()
                + if without == 1 { "is" } else { "are" }
                + " accepted and without effect.",
        ));
    }
    pieces
}

fn table(title: &'static str, rows: &[&BrokerSetting], page: &mut Markup) {
    let mut table = Table::new(
        title,
        vec![
            words("key"),
            words("value"),
            words("default"),
            words("set by"),
            words("about"),
        ],
    );
    for setting in rows {
        let value = match (&setting.value, setting.is_secret) {
            (_, true) => Cell::from("(secret)"),
            (Some(value), _) => Cell::from(Piece::Code(name(value))),
            (None, _) => Cell::from("–"),
        };
        let about = match setting.is_without_effect && setting.is_set {
            true => Cell::Mark {
                class: "warn",
                mark: "◆",
                word: format!("without effect. {}", setting.about),
            },
            false => Cell::from(setting.about.as_str()),
        };
        table.row(vec![
            Cell::from(Piece::Code(name(&setting.name))),
            value,
            setting.default.as_deref().unwrap_or("–").into(),
            setting.origin.as_str().into(),
            about,
        ]);
    }
    table.draw(page);
}

fn set(settings: &[BrokerSetting]) -> Block {
    block("set", "What was set", "The difference to the defaults.", |page| {
        let rows: Vec<&BrokerSetting> = settings.iter().filter(|setting| setting.is_set).collect();
        match rows.is_empty() {
            true => nothing("Nothing was set: every setting has its default.", page),
            false => table("What was set", &rows, page),
        }
    })
}

fn of_clients(subscriptions: &Told<Vec<Subscription>>) -> Block {
    let note = "Subscriptions of client metrics (KIP-714): which clients push what, and how often. Set by kafka-client-metrics.sh. \
                Clients that none of them matches push to an Ottla what the doctor needs, every ottla.telemetry.default.interval.ms.";
    block("subscriptions", "What clients are asked for", note, |page| {
        let subscriptions = match subscriptions {
            Err(untold) => return nothing(&untold.to_string(), page),
            Ok(all) if all.is_empty() => return nothing("No subscription is set.", page),
            Ok(all) => all,
        };
        let columns = vec![
            words("subscription"),
            words("metrics"),
            numbers("interval.ms"),
            words("match"),
        ];
        let mut table = Table::new("Subscriptions of client metrics", columns);
        for subscription in subscriptions {
            let or = |value: &str, none: &str| match value {
                "" => Cell::from(none),
                value => Cell::from(Piece::Code(name(value))),
            };
            table.row(vec![
                Cell::from(name(&subscription.name)),
                or(&subscription.metrics, "none"),
                Cell::from(subscription.interval_ms.as_str()),
                or(&subscription.matching, "every client"),
            ]);
        }
        table.draw(page);
    })
}

fn all(settings: &[BrokerSetting], view: &View<'_>) -> Block {
    block(
        "all",
        "Every setting",
        "Search a part of a key or of its description.",
        |page| {
            let sought = view.query.get("q").unwrap_or_default();
            page.nest("form", &[("class", &"fil"), ("role", &"search")], |page| {
                if let Some(topic) = view.query.get("topic") {
                    page.shape(
                        "input",
                        &[("type", &"hidden"), ("name", &"topic"), ("value", &topic)],
                    );
                }
                page.nest("label", &[], |page| {
                    page.text("contains");
                    page.shape(
                        "input",
                        &[
                            ("type", &"search"),
                            ("name", &"q"),
                            ("id", &"find"),
                            ("value", &sought),
                        ],
                    );
                });
                page.leaf("button", &[], "Show");
            });
            let wanted = sought.to_lowercase();
            let is_wanted = |setting: &&BrokerSetting| {
                setting.name.to_lowercase().contains(&wanted)
                    || setting.about.to_lowercase().contains(&wanted)
            };
            let rows: Vec<&BrokerSetting> = settings.iter().filter(is_wanted).collect();
            match rows.is_empty() {
                true => nothing("No key and no description contains this.", page),
                false => table("Every setting", &rows, page),
            }
        },
    )
}
