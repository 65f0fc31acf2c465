//! The keys of topics. Each takes effect as soon as it is set.

use super::key::{Allowed, ConfigKey, Unit, Update, boolean, double, int, list, long, same, scaled, string};

const ONE_REPLICA: &str = "one machine has no replicas to throttle";
const NO_TIERED_STORAGE: &str = "tiered storage is not implemented";

/// The keys of topics, in the order of their names.
pub const TOPIC_KEYS: &[ConfigKey] = &dynamic([
    list("cleanup.policy", "delete", "What happens to old data: segments are deleted, or compacted to the last record of each key, or both.")
        .one_of(&["compact", "delete"])
        .costs("compaction reads and rewrites segments in the background")
        .from(&[same("log.cleanup.policy")]),
    int("compression.gzip.level", "-1", "The gzip level when the broker compresses; -1 is gzip's default.")
        .allowed(Allowed::BetweenOrMinusOne(1, 9))
        .from(&[same("compression.gzip.level")]),
    int("compression.lz4.level", "9", "The lz4 level when the broker compresses.")
        .between(1, 17)
        .no_effect("Ottla's lz4 encoder has only the fast mode")
        .from(&[same("compression.lz4.level")]),
    string("compression.type", "producer", "The compression codec of stored batches; producer keeps each batch's codec.")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .costs("with any value but producer the broker decompresses and recompresses every batch that has another codec")
        .from(&[same("compression.type")]),
    int("compression.zstd.level", "3", "The zstd level when the broker compresses.")
        .between(-131_072, 22)
        .from(&[same("compression.zstd.level")]),
    long("delete.retention.ms", "86400000", "How long compaction keeps a tombstone (a record with a null value), so that lagging consumers see the deletion.")
        .ms()
        .at_least(0)
        .from(&[same("log.cleaner.delete.retention.ms")]),
    long("file.delete.delay.ms", "60000", "How long a deleted segment's files stay on disk, for readers that still use them.")
        .ms()
        .at_least(0)
        .from(&[same("log.segment.delete.delay.ms")]),
    long("flush.messages", "9223372036854775807", "The number of records after which the log is synced.")
        .unit(Unit::Records)
        .at_least(1)
        .no_effect("syncs follow ottla.durability")
        .from(&[same("log.flush.interval.messages")]),
    long("flush.ms", "9223372036854775807", "The time after which the log is synced.")
        .ms()
        .at_least(0)
        .no_effect("syncs follow ottla.durability")
        .from(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")]),
    list("follower.replication.throttled.replicas", "", "The follower replicas whose replication is throttled.")
        .no_effect(ONE_REPLICA),
    int("index.interval.bytes", "4096", "The number of bytes of log between two index entries.")
        .bytes()
        .at_least(0)
        .costs("a fetch scans up to this many bytes to find its offset; halving it doubles the size of the indexes")
        .from(&[same("log.index.interval.bytes")]),
    int("internal.segment.bytes", "", "A segment size below the usual minimum, for Kafka's own tests.")
        .unset()
        .bytes()
        .no_effect("it exists only for Kafka's own tests"),
    list("leader.replication.throttled.replicas", "", "The leader replicas whose replication is throttled.")
        .no_effect(ONE_REPLICA),
    long("local.retention.bytes", "-2", "How much data is kept locally after it was copied to remote storage; -2 uses retention.bytes.")
        .bytes()
        .at_least(-2)
        .no_effect(NO_TIERED_STORAGE)
        .from(&[same("log.local.retention.bytes")]),
    long("local.retention.ms", "-2", "How long data is kept locally after it was copied to remote storage; -2 uses retention.ms.")
        .ms()
        .at_least(-2)
        .no_effect(NO_TIERED_STORAGE)
        .from(&[same("log.local.retention.ms")]),
    long("max.compaction.lag.ms", "9223372036854775807", "The maximum time until a record is compacted, even if min.cleanable.dirty.ratio is not reached.")
        .ms()
        .at_least(1)
        .from(&[same("log.cleaner.max.compaction.lag.ms")]),
    int("max.message.bytes", "1048588", "The maximum size of a batch, as it is stored (compressed).")
        .bytes()
        .at_least(0)
        .costs("a consumer needs memory for at least one batch of this size per partition")
        .from(&[same("message.max.bytes")]),
    long("message.timestamp.after.max.ms", "3600000", "How far a record's timestamp may be ahead of the broker's clock, with CreateTime.")
        .ms()
        .at_least(0)
        .from(&[same("log.message.timestamp.after.max.ms")]),
    long("message.timestamp.before.max.ms", "9223372036854775807", "How far a record's timestamp may be behind the broker's clock, with CreateTime.")
        .ms()
        .at_least(0)
        .costs("any limit makes the broker decompress every compressed batch to check its timestamps")
        .from(&[same("log.message.timestamp.before.max.ms")]),
    string("message.timestamp.type", "CreateTime", "Whether a record's timestamp is set by the producer or by the broker when it is appended.")
        .one_of(&["CreateTime", "LogAppendTime"])
        .from(&[same("log.message.timestamp.type")]),
    double("min.cleanable.dirty.ratio", "0.5", "The minimum share of a log that must be uncompacted before the next compaction starts.")
        .allowed(Allowed::Within(0.0, 1.0))
        .costs("a lower ratio compacts more often (write amplification); a higher one keeps more superseded records on disk")
        .from(&[same("log.cleaner.min.cleanable.ratio")]),
    long("min.compaction.lag.ms", "0", "The minimum time before a record may be compacted.")
        .ms()
        .at_least(0)
        .from(&[same("log.cleaner.min.compaction.lag.ms")]),
    int("min.insync.replicas", "1", "The minimum number of in-sync replicas for a produce request with acks=all.")
        .at_least(1)
        .no_effect("one machine has one replica, which is always in sync")
        .from(&[same("min.insync.replicas")]),
    boolean("preallocate", "false", "Whether a new segment's file is preallocated at its full size.")
        .no_effect("segments grow as they are written")
        .from(&[same("log.preallocate")]),
    boolean("remote.log.copy.disable", "false", "Whether new segments are no longer copied to remote storage.")
        .no_effect(NO_TIERED_STORAGE),
    boolean("remote.log.delete.on.disable", "false", "Whether remote data is deleted when remote storage is disabled for the topic.")
        .no_effect(NO_TIERED_STORAGE),
    boolean("remote.storage.enable", "false", "Whether closed segments are copied to remote storage.")
        .no_effect(NO_TIERED_STORAGE),
    long("retention.bytes", "-1", "The size of a partition above which its oldest segments are deleted; -1 is no limit.")
        .bytes()
        .costs("disk: this times the number of partitions, plus up to one segment for each")
        .from(&[same("log.retention.bytes")]),
    long("retention.ms", "604800000", "How long closed segments are kept; -1 is no limit.")
        .ms()
        .at_least(-1)
        .costs("disk: all bytes produced within this time")
        .from(&[
            same("log.retention.ms"),
            scaled("log.retention.minutes", 60_000),
            scaled("log.retention.hours", 3_600_000),
        ]),
    int("segment.bytes", "1073741824", "The size at which a segment is closed and a new one is started.")
        .bytes()
        .at_least(1 << 20)
        .costs("retention and compaction work on whole closed segments; smaller segments mean more files")
        .from(&[same("log.segment.bytes")]),
    int("segment.index.bytes", "10485760", "The maximum size of an index; when it is full its segment is closed.")
        .bytes()
        .at_least(4)
        .from(&[same("log.index.size.max.bytes")]),
    long("segment.jitter.ms", "0", "The maximum random time subtracted from segment.ms, so that partitions do not all roll together.")
        .ms()
        .at_least(0)
        .from(&[same("log.roll.jitter.ms"), scaled("log.roll.jitter.hours", 3_600_000)]),
    long("segment.ms", "604800000", "The age at which a segment is closed even if it is not full.")
        .ms()
        .at_least(1)
        .from(&[same("log.roll.ms"), scaled("log.roll.hours", 3_600_000)]),
    boolean("unclean.leader.election.enable", "false", "Whether a replica that is not in sync, and may lack records, can become leader.")
        .no_effect("one machine has one replica, which leads")
        .from(&[same("unclean.leader.election.enable")]),
]);

const fn dynamic<const N: usize>(mut keys: [ConfigKey; N]) -> [ConfigKey; N] {
    let mut index = 0;
    while index < N {
        keys[index] = keys[index].update(Update::Dynamic);
        index += 1;
    }
    keys
}
