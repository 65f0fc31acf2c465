//! Requests about partitions: Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
//! DescribeProducers.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::{EPOCHS, LIMITS, TWICE, UNNAMED};
use ottla_wire::primitives::Uuid;

use super::case::{Body, Case, Expected, Scene, TOPIC, differ};
use super::exchange::Ask;

use Expected::Both;

/// A Fetch request of version 11 with one partition whose fields can be wrong.
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
        fetch("a sound one", Both("NONE"), |_| {}),
        fetch(
            "an unknown topic",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            |fetch| fetch.topic = "nowhere",
        ),
        fetch(
            "a topic without a name",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            |fetch| fetch.topic = "",
        ),
        fetch(
            "an unknown partition",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            |fetch| fetch.partition = 100_000,
        ),
        fetch(
            "partition -1",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            |fetch| fetch.partition = -1,
        ),
        fetch(
            "an offset beyond the end",
            Both("NONE, OFFSET_OUT_OF_RANGE"),
            |fetch| fetch.offset = 1_000,
        ),
        fetch("offset -1", Both("NONE, OFFSET_OUT_OF_RANGE"), |fetch| {
            fetch.offset = -1
        }),
        fetch("offset -2^63", Both("NONE, OFFSET_OUT_OF_RANGE"), |fetch| {
            fetch.offset = i64::MIN
        }),
        fetch("offset 2^63-1", Both("NONE, OFFSET_OUT_OF_RANGE"), |fetch| {
            fetch.offset = i64::MAX
        }),
        fetch("leader epoch 99", Both("NONE, UNKNOWN_LEADER_EPOCH"), |fetch| {
            fetch.leader_epoch = 99
        }),
        fetch("leader epoch -2", Both("NONE"), |fetch| fetch.leader_epoch = -2),
        fetch(
            "isolation level 2",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            |fetch| fetch.isolation_level = 2,
        ),
        fetch(
            "isolation level -1",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            |fetch| fetch.isolation_level = -1,
        ),
        fetch("max bytes 0", Both("NONE"), |fetch| fetch.max_bytes = 0),
        fetch(
            "max bytes -1",
            differ("NONE, UNKNOWN_SERVER_ERROR", "NONE", &LIMITS),
            |fetch| fetch.max_bytes = -1,
        ),
        fetch("max bytes 2^31-1", Both("NONE"), |fetch| {
            fetch.max_bytes = i32::MAX
        }),
        fetch("partition max bytes 0", Both("NONE"), |fetch| {
            fetch.partition_max_bytes = 0
        }),
        fetch(
            "partition max bytes -1",
            differ("NONE, UNKNOWN_SERVER_ERROR", "NONE", &LIMITS),
            |fetch| fetch.partition_max_bytes = -1,
        ),
        fetch("partition max bytes 2^31-1", Both("NONE"), |fetch| {
            fetch.partition_max_bytes = i32::MAX
        }),
        fetch("both limits 2^31-1", Both("NONE"), |fetch| {
            fetch.max_bytes = i32::MAX;
            fetch.partition_max_bytes = i32::MAX;
        }),
        fetch("min bytes -1", Both("NONE"), |fetch| fetch.min_bytes = -1),
        fetch("min bytes 2^31-1", Both("NONE"), |fetch| {
            fetch.min_bytes = i32::MAX
        }),
        fetch("a wait of -1", Both("NONE"), |fetch| fetch.max_wait_ms = -1),
        fetch(
            "a follower that is none",
            Both("NONE, NOT_LEADER_OR_FOLLOWER"),
            |fetch| fetch.replica_id = 5,
        ),
        fetch("replica -2", Both("NONE"), |fetch| fetch.replica_id = -2),
        fetch("replica -3", Both("NONE"), |fetch| fetch.replica_id = -3),
        fetch("a log start offset", Both("NONE"), |fetch| {
            fetch.log_start_offset = 5
        }),
        raw_fetch("a partition twice", differ("NONE", "NONE", &TWICE), |fetch| {
            let body = fetch.part(fetch.part(fetch.head(1).str(TOPIC).i32(2)));
            body.i32(0).str("")
        }),
        raw_fetch("a topic twice", differ("NONE", "NONE", &TWICE), |fetch| {
            let body = fetch.part(fetch.head(2).str(TOPIC).i32(1));
            fetch.part(body.str(TOPIC).i32(1)).i32(0).str("")
        }),
        raw_fetch("no topics", Both("NONE"), |fetch| fetch.head(0).i32(0).str("")),
        raw_fetch("-1 topics", Both("closed"), |fetch| fetch.head(-1).i32(0).str("")),
        raw_fetch("2^31-1 topics", Both("closed"), |fetch| fetch.head(i32::MAX)),
        raw_fetch("-1 partitions", Both("closed"), |fetch| {
            fetch.head(1).str(TOPIC).i32(-1).i32(0).str("")
        }),
        raw_fetch("a null topic name", Both("closed"), |fetch| {
            fetch.part(fetch.head(1).i16(-1).i32(1)).i32(0).str("")
        }),
        raw_fetch("a null rack", Both("closed"), |fetch| {
            fetch.part(fetch.head(1).str(TOPIC).i32(1)).i32(0).i16(-1)
        }),
        raw_fetch("a cut end", Both("closed"), |fetch| fetch.head(1).str(TOPIC)),
        fetch_by_id("an id that no topic has", Both("NONE, UNKNOWN_TOPIC_ID"), |_| {
            Uuid([7; 16])
        }),
        fetch_by_id("an id of zeros", Both("NONE, UNKNOWN_TOPIC_ID"), |_| {
            Uuid([0; 16])
        }),
        fetch_by_id("an id that a topic has", Both("NONE"), |scene| scene.topic_id),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        fetch(
            "an unknown session",
            Both("FETCH_SESSION_ID_NOT_FOUND"),
            |fetch| {
                fetch.session_id = 77;
                fetch.session_epoch = 3;
            },
        ),
        fetch("an unknown session to be closed", Both("NONE"), |fetch| {
            fetch.session_id = 77
        }),
        fetch("an unknown session to be begun", Both("NONE"), |fetch| {
            fetch.session_id = 77;
            fetch.session_epoch = 0;
        }),
        fetch(
            "no session in epoch 3",
            Both("FETCH_SESSION_ID_NOT_FOUND"),
            |fetch| fetch.session_epoch = 3,
        ),
        fetch(
            "no session in epoch -2",
            Both("FETCH_SESSION_ID_NOT_FOUND"),
            |fetch| fetch.session_epoch = -2,
        ),
        fetch("session -1", Both("FETCH_SESSION_ID_NOT_FOUND"), |fetch| {
            fetch.session_id = -1;
            fetch.session_epoch = 1;
        }),
        raw_fetch(
            "a forgotten topic that nobody asked for",
            Both("NONE"),
            |mut fetch| {
                fetch.session_epoch = 0;
                let body = fetch.part(fetch.head(1).str(TOPIC).i32(1));
                body.i32(1).str("nowhere").i32(1).i32(0).str("")
            },
        ),
        raw_fetch("-1 forgotten topics", Both("closed"), |fetch| {
            fetch.part(fetch.head(1).str(TOPIC).i32(1)).i32(-1).str("")
        }),
    ]
}

