//! Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers: what is asked of partitions.

use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::Uuid;

use super::case::{Body, Case, Expected, Scene, TOPIC};
use super::exchange::Ask;

use Expected::Both;

/// A Fetch of version 11, with one partition that can lie.
#[derive(Clone)]
struct Fetch {
    replica_id: i32,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
    isolation_level: i8,
    session_id: i32,
    session_epoch: i32,
    topic: &'static str,
    partition: i32,
    leader_epoch: i32,
    offset: i64,
    log_start_offset: i64,
    partition_max_bytes: i32,
}

impl Fetch {
    fn sound() -> Fetch {
        Fetch {
            replica_id: -1,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 1 << 20,
            isolation_level: 0,
            session_id: 0,
            session_epoch: -1,
            topic: TOPIC,
            partition: 0,
            leader_epoch: -1,
            offset: 0,
            log_start_offset: -1,
            partition_max_bytes: 1 << 20,
        }
    }

    fn head(&self, topics: i32) -> Body {
        Body::new()
            .i32(self.replica_id)
            .i32(self.max_wait_ms)
            .i32(self.min_bytes)
            .i32(self.max_bytes)
            .i8(self.isolation_level)
            .i32(self.session_id)
            .i32(self.session_epoch)
            .i32(topics)
    }

    fn part(&self, body: Body) -> Body {
        body.i32(self.partition)
            .i32(self.leader_epoch)
            .i64(self.offset)
            .i64(self.log_start_offset)
            .i32(self.partition_max_bytes)
    }

    fn body(&self) -> Body {
        let body = self.part(self.head(1).str(self.topic).i32(1));
        // No forgotten topics, no rack.
        body.i32(0).str("")
    }
}

fn fetch(name: &str, expected: Expected, change: fn(&mut Fetch)) -> Case {
    raw_fetch(name, expected, move |mut fetch| {
        change(&mut fetch);
        fetch.body()
    })
}

fn raw_fetch(name: &str, expected: Expected, body: impl Fn(Fetch) -> Body + 'static) -> Case {
    Case::new(format!("Fetch: {name}"), expected, move |_| {
        Ask::new(ApiKey::Fetch, 11, body(Fetch::sound()))
    })
}

fn fetch_by_id(name: &str, expected: Expected, id: fn(&Scene) -> Uuid) -> Case {
    Case::new(format!("Fetch: {name}"), expected, move |scene| {
        let body = Body::new()
            .i32(-1)
            .i32(0)
            .i32(0)
            .i32(1 << 20)
            .i8(0)
            .i32(0)
            .i32(-1)
            .compact_count(1);
        let body = body.uuid(id(scene)).compact_count(1);
        let body = body
            .i32(0)
            .i32(-1)
            .i64(0)
            .i32(-1)
            .i64(-1)
            .i32(1 << 20)
            .tags()
            .tags();
        Ask::new(ApiKey::Fetch, 13, body.compact_count(0).compact_str("").tags())
    })
}

pub fn cases() -> Vec<Case> {
    let mut cases = fetches();
    cases.extend(sessions());
    cases.extend(list_offsets());
    cases.extend(epochs());
    cases.extend(delete_records());
    cases.extend(describe_producers());
    cases
}

