//! Line charts as inline SVG.

use super::axis::{Axis, cut};
use crate::markup::Markup;
use crate::numbers;

/// Several lines over one pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Below the chart: how to read it, what was left out.
    pub(super) note: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// The index of the colour.
    pub(super) colour: usize,
    /// The index of the dash pattern, so that a line can be told apart without its colour.
    pub(super) dash: usize,
    /// Whether each point has a mark with a tooltip; without marks, the tooltips are columns over
    /// all lines.
    pub(super) has_marks: bool,
    /// Draws steps: each value holds up to its x.
    pub(super) is_stepped: bool,
}

/// The drawing's own units; it scales with the page. Small, so that texts are readable on a phone.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 52.0;
/// The width of the names at the ends of the lines.
const RIGHT: f64 = 94.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const PLOT_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;
/// The distance between two names, one above the other.
const NAME_HEIGHT: f64 = 13.0;
/// The number of letters that fit to the right of the lines.
const NAME_LETTERS: usize = 12;
pub(super) const COLOURS: usize = 7;
pub(super) const DASHES: usize = 4;

impl Chart {
    /// Draws a `figure` with the drawing, its legend and its note; nothing if there is nothing to
    /// draw.
    pub(super) fn draw(&self, page: &mut Markup) {
        if self.lines.iter().all(|line| self.places(line).is_empty()) {
            return;
        }
        page.nest("figure", &[("class", &"chart")], |page| {
            page.leaf("h4", &[], &self.title);
            let view = format!("0 0 {WIDTH} {HEIGHT}");
            let about = self.description();
            page.nest(
                "svg",
                &[("viewBox", &view), ("role", &"img"), ("aria-label", &about)],
                |svg| {
                    self.draw_axes(svg);
                    self.lines.iter().for_each(|line| self.draw_line(line, svg));
                    self.draw_names(svg);
                    self.draw_tooltips(svg);
                },
            );
            let items: Vec<LegendItem<'_>> = self.lines.iter().map(Line::legend).collect();
            draw_legend(&items, page);
            if let Some(note) = &self.note {
                page.leaf("figcaption", &[], note);
            }
        });
    }

    fn description(&self) -> String {
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        format!(
            "{}: {} over {}. Lines: {}.",
            self.title,
            self.y.title,
            self.x.title,
            names.join(", ")
        )
    }

    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((
            LEFT + PLOT_WIDTH * self.x.at(x)?,
            TOP + PLOT_HEIGHT * (1.0 - self.y.at(y)?),
        ))
    }

    fn places(&self, line: &Line) -> Vec<(f64, f64)> {
        line.points
            .iter()
            .filter_map(|point| self.place(*point))
            .collect()
    }

    fn draw_axes(&self, svg: &mut Markup) {
        draw_x_axis(&self.x, (LEFT, PLOT_WIDTH), (TOP, TOP + PLOT_HEIGHT), svg);
        let (right, middle) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT / 2.0);
        for tick in &self.y.ticks {
            let y = round(TOP + PLOT_HEIGHT * (1.0 - tick.at));
            svg.shape(
                "line",
                &[
                    ("class", &"grid"),
                    ("x1", &LEFT),
                    ("x2", &right),
                    ("y1", &y),
                    ("y2", &y),
                ],
            );
            let (x, y) = (LEFT - 5.0, y + 4.0);
            svg.leaf(
                "text",
                &[("class", &"tick end"), ("x", &x), ("y", &y)],
                &tick.text,
            );
        }
        let turned = format!("rotate(-90 12 {middle})");
        svg.leaf(
            "text",
            &[
                ("class", &"title middle"),
                ("x", &12),
                ("y", &middle),
                ("transform", &turned),
            ],
            &self.y.title,
        );
    }

    fn draw_line(&self, line: &Line, svg: &mut Markup) {
        let places = self.places(line);
        let mut path = String::new();
        let mut before = TOP + PLOT_HEIGHT;
        for (index, (x, y)) in places.iter().enumerate() {
            let (x, y) = (round(*x), round(*y));
            path += &match (index, line.is_stepped) {
                (0, false) => format!("M{x} {y}"),
                (0, true) => format!("M{x} {before}V{y}"),
                (_, false) => format!("L{x} {y}"),
                (_, true) => format!("V{y}H{x}"),
            };
            before = y;
        }
        let class = format!("line {} {}", colour(line.colour), dash(line.dash));
        svg.shape("path", &[("class", &class), ("d", &path)]);
        if !line.has_marks && places.len() > 1 {
            return;
        }
        let class = format!("mark {}", colour(line.colour));
        for point in &line.points {
            let Some((x, y)) = self.place(*point) else {
                continue;
            };
            let (x, y) = (round(x), round(y));
            svg.nest(
                "circle",
                &[("class", &class), ("cx", &x), ("cy", &y), ("r", &3.5)],
                |svg| {
                    let (x, y) = (numbers::number(point.0), numbers::number(point.1));
                    let text = format!("{}\n{}: {x}\n{}: {y}", line.name, self.x.title, self.y.title);
                    svg.leaf("title", &[], text);
                },
            );
        }
    }

    /// Draws the names at the right ends of the lines, pushed apart where they would overlap.
    fn draw_names(&self, svg: &mut Markup) {
        let mut names: Vec<(f64, &Line)> = self
            .lines
            .iter()
            .filter_map(|line| Some((self.places(line).last()?.1, line)))
            .collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = PLOT_HEIGHT / names.len().max(1) as f64;
        let distance = NAME_HEIGHT.min(highest);
        let mut y_min = TOP;
        for index in 0..names.len() {
            let below = (names.len() - 1 - index) as f64 * distance;
            let y = names[index].0.min(TOP + PLOT_HEIGHT - below).max(y_min);
            y_min = y + distance;
            let line = names[index].1;
            let (x, y) = (LEFT + PLOT_WIDTH + 6.0, round(y + 4.0));
            let class = format!("name {}", colour(line.colour));
            svg.leaf(
                "text",
                &[("class", &class), ("x", &x), ("y", &y)],
                cut(&line.name, NAME_LETTERS),
            );
        }
    }

    /// Draws columns over the plot, each with the values of all lines at its x.
    fn draw_tooltips(&self, svg: &mut Markup) {
        let lines: Vec<&Line> = self.lines.iter().filter(|line| !line.has_marks).collect();
        let Some(longest) = lines.iter().max_by_key(|line| line.points.len()) else {
            return;
        };
        let width = round((PLOT_WIDTH / longest.points.len().max(1) as f64).max(2.0));
        for (index, (x_value, _)) in longest.points.iter().enumerate() {
            let Some(at) = self.x.at(*x_value) else {
                continue;
            };
            let x = round((LEFT + PLOT_WIDTH * at - width / 2.0).max(LEFT));
            let mut text = format!("{}: {}", self.x.title, numbers::number(*x_value));
            for line in &lines {
                let same = |point: &&(f64, f64)| point.0 == *x_value;
                let here = line
                    .points
                    .get(index)
                    .filter(same)
                    .or_else(|| line.points.iter().find(same));
                if let Some((_, y)) = here {
                    text += &format!("\n{}: {}", line.name, numbers::number(*y));
                }
            }
            svg.nest(
                "rect",
                &[
                    ("class", &"column"),
                    ("x", &x),
                    ("y", &TOP),
                    ("width", &width),
                    ("height", &PLOT_HEIGHT),
                ],
                |svg| svg.leaf("title", &[], text),
            );
        }
    }
}

