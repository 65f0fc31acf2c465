//! Requests to the controller and about the cluster.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::{NEGATIVE, TWICE, UNNAMED, VERSIONS};
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

fn plain(api_key: ApiKey, version: i16, name: &str, expected: Expected, body: Body) -> Case {
    case(api_key, version, name, expected, move |_| body.clone())
}

pub fn cases() -> Vec<Case> {
    let mut cases = create_topics();
    cases.extend(other_topics());
    cases.extend(partitions());
    cases.extend(metadata());
    cases.extend(configs());
    cases.extend(producer_ids());
    cases.extend(versions());
    cases
}

/// A CreateTopics request of version 4 with one topic whose fields can be wrong. It is only
/// validated by default.
#[derive(Clone)]
struct New {
    name: String,
    partitions: i32,
    replication_factor: i16,
    assignments: Vec<(i32, Vec<i32>)>,
    configs: Vec<(&'static str, Option<&'static str>)>,
    validate_only: bool,
    times: i32,
}

fn create(name: &str, expected: Expected, change: fn(&mut New)) -> Case {
    let mut new = New {
        name: "new".into(),
        partitions: 1,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: Vec::new(),
        validate_only: true,
        times: 1,
    };
    change(&mut new);
    plain(ApiKey::CreateTopics, 4, name, expected, new.body())
}

impl New {
    fn body(&self) -> Body {
        let mut body = Body::new().i32(self.times);
        for _ in 0..self.times {
            body = body
                .str(&self.name)
                .i32(self.partitions)
                .i16(self.replication_factor);
            body = body.i32(self.assignments.len() as i32);
            for (partition, replicas) in &self.assignments {
                body = body.i32(*partition).i32(replicas.len() as i32);
                body = replicas.iter().fold(body, |body, replica| body.i32(*replica));
            }
            body = body.i32(self.configs.len() as i32);
            for (key, value) in &self.configs {
                body = body.str(key);
                body = match value {
                    Some(value) => body.str(value),
                    None => body.i16(-1),
                };
            }
        }
        body.i32(5_000).i8(self.validate_only.into())
    }
}