fn list_offsets() -> Vec<Case> {
    let asked = |name: &str, expected, version: i16, timestamp: i64| {
        Case::new(format!("ListOffsets: {name}"), expected, move |_| {
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
    let raw = |name: &str, expected, body: fn() -> Body| {
        Case::new(format!("ListOffsets: {name}"), expected, move |_| {
            Ask::new(ApiKey::ListOffsets, 5, body())
        })
    };
    vec![
        asked("latest", Both("NONE"), 5, -1),
        asked("earliest", Both("NONE"), 5, -2),
        asked("max timestamp in version 5", Both("UNSUPPORTED_VERSION"), 5, -3),
        asked("max timestamp", Both("NONE"), 7, -3),
        asked("earliest local in version 7", Both("UNSUPPORTED_VERSION"), 7, -4),
        asked("earliest local", Both("NONE"), 11, -4),
        asked("latest tiered in version 8", Both("UNSUPPORTED_VERSION"), 8, -5),
        asked("latest tiered", Both("NONE"), 11, -5),
        asked(
            "earliest pending upload in version 10",
            Both("UNSUPPORTED_VERSION"),
            10,
            -6,
        ),
        asked("earliest pending upload", Both("NONE"), 11, -6),
        asked("timestamp -7", Both("UNSUPPORTED_VERSION"), 11, -7),
        asked("timestamp -100", Both("UNSUPPORTED_VERSION"), 5, -100),
        asked("timestamp -2^63", Both("UNSUPPORTED_VERSION"), 5, i64::MIN),
        asked("timestamp 2^63-1", Both("NONE"), 5, i64::MAX),
        asked("timestamp 0", Both("NONE"), 5, 0),
        raw("an unknown topic", Both("UNKNOWN_TOPIC_OR_PARTITION"), || {
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
        raw(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            || {
                Body::new()
                    .i32(-1)
                    .i8(0)
                    .i32(1)
                    .str("")
                    .i32(1)
                    .i32(0)
                    .i32(-1)
                    .i64(-1)
            },
        ),
        raw("an unknown partition", Both("UNKNOWN_TOPIC_OR_PARTITION"), || {
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
        raw("partition -1", Both("UNKNOWN_TOPIC_OR_PARTITION"), || {
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
        raw(
            "a partition twice",
            differ("INVALID_REQUEST", "NONE", &TWICE),
            || {
                let body = Body::new().i32(-1).i8(0).i32(1).str(TOPIC).i32(2);
                body.i32(0).i32(-1).i64(-1).i32(0).i32(-1).i64(-2)
            },
        ),
        raw("a topic twice", differ("INVALID_REQUEST", "NONE", &TWICE), || {
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
        raw("leader epoch 99", Both("UNKNOWN_LEADER_EPOCH"), || {
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
        raw(
            "isolation level 2",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            || {
                Body::new()
                    .i32(-1)
                    .i8(2)
                    .i32(1)
                    .str(TOPIC)
                    .i32(1)
                    .i32(0)
                    .i32(-1)
                    .i64(-1)
            },
        ),
        raw(
            "isolation level -1",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            || {
                Body::new()
                    .i32(-1)
                    .i8(-1)
                    .i32(1)
                    .str(TOPIC)
                    .i32(1)
                    .i32(0)
                    .i32(-1)
                    .i64(-1)
            },
        ),
        raw("replica 1", Both("NONE"), || {
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
        raw("replica -2", Both("NONE"), || {
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
        raw("replica 77", Both("NONE"), || {
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
        raw("no topics", Both("no code"), || Body::new().i32(-1).i8(0).i32(0)),
        raw("-1 topics", Both("closed"), || Body::new().i32(-1).i8(0).i32(-1)),
        raw("-1 partitions", Both("closed"), || {
            Body::new().i32(-1).i8(0).i32(1).str(TOPIC).i32(-1)
        }),
    ]
}

fn epochs() -> Vec<Case> {
    let asked = |name: &str, expected, topic: &'static str, partition: i32, current: i32, epoch: i32| {
        Case::new(format!("OffsetForLeaderEpoch: {name}"), expected, move |_| {
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
        asked("epoch 99", Both("NONE"), TOPIC, 0, -1, 99),
        asked("epoch -1", Both("NONE"), TOPIC, 0, -1, -1),
        asked("epoch -5", differ("NONE", "NONE", &EPOCHS), TOPIC, 0, -1, -5),
        asked("current epoch 99", Both("UNKNOWN_LEADER_EPOCH"), TOPIC, 0, 99, 0),
        asked(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "nowhere",
            0,
            -1,
            0,
        ),
        asked(
            "an unknown partition",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            TOPIC,
            100_000,
            -1,
            0,
        ),
        asked(
            "partition -1",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            TOPIC,
            -1,
            -1,
            0,
        ),
        asked(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "",
            0,
            -1,
            0,
        ),
        Case::new("OffsetForLeaderEpoch: -1 topics", Both("closed"), |_| {
            Ask::new(ApiKey::OffsetForLeaderEpoch, 3, Body::new().i32(-1).i32(-1))
        }),
        Case::new("OffsetForLeaderEpoch: a partition twice", Both("NONE"), |_| {
            let body = Body::new().i32(-1).i32(1).str(TOPIC).i32(2).i32(0).i32(-1).i32(0);
            Ask::new(ApiKey::OffsetForLeaderEpoch, 3, body.i32(0).i32(-1).i32(0))
        }),
    ]
}

fn delete_records() -> Vec<Case> {
    let asked = |name: &str, expected, topic: &'static str, partition: i32, offset: i64| {
        Case::new(format!("DeleteRecords: {name}"), expected, move |_| {
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
        asked(
            "an offset beyond the end",
            Both("OFFSET_OUT_OF_RANGE"),
            TOPIC,
            0,
            1_000,
        ),
        asked("offset -2", Both("OFFSET_OUT_OF_RANGE"), TOPIC, 0, -2),
        asked("offset -2^63", Both("OFFSET_OUT_OF_RANGE"), TOPIC, 0, i64::MIN),
        asked(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "nowhere",
            0,
            0,
        ),
        asked(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "",
            0,
            0,
        ),
        asked(
            "an unknown partition",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            TOPIC,
            100_000,
            0,
        ),
        asked("partition -1", Both("UNKNOWN_TOPIC_OR_PARTITION"), TOPIC, -1, 0),
        asked("a compacted topic", Both("POLICY_VIOLATION"), "compacted", 0, 0),
        asked(
            "an internal topic",
            Both("INVALID_TOPIC_EXCEPTION"),
            "__consumer_offsets",
            0,
            0,
        ),
        Case::new(
            "DeleteRecords: a partition twice",
            differ("NONE", "NONE", &TWICE),
            |_| {
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
            },
        ),
        Case::new("DeleteRecords: no topics", Both("no code"), |_| {
            Ask::new(ApiKey::DeleteRecords, 1, Body::new().i32(0).i32(5_000))
        }),
        Case::new("DeleteRecords: -1 topics", Both("closed"), |_| {
            Ask::new(ApiKey::DeleteRecords, 1, Body::new().i32(-1).i32(5_000))
        }),
        Case::new("DeleteRecords: a time-out of -1", Both("NONE"), |_| {
            let body = Body::new().i32(1).str(TOPIC).i32(1).i32(0).i64(0).i32(-1);
            Ask::new(ApiKey::DeleteRecords, 1, body)
        }),
    ]
}

fn describe_producers() -> Vec<Case> {
    let asked = |name: &str, expected, topic: &'static str, partition: i32| {
        Case::new(format!("DescribeProducers: {name}"), expected, move |_| {
            let body = Body::new()
                .compact_count(1)
                .compact_str(topic)
                .compact_count(1)
                .i32(partition);
            Ask::new(ApiKey::DescribeProducers, 0, body.tags().tags())
        })
    };
    vec![
        asked(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "nowhere",
            0,
        ),
        asked("a topic without a name", Both("INVALID_TOPIC_EXCEPTION"), "", 0),
        asked(
            "an unknown partition",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            TOPIC,
            100_000,
        ),
        asked("partition -1", Both("UNKNOWN_TOPIC_OR_PARTITION"), TOPIC, -1),
    ]
}
