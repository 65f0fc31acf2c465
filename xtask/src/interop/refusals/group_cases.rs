//! Requests to a group coordinator.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::{NEGATIVE, PROTOCOLS, TEXT, TWICE};
use ottla_wire::primitives::Uuid;

use super::case::{Body, Case, Expected, Scene, TOPIC, differ};
use super::exchange::Ask;

use Expected::Both;

fn case(
    api_key: ApiKey,
    version: i16,
    name: &str,
    expected: Expected,
    body: impl Fn(&Scene) -> Body + 'static,
) -> Case {
    Case::new(format!("{api_key}: {name}"), expected, move |scene| {
        Ask::new(api_key, version, body(scene))
    })
}

/// A case whose body does not depend on the scene.
fn plain(api_key: ApiKey, version: i16, name: &str, expected: Expected, body: Body) -> Case {
    case(api_key, version, name, expected, move |_| body.clone())
}

pub fn cases() -> Vec<Case> {
    let mut cases = coordinators();
    cases.extend(joins());
    cases.extend(members());
    cases.extend(commits());
    cases.extend(committed());
    cases.extend(administration());
    cases
}

fn coordinators() -> Vec<Case> {
    let find = |name: &str, expected, key: &str, key_type: i8| {
        plain(
            ApiKey::FindCoordinator,
            2,
            name,
            expected,
            Body::new().str(key).i8(key_type),
        )
    };
    let find_many = |name: &str, expected, key_type: i8, keys: &[&str]| {
        let body = Body::new().i8(key_type).compact_count(keys.len());
        let body = keys.iter().fold(body, |body, key| body.compact_str(key));
        plain(ApiKey::FindCoordinator, 4, name, expected, body.tags())
    };
    vec![
        find("a group", Both("NONE"), "some", 0),
        find("a group without a name", Both("NONE"), "", 0),
        find("key type 2 in version 2", Both("INVALID_REQUEST"), "some", 2),
        find("key type 9", Both("INVALID_REQUEST"), "some", 9),
        find("key type -1", Both("INVALID_REQUEST"), "some", -1),
        find_many("no keys", Both("NONE"), 0, &[]),
        find_many("a key twice", Both("NONE"), 0, &["some", "some"]),
        find_many(
            "a key without a name beside one with",
            Both("NONE"),
            0,
            &["", "some"],
        ),
        find_many(
            "key type 9 of version 4",
            Both("NONE, INVALID_REQUEST"),
            9,
            &["some"],
        ),
        plain(
            ApiKey::FindCoordinator,
            2,
            "a null key",
            Both("closed"),
            Body::new().i16(-1).i8(0),
        ),
        plain(
            ApiKey::FindCoordinator,
            4,
            "null keys",
            Both("closed"),
            Body::new().i8(0).uvarint(0).tags(),
        ),
    ]
}

#[derive(Clone)]
struct Join {
    group: &'static str,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    member: &'static str,
    protocol_type: &'static str,
    protocols: Vec<(&'static str, &'static [u8])>,
}

fn join(name: &str, expected: Expected, change: fn(&mut Join)) -> Case {
    let mut join = Join {
        group: "joined",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member: "",
        protocol_type: "consumer",
        protocols: vec![("range", b"")],
    };
    change(&mut join);
    plain(ApiKey::JoinGroup, 5, name, expected, join.body())
}

impl Join {
    fn body(&self) -> Body {
        let body = Body::new()
            .str(self.group)
            .i32(self.session_timeout_ms)
            .i32(self.rebalance_timeout_ms)
            .str(self.member)
            .i16(-1)
            .str(self.protocol_type)
            .i32(self.protocols.len() as i32);
        self.protocols
            .iter()
            .fold(body, |body, (name, metadata)| body.str(name).bytes(metadata))
    }
}

