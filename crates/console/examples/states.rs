//! Writes the console's pages of invented brokers into a directory, one below it for each state:
//! loaded, empty, an Apache Kafka, hostile names. `cargo xtask console` opens them in a browser.

use std::path::Path;
use std::{env, fs, io};

use ottla_console::asset;
use ottla_console::draw::text::encoded;
use ottla_console::sample::{HOSTILE, State, site};
use ottla_console::site::Ask;

const PAGES: [&str; 18] = [
    "/",
    "/topics",
    "/topics/orders",
    "/messages/orders",
    "/clients",
    "/clients/orders-writer",
    "/clients/billing-2",
    "/clients/new",
    "/groups",
    "/groups/billing",
    "/groups/invoices",
    "/requests",
    "/tenants",
    "/config",
    "/access",
    "/transactions",
    "/bench",
    "/help/metrics",
];

/// `/topics/orders` of the state in which every name tries to break out.
fn hostile(page: &str) -> String {
    let (place, name) = page.rsplit_once('/').unwrap_or_default();
    format!("{place}/{}", encoded(&format!("{name}{HOSTILE}")))
}

fn main() -> io::Result<()> {
    let to = env::args()
        .nth(1)
        .ok_or_else(|| io::Error::other("usage: states DIRECTORY"))?;
    let to = Path::new(&to);
    for asset in [&asset::STYLE, &asset::SCRIPT, &asset::ICON] {
        let path = to.join(asset.path().trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(path, asset.bytes)?;
    }
    for (name, state) in [
        ("loaded", State::Loaded),
        ("empty", State::Empty),
        ("stock", State::Stock),
        ("hostile", State::Hostile),
    ] {
        let site = site(state, if state == State::Loaded { 150 } else { 0 });
        fs::create_dir_all(to.join(name))?;
        for page in PAGES {
            let path = match (state, page.matches('/').count()) {
                (State::Hostile, 2) if page != "/help/metrics" => hostile(page),
                _ => page.to_owned(),
            };
            let query = if page == "/clients/orders-writer" {
                "linger.ms=5"
            } else {
                ""
            };
            let answer = site.answer(Ask {
                path: &path,
                query,
                wants_json: false,
            });
            let file = match page.trim_start_matches('/') {
                "" => String::from("index"),
                page => page.replace('/', "-"),
            };
            fs::write(to.join(name).join(format!("{file}.html")), answer.body)?;
        }
    }
    Ok(())
}
