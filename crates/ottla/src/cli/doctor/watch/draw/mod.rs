//! Draws the live screen's state onto a frame of any size.

use std::time::Instant;

use ottla_lab::doctor::Diagnosis;
use ottla_lab::doctor::severity::Severity;
use ottla_lab::doctor::time::TimePart;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::bar;
use super::state::{Contact, Screen, View};
use crate::cli::doctor::text::{Paper, change, clean, cut, explain, letters, promise, wrap};

#[derive(Clone, Copy, Debug)]
pub struct Palette {
    pub is_coloured: bool,
}

impl Palette {
    fn colour(self, color: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }

    fn severe(self, severity: Severity) -> Style {
        match severity {
            Severity::Failing => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            Severity::Limited => self.colour(Color::Red),
            Severity::Inefficient => self.colour(Color::Yellow),
            Severity::Unknown => self.colour(Color::DarkGray),
            Severity::Good => self.colour(Color::Green),
        }
    }

    fn faint(self) -> Style {
        self.colour(Color::DarkGray)
    }
}

/// A screen with fewer rows shows only the list.
const ROWS_FOR_DETAIL: u16 = 14;
const DETAIL_ROWS: u16 = 6;
/// From this many rows on there is room for the whole sentence.
const ROWS_FOR_MORE: u16 = 20;
const MORE_ROWS: u16 = 8;
/// Rows of the detail beside the sentence: title, change, promise and time.
const ROWS_BESIDE_SENTENCE: u16 = 4;

pub fn screen(frame: &mut Frame<'_>, screen: &mut Screen, palette: Palette, now: Instant) {
    let area = frame.area();
    if area.width < 10 || area.height < 3 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    let [head, middle, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(head_line(screen, palette, now, usize::from(area.width)), head);
    frame.render_widget(foot_line(screen, palette, usize::from(area.width)), foot);
    match screen.view {
        View::Explanation { top } => draw_explanation(frame, middle, screen, palette, top),
        View::List | View::Filter => draw_list(frame, middle, screen, palette),
    }
}

fn head_line(screen: &Screen, palette: Palette, now: Instant, width: usize) -> Line<'static> {
    let seconds = |since: &Instant| now.saturating_duration_since(*since).as_secs();
    let bad = screen
        .all()
        .iter()
        .filter(|client| client.severity().is_bad())
        .count();
    let count = match screen.all().len() {
        1 => String::from("1 client"),
        count => format!("{count} clients"),
    };
    let clients = format!("{count}, {bad} limited");
    let (state, style) = match &screen.contact {
        Contact::Waiting => (String::from("waiting for the first answer"), palette.faint()),
        Contact::Since(at) if seconds(at) < 10 => (clients, Style::new()),
        Contact::Since(at) => (
            format!("{clients}, of {} s ago", seconds(at)),
            palette.colour(Color::Yellow),
        ),
        Contact::Lost { since, why } => {
            let text = format!(
                "NO ANSWER for {} s ({}); last known: {clients}",
                seconds(since),
                clean(why)
            );
            (text, palette.colour(Color::Red).add_modifier(Modifier::BOLD))
        }
    };
    let paused = if screen.is_paused { "PAUSED  " } else { "" };
    let begin = format!("ottla doctor {}  {paused}", clean(&screen.address));
    let room = width.saturating_sub(letters(&begin));
    Line::from(vec![
        Span::styled(begin, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(cut(&state, room), style),
    ])
}

fn foot_line(screen: &Screen, palette: Palette, width: usize) -> Line<'static> {
    let text = match screen.view {
        View::Filter => format!("/{}▏  enter keeps it, esc clears it", clean(&screen.filter)),
        _ if !screen.message.is_empty() => clean(&screen.message),
        View::List if screen.filter.is_empty() => {
            String::from("↑↓ choose  enter explain  e export evidence  / filter  p pause  q quit")
        }
        View::List => format!(
            "filter {:?}: {} shown, esc shows all",
            screen.filter,
            screen.shown().len()
        ),
        View::Explanation { .. } => {
            String::from("↑↓ scroll  ←→ other client  e export evidence  p pause  esc back")
        }
    };
    Line::styled(cut(&text, width), palette.faint())
}

/// Which columns fit: the narrower the screen, the fewer.
struct Columns {
    name: usize,
    verdict: usize,
    bar: usize,
    change: usize,
}

