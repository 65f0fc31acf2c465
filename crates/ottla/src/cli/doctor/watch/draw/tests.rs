//! Frames of the live screen, character by character.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_lab::doctor::Diagnosis;
use ottla_lab::doctor::diagnosis::Examination;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;

use super::*;
use crate::cli::doctor::sample;
use crate::cli::doctor::watch::state::{ClientKey, News};

const PLAIN: Palette = Palette { is_coloured: false };

fn frame(
    screen_state: &mut Screen,
    width: u16,
    height: u16,
    palette: Palette,
    now: Instant,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| screen(frame, screen_state, palette, now))
        .unwrap();
    terminal
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let line = |y| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height)
        .map(|y| line(y).trim_end().to_owned())
        .collect()
}

fn examined(now: Instant) -> Screen {
    let mut state = Screen::new("127.0.0.1:9644");
    state.receive(News::Examined(sample::examination()), now);
    state
}

#[test]
fn the_screen_shows_limited_clients_where_time_goes_and_what_to_change() {
    let now = Instant::now();
    let found = lines(&frame(&mut examined(now), 110, 16, PLAIN, now));
    let expected = [
        "ottla doctor 127.0.0.1:9644  2 clients, 1 limited",
        "  client         verdict            where time goes       change",
        "▶ orders-writer  SENDER_RATE        q───────────────────  batch.size=32768: 83,550 → 100,000 records/s",
        "  audit          KEEPS_UP           q──────────────r──b─",
        "",
        "",
        "",
        "",
        "",
        "── orders-writer  SENDER_RATE, high confidence ───────────────────────────────────────────────────────────────",
        "Requests leave at 91 % of the rate that their round trips allow, and every batch is full.",
        "change  batch.size=32768",
        "promise 83,550 → 100,000 records/s; then the rate that the application asks for, 100,000 records/s",
        "time    q in the batch 14,000 ms  r on the way 9.3 ms  b in the broker 0.5 ms",
        "",
        "↑↓ choose  enter explain  e export evidence  / filter  p pause  q quit",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_came_of_a_promise_is_shown_with_its_client() {
    const SENTENCE: &str = "Promised 80,000 records/s by linger.ms=5; measured 83,550: kept.";
    let now = Instant::now();
    let told = |place: usize| {
        let client = &sample::examination().clients[place];
        let key = ClientKey::of(client);
        let mut state = examined(now);
        state.receive(News::Promised(vec![(key, client.role, SENTENCE.into())]), now);
        state
    };
    let found = lines(&frame(&mut told(0), 110, 16, PLAIN, now));
    assert_eq!(found[11], SENTENCE, "below the client's sentence: {found:?}");
    assert!(found[14].starts_with("time "), "{found:?}");
    assert!(
        found[2].ends_with("100,000 records/s"),
        "the next change: {found:?}"
    );
    // A client without a recommendation has it on its own line.
    let mut state = told(1);
    let found = lines(&frame(&mut state, 110, 16, PLAIN, now));
    assert!(
        found[3].contains("Promised 80,000 records/s by linger.ms=5"),
        "{found:?}"
    );
    assert!(!found[11].contains("Promised"), "{found:?}");
    for code in [KeyCode::Down, KeyCode::Enter, KeyCode::End] {
        state.on_key(KeyEvent::from(code));
    }
    let found = lines(&frame(&mut state, 110, 16, PLAIN, now));
    assert!(found.iter().any(|line| line == SENTENCE), "{found:?}");
    state.receive(News::Promised(Vec::new()), now);
    let found = lines(&frame(&mut state, 110, 16, PLAIN, now));
    assert!(!found.iter().any(|line| line.contains("Promised")), "{found:?}");
}

#[test]
fn small_terminals_show_what_fits() {
    let now = Instant::now();
    let found = lines(&frame(&mut examined(now), 34, 5, PLAIN, now));
    let expected = [
        "ottla doctor 127.0.0.1:9644  2 cl…",
        "  client         verdict",
        "▶ orders-writer  SENDER_RATE",
        "  audit          KEEPS_UP",
        "↑↓ choose  enter explain  e expor…",
    ];
    assert_eq!(found, expected);
    // Any size is drawn without a panic, in every view.
    for width in 1..40 {
        for height in 1..20 {
            let mut state = examined(now);
            frame(&mut state, width, height, PLAIN, now);
            state.on_key(KeyEvent::from(KeyCode::Enter));
            frame(&mut state, width, height, PLAIN, now);
            state.on_key(KeyEvent::from(KeyCode::Esc));
            state.on_key(KeyEvent::from(KeyCode::Char('/')));
            frame(&mut state, width, height, PLAIN, now);
        }
    }
}

#[test]
fn a_lost_doctor_is_shown_with_the_last_known_state() {
    let now = Instant::now();
    let mut state = examined(now);
    state.receive(News::Lost("connection refused".into()), now);
    let later = now + Duration::from_secs(12);
    let found = lines(&frame(&mut state, 110, 5, PLAIN, later));
    assert_eq!(
        found[0],
        "ottla doctor 127.0.0.1:9644  NO ANSWER for 12 s (connection refused); last known: 2 clients, 1 limited"
    );
    assert!(found[2].contains("orders-writer"), "{found:?}");
    state.receive(News::Examined(sample::examination()), later);
    let found = lines(&frame(&mut state, 110, 5, PLAIN, later));
    assert_eq!(found[0], "ottla doctor 127.0.0.1:9644  2 clients, 1 limited");
}

#[test]
fn an_explanation_scrolls_to_its_end_and_no_further() {
    let now = Instant::now();
    let mut state = examined(now);
    state.on_key(KeyEvent::from(KeyCode::Enter));
    let found = lines(&frame(&mut state, 100, 12, PLAIN, now));
    assert_eq!(
        found[1],
        "orders-writer  producer, instance 5tqAxl0GTx2WJmZ2cqxIVw"
    );
    state.on_key(KeyEvent::from(KeyCode::End));
    let found = lines(&frame(&mut state, 100, 12, PLAIN, now));
    assert_eq!(found[10], "  -  batch.size inferred from the largest batch");
    state.on_key(KeyEvent::from(KeyCode::Down));
    assert_eq!(lines(&frame(&mut state, 100, 12, PLAIN, now)), found);
}

#[test]
fn the_selected_client_is_always_on_the_screen() {
    let now = Instant::now();
    let client = |index: usize| Diagnosis {
        client_id: format!("client-{index:03}"),
        ..sample::well()
    };
    let mut state = Screen::new("x:1");
    let examination = Examination {
        clients: (0..100).map(client).map(Arc::new).collect(),
        ..sample::examination()
    };
    state.receive(News::Examined(examination), now);
    frame(&mut state, 60, 10, PLAIN, now);
    for code in [
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::Up,
        KeyCode::Home,
        KeyCode::Down,
    ] {
        state.on_key(KeyEvent::from(code));
        let found = lines(&frame(&mut state, 60, 10, PLAIN, now));
        let name = &state.selected().unwrap().client_id;
        assert!(
            found.iter().any(|line| line.starts_with(&format!("▶ {name}"))),
            "{code:?}: {found:?}"
        );
    }
}

#[test]
fn no_color_means_no_colour() {
    let now = Instant::now();
    let has_colour = |palette| {
        let terminal = frame(&mut examined(now), 110, 16, palette, now);
        let cells = terminal.backend().buffer().content();
        cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!has_colour(PLAIN));
    assert!(has_colour(Palette { is_coloured: true }));
}

#[test]
fn names_of_clients_cannot_draw() {
    let now = Instant::now();
    let mut examination = sample::examination();
    Arc::make_mut(&mut examination.clients[0]).client_id = "a\x1b[2Jb".into();
    let mut state = Screen::new("x:1");
    state.receive(News::Examined(examination), now);
    let found = lines(&frame(&mut state, 80, 6, PLAIN, now));
    assert!(found[2].starts_with("▶ a\\u{1"), "{found:?}");
}
