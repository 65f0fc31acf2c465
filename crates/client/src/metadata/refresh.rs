//! Decides when to request metadata and for which topics; `Cluster` sends the request and receives
//! the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_wire::primitives::Reader;

use crate::config::ClientConfig;
use crate::events;
use crate::network::backoff::{Backoff, Random};
use crate::time::Moment;

use super::answer::{AskedTopics, Flaw, Merged, merge};
use super::cell::{Interest, MetadataCell};
use super::snapshot::Snapshot;

/// The outcome of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Updated,
    /// The broker says that this client should start from `bootstrap.servers` again (KIP-1102).
    Rebootstrap,
    /// From a broker that does not know its cluster yet; retried after the backoff.
    Unusable(String),
    /// Not an answer to the request.
    Malformed(String),
}

/// The state of the refresh: at most one request is in flight.
#[derive(Debug)]
pub struct Refresh {
    client_id: Arc<str>,
    cell: Arc<MetadataCell>,
    backoff: Backoff,
    age_ms_max: u64,
    idle_ms_max: u64,
    allow_auto_create_topics: bool,
    random: Random,
    seen_revision: u64,
    is_update_wanted: bool,
    /// Topics that no request has named yet: these do not wait for the backoff.
    has_new_topics: bool,
    last_success: Option<Moment>,
    not_before: Moment,
    /// Consecutive responses and attempts that left something missing.
    failures: u32,
    /// When the current series of failed attempts began.
    failing_since: Option<Moment>,
    under_way: Option<AskedTopics>,
    /// Wanted topics that the last answers did not know, with the number of these answers.
    unknown: BTreeMap<Arc<str>, u32>,
}

impl Refresh {
    pub fn new(config: &ClientConfig, cell: Arc<MetadataCell>, seed: u64) -> Refresh {
        Refresh {
            client_id: Arc::clone(&config.client_id),
            cell,
            backoff: Backoff::new(config.retry_backoff_ms, config.retry_backoff_ms_max),
            age_ms_max: config.metadata_age_ms_max,
            idle_ms_max: config.metadata_idle_ms_max,
            allow_auto_create_topics: config.allow_auto_create_topics,
            random: Random::new(seed),
            seen_revision: 0,
            is_update_wanted: true,
            has_new_topics: false,
            last_success: None,
            not_before: Moment::from_nanos(0),
            failures: 0,
            failing_since: None,
            under_way: None,
            unknown: BTreeMap::new(),
        }
    }

    pub fn cell(&self) -> &Arc<MetadataCell> {
        &self.cell
    }

    pub fn request_update(&mut self) {
        self.is_update_wanted = true;
    }

    /// Since when attempts fail, if they do.
    pub fn failing_since(&self) -> Option<Moment> {
        self.failing_since
    }

    /// Notices new wishes.
    pub fn look(&mut self) {
        let revision = self.cell.revision();
        if revision == self.seen_revision {
            return;
        }
        self.seen_revision = revision;
        let wishes = self.cell.take_wishes();
        self.is_update_wanted |= wishes.is_update_wanted;
        // With interest in all topics or none, a single new topic changes nothing about the
        // request.
        match wishes.interest {
            Interest::Named | Interest::Nodes => self.has_new_topics |= wishes.has_new_topics,
            Interest::All => self.is_update_wanted |= wishes.has_new_topics,
        }
    }

    /// When the next request is due; `None` while one is in flight.
    pub fn due(&self) -> Option<Moment> {
        if self.under_way.is_some() {
            return None;
        }
        if self.has_new_topics && self.failing_since.is_none() {
            return Some(Moment::from_nanos(0));
        }
        let wanted = self.is_update_wanted || self.has_new_topics;
        match self.last_success {
            Some(at) if !wanted => Some(at.after_ms(self.age_ms_max)),
            _ => Some(self.not_before),
        }
    }