impl Line {
    fn legend(&self) -> LegendItem<'_> {
        LegendItem {
            name: &self.name,
            colour: self.colour,
            dash: Some(self.dash),
        }
    }
}

/// Draws ticks, their texts and the title under a plot.
///
/// - `across`: left edge and width; `down`: top and bottom.
pub(super) fn draw_x_axis(axis: &Axis, across: (f64, f64), down: (f64, f64), svg: &mut Markup) {
    let (left, width) = across;
    let (top, bottom) = down;
    for tick in &axis.ticks {
        let x = round(left + width * tick.at);
        svg.shape(
            "line",
            &[
                ("class", &"grid"),
                ("x1", &x),
                ("x2", &x),
                ("y1", &top),
                ("y2", &bottom),
            ],
        );
        let y = bottom + 15.0;
        svg.leaf(
            "text",
            &[("class", &"tick middle"), ("x", &x), ("y", &y)],
            &tick.text,
        );
    }
    let (x, y) = (left + width / 2.0, bottom + 34.0);
    svg.leaf(
        "text",
        &[("class", &"title middle"), ("x", &x), ("y", &y)],
        &axis.title,
    );
}

/// A colour, and a line's dash pattern; `None` for an area.
pub(super) struct LegendItem<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) dash: Option<usize>,
}

pub(super) fn draw_legend(items: &[LegendItem<'_>], page: &mut Markup) {
    page.nest("ul", &[("class", &"legend")], |page| {
        for item in items {
            page.nest("li", &[], |page| {
                page.nest(
                    "svg",
                    &[
                        ("class", &"swatch"),
                        ("viewBox", &"0 0 28 10"),
                        ("aria-hidden", &"true"),
                    ],
                    |svg| match item.dash {
                        Some(kind) => {
                            let class = format!("line {} {}", colour(item.colour), dash(kind));
                            svg.shape("path", &[("class", &class), ("d", &"M0 5H28")]);
                        }
                        None => {
                            let class = format!("area {}", colour(item.colour));
                            svg.shape("rect", &[("class", &class), ("width", &28), ("height", &10)]);
                        }
                    },
                );
                page.text(item.name);
            });
        }
    });
}

pub(super) fn colour(index: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6"][index % COLOURS]
}

fn dash(index: usize) -> &'static str {
    ["d0", "d1", "d2", "d3"][index % DASHES]
}

/// Rounds to a tenth of a unit, which is finer than any screen; shorter numbers make smaller files.
pub(super) fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
