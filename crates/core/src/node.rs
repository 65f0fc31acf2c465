//! Everything a running broker consists of, except threads and sockets.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::{ArcSwap, Guard};
use ottla_log::LogError;
use ottla_log::crew::{Alone, Crew};
use ottla_log::directory::{LOCK_FILE, write_clean_shutdown};
use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::disk::{DirectoryLock, Disk};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use tracing::{info, warn};

use crate::batch_times::BatchTimes;
use crate::config::NodeConfig;
use crate::controller::service::ProducerIds;
use crate::controller::topics::METADATA_TOPIC;
use crate::controller::{Controller, ControllerError};
use crate::dispatch::dispatch;
use crate::executor::Executor;
use crate::fetch::cold::ReadAhead;
use crate::fetch::session::FetchSessions;
use crate::group::Groups;
use crate::handlers::api_versions;
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::log_directory::{CheckpointFile, CheckpointOffsets, LogDirectory, RemovedTopics};
use crate::long_answer;
use crate::maintenance::Maintenance;
use crate::open_transactions;
use crate::partition::Partition;
use crate::partitions::{self, Partitions};
use crate::quota::{self, QuotaConfig, Quotas};
use crate::random::Random;
use crate::rate_limit::RateLimit;
use crate::reply::{Handled, ReplyBuffer};
use crate::request::{ConnectionContext, Request};
use crate::start::{self, TakenOver};
use crate::stopping;
use crate::telemetry::Telemetry;
use crate::tenant::{TenantKind, Tenants};
use crate::time::{Clock, Moment};