fn joins() -> Vec<Case> {
    let head = || {
        Body::new()
            .str("joined")
            .i32(10_000)
            .i32(10_000)
            .str("")
            .i16(-1)
            .str("consumer")
    };
    vec![
        join("a newcomer", Both("MEMBER_ID_REQUIRED"), |_| {}),
        join("a group without a name", Both("INVALID_GROUP_ID"), |join| {
            join.group = ""
        }),
        join("a session of 1 ms", Both("INVALID_SESSION_TIMEOUT"), |join| {
            join.session_timeout_ms = 1
        }),
        join(
            "a session of 2^31-1 ms",
            Both("INVALID_SESSION_TIMEOUT"),
            |join| join.session_timeout_ms = i32::MAX,
        ),
        join("a session of -1 ms", Both("INVALID_SESSION_TIMEOUT"), |join| {
            join.session_timeout_ms = -1
        }),
        join("a rebalance time-out of -1", Both("MEMBER_ID_REQUIRED"), |join| {
            join.rebalance_timeout_ms = -1
        }),
        join("an unknown member", Both("UNKNOWN_MEMBER_ID"), |join| {
            join.member = "nobody"
        }),
        join("no protocol type", Both("INCONSISTENT_GROUP_PROTOCOL"), |join| {
            join.protocol_type = ""
        }),
        join("no protocols", Both("INCONSISTENT_GROUP_PROTOCOL"), |join| {
            join.protocols.clear()
        }),
        join("a protocol without a name", Both("MEMBER_ID_REQUIRED"), |join| {
            join.protocols = vec![("", b"")]
        }),
        join(
            "a protocol twice",
            differ("MEMBER_ID_REQUIRED", "INCONSISTENT_GROUP_PROTOCOL", &PROTOCOLS),
            |join| join.protocols = vec![("range", b"a"), ("range", b"b")],
        ),
        join("metadata that is none", Both("MEMBER_ID_REQUIRED"), |join| {
            join.protocols = vec![("range", b"\xff\xff\xff\xff\xff\xff")]
        }),
        plain(
            ApiKey::JoinGroup,
            5,
            "-1 protocols",
            Both("closed"),
            head().i32(-1),
        ),
        plain(
            ApiKey::JoinGroup,
            5,
            "2^31-1 protocols",
            Both("closed"),
            head().i32(i32::MAX),
        ),
        plain(
            ApiKey::JoinGroup,
            5,
            "null metadata",
            Both("closed"),
            head().i32(1).str("range").i32(-1),
        ),
        plain(
            ApiKey::JoinGroup,
            5,
            "a null group",
            Both("closed"),
            Body::new().i16(-1).i32(10_000),
        ),
        plain(
            ApiKey::JoinGroup,
            5,
            "a group that is no UTF-8",
            differ("MEMBER_ID_REQUIRED", "closed", &TEXT),
            {
                let body = Body::new()
                    .i16(2)
                    .raw(b"\xff\xfe")
                    .i32(10_000)
                    .i32(10_000)
                    .str("")
                    .i16(-1);
                body.str("consumer").i32(1).str("range").bytes(b"")
            },
        ),
        plain(ApiKey::JoinGroup, 5, "an empty instance id", Both("NONE"), {
            let body = Body::new()
                .str("nameless")
                .i32(10_000)
                .i32(10_000)
                .str("")
                .str("");
            body.str("consumer").i32(1).str("range").bytes(b"")
        }),
        plain(
            ApiKey::JoinGroup,
            5,
            "an instance id with a slash",
            Both("NONE"),
            {
                let body = Body::new()
                    .str("slashed")
                    .i32(10_000)
                    .i32(10_000)
                    .str("")
                    .str("a/b");
                body.str("consumer").i32(1).str("range").bytes(b"")
            },
        ),
    ]
}

