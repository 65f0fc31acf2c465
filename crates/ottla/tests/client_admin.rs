//! The admin client against a broker in this process: every API family once, with its expected
//! answer.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use ottla_broker::Broker;
use ottla_client::Error;
use ottla_client::admin::{
    Admin, AlterConfig, ConfigResource, ConfigResourceKind, ConfigSource, NewPartitions, NewTopic,
    OffsetAndMetadata, OffsetSpec, ScramCredential, ScramMechanism, TopicPartition,
};
use ottla_client::config::{Config, Password};
use ottla_wire::error_code::ErrorCode;

fn start() -> (Broker, Admin) {
    let broker = Broker::start_temporary(&[("num.partitions", "3")]).unwrap();
    let admin = Admin::new(&Config::new().set("bootstrap.servers", broker.address())).unwrap();
    (broker, admin)
}

fn code<T: std::fmt::Debug>(result: &Result<T, Error>) -> ErrorCode {
    match result {
        Err(Error::Broker { code, .. }) => *code,
        other => panic!("{other:?}"),
    }
}

fn t(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn create(admin: &Admin, topic: NewTopic) {
    let name = topic.name.clone();
    let created = admin.create_topics(vec![topic]).wait().unwrap();
    created[&name].as_ref().unwrap();
}

#[test]
fn topics_are_created_described_grown_and_deleted() {
    let (_broker, admin) = start();
    let topics = vec![
        NewTopic::new("t")
            .partitions(2)
            .replicas(1)
            .config("retention.ms", 1000),
        NewTopic::new("by-default"),
        NewTopic::new("too/odd"),
        NewTopic::new("too-safe").partitions(1).replicas(3),
    ];
    let validated = admin.validate_topics(topics.clone()).wait().unwrap();
    assert!(validated["t"].is_ok());
    let created = admin.create_topics(topics.clone()).wait().unwrap();
    assert_eq!(created["t"].as_ref().unwrap().partitions, 2);
    assert_eq!(created["by-default"].as_ref().unwrap().partitions, 3);
    assert_eq!(code(&created["too/odd"]), ErrorCode::InvalidTopicException);
    assert_eq!(code(&created["too-safe"]), ErrorCode::InvalidReplicationFactor);
    let again = admin.create_topics(topics).wait().unwrap();
    assert_eq!(code(&again["t"]), ErrorCode::TopicAlreadyExists);

    let more = NewPartitions::to(4);
    let grown = admin
        .create_partitions(BTreeMap::from([("t".to_owned(), more)]))
        .wait()
        .unwrap();
    assert_eq!(grown["t"], Ok(()));
    let names = vec!["t".to_owned(), "missing".to_owned()];
    let described = admin.describe_topics(names.clone()).wait().unwrap();
    let topic = described["t"].as_ref().unwrap();
    assert_eq!(topic.partitions.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(
        topic
            .partitions
            .values()
            .all(|partition| partition.leader.is_some())
    );
    assert!(!topic.id.is_zero());
    assert_eq!(code(&described["missing"]), ErrorCode::UnknownTopicOrPartition);
    assert!(admin.list_topics().wait().unwrap().contains_key("by-default"));

    let deleted = admin.delete_topics(names).wait().unwrap();
    assert_eq!(deleted["t"], Ok(()));
    assert_eq!(code(&deleted["missing"]), ErrorCode::UnknownTopicOrPartition);
    assert!(!admin.list_topics().wait().unwrap().contains_key("t"));
}

#[test]
fn settings_of_topics_and_brokers_are_read_and_changed() {
    let (_broker, admin) = start();
    create(&admin, NewTopic::new("t").config("cleanup.policy", "compact"));
    let topic = ConfigResource::topic("t");
    let changes = vec![
        AlterConfig::set("retention.ms", 5000),
        AlterConfig::delete("cleanup.policy"),
    ];
    let altered = admin
        .incremental_alter_configs(BTreeMap::from([(topic.clone(), changes)]))
        .wait()
        .unwrap();
    assert_eq!(altered[&topic], Ok(()));
    let broker = ConfigResource::new(ConfigResourceKind::Broker, "1");
    let missing = ConfigResource::topic("missing");
    let resources = vec![topic.clone(), broker.clone(), missing.clone()];
    let described = admin.describe_configs(resources).wait().unwrap();
    let entries = described[&topic].as_ref().unwrap();
    assert_eq!(entries["retention.ms"].value.as_deref(), Some("5000"));
    assert_eq!(entries["retention.ms"].source, ConfigSource::Topic);
    assert_eq!(entries["cleanup.policy"].value.as_deref(), Some("delete"));
    let entries = described[&broker].as_ref().unwrap();
    assert_eq!(entries["num.partitions"].value.as_deref(), Some("3"));
    assert_eq!(code(&described[&missing]), ErrorCode::UnknownTopicOrPartition);

    let wrong = vec![AlterConfig::set("retention.ms", "long")];
    let refused = admin
        .incremental_alter_configs(BTreeMap::from([(topic.clone(), wrong)]))
        .wait()
        .unwrap();
    assert_eq!(code(&refused[&topic]), ErrorCode::InvalidConfig);
}

#[test]
fn offsets_by_time_and_deleted_records() {
    let (_broker, admin) = start();
    create(&admin, NewTopic::new("t").partitions(2));
    let wanted = [
        OffsetSpec::Earliest,
        OffsetSpec::Latest,
        OffsetSpec::Timestamp(0),
        OffsetSpec::MaxTimestamp,
    ];
    for (spec, expected) in wanted.into_iter().zip([0, 0, -1, -1]) {
        let listed = admin
            .list_offsets(BTreeMap::from([(t(0), spec), (t(1), spec)]))
            .wait()
            .unwrap();
        let offsets: Vec<i64> = listed
            .values()
            .map(|listed| listed.as_ref().unwrap().offset)
            .collect();
        assert_eq!(offsets, [expected, expected], "{spec:?}");
    }
    let deleted = admin
        .delete_records(BTreeMap::from([(t(0), -1), (t(1), 7), (t(5), 0)]))
        .wait()
        .unwrap();
    assert_eq!(deleted[&t(0)], Ok(0));
    assert_eq!(code(&deleted[&t(1)]), ErrorCode::OffsetOutOfRange);
    assert_eq!(code(&deleted[&t(5)]), ErrorCode::UnknownTopicOrPartition);
}

#[test]
fn a_groups_offsets_are_set_listed_and_deleted() {
    let (_broker, admin) = start();
    create(&admin, NewTopic::new("t").partitions(2));
    let offset = OffsetAndMetadata {
        offset: 42,
        leader_epoch: None,
        metadata: "by hand".into(),
    };
    let offsets = BTreeMap::from([(t(0), offset.clone()), (t(1), OffsetAndMetadata::new(7))]);
    let altered = admin.alter_group_offsets("g", offsets).wait().unwrap();
    assert!(altered.values().all(Result::is_ok), "{altered:?}");
    let listed = admin.list_group_offsets("g").wait().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(
        (listed[&t(0)].offset, listed[&t(0)].metadata.as_ref()),
        (42, "by hand")
    );

    assert!(admin.list_groups().wait().unwrap().contains_key("g"));
    let described = admin.describe_groups(vec!["g".to_owned()]).wait().unwrap();
    let group = described["g"].as_ref().unwrap();
    assert_eq!((group.state.as_str(), group.members.len()), ("Empty", 0));

    let deleted = admin
        .delete_group_offsets("g", BTreeSet::from([t(0)]))
        .wait()
        .unwrap();
    assert_eq!(deleted[&t(0)], Ok(()));
    assert_eq!(
        admin
            .list_group_offsets("g")
            .wait()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        [&t(1)]
    );
    let names = vec!["g".to_owned(), "missing".to_owned()];
    let deleted = admin.delete_groups(names).wait().unwrap();
    assert_eq!(deleted["g"], Ok(()));
    assert_eq!(code(&deleted["missing"]), ErrorCode::GroupIdNotFound);
    assert!(admin.list_group_offsets("g").wait().unwrap().is_empty());
}

#[test]
fn the_cluster_and_its_disks_are_described() {
    let (broker, admin) = start();
    create(&admin, NewTopic::new("t").partitions(2));
    let cluster = admin.describe_cluster().wait().unwrap();
    let (id, node) = cluster.nodes.first_key_value().unwrap();
    assert_eq!(node.address.port, broker.address().port());
    assert_eq!(cluster.controller, Some(*id));
    let directories = admin.describe_log_dirs(Vec::new()).wait().unwrap();
    let directory = directories[id]
        .as_ref()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .as_ref()
        .unwrap();
    assert!(directory.replicas.contains_key(&t(1)));
    assert!(directory.total_bytes > 0);
}

#[test]
fn credentials_are_set_and_described() {
    let (_broker, admin) = start();
    let set = ScramCredential::Set {
        mechanism: ScramMechanism::Sha512,
        password: Password::new("alice-secret"),
        rounds: Some(4096),
    };
    let weak = ScramCredential::Set {
        mechanism: ScramMechanism::Sha256,
        password: Password::new("bob-secret"),
        rounds: Some(4095),
    };
    let results = admin
        .alter_scram_credentials(vec![("alice".to_owned(), set), ("bob".to_owned(), weak)])
        .wait()
        .unwrap();
    assert_eq!(results["alice"], Ok(()));
    assert_eq!(code(&results["bob"]), ErrorCode::UnacceptableCredential);
    let described = admin.describe_scram_credentials(Vec::new()).wait().unwrap();
    assert_eq!(described.len(), 1);
    assert_eq!(
        described["alice"],
        Ok(BTreeMap::from([(ScramMechanism::Sha512, 4096)]))
    );
}

#[test]
fn a_call_to_an_unreachable_broker_ends_at_its_timeout_with_the_reason() {
    let config = Config::new()
        .set("bootstrap.servers", "127.0.0.1:1")
        .set("default.api.timeout.ms", 1000)
        .set("request.timeout.ms", 500);
    let admin = Admin::new(&config).unwrap();
    let error = admin.list_topics().wait().unwrap_err();
    assert!(
        matches!(error, Error::Timeout { limit_ms: 1000, .. }),
        "{error:?}"
    );
    assert!(
        admin
            .metrics()
            .iter()
            .any(|metric| metric.name == "connection-count")
    );
}
