//! A bar of cells that shows where a client's time goes.

use ottla_lab::doctor::time::{TimePart, TimeShare};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::draw::Palette;

/// The letter at the beginning of each part, so that the bar is readable without colours.
pub fn letter(part: TimePart) -> char {
    match part {
        TimePart::Worker => 'w',
        TimePart::Queue => 'q',
        TimePart::Request => 'r',
        TimePart::Broker => 'b',
        TimePart::Processing => 'p',
        TimePart::Fetch => 'f',
    }
}

pub fn style(part: TimePart, palette: Palette) -> Style {
    if !palette.is_coloured {
        return Style::new();
    }
    let background = match part {
        TimePart::Worker => Color::Magenta,
        TimePart::Queue => Color::Yellow,
        TimePart::Request => Color::Cyan,
        TimePart::Broker => Color::Blue,
        TimePart::Processing => Color::Magenta,
        TimePart::Fetch => Color::Cyan,
    };
    Style::new()
        .bg(background)
        .fg(Color::Black)
        .add_modifier(Modifier::BOLD)
}

/// Returns one span for each part that has a cell.
pub fn spans(time: &[TimeShare], cells: usize, palette: Palette) -> Vec<Span<'static>> {
    let filler = if palette.is_coloured { ' ' } else { '─' };
    let parts = widths(time, cells);
    parts
        .into_iter()
        .map(|(part, width)| {
            let rest = std::iter::repeat_n(filler, width - 1);
            let text: String = std::iter::once(letter(part)).chain(rest).collect();
            Span::styled(text, style(part, palette))
        })
        .collect()
}

/// Distributes the cells in proportion, by largest remainder; all cells are used unless there are
/// no parts.
fn widths(time: &[TimeShare], cells: usize) -> Vec<(TimePart, usize)> {
    let sum: f64 = time.iter().map(|share| share.ms).sum();
    if !(sum > 0.0 && sum.is_finite()) || cells == 0 {
        return Vec::new();
    }
    let exact: Vec<f64> = time.iter().map(|share| share.ms / sum * cells as f64).collect();
    let mut widths: Vec<usize> = exact.iter().map(|width| width.floor() as usize).collect();
    let mut order: Vec<usize> = (0..exact.len()).collect();
    order.sort_by(|one, other| (exact[*other].fract()).total_cmp(&exact[*one].fract()));
    let missing = cells.saturating_sub(widths.iter().sum());
    for index in order.into_iter().cycle().take(missing) {
        widths[index] += 1;
    }
    let parts = time.iter().zip(widths);
    parts
        .map(|(share, width)| (share.part, width))
        .filter(|(_, width)| *width > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(time: &[(TimePart, f64)], cells: usize, expected: &str) {
        let time: Vec<TimeShare> = time
            .iter()
            .map(|(part, ms)| TimeShare { part: *part, ms: *ms })
            .collect();
        let palette = Palette { is_coloured: false };
        let text: String = spans(&time, cells, palette)
            .iter()
            .map(|span| span.content.as_ref())
            .collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn all_cells_are_distributed_in_proportion() {
        use TimePart::{Broker, Queue, Request};
        check(
            &[(Queue, 50.0), (Request, 30.0), (Broker, 20.0)],
            10,
            "q────r──b─",
        );
        check(&[(Queue, 14_000.0), (Request, 9.3)], 5, "q────");
        check(&[(Queue, 1.0), (Request, 1.0), (Broker, 1.0)], 4, "q─rb");
        check(&[(Queue, 0.0)], 4, "");
        check(&[], 4, "");
        check(&[(Queue, 1.0)], 0, "");
    }
}
