//! A live screen that is refreshed at an interval, until q is pressed.
//!
//! One thread asks, another one draws and reads keys: while the broker is slow or gone the screen
//! keeps working and shows the last known state and its age.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::doctor::text::clean;
use super::doctor::watch::is_gone;
use super::output::Failure;

/// How long the screen waits for a key before it checks for news.
const TICK: Duration = Duration::from_millis(100);

/// What a screen shows.
pub trait Screen {
    type Answer: Send + 'static;

    fn receive(&mut self, answer: Result<Self::Answer, String>, now: Instant);
    fn draw(&self, frame: &mut Frame<'_>, now: Instant);
}

/// Since when there is no answer, and why.
#[derive(Debug, Default)]
pub struct Lost(Option<(Instant, String)>);

impl Lost {
    pub fn answered(&mut self) {
        self.0 = None;
    }

    pub fn failed(&mut self, why: String, now: Instant) {
        let since = self.0.take().map_or(now, |(since, _)| since);
        self.0 = Some((since, why));
    }

    /// A line for the head of the screen; `None`: the last question was answered.
    pub fn line(&self, now: Instant) -> Option<String> {
        let (since, why) = self.0.as_ref()?;
        let seconds = now.saturating_duration_since(*since).as_secs();
        let why = clean(why);
        Some(format!(
            "NO ANSWER for {seconds} s ({why}); the last known state is below"
        ))
    }
}

/// Seconds between two questions, from the command line.
pub fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err(String::from("must be seconds between 0.1 and 3600")),
    }
}

/// Runs the screen until it is closed.
///
/// - `ask` is called on a thread of its own, again and again.
/// - Errors: there is no terminal.
pub fn run<S: Screen>(
    mut screen: S,
    interval_seconds: f64,
    ask: impl Fn() -> Result<S::Answer, String> + Send + 'static,
) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::unanswered(
            "--watch needs a terminal; without it the page is printed once",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
    }
    let answers = ask_again_and_again(interval_seconds, ask)?;
    // From here on the terminal is in raw mode; every exit path restores it, a panic included.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::unanswered(format!("the terminal: {error}")))?;
    let outcome = show(&mut terminal, &mut screen, &stop, &answers);
    ratatui::restore();
    outcome.map_err(|error| Failure::unanswered(format!("the terminal: {error}")))
}

fn show<S: Screen>(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut S,
    stop: &AtomicBool,
    answers: &Receiver<Result<S::Answer, String>>,
) -> std::io::Result<()> {
    loop {
        while let Ok(one) = answers.try_recv() {
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

/// Asks until the receiver is dropped.
fn ask_again_and_again<T: Send + 'static>(
    interval_seconds: f64,
    ask: impl Fn() -> Result<T, String> + Send + 'static,
) -> Result<Receiver<Result<T, String>>, Failure> {
    let (sender, answers) = mpsc::channel();
    let ask = move || {
        while sender.send(ask()).is_ok() {
            std::thread::sleep(Duration::from_secs_f64(interval_seconds));
        }
    };
    std::thread::Builder::new()
        .name("live-screen".into())
        .spawn(ask)
        .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))?;
    Ok(answers)
}