fn create_topics() -> Vec<Case> {
    vec![
        create("a sound one", Both("NONE"), |_| {}),
        create("no name", Both("INVALID_TOPIC_EXCEPTION, NONE"), |new| {
            new.name.clear()
        }),
        create(
            "a name with a slash",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            |new| new.name = "a/b".into(),
        ),
        create(
            "a name with a space",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            |new| new.name = "a b".into(),
        ),
        create(
            "a name of one dot",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            |new| new.name = ".".into(),
        ),
        create(
            "a name of two dots",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            |new| new.name = "..".into(),
        ),
        create("a name of 249 characters", Both("NONE"), |new| {
            new.name = "n".repeat(249)
        }),
        create(
            "a name of 250 characters",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            |new| new.name = "n".repeat(250),
        ),
        create(
            "a name that is taken",
            Both("TOPIC_ALREADY_EXISTS, NONE"),
            |new| new.name = TOPIC.into(),
        ),
        create(
            "the name of an internal topic",
            Both("TOPIC_ALREADY_EXISTS, NONE"),
            |new| new.name = "__consumer_offsets".into(),
        ),
        create(
            "the name of the metadata log",
            Both("INVALID_REQUEST, NONE"),
            |new| new.name = "__cluster_metadata".into(),
        ),
        create(
            "a topic twice",
            differ("INVALID_REQUEST, NONE", "INVALID_REQUEST, NONE", &TWICE),
            |new| new.times = 2,
        ),
        create("0 partitions", Both("INVALID_PARTITIONS, NONE"), |new| {
            new.partitions = 0
        }),
        create("-1 partitions", Both("NONE"), |new| new.partitions = -1),
        create("-2 partitions", Both("INVALID_PARTITIONS, NONE"), |new| {
            new.partitions = -2
        }),
        create("2^31-1 partitions", Both("POLICY_VIOLATION, NONE"), |new| {
            new.partitions = i32::MAX
        }),
        create(
            "replication factor 0",
            Both("INVALID_REPLICATION_FACTOR, NONE"),
            |new| new.replication_factor = 0,
        ),
        create("replication factor -1", Both("NONE"), |new| {
            new.replication_factor = -1
        }),
        create(
            "replication factor -2",
            Both("INVALID_REPLICATION_FACTOR, NONE"),
            |new| new.replication_factor = -2,
        ),
        create(
            "replication factor 2",
            Both("INVALID_REPLICATION_FACTOR, NONE"),
            |new| new.replication_factor = 2,
        ),
        create(
            "partitions and assignments",
            Both("INVALID_REQUEST, NONE"),
            |new| new.assignments = vec![(0, vec![1])],
        ),
        create(
            "an assignment to an unknown broker",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(0, vec![77])];
            },
        ),
        create(
            "an assignment to nobody",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(0, vec![])];
            },
        ),
        create(
            "an assignment to one broker twice",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(0, vec![1, 1])];
            },
        ),
        create(
            "assignments with a gap",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(0, vec![1]), (2, vec![1])];
            },
        ),
        create(
            "an assignment twice",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(0, vec![1]), (0, vec![1])];
            },
        ),
        create(
            "an assignment of partition -1",
            Both("INVALID_REPLICA_ASSIGNMENT, NONE"),
            |new| {
                (new.partitions, new.replication_factor) = (-1, -1);
                new.assignments = vec![(-1, vec![1])];
            },
        ),
        create("an unknown setting", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("nonsense", Some("1"))]
        }),
        create("a setting without a name", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("", Some("1"))]
        }),
        create("a value that is no number", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("retention.ms", Some("soon"))]
        }),
        create("a value out of range", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("segment.bytes", Some("-5"))]
        }),
        create("a null value", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("retention.ms", None)]
        }),
        create("a setting twice", Both("NONE"), |new| {
            new.configs = vec![("retention.ms", Some("5")), ("retention.ms", Some("6"))];
        }),
        create("a policy that is none", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("cleanup.policy", Some("burn"))]
        }),
        create("a codec that is none", Both("INVALID_CONFIG, NONE"), |new| {
            new.configs = vec![("compression.type", Some("rar"))]
        }),
        create("no topics", Both("no code"), |new| new.times = 0),
        plain(
            ApiKey::CreateTopics,
            4,
            "-1 topics",
            Both("closed"),
            Body::new().i32(-1).i32(5_000).i8(1),
        ),
        plain(
            ApiKey::CreateTopics,
            4,
            "a null name",
            Both("closed"),
            Body::new()
                .i32(1)
                .i16(-1)
                .i32(1)
                .i16(1)
                .i32(0)
                .i32(0)
                .i32(5_000)
                .i8(1),
        ),
    ]
}