fn members() -> Vec<Case> {
    let sync = |name: &str, expected, group: &str, generation: i32, member: &str| {
        let body = Body::new().str(group).i32(generation).str(member).i16(-1).i32(0);
        plain(ApiKey::SyncGroup, 3, name, expected, body)
    };
    let beat = |name: &str, expected, group: &str, generation: i32, member: &str| {
        let body = Body::new().str(group).i32(generation).str(member).i16(-1);
        plain(ApiKey::Heartbeat, 3, name, expected, body)
    };
    let leave = |name: &str, expected, group: &str, members: &[&str]| {
        let body = Body::new().str(group).i32(members.len() as i32);
        let body = members.iter().fold(body, |body, member| body.str(member).i16(-1));
        plain(ApiKey::LeaveGroup, 3, name, expected, body)
    };
    vec![
        sync("an unknown group", Both("UNKNOWN_MEMBER_ID"), "nobody", 1, "m"),
        sync("a group without a name", Both("INVALID_GROUP_ID"), "", 1, "m"),
        sync("generation -1", Both("UNKNOWN_MEMBER_ID"), "nobody", -1, "m"),
        sync("no member", Both("UNKNOWN_MEMBER_ID"), "nobody", 1, ""),
        plain(
            ApiKey::SyncGroup,
            3,
            "-1 assignments",
            Both("closed"),
            Body::new().str("g").i32(1).str("m").i16(-1).i32(-1),
        ),
        plain(
            ApiKey::SyncGroup,
            5,
            "no protocol in version 5",
            Both("INCONSISTENT_GROUP_PROTOCOL"),
            {
                let body = Body::new()
                    .compact_str("nobody")
                    .i32(1)
                    .compact_str("m")
                    .uvarint(0)
                    .uvarint(0)
                    .uvarint(0);
                body.compact_count(0).tags()
            },
        ),
        beat("an unknown group", Both("UNKNOWN_MEMBER_ID"), "nobody", 1, "m"),
        beat("a group without a name", Both("INVALID_GROUP_ID"), "", 1, "m"),
        beat("generation -1", Both("UNKNOWN_MEMBER_ID"), "nobody", -1, "m"),
        beat("no member", Both("UNKNOWN_MEMBER_ID"), "nobody", 1, ""),
        plain(
            ApiKey::Heartbeat,
            3,
            "a null member",
            Both("closed"),
            Body::new().str("g").i32(1).i16(-1).i16(-1),
        ),
        leave(
            "an unknown group",
            Both("NONE, UNKNOWN_MEMBER_ID"),
            "nobody",
            &["m"],
        ),
        leave("a group without a name", Both("INVALID_GROUP_ID"), "", &["m"]),
        leave("nobody", Both("NONE"), "nobody", &[]),
        leave(
            "a member twice",
            Both("NONE, UNKNOWN_MEMBER_ID"),
            "nobody",
            &["m", "m"],
        ),
        plain(
            ApiKey::LeaveGroup,
            3,
            "-1 members",
            Both("closed"),
            Body::new().str("g").i32(-1),
        ),
    ]
}

/// An OffsetCommit request of version 7 with one partition whose fields can be wrong.
#[derive(Clone)]
struct Commit {
    group: &'static str,
    generation: i32,
    member: &'static str,
    topic: &'static str,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<String>,
}

impl Commit {
    fn head(&self, topics: i32) -> Body {
        Body::new()
            .str(self.group)
            .i32(self.generation)
            .str(self.member)
            .i16(-1)
            .i32(topics)
    }

    fn part(&self, body: Body) -> Body {
        let body = body.i32(self.partition).i64(self.offset).i32(self.leader_epoch);
        match &self.metadata {
            Some(metadata) => body.str(metadata),
            None => body.i16(-1),
        }
    }
}

fn raw_commit(name: &str, expected: Expected, body: impl Fn(Commit) -> Body + 'static) -> Case {
    let commit = Commit {
        group: "committed",
        generation: -1,
        member: "",
        topic: TOPIC,
        partition: 0,
        offset: 2,
        leader_epoch: -1,
        metadata: None,
    };
    plain(ApiKey::OffsetCommit, 7, name, expected, body(commit))
}

fn commit(name: &str, expected: Expected, change: fn(&mut Commit)) -> Case {
    raw_commit(name, expected, move |mut commit| {
        change(&mut commit);
        commit.part(commit.head(1).str(commit.topic).i32(1))
    })
}

