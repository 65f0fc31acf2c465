//! Topics, configurations and the description of a broker.

use super::suite::{MINUTE, Suite, eventually, fails_with, only, partition, same, take};
use anyhow::{Context, Result, ensure};
use ottla_client::admin::NodeId;
use ottla_client::admin::{
    AlterConfig, ConfigEntry, ConfigResource, ConfigResourceKind, ConfigSource, NewPartitions, NewTopic,
    OffsetSpec,
};
use ottla_wire::error_code::ErrorCode;

pub fn run(suite: &mut Suite) {
    suite.run("describe cluster", describe_cluster);
    suite.run("create and delete topics", create_and_delete);
    suite.run("create partitions", create_partitions);
    suite.run("delete records", delete_records);
    suite.run("topic configs", topic_configs);
    suite.run("broker configs", broker_configs);
    suite.run("describe log dirs", describe_log_dirs);
}

fn describe_cluster(suite: &Suite) -> Result<()> {
    let cluster = suite.admin.describe_cluster().wait()?;
    same(&1, &cluster.nodes.len(), "nodes")?;
    let node = cluster.nodes.get(&NodeId(1)).context("node 1")?;
    same(&suite.bootstrap, &node.address.to_string(), "address")?;
    same(&Some(NodeId(1)), &cluster.controller, "controller")?;
    same(
        &Some(22),
        &cluster.id.map(|id| id.len()),
        "characters of the cluster id",
    )
}

fn topic(name: &str, partitions: i32) -> Vec<NewTopic> {
    vec![NewTopic::new(name).partitions(partitions).replicas(1)]
}

fn create_and_delete(suite: &Suite) -> Result<()> {
    let admin = &suite.admin;
    only(admin.validate_topics(topic("ottla-validated", 3)).wait())?;
    ensure!(
        !admin.list_topics().wait()?.contains_key("ottla-validated"),
        "validate-only created a topic"
    );

    let new = NewTopic::new("ottla-created")
        .partitions(3)
        .replicas(1)
        .config("retention.ms", 123_456);
    let created = only(admin.create_topics(vec![new]).wait())?;
    same(&3, &created.partitions, "partitions in the answer")?;
    let is_listed = |name: &str| -> Result<bool> { Ok(admin.list_topics().wait()?.contains_key(name)) };
    eventually("the topic is listed", || is_listed("ottla-created"))?;
    let described = only(admin.describe_topics(vec!["ottla-created".to_string()]).wait())?;
    same(&created.id, &described.id, "topic id")?;
    same(&3, &described.partitions.len(), "partitions")?;
    for found in described.partitions.values() {
        same(&Some(NodeId(1)), &found.leader, "leader")?;
        same(
            &(1, 1),
            &(found.replicas.len(), found.in_sync.len()),
            "replicas and those in sync",
        )?;
    }
    let again = only(admin.create_topics(topic("ottla-created", 1)).wait());
    fails_with(ErrorCode::TopicAlreadyExists, again)?;
    let three = NewTopic::new("ottla-three").partitions(1).replicas(3);
    fails_with(
        ErrorCode::InvalidReplicationFactor,
        only(admin.create_topics(vec![three]).wait()),
    )?;
    fails_with(
        ErrorCode::InvalidPartitions,
        only(admin.create_topics(topic("ottla-zero", 0)).wait()),
    )?;
    let strange = NewTopic::new("ottla-config")
        .partitions(1)
        .replicas(1)
        .config("no.such.config", 1);
    fails_with(
        ErrorCode::InvalidConfig,
        only(admin.create_topics(vec![strange]).wait()),
    )?;

    let delete = || only(admin.delete_topics(vec!["ottla-created".to_string()]).wait());
    delete()?;
    eventually("the topic is gone", || Ok(!is_listed("ottla-created")?))?;
    fails_with(ErrorCode::UnknownTopicOrPartition, delete())
}

fn create_partitions(suite: &Suite) -> Result<()> {
    let name = "ottla-grown";
    suite.create_topic(name, 1, &[])?;
    suite.fill(name, Some(0), 5)?;
    let grow = |name: &str, total| {
        let new = NewPartitions::to(total);
        only(
            suite
                .admin
                .create_partitions([(name.to_string(), new)].into())
                .wait(),
        )
    };
    grow(name, 4)?;
    eventually("four partitions are seen", || {
        Ok(only(suite.admin.describe_topics(vec![name.to_string()]).wait())?
            .partitions
            .len()
            == 4)
    })?;
    suite.fill(name, Some(3), 5)?;
    same(
        &5,
        &suite.offset(name, 3, OffsetSpec::Latest)?,
        "end of the new partition",
    )?;
    same(
        &5,
        &suite.offset(name, 0, OffsetSpec::Latest)?,
        "end of the old partition",
    )?;
    fails_with(ErrorCode::InvalidPartitions, grow(name, 2))?;
    fails_with(ErrorCode::UnknownTopicOrPartition, grow("ottla-no-such", 2))
}

