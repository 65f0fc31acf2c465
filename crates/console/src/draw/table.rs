//! Tables: a caption for those who do not see the title, heads with a scope, cells with their
//! units in the head.

use ottla_lab::markup::Markup;

use super::text::{self, Keys, Piece};

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    pub head: &'static str,
    pub is_number: bool,
    /// The address that sorts by this column, and whether it does.
    pub sort: Option<(String, bool)>,
}

pub fn words(head: &'static str) -> Column {
    Column {
        head,
        is_number: false,
        sort: None,
    }
}

pub fn numbers(head: &'static str) -> Column {
    Column {
        head,
        is_number: true,
        sort: None,
    }
}

impl Column {
    #[must_use]
    pub fn sorted_by(mut self, to: String, is_current: bool) -> Column {
        self.sort = Some((to, is_current));
        self
    }
}

/// What stands in a cell.
#[derive(Clone, Debug)]
pub enum Cell {
    Words(Vec<Piece>),
    /// A bar from zero, as a share of the longest one; red where something is limited.
    Bar {
        share: f64,
        is_bad: bool,
    },
    /// A mark with its word: `bad`, `warn` or `good`.
    Mark {
        class: &'static str,
        mark: &'static str,
        word: String,
    },
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Words(vec![Piece::Text(text)])
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

impl From<Piece> for Cell {
    fn from(piece: Piece) -> Cell {
        Cell::Words(vec![piece])
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    name: &'static str,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    last: Option<Vec<Cell>>,
}

impl Table {
    /// - `name`: what it lists, for readers that do not see it.
    pub fn new(name: &'static str, columns: Vec<Column>) -> Table {
        Table {
            name,
            columns,
            rows: Vec::new(),
            last: None,
        }
    }

    /// Adds a row; its first cell is the row's head.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Sets the row below the line: the sum.
    pub fn sum(&mut self, cells: Vec<Cell>) {
        self.last = Some(cells);
    }

    pub fn draw(&self, page: &mut Markup) {
        // The block around it has the same title; landmarks need names of their own.
        let label = format!("{}, table", self.name);
        let around: [(&'static str, &dyn std::fmt::Display); 4] = [
            ("class", &"scroll"),
            ("tabindex", &"0"),
            ("role", &"region"),
            ("aria-label", &label),
        ];
        page.nest("div", &around, |page| {
            page.nest("table", &[], |page| {
                page.nest("thead", &[], |page| {
                    page.nest("tr", &[], |page| {
                        self.columns.iter().for_each(|column| head(column, page))
                    });
                });
                page.nest("tbody", &[], |page| {
                    let mut keys = Keys::default();
                    for row in &self.rows {
                        let key = keys.of(&[&head_of(row)]);
                        page.nest("tr", &[("data-key", &key)], |page| self.draw_cells(row, page));
                    }
                });
                if let Some(last) = &self.last {
                    page.nest("tfoot", &[], |page| {
                        page.nest("tr", &[], |page| self.draw_cells(last, page));
                    });
                }
            });
        });
    }

    fn draw_cells(&self, cells: &[Cell], page: &mut Markup) {
        for (index, (cell, column)) in cells.iter().zip(&self.columns).enumerate() {
            let class = if column.is_number { "r" } else { "" };
            match index {
                0 => page.nest("th", &[("scope", &"row"), ("class", &class)], |page| {
                    draw(cell, page)
                }),
                _ => page.nest("td", &[("class", &class)], |page| draw(cell, page)),
            }
        }
    }
}

/// What a row is about, as text.
fn head_of(cells: &[Cell]) -> String {
    match cells.first() {
        Some(Cell::Words(pieces)) => text::plain(pieces),
        Some(Cell::Mark { word, .. }) => word.clone(),
        Some(Cell::Bar { .. }) | None => String::new(),
    }
}

fn head(column: &Column, page: &mut Markup) {
    let class = if column.is_number { "r" } else { "" };
    match &column.sort {
        None => page.leaf("th", &[("scope", &"col"), ("class", &class)], column.head),
        Some((to, true)) => {
            let sorted: [(&'static str, &dyn std::fmt::Display); 3] =
                [("scope", &"col"), ("class", &class), ("aria-sort", &"descending")];
            page.nest("th", &sorted, |page| {
                page.inline("a", &[("href", to)], format_args!("{} ↓", column.head));
            });
        }
        Some((to, false)) => page.nest("th", &[("scope", &"col"), ("class", &class)], |page| {
            page.inline("a", &[("href", to)], column.head);
        }),
    }
}

fn draw(cell: &Cell, page: &mut Markup) {
    match cell {
        Cell::Words(pieces) => text::write(pieces, page),
        Cell::Mark { class, mark, word } => {
            let class = format!("mk {class}");
            page.inline("span", &[("class", &class), ("aria-hidden", &"true")], mark);
            page.text(format_args!(" {word}"));
        }
        Cell::Bar { share, is_bad } => {
            let width = format!("{:.1}%", share.clamp(0.0, 1.0) * 100.0);
            let class = if *is_bad { "lb" } else { "lg" };
            page.nest(
                "svg",
                &[("width", &"100%"), ("height", &"10"), ("aria-hidden", &"true")],
                |page| page.shape("rect", &[("class", &class), ("width", &width), ("height", &"10")]),
            );
        }
    }
}