    /// The request's body; pass the answer to `answered`, or call `failed` when there is none.
    pub fn start(&mut self, now: Moment, version: i16) -> Vec<u8> {
        let asked = self.question(now);
        let topics = match &asked {
            // Version 0 has no null: there an empty list means all topics.
            AskedTopics::All if version >= 1 => None,
            AskedTopics::All => Some(&[][..]),
            AskedTopics::Wanted(topics) | AskedTopics::New(topics) => Some(&topics[..]),
            AskedTopics::Nodes => Some(&[][..]),
        };
        let request = MetadataRequest {
            topics: topics.map(|topics| {
                topics
                    .iter()
                    .map(|name| MetadataRequestTopic {
                        name: Some(name),
                        ..MetadataRequestTopic::default()
                    })
                    .collect()
            }),
            allow_auto_topic_creation: version < 4 || self.allow_auto_create_topics,
            ..MetadataRequest::default()
        };
        let mut body = Vec::with_capacity(64);
        request.encode(&mut body, version);
        self.is_update_wanted = false;
        self.has_new_topics = false;
        self.not_before = Moment::from_nanos(
            now.nanos()
                .saturating_add(self.backoff.nanos(self.failures, &mut self.random)),
        );
        self.failing_since.get_or_insert(now);
        self.under_way = Some(asked);
        body
    }

    fn question(&self, now: Moment) -> AskedTopics {
        let is_whole = self.is_update_wanted || self.last_success.is_none() || !self.has_new_topics;
        match self.cell.interest() {
            Interest::All => AskedTopics::All,
            Interest::Named | Interest::Nodes if !is_whole => AskedTopics::New(self.cell.new_topics()),
            Interest::Named => AskedTopics::Wanted(self.cell.wanted_topics(now, self.idle_ms_max)),
            Interest::Nodes => match self.cell.wanted_topics(now, self.idle_ms_max) {
                topics if topics.is_empty() => AskedTopics::Nodes,
                topics => AskedTopics::Wanted(topics),
            },
        }
    }

    pub fn answered(&mut self, now: Moment, body: &[u8], version: i16) -> Outcome {
        let asked = self.under_way.take().unwrap_or(AskedTopics::Nodes);
        let response = match MetadataResponse::decode(&mut Reader::new(body), version) {
            Ok(response) => response,
            Err(error) => return Outcome::Malformed(self.unusable(error.to_string())),
        };
        let previous = self.cell.load_full();
        if response.error_code == ErrorCode::RebootstrapRequired.code() {
            self.is_update_wanted = true;
            self.cell.publish(Snapshot {
                version: previous.version + 1,
                ..Snapshot::default()
            });
            return Outcome::Rebootstrap;
        }
        let mut merged = match merge(&previous, &response, version, &asked) {
            Ok(merged) => merged,
            Err(Flaw::Malformed(reason)) => return Outcome::Malformed(self.unusable(reason)),
            Err(Flaw::NoBrokers) => return Outcome::Unusable(self.unusable("it names no broker".into())),
        };
        if let AskedTopics::New(topics) | AskedTopics::Wanted(topics) = &asked {
            self.cell.mark_answered(topics);
            merged.snapshot.topics.retain(|name, _| self.cell.is_wanted(name));
            merged
                .snapshot
                .refused
                .retain(|name, _| self.cell.is_wanted(name));
        }
        self.tell(&previous, &merged);
        self.last_success = Some(now);
        self.failing_since = None;
        if merged.is_incomplete {
            self.failures += 1;
            self.is_update_wanted = true;
        } else {
            self.failures = 0;
        }
        self.cell.publish(merged.snapshot);
        Outcome::Updated
    }

    /// Tells which topics are refused, and which still do not exist: the first answer about a topic
    /// that the broker is about to create says that it is unknown.
    fn tell(&mut self, previous: &Snapshot, merged: &Merged) {
        for (name, error) in &merged.snapshot.refused {
            if !previous.refused.contains_key(name) {
                events::topic_refused(&self.client_id, name, error);
            }
        }
        for name in &merged.unknown {
            let answers = self.unknown.entry(Arc::clone(name)).or_default();
            *answers = answers.saturating_add(1);
            if *answers == 2 {
                events::topic_unknown(&self.client_id, name);
            }
        }
        let (cell, topics) = (&self.cell, &merged.snapshot.topics);
        self.unknown
            .retain(|name, _| !topics.contains_key(name) && cell.is_wanted(name));
    }

    fn unusable(&mut self, reason: String) -> String {
        self.failures += 1;
        self.is_update_wanted = true;
        reason
    }

    /// The request in flight gets no answer.
    pub fn failed(&mut self) {
        self.under_way = None;
        self.failures += 1;
        self.is_update_wanted = true;
    }
}
