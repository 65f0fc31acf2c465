//! The pages: each is a function from what a source tells to blocks, and the same as JSON.
//!
//! Reading order: the modules below, in the order of the navigation.

pub mod overview;
pub mod topics;
pub mod partition;
pub mod messages;
pub mod follow;
pub mod clients;
pub mod client;
pub mod chain;
pub mod what_if;
pub mod groups;
pub mod group;
mod lag;
pub mod tenants;
pub mod requests;
pub mod config;
pub mod access;
pub mod transactions;
pub mod bench;
pub mod help;

use std::fmt::Display;

use ottla_lab::markup::Markup;
use serde::Serialize;

use crate::draw::block::Block;
use crate::draw::text::{Piece, clock, decoded, encoded, text};
use crate::series::{Minute, Series};
use crate::source::{Counts, Part, Source, Told};
use crate::tail::Tails;

/// The version of the JSON of pages; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// A page without its frame.
#[derive(Clone, Debug)]
pub struct Page {
    pub title: String,
    /// The path of its entry in the navigation.
    pub place: &'static str,
    pub blocks: Vec<Block>,
    /// Empty where it was not asked for.
    pub json: String,
}

/// What a page is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Html,
    Json,
}

/// What a page is made from.
pub struct View<'a> {
    pub source: &'a dyn Source,
    pub series: &'a Series,
    pub tails: &'a Tails,
    pub query: &'a Query,
    pub form: Form,
}

impl View<'_> {
    /// The JSON of the page, made only for those who ask for it: it has all rows of a list, and no
    /// blanks, which are a third of a long one.
    pub fn document<T: Serialize>(&self, content: impl FnOnce() -> T) -> String {
        match self.form {
            Form::Html => String::new(),
            Form::Json => {
                let document = Document {
                    version: VERSION,
                    content: content(),
                };
                // Keys of the documents' maps are strings, so they always have a JSON form.
                let text = serde_json::to_string(&document).unwrap_or_default();
                format!("{text}\n")
            }
        }
    }

    /// The time of an answer that was kept, as a sentence.
    pub fn since(&self, part: Part<'_>) -> Vec<Piece> {
        let Some(as_of) = self.source.as_of(part) else {
            return Vec::new();
        };
        let at = format!("Values of {} UTC", clock(as_of.at_ms));
        vec![text(match as_of.problem {
            None => format!("{at}."),
            Some(problem) => format!("{at}, the last there are: {problem}"),
        })]
    }

    pub fn now(&self) -> Told<Now> {
        let counts = self.source.counts()?;
        let minute = self.series.minute(&counts);
        Ok(Now { counts, minute })
    }
}

/// The counts at this moment, and what happened in the minute before it.
pub struct Now {
    pub counts: Counts,
    /// Missing in the first seconds.
    pub minute: Option<Minute>,
}

/// The sentence of a page; where what it is about is not told, why not.
pub fn lead_of<T>(told: &Told<T>, lead: impl FnOnce(&T) -> Vec<Piece>) -> Vec<Piece> {
    match told {
        Err(untold) => vec![text(untold.to_string())],
        Ok(told) => lead(told),
    }
}

/// The parameters of an address, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(pub Vec<(String, String)>);

/// The most parameters that are read.
const PARAMETERS_MAX: usize = 32;

impl Query {
    pub fn read(text: &str) -> Query {
        let pairs = text
            .split('&')
            .filter(|part| !part.is_empty())
            .take(PARAMETERS_MAX);
        let pairs = pairs.filter_map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let of = |text| decoded(text, true);
            Some((of(name)?, of(value)?))
        });
        Query(pairs.collect())
    }

    /// The first value of this name; `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(found, _)| found == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// The page of a long list, from 0.
    pub fn page(&self) -> usize {
        let page = self.get("page").and_then(|page| page.parse().ok());
        page.unwrap_or(0)
    }

    /// The address of this list with another value of one parameter, from its first page on.
    pub fn with(&self, name: &str, value: &str) -> String {
        let others = self
            .0
            .iter()
            .filter(|(other, _)| other != name && other != "page");
        let mut address = String::from("?");
        others.for_each(|(name, value)| address.push_str(&format!("{}={}&", encoded(name), encoded(value))));
        format!("{address}{}={}", encoded(name), encoded(value))
    }

    /// Whether a list that is searched shows this name.
    pub fn finds(&self, name: &str) -> bool {
        let sought = self.get("q").unwrap_or_default().to_lowercase();
        sought.is_empty() || name.to_lowercase().contains(&sought)
    }
}

