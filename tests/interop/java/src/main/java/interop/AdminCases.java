package interop;

import static interop.Suite.check;
import static interop.Suite.failure;
import static interop.Suite.get;
import static interop.Suite.isA;
import static interop.Suite.partition;
import static interop.Suite.same;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Topics, configurations and the description of a broker. */
final class AdminCases {
    static void run(Suite suite) {
        suite.run("describe cluster", () -> describeCluster(suite));
        suite.run("create and delete topics", () -> createAndDelete(suite));
        suite.run("create partitions", () -> createPartitions(suite));
        suite.run("delete records", () -> deleteRecords(suite));
        suite.run("topic configs", () -> topicConfigs(suite));
        suite.run("broker configs", () -> brokerConfigs(suite));
        suite.run("describe log dirs", () -> describeLogDirs(suite));
        suite.run("describe producers", () -> describeProducers(suite));
    }

    private static void describeCluster(Suite suite) throws Exception {
        var cluster = suite.admin.describeCluster();
        same(1, get(cluster.nodes()).size(), "nodes");
        var node = get(cluster.nodes()).iterator().next();
        same(suite.bootstrap, node.host() + ":" + node.port(), "address");
        same(1, get(cluster.controller()).id(), "controller");
        same(22, get(cluster.clusterId()).length(), "characters of the cluster id");
    }

