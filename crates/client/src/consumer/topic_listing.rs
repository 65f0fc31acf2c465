//! `list_topics`: one metadata request for all topics, separate from the consumer's own metadata.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_wire::primitives::Reader;

use super::exchange::TopicDescription;
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::network::cluster::{Cluster, Reply, Request};
use crate::network::io::Action;
use crate::pending::Promise;
use crate::time::Moment;

/// Older versions ask for all topics with an empty list; no broker still in use needs them.
const OLDEST_VERSION: i16 = 1;

/// The waiting calls.
#[derive(Debug)]
pub struct TopicListing {
    config: Arc<ConsumerConfig>,
    waiting: Vec<(Moment, Promise<Vec<TopicDescription>>)>,
    is_asked: bool,
    not_before: Moment,
}

impl TopicListing {
    pub fn new(config: Arc<ConsumerConfig>) -> TopicListing {
        TopicListing {
            config,
            waiting: Vec::new(),
            is_asked: false,
            not_before: Moment::from_nanos(0),
        }
    }

    pub fn ask(&mut self, deadline: Moment, promise: Promise<Vec<TopicDescription>>) {
        self.waiting.push((deadline, promise));
    }

    pub fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let deadlines = self.waiting.iter().map(|(deadline, _)| *deadline);
        let retry = (!self.waiting.is_empty() && now < self.not_before).then_some(self.not_before);
        deadlines.chain(retry).min()
    }

    pub fn send<T>(
        &mut self,
        now: Moment,
        cluster: &mut Cluster<T>,
        ticket: impl FnOnce() -> T,
        actions: &mut Vec<Action>,
    ) {
        for (_, promise) in self.waiting.extract_if(.., |(deadline, _)| now >= *deadline) {
            promise.fulfil(Err(Error::Timeout {
                what: "listing topics".into(),
                limit_ms: self.config.default_api_timeout_ms,
                setting: "default.api.timeout.ms",
            }));
        }
        if self.waiting.is_empty() || self.is_asked || now < self.not_before {
            return;
        }
        let Some(node) = cluster.least_loaded(now) else {
            return;
        };
        let api_version = match cluster.version(node, ApiKey::Metadata, OLDEST_VERSION) {
            Ok(version) => version,
            Err(error) => return self.fail(&error),
        };
        let request = MetadataRequest {
            topics: None,
            // The request names no topic that could be created; versions before 4 support no other
            // value.
            allow_auto_topic_creation: true,
            ..MetadataRequest::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, api_version);
        let request = Request {
            api_key: ApiKey::Metadata,
            api_version,
            body: vec![body.into()],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        self.is_asked = true;
        cluster.send(now, node, request, ticket(), actions);
    }

    pub fn take_reply<T>(&mut self, now: Moment, reply: &Reply<T>) {
        self.is_asked = false;
        match &reply.result {
            Ok(frame) => match read(frame, reply.api_version) {
                Ok(topics) => {
                    for (_, promise) in self.waiting.drain(..) {
                        promise.fulfil(Ok(topics.clone()));
                    }
                }
                Err(reason) => self.fail(&Error::Malformed {
                    address: format!("node {}", reply.node.0).into(),
                    reason: reason.into(),
                }),
            },
            Err(error) if error.is_retriable() => {
                self.not_before = now.after_ms(self.config.client.retry_backoff_ms);
            }
            Err(error) => self.fail(error),
        }
    }

    pub fn fail(&mut self, error: &Error) {
        for (_, promise) in self.waiting.drain(..) {
            promise.fulfil(Err(error.clone()));
        }
    }
}

fn read(frame: &Bytes, api_version: i16) -> Result<Vec<TopicDescription>, String> {
    let mut reader = Reader::new(frame);
    let response = MetadataResponse::decode(&mut reader, api_version)
        .map_err(|error| format!("metadata response: {error}"))?;
    let topics = response.topics.iter().filter(|topic| topic.error_code == 0);
    let topics = topics.filter_map(|topic| {
        Some(TopicDescription {
            name: topic.name?.into(),
            is_internal: topic.is_internal,
            partition_count: topic.partitions.len(),
        })
    });
    Ok(topics.collect())
}
