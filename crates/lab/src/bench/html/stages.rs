//! The waterfall: where the time of the slowest records was spent.

use super::axis::{Axis, Scale};
use super::chart::{COLOURS, LegendItem, colour, draw_legend, draw_x_axis, round};
use super::table::Table;
use crate::markup::Markup;
use crate::numbers;
use crate::report::{StageMeans, Stages};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 70.0;
const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const TOP: f64 = 8.0;
const ROW: f64 = 34.0;
const BAR: f64 = 22.0;
const BOTTOM: f64 = 44.0;
/// A stage's number is written into its bar if the bar is at least this wide.
const NUMBER_WIDTH: f64 = 30.0;

/// Draws bars of stage means, their table and a note on what was merged.
pub(super) fn draw(stages: &Stages, page: &mut Markup) {
    let rows: Vec<&StageMeans> = stages
        .slowest
        .iter()
        .filter(|means| means.means_ms.iter().any(|mean| mean.is_finite() && *mean > 0.0))
        .collect();
    if rows.is_empty() {
        return;
    }
    page.nest("figure", &[("class", &"chart stages")], |page| {
        page.leaf("h4", &[], "Stages of the slowest records");
        draw_bars(&stages.names, &rows, page);
        let items: Vec<LegendItem<'_>> = stages
            .names
            .iter()
            .enumerate()
            .map(|(index, name)| LegendItem {
                name,
                colour: index,
                dash: None,
            })
            .collect();
        draw_legend(&items, page);
        draw_table(stages, &rows, page);
        let lead =
            "Means over the records around each percentile: percentiles of stages do not add up, means do.";
        let notes: Vec<&str> = std::iter::once(lead)
            .chain(stages.notes.iter().map(String::as_str))
            .collect();
        page.leaf("figcaption", &[], notes.join(" "));
    });
}

fn draw_bars(names: &[String], rows: &[&StageMeans], page: &mut Markup) {
    let totals = rows.iter().map(|row| sum(row).max(row.end_to_end_ms));
    let axis = Axis::fit("ms", Scale::Linear, totals);
    let bottom = TOP + ROW * rows.len() as f64;
    let view = format!("0 0 {WIDTH} {}", bottom + BOTTOM);
    let about = format!("Mean time in each stage, in milliseconds: {}", names.join(", "));
    page.nest(
        "svg",
        &[("viewBox", &view), ("role", &"img"), ("aria-label", &about)],
        |svg| {
            draw_x_axis(&axis, (LEFT, PLOT_WIDTH), (TOP, bottom), svg);
            for (index, row) in rows.iter().enumerate() {
                let y = TOP + ROW * index as f64 + (ROW - BAR) / 2.0;
                draw_bar(names, row, &axis, y, svg);
            }
        },
    );
}

fn draw_bar(names: &[String], row: &StageMeans, axis: &Axis, y: f64, svg: &mut Markup) {
    let text_y = round(y + BAR / 2.0 + 4.0);
    let (label_x, row_name) = (LEFT - 6.0, name(row.percentile));
    svg.leaf(
        "text",
        &[("class", &"tick end"), ("x", &label_x), ("y", &text_y)],
        &row_name,
    );
    let mut before = 0.0;
    for (stage, mean) in row
        .means_ms
        .iter()
        .enumerate()
        .filter(|(_, mean)| mean.is_finite())
    {
        let begin = LEFT + PLOT_WIDTH * axis.at(before).unwrap_or(0.0);
        before += mean.max(0.0);
        let end = LEFT + PLOT_WIDTH * axis.at(before).unwrap_or(0.0);
        let (x, width) = (round(begin), round(end - begin));
        let class = format!("area {}", colour(stage % COLOURS));
        svg.nest(
            "rect",
            &[
                ("class", &class),
                ("x", &x),
                ("y", &round(y)),
                ("width", &width),
                ("height", &BAR),
            ],
            |svg| {
                let stage = names.get(stage).map_or("?", String::as_str);
                let (mean, all) = (numbers::number(*mean), numbers::number(row.end_to_end_ms));
                svg.leaf(
                    "title",
                    &[],
                    format!("{row_name}, {stage}: {mean} ms of {all} ms"),
                );
            },
        );
        if width > NUMBER_WIDTH {
            let middle = round((begin + end) / 2.0);
            svg.leaf(
                "text",
                &[("class", &"inside middle"), ("x", &middle), ("y", &text_y)],
                numbers::number(*mean),
            );
        }
    }
    let end = round(LEFT + PLOT_WIDTH * axis.at(before).unwrap_or(0.0) + 5.0);
    let total = format!("{} ms", numbers::number(row.end_to_end_ms));
    svg.leaf("text", &[("class", &"tick"), ("x", &end), ("y", &text_y)], total);
}

fn draw_table(stages: &Stages, rows: &[&StageMeans], page: &mut Markup) {
    let mut heads = vec![String::from("records around")];
    heads.extend(stages.names.iter().map(|name| format!("{name}, ms")));
    heads.push(String::from("end to end, ms"));
    let mut table = Table::new(heads);
    for row in rows {
        let mut cells = vec![name(row.percentile)];
        cells.extend(row.means_ms.iter().map(|mean| numbers::number(*mean)));
        cells.push(numbers::number(row.end_to_end_ms));
        table.row(cells);
    }
    table.draw(page);
}

fn sum(row: &StageMeans) -> f64 {
    row.means_ms.iter().filter(|mean| mean.is_finite()).sum()
}

fn name(percentile: f64) -> String {
    if percentile >= 100.0 {
        String::from("slowest")
    } else {
        format!("p{percentile}")
    }
}
