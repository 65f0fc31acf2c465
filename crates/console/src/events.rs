//! `GET /events?page=ADDRESS`: the blocks of a page that have changed, as server-sent events.
//!
//! Every viewed page has one renderer, whatever the number of its viewers; it stops with the last
//! of them. A block is sent when its bytes have changed, at most once a second, and of its rows
//! only those that have changed. A viewer that reads slowly is sent the newest state and never a
//! backlog: nothing is queued for it. A page of which much changes is sent less often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::body::Bytes;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::draw::block::{Block, Segment};
use crate::site::{self, Site};

/// Streams at the same time: each is a connection, and a page that is rendered every second.
pub const VIEWERS_MAX: usize = 16;

/// A browser is sent at most one version of a block in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// A page that takes long to make is made less often: its renderer works a twentieth of the time.
const PAUSES_PER_WORK: u32 = 19;

/// What a viewer is sent of changes, over time.
const BYTES_PER_SECOND: f64 = 10_000.0;

/// A quiet page shows that it is alive this often; a proxy does not think it dead.
const BEAT: Duration = Duration::from_secs(5);

/// The blocks of one page.
#[derive(Clone, Debug, Default)]
struct State {
    blocks: Vec<Sent>,
}

#[derive(Clone, Debug)]
struct Sent {
    block: Block,
    /// The number of the rendering in which it became what it is.
    changed: u64,
    /// The same of its rows, by their keys.
    rows_changed: HashMap<String, u64>,
}

impl Sent {
    fn new(block: Block, before: Option<&Sent>, number: u64) -> Sent {
        if let Some(before) = before.filter(|before| before.block == block) {
            return before.clone();
        }
        let old = before.map(|before| rows(&before.block)).unwrap_or_default();
        let of_row = |(key, html): (&str, &str)| {
            let changed = (old.get(key) == Some(&html))
                .then(|| before?.rows_changed.get(key).copied())
                .flatten();
            (key.to_owned(), changed.unwrap_or(number))
        };
        Sent {
            rows_changed: rows(&block).into_iter().map(of_row).collect(),
            changed: number,
            block,
        }
    }

    /// The block for a viewer that has seen rendering `seen`: rows that it has are named only.
    fn since(&self, seen: u64) -> String {
        let mut html = String::new();
        for segment in self.block.segments() {
            match segment {
                Segment::Row { key, html: row } => match self.rows_changed.get(key) {
                    Some(changed) if *changed <= seen => html.push_str(&same(key, row)),
                    _ => html.push_str(row),
                },
                Segment::Rest(rest) => html.push_str(rest),
            }
        }
        html
    }
}

/// A row that the viewer has: `<tr data-key="…" data-same></tr>`.
fn same(key: &str, row: &str) -> String {
    let tag = &row[1..3];
    format!("<{tag} data-key=\"{key}\" data-same></{tag}>")
}

fn rows(block: &Block) -> HashMap<&str, &str> {
    let of = |segment| match segment {
        Segment::Row { key, html } => Some((key, html)),
        Segment::Rest(_) => None,
    };
    block.segments().into_iter().filter_map(of).collect()
}

impl State {
    /// The state after a rendering: blocks and rows that are the same keep their number.
    fn next(&self, blocks: Vec<Block>, number: u64) -> State {
        let of = |block: Block| {
            let before = self.blocks.iter().find(|sent| sent.block.id == block.id);
            Sent::new(block, before, number)
        };
        State {
            blocks: blocks.into_iter().map(of).collect(),
        }
    }

    /// What a viewer that has seen rendering `seen` has not got; all of it for zero.
    fn since(&self, seen: u64) -> impl Iterator<Item = (&'static str, String)> {
        let later = self.blocks.iter().filter(move |sent| sent.changed > seen);
        later.map(move |sent| (sent.block.id, sent.since(seen)))
    }
}

type Rendered = (u64, Arc<State>);

/// The pages that are looked at.
pub struct Events {
    site: Arc<Site>,
    places: Arc<Semaphore>,
    pages: Mutex<HashMap<String, Weak<watch::Sender<Rendered>>>>,
}

impl Events {
    pub fn new(site: Arc<Site>) -> Arc<Events> {
        Arc::new(Events {
            site,
            places: Arc::new(Semaphore::new(VIEWERS_MAX)),
            pages: Mutex::default(),
        })
    }