/// Draws the form of a list that is searched by name.
pub fn draw_search(query: &Query, page: &mut Markup) {
    page.nest("form", &[("class", &"fil"), ("role", &"search")], |page| {
        page.nest("label", &[], |page| {
            page.text("name contains");
            let value = query.get("q").unwrap_or_default();
            let of_field: [(&'static str, &dyn Display); 4] = [
                ("type", &"search"),
                ("name", &"q"),
                ("id", &"find"),
                ("value", &value),
            ];
            page.shape("input", &of_field);
        });
        page.leaf("button", &[], "Show");
    });
}

/// Draws a field of a form whose name is also its label.
pub fn draw_field(title: &'static str, mode: &'static str, value: &str, page: &mut Markup) {
    page.nest("label", &[], |page| {
        page.text(title);
        let of_field: [(&'static str, &dyn Display); 4] = [
            ("name", &title),
            ("value", &value),
            ("inputmode", &mode),
            ("size", &"12"),
        ];
        page.shape("input", &of_field);
    });
}

/// Draws a choice of a form: each option is its value and what is shown of it.
pub fn draw_choice<'a>(
    label: &str,
    field: &'static str,
    options: impl Iterator<Item = (&'a str, String)>,
    query: &Query,
    page: &mut Markup,
) {
    let chosen = query.get(field).unwrap_or_default();
    page.nest("label", &[], |page| {
        page.text(label);
        page.nest("select", &[("name", &field)], |page| {
            for (value, shown) in options {
                match chosen == value {
                    true => page.leaf("option", &[("value", &value), ("selected", &"")], shown),
                    false => page.leaf("option", &[("value", &value)], shown),
                }
            }
        });
    });
}

/// Rows of one page of a list.
pub const ROWS_MAX: usize = 100;

/// The JSON of a page: its version, and what it shows; or why it is not known.
#[derive(Serialize)]
struct Document<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

/// The JSON of an answer that is no page, for people and programs.
pub fn json_text(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// The rows of this page of a list, and the sentence below it.
pub fn paged<'a, T>(rows: &'a [T], query: &Query, what: &str) -> (&'a [T], Option<String>) {
    if rows.len() <= ROWS_MAX {
        return (rows, None);
    }
    let last = (rows.len() - 1) / ROWS_MAX;
    let from = query.page().min(last) * ROWS_MAX;
    let to = (from + ROWS_MAX).min(rows.len());
    let count = |value: usize| ottla_lab::numbers::count(value as u64);
    let text = format!(
        "{} to {} of {} {what}",
        count(from + 1),
        count(to),
        count(rows.len())
    );
    (&rows[from..to], Some(text))
}

/// Draws the sentence of [`paged`] with links to the pages before and after.
pub fn draw_pager(text: &Option<String>, query: &Query, total: usize, page: &mut Markup) {
    let Some(text) = text else { return };
    let last = total.saturating_sub(1) / ROWS_MAX;
    let at = query.page().min(last);
    let to = |page: usize| query.with("page", &page.to_string());
    page.nest("p", &[("class", &"q s")], |page| {
        page.text(text);
        if at > 0 {
            page.text(" · ");
            page.inline("a", &[("href", &to(at - 1)), ("rel", &"prev")], "before");
        }
        if at < last {
            page.text(" · ");
            page.inline("a", &[("href", &to(at + 1)), ("rel", &"next")], "after");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_in_its_order_and_within_limits() {
        let query = Query::read("set=linger.ms%3D5&set=batch.size=32768&q=a+b&bad=%zz&x");
        assert_eq!(query.all("set"), ["linger.ms=5", "batch.size=32768"]);
        assert_eq!(
            (query.get("q"), query.get("bad"), query.get("x")),
            (Some("a b"), None, None)
        );
        assert_eq!(Query::read(&"a=1&".repeat(10_000)).0.len(), PARAMETERS_MAX);
    }

    #[test]
    fn a_changed_parameter_keeps_the_others_and_begins_with_the_first_page() {
        let query = Query::read("q=a%26b&page=7&sort=name");
        assert_eq!(query.with("sort", "size"), "?q=a%26b&sort=size");
        assert_eq!(query.with("page", "8"), "?q=a%26b&sort=name&page=8");
        assert_eq!(Query::default().with("sort", "name"), "?sort=name");
    }

    #[test]
    fn a_name_is_found_by_any_part_of_it() {
        let query = Query::read("q=Ders");
        assert!(query.finds("orders") && query.finds("ORDERS") && !query.finds("payments"));
        assert!(Query::default().finds("") && Query::read("q=").finds("orders"));
    }

    #[test]
    fn a_long_list_is_shown_in_pages() {
        let rows: Vec<u32> = (0..250).collect();
        let (shown, text) = paged(&rows, &Query::read("page=2"), "topics");
        assert_eq!((shown.first(), shown.len()), (Some(&200), 50));
        assert_eq!(text.as_deref(), Some("201 to 250 of 250 topics"));
        let (shown, _) = paged(&rows, &Query::read("page=99999999"), "topics");
        assert_eq!(shown.first(), Some(&200));
        assert_eq!(paged(&rows[..100], &Query::default(), "topics").1, None);
    }
}