fn commits() -> Vec<Case> {
    let by_id = |name: &str, expected, id: fn(&Scene) -> Uuid| {
        case(ApiKey::OffsetCommit, 10, name, expected, move |scene| {
            let body = Body::new()
                .compact_str("committed")
                .i32(-1)
                .compact_str("")
                .uvarint(0)
                .compact_count(1);
            let body = body
                .uuid(id(scene))
                .compact_count(1)
                .i32(0)
                .i64(2)
                .i32(-1)
                .uvarint(0);
            body.tags().tags().tags()
        })
    };
    vec![
        commit("a sound one", Both("NONE"), |_| {}),
        commit("a group without a name", Both("NONE"), |commit| commit.group = ""),
        commit("a member of no generation", Both("NONE"), |commit| {
            commit.member = "nobody"
        }),
        commit("generation 5 of nobody", Both("UNKNOWN_MEMBER_ID"), |commit| {
            commit.generation = 5
        }),
        commit("generation 5 of somebody", Both("UNKNOWN_MEMBER_ID"), |commit| {
            commit.generation = 5;
            commit.member = "nobody";
        }),
        commit("generation -2", Both("NONE"), |commit| commit.generation = -2),
        commit("an unknown topic", Both("UNKNOWN_TOPIC_OR_PARTITION"), |commit| {
            commit.topic = "nowhere"
        }),
        commit(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            |commit| commit.topic = "",
        ),
        commit(
            "an unknown partition",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            |commit| commit.partition = 100_000,
        ),
        commit("partition -1", Both("UNKNOWN_TOPIC_OR_PARTITION"), |commit| {
            commit.partition = -1
        }),
        commit("offset -5", Both("NONE"), |commit| commit.offset = -5),
        commit("offset -1", Both("NONE"), |commit| commit.offset = -1),
        commit("offset 2^63-1", Both("NONE"), |commit| commit.offset = i64::MAX),
        commit("leader epoch -5", Both("NONE"), |commit| commit.leader_epoch = -5),
        commit("leader epoch 99", Both("NONE"), |commit| commit.leader_epoch = 99),
        commit("metadata of 4096 bytes", Both("NONE"), |commit| {
            commit.metadata = Some("m".repeat(4_096))
        }),
        commit(
            "metadata of 4097 bytes",
            Both("OFFSET_METADATA_TOO_LARGE"),
            |commit| commit.metadata = Some("m".repeat(4_097)),
        ),
        raw_commit("a partition twice", Both("NONE"), |commit| {
            commit.part(commit.part(commit.head(1).str(TOPIC).i32(2)))
        }),
        raw_commit("a topic twice", Both("NONE"), |commit| {
            let body = commit.part(commit.head(2).str(TOPIC).i32(1));
            commit.part(body.str(TOPIC).i32(1))
        }),
        raw_commit("no topics", Both("no code"), |commit| commit.head(0)),
        raw_commit("-1 topics", Both("closed"), |commit| commit.head(-1)),
        raw_commit("-1 partitions", Both("closed"), |commit| {
            commit.head(1).str(TOPIC).i32(-1)
        }),
        raw_commit("2^31-1 partitions", Both("closed"), |commit| {
            commit.head(1).str(TOPIC).i32(i32::MAX)
        }),
        by_id("an id that no topic has", Both("UNKNOWN_TOPIC_ID"), |_| {
            Uuid([7; 16])
        }),
        by_id("an id of zeros", Both("UNKNOWN_TOPIC_ID"), |_| Uuid([0; 16])),
        by_id("an id that a topic has", Both("NONE"), |scene| scene.topic_id),
    ]
}

fn committed() -> Vec<Case> {
    let fetch = |name: &str, expected, body: Body| plain(ApiKey::OffsetFetch, 5, name, expected, body);
    let of_groups = |name: &str, expected, groups: &[&str]| {
        let body = Body::new().compact_count(groups.len());
        let body = groups
            .iter()
            .fold(body, |body, group| body.compact_str(group).uvarint(0).tags());
        plain(ApiKey::OffsetFetch, 8, name, expected, body.i8(0).tags())
    };
    vec![
        fetch(
            "what was committed",
            Both("NONE"),
            Body::new().str("committed").i32(1).str(TOPIC).i32(1).i32(0),
        ),
        fetch(
            "an unknown group",
            Both("NONE"),
            Body::new().str("nobody").i32(1).str(TOPIC).i32(1).i32(0),
        ),
        fetch(
            "a group without a name",
            Both("NONE"),
            Body::new().str("").i32(1).str(TOPIC).i32(1).i32(0),
        ),
        fetch(
            "all topics of nobody",
            Both("NONE"),
            Body::new().str("nobody").i32(-1),
        ),
        fetch("no topics", Both("NONE"), Body::new().str("committed").i32(0)),
        fetch(
            "-2 topics",
            differ("NONE", "closed", &NEGATIVE),
            Body::new().str("committed").i32(-2),
        ),
        fetch(
            "an unknown topic",
            Both("NONE"),
            Body::new().str("committed").i32(1).str("nowhere").i32(1).i32(0),
        ),
        fetch(
            "an unknown partition",
            Both("NONE"),
            Body::new().str("committed").i32(1).str(TOPIC).i32(1).i32(100_000),
        ),
        fetch(
            "partition -1",
            Both("NONE"),
            Body::new().str("committed").i32(1).str(TOPIC).i32(1).i32(-1),
        ),
        fetch(
            "a partition twice",
            Both("NONE"),
            Body::new()
                .str("committed")
                .i32(1)
                .str(TOPIC)
                .i32(2)
                .i32(0)
                .i32(0),
        ),
        fetch(
            "-1 partitions",
            Both("closed"),
            Body::new().str("committed").i32(1).str(TOPIC).i32(-1),
        ),
        of_groups("no groups", Both("NONE"), &[]),
        of_groups("a group twice", Both("NONE"), &["nobody", "nobody"]),
        of_groups(
            "a group without a name beside one with",
            Both("NONE"),
            &["", "nobody"],
        ),
        plain(
            ApiKey::OffsetFetch,
            9,
            "a member epoch of nobody",
            Both("NONE"),
            {
                let body = Body::new()
                    .compact_count(1)
                    .compact_str("nobody")
                    .compact_str("m")
                    .i32(5)
                    .uvarint(0)
                    .tags();
                body.i8(0).tags()
            },
        ),
        case(
            ApiKey::OffsetFetch,
            10,
            "an id that no topic has",
            Both("NONE, UNKNOWN_TOPIC_ID"),
            |_| by_id(Uuid([7; 16])),
        ),
        case(
            ApiKey::OffsetFetch,
            10,
            "an id of zeros",
            Both("NONE, UNKNOWN_TOPIC_ID"),
            |_| by_id(Uuid([0; 16])),
        ),
        case(
            ApiKey::OffsetFetch,
            10,
            "an id that a topic has",
            Both("NONE"),
            |scene| by_id(scene.topic_id),
        ),
    ]
}