fn other_topics() -> Vec<Case> {
    let delete = |name: &str, expected, topics: &[&str]| {
        let body = Body::new().i32(topics.len() as i32);
        let body = topics.iter().fold(body, |body, topic| body.str(topic));
        plain(ApiKey::DeleteTopics, 3, name, expected, body.i32(5_000))
    };
    // Version 6: a nullable name and an id for each.
    let by_id = |name: &str, expected, topic: Option<&str>, id: [u8; 16]| {
        let body = Body::new().compact_count(1);
        let body = match topic {
            Some(topic) => body.compact_str(topic),
            None => body.uvarint(0),
        };
        plain(
            ApiKey::DeleteTopics,
            6,
            name,
            expected,
            body.uuid(Uuid(id)).tags().i32(5_000).tags(),
        )
    };
    let more = |name: &str, expected, topic: &str, count: i32, times: i32| {
        let one = |body: Body| body.str(topic).i32(count).i32(-1);
        let body = (0..times).fold(Body::new().i32(times), |body, _| one(body));
        plain(ApiKey::CreatePartitions, 1, name, expected, body.i32(5_000).i8(1))
    };
    vec![
        delete(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            &["nowhere"],
        ),
        delete("no name", Both("UNKNOWN_TOPIC_OR_PARTITION"), &[""]),
        delete("a topic twice", Both("INVALID_REQUEST"), &["nowhere", "nowhere"]),
        delete("no topics", Both("no code"), &[]),
        by_id("an id that no topic has", Both("UNKNOWN_TOPIC_ID"), None, [7; 16]),
        by_id(
            "an id of zeros and no name",
            Both("INVALID_REQUEST"),
            None,
            [0; 16],
        ),
        by_id("a name and an id", Both("INVALID_REQUEST"), Some(TOPIC), [7; 16]),
        by_id(
            "an empty name and no id",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            Some(""),
            [0; 16],
        ),
        more(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "nowhere",
            5,
            1,
        ),
        more(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            "",
            5,
            1,
        ),
        more("as many as there are", Both("INVALID_PARTITIONS"), "tight", 20, 1),
        more("fewer than there are", Both("INVALID_PARTITIONS"), "tight", 5, 1),
        more("0 partitions", Both("INVALID_PARTITIONS"), "tight", 0, 1),
        more("-1 partitions", Both("INVALID_PARTITIONS"), "tight", -1, 1),
        more(
            "2^31-1 partitions",
            differ("UNKNOWN_SERVER_ERROR", "POLICY_VIOLATION", &UNNAMED),
            "tight",
            i32::MAX,
            1,
        ),
        more(
            "a topic twice",
            differ("INVALID_REQUEST", "INVALID_REQUEST", &TWICE),
            "tight",
            30,
            2,
        ),
        plain(
            ApiKey::CreatePartitions,
            1,
            "assignments that are too few",
            Both("INVALID_REPLICA_ASSIGNMENT"),
            {
                Body::new()
                    .i32(1)
                    .str("tight")
                    .i32(22)
                    .i32(1)
                    .i32(1)
                    .i32(1)
                    .i32(5_000)
                    .i8(1)
            },
        ),
        plain(
            ApiKey::CreatePartitions,
            1,
            "an assignment to an unknown broker",
            Both("INVALID_REPLICA_ASSIGNMENT"),
            {
                Body::new()
                    .i32(1)
                    .str("tight")
                    .i32(21)
                    .i32(1)
                    .i32(1)
                    .i32(77)
                    .i32(5_000)
                    .i8(1)
            },
        ),
        plain(
            ApiKey::CreatePartitions,
            1,
            "an assignment to nobody",
            Both("INVALID_REPLICA_ASSIGNMENT"),
            {
                Body::new()
                    .i32(1)
                    .str("tight")
                    .i32(21)
                    .i32(1)
                    .i32(0)
                    .i32(5_000)
                    .i8(1)
            },
        ),
    ]
}

fn partitions() -> Vec<Case> {
    let ask = |name: &str, expected, topics: &[&str], limit: i32, cursor: Option<(&str, i32)>| {
        let body = Body::new().compact_count(topics.len());
        let body = topics
            .iter()
            .fold(body, |body, topic| body.compact_str(topic).tags());
        let body = body.i32(limit);
        let body = match cursor {
            Some((topic, partition)) => body.i8(1).compact_str(topic).i32(partition).tags(),
            None => body.i8(-1),
        };
        plain(ApiKey::DescribeTopicPartitions, 0, name, expected, body.tags())
    };
    vec![
        ask(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            &["nowhere"],
            10,
            None,
        ),
        ask(
            "a topic without a name",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_TOPIC_EXCEPTION", &UNNAMED),
            &[""],
            10,
            None,
        ),
        ask("a topic twice", Both("NONE"), &["tight", "tight"], 5, None),
        ask("a limit of 0", Both("NONE"), &["tight"], 0, None),
        ask("a limit of -1", Both("NONE"), &["tight"], -1, None),
        ask(
            "a cursor at partition -1",
            Both("INVALID_REQUEST"),
            &["tight"],
            5,
            Some(("tight", -1)),
        ),
        ask(
            "a cursor beyond the partitions",
            Both("NONE"),
            &["tight"],
            5,
            Some(("tight", 1_000)),
        ),
        ask(
            "a cursor at an unknown topic",
            Both("INVALID_REQUEST"),
            &["tight"],
            5,
            Some(("nowhere", 0)),
        ),
        ask(
            "a cursor behind all topics",
            Both("INVALID_REQUEST"),
            &["tight"],
            5,
            Some(("zzz", 0)),
        ),
    ]
}