fn delete_records(suite: &Suite) -> Result<()> {
    let name = "ottla-deleted-records";
    suite.create_topic(name, 1, &[])?;
    suite.fill(name, Some(0), 100)?;
    let of = partition(name, 0);
    let delete = |before: i64| only(suite.admin.delete_records([(of.clone(), before)].into()).wait());
    same(&40, &delete(40)?, "low watermark")?;
    same(&40, &suite.offset(name, 0, OffsetSpec::Earliest)?, "earliest")?;
    let mut consumer = suite.consumer(&[])?;
    consumer.assign([of.clone()])?;
    consumer.seek(&of, 10)?;
    same(
        &40,
        &take(&mut consumer, 60)?[0].offset,
        "first record after the reset to earliest",
    )?;
    consumer.close(MINUTE)?;
    fails_with(ErrorCode::OffsetOutOfRange, delete(1000))?;
    delete(-1)?;
    same(
        &100,
        &suite.offset(name, 0, OffsetSpec::Earliest)?,
        "earliest after deleting everything",
    )?;
    same(
        &100,
        &suite.fill(name, Some(0), 1)?[0].offset,
        "offset of the next record",
    )
}

fn entry(suite: &Suite, resource: &ConfigResource, key: &str) -> Result<ConfigEntry> {
    let mut entries = only(suite.admin.describe_configs(vec![resource.clone()]).wait())?;
    entries.remove(key).with_context(|| format!("no {key}"))
}

fn has_value(suite: &Suite, resource: &ConfigResource, key: &str, value: &str) -> Result<bool> {
    Ok(entry(suite, resource, key)?.value.as_deref() == Some(value))
}

fn alter(suite: &Suite, resource: &ConfigResource, change: AlterConfig) -> Result<(), ottla_client::Error> {
    only(
        suite
            .admin
            .incremental_alter_configs([(resource.clone(), vec![change])].into())
            .wait(),
    )
}

fn topic_configs(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-configs", 1, &[("segment.bytes", "1048576")])?;
    let topic = ConfigResource::topic("ottla-configs");
    let segment = entry(suite, &topic, "segment.bytes")?;
    same(
        &(Some("1048576".to_string()), ConfigSource::Topic),
        &(segment.value, segment.source),
        "segment.bytes",
    )?;
    let retention = entry(suite, &topic, "retention.ms")?;
    let default = (Some("604800000".to_string()), ConfigSource::Default);
    same(&default, &(retention.value, retention.source), "retention.ms")?;

    alter(suite, &topic, AlterConfig::set("retention.ms", 3_600_000))?;
    eventually("retention.ms is set", || {
        has_value(suite, &topic, "retention.ms", "3600000")
    })?;
    ensure!(
        has_value(suite, &topic, "segment.bytes", "1048576")?,
        "segment.bytes after another change"
    );
    alter(suite, &topic, AlterConfig::append("cleanup.policy", "compact"))?;
    eventually("cleanup.policy has both", || {
        has_value(suite, &topic, "cleanup.policy", "delete,compact")
    })?;
    alter(suite, &topic, AlterConfig::subtract("cleanup.policy", "delete"))?;
    eventually("cleanup.policy has one", || {
        has_value(suite, &topic, "cleanup.policy", "compact")
    })?;
    alter(suite, &topic, AlterConfig::delete("retention.ms"))?;
    eventually("retention.ms is back", || {
        has_value(suite, &topic, "retention.ms", "604800000")
    })?;

    fails_with(
        ErrorCode::InvalidConfig,
        alter(suite, &topic, AlterConfig::set("retention.ms", "soon")),
    )?;
    fails_with(
        ErrorCode::InvalidConfig,
        alter(suite, &topic, AlterConfig::set("no.such", 1)),
    )?;
    let missing = ConfigResource::topic("ottla-no-such");
    fails_with(
        ErrorCode::UnknownTopicOrPartition,
        only(suite.admin.describe_configs(vec![missing]).wait()),
    )
}

fn broker_configs(suite: &Suite) -> Result<()> {
    let broker = ConfigResource::new(ConfigResourceKind::Broker, "1");
    let id = entry(suite, &broker, "node.id")?;
    same(
        &(Some("1".to_string()), true),
        &(id.value, id.is_read_only),
        "node.id and whether it is fixed",
    )?;
    same(
        &ConfigSource::StaticBroker,
        &entry(suite, &broker, "log.dirs")?.source,
        "source of log.dirs",
    )?;
    alter(suite, &broker, AlterConfig::set("log.retention.ms", 7_200_000))?;
    eventually("log.retention.ms is set", || {
        has_value(suite, &broker, "log.retention.ms", "7200000")
    })?;
    suite.create_topic("ottla-inherits", 1, &[])?;
    let topic = ConfigResource::topic("ottla-inherits");
    ensure!(
        has_value(suite, &topic, "retention.ms", "7200000")?,
        "the topic does not inherit retention.ms"
    );
    alter(suite, &broker, AlterConfig::delete("log.retention.ms"))?;
    eventually("the default is back", || {
        has_value(suite, &topic, "retention.ms", "604800000")
    })
}

fn describe_log_dirs(suite: &Suite) -> Result<()> {
    let name = "ottla-log-dirs";
    suite.create_topic(name, 2, &[])?;
    suite.fill(name, Some(0), 100)?;
    let directories = only(suite.admin.describe_log_dirs(vec![NodeId(1)]).wait())?;
    same(&1, &directories.len(), "log directories")?;
    let (_, directory) = directories.into_iter().next().context("a directory")?;
    let directory = directory?;
    let size = |index| {
        directory
            .replicas
            .get(&partition(name, index))
            .map(|replica| replica.size_bytes)
    };
    ensure!(size(0) > Some(500), "partition 0 holds {:?} bytes", size(0));
    same(&Some(0), &size(1), "bytes of partition 1")?;
    ensure!(
        directory.total_bytes >= directory.usable_bytes,
        "more usable than there is"
    );
    Ok(())
}
