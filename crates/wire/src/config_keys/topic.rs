//! The keys of topics. Each takes effect as soon as it is set.

use super::key::{Allowed, ConfigKey, Unit, Update, boolean, double, int, list, long, same, scaled, string};

const ONE_REPLICA: &str = "one machine has no replicas to throttle";
const NO_TIERED_STORAGE: &str = "there is no tiered storage";

/// The keys of topics, in the order of their names.
pub const TOPIC_KEYS: &[ConfigKey] = &dynamic([
    list("cleanup.policy", "delete", "What happens to old data: segments are deleted, or compacted to the last record of each key, or both.")
        .one_of(&["compact", "delete"])
        .costs("compaction reads and rewrites segments in the background")
        .from(&[same("log.cleanup.policy")]),
    int("compression.gzip.level", "-1", "How hard gzip tries when the broker compresses; -1 is gzip's own middle.")
        .allowed(Allowed::BetweenOrMinusOne(1, 9))
        .from(&[same("compression.gzip.level")]),
    int("compression.lz4.level", "9", "How hard lz4 tries when the broker compresses.")
        .between(1, 17)
        .no_effect("our lz4 encoder has only the fast mode")
        .from(&[same("compression.lz4.level")]),
    string("compression.type", "producer", "The codec in which batches are stored; producer stores them as they come.")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .costs("anything but producer makes the broker unfold and compress every batch that comes in another codec")
        .from(&[same("compression.type")]),
    int("compression.zstd.level", "3", "How hard zstd tries when the broker compresses.")
        .between(-131_072, 22)
        .from(&[same("compression.zstd.level")]),
    long("delete.retention.ms", "86400000", "How long compaction keeps the record that deletes a key, for consumers that are still reading.")
        .ms()
        .at_least(0)
        .from(&[same("log.cleaner.delete.retention.ms")]),
    long("file.delete.delay.ms", "60000", "How long a deleted segment's files stay on the disk, for readers that still hold them.")
        .ms()
        .at_least(0)
        .from(&[same("log.segment.delete.delay.ms")]),
    long("flush.messages", "9223372036854775807", "After how many records the log is synced.")
        .unit(Unit::Records)
        .at_least(1)
        .no_effect("syncs follow ottla.durability")
        .from(&[same("log.flush.interval.messages")]),
    long("flush.ms", "9223372036854775807", "After how much time the log is synced.")
        .ms()
        .at_least(0)
        .no_effect("syncs follow ottla.durability")
        .from(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")]),
    list("follower.replication.throttled.replicas", "", "The replicas whose following is throttled.")
        .no_effect(ONE_REPLICA),
    int("index.interval.bytes", "4096", "How many bytes of log lie between two entries of its indexes.")
        .bytes()
        .at_least(0)
        .costs("a reader scans up to this much to find its offset; half of it doubles the indexes")
        .from(&[same("log.index.interval.bytes")]),
    int("internal.segment.bytes", "", "A segment size below the usual minimum, for Kafka's own tests.")
        .unset()
        .bytes()
        .no_effect("it exists for Kafka's own tests"),
    list("leader.replication.throttled.replicas", "", "The replicas whose leading is throttled.")
        .no_effect(ONE_REPLICA),
    long("local.retention.bytes", "-2", "How much data stays local once it is in remote storage; -2 follows retention.bytes.")
        .bytes()
        .at_least(-2)
        .no_effect(NO_TIERED_STORAGE)
        .from(&[same("log.local.retention.bytes")]),
    long("local.retention.ms", "-2", "How long data stays local once it is in remote storage; -2 follows retention.ms.")
        .ms()
        .at_least(-2)
        .no_effect(NO_TIERED_STORAGE)
        .from(&[same("log.local.retention.ms")]),
    long("max.compaction.lag.ms", "9223372036854775807", "The longest that a record may wait for compaction, however little there is to compact.")
        .ms()
        .at_least(1)
        .from(&[same("log.cleaner.max.compaction.lag.ms")]),
    int("max.message.bytes", "1048588", "The largest batch that is accepted, as it is stored.")
        .bytes()
        .at_least(0)
        .costs("a consumer needs memory for at least one such batch per partition")
        .from(&[same("message.max.bytes")]),
    long("message.timestamp.after.max.ms", "3600000", "How far a record's timestamp may lie after the broker's clock, with CreateTime.")
        .ms()
        .at_least(0)
        .from(&[same("log.message.timestamp.after.max.ms")]),
    long("message.timestamp.before.max.ms", "9223372036854775807", "How far a record's timestamp may lie before the broker's clock, with CreateTime.")
        .ms()
        .at_least(0)
        .costs("any limit makes the broker unfold every compressed batch to look at its timestamps")
        .from(&[same("log.message.timestamp.before.max.ms")]),
    string("message.timestamp.type", "CreateTime", "Whether a record's time is the producer's or that of its arrival.")
        .one_of(&["CreateTime", "LogAppendTime"])
        .from(&[same("log.message.timestamp.type")]),
    double("min.cleanable.dirty.ratio", "0.5", "How much of a log must be new since the last compaction before the next one starts.")
        .allowed(Allowed::Ratio)
        .costs("a lower ratio compacts more often; a higher one keeps more dead records on the disk")
        .from(&[same("log.cleaner.min.cleanable.ratio")]),
    long("min.compaction.lag.ms", "0", "The shortest time that a record stays out of compaction.")
        .ms()
        .at_least(0)
        .from(&[same("log.cleaner.min.compaction.lag.ms")]),
    int("min.insync.replicas", "1", "How many replicas must be in sync for acks=all to be accepted.")
        .at_least(1)
        .no_effect("one machine has one replica, which is always in sync")
        .from(&[same("min.insync.replicas")]),
    boolean("preallocate", "false", "Whether a new segment's file is allocated at once.")
        .no_effect("segments grow as they are written")
        .from(&[same("log.preallocate")]),
    boolean("remote.log.copy.disable", "false", "Whether segments are no longer copied to remote storage.")
        .no_effect(NO_TIERED_STORAGE),
    boolean("remote.log.delete.on.disable", "false", "Whether remote data goes when remote storage is switched off for the topic.")
        .no_effect(NO_TIERED_STORAGE),
    boolean("remote.storage.enable", "false", "Whether closed segments move to remote storage.")
        .no_effect(NO_TIERED_STORAGE),
    long("retention.bytes", "-1", "How large one partition may grow before its oldest segments are deleted; -1 is without limit.")
        .bytes()
        .costs("disk: this times the number of partitions, and up to one segment more each")
        .from(&[same("log.retention.bytes")]),
    long("retention.ms", "604800000", "How long closed segments are kept; -1 is for ever.")
        .ms()
        .at_least(-1)
        .costs("disk: the bytes produced in this time")
        .from(&[
            same("log.retention.ms"),
            scaled("log.retention.minutes", 60_000),
            scaled("log.retention.hours", 3_600_000),
        ]),
    int("segment.bytes", "1073741824", "The size at which a segment is closed and the next one begins.")
        .bytes()
        .at_least(1 << 20)
        .costs("retention and compaction work on whole closed segments; smaller ones mean more open files")
        .from(&[same("log.segment.bytes")]),
    int("segment.index.bytes", "10485760", "The size at which an index is full and its segment is closed.")
        .bytes()
        .at_least(4)
        .from(&[same("log.index.size.max.bytes")]),
    long("segment.jitter.ms", "0", "How much is at most taken off segment.ms by chance, so that partitions do not roll together.")
        .ms()
        .at_least(0)
        .from(&[same("log.roll.jitter.ms"), scaled("log.roll.jitter.hours", 3_600_000)]),
    long("segment.ms", "604800000", "The age at which a segment is closed even if it is not full.")
        .ms()
        .at_least(1)
        .from(&[same("log.roll.ms"), scaled("log.roll.hours", 3_600_000)]),
    boolean("unclean.leader.election.enable", "false", "Whether a replica that missed records may become leader.")
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
