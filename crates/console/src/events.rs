//! `GET /events?page=ADDRESS`: the blocks of a page that have changed, as server-sent events.
//!
//! Every viewed page has one renderer, whatever the number of its viewers; it stops with the last
//! of them. A block is sent when its bytes have changed, at most once a second. A viewer that reads
//! slowly is sent the newest state and never a backlog: nothing is queued for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::body::Bytes;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::draw::block::Block;
use crate::site::{self, Site};

/// Streams at the same time: each is a connection, and a page that is rendered every second.
pub const VIEWERS_MAX: usize = 16;

/// A browser is sent at most one version of a block in this time.
const PAUSE: Duration = Duration::from_secs(1);

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
}

impl State {
    /// The state after a rendering: blocks that are the same keep their number.
    fn next(&self, blocks: Vec<Block>, number: u64) -> State {
        let of = |block: Block| {
            let before = self.blocks.iter().find(|sent| sent.block == block);
            Sent {
                changed: before.map_or(number, |sent| sent.changed),
                block,
            }
        };
        State {
            blocks: blocks.into_iter().map(of).collect(),
        }
    }

    /// What a viewer that has seen rendering `seen` has not got; all of it for zero.
    fn since(&self, seen: u64) -> impl Iterator<Item = &Block> {
        let later = self.blocks.iter().filter(move |sent| sent.changed > seen);
        later.map(|sent| &sent.block)
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
        let blocks = tokio::task::spawn_blocking(move || site::blocks(&site, &address)).await;
        let Some(page) = page.upgrade() else { return };
        if let Ok(blocks) = blocks {
            number += 1;
            let state = page.borrow().1.next(blocks, number);
            page.send_replace((number, Arc::new(state)));
        }
        drop(page);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends one viewer what changes, until it is gone.
async fn view(mut page: Viewed, send: mpsc::Sender<Bytes>, _place: OwnedSemaphorePermit) {
    let mut seen = 0;
    loop {
        let next = tokio::time::timeout(BEAT, page.rendered.changed());
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
                .for_each(|block| piece.push_str(&event(number, block)));
            seen = number;
        }
        piece.push_str("event: beat\ndata:\n\n");
        if send.send(Bytes::from(piece)).await.is_err() {
            return;
        }
    }
}

/// One event; JSON has no line break, so it is one line of data.
fn event(number: u64, block: &Block) -> String {
    let data = json!({"id": block.id, "html": block.html.as_str()});
    format!("event: part\nid: {number}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::block::block;

    fn blocks(texts: [&str; 2]) -> Vec<Block> {
        let of = |(id, text): (&'static str, &str)| block(id, text, "", |_| {});
        ["a", "b"].into_iter().zip(texts).map(of).collect()
    }

    #[test]
    fn only_what_has_changed_is_sent_and_a_new_viewer_gets_all() {
        let first = State::default().next(blocks(["x", "y"]), 1);
        let second = first.next(blocks(["x", "z"]), 2);
        let third = second.next(blocks(["x", "z"]), 3);
        let ids = |state: &State, seen| state.since(seen).map(|block| block.id).collect::<Vec<_>>();
        assert_eq!(ids(&second, 1), ["b"]);
        assert_eq!(ids(&third, 2), [""; 0]);
        assert_eq!(ids(&third, 1), ["b"], "a viewer that missed the second rendering");
        assert_eq!(ids(&third, 0), ["a", "b"]);
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_the_block_holds() {
        let hostile = block("a", "</script>\n\ndata: x\r\n", "", |_| {});
        let event = event(7, &hostile);
        let lines: Vec<&str> = event.split('\n').collect();
        assert_eq!(lines.len(), 5, "{event}");
        assert_eq!((lines[0], lines[1]), ("event: part", "id: 7"));
        let data: serde_json::Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["id"], "a");
    }
}