fn fetches() -> Vec<Case> {
    vec![
        fetch("a sound one", Both("?"), |_| {}),
        fetch("an unknown topic", Both("?"), |fetch| fetch.topic = "nowhere"),
        fetch("a topic without a name", Both("?"), |fetch| fetch.topic = ""),
        fetch("an unknown partition", Both("?"), |fetch| {
            fetch.partition = 100_000
        }),
        fetch("partition -1", Both("?"), |fetch| fetch.partition = -1),
        fetch("an offset beyond the end", Both("?"), |fetch| {
            fetch.offset = 1_000
        }),
        fetch("offset -1", Both("?"), |fetch| fetch.offset = -1),
        fetch("offset -2^63", Both("?"), |fetch| fetch.offset = i64::MIN),
        fetch("offset 2^63-1", Both("?"), |fetch| fetch.offset = i64::MAX),
        fetch("leader epoch 99", Both("?"), |fetch| fetch.leader_epoch = 99),
        fetch("leader epoch -2", Both("?"), |fetch| fetch.leader_epoch = -2),
        fetch("isolation level 2", Both("?"), |fetch| fetch.isolation_level = 2),
        fetch("isolation level -1", Both("?"), |fetch| {
            fetch.isolation_level = -1
        }),
        fetch("max bytes 0", Both("?"), |fetch| fetch.max_bytes = 0),
        fetch("max bytes -1", Both("?"), |fetch| fetch.max_bytes = -1),
        fetch("max bytes 2^31-1", Both("?"), |fetch| fetch.max_bytes = i32::MAX),
        fetch("partition max bytes 0", Both("?"), |fetch| {
            fetch.partition_max_bytes = 0
        }),
        fetch("partition max bytes -1", Both("?"), |fetch| {
            fetch.partition_max_bytes = -1
        }),
        fetch("partition max bytes 2^31-1", Both("?"), |fetch| {
            fetch.partition_max_bytes = i32::MAX
        }),
        fetch("both limits 2^31-1", Both("?"), |fetch| {
            fetch.max_bytes = i32::MAX;
            fetch.partition_max_bytes = i32::MAX;
        }),
        fetch("min bytes -1", Both("?"), |fetch| fetch.min_bytes = -1),
        fetch("min bytes 2^31-1", Both("?"), |fetch| fetch.min_bytes = i32::MAX),
        fetch("a wait of -1", Both("?"), |fetch| fetch.max_wait_ms = -1),
        fetch("a follower that is none", Both("?"), |fetch| fetch.replica_id = 5),
        fetch("replica -2", Both("?"), |fetch| fetch.replica_id = -2),
        fetch("replica -3", Both("?"), |fetch| fetch.replica_id = -3),
        fetch("a log start offset", Both("?"), |fetch| {
            fetch.log_start_offset = 5
        }),
        raw_fetch("a partition twice", Both("?"), |fetch| {
            let body = fetch.part(fetch.part(fetch.head(1).str(TOPIC).i32(2)));
            body.i32(0).str("")
        }),
        raw_fetch("a topic twice", Both("?"), |fetch| {
            let body = fetch.part(fetch.head(2).str(TOPIC).i32(1));
            fetch.part(body.str(TOPIC).i32(1)).i32(0).str("")
        }),
        raw_fetch("no topics", Both("?"), |fetch| fetch.head(0).i32(0).str("")),
        raw_fetch("-1 topics", Both("?"), |fetch| fetch.head(-1).i32(0).str("")),
        raw_fetch("2^31-1 topics", Both("?"), |fetch| fetch.head(i32::MAX)),
        raw_fetch("-1 partitions", Both("?"), |fetch| {
            fetch.head(1).str(TOPIC).i32(-1).i32(0).str("")
        }),
        raw_fetch("a null topic name", Both("?"), |fetch| {
            fetch.part(fetch.head(1).i16(-1).i32(1)).i32(0).str("")
        }),
        raw_fetch("a null rack", Both("?"), |fetch| {
            fetch.part(fetch.head(1).str(TOPIC).i32(1)).i32(0).i16(-1)
        }),
        raw_fetch("a cut end", Both("?"), |fetch| fetch.head(1).str(TOPIC)),
        fetch_by_id("an id that no topic has", Both("?"), |_| Uuid([7; 16])),
        fetch_by_id("an id of zeros", Both("?"), |_| Uuid([0; 16])),
        fetch_by_id("an id that a topic has", Both("?"), |scene| scene.topic_id),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        fetch("an unknown session", Both("?"), |fetch| {
            fetch.session_id = 77;
            fetch.session_epoch = 3;
        }),
        fetch("an unknown session to be closed", Both("?"), |fetch| {
            fetch.session_id = 77
        }),
        fetch("an unknown session to be begun", Both("?"), |fetch| {
            fetch.session_id = 77;
            fetch.session_epoch = 0;
        }),
        fetch("no session in epoch 3", Both("?"), |fetch| {
            fetch.session_epoch = 3
        }),
        fetch("no session in epoch -2", Both("?"), |fetch| {
            fetch.session_epoch = -2
        }),
        fetch("session -1", Both("?"), |fetch| {
            fetch.session_id = -1;
            fetch.session_epoch = 1;
        }),
        raw_fetch(
            "a forgotten topic that nobody asked for",
            Both("?"),
            |mut fetch| {
                fetch.session_epoch = 0;
                let body = fetch.part(fetch.head(1).str(TOPIC).i32(1));
                body.i32(1).str("nowhere").i32(1).i32(0).str("")
            },
        ),
        raw_fetch("-1 forgotten topics", Both("?"), |fetch| {
            fetch.part(fetch.head(1).str(TOPIC).i32(1)).i32(-1).str("")
        }),
    ]
}