/// An OffsetFetch request of version 10 for partition 0 of one topic.
fn by_id(id: Uuid) -> Body {
    let body = Body::new()
        .compact_count(1)
        .compact_str("committed")
        .uvarint(0)
        .i32(-1)
        .compact_count(1);
    body.uuid(id).compact_count(1).i32(0).tags().tags().i8(0).tags()
}

fn administration() -> Vec<Case> {
    let describe = |name: &str, expected, groups: &[&str]| {
        let body = Body::new().i32(groups.len() as i32);
        let body = groups.iter().fold(body, |body, group| body.str(group));
        plain(ApiKey::DescribeGroups, 4, name, expected, body.i8(0))
    };
    let delete = |name: &str, expected, groups: &[&str]| {
        let body = Body::new().i32(groups.len() as i32);
        let body = groups.iter().fold(body, |body, group| body.str(group));
        plain(ApiKey::DeleteGroups, 1, name, expected, body)
    };
    let list = |name: &str, expected, version: i16, states: &[&str], types: &[&str]| {
        let strings = |body: Body, texts: &[&str]| {
            let body = body.compact_count(texts.len());
            texts.iter().fold(body, |body, text| body.compact_str(text))
        };
        let body = strings(Body::new(), states);
        let body = if version >= 5 { strings(body, types) } else { body };
        plain(ApiKey::ListGroups, version, name, expected, body.tags())
    };
    let forget = |name: &str, expected, group: &str, topic: &str, partition: i32| {
        let body = Body::new().str(group).i32(1).str(topic).i32(1).i32(partition);
        plain(ApiKey::OffsetDelete, 0, name, expected, body)
    };
    vec![
        describe("an unknown group", Both("NONE"), &["nobody"]),
        describe("a group without a name", Both("NONE"), &[""]),
        describe("a group twice", Both("NONE"), &["nobody", "nobody"]),
        describe("no groups", Both("no code"), &[]),
        plain(
            ApiKey::DescribeGroups,
            6,
            "an unknown group in version 6",
            Both("GROUP_ID_NOT_FOUND"),
            Body::new().compact_count(1).compact_str("nobody").i8(0).tags(),
        ),
        plain(
            ApiKey::DescribeGroups,
            4,
            "-1 groups",
            Both("closed"),
            Body::new().i32(-1).i8(0),
        ),
        delete("an unknown group", Both("GROUP_ID_NOT_FOUND"), &["nobody"]),
        delete("a group without a name", Both("NONE"), &[""]),
        delete(
            "a group twice",
            differ("GROUP_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND", &TWICE),
            &["nobody", "nobody"],
        ),
        delete("no groups", Both("no code"), &[]),
        list("a state that is none", Both("NONE"), 4, &["Nonsense"], &[]),
        list("a state without a name", Both("NONE"), 4, &[""], &[]),
        list("a type that is none", Both("NONE"), 5, &[], &["Nonsense"]),
        forget("an unknown group", Both("GROUP_ID_NOT_FOUND"), "nobody", TOPIC, 0),
        forget("a group without a name", Both("INVALID_GROUP_ID"), "", TOPIC, 0),
        forget(
            "an unknown topic",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            "committed",
            "nowhere",
            0,
        ),
        forget(
            "an unknown partition",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            "committed",
            TOPIC,
            100_000,
        ),
        forget(
            "partition -1",
            Both("NONE, UNKNOWN_TOPIC_OR_PARTITION"),
            "committed",
            TOPIC,
            -1,
        ),
    ]
}
