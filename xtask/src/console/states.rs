//! The console's pages of invented brokers, in a directory for each state: loaded, empty, an Apache
//! Kafka, hostile names.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use ottla_console::asset;
use ottla_console::draw::text::encoded;
use ottla_console::reports::Reports;
use ottla_console::sample::{HOSTILE, Sample, State, site_of};
use ottla_console::site::Ask;
use ottla_lab::bench::{html, sample};

const PAGES: [&str; 21] = [
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/2",
    "/messages/orders",
    "/clients",
    "/clients/orders-writer",
    "/clients/billing-2",
    "/clients/new",
    "/groups",
    "/groups/billing",
    "/groups/invoices",
    "/requests",
    "/messages/orders?follow=1",
    "/tenants",
    "/config",
    "/access",
    "/transactions",
    "/bench",
    "/bench/sample",
    "/help/metrics",
];

/// `/topics/orders` of the state in which every name tries to break out.
fn hostile(page: &str) -> String {
    let mut parts: Vec<String> = page.split('/').map(str::to_owned).collect();
    if let Some(name) = parts.get_mut(2) {
        *name = encoded(&format!("{name}{HOSTILE}"));
    }
    parts.join("/")
}

/// A report whose texts all try to break out, and a later one, each with its page.
fn write_reports(to: &Path) -> io::Result<Arc<Reports>> {
    fs::create_dir_all(to)?;
    let mut report = sample::report();
    for name in ["sample", "later"] {
        fs::write(to.join(format!("{name}.json")), serde_json::to_vec(&report)?)?;
        fs::write(to.join(format!("{name}.html")), html::render(&report))?;
        report.manifest.started_at += 3_600;
    }
    Ok(Arc::new(Reports::of(to)))
}

/// Writes the pages of all states.
pub fn write(to: &Path) -> io::Result<()> {
    for asset in [&asset::STYLE, &asset::SCRIPT, &asset::ICON] {
        let path = to.join(asset.path().trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(path, asset.bytes)?;
    }
    let reports = write_reports(&to.join("reports"))?;
    for (name, state) in [
        ("loaded", State::Loaded),
        ("empty", State::Empty),
        ("stock", State::Stock),
        ("hostile", State::Hostile),
    ] {
        let site = site_of(Sample {
            state,
            more_topics: if state == State::Loaded { 150 } else { 0 },
            reports: Some(reports.clone()),
        });
        fs::create_dir_all(to.join(name))?;
        for address in PAGES {
            let (page, asked) = address.split_once('?').unwrap_or((address, ""));
            let path = match (state, page.matches('/').count()) {
                (State::Hostile, 2..) if !matches!(page, "/help/metrics" | "/bench/sample") => hostile(page),
                _ => page.to_owned(),
            };
            let query = match page {
                "/clients/orders-writer" => "linger.ms=5",
                "/bench" => "a=sample&b=later",
                "/access" => "principal=User:app&operation=Write&type=Topic&name=orders",
                _ => asked,
            };
            let answer = site.answer(Ask {
                path: &path,
                query,
                wants_json: false,
            });
            let file = match address.trim_start_matches('/') {
                "" => String::from("index"),
                address => address.replace(['/', '?', '='], "-"),
            };
            fs::write(to.join(name).join(format!("{file}.html")), answer.body)?;
        }
    }
    Ok(())
}
