//! A running broker, minus threads and sockets: composed here, used by the request handlers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::Guard;
use ottla_log::crew::{Alone, Crew};
use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::disk::owned::{LogMemory, OwnedDisk};
use ottla_log::disk::{DirectoryLock, Disk};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::access::Access;
use crate::access::granted::{GrantedGroup, GrantedTopic};
use crate::config::{self, Durability, ListenerSecurity, NodeConfig};
use crate::connection_limits::LiveConnectionLimits;
use crate::controller::producer_ids::ProducerIds;
use crate::controller::{Controller, ControllerError};
use crate::effective_config;
use crate::fetch::cold::ReadAhead;
use crate::fetch::session::FetchSessions;
use crate::group::{Groups, OFFSETS_TOPIC};
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::key_stores::KeyStores;
use crate::partition::Partition;
use crate::quota::{self, QuotaConfig, Quotas};
use crate::random::Random;
use crate::request::ConnectionContext;
use crate::security::Security;
use crate::services::{Executor, Payer, Services};
use crate::start::{self, TakenOver, lock_directories};
use crate::storage::{Parts, Storage};
use crate::telemetry::Telemetry;
use crate::tenant::{TenantKind, Tenants};
use crate::time::{Clock, Moment};
use crate::transaction::admission::WriteGate;
use crate::transaction::transactions::Transactions;

pub use crate::start::StartError;

pub type Job = Box<dyn FnOnce(&Node) + Send>;

/// A step of a long request or answer.
pub struct LongAnswer {
    pub payer: Payer,
    /// Estimate of how many things (topics, partitions) it names.
    pub entries: u64,
    /// Returns how many it was worth.
    pub job: Box<dyn FnOnce(&Node) -> u64 + Send>,
}

/// What requests ask of the shell, beside what storage, groups and fetches do.
pub trait NodeExecutor: Executor {
    /// Runs the job on a thread without latency-sensitive work. Payers take turns, by entries. A
    /// connection has at most one job, and one more when it is closed.
    fn long_answer(&self, answer: LongAnswer);

    /// Runs `job` on the one controller thread, in order of submission. May wait for the disk.
    fn control(&self, job: Job);

    /// Runs `job` on the one thread that reads client metrics, in order of submission. The core
    /// bounds the queue.
    fn telemetry(&self, job: Job);
}

