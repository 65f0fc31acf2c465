//! The keys of groups and of client-metrics subscriptions.

use super::key::{ConfigKey, Update, boolean, int, list, same, string};

const NO_SHARE_GROUPS: &str = "share groups are not implemented";
const NO_STREAMS_GROUPS: &str = "Streams groups are not implemented";

/// The keys of groups, in the order of their names.
pub const GROUP_KEYS: &[ConfigKey] = &dynamic([
    int(
        "consumer.assignment.interval.ms",
        "1000",
        "The minimum time between two assignments of a consumer group.",
    )
    .ms()
    .at_least(0)
    .from(&[same("group.consumer.assignment.interval.ms")]),
    int(
        "consumer.heartbeat.interval.ms",
        "5000",
        "The heartbeat interval of members of a consumer group.",
    )
    .ms()
    .at_least(1)
    .from(&[same("group.consumer.heartbeat.interval.ms")]),
    int(
        "consumer.session.timeout.ms",
        "45000",
        "The session timeout: a member without a heartbeat for this long is removed.",
    )
    .ms()
    .at_least(1)
    .from(&[same("group.consumer.session.timeout.ms")]),
    int(
        "share.assignment.interval.ms",
        "1000",
        "The minimum time between two assignments of a share group.",
    )
    .ms()
    .at_least(0)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.assignment.interval.ms")]),
    string(
        "share.auto.offset.reset",
        "latest",
        "Where a share group starts in a partition.",
    )
    .no_effect(NO_SHARE_GROUPS),
    int(
        "share.delivery.count.limit",
        "5",
        "The maximum number of deliveries of a record to a share group.",
    )
    .at_least(2)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.delivery.count.limit")]),
    int(
        "share.heartbeat.interval.ms",
        "5000",
        "The heartbeat interval of members of a share group.",
    )
    .ms()
    .at_least(1)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.heartbeat.interval.ms")]),
    string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group reads records of open transactions.",
    )
    .one_of(&["read_committed", "read_uncommitted"])
    .no_effect(NO_SHARE_GROUPS),
    int(
        "share.partition.max.record.locks",
        "2000",
        "The maximum number of records of a partition that are delivered and not yet acknowledged.",
    )
    .at_least(100)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.partition.max.record.locks")]),
    int(
        "share.record.lock.duration.ms",
        "30000",
        "How long a delivered record stays locked for its acknowledgement.",
    )
    .ms()
    .at_least(1_000)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.record.lock.duration.ms")]),
    boolean(
        "share.renew.acknowledge.enable",
        "true",
        "Whether members may renew the lock of a delivered record.",
    )
    .no_effect(NO_SHARE_GROUPS),
    int(
        "share.session.timeout.ms",
        "45000",
        "The session timeout: a member without a heartbeat for this long is removed.",
    )
    .ms()
    .at_least(1)
    .no_effect(NO_SHARE_GROUPS)
    .from(&[same("group.share.session.timeout.ms")]),
    int(
        "streams.assignment.interval.ms",
        "1000",
        "The minimum time between two assignments of a Streams group.",
    )
    .ms()
    .at_least(0)
    .no_effect(NO_STREAMS_GROUPS)
    .from(&[same("group.streams.assignment.interval.ms")]),
    int(
        "streams.heartbeat.interval.ms",
        "5000",
        "The heartbeat interval of members of a Streams group.",
    )
    .ms()
    .at_least(1)
    .no_effect(NO_STREAMS_GROUPS)
    .from(&[same("group.streams.heartbeat.interval.ms")]),
    int(
        "streams.initial.rebalance.delay.ms",
        "3000",
        "How long a new Streams group waits for more members before its first rebalance.",
    )
    .ms()
    .at_least(0)
    .no_effect(NO_STREAMS_GROUPS)
    .from(&[same("group.streams.initial.rebalance.delay.ms")]),
    int(
        "streams.num.standby.replicas",
        "0",
        "The number of standby replicas of each Streams task.",
    )
    .at_least(0)
    .no_effect(NO_STREAMS_GROUPS)
    .from(&[same("group.streams.num.standby.replicas")]),
    int(
        "streams.session.timeout.ms",
        "45000",
        "The session timeout: a member without a heartbeat for this long is removed.",
    )
    .ms()
    .at_least(1)
    .no_effect(NO_STREAMS_GROUPS)
    .from(&[same("group.streams.session.timeout.ms")]),
]);

/// The keys of client-metrics subscriptions (KIP-714), in the order of their names.
pub const CLIENT_METRICS_KEYS: &[ConfigKey] = &dynamic([
    int(
        "interval.ms",
        "300000",
        "The interval at which clients push their metrics.",
    )
    .ms()
    .between(100, 3_600_000),
    list(
        "match",
        "",
        "The clients that the subscription applies to, as selector=pattern; a client must match all patterns, each against the whole value, and without patterns it applies to all clients. Patterns are regular expressions without look-around and back references.",
    ),
    list(
        "metrics",
        "",
        "The name prefixes of the metrics that clients push; * selects all, an empty list none.",
    ),
]);

const fn dynamic<const N: usize>(mut keys: [ConfigKey; N]) -> [ConfigKey; N] {
    let mut index = 0;
    while index < N {
        keys[index] = keys[index].update(Update::Dynamic);
        index += 1;
    }
    keys
}