const MARK: usize = 2;
const VERDICT: usize = 17;
const BAR: usize = 20;
const CHANGE: usize = 24;

impl Columns {
    fn of(width: usize, clients: &[&Diagnosis]) -> Columns {
        let longest = clients
            .iter()
            .map(|client| letters(&client.client_id))
            .max()
            .unwrap_or(0);
        let wished = longest.clamp(6, 32);
        let left = width.saturating_sub(MARK + VERDICT + 2);
        let bar = if left >= wished.min(16) + 2 + BAR { BAR } else { 0 };
        let left = left.saturating_sub(if bar > 0 { bar + 2 } else { 0 });
        let change = match left.checked_sub(wished + 2) {
            Some(room) if room >= CHANGE => room,
            _ => 0,
        };
        let name = match change {
            0 => left.max(4),
            _ => wished,
        };
        Columns {
            name,
            verdict: VERDICT,
            bar,
            change,
        }
    }
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, palette: Palette) {
    let (list, detail) = match area.height >= ROWS_FOR_DETAIL {
        true => {
            let rows = if area.height >= ROWS_FOR_MORE {
                MORE_ROWS
            } else {
                DETAIL_ROWS
            };
            let parts = [Constraint::Min(3), Constraint::Length(rows)];
            let [list, detail] = Layout::vertical(parts).areas(area);
            (list, Some(detail))
        }
        false => (area, None),
    };
    let rows = usize::from(list.height).saturating_sub(1).max(1);
    screen.rows = rows;
    screen.top = top_of(screen.top, screen.place(), rows, screen.shown().len());
    let shown = screen.shown();
    let columns = Columns::of(usize::from(area.width), &shown);
    let mut lines = vec![heads(&columns, palette)];
    if shown.is_empty() {
        let text = match (&screen.contact, screen.all().is_empty()) {
            (_, false) => "no client fits the filter",
            (Contact::Waiting, true) => "",
            (_, true) => "no client has been seen yet",
        };
        lines.push(Line::styled(text, palette.faint()));
    }
    for (index, client) in shown.iter().enumerate().skip(screen.top).take(rows) {
        let text = change_of(client, screen.promised(client));
        lines.push(row(client, &text, &columns, palette, index == screen.place()));
    }
    frame.render_widget(Paragraph::new(lines), list);
    if let (Some(area), Some(client)) = (detail, screen.selected()) {
        let sentence_rows = usize::from(area.height.saturating_sub(ROWS_BESIDE_SENTENCE));
        let promised = screen.promised(client);
        let lines = detail_lines(client, promised, usize::from(area.width), sentence_rows, palette);
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// Returns the first line on the screen, moved no more than needed to show the selected one.
fn top_of(top: usize, place: usize, rows: usize, count: usize) -> usize {
    let top = top.min(count.saturating_sub(rows));
    if place < top {
        return place;
    }
    top.max((place + 1).saturating_sub(rows))
}

fn padded(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let rest = width.saturating_sub(letters(&text));
    format!("{text}{}", " ".repeat(rest))
}

fn heads(columns: &Columns, palette: Palette) -> Line<'static> {
    let mut text = format!(
        "{:MARK$}{}  {}",
        "",
        padded("client", columns.name),
        padded("verdict", columns.verdict)
    );
    if columns.bar > 0 {
        text.push_str("  ");
        text.push_str(&padded("where time goes", columns.bar));
    }
    if columns.change > 0 {
        text.push_str("  change");
    }
    Line::styled(text, palette.faint())
}

/// The recommended change; without one, what came of the last.
fn change_of(client: &Diagnosis, promised: Option<&str>) -> String {
    match &client.recommendation {
        Some(recommendation) => change(recommendation),
        None => promised.unwrap_or_default().to_owned(),
    }
}

fn row(
    client: &Diagnosis,
    change: &str,
    columns: &Columns,
    palette: Palette,
    is_selected: bool,
) -> Line<'static> {
    let severity = client.severity();
    let mark = if is_selected { "▶ " } else { "  " };
    let mut spans = vec![
        Span::raw(mark),
        Span::raw(padded(&client.client_id, columns.name)),
        Span::raw("  "),
        Span::styled(
            padded(client.verdict.name(), columns.verdict),
            palette.severe(severity),
        ),
    ];
    if columns.bar > 0 {
        spans.push(Span::raw("  "));
        let bar = bar::spans(&client.time, columns.bar, palette);
        let used: usize = bar.iter().map(|span| letters(&span.content)).sum();
        spans.extend(bar);
        spans.push(Span::raw(" ".repeat(columns.bar - used)));
    }
    if columns.change > 0 {
        spans.push(Span::raw("  "));
        spans.push(Span::raw(cut(change, columns.change)));
    }
    let line = Line::from(spans);
    match is_selected {
        true => line.style(Style::new().add_modifier(Modifier::BOLD)),
        false => line,
    }
}