    /// Opens a stream of one page; `None` when all places are taken.
    ///
    /// - Shape: what is received is the stream's body, piece by piece; dropping it ends the stream.
    pub fn open(self: &Arc<Events>, address: String) -> Option<mpsc::Receiver<Bytes>> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        // Room for one piece: the next is made when this one has been taken.
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(view(self.of_page(address), send, place));
        Some(receive)
    }

    /// The renderer of a page: the running one, or a new one.
    fn of_page(self: &Arc<Events>, address: String) -> Viewed {
        let mut pages = self.lock();
        pages.retain(|_, page| page.strong_count() > 0);
        if let Some(page) = pages.get(&address).and_then(Weak::upgrade) {
            return Viewed {
                rendered: page.subscribe(),
                _page: page,
            };
        }
        let (send, rendered) = watch::channel(Rendered::default());
        let page = Arc::new(send);
        pages.insert(address.clone(), Arc::downgrade(&page));
        tokio::spawn(render(self.site.clone(), address, Arc::downgrade(&page)));
        Viewed {
            rendered,
            _page: page,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<watch::Sender<Rendered>>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A viewer's hold on a page; the renderer stops with the last one.
struct Viewed {
    rendered: watch::Receiver<Rendered>,
    _page: Arc<watch::Sender<Rendered>>,
}

/// Renders a page once a second, away from the thread that serves connections.
async fn render(site: Arc<Site>, address: String, page: Weak<watch::Sender<Rendered>>) {
    let mut number = 0;
    loop {
        let (site, address) = (site.clone(), address.clone());
        let begun = Instant::now();
        let blocks = tokio::task::spawn_blocking(move || site::blocks(&site, &address)).await;
        let Some(page) = page.upgrade() else { return };
        if let Ok(blocks) = blocks {
            number += 1;
            let state = page.borrow().1.next(blocks, number);
            page.send_replace((number, Arc::new(state)));
        }
        drop(page);
        tokio::time::sleep(PAUSE.max(begun.elapsed() * PAUSES_PER_WORK)).await;
    }
}

/// Sends one viewer what changes, until it is gone.
async fn view(mut page: Viewed, send: mpsc::Sender<Bytes>, _place: OwnedSemaphorePermit) {
    let mut seen = 0;
    let mut due = Instant::now();
    loop {
        let next = async {
            tokio::time::sleep_until(due).await;
            page.rendered.changed().await
        };
        let next = tokio::time::timeout(BEAT, next);
        let is_new = tokio::select! {
            changed = next => matches!(changed, Ok(Ok(()))),
            // The browser is gone: stop now and not at the next change.
            () = send.closed() => return,
        };
        let mut piece = String::new();
        if is_new {
            let (number, state) = page.rendered.borrow_and_update().clone();
            state
                .since(seen)
                .for_each(|(id, html)| piece.push_str(&event(number, id, &html)));
            due = Instant::now() + pause_after(seen, piece.len());
            seen = number;
        }
        piece.push_str("event: beat\ndata:\n\n");
        if send.send(Bytes::from(piece)).await.is_err() {
            return;
        }
    }
}

/// How long nothing more is sent after a piece of that size; the first, with all of the page, is
/// free.
///
/// - `seen`: the rendering that the viewer had before; 0: none.
fn pause_after(seen: u64, bytes: usize) -> Duration {
    match seen {
        0 => Duration::ZERO,
        _ => Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND),
    }
}

/// One event; JSON has no line break, so it is one line of data.
fn event(number: u64, id: &str, html: &str) -> String {
    let data = json!({"id": id, "html": html});
    format!("event: part\nid: {number}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::block::block;
    use crate::draw::table::{Table, numbers, words};

    fn blocks(texts: [&str; 2]) -> Vec<Block> {
        let of = |(id, text): (&'static str, &str)| block(id, text, "", |_| {});
        ["a", "b"].into_iter().zip(texts).map(of).collect()
    }

    #[test]
    fn only_what_has_changed_is_sent_and_a_new_viewer_gets_all() {
        let first = State::default().next(blocks(["x", "y"]), 1);
        let second = first.next(blocks(["x", "z"]), 2);
        let third = second.next(blocks(["x", "z"]), 3);
        let ids = |state: &State, seen| state.since(seen).map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(&second, 1), ["b"]);
        assert_eq!(ids(&third, 2), [""; 0]);
        assert_eq!(ids(&third, 1), ["b"], "a viewer that missed the second rendering");
        assert_eq!(ids(&third, 0), ["a", "b"]);
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_the_block_holds() {
        let hostile = block("a", "</script>\n\ndata: x\r\n", "", |_| {});
        let event = event(7, hostile.id, hostile.html.as_str());
        let lines: Vec<&str> = event.split('\n').collect();
        assert_eq!(lines.len(), 5, "{event}");
        assert_eq!((lines[0], lines[1]), ("event: part", "id: 7"));
        let data: serde_json::Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["id"], "a");
    }

    /// A table of names with one figure each.
    fn table(rows: &[(String, usize)]) -> Block {
        let mut table = Table::new("T", vec![words("name"), numbers("figure")]);
        for (name, figure) in rows {
            table.row(vec![name.as_str().into(), figure.to_string().into()]);
        }
        block("t", "T", "", |page| table.draw(page))
    }

    /// A hundred rows were sent each second because one of them had changed.
    #[test]
    fn of_a_table_only_the_rows_that_have_changed_are_sent() {
        let mut rows: Vec<(String, usize)> = (0..100).map(|row| (format!("topic-{row}"), row)).collect();
        let first = State::default().next(vec![table(&rows)], 1);
        rows[7].1 = 12_345;
        rows.swap(0, 99);
        let second = first.next(vec![table(&rows)], 2);
        let sent = |state: &State, seen| state.since(seen).next().unwrap().1;
        let changes = sent(&second, 1);
        assert_eq!(changes.matches("<td").count(), 1, "{changes}");
        assert!(changes.contains("12345") && changes.contains("data-same"));
        assert_eq!(
            changes.matches("<tr data-key").count(),
            100,
            "rows that are elsewhere now"
        );
        let complete = sent(&second, 0);
        assert_eq!(complete, second.blocks[0].block.html.as_str(), "a new viewer");
        rows[8].1 = 54_321;
        let third = second.next(vec![table(&rows)], 3);
        assert_eq!(
            sent(&third, 1).matches("<td").count(),
            2,
            "it missed the second rendering"
        );
    }

    #[test]
    fn a_viewer_is_sent_ten_kilobytes_a_second_after_the_whole_page() {
        assert_eq!(pause_after(0, 120_000), Duration::ZERO);
        assert_eq!(pause_after(7, 60_000), Duration::from_secs(6));
        assert_eq!(pause_after(7, 0), Duration::ZERO);
    }

    /// Twenty new records each second, each with a key and a value that are cut.
    #[test]
    fn a_partition_that_is_followed_keeps_within_ten_kilobytes_a_second() {
        let record = |offset: i64| crate::source::PeekedRecord {
            offset: 18_000_000 + offset,
            timestamp_ms: 1_793_385_598_000,
            key: Some(vec![b'k'; crate::tail::FIELD_BYTES_MAX]),
            key_bytes: 1_000,
            value: Some(vec![b'v'; crate::tail::FIELD_BYTES_MAX]),
            value_bytes: 100_000,
            ..Default::default()
        };
        let page = |end: i64| {
            let entries = (end - 40..end).map(record).map(crate::tail::Entry::Record);
            let mut tail = crate::tail::Tail::default();
            tail.entries.extend(entries);
            vec![crate::page::follow::of_tail(&tail)]
        };
        let first = State::default().next(page(40), 1);
        let second = first.next(page(60), 2);
        let sent: usize = second.since(1).map(|(id, html)| event(2, id, &html).len()).sum();
        assert!((5_000..=10_000).contains(&sent), "{sent} bytes");
    }

    #[test]
    fn a_name_cannot_make_a_row() {
        let hostile = table(&[(String::from("<tr data-key=\"x\"></tr>"), 1)]);
        assert_eq!(rows(&hostile).len(), 1);
        let segments = hostile.segments();
        let whole: String = (segments.iter())
            .map(|segment| match segment {
                Segment::Rest(html) | Segment::Row { html, .. } => *html,
            })
            .collect();
        assert_eq!(whole, hostile.html.as_str());
    }
}