/// A whole broker as one value.
pub struct Node {
    pub storage: Storage,
    pub fetch_sessions: FetchSessions,
    /// Shared with the shell, which loads the pages that an answer turns out to need while it is
    /// sent.
    pub cold_cache: Arc<ColdCache>,
    pub read_ahead: ReadAhead,
    pub groups: Groups,
    pub transactions: Arc<Transactions>,
    /// Decides about transactional writes: the coordinators, unless a test decides.
    pub write_gate: Arc<dyn WriteGate>,
    pub telemetry: Telemetry,
    /// The tenants that have connections; the shell assigns each connection to one.
    pub tenants: Arc<Tenants>,
    pub quotas: Arc<Quotas>,
    pub producer_ids: Arc<ProducerIds>,
    pub(crate) security: Security,
    /// Shared with the shell, which accepts connections.
    pub connection_limits: Arc<LiveConnectionLimits>,
    /// Who may do what.
    pub access: Access,
    /// Locked on the controller thread only: the holder may be waiting for the disk.
    controller: Mutex<Controller>,
    cluster_id: String,
    metadata_directory_id: Uuid,
    executor: OnceLock<Arc<dyn NodeExecutor>>,
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
        let config: Arc<NodeConfig> = config.into();
        let disk = log_disk(disk, &config);
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
        let producer_ids = Arc::new(ProducerIds::default());
        let transactions = Transactions::new(config.transactions.clone(), producer_ids.clone());
        let transactions = Arc::new(transactions);
        let telemetry = Telemetry::new(config.telemetry);
        let tenants = Arc::new(Tenants::new(config.tenants.clone()));
        let quota_config = QuotaConfig {
            is_dry_run: quota::is_dry_run(&image, &config),
            ..config.quota
        };
        let is_crowd_shared = config.tenants.key.contains(&TenantKind::ClientId);
        let client_quotas = image.client_quotas.clone();
        let quotas = Quotas::new(quota_config, client_quotas, clock.clone(), is_crowd_shared);
        let parts = Parts {
            services: Services::new(clock, random),
            config: config.clone(),
            disk: disk.clone(),
            crew,
            log_directory,
            removed_topics,
            image: image.clone(),
        };
        let storage = Storage::open(parts, controller.broker_epoch())?;
        let metadata_directory = &controller.directories().metadata.path;
        let access = Access::new(config.authorizer.as_ref(), &image.acls);
        let security =
            Security::new(&config, &image, &*disk, metadata_directory).map_err(ControllerError::Security)?;
        let connection_limits = Arc::new(LiveConnectionLimits::new(config.network.connections.clone()));
        let settings = effective_config::broker_settings(&image, &config);
        connection_limits.follow(config::connection_limits_of(&config.listeners, &settings));
        Ok(Node {
            storage,
            fetch_sessions: FetchSessions::new(fetch_sessions),
            cold_cache,
            read_ahead: ReadAhead::default(),
            groups,
            write_gate: transactions.clone(),
            transactions,
            telemetry,
            tenants,
            quotas: Arc::new(quotas),
            producer_ids,
            security,
            connection_limits,
            access,
            controller: Mutex::new(controller),
            cluster_id,
            metadata_directory_id,
            executor: OnceLock::new(),
            _locks: Mutex::new(locks),
        })
    }

    /// Stops cleanly: everything is durable, leadership of all partitions is resigned, and the
    /// clean-shutdown mark is written. Waits for the disk; called once, when no request is served
    /// any more.
    pub fn close(&self) -> Result<(), StartError> {
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        let all_closed = self.storage.close_logs();
        controller.close(self.services().clock.timestamp())?;
        let image = controller.image().clone();
        self.storage.close(image, controller.broker_epoch(), all_closed)?;
        Ok(())
    }

    /// Asks housekeeping to end soon: `close` is about to be called.
    pub fn begin_stop(&self) {
        self.storage.begin_stop();
    }

    pub fn services(&self) -> &Services {
        &self.storage.services
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.storage.services.clock
    }

    pub fn config(&self) -> &NodeConfig {
        &self.storage.config
    }

    /// Returns the security of a listener as it is at this moment.
    pub fn listener_security(&self, listener_name: &str) -> Option<Arc<ListenerSecurity>> {
        self.security.of(listener_name)
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the id of the directory that holds the metadata log.
    pub(crate) fn metadata_directory_id(&self) -> Uuid {
        self.metadata_directory_id
    }

    /// Sets the shell's executor; called once, before the first request.
    pub fn set_executor(&self, executor: Arc<dyn NodeExecutor>) {
        self.services().set_executor(executor.clone());
        assert!(self.executor.set(executor).is_ok(), "the executor is set once");
        self.groups.start(&self.storage);
        self.transactions.start(&self.storage);
    }

    /// Sets what reads the stores of listeners with TLS, and has the listeners use those that were
    /// set at run time; called at most once.
    pub fn set_key_stores(&self, key_stores: Arc<dyn KeyStores>) {
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        controller.set_key_stores(key_stores.clone());
        self.security.set_key_stores(key_stores, controller.image());
    }

    pub fn executor(&self) -> &Arc<dyn NodeExecutor> {
        self.executor
            .get()
            .expect("the shell sets an executor before it serves")
    }

    /// Returns the metadata as it is at this moment.
    pub fn image(&self) -> Guard<Arc<MetadataImage>> {
        self.storage.image()
    }

    /// Runs `change` with the controller, on its thread, and publishes what it changed before it
    /// returns: opens and deletes logs, and lets requests see it. Waits for the disk.
    pub(crate) fn with_controller<T>(&self, change: impl FnOnce(&mut Controller) -> T) -> T {
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        let before = controller.image().clone();
        let result = change(&mut controller);
        if !Arc::ptr_eq(&before, controller.image()) {
            self.publish(controller.image().clone());
        }
        result
    }

    fn publish(&self, image: Arc<MetadataImage>) {
        let old = self.storage.image_full();
        self.storage.publish(image.clone());
        self.quotas
            .follow(&image.client_quotas, quota::is_dry_run(&image, self.config()));
        self.security.follow_users(&old, &image);
        if effective_config::is_broker_written(&old, &image, self.config()) {
            self.follow_settings(&effective_config::broker_settings(&image, self.config()));
        }
        if !Arc::ptr_eq(&old.acls, &image.acls) {
            self.access.follow(&image.acls);
        }
        let is_gone = |topic: &&Arc<TopicImage>| image.topic_by_id(topic.id).is_none();
        let gone: Vec<(&str, Uuid)> = old
            .topics
            .iter()
            .filter(is_gone)
            .map(|topic| (&*topic.name, topic.id))
            .collect();
        if !gone.is_empty() {
            self.groups.on_topics_deleted(self.services(), &gone);
        }
    }

    fn follow_settings(&self, settings: &effective_config::Settings) {
        self.security.follow(settings);
        let listeners = &self.config().listeners;
        self.connection_limits
            .follow(config::connection_limits_of(listeners, settings));
    }

    /// Returns a partition of a topic that the client may use: what handlers call in place of the
    /// storage.
    ///
    /// - `topic`: the one of the grant, looked up before.
    pub(crate) fn partition(
        &self,
        granted: GrantedTopic<'_>,
        topic: &TopicImage,
        index: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        assert_eq!(granted.name(), &*topic.name, "granted for another topic");
        self.storage.partition(topic.id, index)
    }

    /// As `partition`, by the name in the grant.
    pub(crate) fn partition_by_name(
        &self,
        granted: GrantedTopic<'_>,
        index: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        self.storage.partition_by_name(granted.name(), index)
    }

    /// Returns the partition that holds the offsets of a group; `None`: there is no such topic.
    pub(crate) fn offsets_partition(
        &self,
        granted: GrantedGroup<'_>,
    ) -> Option<Result<Arc<Partition>, ErrorCode>> {
        let index = self.groups.partition_of(&self.storage, granted)?;
        Some(self.storage.partition_by_name(OFFSETS_TOPIC, index))
    }

    /// Forgets what is kept only while a connection is open.
    pub fn disconnected(&self, connection: &ConnectionContext) {
        if connection.identity.instance_id().is_some() {
            self.telemetry.on_disconnect(connection.connection_id);
        }
    }

    /// The moment at which the shell must call `on_deadline`. `Executor::deadline_changed`
    /// announces an earlier one.
    pub fn next_deadline(&self) -> Option<Moment> {
        let groups = self.groups.next_deadline();
        groups.into_iter().chain(self.transactions.next_deadline()).min()
    }

    pub fn on_deadline(&self, now: Moment) {
        self.groups.on_deadline(self.services(), now);
        self.transactions.on_deadline(&self.storage, &self.groups, now);
        if self.transactions.take_lack_of_ids() {
            self.executor().control(Box::new(|node| {
                let now = node.clock().timestamp();
                // If this fails, the time-out comes again and asks again.
                let _ = node.with_controller(|controller| node.producer_ids.ensure(controller, now));
            }));
        }
    }

    /// Does housekeeping; call about once a second on a thread that may wait for the disk.
    pub fn maintain(&self) {
        if self.storage.partitions.take_lack_of_logs() {
            self.executor()
                .control(Box::new(|node| node.storage.open_missing()));
        }
        self.storage.maintain();
        if let Some(memory) = self.storage.disk.memory() {
            memory.tick();
        }
        self.groups.maintain(&self.storage);
        self.transactions.maintain(&self.storage);
        self.telemetry.expire(self.clock().moment());
        self.quotas.maintain();
    }
}

/// Puts memory of the log's own over `disk`, unless acknowledged records may stay in the page
/// cache.
fn log_disk(disk: Arc<dyn Disk>, config: &NodeConfig) -> Arc<dyn Disk> {
    match config.durability {
        Durability::PageCache => disk,
        Durability::Disk => {
            let storage = &config.storage;
            let memory = LogMemory::new(storage.log_memory_bytes, storage.cold_read_cache_bytes);
            Arc::new(OwnedDisk::new(disk, memory))
        }
    }
}