/// Why a broker could not start, or did not stop cleanly.
#[derive(Clone, Debug)]
pub enum StartError {
    Controller(ControllerError),
    Log(LogError),
    /// Another process uses the directory, or it cannot be written to.
    Lock {
        path: String,
        problem: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Controller(error) => error.fmt(f),
            StartError::Log(error) => error.fmt(f),
            StartError::Lock { path, problem } => write!(f, "cannot use {path}: {problem}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ControllerError> for StartError {
    fn from(error: ControllerError) -> StartError {
        StartError::Controller(error)
    }
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> StartError {
        StartError::Log(error)
    }
}

/// Rate limits for log lines: each kind is logged at most a few times a second, however often it
/// happens.
pub(crate) struct Complaints {
    /// Logs that cannot be written, opened or closed.
    pub failures: RateLimit,
    /// Shortages of space or descriptors: the work is tried again later.
    pub lacks: RateLimit,
}

/// A whole broker as one value.
pub struct Node {
    pub config: Arc<NodeConfig>,
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    pub log_directory: LogDirectory,
    pub partitions: Partitions,
    pub(crate) complaints: Complaints,
    pub(crate) crew: Arc<dyn Crew>,
    pub fetch_sessions: FetchSessions,
    /// Shared with the shell, which loads the pages that an answer turns out to need while it is
    /// sent.
    pub cold_cache: Arc<ColdCache>,
    pub read_ahead: ReadAhead,
    pub groups: Groups,
    pub batch_times: BatchTimes,
    pub telemetry: Telemetry,
    /// The tenants that have connections; the shell assigns each connection to one.
    pub tenants: Arc<Tenants>,
    pub quotas: Arc<Quotas>,
    /// Source of names that must not collide: topic ids, directory ids, member ids.
    pub random: Arc<Random>,
    pub producer_ids: ProducerIds,
    /// Locked on the controller thread only: the holder may be waiting for the disk.
    pub(crate) controller: Mutex<Controller>,
    cluster_id: String,
    metadata_directory_id: Uuid,
    image: ArcSwap<MetadataImage>,
    executor: OnceLock<Arc<dyn Executor>>,
    maintenance: Mutex<Maintenance>,
    /// Less than `ottla.disk.reserve.bytes` were free at the last check.
    disk_is_low: AtomicBool,
    is_stopping: AtomicBool,
    /// Topics deleted before the start, as far back as the metadata log reaches.
    pub(crate) removed_topics: RemovedTopics,
    _locks: Mutex<Vec<Box<dyn DirectoryLock>>>,
}

impl Node {
    /// Opens everything in the log directory, or claims an empty one.
    ///
    /// - Shape: the listeners in `config` carry the ports they were bound to.
    /// - Errors: nothing in the directory is served.
    pub fn open(
        config: impl Into<Arc<NodeConfig>>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Result<Node, StartError> {
        Node::open_with(config, disk, clock, Arc::new(Alone))
    }

    /// As `open`, with a thread crew for work on all logs at once, at start and stop.
    pub fn open_with(
        config: impl Into<Arc<NodeConfig>>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        crew: Arc<dyn Crew>,
    ) -> Result<Node, StartError> {
        let config = config.into();
        let random = Arc::new(Random::new(config.seed));
        let locks = lock_directories(&*disk, &config)?;
        let TakenOver {
            controller,
            log_directory,
            removed_topics,
        } = start::take_over(&disk, &config, &random, clock.timestamp())?;
        let cluster_id = controller.directories().cluster_id.clone();
        let metadata_directory_id = controller.directories().metadata.id;
        let image = controller.image().clone();
        let fetch_sessions = usize::try_from(config.network.fetch_sessions_max).unwrap_or(0);
        let cold_cache = Arc::new(ColdCache::new(config.storage.cold_read_cache_bytes));
        let groups = Groups::new(&config);
        let telemetry = Telemetry::new(config.telemetry);
        let tenants = Arc::new(Tenants::new(config.tenants.clone()));
        let quota_config = QuotaConfig {
            is_dry_run: quota::is_dry_run(&image, &config),
            ..config.quota
        };
        let is_crowd_shared = config.tenants.key.contains(&TenantKind::ClientId);
        let client_quotas = image.client_quotas.clone();
        let quotas = Quotas::new(quota_config, client_quotas, clock.clone(), is_crowd_shared);
        let node = Node {
            config,
            clock,
            disk,
            log_directory,
            partitions: Partitions::default(),
            complaints: Complaints {
                failures: RateLimit::per_second(10),
                lacks: RateLimit::per_second(1),
            },
            crew,
            fetch_sessions: FetchSessions::new(fetch_sessions),
            cold_cache,
            read_ahead: ReadAhead::default(),
            groups,
            batch_times: BatchTimes::default(),
            telemetry,
            tenants,
            quotas: Arc::new(quotas),
            random,
            producer_ids: ProducerIds::default(),
            controller: Mutex::new(controller),
            cluster_id,
            metadata_directory_id,
            image: ArcSwap::new(image.clone()),
            executor: OnceLock::new(),
            maintenance: Mutex::default(),
            disk_is_low: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            removed_topics,
            _locks: Mutex::new(locks),
        };
        partitions::open_all(&node, &image)?;
        node.sign_checkpoints()?;
        open_transactions::report(&node);
        Ok(node)
    }

    /// Writes the checkpoints for the first time and signs them as this broker's: they prove more
    /// than checkpoints of another writer.
    fn sign_checkpoints(&self) -> Result<(), LogError> {
        self.write_checkpoints()?;
        let controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        self.log_directory
            .sign(controller.broker_epoch(), self.config.durability)
    }

    /// Stops cleanly: everything is durable, leadership of all partitions is resigned, and the
    /// clean-shutdown mark is written. Waits for the disk; called once, when no request is served
    /// any more.
    pub fn close(&self) -> Result<(), StartError> {
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        let all_closed = stopping::close_logs(self);
        controller.close(self.clock.timestamp())?;
        // The checkpoints include the end of the metadata log.
        self.image.store(controller.image().clone());
        let path = self.log_directory.path();
        stopping::outlast_shortage(&*self.disk, LogError::is_shortage, || {
            self.write_checkpoints()?;
            // Without the mark the next start checks every log that may need it.
            match all_closed {
                true => write_clean_shutdown(&*self.disk, path, controller.broker_epoch()),
                false => Ok(()),
            }
        })?;
        Ok(())
    }

    /// Asks housekeeping to end soon: `close` is about to be called.
    pub fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the id of the directory that holds the metadata log.
    pub(crate) fn metadata_directory_id(&self) -> Uuid {
        self.metadata_directory_id
    }

    /// Sets the shell's executor; called once, before the first request.
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

    /// Returns the executor for holders that outlive a call.
    pub(crate) fn shared_executor(&self) -> Arc<dyn Executor> {
        let executor = self.executor.get();
        executor
            .expect("the shell sets an executor before it serves")
            .clone()
    }

    /// Returns the metadata as it is at this moment.
    pub fn image(&self) -> Guard<Arc<MetadataImage>> {
        self.image.load()
    }

    /// Publishes `image`: opens and deletes logs, and lets requests see it. Waits for the disk;
    /// called on the controller thread once the records behind the image are durable.
    pub(crate) fn publish(&self, image: Arc<MetadataImage>) {
        let old = self.image.load_full();
        // A topic must not be visible before its partitions can be written.
        partitions::follow(self, &old, &image);
        self.image.store(image.clone());
        if !Arc::ptr_eq(&old.topics, &image.topics) {
            self.note_directories();
        }
        self.quotas
            .follow(&image.client_quotas, quota::is_dry_run(&image, &self.config));
        let is_gone = |topic: &&Arc<TopicImage>| image.topic_by_id(topic.id).is_none();
        let gone: Vec<(&str, Uuid)> = old
            .topics
            .iter()
            .filter(is_gone)
            .map(|topic| (&*topic.name, topic.id))
            .collect();
        if !gone.is_empty() {
            self.groups.on_topics_deleted(self, &gone);
        }
    }

    /// Records which partitions have directories now: one that is missing at a later start was
    /// lost.
    fn note_directories(&self) {
        if let Err(error) = self.write_checkpoint_files(&[CheckpointFile::RecoveryPoints]) {
            warn!(%error, "cannot write the recovery points: a directory lost before they are written will go unnoticed");
        }
    }

    /// Returns a partition.
    ///
    /// - Errors: a partition that exists but whose log could not be opened is a storage error.
    pub fn partition(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.partitions.get(topic_id, index) {
            return Ok(partition);
        }
        let image = self.image();
        let known = image.topic_by_id(topic_id);
        match known.and_then(|topic| topic.partition(index)) {
            Some(_) => Err(ErrorCode::KafkaStorageError),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    pub fn partition_by_name(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let image = self.image();
        let topic = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.partition(topic.id, index)
    }

    /// Serves one request: the reply is in `reply`, or comes later.
    ///
    /// - Errors: `Handled::Close` where no reply can be written.
    pub fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        let Some(api_key) = ApiKey::from_i16(request.api_key) else {
            return Handled::Close(format!("unknown api key {}", request.api_key));
        };
        let is_served = api_key
            .served_versions()
            .is_some_and(|served| served.contains(request.api_version));
        if !is_served && api_key == ApiKey::ApiVersions {
            api_versions::handle_unknown_version(self, reply);
            return Handled::Replied;
        }
        if !is_served {
            return Handled::Close(format!("{api_key} version {} is not served", request.api_version));
        }
        if !request.is_elsewhere && long_answer::is_long(api_key, request.body.len()) {
            return long_answer::handle_elsewhere(request);
        }
        match dispatch(self, api_key, request, reply) {
            Ok(handled) => handled,
            Err(error) => Handled::Close(format!("{api_key} version {}: {error}", request.api_version)),
        }
    }

    /// Forgets what is kept only while a connection is open.
    pub fn disconnected(&self, connection: &ConnectionContext) {
        if connection.identity.instance_id().is_some() {
            self.telemetry.on_disconnect(connection.connection_id);
        }
    }

    /// False while the disk is too full for clients' records; the broker's own records still fit in
    /// the reserve.
    ///
    /// - Shape: `maintain` checks once a second; while the disk is low every caller checks again,
    ///   so that writes resume as soon as there is space.
    pub(crate) fn disk_has_room(&self) -> bool {
        !self.disk_is_low.load(Ordering::Relaxed) || !self.look_at_disk()
    }

    /// Asks the file system for its free space; true when it is below the reserve.
    pub(crate) fn look_at_disk(&self) -> bool {
        let reserve_bytes = u64::try_from(self.config.disk_reserve_bytes).unwrap_or(0);
        // A file system that does not answer counts as not full; the next write will show what is
        // wrong.
        let space = self.disk.space(self.log_directory.path());
        let is_low = space.is_ok_and(|space| space.free_bytes < reserve_bytes);
        if self.disk_is_low.swap(is_low, Ordering::Relaxed) != is_low {
            match is_low {
                true => warn!(reserve_bytes, "disk full: writes are refused, reads go on"),
                false => info!("disk has space again: writes are taken"),
            }
        }
        is_low
    }

    /// Writes the four offset checkpoints of the log directory.
    pub(crate) fn write_checkpoints(&self) -> Result<(), LogError> {
        self.write_checkpoint_files(&CheckpointFile::ALL)
    }

    /// Makes the log start offsets of all logs durable.
    pub(crate) fn write_log_starts(&self) -> Result<(), LogError> {
        self.write_checkpoint_files(&[CheckpointFile::LogStarts])
    }

    fn write_checkpoint_files(&self, files: &[CheckpointFile]) -> Result<(), LogError> {
        let refused = self.partitions.all_unserved();
        self.log_directory
            .write_checkpoints(files, &refused, || self.checkpoint_offsets())
    }

    fn checkpoint_offsets(&self) -> CheckpointOffsets {
        let mut offsets = CheckpointOffsets::default();
        for partition in self.partitions.all() {
            let key = (partition.topic.to_string(), partition.index);
            let found = partition.offsets();
            offsets.high_watermarks.insert(key.clone(), found.high_watermark);
            if found.start > 0 {
                offsets.log_starts.insert(key.clone(), found.start);
            }
            if partition.first_dirty_offset() > 0 {
                offsets
                    .cleaned
                    .insert(key.clone(), partition.first_dirty_offset());
            }
            offsets
                .recovery_points
                .insert(key, partition.with_log(|log| log.recovery_point()));
        }
        // Every metadata record is durable before it is published.
        let durable_end = self.image().provenance.last_offset + 1;
        offsets
            .recovery_points
            .insert((METADATA_TOPIC.to_owned(), 0), durable_end);
        offsets
    }

    /// The moment at which the shell must call `on_deadline`. `Executor::deadline_changed`
    /// announces an earlier one.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.groups.next_deadline()
    }

    pub fn on_deadline(&self, now: Moment) {
        self.groups.on_deadline(self, now);
    }

    /// Does housekeeping; call about once a second on a thread that may wait for the disk.
    pub fn maintain(&self) {
        if self.partitions.take_lack_of_logs() {
            self.executor().control(Box::new(partitions::open_missing));
        }
        self.partitions.sync_unsynced(self);
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .run(self);
        self.groups.maintain(self);
        self.telemetry.expire(self.clock.moment());
        self.quotas.maintain();
    }
}

/// Locks the directories against other processes.
pub(crate) fn lock_directories(
    disk: &dyn Disk,
    config: &NodeConfig,
) -> Result<Vec<Box<dyn DirectoryLock>>, StartError> {
    let mut paths: Vec<&Path> = config.log_directories.iter().map(|path| &**path).collect();
    if !paths.contains(&&*config.metadata_directory) {
        paths.push(&config.metadata_directory);
    }
    let mut locks = Vec::with_capacity(paths.len());
    for path in paths {
        let lock = disk
            .create_directories(path)
            .and_then(|()| disk.lock(&path.join(LOCK_FILE)));
        locks.push(lock.map_err(|error| StartError::Lock {
            path: path.display().to_string(),
            problem: match error.kind() {
                std::io::ErrorKind::ResourceBusy => "another process uses it".to_owned(),
                _ => error.to_string(),
            },
        })?);
    }
    Ok(locks)
}
