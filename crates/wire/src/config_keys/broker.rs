//! The broker keys that matter on one machine, and Ottla's own.

use super::key::{
    Allowed, ConfigKey, Unit, Update, boolean, class, double, int, list, long, password, scaled, short,
    string,
};

const ONE_REPLICA: &str = "one machine has one replica of everything";
const OWN_CONTROLLER: &str = "Ottla's controller runs inside this process";
const BY_DURABILITY: &str = "syncs follow ottla.durability";
const JAVA_CLASS: &str = "it names a part of Java";
const NOT_TIERED: &str = "there is no tiered storage";
const NO_KERBEROS: &str = "Kerberos (GSSAPI) is not served";
const NO_OWN_LOGIN: &str = "the broker logs in at no other broker";
const ONE_PASS: &str = "requests run on the event loop of their connection; there is no second thread pool";

/// The keys of the broker, in the order of their names.
pub const BROKER_KEYS: &[ConfigKey] = &[
    list("advertised.listeners", "", "The addresses that the broker returns to clients in metadata, one per listener; if not set, those of listeners. A listener that is left out returns its own, or the machine's name.")
        .unset(),
    boolean("allow.everyone.if.no.acl.found", "false", "Whether everyone may use a resource without any ACL; otherwise only super users may.")
        .costs("with true a new topic is open to everyone until its first ACL"),
    string("authorizer.class.name", "", "The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer, which decides by the ACLs of the cluster; empty: everyone may do everything."),
    boolean("auto.create.topics.enable", "true", "Whether a metadata request for a topic that does not exist creates it."),
    boolean("auto.leader.rebalance.enable", "true", "Whether leadership returns to the preferred replicas automatically.")
        .no_effect(ONE_REPLICA),
    int("background.threads", "10", "Number of threads for background work.")
        .at_least(1)
        .cluster_wide()
        .no_effect("there is one maintenance thread"),
    int("broker.heartbeat.interval.ms", "2000", "The interval of a broker's heartbeats to the controller.").ms().no_effect(OWN_CONTROLLER),
    int("broker.id", "-1", "The older name of node.id; if both are set they must be equal."),
    string("broker.rack", "", "The broker's rack or availability zone, returned to clients in metadata.").unset(),
    int("broker.session.timeout.ms", "9000", "The time without a heartbeat after which a broker is fenced.").ms().no_effect(OWN_CONTROLLER),
    int("compression.gzip.level", "-1", "The gzip compression level of topics without their own; -1 is gzip's default.")
        .allowed(Allowed::BetweenOrMinusOne(1, 9))
        .cluster_wide(),
    int("compression.lz4.level", "9", "The lz4 compression level of topics without their own.")
        .between(1, 17)
        .cluster_wide()
        .no_effect("Ottla's lz4 encoder has only the fast mode"),
    string("compression.type", "producer", "The compression codec of topics without their own; producer keeps each batch's codec.")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .cluster_wide()
        .costs("with any value but producer the broker decompresses and recompresses every batch that has another codec"),
    int("compression.zstd.level", "3", "The zstd compression level of topics without their own.")
        .between(-131_072, 22)
        .cluster_wide(),
    int("connection.failed.authentication.delay.ms", "100", "How long the answer to a failed authentication is delayed, and with it the end of the connection, which is not read meanwhile.")
        .ms()
        .at_least(0)
        .costs("with 0 a client can try as many passwords as the network carries"),
    long("connections.max.idle.ms", "600000", "An idle connection is closed after this time without a request.").ms(),
    long("connections.max.reauth.ms", "0", "How long a SASL session lasts: a client that does not authenticate again in time is disconnected at its next request (KIP-368); 0 sets no limit. A listener can have its own value, and one for each mechanism.")
        .ms()
        .costs("each client authenticates this often; old clients cannot, and connect again instead"),
    boolean("controlled.shutdown.enable", "true", "Whether a broker moves its leadership away before it stops.").no_effect(ONE_REPLICA),
    list("controller.listener.names", "", "The name of the controller's listener, for Apache Kafka after it takes over the directory; Ottla does not open it.")
        .unset(),
    list("controller.quorum.bootstrap.servers", "", "The addresses of controllers, for discovery.").no_effect(OWN_CONTROLLER),
    int("controller.quorum.election.timeout.ms", "1000", "The time without a leader after which a controller starts an election.")
        .ms()
        .at_least(0)
        .no_effect(OWN_CONTROLLER),
    int("controller.quorum.fetch.timeout.ms", "2000", "The time without an answer from the leader after which a new one is elected.")
        .ms()
        .at_least(0)
        .no_effect(OWN_CONTROLLER),
    list("controller.quorum.voters", "", "The controllers of a static quorum, as id@host:port.").no_effect(OWN_CONTROLLER),
    int("controller.quota.window.num", "11", "The burst of the quota controller_mutation_rate: the number of windows of unused quota that a client may save up.")
        .at_least(1),
    int("controller.quota.window.size.seconds", "1", "The length of each window of controller.quota.window.num.").unit(Unit::Seconds).at_least(1),
    int("default.replication.factor", "1", "The replication factor of topics created without one.").between(1, 32_767),
    boolean("delete.topic.enable", "true", "Whether topics can be deleted."),
    int("fetch.max.bytes", "57671680", "The maximum size of a Fetch response; its first batch is returned even if it is larger.")
        .bytes()
        .at_least(1024)
        .costs("memory: this for each consumer that reads data outside the page cache at the same time"),
    boolean("follower.fetch.last.tiered.offset.enable", "false", "Whether a new replica begins with what is not in remote storage.").cluster_wide().no_effect(NOT_TIERED),
    long("follower.replication.throttled.rate", "9223372036854775807", "The rate limit of throttled followers; set by Kafka's reassignment tools.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect(ONE_REPLICA),
    int("group.consumer.assignment.interval.ms", "1000", "The minimum time between two assignments of a consumer group.")
        .ms()
        .at_least(0)
        .cluster_wide(),
    list("group.consumer.assignors", "uniform,range", "The server-side assignors of consumer groups: uniform, range. The first is used when members name none."),
    int("group.consumer.heartbeat.interval.ms", "5000", "The heartbeat interval of members of a consumer group.")
        .ms()
        .at_least(1),
    int("group.consumer.max.assignment.interval.ms", "15000", "The maximum of consumer.assignment.interval.ms of a group.").ms().at_least(0),
    int("group.consumer.max.heartbeat.interval.ms", "15000", "The maximum of consumer.heartbeat.interval.ms of a group.").ms().at_least(1),
    int("group.consumer.max.session.timeout.ms", "60000", "The maximum of consumer.session.timeout.ms of a group.").ms().at_least(1),
    int("group.consumer.max.size", "2147483647", "The maximum number of members of a consumer group.")
        .at_least(1),
    string("group.consumer.migration.policy", "bidirectional", "Which way a group with members may change its protocol: from classic to consumer (upgrade), back (downgrade), both or none.")
        .allowed(Allowed::OneOfIgnoringCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"])),
    int("group.consumer.min.assignment.interval.ms", "0", "The minimum of consumer.assignment.interval.ms of a group.").ms().at_least(0),
    int("group.consumer.min.heartbeat.interval.ms", "5000", "The minimum of consumer.heartbeat.interval.ms of a group.").ms().at_least(1),
    int("group.consumer.min.session.timeout.ms", "45000", "The minimum of consumer.session.timeout.ms of a group, and of group.consumer.session.timeout.ms.").ms().at_least(1),
    int("group.consumer.regex.refresh.interval.ms", "600000", "How often the regular expressions of consumer groups are resolved again although no topic has changed.")
        .ms()
        .at_least(10_000),
    int("group.consumer.session.timeout.ms", "45000", "The session timeout: a member without a heartbeat for this long is removed.")
        .ms()
        .at_least(1),
    int("group.coordinator.append.linger.ms", "-1", "How long coordinator records wait to be batched; -1 adapts to the load.")
        .ms()
        .at_least(-1)
        .no_effect("group commit batches records without a delay"),
    int("group.coordinator.cached.buffer.max.bytes", "1048588", "The largest buffer that a coordinator keeps for its next write.").bytes().at_least(524_288).cluster_wide().no_effect("buffers are not kept"),
    list("group.coordinator.rebalance.protocols", "classic,consumer,streams", "The group protocols that are served.")
        .one_of(&["consumer", "classic", "share", "streams"])
        .costs("share and streams groups are not implemented, and classic ones are always served"),
    int("group.coordinator.threads", "4", "Number of threads that run group coordinators.").at_least(1).no_effect(ONE_PASS),
    int("group.initial.rebalance.delay.ms", "3000", "How long an empty group waits for more members before its first rebalance.")
        .ms()
        .costs("every start of a single consumer takes this long; every member that joins later causes another rebalance"),
    int("group.max.session.timeout.ms", "1800000", "The maximum session timeout of a group member.").ms(),
    int("group.max.size", "2147483647", "The maximum number of members of a group.").at_least(1),
    int("group.min.session.timeout.ms", "6000", "The minimum session timeout of a group member.").ms(),
    int("group.share.assignment.interval.ms", "1000", "The least time between two assignments of a share group.").ms().at_least(0).cluster_wide().no_effect("share groups are not implemented"),
    int("group.streams.assignment.interval.ms", "1000", "The least time between two assignments of a streams group.").ms().at_least(0).cluster_wide().no_effect("streams groups are not implemented"),
    string("inter.broker.listener.name", "", "The listener registered for traffic between brokers; if not set, the one that security.inter.broker.protocol names, else the first one.").unset(),
    long("leader.imbalance.check.interval.seconds", "300", "The interval at which the preferred leaders are checked.")
        .unit(Unit::Seconds)
        .at_least(1)
        .no_effect(ONE_REPLICA),
    long("leader.replication.throttled.rate", "9223372036854775807", "The rate limit of leaders that serve throttled followers; set by Kafka's reassignment tools.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect(ONE_REPLICA),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name.",
    )
    .update(Update::PerBroker),
    list("listeners", "PLAINTEXT://127.0.0.1:9092", "The addresses on which the broker listens, as NAME://host:port; port 0 picks a free port.")
        .update(Update::PerBroker)
        .costs("a listener on any address but 127.0.0.1 is open to the network; only a listener with SASL asks clients who they are"),
    long("log.cleaner.backoff.ms", "15000", "How long the cleaner sleeps when no log needs compaction.").ms().at_least(0).cluster_wide(),
    long("log.cleaner.dedupe.buffer.size", "134217728", "The cleaner's memory for the keys of one pass.")
        .bytes()
        .cluster_wide()
        .costs("memory, up to this while a log is compacted"),
    long("log.cleaner.delete.retention.ms", "86400000", "How long compaction keeps a tombstone (a record with a null value).").ms().at_least(0).cluster_wide(),
    boolean("log.cleaner.enable", "true", "Whether topics with cleanup.policy=compact are compacted.")
        .costs("if false, compacted topics, including the group offsets, grow without limit"),
    double("log.cleaner.io.buffer.load.factor", "0.9", "The maximum load factor of the cleaner's key table.")
        .cluster_wide()
        .no_effect("Ottla's key table grows as needed"),
    int("log.cleaner.io.buffer.size", "524288", "The size of the cleaner's reads.")
        .bytes()
        .at_least(0)
        .cluster_wide()
        .no_effect("reads follow batch sizes"),
    double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "The rate limit of the cleaner's reads and writes.")
        .unit(Unit::BytesPerSecond)
        .cluster_wide()
        .no_effect("the cleaner is not throttled yet"),
    long("log.cleaner.max.compaction.lag.ms", "9223372036854775807", "The maximum time until a record is compacted.").ms().at_least(1).cluster_wide(),
    double("log.cleaner.min.cleanable.ratio", "0.5", "The minimum share of a log that must be uncompacted before it is compacted again.")
        .allowed(Allowed::Within(0.0, 1.0))
        .cluster_wide(),
    long("log.cleaner.min.compaction.lag.ms", "0", "The minimum time before a record may be compacted.").ms().at_least(0).cluster_wide(),
    int("log.cleaner.threads", "1", "Number of compaction threads.").at_least(0).cluster_wide().no_effect("there is one maintenance thread"),
    list("log.cleanup.policy", "delete", "The cleanup policy of topics without their own.")
        .one_of(&["compact", "delete"])
        .cluster_wide(),
    list("log.dir", "./ottla-data", "The data directory, used if log.dirs is not set."),
    long("log.dir.failure.timeout.ms", "30000", "How long a broker may fail to report a failed log directory before it stops.").ms().at_least(1).no_effect(OWN_CONTROLLER),
    list("log.dirs", "", "The data directories; if not set, log.dir.").unset(),
    long("log.flush.interval.messages", "9223372036854775807", "The number of records after which a log is synced.")
        .unit(Unit::Records)
        .at_least(1)
        .cluster_wide()
        .no_effect(BY_DURABILITY),
    long("log.flush.interval.ms", "", "The time after which a log is synced.").unset().ms().cluster_wide().no_effect(BY_DURABILITY),
    int("log.flush.offset.checkpoint.interval.ms", "60000", "The interval at which recovery points are written to the checkpoint file.")
        .ms()
        .at_least(0)
        .costs("after a crash, recovery scans everything written since the last checkpoint"),
    long("log.flush.scheduler.interval.ms", "9223372036854775807", "The interval of the check whether a log should be synced.").ms().no_effect(BY_DURABILITY),
    int("log.flush.start.offset.checkpoint.interval.ms", "60000", "The interval at which log start offsets are written to the checkpoint file.")
        .ms()
        .at_least(0)
        .no_effect("log start offsets are written when they change, and together with the recovery points"),
    int("log.index.interval.bytes", "4096", "The number of bytes of log between two index entries.").bytes().at_least(0).cluster_wide(),
    int("log.index.size.max.bytes", "10485760", "The maximum size of an index; when it is full its segment is closed.").bytes().at_least(4).cluster_wide(),
    long("log.local.retention.bytes", "-2", "How much data is kept locally after it was copied to remote storage.").bytes().at_least(-2).cluster_wide().no_effect("tiered storage is not implemented"),
    long("log.local.retention.ms", "-2", "How long data is kept locally after it was copied to remote storage.").ms().at_least(-2).cluster_wide().no_effect("tiered storage is not implemented"),
    long("log.message.timestamp.after.max.ms", "3600000", "How far a record's timestamp may be ahead of the broker's clock.").ms().at_least(0).cluster_wide(),
    long("log.message.timestamp.before.max.ms", "9223372036854775807", "How far a record's timestamp may be behind the broker's clock.").ms().at_least(0).cluster_wide(),
    string("log.message.timestamp.type", "CreateTime", "Whether a record's timestamp is set by the producer or by the broker when it is appended.")
        .one_of(&["CreateTime", "LogAppendTime"])
        .cluster_wide(),
    boolean("log.preallocate", "false", "Whether a new segment's file is preallocated at its full size.").cluster_wide().no_effect("segments grow as they are written"),
    long("log.retention.bytes", "-1", "The size of a partition above which its oldest segments are deleted; -1 is no limit.").bytes().cluster_wide(),
    long("log.retention.check.interval.ms", "300000", "The interval of the check whether segments can be deleted.").ms().at_least(1),
    int("log.retention.hours", "168", "How long closed segments are kept, if neither log.retention.ms nor log.retention.minutes is set.").unit(Unit::Hours),
    int("log.retention.minutes", "", "How long closed segments are kept, if log.retention.ms is not set.").unset().unit(Unit::Minutes),
    long("log.retention.ms", "", "How long closed segments are kept; -1 is no limit.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.retention.minutes", 60_000), scaled("log.retention.hours", 3_600_000)]),
    int("log.roll.hours", "168", "The age at which a segment is closed, if log.roll.ms is not set.").unit(Unit::Hours).at_least(1),
    int("log.roll.jitter.hours", "0", "The maximum random time subtracted from that age, if log.roll.jitter.ms is not set.").unit(Unit::Hours).at_least(0),
    long("log.roll.jitter.ms", "", "The maximum random time subtracted from log.roll.ms, so that segments are not all closed together.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.roll.jitter.hours", 3_600_000)]),
    long("log.roll.ms", "", "The age at which a segment is closed even if it is not full.")
        .unset()
        .ms()
        .cluster_wide()
        .from(&[scaled("log.roll.hours", 3_600_000)]),
    int("log.segment.bytes", "1073741824", "The size at which a segment is closed and a new one is started.").bytes().at_least(1 << 20).cluster_wide(),
    long("log.segment.delete.delay.ms", "60000", "How long a deleted segment's files stay on disk.").ms().at_least(0).cluster_wide(),
    int("max.connection.creation.rate", "2147483647", "The maximum number of new connections per second; further ones wait in the kernel's queue. A listener can have its own beside it.")
        .at_least(0)
        .cluster_wide(),
    int("max.connections", "2147483647", "The maximum number of open connections; further ones wait in the kernel's queue. A listener can have its own beside it.")
        .at_least(0)
        .cluster_wide()
        .costs("each takes a socket and a few kilobytes"),
    int("max.connections.per.ip", "2147483647", "The maximum number of open connections from one address.").at_least(0).cluster_wide(),
    string("max.connections.per.ip.overrides", "", "Addresses with a different limit, as address:count.")
        .cluster_wide(),
    int("max.incremental.fetch.session.cache.slots", "1000", "The maximum number of incremental fetch sessions (KIP-227).")
        .at_least(0)
        .costs("memory: a few hundred bytes per partition of each session"),
    int("max.request.partition.size.limit", "2000", "The maximum number of partitions in one DescribeTopicPartitions response.")
        .at_least(1)
        .no_effect("a response lists at most 2,000"),
    int("message.max.bytes", "1048588", "The maximum size of a batch, compressed, in topics without their own limit.").bytes().at_least(0).cluster_wide()
        .costs("a consumer needs memory for at least one batch of this size per partition"),
    string("metadata.log.dir", "", "The directory of the metadata log; if not set, the first of log.dirs.").unset(),
    long("metadata.log.max.record.bytes.between.snapshots", "20971520", "The number of new bytes in the metadata log after which a snapshot is written.").bytes().at_least(1),
    long("metadata.log.max.snapshot.interval.ms", "3600000", "The time after which a snapshot of the metadata is written.").ms().at_least(0)
        .no_effect("the metadata log grows only when something changes, so only its size triggers snapshots"),
    int("metadata.log.segment.bytes", "1073741824", "The size at which a segment of the metadata log is closed.").bytes().at_least(8 << 20),
    long("metadata.log.segment.ms", "604800000", "The age at which a segment of the metadata log is closed.").ms()
        .no_effect("only its size closes a segment"),
    int("metadata.max.idle.interval.ms", "500", "The interval at which an idle controller writes a no-op record to the metadata log.").ms().at_least(0)
        .no_effect("the metadata log has no followers, so an idle broker writes nothing"),
    long("metadata.max.retention.bytes", "104857600", "The maximum size of the metadata log and its snapshots before old ones are deleted.").bytes()
        .no_effect("records that a snapshot covers are deleted"),
    long("metadata.max.retention.ms", "604800000", "How long the metadata log and its snapshots are kept before old ones are deleted.").ms()
        .no_effect("records that a snapshot covers are deleted"),
    list("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "Java classes that report metrics.").cluster_wide().no_effect(JAVA_CLASS),
    int("min.insync.replicas", "1", "The minimum number of in-sync replicas for a produce request with acks=all.").at_least(1).cluster_wide()
        .no_effect("one machine has one replica, which is always in sync"),
    int("node.id", "1", "The node id of this broker.").at_least(0)
        .costs("it is written to the data directory and cannot be changed afterwards"),
    int("num.io.threads", "8", "Number of threads that handle requests.").at_least(1).cluster_wide().no_effect(ONE_PASS),
    int("num.network.threads", "3", "Number of event loop threads, which read, handle and answer requests; if not set, one per processor.")
        .at_least(1)
        .cluster_wide()
        .costs("one thread each; more than the number of processors gains nothing; what is set at run time counts from the next start"),
    int("num.partitions", "1", "The number of partitions of topics created without one.").at_least(1),
    int("num.recovery.threads.per.data.dir", "2", "Number of threads that open logs at start, recover them after a crash and close them at stop; if not set, one per processor. Only the file counts: what was set at run time is read after the logs were opened.")
        .at_least(1)
        .cluster_wide(),
    int("num.replica.fetchers", "1", "Number of threads that replicate from other brokers.").at_least(1).cluster_wide().no_effect(ONE_REPLICA),
    int("offset.metadata.max.bytes", "4096", "The maximum size of the metadata string stored with a committed offset.").bytes(),
    int("offsets.commit.timeout.ms", "5000", "The timeout of storing an offset commit.").ms().at_least(1),
    int("offsets.load.buffer.size", "5242880", "The size of reads when groups are loaded.").bytes().at_least(1)
        .no_effect("reads follow batch sizes"),
    long("offsets.retention.check.interval.ms", "600000", "The interval of the check for expired offsets.").ms().at_least(1),
    int("offsets.retention.minutes", "10080", "How long a group's offsets are kept after its last member left.").unit(Unit::Minutes).at_least(1),
    int("offsets.topic.compression.codec", "0", "The compression codec of records in __consumer_offsets, by number.").between(0, 4),
    int("offsets.topic.num.partitions", "50", "The number of partitions of __consumer_offsets; it cannot be changed after the topic was created.").at_least(1),
    short("offsets.topic.replication.factor", "3", "The replication factor of __consumer_offsets.").at_least(1)
        .no_effect("one machine has one replica of everything"),
    int("offsets.topic.segment.bytes", "104857600", "The segment size of __consumer_offsets.").bytes().at_least(1)
        .costs("these segments are read at start; compaction keeps them small"),
    list("ottla.admin.hosts", "", "Additional host names accepted in requests to the admin address, beside localhost, IP addresses, its own host and those of the listeners. Requests with other names are answered with 421, as a protection against DNS rebinding by web pages.")
        .unset(),
    boolean("ottla.admin.insecure", "false", "Whether the admin address may be reachable from other machines without a token.")
        .costs("everyone who reaches it can read the names of topics, groups and clients"),
    string("ottla.admin.listener", "127.0.0.1:9644", "The admin address, which serves /metrics, /debug and the doctor over HTTP, as host:port; empty disables it.")
        .costs("every process that can connect to it can read the names of topics, groups and clients"),
    string("ottla.admin.token.file", "", "The file with the token that requests to the admin address need, except to /health and /ready: 22 to 1,024 characters, readable for the broker's user alone. With an authorizer and without this setting the broker makes a token and keeps it as ottla.admin.token in the first of log.dirs.")
        .unset(),
    int("ottla.authentication.timeout.ms", "10000", "How long a client may take from its connection on for the handshake of TLS and for authentication by SASL, both together, on a listener with one or both of them. Then the connection is closed without an answer. An authentication that is renewed has no such limit.")
        .ms()
        .at_least(1),
    string("ottla.bootstrap.scram.file", "", "A file with the users that an empty directory begins with: one in each line, in the syntax of ottla serve --add-scram, MECHANISM=[name=NAME,password=PASSWORD]. Once the directory is in use, the file is not needed any more.")
        .unset(),
    long("ottla.cold.read.cache.bytes", "134217728", "How much memory may hold data read from disk for lagging consumers (with ottla.durability=page-cache: of the page cache); beyond that the oldest such data goes, never recently written data.")
        .bytes()
        .at_least(1_048_576)
        .costs("with less than 1 MB for each consumer that catches up at the same time, some data is read from disk twice"),
    long("ottla.disk.reserve.bytes", "67108864", "Disk space to keep free: with less, writes are refused while reads continue.")
        .bytes()
        .at_least(0),
    string("ottla.durability", "disk", "When records count as committed for producers and consumers: with disk when they are durable on the device, so that they survive a power cut; with page-cache after the write to the page cache, as in Apache Kafka.")
        .one_of(&["disk", "page-cache"])
        .costs("disk adds one write to the device to the latency of acks=1 and acks=all, shared by all waiting requests (group commit), and keeps recent records in memory of the broker's own (ottla.log.memory.bytes); page-cache loses the latest acknowledged records in a power cut"),
    long("ottla.log.memory.bytes", "1073741824", "The maximum memory for the newest records of all partitions, with ottla.durability=disk: what is not written yet, and what readers at the tail are served from. Unless it is set, no more than a quarter of the memory of the machine or of the control group. Only what readers need is taken.")
        .bytes()
        .at_least(16_777_216)
        .costs("consumers that lag behind by more than fits are served from the disk"),
    boolean("ottla.quota.dry.run", "false", "Whether client quotas only count the throttling that would have happened, without throttling any client.")
        .cluster_wide(),
    long("ottla.slow.request.ms", "500", "Requests slower than this are logged with the time of each stage; -1 logs none.")
        .ms()
        .at_least(-1),
    int("ottla.telemetry.default.interval.ms", "10000", "The interval at which clients without a matching client-metrics subscription push the metrics that the doctor needs (KIP-714); 0 disables it, other values must be at least 100.")
        .ms()
        .between(0, 3_600_000)
        .costs("a few kilobytes of compressed metrics per client and push, and a fraction of a millisecond of the telemetry thread"),
    list("ottla.tenant.key", "user,client-id,address", "What identifies a connection's tenant: the first of these that the client has. An anonymous user does not count; clients without any of them share one tenant.")
        .one_of(&["user", "client-id", "address"]),
    int("ottla.tenant.known.max", "10000", "The maximum number of tenants tracked; beyond it the one that disconnected first is forgotten, and while all are connected, new ones share one tenant.")
        .between(1, 100_000)
        .costs("about 1.5 KiB per tracked tenant"),
    int("ottla.tenant.metrics.max", "20", "The number of tenants, the heaviest, with their own series at /metrics; the others are summed up.")
        .between(0, 1_000)
        .costs("a dozen time series per tenant"),
    int("ottla.tenant.new.per.minute", "100", "The maximum number of new tenants per minute from one address; further ones share one tenant until the next minute.")
        .at_least(1),
    class("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", "What makes a principal of a client; no listener starts with a class of one's own.")
        .update(Update::PerBroker),
    list("process.roles", "broker,controller", "The roles of this process.").one_of(&["broker", "controller"])
        .no_effect("the process always has both roles"),
    int("producer.id.expiration.check.interval.ms", "600000", "The interval of the check for expired producer ids.").ms().at_least(1),
    int("producer.id.expiration.ms", "86400000", "How long a partition keeps the state of an inactive idempotent producer.").ms().at_least(1).cluster_wide()
        .costs("memory: a few hundred bytes for each producer and partition"),
    long("queued.max.request.bytes", "-1", "The memory limit of all connections together for requests that are incomplete or not yet served and for answers that clients have not read yet. Beyond it connections are not read (back pressure), and tenants take turns. One request may take at most half. -1 is an eighth of the memory of the machine or its control group, or up to a quarter if two requests of the maximum size need it.")
        .bytes()
        .costs("memory, up to this"),
    int("queued.max.requests", "500", "The maximum number of requests waiting for a thread.").at_least(1).no_effect(ONE_PASS),
    int("quota.window.num", "11", "The number of samples over which quotas are averaged.")
        .at_least(1)
        .no_effect("quotas are token buckets, not averages over samples"),
    int("quota.window.size.seconds", "1", "The burst of client quotas: a client may use at once the quota that it left unused within this time.")
        .unit(Unit::Seconds)
        .at_least(1)
        .costs("a client may send this many seconds' worth of its quota in one burst before it is throttled"),
    int("remote.fetch.max.wait.ms", "500", "How long a fetch waits for remote storage.").ms().at_least(1).cluster_wide().no_effect(NOT_TIERED),
    long("remote.list.offsets.request.timeout.ms", "30000", "How long ListOffsets waits for remote storage.").ms().at_least(1).cluster_wide().no_effect(NOT_TIERED),
    long("remote.log.index.file.cache.total.size.bytes", "1073741824", "The size of the cache of remote indexes.").bytes().at_least(1).cluster_wide().no_effect(NOT_TIERED),
    int("remote.log.manager.copier.thread.pool.size", "10", "Number of threads that copy segments to remote storage.").at_least(1).cluster_wide().no_effect(NOT_TIERED),
    long("remote.log.manager.copy.max.bytes.per.second", "9223372036854775807", "The rate limit of copies to remote storage.").unit(Unit::BytesPerSecond).at_least(1).cluster_wide().no_effect(NOT_TIERED),
    int("remote.log.manager.expiration.thread.pool.size", "10", "Number of threads that delete segments in remote storage.").at_least(1).cluster_wide().no_effect(NOT_TIERED),
    long("remote.log.manager.fetch.max.bytes.per.second", "9223372036854775807", "The rate limit of reads from remote storage.").unit(Unit::BytesPerSecond).at_least(1).cluster_wide().no_effect(NOT_TIERED),
    int("remote.log.manager.follower.thread.pool.size", "2", "Number of threads for partitions that follow in remote storage.").at_least(1).cluster_wide().no_effect(NOT_TIERED),
    int("remote.log.reader.threads", "10", "Number of threads that read remote storage.").at_least(1).cluster_wide().no_effect(NOT_TIERED),
    long("replica.alter.log.dirs.io.max.bytes.per.second", "9223372036854775807", "The rate limit of replicas that move between log directories.")
        .unit(Unit::BytesPerSecond)
        .at_least(0)
        .cluster_wide()
        .no_effect("there is one log directory"),
    long("replica.high.watermark.checkpoint.interval.ms", "5000", "The interval at which high watermarks are written to the checkpoint file.")
        .ms()
        .no_effect("high watermarks are written together with the recovery points"),
    long("replica.lag.time.max.ms", "30000", "How long a follower may lag before it leaves the in-sync replicas.").ms().no_effect(ONE_REPLICA),
    int("request.timeout.ms", "30000", "The timeout of a broker's requests to other brokers.").ms().no_effect(ONE_REPLICA),
    list("sasl.enabled.mechanisms", "GSSAPI", "The SASL mechanisms offered to clients: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. A listener with SASL needs it, its own or the general one, because the default cannot be served.")
        .update(Update::PerBroker)
        .costs("PLAIN on a SASL_PLAINTEXT listener shows passwords to the network"),
    password(
        "sasl.jaas.config",
        "The users of PLAIN, as options user_<name>=\"<password>\" of PlainLoginModule. Only values for one mechanism of one listener count, like listener.name.<listener>.plain.sasl.jaas.config.",
    )
    .update(Update::PerBroker),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "The path of kinit.").update(Update::PerBroker).no_effect(NO_KERBEROS),
    long("sasl.kerberos.min.time.before.relogin", "60000", "The least time between two logins.").ms().update(Update::PerBroker).no_effect(NO_KERBEROS),
    list("sasl.kerberos.principal.to.local.rules", "DEFAULT", "Rules that make short names of principals.").update(Update::PerBroker).no_effect(NO_KERBEROS),
    string("sasl.kerberos.service.name", "", "The name of Kafka's Kerberos principal.").unset().update(Update::PerBroker).no_effect(NO_KERBEROS),
    double("sasl.kerberos.ticket.renew.jitter", "0.05", "The random part of the time until a ticket is renewed.").update(Update::PerBroker).no_effect(NO_KERBEROS),
    double("sasl.kerberos.ticket.renew.window.factor", "0.8", "The part of a ticket's life after which it is renewed.").update(Update::PerBroker).no_effect(NO_KERBEROS),
    short("sasl.login.refresh.buffer.seconds", "300", "How long before its end a broker's own login is renewed at the latest.").unit(Unit::Seconds).update(Update::PerBroker).no_effect(NO_OWN_LOGIN),
    short("sasl.login.refresh.min.period.seconds", "60", "The least time between two logins of a broker.").unit(Unit::Seconds).update(Update::PerBroker).no_effect(NO_OWN_LOGIN),
    double("sasl.login.refresh.window.factor", "0.8", "The part of a login's life after which a broker renews its own.").update(Update::PerBroker).no_effect(NO_OWN_LOGIN),
    double("sasl.login.refresh.window.jitter", "0.05", "The random part of that time.").update(Update::PerBroker).no_effect(NO_OWN_LOGIN),
    string("sasl.mechanism.inter.broker.protocol", "GSSAPI", "The SASL mechanism between brokers.")
        .update(Update::PerBroker)
        .no_effect(ONE_REPLICA),
    int("sasl.oauthbearer.clock.skew.seconds", "30", "By how much the clocks of the identity provider and the broker may differ.")
        .unit(Unit::Seconds)
        .costs("a token counts this much longer than it says"),
    list("sasl.oauthbearer.expected.audience", "", "One of these must be in the token's claim aud; empty: the claim is not looked at."),
    string("sasl.oauthbearer.expected.issuer", "", "What the token's claim iss must be; if not set, the claim is not looked at.").unset(),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000", "How often the identity provider's keys are fetched again from a server. They are also fetched when a token names a key that is not among them.").ms(),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000", "The longest pause between attempts to fetch the identity provider's keys.").ms(),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100", "The pause after the first attempt to fetch the identity provider's keys that fails; it doubles with each.").ms(),
    string("sasl.oauthbearer.jwks.endpoint.url", "", "Where the identity provider's public keys are (a JWK set): a URL of file, http or https. A listener with OAUTHBEARER needs it.").unset(),
    class("sasl.oauthbearer.jwt.validator.class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", "What checks tokens; a listener with OAUTHBEARER does not start with a class of one's own."),
    string("sasl.oauthbearer.scope.claim.name", "scope", "The name of the claim with the token's scopes, which restrict nothing."),
    string("sasl.oauthbearer.sub.claim.name", "sub", "The name of the claim with the user."),
    class("sasl.server.callback.handler.class", "", "What checks what clients send. Only for OAUTHBEARER, which needs org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler: by default Apache Kafka accepts tokens without a signature.")
        .unset(),
    int("sasl.server.max.receive.size", "524288", "The maximum size of a request before the client has authenticated.").bytes(),
    string("security.inter.broker.protocol", "PLAINTEXT", "The name of the listener registered for traffic between brokers, if inter.broker.listener.name is not set.")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    int("share.coordinator.cached.buffer.max.bytes", "1048588", "The largest buffer that a share coordinator keeps for its next write.").bytes().at_least(524_288).cluster_wide().no_effect("share groups are not implemented"),
    int("socket.listen.backlog.size", "50", "The listen backlog: connections that wait to be accepted; if not set, the system's maximum.")
        .at_least(1),
    int("socket.receive.buffer.bytes", "102400", "The socket receive buffer (SO_RCVBUF); if not set, or -1, the kernel tunes it.")
        .bytes()
        .at_least(-1)
        .costs("kernel memory: this for each connection; too small a buffer limits a distant producer to buffer / round trip time"),
    int("socket.request.max.bytes", "104857600", "The maximum size of a request.").bytes().at_least(1)
        .costs("memory: the received part of a request, up to this for each connection"),
    int("socket.send.buffer.bytes", "102400", "The socket send buffer (SO_SNDBUF); if not set, or -1, the kernel tunes it.")
        .bytes()
        .at_least(-1)
        .costs("kernel memory: this for each connection; too small a buffer limits a distant consumer to buffer / round trip time"),
    boolean("ssl.allow.dn.changes", "false", "Whether a key store that is read again may have a certificate of another subject."),
    boolean("ssl.allow.san.changes", "false", "Whether a key store that is read again may have a certificate without an alternative name that it had before."),
    list("ssl.cipher.suites", "", "The cipher suites that may be used, by their names in the standard, in the broker's order of preference; empty: all that are secure.")
        .update(Update::PerBroker)
        .costs("suites without forward secrecy or with CBC are not served; the log names those that were left out"),
    string("ssl.client.auth", "none", "Whether clients are asked for a certificate: none, requested or required. On a SASL_SSL listener only its own value counts.")
        .one_of(&["required", "requested", "none"])
        .update(Update::PerBroker)
        .costs("with requested a client without a certificate is User:ANONYMOUS"),
    list("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "The versions of TLS that may be spoken; older ones are not served.")
        .update(Update::PerBroker),
    string("ssl.endpoint.identification.algorithm", "https", "Whether the name of another broker is compared with its certificate.")
        .update(Update::PerBroker)
        .no_effect(ONE_REPLICA),
    class("ssl.engine.factory.class", "", "What makes TLS engines; a listener with TLS does not start if it is set.")
        .unset()
        .update(Update::PerBroker)
        .no_effect(JAVA_CLASS),
    password("ssl.key.password", "The password of the private key: of an encrypted PEM key, or of a key in a JKS store, there by default the store's.")
        .update(Update::PerBroker),
    string("ssl.keymanager.algorithm", "SunX509", "Which of Java's key managers is used.").update(Update::PerBroker).no_effect(JAVA_CLASS),
    password("ssl.keystore.certificate.chain", "The listener's certificate and those that signed it, as PEM; instead of a file.")
        .update(Update::PerBroker),
    password("ssl.keystore.key", "The listener's private key as PEM; instead of a file.").update(Update::PerBroker),
    string("ssl.keystore.location", "", "The file with the listener's private key and certificates: PEM, PKCS12 or JKS. It is read again when it changes.")
        .unset()
        .update(Update::PerBroker),
    password("ssl.keystore.password", "The password of a PKCS12 or JKS key store.").update(Update::PerBroker),
    string("ssl.keystore.type", "JKS", "The form of the key store: PEM, PKCS12 or JKS; between the last two the file's content decides.")
        .update(Update::PerBroker),
    string("ssl.principal.mapping.rules", "DEFAULT", "The rules that make the name of a principal from the subject of a client's certificate (KIP-371).")
        .costs("a client whose subject no rule applies to is refused; patterns with look-around or back-references are refused at the start"),
    string("ssl.protocol", "TLSv1.3", "The version of TLS in Java's counting: TLS, TLSv1.2 or TLSv1.3; the versions follow from ssl.enabled.protocols alone.")
        .update(Update::PerBroker),
    string("ssl.provider", "", "Which of Java's providers does TLS.").unset().update(Update::PerBroker).no_effect(JAVA_CLASS),
    string("ssl.secure.random.implementation", "", "Where Java takes random numbers from.").unset().update(Update::PerBroker).no_effect(JAVA_CLASS),
    string("ssl.trustmanager.algorithm", "PKIX", "Which of Java's trust managers is used.").update(Update::PerBroker).no_effect(JAVA_CLASS),
    password("ssl.truststore.certificates", "The certificates that clients' certificates must be signed by, as PEM; instead of a file.")
        .update(Update::PerBroker),
    string("ssl.truststore.location", "", "The file with the certificates that clients' certificates must be signed by: PEM, PKCS12 or JKS. It is read again when it changes.")
        .unset()
        .update(Update::PerBroker),
    password("ssl.truststore.password", "The password of a PKCS12 or JKS trust store.").update(Update::PerBroker),
    string("ssl.truststore.type", "JKS", "The form of the trust store: PEM, PKCS12 or JKS; between the last two the file's content decides.")
        .update(Update::PerBroker),
    string("super.users", "", "The principals that may do everything, separated by semicolons: User:admin;User:CN=ops,O=example. It takes effect with authorizer.class.name.")
        .unset(),
    int("telemetry.max.bytes", "1048576", "The maximum size of a push of client metrics, compressed; decompressed it may be eight times as large.").bytes().at_least(1)
        .costs("memory: one decompressed push at a time for the whole broker"),
    int("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000", "How often transactions that have timed out are looked for.").ms().at_least(1)
        .no_effect("each transaction has a timer of its own"),
    int("transaction.max.timeout.ms", "900000", "The maximum timeout of a transaction: a producer that asks for more is refused.").ms().at_least(1),
    boolean("transaction.partition.verification.enable", "true", "Whether a partition verifies with the coordinator before it accepts a transaction's first batch of a client that adds its partitions itself (before KIP-890).")
        .cluster_wide()
        .costs("without it a late batch can open a transaction that nothing ends"),
    int("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000", "How often transactional ids that have expired are looked for.").ms().at_least(1),
    int("transaction.state.log.min.isr", "2", "The minimum number of in-sync replicas of __transaction_state: a setting of the topic, which counts once it has more replicas.").at_least(1),
    int("transaction.state.log.num.partitions", "50", "The number of partitions of __transaction_state when it is created.").at_least(1),
    short("transaction.state.log.replication.factor", "3", "The replication factor of __transaction_state.").at_least(1).no_effect(ONE_REPLICA),
    int("transaction.state.log.segment.bytes", "104857600", "The segment size of __transaction_state when it is created.").bytes().at_least(1),
    int("transactional.id.expiration.ms", "604800000", "How long a transactional id is kept after its last use.").ms().at_least(1),
    boolean("unclean.leader.election.enable", "false", "Whether a replica that is not in sync, and may lack records, can become leader.").cluster_wide()
        .no_effect("one machine has one replica, which leads"),
];
