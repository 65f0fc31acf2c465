//! The state of the live screen and the effect of keys: no terminal, no clock, no network.

use std::sync::Arc;
use std::time::Instant;

use ottla_lab::doctor::Diagnosis;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::snapshot::Role;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Messages from the other threads.
#[derive(Clone, Debug)]
pub enum News {
    Examined(Examination),
    /// What came of promises that were decided lately, in the words of `ottla doctor`.
    Promised(Vec<Promised>),
    /// The doctor does not answer, with the reason.
    Lost(String),
    /// Text for the message line.
    Told(String),
}

/// An action that the screen's owner must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Quit,
    Export(ClientKey),
}

/// Identifies a client independently of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey {
    pub client_id: String,
    pub instance_id: Option<String>,
}

impl ClientKey {
    pub fn of(client: &Diagnosis) -> ClientKey {
        ClientKey {
            client_id: client.client_id.clone(),
            instance_id: client.instance_id.clone(),
        }
    }
}

/// A client, and the sentence about its promise.
pub type Promised = (ClientKey, Role, String);

/// Whether the doctor answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There was no answer yet.
    Waiting,
    Since(Instant),
    Lost {
        since: Instant,
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    List,
    /// The selected client's complete reasoning, from this line on.
    Explanation {
        top: usize,
    },
    /// Typed characters edit the filter.
    Filter,
}

#[derive(Debug)]
pub struct Screen {
    pub address: String,
    pub contact: Contact,
    /// All clients, the worst first.
    clients: Vec<Arc<Diagnosis>>,
    /// The latest answer while the screen is paused.
    held_back: Option<Vec<Arc<Diagnosis>>>,
    promised: Vec<Promised>,
    pub is_paused: bool,
    pub view: View,
    pub filter: String,
    pub message: String,
    selected: Option<ClientKey>,
    /// The selected client's place in the list: if the client goes, its neighbour is selected.
    place: usize,
    /// First line of the list on the screen, and their number: set when drawing.
    pub top: usize,
    pub rows: usize,
}

impl Screen {
    pub fn new(address: &str) -> Screen {
        Screen {
            address: address.to_owned(),
            contact: Contact::Waiting,
            clients: Vec::new(),
            held_back: None,
            promised: Vec::new(),
            is_paused: false,
            view: View::List,
            filter: String::new(),
            message: String::new(),
            selected: None,
            place: 0,
            top: 0,
            rows: 1,
        }
    }

    pub fn receive(&mut self, news: News, now: Instant) {
        match news {
            News::Told(message) => self.message = message,
            News::Lost(why) => {
                let since = match &self.contact {
                    Contact::Lost { since, .. } => *since,
                    _ => now,
                };
                self.contact = Contact::Lost { since, why };
            }
            News::Promised(promised) => self.promised = promised,
            News::Examined(mut examination) => {
                examination.sort();
                self.contact = Contact::Since(now);
                match self.is_paused {
                    true => self.held_back = Some(examination.clients),
                    false => self.clients = examination.clients,
                }
                self.keep_selection();
            }
        }
    }

    /// Returns the clients whose id or verdict contains the filter's text, case-insensitively.
    pub fn shown(&self) -> Vec<&Diagnosis> {
        let wanted = self.filter.to_lowercase();
        let fits = |client: &&Diagnosis| {
            client.client_id.to_lowercase().contains(&wanted)
                || client.verdict.name().to_lowercase().contains(&wanted)
        };
        self.clients.iter().map(|client| &**client).filter(fits).collect()
    }

    pub fn promised(&self, client: &Diagnosis) -> Option<&str> {
        let key = ClientKey::of(client);
        let mut promised = self.promised.iter();
        let found = promised.find(|(of, role, _)| *of == key && *role == client.role);
        found.map(|(_, _, sentence)| sentence.as_str())
    }

    pub fn all(&self) -> &[Arc<Diagnosis>] {
        &self.clients
    }

    pub fn selected(&self) -> Option<&Diagnosis> {
        self.shown().get(self.place).copied()
    }

