//! The frame of every page: head, navigation, footer.

use ottla_lab::markup::Markup;

use crate::asset::{ICON, SCRIPT, STYLE};
use crate::draw::text::{encoded, name};
use crate::page::Page;
use crate::source::Identity;

/// The pages in the line at the top, and those in the footer.
const PLACES: [(&str, &str); 5] = [
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/clients", "Clients"),
    ("/groups", "Groups"),
    ("/requests", "Requests"),
];
const MORE_PLACES: [(&str, &str); 6] = [
    ("/tenants", "Tenants"),
    ("/config", "Configuration"),
    ("/access", "Access"),
    ("/transactions", "Transactions"),
    ("/bench", "Bench"),
    ("/help/metrics", "Metrics"),
];

const KEYS: [(&str, &str); 7] = [
    (
        "g o, g t, g c, g g, g r, g n, g s",
        "overview, topics, clients, groups, requests, tenants, settings",
    ),
    ("j, k", "next and previous row"),
    ("Enter", "open it"),
    ("/", "search"),
    ("p", "freeze, and go on"),
    (".", "what if"),
    ("?", "these keys"),
];

/// Renders the whole document.
///
/// - `address`: path and query of this page; the stream of its changes is asked with it.
pub fn render(page: &Page, identity: &Identity, address: &str) -> String {
    let mut out = Markup::default();
    out.literal("<!doctype html>\n");
    out.nest("html", &[("lang", &"en")], |out| {
        out.nest("head", &[], |out| head(page, out));
        let live = format!("/events?page={}", encoded(address));
        out.nest("body", &[("data-live", &live)], |out| body(page, identity, out));
    });
    out.into_string()
}

fn head(page: &Page, out: &mut Markup) {
    out.shape("meta", &[("charset", &"utf-8")]);
    out.shape(
        "meta",
        &[
            ("name", &"viewport"),
            ("content", &"width=device-width, initial-scale=1"),
        ],
    );
    out.leaf("title", &[], format_args!("{} · Ottla", page.title));
    out.shape("link", &[("rel", &"icon"), ("href", &ICON.path())]);
    out.shape("link", &[("rel", &"stylesheet"), ("href", &STYLE.path())]);
    out.leaf("script", &[("type", &"module"), ("src", &SCRIPT.path())], "");
}

fn body(page: &Page, identity: &Identity, out: &mut Markup) {
    out.leaf("a", &[("class", &"skip"), ("href", &"#main")], "To the content");
    // The hatching of waits that clients ask for.
    out.literal("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"sr\"><defs><pattern id=\"h\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><line class=\"hl\" y2=\"5\"/></pattern></defs></svg>\n");
    out.nest("div", &[("class", &"top")], |out| {
        out.nest("header", &[], |out| {
            out.open("a", &[("class", &"brand"), ("href", &"/")]);
            out.text("Ottla");
            out.inline("span", &[], name(&identity.address));
            out.end("a");
            navigation("Pages", &PLACES, page.place, out);
            live(out);
        });
    });
    out.nest("main", &[("id", &"main"), ("tabindex", &"-1")], |out| {
        page.blocks.iter().for_each(|block| out.add(&block.html));
    });
    out.leaf(
        "p",
        &[
            ("class", &"sr"),
            ("id", &"said"),
            ("role", &"status"),
            ("aria-live", &"polite"),
        ],
        "",
    );
    out.nest("footer", &[], |out| {
        navigation("More pages", &MORE_PLACES, page.place, out);
        out.nest("p", &[], |out| {
            out.text(format_args!(
                "{}. Read-only. Times are UTC. Every page is also JSON: add ",
                identity.software
            ));
            out.inline("code", &[], ".json");
            out.text(" to its address. ");
            out.nest("span", &[("class", &"opt")], |out| {
                out.inline("kbd", &[], "?");
                out.text(" lists the keys.");
            });
        });
    });
    keys(out);
}

fn navigation(title: &str, places: &[(&'static str, &'static str)], current: &str, out: &mut Markup) {
    out.nest("nav", &[("aria-label", &title)], |out| {
        out.nest("ul", &[], |out| {
            for (path, title) in places {
                out.nest("li", &[], |out| match *path == current {
                    true => out.leaf("a", &[("href", path), ("aria-current", &"page")], title),
                    false => out.leaf("a", &[("href", path)], title),
                });
            }
        });
    });
}

/// Buttons that only a script can serve are shown by the script.
fn live(out: &mut Markup) {
    out.nest("div", &[("class", &"live"), ("id", &"live")], |out| {
        out.open("span", &[]);
        out.inline("i", &[("aria-hidden", &"true")], "");
        out.inline("span", &[("id", &"live-text")], "not live: reload for new values");
        out.end("span");
        out.leaf(
            "button",
            &[("type", &"button"), ("id", &"freeze"), ("hidden", &"")],
            "Freeze",
        );
        out.leaf(
            "button",
            &[("type", &"button"), ("id", &"theme"), ("hidden", &"")],
            "Dark",
        );
    });
}

fn keys(out: &mut Markup) {
    out.nest(
        "dialog",
        &[("id", &"keys"), ("aria-labelledby", &"keys-title")],
        |out| {
            out.leaf("h2", &[("id", &"keys-title")], "Keys");
            out.nest("dl", &[("class", &"f")], |out| {
                for (key, what) in KEYS {
                    out.nest("dt", &[], |out| out.inline("kbd", &[], key));
                    out.leaf("dd", &[], what);
                }
            });
            out.nest("form", &[("method", &"dialog")], |out| {
                out.leaf("button", &[], "Close")
            });
        },
    );
}
