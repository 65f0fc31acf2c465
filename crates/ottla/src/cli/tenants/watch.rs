//! `ottla tenants --watch`: the table, refreshed at an interval.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ottla_lab::ask::Door;
use ottla_lab::tenants::document::Document;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Wrap};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::{document_of, figures, table};
use crate::cli::doctor::text::{clean, cut};
use crate::cli::doctor::watch::is_gone;
use crate::cli::output::Failure;

/// How long the screen waits for a key before it checks for news.
const TICK: Duration = Duration::from_millis(100);

/// Rows for sentences under the table: at most this many, and at most one row in this many.
const SENTENCE_ROWS_MAX: u16 = 6;
const SENTENCE_ROWS_OF: u16 = 3;

type News = Result<Document, String>;

/// The content of the screen.
struct Screen {
    address: String,
    /// The last two answers.
    before: Option<Document>,
    last: Option<Document>,
    lost: Option<(Instant, String)>,
}

impl Screen {
    fn receive(&mut self, news: News, now: Instant) {
        match news {
            Ok(document) => {
                self.before = self.last.replace(document);
                self.lost = None;
            }
            Err(why) => {
                let since = self.lost.take().map_or(now, |(since, _)| since);
                self.lost = Some((since, why));
            }
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
        let state = match (&self.lost, &window) {
            (Some((since, why)), _) => {
                let seconds = now.saturating_duration_since(*since).as_secs();
                format!(
                    "NO ANSWER for {seconds} s ({}); the last known state is below",
                    clean(why)
                )
            }
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
    if !std::io::stdout().is_terminal() {
        return Err(Failure::unanswered(
            "--watch needs a terminal; without it the table is printed once",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
    }
    let news = ask_again_and_again(door, interval_seconds)?;
    // From here on the terminal is in raw mode; every exit path restores it, a panic included.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::unanswered(format!("the terminal: {error}")))?;
    let outcome = show(&mut terminal, door.address(), &stop, &news);
    ratatui::restore();
    outcome.map_err(|error| Failure::unanswered(format!("the terminal: {error}")))
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    address: &str,
    stop: &AtomicBool,
    news: &Receiver<News>,
) -> std::io::Result<()> {
    let mut screen = Screen {
        address: address.to_owned(),
        before: None,
        last: None,
        lost: None,
    };
    loop {
        while let Ok(one) = news.try_recv() {
            screen.receive(one, Instant::now());
        }
        terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
        if stop.load(Ordering::Relaxed) || is_gone(TICK) {
            return Ok(());
        }
        while !is_gone(Duration::ZERO) && event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            let is_control_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let is_quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || is_control_c;
            if key.kind != KeyEventKind::Release && is_quit {
                return Ok(());
            }
        }
    }
}

/// Polls the broker until the receiver is dropped.
fn ask_again_and_again(door: &Door, interval_seconds: f64) -> Result<Receiver<News>, Failure> {
    let (sender, news) = mpsc::channel();
    let door = door.clone();
    let ask = move || {
        while sender.send(document_of(&door)).is_ok() {
            std::thread::sleep(Duration::from_secs_f64(interval_seconds));
        }
    };
    std::thread::Builder::new()
        .name("tenants-watch".into())
        .spawn(ask)
        .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))?;
    Ok(news)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
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
        let mut screen = Screen {
            address: "127.0.0.1:9644".into(),
            before: None,
            last: None,
            lost: None,
        };
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
