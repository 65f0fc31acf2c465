"""Topics, configurations and the description of a broker."""

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions, NewTopic, OffsetSpec, ResourceType,
)

from data import offset, topic_collection
from suite import check, error_code, eventually, same, take


def run(suite):
    suite.run("describe cluster", describe_cluster)
    suite.run("create and delete topics", create_and_delete)
    suite.run("create partitions", create_partitions)
    suite.run("delete records", delete_records)
    suite.run("topic configs", topic_configs)
    suite.run("broker configs", broker_configs)


def describe_cluster(suite):
    cluster = suite.admin.describe_cluster().result(60)
    same(1, len(cluster.nodes), "nodes")
    same(suite.bootstrap, f"{cluster.nodes[0].host}:{cluster.nodes[0].port}", "address")
    same(1, cluster.controller.id, "controller")
    check(len(cluster.cluster_id) == 22, f"cluster id is {cluster.cluster_id}")


def create_and_delete(suite):
    topic = NewTopic("rd-validated", num_partitions=3, replication_factor=1)
    suite.admin.create_topics([topic], validate_only=True)["rd-validated"].result(60)
    check("rd-validated" not in suite.admin.list_topics(timeout=30).topics, "validate-only created a topic")

    suite.create_topic("rd-created", 3, retention_ms="123456")
    described = suite.admin.describe_topics(topic_collection("rd-created"))["rd-created"].result(60)
    same(3, len(described.partitions), "partitions")
    for partition in described.partitions:
        same(1, partition.leader.id, "leader")
        same([1], [node.id for node in partition.replicas], "replicas")
        same([1], [node.id for node in partition.isr], "in-sync replicas")

    def refusal(name, partitions=1, replicas=1, **config):
        refused = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
        return error_code(suite.admin.create_topics([refused])[name])

    same(KafkaError.TOPIC_ALREADY_EXISTS, refusal("rd-created"), "the same name again")
    same(KafkaError.INVALID_REPLICATION_FACTOR, refusal("rd-three", replicas=3), "three replicas")
    same(KafkaError.INVALID_CONFIG, refusal("rd-config", **{"no.such.config": "1"}), "an unknown config")

    suite.admin.delete_topics(["rd-created"])["rd-created"].result(60)
    eventually("the topic is gone", lambda: "rd-created" not in suite.admin.list_topics(timeout=30).topics)
    again = suite.admin.delete_topics(["rd-created"])["rd-created"]
    same(KafkaError.UNKNOWN_TOPIC_OR_PART, error_code(again), "deleting it twice")


def create_partitions(suite):
    suite.create_topic("rd-grown")
    suite.fill("rd-grown", 5, partition=0)
    suite.admin.create_partitions([NewPartitions("rd-grown", 4)])["rd-grown"].result(60)
    eventually(
        "four partitions are seen",
        lambda: len(suite.admin.list_topics("rd-grown", timeout=30).topics["rd-grown"].partitions) == 4,
    )
    suite.fill("rd-grown", 5, partition=3)
    consumer = suite.consumer()
    same((0, 5), consumer.get_watermark_offsets(TopicPartition("rd-grown", 3), timeout=30), "the new partition")
    same((0, 5), consumer.get_watermark_offsets(TopicPartition("rd-grown", 0), timeout=30), "the old partition")
    consumer.close()
    fewer = suite.admin.create_partitions([NewPartitions("rd-grown", 2)])["rd-grown"]
    same(KafkaError.INVALID_PARTITIONS, error_code(fewer), "fewer partitions")


def delete_records(suite):
    topic = "rd-deleted-records"
    suite.create_topic(topic)
    suite.fill(topic, 100)

    def remove(before):
        partition = TopicPartition(topic, 0, before)
        return next(iter(suite.admin.delete_records([partition]).values()))

    same(40, remove(40).result(60).low_watermark, "low watermark")
    same(40, offset(suite, topic, OffsetSpec.earliest()), "earliest")
    consumer = suite.direct(topic, 1)
    same(40, take(consumer, 60)[0].offset(), "first record after the reset to earliest")
    consumer.close()
    same(KafkaError.OFFSET_OUT_OF_RANGE, error_code(remove(1000)), "offset 1000 of 100")


def described(suite, resource):
    return next(iter(suite.admin.describe_configs([resource]).values())).result(60)


def alter(suite, kind, name, key, value, operation):
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    return next(iter(suite.admin.incremental_alter_configs([resource]).values()))


def topic_configs(suite):
    topic = "rd-configs"
    suite.create_topic(topic, segment_bytes="1048576")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def value(key):
        return described(suite, resource)[key].value

    same("1048576", value("segment.bytes"), "segment.bytes")
    same(ConfigSource.DYNAMIC_TOPIC_CONFIG.value, described(suite, resource)["segment.bytes"].source, "source")
    same("604800000", value("retention.ms"), "retention.ms")
    alter(suite, ResourceType.TOPIC, topic, "retention.ms", "3600000", AlterConfigOpType.SET).result(60)
    eventually("retention.ms is set", lambda: value("retention.ms") == "3600000")
    alter(suite, ResourceType.TOPIC, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND).result(60)
    eventually("cleanup.policy has both", lambda: value("cleanup.policy") == "delete,compact")
    alter(suite, ResourceType.TOPIC, topic, "retention.ms", None, AlterConfigOpType.DELETE).result(60)
    eventually("retention.ms is back", lambda: value("retention.ms") == "604800000")
    refused = alter(suite, ResourceType.TOPIC, topic, "retention.ms", "soon", AlterConfigOpType.SET)
    same(KafkaError.INVALID_CONFIG, error_code(refused), "retention.ms=soon")

    # The old AlterConfigs replaces all settings.
    whole = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "5000000"})
    next(iter(suite.admin.alter_configs([whole]).values())).result(60)
    eventually("retention.bytes is set", lambda: value("retention.bytes") == "5000000")
    same("1073741824", value("segment.bytes"), "segment.bytes after the whole was replaced")


def broker_configs(suite):
    resource = ConfigResource(ResourceType.BROKER, "1")
    configs = described(suite, resource)
    same("1", configs["node.id"].value, "node.id")
    check(configs["node.id"].is_read_only, "node.id can be changed at run time")
    alter(suite, ResourceType.BROKER, "1", "log.retention.ms", "7200000", AlterConfigOpType.SET).result(60)
    eventually(
        "log.retention.ms is set", lambda: described(suite, resource)["log.retention.ms"].value == "7200000"
    )
    alter(suite, ResourceType.BROKER, "1", "log.retention.ms", None, AlterConfigOpType.DELETE).result(60)
    eventually(
        "log.retention.ms is back", lambda: described(suite, resource)["log.retention.ms"].value != "7200000"
    )
