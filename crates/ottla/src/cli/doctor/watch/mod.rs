//! `ottla doctor --watch`: a live screen.
//!
//! One thread polls the doctor, another one draws and reads keys: while the doctor is slow or gone
//! the screen keeps working and shows the last known state and its age.

mod draw;
mod bar;
mod state;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::promises::Promises;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGTERM};

use self::draw::Palette;
use self::state::{ClientKey, News, Promised, Screen, Wish};
use super::examine::promises_of;
use super::place::Source;
use super::{Failure, json, now_ms, text, write_file};

/// How long the screen waits for a key before it checks for news.
const TICK: Duration = Duration::from_millis(100);

/// Runs the screen until it is closed.
///
/// - Errors: there is no terminal.
pub fn run(source: &Source, interval_seconds: f64) -> Result<ExitCode, Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::unanswered(
            "--watch needs a terminal; without --watch the diagnoses are printed once",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::unanswered(format!("cannot handle signals: {error}")))?;
    }
    let (sender, news) = mpsc::channel();
    ask_again_and_again(source, interval_seconds, sender.clone())?;
    // From here on the terminal is in raw mode; every exit path restores it, a panic included.
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::unanswered(format!("the terminal: {error}")))?;
    let outcome = show(&mut terminal, source, &stop, &news, &sender);
    ratatui::restore();
    outcome.map_err(|error| Failure::unanswered(format!("the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &Source,
    stop: &AtomicBool,
    news: &Receiver<News>,
    sender: &Sender<News>,
) -> std::io::Result<()> {
    let palette = Palette {
        is_coloured: text::has_colours(),
    };
    let mut screen = Screen::new(source.door.address());
    loop {
        while let Ok(one) = news.try_recv() {
            screen.receive(one, Instant::now());
        }
        terminal.draw(|frame| draw::screen(frame, &mut screen, palette, Instant::now()))?;
        // crossterm never returns from reading a terminal that is gone, so it is called only while
        // there is one.
        if stop.load(Ordering::Relaxed) || is_gone(TICK) {
            return Ok(());
        }
        // All pending keys are read before the next drawing, so that a held key does not lag.
        while !is_gone(Duration::ZERO) && event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match screen.on_key(key) {
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Export(client)) => export(source, client, sender.clone()),
                None => {}
            }
        }
    }
}

/// Waits at most `limit` until a key is pressed; returns true if the terminal is gone.
pub(in crate::cli) fn is_gone(limit: Duration) -> bool {
    let stdin = rustix::stdio::stdin();
    let mut keyboard = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let is_told = rustix::event::poll(&mut keyboard, Some(&limit)).is_ok();
    is_told
        && keyboard[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Polls the doctor until the receiver is dropped.
fn ask_again_and_again(source: &Source, interval_seconds: f64, sender: Sender<News>) -> Result<(), Failure> {
    let source = source.clone();
    let ask = move || {
        loop {
            let news = match source.examination() {
                Ok(examination) => {
                    let promised = promised(&promises_of(&source.door), &examination);
                    vec![News::Examined(examination), News::Promised(promised)]
                }
                Err(Failure { text: why, .. }) => vec![News::Lost(why)],
            };
            if news.into_iter().any(|one| sender.send(one).is_err()) {
                return;
            }
            std::thread::sleep(Duration::from_secs_f64(interval_seconds));
            if is_gone(Duration::ZERO) {
                // The screen ends by itself, unless it is waiting for a key at this moment.
                std::thread::sleep(Duration::from_secs(1));
                std::process::exit(0);
            }
        }
    };
    let thread = std::thread::Builder::new().name("doctor-watch".into()).spawn(ask);
    thread
        .map(drop)
        .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))
}

/// The sentences of the page without `--watch`, by client.
fn promised(promises: &Promises, examination: &Examination) -> Vec<Promised> {
    let sentences = text::promises::lately(promises, examination).into_iter();
    let of_client = sentences.map(|(place, sentence)| {
        let client = &examination.clients[place];
        (ClientKey::of(client), client.role, sentence)
    });
    of_client.collect()
}

/// Writes a client's readings to the current directory, and reports it on the screen.
fn export(source: &Source, client: ClientKey, sender: Sender<News>) {
    let source = source.clone();
    let write = move || {
        let news = match write_case(&source, &client) {
            Ok(path) => format!("evidence of {} is in {}", client.client_id, path.display()),
            Err(Failure { text: why, .. }) => format!("no evidence of {}: {why}", client.client_id),
        };
        // The screen may be closed by now; the file has been written.
        let _ = sender.send(News::Told(news));
    };
    // If no thread can be started there is no export; the key can be pressed again.
    let _ = std::thread::Builder::new()
        .name("doctor-export".into())
        .spawn(write);
}

fn write_case(source: &Source, client: &ClientKey) -> Result<PathBuf, Failure> {
    let is_it = |snapshot: &Snapshot| {
        snapshot.client.client_id == client.client_id && snapshot.client.instance_id == client.instance_id
    };
    let mut snapshots = source.snapshots()?;
    snapshots.retain(is_it);
    if snapshots.is_empty() {
        return Err(Failure::unanswered("the doctor does not know it any more"));
    }
    let path = PathBuf::from(file_name(&client.client_id, now_ms()));
    write_file(&path, json(&snapshots)?)?;
    Ok(path)
}

/// Makes a safe file name of a client id, which may contain any character.
fn file_name(client_id: &str, at_ms: i64) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let plain = |letter| if is_plain(letter) { letter } else { '_' };
    let name: String = client_id.chars().take(64).map(plain).collect();
    format!("doctor-{name}-{at_ms}.json")
}

#[cfg(test)]
mod tests {
    use ottla_lab::doctor::promises::{Row, Score};

    use super::*;
    use crate::cli::doctor::sample;

    #[test]
    fn the_screen_is_told_the_sentences_of_the_page() {
        let examination = sample::examination();
        let client = &examination.clients[0];
        let decided = Row {
            client_id: client.client_id.clone(),
            set: "linger.ms=5".into(),
            score: Score::Kept,
            decided_ms: Some(examination.at_ms - 1),
            ..Row::default()
        };
        let promises = Promises {
            promises: vec![decided.clone()],
            ..Promises::default()
        };
        let found = promised(&promises, &examination);
        assert_eq!(found, [(ClientKey::of(client), client.role, decided.sentence())]);
    }

    #[test]
    fn a_file_is_named_after_its_client_and_stays_in_the_current_directory() {
        assert_eq!(file_name("orders", 17), "doctor-orders-17.json");
        assert_eq!(
            file_name("../../etc/pass wd", 17),
            "doctor-.._.._etc_pass_wd-17.json"
        );
    }
}