    pub fn place(&self) -> usize {
        self.place
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Option<Wish> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Some(Wish::Quit);
        }
        self.message.clear();
        match self.view {
            View::Filter => {
                self.on_filter_key(key.code);
                None
            }
            View::List => self.on_list_key(key.code),
            View::Explanation { top } => self.on_explanation_key(key.code, top),
        }
    }

    fn on_filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.view = View::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.view = View::List;
            }
            _ => return,
        }
        self.keep_selection();
    }

    fn on_list_key(&mut self, code: KeyCode) -> Option<Wish> {
        let page = self.rows.max(1);
        match code {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.keep_selection();
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(self.place.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.place + 1),
            KeyCode::PageUp => self.select(self.place.saturating_sub(page)),
            KeyCode::PageDown => self.select(self.place + page),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter if self.selected().is_some() => {
                // Fixes the selection, which may still be implicit: the explained client must not
                // change with the order.
                self.select(self.place);
                self.view = View::Explanation { top: 0 };
            }
            KeyCode::Char('/') => self.view = View::Filter,
            KeyCode::Char('p') => self.pause(),
            KeyCode::Char('e') => return self.export(),
            _ => {}
        }
        None
    }

    fn on_explanation_key(&mut self, code: KeyCode, top: usize) -> Option<Wish> {
        let page = self.rows.max(1);
        let top = match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') | KeyCode::Backspace => {
                self.view = View::List;
                return None;
            }
            KeyCode::Up | KeyCode::Char('k') => top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => top + 1,
            KeyCode::PageUp => top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => top + page,
            KeyCode::Home => 0,
            // Drawing knows the length of the text and limits this.
            KeyCode::End => usize::MAX,
            KeyCode::Left => {
                self.select(self.place.saturating_sub(1));
                0
            }
            KeyCode::Right => {
                self.select(self.place + 1);
                0
            }
            KeyCode::Char('p') => {
                self.pause();
                top
            }
            KeyCode::Char('e') => return self.export(),
            _ => top,
        };
        self.view = View::Explanation { top };
        None
    }

    fn export(&mut self) -> Option<Wish> {
        let client = ClientKey::of(self.selected()?);
        self.message = format!("asking for the evidence of {} …", client.client_id);
        Some(Wish::Export(client))
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if let Some(clients) = self.held_back.take_if(|_| !self.is_paused) {
            self.clients = clients;
            self.keep_selection();
        }
    }

    fn select(&mut self, place: usize) {
        let shown = self.shown();
        let place = place.min(shown.len().saturating_sub(1));
        let selected = shown.get(place).map(|client| ClientKey::of(client));
        self.place = place;
        self.selected = selected;
    }

    /// Keeps the same client selected when the order changes; until the first selection it is the
    /// first client.
    fn keep_selection(&mut self) {
        let shown = self.shown();
        let is_it = |client: &&Diagnosis| self.selected.as_ref() == Some(&ClientKey::of(client));
        match shown.iter().position(is_it) {
            Some(place) => self.place = place,
            None => {
                let place = self.place.min(shown.len().saturating_sub(1));
                // A client that is only hidden by the filter stays selected.
                let is_gone = !self.clients.iter().any(|client| is_it(&&**client));
                self.place = place;
                if is_gone {
                    self.selected = None;
                }
                if self.selected.is_none() && matches!(self.view, View::Explanation { .. }) {
                    self.view = View::List;
                    self.message = String::from("the client has gone");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;

    fn examination(names: &[&str]) -> Examination {
        let client = |name: &&str| Diagnosis {
            client_id: (*name).to_owned(),
            ..sample::limited()
        };
        Examination {
            clients: names.iter().map(client).map(Arc::new).collect(),
            ..sample::examination()
        }
    }

    fn screen(names: &[&str]) -> Screen {
        let mut screen = Screen::new("here:1");
        screen.receive(News::Examined(examination(names)), Instant::now());
        screen
    }

    fn press(screen: &mut Screen, codes: &[KeyCode]) -> Option<Wish> {
        codes
            .iter()
            .fold(None, |_, code| screen.on_key(KeyEvent::from(*code)))
    }

    fn selected(screen: &Screen) -> Option<&str> {
        screen.selected().map(|client| client.client_id.as_str())
    }

    #[test]
    fn the_selection_follows_its_client() {
        let mut screen = screen(&["b", "d"]);
        press(&mut screen, &[KeyCode::Down]);
        assert_eq!(selected(&screen), Some("d"));
        screen.receive(
            News::Examined(examination(&["a", "b", "c", "d", "e"])),
            Instant::now(),
        );
        assert_eq!((selected(&screen), screen.place()), (Some("d"), 3));
        // It goes: its neighbour is next.
        screen.receive(News::Examined(examination(&["a", "b", "c"])), Instant::now());
        assert_eq!(selected(&screen), Some("c"));
        screen.receive(News::Examined(examination(&[])), Instant::now());
        assert_eq!(selected(&screen), None);
        assert_eq!(
            press(&mut screen, &[KeyCode::Down, KeyCode::Enter, KeyCode::Char('e')]),
            None
        );
    }

    #[test]
    fn the_selection_stays_within_the_list() {
        let mut screen = screen(&["a", "b", "c"]);
        screen.rows = 2;
        for (code, expected) in [
            (KeyCode::Up, "a"),
            (KeyCode::PageDown, "c"),
            (KeyCode::PageDown, "c"),
            (KeyCode::Home, "a"),
            (KeyCode::End, "c"),
            (KeyCode::Down, "c"),
            (KeyCode::Char('k'), "b"),
        ] {
            press(&mut screen, &[code]);
            assert_eq!(selected(&screen), Some(expected), "{code:?}");
        }
    }

    #[test]
    fn a_hidden_client_is_selected_again_when_the_filter_is_cleared() {
        let mut screen = screen(&["audit", "orders", "payments"]);
        press(&mut screen, &[KeyCode::End]);
        let type_or = [KeyCode::Char('/'), KeyCode::Char('O'), KeyCode::Char('r')];
        press(&mut screen, &type_or);
        assert_eq!(selected(&screen), Some("orders"));
        assert_eq!(screen.shown().len(), 1);
        // Command keys are ordinary characters here.
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), None);
        assert_eq!(screen.shown().len(), 0);
        press(&mut screen, &[KeyCode::Backspace, KeyCode::Enter, KeyCode::Esc]);
        assert_eq!(screen.filter, "");
        assert_eq!(selected(&screen), Some("payments"));
        press(&mut screen, &[KeyCode::Char('/')]);
        for letter in "sender_rate".chars() {
            press(&mut screen, &[KeyCode::Char(letter)]);
        }
        assert_eq!(screen.shown().len(), 3);
    }

    #[test]
    fn a_pause_keeps_the_latest_answer_for_later() {
        let mut screen = screen(&["a"]);
        press(&mut screen, &[KeyCode::Char('p')]);
        screen.receive(News::Examined(examination(&["b"])), Instant::now());
        screen.receive(News::Examined(examination(&["c"])), Instant::now());
        assert_eq!(selected(&screen), Some("a"));
        press(&mut screen, &[KeyCode::Char('p')]);
        assert_eq!(selected(&screen), Some("c"));
    }

    #[test]
    fn the_last_known_state_stays_when_the_doctor_is_lost() {
        let mut screen = screen(&["a"]);
        let since = Instant::now();
        screen.receive(News::Lost("refused".into()), since);
        screen.receive(
            News::Lost("still refused".into()),
            since + std::time::Duration::from_secs(5),
        );
        let lost = Contact::Lost {
            since,
            why: "still refused".into(),
        };
        assert_eq!(screen.contact, lost);
        assert_eq!(selected(&screen), Some("a"));
        screen.receive(News::Examined(examination(&["a", "b"])), since);
        assert_eq!(screen.contact, Contact::Since(since));
        assert_eq!(screen.shown().len(), 2);
    }

    #[test]
    fn an_explanation_opens_closes_and_ends_with_its_client() {
        let mut screen = screen(&["a", "b"]);
        press(&mut screen, &[KeyCode::Enter, KeyCode::Down, KeyCode::Down]);
        assert_eq!(screen.view, View::Explanation { top: 2 });
        press(&mut screen, &[KeyCode::Right]);
        assert_eq!(
            (selected(&screen), screen.view),
            (Some("b"), View::Explanation { top: 0 })
        );
        screen.receive(News::Examined(examination(&["a"])), Instant::now());
        assert_eq!(screen.view, View::List);
        assert_eq!(screen.message, "the client has gone");
        press(&mut screen, &[KeyCode::Enter]);
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), None);
        assert_eq!(screen.view, View::List);
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), Some(Wish::Quit));
    }

    #[test]
    fn an_explanation_stays_with_its_client_when_the_order_changes() {
        let mut screen = screen(&["b"]);
        press(&mut screen, &[KeyCode::Enter]);
        screen.receive(News::Examined(examination(&["a", "b"])), Instant::now());
        assert_eq!(screen.view, View::Explanation { top: 0 });
        assert_eq!(selected(&screen), Some("b"));
    }

    #[test]
    fn evidence_is_asked_for_by_instance() {
        let mut screen = screen(&["a"]);
        let wish = press(&mut screen, &[KeyCode::Char('e')]);
        assert_eq!(
            wish,
            Some(Wish::Export(ClientKey::of(&examination(&["a"]).clients[0])))
        );
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.on_key(control_c), Some(Wish::Quit));
    }
}
