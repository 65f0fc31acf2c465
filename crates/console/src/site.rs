//! Paths to pages: what `GET` answers, without a socket.

use std::borrow::Cow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ottla_wire::text::printable_json;
use serde_json::json;

use crate::draw::block::head;
use crate::draw::text::{decoded, link, text};
use crate::page::messages::Field;
use crate::page::{self, Form, Page, Query, View, json_text};
use crate::series::{INTERVAL_MS, Series};
use crate::shell;
use crate::source::Source;
use crate::tail::Tails;

/// The console of one source.
pub struct Site {
    source: Arc<dyn Source>,
    series: Mutex<Arc<Series>>,
    tails: Tails,
    /// When a page was last asked for.
    viewed: Mutex<Option<Instant>>,
    /// Dropped with the site: ends the sampler.
    _stop: mpsc::Sender<()>,
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub path: &'a str,
    pub query: &'a str,
    /// The client prefers JSON to HTML.
    pub wants_json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
    /// A document of its own, which a page of the console has in a frame.
    pub is_framed: bool,
}

/// How long after the last page a source is sampled that costs something: a viewer that comes back
/// finds the trends.
const VIEWED_FOR: Duration = Duration::from_secs(300);

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl Site {
    /// Starts a thread that samples the counts; it ends when the site is dropped.
    pub fn start(source: Arc<dyn Source>) -> std::io::Result<Arc<Site>> {
        let (stop, stopped) = mpsc::channel();
        let site = Arc::new(Site {
            source,
            series: Mutex::default(),
            tails: Tails::default(),
            viewed: Mutex::default(),
            _stop: stop,
        });
        let weak = Arc::downgrade(&site);
        let sample = move || {
            loop {
                let Some(site) = weak.upgrade() else { return };
                site.sample();
                drop(site);
                let pause = stopped.recv_timeout(Duration::from_millis(INTERVAL_MS));
                if pause != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("ottla-console".into())
            .spawn(sample)?;
        Ok(site)
    }

    /// A site that is sampled by its caller.
    pub fn unsampled(source: Arc<dyn Source>, series: Series) -> Site {
        Site {
            source,
            series: Mutex::new(Arc::new(series)),
            tails: Tails::default(),
            viewed: Mutex::default(),
            _stop: mpsc::channel().0,
        }
    }

    fn sample(&self) {
        if !self.source.is_sampled_unviewed() && !self.is_viewed() {
            return;
        }
        if let Ok(counts) = self.source.counts() {
            let now_ms = self.source.now_ms();
            // Copied only while a page reads it.
            Arc::make_mut(&mut self.series()).add(counts, now_ms);
        }
        if let Ok(requests) = self.source.slow_requests() {
            let now_ms = self.source.now_ms();
            Arc::make_mut(&mut self.series()).worst.add(requests, now_ms);
        }
        if let Ok(progress) = self.source.progress() {
            Arc::make_mut(&mut self.series()).groups.add(progress);
        }
    }

    fn is_viewed(&self) -> bool {
        let viewed = self.viewed.lock().unwrap_or_else(PoisonError::into_inner);
        viewed.is_some_and(|at| at.elapsed() < VIEWED_FOR)
    }

    fn series(&self) -> MutexGuard<'_, Arc<Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request; takes milliseconds, and may wait for the disk.
    pub fn answer(&self, ask: Ask<'_>) -> Answer {
        let (path, is_json) = match ask.path.strip_suffix(".json") {
            Some("") | None => (ask.path, ask.wants_json),
            Some("/index") => ("/", true),
            Some(path) => (path, true),
        };
        let query = Query::read(ask.query);
        if let Some(client) = path
            .strip_prefix("/api/v1/clients/")
            .and_then(|rest| rest.strip_suffix("/predict"))
        {
            return self.predict(client, &query);
        }
        if let Some(name) = path.strip_prefix("/reports/") {
            return self.report(name, is_json);
        }
        let form = if is_json { Form::Json } else { Form::Html };
        let (status, page) = match self.page(path, &query, form) {
            Some(page) => (200, page),
            None => (404, self.missing(path)),
        };
        if is_json {
            return answer_json(status, page.json);
        }
        let address = match ask.query {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        let identity = self.source.identity();
        Answer {
            status,
            content_type: HTML,
            body: shell::render(&page, &identity, &address),
            is_framed: false,
        }
    }

    /// `GET /messages/T/value?partition=N&offset=N`, or `key`: the complete field of a record;
    /// `None`: the path is another one.
    ///
    /// - Errors: the answer that says why there is none.
    pub fn field(&self, path: &str, query: &str) -> Option<Result<Field, Answer>> {
        let (topic, part) = path.strip_prefix("/messages/")?.split_once('/')?;
        let topic = decoded(topic, false)?;
        let found = page::messages::field(&*self.source, &topic, part, &Query::read(query));
        let refused = |(status, reason)| answer_json(status, json_text(&json!({"error": reason})));
        Some(found.map_err(refused))
    }

    /// The page of an address; `None`: there is none.
    pub fn page(&self, path: &str, query: &Query, form: Form) -> Option<Page> {
        *self.viewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        // Shared, so that pages of any length do not hold the sampler up.
        let series = self.series().clone();
        let view = View {
            source: &*self.source,
            series: &series,
            tails: &self.tails,
            query,
            form,
        };
        let path = path.trim_end_matches('/');
        let page = match path {
            "" => page::overview::page(&view),
            "/topics" => page::topics::list(&view),
            "/clients" => page::clients::page(&view),
            "/groups" => page::groups::list(&view),
            "/tenants" => page::tenants::page(&view),
            "/requests" => page::requests::page(&view),
            "/config" => page::config::page(&view),
            "/access" => page::access::page(&view),
            "/transactions" => page::transactions::page(&view),
            "/bench" => page::bench::list(&view),
            "/help/metrics" => page::help::page(&view),
            _ => return self.named_page(path, &view),
        };
        Some(page)
    }

    fn named_page(&self, path: &str, view: &View<'_>) -> Option<Page> {
        let (place, name) = path.strip_prefix('/')?.split_once('/')?;
        if let Some((topic, index)) = of_partition(path) {
            return page::partition::page(view, &topic, page::partition::index_of(&index)?);
        }
        let name = decoded(name, false)?;
        match place {
            "topics" => page::topics::one(view, &name),
            "messages" => page::messages::page(view, &name),
            "clients" => page::client::page(view, &name),
            "groups" => page::group::page(view, &name),
            "bench" => page::bench::one(view, &name),
            _ => None,
        }
    }

    fn missing(&self, path: &str) -> Page {
        let why = of_partition(path.trim_end_matches('/'))
            .map(|(topic, index)| page::partition::why_missing(&*self.source, &topic, &index));
        let why = why.unwrap_or_else(|| {
            String::from(
                "There is no page here. What was here may have been deleted, or has not been seen yet.",
            )
        });
        missing(path, &why)
    }

    /// `GET /api/v1/clients/ID/predict?set=linger.ms=5`: the same document as `ottla doctor predict
    /// --format json` prints.
    fn predict(&self, client: &str, query: &Query) -> Answer {
        let refused = |status, reason: String| answer_json(status, json_text(&json!({"error": reason})));
        let Some(client) = decoded(client, false) else {
            return refused(400, String::from("the client's name is not UTF-8"));
        };
        let snapshots = match self.source.snapshots() {
            Ok(snapshots) => snapshots,
            Err(untold) => return refused(501, untold.to_string()),
        };
        let Some(snapshot) = page::what_if::find(&snapshots, &client) else {
            let known = snapshots
                .iter()
                .map(|snapshot| snapshot.client.client_id.as_str());
            return refused(404, ottla_lab::doctor::severity::unknown(&client, known));
        };
        match ottla_lab::doctor::calculator::predict::predict(snapshot, &query.all("set")) {
            Ok(prediction) => answer_json(200, json_text(&prediction)),
            Err(invalid) => refused(400, invalid.to_string()),
        }
    }

    /// `GET /reports/NAME`: a report without the console around it; as JSON as `ottla bench` wrote
    /// it.
    fn report(&self, name: &str, is_json: bool) -> Answer {
        let refused = |status, reason: String| answer_json(status, json_text(&json!({"error": reason})));
        let missing = || refused(404, String::from("there is no report of this name"));
        let (Some(name), Some(reports)) = (decoded(name, false), self.source.reports()) else {
            return missing();
        };
        match reports.one(&name) {
            Err(untold) => refused(500, untold.to_string()),
            Ok(None) => missing(),
            Ok(Some(report)) if is_json => answer_json(200, json_text(&report)),
            Ok(Some(report)) => Answer {
                status: 200,
                content_type: HTML,
                body: ottla_lab::bench::html::render(&report),
                is_framed: true,
            },
        }
    }
}

fn answer_json(status: u16, text: String) -> Answer {
    let changed = match printable_json(&text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(changed) => Some(changed),
    };
    Answer {
        status,
        content_type: JSON,
        body: changed.unwrap_or(text),
        is_framed: false,
    }
}

/// The topic and the last part of `/topics/T/P`; `None`: it is no such path.
fn of_partition(path: &str) -> Option<(String, String)> {
    let (topic, index) = path.strip_prefix("/topics/")?.split_once('/')?;
    Some((decoded(topic, false)?, decoded(index, false)?))
}

fn missing(path: &str, why: &str) -> Page {
    let lead = [text(why)];
    let more = [link("/", "To the overview")];
    Page {
        title: String::from("Not found"),
        place: "",
        blocks: vec![head("Not found", &crate::draw::text::name(path), &lead, &more)],
        json: json_text(&json!({"error": why})),
    }
}

/// The blocks of a page, for the stream of changes; also those of a page that is gone by now.
pub fn blocks(site: &Site, address: &str) -> Vec<crate::draw::block::Block> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let page = site.page(path, &Query::read(query), Form::Html);
    page.map_or_else(|| site.missing(path).blocks, |page| page.blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, State};

    /// All groups of a cluster were asked for every ten seconds, also at night.
    #[test]
    fn a_cluster_is_sampled_only_while_pages_are_asked_for() {
        let is_empty = |site: &Site| site.series().groups.is_empty();
        let site_of = |state| {
            let source = Sample {
                state,
                more_topics: 0,
                reports: None,
            };
            Site::unsampled(Arc::new(source), Series::default())
        };
        let (own, cluster) = (site_of(State::Loaded), site_of(State::Stock));
        own.sample();
        cluster.sample();
        assert!(!is_empty(&own) && is_empty(&cluster));
        assert!(cluster.page("/", &Query::default(), Form::Html).is_some());
        cluster.sample();
        assert!(!is_empty(&cluster));
    }
}