fn metadata() -> Vec<Case> {
    let by_name = |name: &str, expected, topics: &[&str], creates: bool| {
        let body = Body::new().i32(topics.len() as i32);
        let body = topics.iter().fold(body, |body, topic| body.str(topic));
        plain(
            ApiKey::Metadata,
            8,
            name,
            expected,
            body.i8(creates.into()).i8(0).i8(0),
        )
    };
    let by_id = |name: &str, expected, topic: Option<&str>, id: [u8; 16]| {
        let body = Body::new().compact_count(1).uuid(Uuid(id));
        let body = match topic {
            Some(topic) => body.compact_str(topic),
            None => body.uvarint(0),
        };
        plain(
            ApiKey::Metadata,
            12,
            name,
            expected,
            body.tags().i8(0).i8(0).tags(),
        )
    };
    vec![
        by_name(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION, NONE"),
            &["nowhere"],
            false,
        ),
        by_name(
            "a topic without a name",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            &[""],
            false,
        ),
        by_name(
            "a topic without a name to be created",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            &[""],
            true,
        ),
        by_name(
            "a name with a slash",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            &["a/b"],
            false,
        ),
        by_name(
            "a name with a slash to be created",
            Both("INVALID_TOPIC_EXCEPTION, NONE"),
            &["a/b"],
            true,
        ),
        by_name(
            "a name of 250 characters",
            Both("UNKNOWN_TOPIC_OR_PARTITION, NONE"),
            &[
                "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
            ],
            false,
        ),
        by_name("a topic twice", Both("NONE"), &["tight", "tight"], false),
        by_name(
            "an unknown topic twice",
            Both("UNKNOWN_TOPIC_OR_PARTITION, NONE"),
            &["nowhere", "nowhere"],
            false,
        ),
        by_name("no topics", Both("NONE"), &[], false),
        by_id(
            "an id that no topic has",
            Both("UNKNOWN_TOPIC_ID, NONE"),
            None,
            [7; 16],
        ),
        by_id(
            "an id of zeros and no name",
            differ("UNKNOWN_SERVER_ERROR, NONE", "UNKNOWN_TOPIC_ID, NONE", &UNNAMED),
            None,
            [0; 16],
        ),
        by_id(
            "a name and an id",
            Both("UNKNOWN_TOPIC_ID, NONE"),
            Some(TOPIC),
            [7; 16],
        ),
        plain(
            ApiKey::Metadata,
            8,
            "-2 topics",
            differ("NONE", "closed", &NEGATIVE),
            Body::new().i32(-2).i8(0).i8(0).i8(0),
        ),
        plain(
            ApiKey::Metadata,
            8,
            "2^31-1 topics",
            Both("closed"),
            Body::new().i32(i32::MAX).i8(0).i8(0).i8(0),
        ),
        plain(
            ApiKey::Metadata,
            8,
            "a null name",
            Both("closed"),
            Body::new().i32(1).i16(-1).i8(0).i8(0).i8(0),
        ),
        plain(
            ApiKey::Metadata,
            8,
            "a flag of 7",
            Both("NONE"),
            Body::new().i32(0).i8(7).i8(0).i8(0),
        ),
        plain(
            ApiKey::Metadata,
            12,
            "an id in version 12 without its tags",
            Both("closed"),
            Body::new().compact_count(1).uuid(Uuid([7; 16])),
        ),
    ]
}

