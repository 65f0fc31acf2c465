//! Blocks: a page is a head and a list of them; each has a title, a note on how to read it, and
//! its content. A block is also what is sent again when it has changed.

use ottla_lab::markup::Markup;

use super::text::{self, Piece};

/// A part of a page that is replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub id: &'static str,
    pub html: Markup,
}

/// What is sent of a block: all but its rows, and each row with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    Rest(&'a str),
    Row { key: &'a str, html: &'a str },
}

/// How elements begin that have a key, and how they end. Names are escaped, so none of them can
/// have this in it.
const ROWS: [(&str, &str); 2] = [("<tr data-key=\"", "</tr>"), ("<li data-key=\"", "</li>")];

impl Block {
    /// The block in its order.
    pub fn segments(&self) -> Vec<Segment<'_>> {
        let mut segments = Vec::new();
        let mut rest = self.html.as_str();
        while let Some((from, key, to)) = next_row(rest) {
            segments.push(Segment::Rest(&rest[..from]));
            segments.push(Segment::Row {
                key,
                html: &rest[from..to],
            });
            rest = &rest[to..];
        }
        segments.push(Segment::Rest(rest));
        segments
    }
}

/// Where the next row begins, its key, and where it ends.
fn next_row(html: &str) -> Option<(usize, &str, usize)> {
    let begins = ROWS
        .iter()
        .filter_map(|(begin, end)| Some((html.find(begin)?, begin, end)));
    let (from, begin, end) = begins.min()?;
    let key = html[from + begin.len()..].split('"').next()?;
    let to = from + html[from..].find(end)? + end.len();
    Some((from, key, to))
}

/// The head: name, what it is, and the sentence that says what is the case.
pub fn head(title: &str, aside: &str, lead: &[Piece], more: &[Piece]) -> Block {
    let mut page = Markup::default();
    page.nest("div", &[("class", &"head"), ("id", &"head")], |page| {
        page.nest("h1", &[], |page| {
            page.text(title);
            if !aside.is_empty() {
                page.text(" ");
                page.inline("span", &[("class", &"q")], aside);
            }
        });
        let verdict = verdict(lead);
        page.nest("p", &[("class", &"lead"), ("data-verdict", &verdict)], |page| {
            text::write(lead, page)
        });
        if !more.is_empty() {
            page.nest("p", &[], |page| text::write(more, page));
        }
    });
    Block {
        id: "head",
        html: page,
    }
}

/// The sentence without its figures: it changes when what is the case does, and is then announced.
fn verdict(lead: &[Piece]) -> String {
    let is_figure = |character: &char| character.is_ascii_digit() || matches!(character, '.' | ',');
    text::plain(lead)
        .chars()
        .filter(|character| !is_figure(character))
        .collect()
}

/// A block; `note` says how to read it.
pub fn block(id: &'static str, title: &str, note: &str, inner: impl FnOnce(&mut Markup)) -> Block {
    let mut page = Markup::default();
    let title_id = format!("{id}-title");
    page.nest(
        "section",
        &[("class", &"b"), ("id", &id), ("aria-labelledby", &title_id)],
        |page| {
            page.nest("div", &[("class", &"note")], |page| {
                page.leaf("h2", &[("id", &title_id)], title);
                if !note.is_empty() {
                    page.leaf("p", &[], note);
                }
            });
            page.nest("div", &[], inner);
        },
    );
    Block { id, html: page }
}

/// In place of content that is not there: why, or what would fill it.
pub fn nothing(why: &str, page: &mut Markup) {
    page.leaf("p", &[("class", &"none")], why);
}

/// A list of names and values.
pub fn facts(facts: &[(&str, String)], page: &mut Markup) {
    page.nest("dl", &[("class", &"f")], |page| {
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            page.leaf("dt", &[], name);
            page.leaf("dd", &[], value);
        }
    });
}