fn list_offsets() -> Vec<Case> {
    let asked = |name: &str, version: i16, timestamp: i64| {
        Case::new(format!("ListOffsets: {name}"), Both("?"), move |_| {
            let body = match version {
                0..6 => Body::new()
                    .i32(-1)
                    .i8(0)
                    .i32(1)
                    .str(TOPIC)
                    .i32(1)
                    .i32(0)
                    .i32(-1)
                    .i64(timestamp),
                _ => {
                    let body = Body::new()
                        .i32(-1)
                        .i8(0)
                        .compact_count(1)
                        .compact_str(TOPIC)
                        .compact_count(1);
                    let body = body.i32(0).i32(-1).i64(timestamp).tags().tags();
                    if version >= 10 {
                        body.i32(1_000).tags()
                    } else {
                        body.tags()
                    }
                }
            };
            Ask::new(ApiKey::ListOffsets, version, body)
        })
    };
    let raw = |name: &str, body: fn() -> Body| {
        Case::new(format!("ListOffsets: {name}"), Both("?"), move |_| {
            Ask::new(ApiKey::ListOffsets, 5, body())
        })
    };
    let head = || Body::new().i32(-1).i8(0);
    let _ = head;
    vec![
        asked("latest", 5, -1),
        asked("earliest", 5, -2),
        asked("max timestamp in version 5", 5, -3),
        asked("max timestamp", 7, -3),
        asked("earliest local in version 7", 7, -4),
        asked("earliest local", 11, -4),
        asked("latest tiered in version 8", 8, -5),
        asked("latest tiered", 11, -5),
        asked("earliest pending upload in version 10", 10, -6),
        asked("earliest pending upload", 11, -6),
        asked("timestamp -7", 11, -7),
        asked("timestamp -100", 5, -100),
        asked("timestamp -2^63", 5, i64::MIN),
        asked("timestamp 2^63-1", 5, i64::MAX),
        asked("timestamp 0", 5, 0),
        raw("an unknown topic", || {
            Body::new()
                .i32(-1)
                .i8(0)
                .i32(1)
                .str("nowhere")
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("a topic without a name", || {
            Body::new()
                .i32(-1)
                .i8(0)
                .i32(1)
                .str("")
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("an unknown partition", || {
            Body::new()
                .i32(-1)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(100_000)
                .i32(-1)
                .i64(-1)
        }),
        raw("partition -1", || {
            Body::new()
                .i32(-1)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(-1)
                .i32(-1)
                .i64(-1)
        }),
        raw("a partition twice", || {
            let body = Body::new().i32(-1).i8(0).i32(1).str(TOPIC).i32(2);
            body.i32(0).i32(-1).i64(-1).i32(0).i32(-1).i64(-2)
        }),
        raw("a topic twice", || {
            let body = Body::new()
                .i32(-1)
                .i8(0)
                .i32(2)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1);
            body.str(TOPIC).i32(1).i32(0).i32(-1).i64(-2)
        }),
        raw("leader epoch 99", || {
            Body::new()
                .i32(-1)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(99)
                .i64(-1)
        }),
        raw("isolation level 2", || {
            Body::new()
                .i32(-1)
                .i8(2)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("isolation level -1", || {
            Body::new()
                .i32(-1)
                .i8(-1)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("replica 1", || {
            Body::new()
                .i32(1)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("replica -2", || {
            Body::new()
                .i32(-2)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("replica 77", || {
            Body::new()
                .i32(77)
                .i8(0)
                .i32(1)
                .str(TOPIC)
                .i32(1)
                .i32(0)
                .i32(-1)
                .i64(-1)
        }),
        raw("no topics", || Body::new().i32(-1).i8(0).i32(0)),
        raw("-1 topics", || Body::new().i32(-1).i8(0).i32(-1)),
        raw("-1 partitions", || {
            Body::new().i32(-1).i8(0).i32(1).str(TOPIC).i32(-1)
        }),
    ]
}

fn epochs() -> Vec<Case> {
    let asked = |name: &str, topic: &'static str, partition: i32, current: i32, epoch: i32| {
        Case::new(format!("OffsetForLeaderEpoch: {name}"), Both("?"), move |_| {
            let body = Body::new()
                .i32(-1)
                .i32(1)
                .str(topic)
                .i32(1)
                .i32(partition)
                .i32(current)
                .i32(epoch);
            Ask::new(ApiKey::OffsetForLeaderEpoch, 3, body)
        })
    };
    vec![
        asked("epoch 99", TOPIC, 0, -1, 99),
        asked("epoch -1", TOPIC, 0, -1, -1),
        asked("epoch -5", TOPIC, 0, -1, -5),
        asked("current epoch 99", TOPIC, 0, 99, 0),
        asked("an unknown topic", "nowhere", 0, -1, 0),
        asked("an unknown partition", TOPIC, 100_000, -1, 0),
        asked("partition -1", TOPIC, -1, -1, 0),
        asked("a topic without a name", "", 0, -1, 0),
        Case::new("OffsetForLeaderEpoch: -1 topics", Both("?"), |_| {
            Ask::new(ApiKey::OffsetForLeaderEpoch, 3, Body::new().i32(-1).i32(-1))
        }),
        Case::new("OffsetForLeaderEpoch: a partition twice", Both("?"), |_| {
            let body = Body::new().i32(-1).i32(1).str(TOPIC).i32(2).i32(0).i32(-1).i32(0);
            Ask::new(ApiKey::OffsetForLeaderEpoch, 3, body.i32(0).i32(-1).i32(0))
        }),
    ]
}

fn delete_records() -> Vec<Case> {
    let asked = |name: &str, topic: &'static str, partition: i32, offset: i64| {
        Case::new(format!("DeleteRecords: {name}"), Both("?"), move |_| {
            let body = Body::new()
                .i32(1)
                .str(topic)
                .i32(1)
                .i32(partition)
                .i64(offset)
                .i32(5_000);
            Ask::new(ApiKey::DeleteRecords, 1, body)
        })
    };
    vec![
        asked("an offset beyond the end", TOPIC, 0, 1_000),
        asked("offset -2", TOPIC, 0, -2),
        asked("offset -2^63", TOPIC, 0, i64::MIN),
        asked("an unknown topic", "nowhere", 0, 0),
        asked("a topic without a name", "", 0, 0),
        asked("an unknown partition", TOPIC, 100_000, 0),
        asked("partition -1", TOPIC, -1, 0),
        asked("a compacted topic", "compacted", 0, 0),
        asked("an internal topic", "__consumer_offsets", 0, 0),
        Case::new("DeleteRecords: a partition twice", Both("?"), |_| {
            let body = Body::new()
                .i32(1)
                .str(TOPIC)
                .i32(2)
                .i32(0)
                .i64(0)
                .i32(0)
                .i64(0)
                .i32(5_000);
            Ask::new(ApiKey::DeleteRecords, 1, body)
        }),
        Case::new("DeleteRecords: no topics", Both("?"), |_| {
            Ask::new(ApiKey::DeleteRecords, 1, Body::new().i32(0).i32(5_000))
        }),
        Case::new("DeleteRecords: -1 topics", Both("?"), |_| {
            Ask::new(ApiKey::DeleteRecords, 1, Body::new().i32(-1).i32(5_000))
        }),
        Case::new("DeleteRecords: a time-out of -1", Both("?"), |_| {
            let body = Body::new().i32(1).str(TOPIC).i32(1).i32(0).i64(0).i32(-1);
            Ask::new(ApiKey::DeleteRecords, 1, body)
        }),
    ]
}

fn describe_producers() -> Vec<Case> {
    let asked = |name: &str, topic: &'static str, partition: i32| {
        Case::new(format!("DescribeProducers: {name}"), Both("?"), move |_| {
            let body = Body::new()
                .compact_count(1)
                .compact_str(topic)
                .compact_count(1)
                .i32(partition);
            Ask::new(ApiKey::DescribeProducers, 0, body.tags().tags())
        })
    };
    vec![
        asked("an unknown topic", "nowhere", 0),
        asked("a topic without a name", "", 0),
        asked("an unknown partition", TOPIC, 100_000),
        asked("partition -1", TOPIC, -1),
    ]
}