fn configs() -> Vec<Case> {
    let describe = |name: &str, expected, kind: i8, resource: &str, times: i32| {
        let one = |body: Body| body.i8(kind).str(resource).i32(1).str("retention.ms");
        let body = (0..times).fold(Body::new().i32(times), |body, _| one(body));
        plain(ApiKey::DescribeConfigs, 1, name, expected, body.i8(0))
    };
    // Version 0: kind, name, and for each setting its name, operation and value.
    let alter = |name: &str, expected, kind: i8, resource: &str, settings: &[(&str, i8, Option<&str>)]| {
        let body = Body::new()
            .i32(1)
            .i8(kind)
            .str(resource)
            .i32(settings.len() as i32);
        let body = settings.iter().fold(body, |body, (key, operation, value)| {
            let body = body.str(key).i8(*operation);
            match value {
                Some(value) => body.str(value),
                None => body.i16(-1),
            }
        });
        plain(ApiKey::IncrementalAlterConfigs, 0, name, expected, body.i8(1))
    };
    let replace = |name: &str, expected, kind: i8, resource: &str, settings: &[(&str, Option<&str>)]| {
        let body = Body::new()
            .i32(1)
            .i8(kind)
            .str(resource)
            .i32(settings.len() as i32);
        let body = settings.iter().fold(body, |body, (key, value)| match value {
            Some(value) => body.str(key).str(value),
            None => body.str(key).i16(-1),
        });
        plain(ApiKey::AlterConfigs, 1, name, expected, body.i8(1))
    };
    vec![
        describe("a topic", Both("NONE"), 2, TOPIC, 1),
        describe("a topic twice", Both("NONE"), 2, TOPIC, 2),
        describe(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            2,
            "nowhere",
            1,
        ),
        describe(
            "a topic without a name",
            Both("INVALID_TOPIC_EXCEPTION"),
            2,
            "",
            1,
        ),
        describe(
            "a topic with a slash",
            Both("INVALID_TOPIC_EXCEPTION"),
            2,
            "a/b",
            1,
        ),
        describe("broker 77", Both("INVALID_REQUEST"), 4, "77", 1),
        describe("a broker that is no number", Both("INVALID_REQUEST"), 4, "one", 1),
        describe("an unknown kind of resource", Both("INVALID_REQUEST"), 99, "1", 1),
        describe("kind 0", Both("INVALID_REQUEST"), 0, "1", 1),
        describe("kind -1", Both("INVALID_REQUEST"), -1, "1", 1),
        plain(
            ApiKey::DescribeConfigs,
            1,
            "-1 resources",
            Both("closed"),
            Body::new().i32(-1).i8(0),
        ),
        plain(
            ApiKey::DescribeConfigs,
            1,
            "-2 settings",
            differ("NONE", "closed", &NEGATIVE),
            Body::new().i32(1).i8(2).str(TOPIC).i32(-2).i8(0),
        ),
        alter(
            "a sound one",
            Both("NONE"),
            2,
            TOPIC,
            &[("retention.ms", 0, Some("86400000"))],
        ),
        alter(
            "operation 9",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            2,
            TOPIC,
            &[("retention.ms", 9, Some("5"))],
        ),
        alter(
            "operation -1",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", &UNNAMED),
            2,
            TOPIC,
            &[("retention.ms", -1, Some("5"))],
        ),
        alter(
            "an unknown setting",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("nonsense", 0, Some("5"))],
        ),
        alter(
            "a setting without a name",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("", 0, Some("5"))],
        ),
        alter(
            "a value that is no number",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("retention.ms", 0, Some("soon"))],
        ),
        alter(
            "a null value",
            Both("INVALID_REQUEST"),
            2,
            TOPIC,
            &[("retention.ms", 0, None)],
        ),
        alter(
            "a setting twice",
            Both("INVALID_REQUEST"),
            2,
            TOPIC,
            &[("retention.ms", 0, Some("5")), ("retention.ms", 0, Some("6"))],
        ),
        alter(
            "to append to a number",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("retention.ms", 2, Some("5"))],
        ),
        alter(
            "to subtract from a number",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("retention.ms", 3, Some("5"))],
        ),
        alter(
            "to append null",
            Both("INVALID_REQUEST"),
            2,
            TOPIC,
            &[("cleanup.policy", 2, None)],
        ),
        alter(
            "to delete what was not set",
            Both("NONE"),
            2,
            TOPIC,
            &[("retention.ms", 1, None)],
        ),
        alter(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            2,
            "nowhere",
            &[("retention.ms", 0, Some("5"))],
        ),
        alter(
            "a topic without a name",
            Both("INVALID_REQUEST"),
            2,
            "",
            &[("retention.ms", 0, Some("5"))],
        ),
        alter(
            "broker 77",
            Both("INVALID_REQUEST"),
            4,
            "77",
            &[("log.retention.ms", 0, Some("5"))],
        ),
        alter(
            "a broker that is no number",
            Both("INVALID_REQUEST"),
            4,
            "one",
            &[("log.retention.ms", 0, Some("5"))],
        ),
        alter(
            "a broker's setting that cannot change",
            Both("INVALID_REQUEST"),
            4,
            "1",
            &[("broker.rack", 0, Some("5"))],
        ),
        alter(
            "an unknown kind of resource",
            Both("INVALID_REQUEST"),
            99,
            "1",
            &[("retention.ms", 0, Some("5"))],
        ),
        plain(
            ApiKey::IncrementalAlterConfigs,
            0,
            "a topic twice",
            Both("INVALID_REQUEST"),
            {
                let one = |body: Body| body.i8(2).str(TOPIC).i32(1).str("retention.ms").i8(0).str("5");
                one(one(Body::new().i32(2))).i8(1)
            },
        ),
        plain(
            ApiKey::IncrementalAlterConfigs,
            0,
            "no resources",
            Both("no code"),
            Body::new().i32(0).i8(1),
        ),
        plain(
            ApiKey::IncrementalAlterConfigs,
            0,
            "-1 resources",
            Both("closed"),
            Body::new().i32(-1).i8(1),
        ),
        replace(
            "an unknown setting",
            Both("INVALID_CONFIG"),
            2,
            TOPIC,
            &[("nonsense", Some("5"))],
        ),
        replace(
            "a null value",
            Both("INVALID_REQUEST"),
            2,
            TOPIC,
            &[("retention.ms", None)],
        ),
        replace(
            "a setting twice",
            Both("INVALID_REQUEST"),
            2,
            TOPIC,
            &[("retention.ms", Some("5")), ("retention.ms", Some("6"))],
        ),
        replace(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            2,
            "nowhere",
            &[("retention.ms", Some("5"))],
        ),
        replace(
            "an unknown kind of resource",
            Both("INVALID_REQUEST"),
            99,
            "1",
            &[("retention.ms", Some("5"))],
        ),
    ]
}