    private static void createAndDelete(Suite suite) throws Exception {
        NewTopic validated = new NewTopic("java-validated", 3, (short) 1);
        get(suite.admin.createTopics(List.of(validated),
                new org.apache.kafka.clients.admin.CreateTopicsOptions().validateOnly(true)).all());
        check(!get(suite.admin.listTopics().names()).contains("java-validated"), "validate-only created a topic");

        var created = suite.admin.createTopics(List.of(
                new NewTopic("java-created", 3, (short) 1).configs(Map.of("retention.ms", "123456"))));
        Uuid id = get(created.topicId("java-created"));
        same(3, get(created.numPartitions("java-created")), "partitions in the answer");
        same("123456", get(created.config("java-created")).get("retention.ms").value(), "config in the answer");

        Suite.eventually("the topic is listed", () -> get(suite.admin.listTopics().names()).contains("java-created"));
        TopicDescription description =
                get(suite.admin.describeTopics(List.of("java-created")).allTopicNames()).get("java-created");
        same(id, description.topicId(), "topic id");
        same(3, description.partitions().size(), "partitions");
        for (var partition : description.partitions()) {
            same(1, partition.leader().id(), "leader");
            same(1, partition.replicas().size(), "replicas");
            same(1, partition.isr().size(), "in-sync replicas");
        }
        var byId = suite.admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id)));
        same("java-created", get(byId.allTopicIds()).get(id).name(), "name of the topic id");

        isA(TopicExistsException.class, failure(suite.admin.createTopics(
                List.of(new NewTopic("java-created", 1, (short) 1))).all()));
        isA(InvalidReplicationFactorException.class, failure(suite.admin.createTopics(
                List.of(new NewTopic("java-three", 1, (short) 3))).all()));
        isA(InvalidPartitionsException.class, failure(suite.admin.createTopics(
                List.of(new NewTopic("java-zero", 0, (short) 1))).all()));
        isA(InvalidConfigurationException.class, failure(suite.admin.createTopics(
                List.of(new NewTopic("java-config", 1, (short) 1).configs(Map.of("no.such.config", "1")))).all()));

        get(suite.admin.deleteTopics(List.of("java-created")).all());
        Suite.eventually("the topic is gone", () -> !get(suite.admin.listTopics().names()).contains("java-created"));
        isA(UnknownTopicOrPartitionException.class, failure(suite.admin.deleteTopics(List.of("java-created")).all()));
        isA(UnknownTopicIdException.class, failure(suite.admin.deleteTopics(
                org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).all()));

        suite.createTopic("java-by-id", 1);
        Uuid second = get(suite.admin.describeTopics(List.of("java-by-id")).allTopicNames())
                .get("java-by-id").topicId();
        get(suite.admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(second))).all());
        Suite.eventually("the topic is gone", () -> !get(suite.admin.listTopics().names()).contains("java-by-id"));
    }

    private static void createPartitions(Suite suite) throws Exception {
        suite.createTopic("java-grown", 1);
        suite.fill("java-grown", 0, 5);
        get(suite.admin.createPartitions(Map.of("java-grown", NewPartitions.increaseTo(4))).all());
        Suite.eventually("four partitions are seen", () ->
                get(suite.admin.describeTopics(List.of("java-grown")).allTopicNames())
                        .get("java-grown").partitions().size() == 4);
        suite.fill("java-grown", 3, 5);
        same(5L, end(suite, partition("java-grown", 3)), "end of the new partition");
        same(5L, end(suite, partition("java-grown", 0)), "end of the old partition");
        isA(InvalidPartitionsException.class, failure(
                suite.admin.createPartitions(Map.of("java-grown", NewPartitions.increaseTo(2))).all()));
        isA(UnknownTopicOrPartitionException.class, failure(
                suite.admin.createPartitions(Map.of("java-no-such", NewPartitions.increaseTo(2))).all()));
    }

    private static long end(Suite suite, TopicPartition partition) throws Exception {
        ListOffsetsResultInfo info =
                get(suite.admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all()).get(partition);
        return info.offset();
    }

    private static void deleteRecords(Suite suite) throws Exception {
        suite.createTopic("java-deleted-records", 1);
        suite.fill("java-deleted-records", 0, 100);
        TopicPartition partition = partition("java-deleted-records", 0);
        var deleted = suite.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(40)));
        same(40L, get(deleted.lowWatermarks().get(partition)).lowWatermark(), "low watermark");
        same(40L, get(suite.admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all())
                .get(partition).offset(), "earliest");
        try (KafkaConsumer<String, String> consumer = suite.consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 10);
            same(40L, Suite.take(consumer, 60).get(0).offset(), "first record after the reset to earliest");
        }
        isA(OffsetOutOfRangeException.class, failure(suite.admin.deleteRecords(
                Map.of(partition, RecordsToDelete.beforeOffset(1000))).all()));
        get(suite.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all());
        same(100L, get(suite.admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all())
                .get(partition).offset(), "earliest after deleting everything");
        same(100L, suite.fill("java-deleted-records", 0, 1).get(0).offset(), "offset of the next record");
    }

    private static void topicConfigs(Suite suite) throws Exception {
        suite.createTopic("java-configs", 1, "segment.bytes", "1048576");
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-configs");
        ConfigEntry segment = config(suite, topic, "segment.bytes");
        same("1048576", segment.value(), "segment.bytes");
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, segment.source(), "source of segment.bytes");
        ConfigEntry retention = config(suite, topic, "retention.ms");
        same("604800000", retention.value(), "retention.ms");
        same(ConfigEntry.ConfigSource.DEFAULT_CONFIG, retention.source(), "source of retention.ms");

        alter(suite, topic, "retention.ms", "3600000", AlterConfigOp.OpType.SET);
        Suite.eventually("retention.ms is set", () ->
                "3600000".equals(config(suite, topic, "retention.ms").value()));
        same("1048576", config(suite, topic, "segment.bytes").value(), "segment.bytes after another change");
        alter(suite, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        Suite.eventually("cleanup.policy has both", () ->
                "delete,compact".equals(config(suite, topic, "cleanup.policy").value()));
        alter(suite, topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        Suite.eventually("cleanup.policy has one", () ->
                "compact".equals(config(suite, topic, "cleanup.policy").value()));
        alter(suite, topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        Suite.eventually("retention.ms is back", () ->
                "604800000".equals(config(suite, topic, "retention.ms").value()));

        isA(InvalidConfigurationException.class, failure(suite.admin.incrementalAlterConfigs(Map.of(topic, List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all()));
        isA(InvalidConfigurationException.class, failure(suite.admin.incrementalAlterConfigs(Map.of(topic, List.of(
                new AlterConfigOp(new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET)))).all()));
        ConfigResource missing = new ConfigResource(ConfigResource.Type.TOPIC, "java-no-such");
        isA(UnknownTopicOrPartitionException.class, failure(suite.admin.describeConfigs(List.of(missing)).all()));
        Map<ConfigResource, Config> all = get(suite.admin.describeConfigs(List.of(topic),
                new org.apache.kafka.clients.admin.DescribeConfigsOptions()
                        .includeDocumentation(true).includeSynonyms(true)).all());
        check(!all.get(topic).get("segment.bytes").documentation().isEmpty(), "segment.bytes has no documentation");
        check(all.get(topic).get("segment.bytes").synonyms().size() >= 2, "segment.bytes has no synonyms");
    }

    private static ConfigEntry config(Suite suite, ConfigResource resource, String name) throws Exception {
        return get(suite.admin.describeConfigs(List.of(resource)).all()).get(resource).get(name);
    }

    private static void alter(
            Suite suite, ConfigResource resource, String name, String value, AlterConfigOp.OpType operation)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), operation);
        get(suite.admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    private static void brokerConfigs(Suite suite) throws Exception {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        same("1", config(suite, broker, "node.id").value(), "node.id");
        check(config(suite, broker, "node.id").isReadOnly(), "node.id can be changed at run time");
        same(ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, config(suite, broker, "log.dirs").source(),
                "source of log.dirs");
        alter(suite, broker, "log.retention.ms", "7200000", AlterConfigOp.OpType.SET);
        Suite.eventually("log.retention.ms is set", () ->
                "7200000".equals(config(suite, broker, "log.retention.ms").value()));
        same(ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, config(suite, broker, "log.retention.ms").source(),
                "source of log.retention.ms");
        suite.createTopic("java-inherits", 1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-inherits");
        same("7200000", config(suite, topic, "retention.ms").value(), "retention.ms that the topic inherits");
        alter(suite, broker, "log.retention.ms", "", AlterConfigOp.OpType.DELETE);
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        alter(suite, all, "log.retention.ms", "7300000", AlterConfigOp.OpType.SET);
        Suite.eventually("the cluster-wide value is inherited", () ->
                "7300000".equals(config(suite, topic, "retention.ms").value()));
        alter(suite, all, "log.retention.ms", "", AlterConfigOp.OpType.DELETE);
        Suite.eventually("the default is back", () ->
                "604800000".equals(config(suite, topic, "retention.ms").value()));
    }

    private static void describeLogDirs(Suite suite) throws Exception {
        suite.createTopic("java-log-dirs", 2);
        suite.fill("java-log-dirs", 0, 100);
        Map<String, LogDirDescription> directories =
                get(suite.admin.describeLogDirs(List.of(1)).allDescriptions()).get(1);
        same(1, directories.size(), "log directories");
        LogDirDescription directory = directories.values().iterator().next();
        ReplicaInfo filled = directory.replicaInfos().get(partition("java-log-dirs", 0));
        check(filled.size() > 500, "partition 0 holds " + filled.size() + " bytes");
        same(0L, filled.offsetLag(), "offset lag");
        same(0L, directory.replicaInfos().get(partition("java-log-dirs", 1)).size(), "bytes of partition 1");
        check(directory.totalBytes().orElse(0) > directory.usableBytes().orElse(Long.MAX_VALUE) - 1,
                "total " + directory.totalBytes() + ", usable " + directory.usableBytes());
    }

    private static void describeProducers(Suite suite) throws Exception {
        suite.createTopic("java-producers", 1);
        try (KafkaProducer<String, String> producer =
                suite.producer("enable.idempotence", "true", "linger.ms", "0")) {
            for (int i = 0; i < 7; i++) {
                producer.send(new ProducerRecord<>("java-producers", 0, "k", "v")).get(60, TimeUnit.SECONDS);
            }
            TopicPartition partition = partition("java-producers", 0);
            List<ProducerState> active =
                    get(suite.admin.describeProducers(List.of(partition)).all()).get(partition).activeProducers();
            same(1, active.size(), "active producers");
            same(6, active.get(0).lastSequence(), "last sequence");
            same(0, active.get(0).producerEpoch(), "producer epoch");
            check(active.get(0).currentTransactionStartOffset().isEmpty(), "there is no transaction");
        }
    }
}
