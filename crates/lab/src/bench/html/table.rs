//! Tables that scroll sideways on a small screen.

use crate::markup::Markup;

/// Head and rows of text; the style aligns all cells but the first to the right, for numbers.
#[derive(Clone, Debug)]
pub(super) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: Vec<String>) -> Table {
        Table {
            heads,
            rows: Vec::new(),
        }
    }

    pub(super) fn of(heads: &[&str]) -> Table {
        Table::new(heads.iter().map(|head| (*head).to_owned()).collect())
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Draws nothing if there are no rows.
    pub(super) fn draw(&self, page: &mut Markup) {
        if self.rows.is_empty() {
            return;
        }
        page.nest("div", &[("class", &"scroll")], |page| {
            page.nest("table", &[], |page| {
                page.nest("thead", &[], |page| draw_row("th", &self.heads, page));
                page.nest("tbody", &[], |page| {
                    self.rows.iter().for_each(|cells| draw_row("td", cells, page));
                });
            });
        });
    }
}

fn draw_row(tag: &'static str, cells: &[String], page: &mut Markup) {
    page.nest("tr", &[], |page| {
        cells.iter().for_each(|cell| page.leaf(tag, &[], cell))
    });
}

/// A table of names and values, one pair per row.
pub(super) fn facts(pairs: &[(&str, String)], page: &mut Markup) {
    page.nest("dl", &[], |page| {
        for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
            page.leaf("dt", &[], name);
            page.leaf("dd", &[], value);
        }
    });
}