/// Renders the selected client in a few lines: the sentence, what came of a promise, the change,
/// the times.
fn detail_lines(
    client: &Diagnosis,
    promised: Option<&str>,
    width: usize,
    sentence_rows: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let title = format!(
        "── {}  {}, {} confidence ",
        clean(&client.client_id),
        client.verdict.name(),
        client.confidence.name()
    );
    let rest = "─".repeat(width.saturating_sub(letters(&title)));
    let mut lines = vec![Line::styled(
        cut(&format!("{title}{rest}"), width),
        palette.faint(),
    )];
    let sentence = if client.summary.is_empty() {
        client.verdict.meaning()
    } else {
        &client.summary
    };
    let sentence_rows = match promised {
        Some(_) => sentence_rows.saturating_sub(1).max(1),
        None => sentence_rows,
    };
    let mut said = wrap(sentence, width);
    if said.len() > sentence_rows {
        said.truncate(sentence_rows);
        if let Some(last) = said.last_mut() {
            *last = cut(&format!("{last} …"), width);
        }
    }
    lines.extend(said.into_iter().map(Line::raw));
    lines.extend(promised.map(|promised| Line::raw(cut(promised, width))));
    if let Some(recommendation) = &client.recommendation {
        let text = format!("change  {}", clean(&recommendation.set));
        lines.push(Line::styled(
            cut(&text, width),
            Style::new().add_modifier(Modifier::BOLD),
        ));
        let text = format!(
            "promise {}; then {}",
            promise(&recommendation.promise),
            clean(&recommendation.next_ceiling)
        );
        lines.push(Line::raw(cut(&text, width)));
    }
    if !client.time.is_empty() {
        lines.push(legend(client, palette));
    }
    lines
}

fn legend(client: &Diagnosis, palette: Palette) -> Line<'static> {
    let mut spans = vec![Span::raw("time    ")];
    for share in &client.time {
        let name = part_words(share.part);
        spans.push(Span::styled(
            bar::letter(share.part).to_string(),
            bar::style(share.part, palette),
        ));
        let ms = ottla_lab::numbers::number(share.ms);
        spans.push(Span::raw(format!(" {name} {ms} ms  ")));
    }
    Line::from(spans)
}

fn part_words(part: TimePart) -> &'static str {
    match part {
        TimePart::Worker => "in send()",
        TimePart::Queue => "in the batch",
        TimePart::Request => "on the way",
        TimePart::Broker => "in the broker",
        TimePart::Processing => "at work",
        TimePart::Fetch => "waiting for records",
    }
}

fn draw_explanation(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, palette: Palette, top: usize) {
    let rows = usize::from(area.height).max(1);
    screen.rows = rows;
    let Some(client) = screen.selected() else { return };
    let paper = Paper {
        width: usize::from(area.width).min(120),
        is_coloured: false,
    };
    let mut text = explain::render(client, paper);
    if let Some(promised) = screen.promised(client) {
        text = format!("{text}\n{}\n", wrap(promised, paper.width).join("\n"));
    }
    let severity = client.severity();
    let lines: Vec<Line<'static>> = text
        .lines()
        .enumerate()
        .map(|(index, line)| match (index, line) {
            (1, line) => Line::styled(line.to_owned(), palette.severe(severity)),
            (0, line) => Line::styled(line.to_owned(), Style::new().add_modifier(Modifier::BOLD)),
            // Headings are at the margin, their contents are indented.
            (index, line) if index > 4 && !line.starts_with(' ') && !line.starts_with("its time") => {
                Line::styled(line.to_owned(), Style::new().add_modifier(Modifier::BOLD))
            }
            (_, line) => Line::raw(line.to_owned()),
        })
        .collect();
    let top = top.min(lines.len().saturating_sub(rows));
    screen.view = View::Explanation { top };
    let shown: Vec<Line<'static>> = lines.into_iter().skip(top).take(rows).collect();
    frame.render_widget(Paragraph::new(Text::from(shown)), area);
}

#[cfg(test)]
mod tests;
