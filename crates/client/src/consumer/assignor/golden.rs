//! Compares our assignors with Apache Kafka's for the same groups (`cargo xtask golden`,
//! `xtask/java/Assignments.java`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::subscription::{MemberSubscription, decode_assignment, encode_assignment};
use super::topics::TopicReplicas;
use super::user_data;
use crate::config::AssignorKind;
use crate::consumer::topic_partition::TopicPartition;

#[derive(Default)]
struct Case {
    assignor: String,
    topics: BTreeMap<Arc<str>, TopicReplicas>,
    members: Vec<MemberSubscription>,
    /// By member: the subscription's bytes.
    subscriptions: BTreeMap<Arc<str>, Vec<u8>>,
    assigned: BTreeMap<Arc<str>, (BTreeSet<TopicPartition>, Vec<u8>)>,
}

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/assignments.tsv.gz");
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "assign" {
            cases.push(Case {
                assignor: fields[1].into(),
                ..Case::default()
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match fields[0] {
            "topic" => {
                let racks = fields[2].trim_end_matches('.').split(',').map(|racks| {
                    racks
                        .split('/')
                        .filter(|rack| !rack.is_empty())
                        .map(Arc::from)
                        .collect()
                });
                case.topics.insert(
                    fields[1].into(),
                    TopicReplicas {
                        racks: racks.collect(),
                    },
                );
            }
            "member" => {
                let instance = Some(fields[2]).filter(|instance| !instance.is_empty());
                let bytes = from_hex(fields[3]);
                case.members
                    .push(MemberSubscription::decode(fields[1], instance, &bytes).unwrap());
                case.subscriptions.insert(fields[1].into(), bytes);
            }
            "assigned" => {
                let partitions = fields[2].split(',').filter(|name| !name.is_empty()).map(|name| {
                    let (topic, index) = name.split_once(':').unwrap();
                    TopicPartition::new(topic, index.parse().unwrap())
                });
                case.assigned
                    .insert(fields[1].into(), (partitions.collect(), from_hex(fields[3])));
            }
            other => panic!("unknown line {other}"),
        }
    }
    cases
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
        .collect()
}

fn kind(name: &str) -> AssignorKind {
    [
        AssignorKind::Range,
        AssignorKind::RoundRobin,
        AssignorKind::Sticky,
        AssignorKind::CooperativeSticky,
    ]
    .into_iter()
    .find(|kind| kind.protocol_name() == name)
    .unwrap()
}

#[test]
fn assignments_are_apache_kafkas() {
    let cases = cases();
    assert!(cases.len() > 300, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let ours = kind(&case.assignor).assign(&case.topics, &case.members);
        let theirs: BTreeMap<Arc<str>, BTreeSet<TopicPartition>> = case
            .assigned
            .iter()
            .map(|(member, (partitions, _))| (member.clone(), partitions.clone()))
            .collect();
        if ours != theirs {
            wrong.push((number, &case.assignor));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ: {wrong:?}",
        wrong.len(),
        cases.len()
    );
}

#[test]
fn subscriptions_are_written_as_apache_kafka_writes_them() {
    let mut compared = 0;
    for case in cases() {
        for member in &case.members {
            let theirs = &case.subscriptions[&member.member_id];
            if theirs[..2] == [0, 3] {
                assert_eq!(&member.encode(), theirs, "{}", member.member_id);
                compared += 1;
            }
        }
    }
    assert!(compared > 1_000, "{compared}");
}

#[test]
fn assignments_are_read_and_written_as_apache_kafka_does() {
    for case in cases() {
        for (partitions, bytes) in case.assigned.values() {
            assert_eq!(&decode_assignment(bytes).unwrap(), partitions);
            // Kafka lists topics in the order of a hash map, so the bytes may differ; their number
            // does not.
            let ours = encode_assignment(partitions);
            assert_eq!(ours.len(), bytes.len());
            assert_eq!(&decode_assignment(&ours).unwrap(), partitions);
        }
    }
}

#[test]
fn user_data_is_written_as_apache_kafka_writes_it() {
    let mut compared = 0;
    for case in cases() {
        let kind = kind(&case.assignor);
        for member in &case.members {
            let Some(theirs) = &member.user_data else {
                continue;
            };
            let mut last = user_data::LastAssignment::default();
            let data = match kind {
                AssignorKind::Sticky => user_data::sticky(member),
                _ => {
                    let generation = i32::from_be_bytes(theirs[..].try_into().unwrap());
                    user_data::MemberData {
                        partitions: Vec::new(),
                        generation: Some(generation),
                    }
                }
            };
            last.remember(
                &data.partitions.iter().cloned().collect(),
                data.generation.unwrap(),
            );
            let ours = last.user_data(kind).unwrap();
            assert_eq!(ours.len(), theirs.len());
            assert_eq!(
                ours[ours.len() - 4..],
                theirs[theirs.len() - 4..],
                "the generation"
            );
            let read = MemberSubscription {
                user_data: Some(ours),
                ..member.clone()
            };
            if kind == AssignorKind::Sticky {
                let sorted: BTreeSet<TopicPartition> = data.partitions.into_iter().collect();
                let ours: BTreeSet<TopicPartition> =
                    user_data::sticky(&read).partitions.into_iter().collect();
                assert_eq!(ours, sorted);
            }
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared}");
}
