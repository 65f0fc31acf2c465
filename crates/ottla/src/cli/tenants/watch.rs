//! `ottla tenants --watch`: the table, refreshed at an interval.

use std::time::Instant;

use ottla_lab::ask::Door;
use ottla_lab::tenants::document::Document;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Wrap};

use super::{document_of, figures, table};
use crate::cli::doctor::text::{clean, cut};
use crate::cli::live::{self, Lost};
use crate::cli::output::Failure;

/// Rows for sentences under the table: at most this many, and at most one row in this many.
const SENTENCE_ROWS_MAX: u16 = 6;
const SENTENCE_ROWS_OF: u16 = 3;

/// The content of the screen.
struct Screen {
    address: String,
    /// The last two answers.
    before: Option<Document>,
    last: Option<Document>,
    lost: Lost,
}

impl Screen {
    fn of(address: &str) -> Screen {
        Screen {
            address: address.to_owned(),
            before: None,
            last: None,
            lost: Lost::default(),
        }
    }

    /// Returns the window between the last two answers; at first, the broker's own window.
    fn window(&self) -> Option<Document> {
        let last = self.last.as_ref()?;
        Some(match &self.before {
            Some(before) => last.since(before),
            None => last.clone(),
        })
    }
}

impl live::Screen for Screen {
    type Answer = Document;

    fn receive(&mut self, answer: Result<Document, String>, now: Instant) {
        match answer {
            Ok(document) => {
                self.before = self.last.replace(document);
                self.lost.answered();
            }
            Err(why) => self.lost.failed(why, now),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>, now: Instant) {
        let area = frame.area();
        let [head, middle, foot, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(SENTENCE_ROWS_MAX.min(area.height / SENTENCE_ROWS_OF)),
            Constraint::Length(1),
        ])
        .areas(area);
        let window = self.window();
        let state = match (self.lost.line(now), &window) {
            (Some(lost), _) => lost,
            (None, Some(window)) => figures::summary(window),
            (None, None) => String::from("waiting for the first answer"),
        };
        let title = format!("ottla tenants {}  {state}", clean(&self.address));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(cut(&title, head.width.into()), bold), head);
        frame.render_widget(Line::raw("q quit"), keys);
        let Some(window) = window else { return };
        let rows = usize::from(middle.height.saturating_sub(1));
        let lines = table::lines(&window, rows).into_iter().map(Line::raw);
        frame.render_widget(Paragraph::new(Text::from_iter(lines)), middle);
        let sentences = figures::sentences(&window).join(" ");
        frame.render_widget(Paragraph::new(sentences).wrap(Wrap { trim: true }), foot);
    }
}

/// Runs the screen until it is closed.
///
/// - Errors: there is no terminal.
pub fn run(door: &Door, interval_seconds: f64) -> Result<(), Failure> {
    let screen = Screen::of(door.address());
    let door = door.clone();
    live::run(screen, interval_seconds, move || document_of(&door))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sample;
    use super::*;
    use crate::cli::live::Screen as _;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn lines(screen: &Screen, now: Instant) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(110, 12)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..buffer.area.height)
            .map(|y| line(y).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn the_screen_shows_the_window_between_two_answers_and_survives_a_broker_that_is_gone() {
        let now = Instant::now();
        let mut screen = Screen::of("127.0.0.1:9644");
        assert!(lines(&screen, now)[0].ends_with("waiting for the first answer"));
        screen.receive(Ok(sample()), now);
        let shown = lines(&screen, now);
        assert!(
            shown[0].ends_with("2 event loops, 92 % busy in the last 60 s; 2 tenants"),
            "{shown:?}"
        );
        assert!(shown[2].starts_with("batch "), "{shown:?}");
        assert!(shown[7].starts_with("client-id batch takes 41 %"), "{shown:?}");
        let mut later = sample();
        later.moment_micros += 2_000_000;
        later.busy_micros += 1_000_000;
        later.tenants[1].total.handling_micros += 600_000;
        screen.receive(Ok(later), now);
        let shown = lines(&screen, now);
        assert!(
            shown[2].starts_with("orders ") && shown[2].contains("15 %"),
            "{shown:?}"
        );
        screen.receive(Err("connection refused".into()), now);
        screen.receive(Err("connection refused".into()), now + Duration::from_secs(7));
        let shown = lines(&screen, now + Duration::from_secs(9));
        assert!(shown[0].contains("NO ANSWER for 9 s"), "{shown:?}");
        assert!(shown[2].starts_with("orders "), "{shown:?}");
    }
}