fn producer_ids() -> Vec<Case> {
    let old = |name: &str, expected, id: Option<&str>, timeout_ms: i32| {
        let body = match id {
            Some(id) => Body::new().str(id),
            None => Body::new().i16(-1),
        };
        plain(ApiKey::InitProducerId, 1, name, expected, body.i32(timeout_ms))
    };
    let new = |name: &str, expected, producer_id: i64, producer_epoch: i16| {
        let body = Body::new()
            .uvarint(0)
            .i32(60_000)
            .i64(producer_id)
            .i16(producer_epoch);
        plain(ApiKey::InitProducerId, 4, name, expected, body.tags())
    };
    vec![
        old(
            "an empty transactional id",
            Both("INVALID_REQUEST"),
            Some(""),
            60_000,
        ),
        old("a time-out of -1", Both("NONE"), None, -1),
        old("a time-out of 0", Both("NONE"), None, 0),
        new("a producer id without a transactional id", Both("NONE"), 5, 0),
        new("an epoch without a producer id", Both("INVALID_REQUEST"), -1, 3),
        new("a producer id without an epoch", Both("INVALID_REQUEST"), 5, -1),
        new("producer id -2", Both("INVALID_REQUEST"), -2, -1),
        plain(
            ApiKey::InitProducerId,
            1,
            "a cut end",
            Both("closed"),
            Body::new().i16(-1),
        ),
    ]
}

fn versions() -> Vec<Case> {
    let ask = |name: &str, expected, software: &str, version: &str| {
        let body = Body::new().compact_str(software).compact_str(version).tags();
        plain(ApiKey::ApiVersions, 3, name, expected, body)
    };
    vec![
        ask("software without a name", Both("INVALID_REQUEST"), "", "1"),
        ask("software without a version", Both("INVALID_REQUEST"), "liar", ""),
        ask("software with a space", Both("INVALID_REQUEST"), "a liar", "1"),
        ask("software with a slash", Both("INVALID_REQUEST"), "a/b", "1"),
        ask(
            "software that begins with a dash",
            Both("INVALID_REQUEST"),
            "-liar",
            "1",
        ),
        plain(
            ApiKey::ApiVersions,
            3,
            "a cut end",
            Both("closed"),
            Body::new().compact_str("liar"),
        ),
        plain(
            ApiKey::ApiVersions,
            99,
            "version 99",
            differ("UNSUPPORTED_VERSION", "UNSUPPORTED_VERSION", &VERSIONS),
            Body::new(),
        ),
        plain(ApiKey::Metadata, 99, "version 99", Both("closed"), Body::new()),
        plain(ApiKey::Metadata, -1, "version -1", Both("closed"), Body::new()),
        plain(ApiKey::Fetch, 3, "version 3", Both("closed"), Body::new()),
    ]
}
