//! Everything a running broker is made of, minus threads and sockets.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use ottla_log::LogError;
use ottla_log::disk::Disk;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::config::NodeConfig;
use crate::dispatch::dispatch;
use crate::executor::Executor;
use crate::fetch::session::FetchSessions;
use crate::handlers::api_versions;
use crate::group::Groups;
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::log_directory::{CheckpointOffsets, LogDirectory};
use crate::maintenance::Maintenance;
use crate::partition::Partition;
use crate::partitions::{self, Partitions};
use crate::reply::{Handled, ReplyBuffer};
use crate::request::Request;
use crate::time::{Clock, Moment};

/// The broker as a value.
pub struct Node {
    pub config: Arc<NodeConfig>,
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    pub log_directory: LogDirectory,
    pub partitions: Partitions,
    pub fetch_sessions: FetchSessions,
    pub groups: Groups,
    image: ArcSwap<MetadataImage>,
    executor: OnceLock<Arc<dyn Executor>>,
    maintenance: Mutex<Maintenance>,
}

impl Node {
    /// Puts a node together from an image and the directory that holds its partitions' logs; opens the logs.
    pub(crate) fn assemble(
        config: Arc<NodeConfig>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        log_directory: LogDirectory,
        image: Arc<MetadataImage>,
    ) -> Result<Node, LogError> {
        let fetch_sessions = usize::try_from(config.network.fetch_sessions_max).unwrap_or(0);
        let groups = Groups::new(&config);
        let node = Node {
            config,
            clock,
            disk,
            log_directory,
            partitions: Partitions::default(),
            fetch_sessions: FetchSessions::new(fetch_sessions),
            groups,
            image: ArcSwap::new(image.clone()),
            executor: OnceLock::new(),
            maintenance: Mutex::default(),
        };
        partitions::open_all(&node, &image)?;
        Ok(node)
    }

    /// The shell's threads; set once, before the first request.
    pub fn set_executor(&self, executor: Arc<dyn Executor>) {
        assert!(self.executor.set(executor).is_ok(), "the executor is set once");
        self.groups.start(self);
    }

    pub fn executor(&self) -> &dyn Executor {
        self.executor
            .get()
            .expect("the shell sets an executor before it serves")
            .as_ref()
    }

    /// What the cluster is at this moment.
    pub fn image(&self) -> Guard<Arc<MetadataImage>> {
        self.image.load()
    }

    /// Makes `image` the truth: opens and deletes logs, and lets requests see it. Waits for the disk; called on the
    /// controller thread when the records that made the image are durable.
    pub(crate) fn publish(&self, image: Arc<MetadataImage>) {
        let old = self.image.load_full();
        // A topic must not be seen before its partitions can be written.
        partitions::follow(self, &old, &image);
        self.image.store(image.clone());
        let is_gone = |topic: &&Arc<TopicImage>| image.topic_by_id(topic.id).is_none();
        let gone: Vec<(&str, Uuid)> =
            old.topics.iter().filter(is_gone).map(|topic| (&*topic.name, topic.id)).collect();
        if !gone.is_empty() {
            self.groups.on_topics_deleted(self, &gone);
        }
    }

    pub fn partition(&self, topic_id: Uuid, index: i32) -> Option<Arc<Partition>> {
        self.partitions.get(topic_id, index)
    }

    pub fn partition_by_name(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let image = self.image();
        let topic = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.partition(topic.id, index)
            .ok_or(ErrorCode::UnknownTopicOrPartition)
    }

    /// Serves one request: the reply is in `reply`, or comes later.
    ///
    /// - Errors: `Handled::Close` for what no reply can be written to.
    pub fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        let Some(api_key) = ApiKey::from_i16(request.api_key) else {
            return Handled::Close(format!("unknown api key {}", request.api_key));
        };
        let is_served = api_key
            .served_versions()
            .is_some_and(|served| served.contains(request.api_version));
        if !is_served && api_key == ApiKey::ApiVersions {
            api_versions::handle_unknown_version(reply);
            return Handled::Replied;
        }
        if !is_served {
            return Handled::Close(format!("{api_key} version {} is not served", request.api_version));
        }
        match dispatch(self, api_key, request, reply) {
            Ok(handled) => handled,
            Err(error) => Handled::Close(format!("{api_key} version {}: {error}", request.api_version)),
        }
    }

    /// Writes the four offset checkpoints of the log directory.
    pub(crate) fn write_checkpoints(&self) -> Result<(), LogError> {
        let mut offsets = CheckpointOffsets::default();
        for partition in self.partitions.all() {
            let key = (partition.topic.to_string(), partition.index);
            let found = partition.offsets();
            offsets.high_watermarks.insert(key.clone(), found.high_watermark);
            if found.start > 0 {
                offsets.log_starts.insert(key.clone(), found.start);
            }
            offsets
                .recovery_points
                .insert(key, partition.with_log(|log| log.recovery_point()));
        }
        self.log_directory.write_checkpoints(&offsets)
    }

    /// Makes the starts of all logs durable.
    pub(crate) fn write_log_starts(&self) -> Result<(), LogError> {
        let starts = self.partitions.all().into_iter().map(|partition| {
            let key = (partition.topic.to_string(), partition.index);
            (key, partition.offsets().start)
        });
        self.log_directory
            .write_log_starts(&starts.filter(|(_, start)| *start > 0).collect())
    }

    /// When somebody must call `on_deadline`. `Executor::deadline_changed` tells when this comes closer.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.groups.next_deadline()
    }

    pub fn on_deadline(&self, now: Moment) {
        self.groups.on_deadline(self, now);
    }

    /// Housekeeping; call about once a second where waiting for the disk is allowed.
    pub fn maintain(&self) {
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .run(self);
        self.groups.maintain(self);
    }
}
