//! The keys of the broker that matter on one machine, and our own.

use super::key::{Allowed, ConfigKey, Unit, Update, boolean, double, int, list, long, scaled, short, string};

const ONE_REPLICA: &str = "one machine has one replica of everything";
const OWN_CONTROLLER: &str = "the controller is inside this process";
const BY_DURABILITY: &str = "syncs follow ottla.durability";
const NO_TRANSACTIONS: &str = "transactions are not served yet";
const NO_TLS_OR_SASL: &str = "only PLAINTEXT is served so far";
const NO_CONSUMER_PROTOCOL: &str = "only the classic group protocol is served";
const ONE_PASS: &str =
    "requests run on the event loop of their connection; there is no second set of threads";

/// The keys of the broker, in the order of their names.
pub const BROKER_KEYS: &[ConfigKey] = &[
    list("advertised.listeners", "", "Where clients are told to connect, one entry per listener; without it, the listeners themselves.")
        .unset(),
    boolean("auto.create.topics.enable", "true", "Whether a client that asks for a topic that does not exist gets it created."),
    boolean("auto.leader.rebalance.enable", "true", "Whether leadership returns to preferred replicas by itself.")
        .no_effect(ONE_REPLICA),
    int("background.threads", "10", "How many threads do housekeeping.")
        .at_least(1)
        .cluster_wide()
        .no_effect("one maintenance thread does it"),
    int("broker.heartbeat.interval.ms", "2000", "How often a broker reports to the controller.").ms().no_effect(OWN_CONTROLLER),
    int("broker.id", "-1", "The older name of node.id; both may be given if they agree."),
    string("broker.rack", "", "The rack or zone that consumers are told.").unset(),
    int("broker.session.timeout.ms", "9000", "After how long without a report a broker is fenced.").ms().no_effect(OWN_CONTROLLER),
    int("compression.gzip.level", "-1", "How hard gzip tries in topics that say nothing themselves.")
        .allowed(Allowed::BetweenOrMinusOne(1, 9))
        .cluster_wide(),
    int("compression.lz4.level", "9", "How hard lz4 tries in topics that say nothing themselves.")
        .between(1, 17)
        .cluster_wide()
        .no_effect("our lz4 encoder has only the fast mode"),
    string("compression.type", "producer", "The codec of topics that name none; producer stores batches as they come.")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .cluster_wide()
        .costs("anything but producer makes the broker unfold and compress every batch that comes in another codec"),
    int("compression.zstd.level", "3", "How hard zstd tries in topics that say nothing themselves.")
        .between(-131_072, 22)
        .cluster_wide(),
    long("connections.max.idle.ms", "600000", "After how long without a request a connection is closed.").ms(),
    boolean("controlled.shutdown.enable", "true", "Whether leadership moves away before a broker stops.").no_effect(ONE_REPLICA),
    list("controller.listener.names", "", "The listener on which Apache Kafka's controller would be found after a takeover; it is not opened here.")
        .unset(),
    list("controller.quorum.bootstrap.servers", "", "Where controllers are found.").no_effect(OWN_CONTROLLER),
    int("controller.quorum.election.timeout.ms", "1000", "After how long without a leader a controller stands for election.")
        .ms()
        .at_least(0)
        .no_effect(OWN_CONTROLLER),
    int("controller.quorum.fetch.timeout.ms", "2000", "After how long without an answer a new leader is sought.")
        .ms()
        .at_least(0)
        .no_effect(OWN_CONTROLLER),
    list("controller.quorum.voters", "", "The controllers of a static quorum, as id@host:port.").no_effect(OWN_CONTROLLER),
    int("controller.quota.window.num", "11", "For how many windows changes of the metadata that a client does not use up are kept for it, under controller_mutation_rate.")
        .at_least(1),
    int("controller.quota.window.size.seconds", "1", "How long each of these windows is.").unit(Unit::Seconds).at_least(1),
    int("default.replication.factor", "1", "How many replicas a topic gets that does not say.").between(1, 32_767),
    boolean("delete.topic.enable", "true", "Whether topics can be deleted."),
    int("fetch.max.bytes", "57671680", "The most that one Fetch response holds, beyond its first batch.")
        .bytes()
        .at_least(1024)
        .costs("memory: this for every consumer that reads at once from where the page cache is cold"),
    long("follower.replication.throttled.rate", "9223372036854775807", "How fast replicas that are throttled may follow; tools of reassignments set it.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect(ONE_REPLICA),
    int("group.consumer.assignment.interval.ms", "1000", "The shortest time between two assignments of a consumer group.")
        .ms()
        .at_least(0)
        .cluster_wide()
        .no_effect(NO_CONSUMER_PROTOCOL),
    list("group.consumer.assignors", "uniform,range", "How the broker assigns partitions to consumer groups.")
        .no_effect(NO_CONSUMER_PROTOCOL),
    int("group.consumer.heartbeat.interval.ms", "5000", "How often members of a consumer group report.")
        .ms()
        .at_least(1)
        .no_effect(NO_CONSUMER_PROTOCOL),
    int("group.consumer.max.size", "2147483647", "How many members a consumer group may have.")
        .at_least(1)
        .no_effect(NO_CONSUMER_PROTOCOL),
    string("group.consumer.migration.policy", "bidirectional", "Whether groups may change between the two protocols.")
        .no_effect(NO_CONSUMER_PROTOCOL),
    int("group.consumer.session.timeout.ms", "45000", "After how long without a report a member is dropped.")
        .ms()
        .at_least(1)
        .no_effect(NO_CONSUMER_PROTOCOL),
    int("group.coordinator.append.linger.ms", "-1", "How long coordinator records wait for company; -1 leaves it to the load.")
        .ms()
        .at_least(-1)
        .no_effect("group commit batches them without waiting"),
    list("group.coordinator.rebalance.protocols", "classic,consumer,streams", "Which group protocols are served.")
        .one_of(&["consumer", "classic", "share", "streams"])
        .no_effect(NO_CONSUMER_PROTOCOL),
    int("group.coordinator.threads", "4", "How many threads run group coordinators.").at_least(1).no_effect(ONE_PASS),
    int("group.initial.rebalance.delay.ms", "3000", "How long an empty group waits for more members before its first rebalance.")
        .ms()
        .costs("every start of a lone consumer takes this long; every member that comes later costs a rebalance"),
    int("group.max.session.timeout.ms", "1800000", "The longest session timeout that a consumer may ask for.").ms(),
    int("group.max.size", "2147483647", "How many members a group may have.").at_least(1),
    int("group.min.session.timeout.ms", "6000", "The shortest session timeout that a consumer may ask for.").ms(),
    string("inter.broker.listener.name", "", "The listener that is registered for brokers; the first one if not set.").unset(),
    long("leader.imbalance.check.interval.seconds", "300", "How often preferred leadership is checked.")
        .unit(Unit::Seconds)
        .at_least(1)
        .no_effect(ONE_REPLICA),
    long("leader.replication.throttled.rate", "9223372036854775807", "How fast replicas that are throttled may be sent; tools of reassignments set it.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect(ONE_REPLICA),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol a listener's name stands for.",
    )
    .update(Update::PerBroker),
    list("listeners", "PLAINTEXT://127.0.0.1:9092", "Where clients connect, as NAME://host:port; port 0 takes a free one.")
        .update(Update::PerBroker)
        .costs("a listener beyond 127.0.0.1 is open to the network, without authentication"),
    long("log.cleaner.backoff.ms", "15000", "How long the cleaner rests when no log needs compaction.").ms().at_least(0).cluster_wide(),
    long("log.cleaner.dedupe.buffer.size", "134217728", "How much memory the cleaner has for the keys of one pass.")
        .bytes()
        .cluster_wide()
        .costs("memory, while a log is compacted: up to this"),
    long("log.cleaner.delete.retention.ms", "86400000", "How long compaction keeps the record that deletes a key.").ms().at_least(0).cluster_wide(),
    boolean("log.cleaner.enable", "true", "Whether topics with cleanup.policy=compact are compacted.")
        .costs("without it, compacted topics, the group offsets among them, grow for ever"),
    double("log.cleaner.io.buffer.load.factor", "0.9", "How full the cleaner's table of keys may become.")
        .cluster_wide()
        .no_effect("our table of keys grows as it fills"),
    int("log.cleaner.io.buffer.size", "524288", "How much the cleaner reads at once.")
        .bytes()
        .at_least(0)
        .cluster_wide()
        .no_effect("its reads follow the batches"),
    double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "How fast the cleaner may read and write.")
        .unit(Unit::BytesPerSecond)
        .cluster_wide()
        .no_effect("the cleaner is not throttled yet"),
    long("log.cleaner.max.compaction.lag.ms", "9223372036854775807", "The longest that a record may wait for compaction.").ms().at_least(1).cluster_wide(),
    double("log.cleaner.min.cleanable.ratio", "0.5", "How much of a log must be new before it is compacted again.")
        .allowed(Allowed::Ratio)
        .cluster_wide(),
    long("log.cleaner.min.compaction.lag.ms", "0", "The shortest time that a record stays out of compaction.").ms().at_least(0).cluster_wide(),
    int("log.cleaner.threads", "1", "How many threads compact.").at_least(0).cluster_wide().no_effect("one maintenance thread does it"),
    list("log.cleanup.policy", "delete", "What happens to old data in topics that say nothing themselves.")
        .one_of(&["compact", "delete"])
        .cluster_wide(),
    list("log.dir", "./ottla-data", "Where data lies if log.dirs is not set."),
    long("log.dir.failure.timeout.ms", "30000", "How long a failed directory may go unreported.").ms().at_least(1).no_effect(OWN_CONTROLLER),
    list("log.dirs", "", "The directories in which data lies; log.dir if not set.").unset(),
    long("log.flush.interval.messages", "9223372036854775807", "After how many records a log is synced.")
        .unit(Unit::Records)
        .at_least(1)
        .cluster_wide()
        .no_effect(BY_DURABILITY),
    long("log.flush.interval.ms", "", "After how much time a log is synced.").unset().ms().cluster_wide().no_effect(BY_DURABILITY),
    int("log.flush.offset.checkpoint.interval.ms", "60000", "How often it is noted up to where logs need no recovery.")
        .ms()
        .at_least(0)
        .costs("after a crash, what was written since the last note is scanned again"),
    long("log.flush.scheduler.interval.ms", "9223372036854775807", "How often it is checked whether a log should be synced.").ms().no_effect(BY_DURABILITY),
    int("log.flush.start.offset.checkpoint.interval.ms", "60000", "How often it is noted where logs begin.")
        .ms()
        .at_least(0)
        .no_effect("it is noted when it moves, and together with the recovery points"),
    int("log.index.interval.bytes", "4096", "How many bytes of log lie between two entries of its indexes.").bytes().at_least(0).cluster_wide(),
    int("log.index.size.max.bytes", "10485760", "The size at which an index is full and its segment is closed.").bytes().at_least(4).cluster_wide(),
    long("log.local.retention.bytes", "-2", "How much data stays local once it is in remote storage.").bytes().at_least(-2).cluster_wide().no_effect("there is no tiered storage"),
    long("log.local.retention.ms", "-2", "How long data stays local once it is in remote storage.").ms().at_least(-2).cluster_wide().no_effect("there is no tiered storage"),
    long("log.message.timestamp.after.max.ms", "3600000", "How far a record's timestamp may lie after the broker's clock.").ms().at_least(0).cluster_wide(),
    long("log.message.timestamp.before.max.ms", "9223372036854775807", "How far a record's timestamp may lie before the broker's clock.").ms().at_least(0).cluster_wide(),
    string("log.message.timestamp.type", "CreateTime", "Whether a record's time is the producer's or that of its arrival.")
        .one_of(&["CreateTime", "LogAppendTime"])
        .cluster_wide(),
    boolean("log.preallocate", "false", "Whether a new segment's file is allocated at once.").cluster_wide().no_effect("segments grow as they are written"),
    long("log.retention.bytes", "-1", "How large a partition may grow before its oldest segments are deleted; -1 is without limit.").bytes().cluster_wide(),
    long("log.retention.check.interval.ms", "300000", "How often it is checked whether segments may be deleted.").ms().at_least(1),
    int("log.retention.hours", "168", "How long closed segments are kept, if neither minutes nor milliseconds are given.").unit(Unit::Hours),
    int("log.retention.minutes", "", "How long closed segments are kept, if milliseconds are not given.").unset().unit(Unit::Minutes),
    long("log.retention.ms", "", "How long closed segments are kept; -1 is for ever.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.retention.minutes", 60_000), scaled("log.retention.hours", 3_600_000)]),
    int("log.roll.hours", "168", "The age at which a segment is closed, if milliseconds are not given.").unit(Unit::Hours).at_least(1),
    int("log.roll.jitter.hours", "0", "How much is at most taken off that age by chance, if milliseconds are not given.").unit(Unit::Hours).at_least(0),
    long("log.roll.jitter.ms", "", "How much is at most taken off that age by chance.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.roll.jitter.hours", 3_600_000)]),
    long("log.roll.ms", "", "The age at which a segment is closed even if it is not full.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.roll.hours", 3_600_000)]),
    int("log.segment.bytes", "1073741824", "The size at which a segment is closed and the next one begins.").bytes().at_least(1 << 20).cluster_wide(),
    long("log.segment.delete.delay.ms", "60000", "How long a deleted segment's files stay on the disk.").ms().at_least(0).cluster_wide(),
    int("max.connection.creation.rate", "2147483647", "How many connections a second are accepted.").at_least(0).cluster_wide()
        .no_effect("addresses have rates, as quotas: connection_creation_rate"),
    int("max.connections", "2147483647", "How many connections are open at once.").at_least(0).cluster_wide()
        .costs("each holds a socket and a few kilobytes"),
    int("max.connections.per.ip", "2147483647", "How many connections one address has open at once.").at_least(0).cluster_wide(),
    string("max.connections.per.ip.overrides", "", "Addresses with another limit, as address:count.")
        .cluster_wide(),
    int("max.incremental.fetch.session.cache.slots", "1000", "How many fetch sessions are remembered.")
        .at_least(0)
        .costs("memory: a few hundred bytes per partition of each session"),
    int("max.request.partition.size.limit", "2000", "How many partitions one DescribeTopicPartitions answer lists.")
        .at_least(1)
        .no_effect("it lists 2,000 at most"),
    int("message.max.bytes", "1048588", "The largest batch in topics that say nothing themselves.").bytes().at_least(0).cluster_wide()
        .costs("a consumer needs memory for at least one such batch per partition"),
    string("metadata.log.dir", "", "Where the metadata log lies; the first of log.dirs if not set.").unset(),
    long("metadata.log.max.record.bytes.between.snapshots", "20971520", "How much the metadata log grows before it is summed up.").bytes().at_least(1),
    long("metadata.log.max.snapshot.interval.ms", "3600000", "After how much time the metadata log is summed up.").ms().at_least(0)
        .no_effect("it grows only when something changes, so its size alone decides"),
    int("metadata.log.segment.bytes", "1073741824", "The size at which a segment of the metadata log is closed.").bytes().at_least(8 << 20),
    long("metadata.log.segment.ms", "604800000", "The age at which a segment of the metadata log is closed.").ms()
        .no_effect("its size alone decides"),
    int("metadata.max.idle.interval.ms", "500", "How often an idle controller writes to the metadata log.").ms().at_least(0)
        .no_effect("nobody follows the log, so an idle broker writes nothing"),
    long("metadata.max.retention.bytes", "104857600", "How much of the metadata log is kept behind its snapshots.").bytes()
        .no_effect("what a snapshot covers is deleted"),
    long("metadata.max.retention.ms", "604800000", "How long the metadata log is kept behind its snapshots.").ms()
        .no_effect("what a snapshot covers is deleted"),
    int("min.insync.replicas", "1", "How many replicas must be in sync for acks=all to be accepted.").at_least(1).cluster_wide()
        .no_effect("one machine has one replica, which is always in sync"),
    int("node.id", "1", "This node's number in the cluster.").at_least(0)
        .costs("it is written into the data directory and cannot change afterwards"),
    int("num.io.threads", "8", "How many threads handle requests.").at_least(1).cluster_wide().no_effect(ONE_PASS),
    int("num.network.threads", "3", "How many event loops read, handle and answer requests; one per processor if not set.")
        .at_least(1)
        .cluster_wide()
        .costs("a thread each; more than there are processors gain nothing"),
    int("num.partitions", "1", "How many partitions a topic gets that does not say.").at_least(1),
    int("num.recovery.threads.per.data.dir", "2", "How many threads open logs at a start, check them after a crash and close them at a stop; if not set, one per processor.")
        .at_least(1)
        .cluster_wide(),
    int("num.replica.fetchers", "1", "How many threads follow other brokers.").at_least(1).cluster_wide().no_effect(ONE_REPLICA),
    int("offset.metadata.max.bytes", "4096", "How much text a consumer may store with an offset.").bytes(),
    int("offsets.commit.timeout.ms", "5000", "How long an offset commit may wait until it is stored.").ms().at_least(1),
    int("offsets.load.buffer.size", "5242880", "How much is read at once when groups are loaded.").bytes().at_least(1)
        .no_effect("its reads follow the batches"),
    long("offsets.retention.check.interval.ms", "600000", "How often it is checked whether offsets have expired.").ms().at_least(1),
    int("offsets.retention.minutes", "10080", "How long a group's offsets are kept after its last member left.").unit(Unit::Minutes).at_least(1),
    int("offsets.topic.compression.codec", "0", "The codec of group records, by its number.").between(0, 4),
    int("offsets.topic.num.partitions", "50", "How many partitions the topic of the groups has; it cannot change once it exists.").at_least(1),
    short("offsets.topic.replication.factor", "3", "How many replicas the topic of the groups has.").at_least(1)
        .no_effect("one machine has one replica of everything"),
    int("offsets.topic.segment.bytes", "104857600", "The segment size of the topic of the groups.").bytes().at_least(1)
        .costs("a start reads these segments; compaction keeps them short"),
    list("ottla.admin.hosts", "", "Under which names the admin address may be asked beside localhost, addresses, its own host and those of the listeners; under others it answers 421, because a web page can give itself any name.")
        .unset(),
    string("ottla.admin.listener", "127.0.0.1:9644", "Where /metrics and /debug are served over HTTP, as host:port; empty switches it off.")
        .costs("whoever reaches it can read names of topics, groups and clients"),
    long("ottla.cold.read.cache.bytes", "134217728", "How much of the page cache may hold what was read from the disk for consumers that lag behind; beyond it the oldest leaves again, and what was written last stays.")
        .bytes()
        .at_least(1_048_576)
        .costs("with less than a megabyte for each consumer that catches up at once, some of it is read twice"),
    long("ottla.disk.reserve.bytes", "67108864", "How much of the disk is left free: with less, writes are refused and reads go on.")
        .bytes()
        .at_least(0),
    string("ottla.durability", "disk", "What acks=all and consumers wait for: disk is until the data would survive a power cut, page-cache is Apache Kafka's way.")
        .one_of(&["disk", "page-cache"])
        .costs("disk adds one sync of the device to each acks=all, shared by all that wait; page-cache loses what was acknowledged last in a power cut"),
    boolean("ottla.quota.dry.run", "false", "Whether client quotas only count who would have been held back, and hold nobody back.")
        .cluster_wide(),
    long("ottla.slow.request.ms", "500", "How long a request takes before it gets a line in the log with the time of each stage; -1 is never.")
        .ms()
        .at_least(-1),
    int("ottla.telemetry.default.interval.ms", "10000", "How often clients push the metrics that the doctor reads when no client-metrics subscription matches them; 0 is never, else at least 100.")
        .ms()
        .between(0, 3_600_000)
        .costs("for each client and push some kilobytes of compressed metrics, and a fraction of a millisecond of a thread that does nothing else"),
    list("ottla.tenant.key", "user,client-id,address", "What names a tenant, in order of preference: the first that a client has. An anonymous user is none; who has nothing of the list shares one tenant with all like it.")
        .one_of(&["user", "client-id", "address"]),
    int("ottla.tenant.known.max", "10000", "How many tenants are told apart; beyond it the one that was connected longest ago is forgotten, and while all are connected further ones share one tenant.")
        .between(1, 100_000)
        .costs("some 1.5 KiB for each tenant that came"),
    int("ottla.tenant.metrics.max", "20", "How many tenants have metrics of their own at /metrics, the heaviest; the rest is summed up.")
        .between(0, 1_000)
        .costs("a dozen time series each"),
    int("ottla.tenant.new.per.minute", "100", "How many new tenants one address may bring in a minute; further ones share one tenant until the next minute.")
        .at_least(1),
    list("process.roles", "broker,controller", "The roles of this process.").one_of(&["broker", "controller"])
        .no_effect("it is always both"),
    int("producer.id.expiration.check.interval.ms", "600000", "How often it is checked whether producers can be forgotten.").ms().at_least(1),
    int("producer.id.expiration.ms", "86400000", "How long a partition remembers an idempotent producer that is silent.").ms().at_least(1).cluster_wide()
        .costs("memory: some hundred bytes for each producer and partition"),
    long("queued.max.request.bytes", "-1", "How much memory requests of all connections together may take that have not arrived whole or are not served, and answers that were not taken; beyond it connections wait, tenants in turn, and are not read. -1 is an eighth of the machine's memory, or of its control group's, and up to a quarter where two of the largest requests need it; a request may have half.")
        .bytes()
        .costs("memory, up to this"),
    int("queued.max.requests", "500", "How many requests wait for a thread at most.").at_least(1).no_effect(ONE_PASS),
    int("quota.window.num", "11", "How many samples quotas are averaged over.")
        .at_least(1)
        .no_effect("a rate is kept at every moment and not averaged over samples"),
    int("quota.window.size.seconds", "1", "What a client has not used of its quota within this time it may use at once.")
        .unit(Unit::Seconds)
        .at_least(1)
        .costs("a client may send so many seconds' worth in one burst before its quota holds"),
    long("replica.alter.log.dirs.io.max.bytes.per.second", "9223372036854775807", "How fast replicas may move between log directories.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect("there is one log directory"),
    long("replica.high.watermark.checkpoint.interval.ms", "5000", "How often it is noted up to where consumers may read.")
        .ms()
        .no_effect("it is noted together with the recovery points"),
    long("replica.lag.time.max.ms", "30000", "How long a follower may lag before it is out of sync.").ms().no_effect(ONE_REPLICA),
    int("request.timeout.ms", "30000", "How long a broker waits for another's answer.").ms().no_effect(ONE_REPLICA),
    list("sasl.enabled.mechanisms", "GSSAPI", "How clients may authenticate.").update(Update::PerBroker).no_effect(NO_TLS_OR_SASL),
    string("security.inter.broker.protocol", "PLAINTEXT", "How brokers talk to each other.")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
        .no_effect(ONE_REPLICA),
    int("socket.listen.backlog.size", "50", "How many connections wait to be accepted; if not set, as many as the system allows.")
        .at_least(1),
    int("socket.receive.buffer.bytes", "102400", "The receive buffer of a connection's socket; if not set, or -1, the system tunes it.")
        .bytes()
        .at_least(-1)
        .costs("kernel memory: this for each connection; too little caps a distant producer at buffer / round trip"),
    int("socket.request.max.bytes", "104857600", "The largest request.").bytes().at_least(1)
        .costs("memory: what has arrived of a request, up to this for each connection"),
    int("socket.send.buffer.bytes", "102400", "The send buffer of a connection's socket; if not set, or -1, the system tunes it.")
        .bytes()
        .at_least(-1)
        .costs("kernel memory: this for each connection; too little caps a distant consumer at buffer / round trip"),
    int("telemetry.max.bytes", "1048576", "The largest push of client metrics, as it comes; it may unfold to eight times as much.").bytes().at_least(1)
        .costs("memory: what a push unfolds to, once for the broker"),
    int("transaction.max.timeout.ms", "900000", "The longest timeout that a transaction may ask for.").ms().at_least(1).no_effect(NO_TRANSACTIONS),
    boolean("transaction.partition.verification.enable", "true", "Whether a partition asks the coordinator before it takes a transaction's first batch.")
        .cluster_wide()
        .no_effect(NO_TRANSACTIONS),
    int("transaction.state.log.min.isr", "2", "How many replicas of the topic of the transactions must be in sync.").at_least(1).no_effect(NO_TRANSACTIONS),
    int("transaction.state.log.num.partitions", "50", "How many partitions the topic of the transactions has.").at_least(1).no_effect(NO_TRANSACTIONS),
    short("transaction.state.log.replication.factor", "3", "How many replicas the topic of the transactions has.").at_least(1).no_effect(NO_TRANSACTIONS),
    int("transaction.state.log.segment.bytes", "104857600", "The segment size of the topic of the transactions.").bytes().at_least(1).no_effect(NO_TRANSACTIONS),
    int("transactional.id.expiration.ms", "604800000", "How long a transactional id is remembered after its last use.").ms().at_least(1).no_effect(NO_TRANSACTIONS),
    boolean("unclean.leader.election.enable", "false", "Whether a replica that missed records may become leader.").cluster_wide()
        .no_effect("one machine has one replica, which leads"),
];
